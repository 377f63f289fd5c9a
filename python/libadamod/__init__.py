"""AdaMod, and every optimizer its paper names: libadamod for Python.

    from libadamod.torch import AdaMod      # for PyTorch
    from libadamod import numpy as adamod   # for numpy arrays, without PyTorch
    import libadamod.jax                    # for JAX and optax
    from libadamod.keras import AdaMod      # for Keras 3

`rules()` lists the rules there are, `options(rule)` what can be set.

SPDX-License-Identifier: MIT
"""

from ._c import Option, options, rules, version

__version__ = version()
__all__ = ["Option", "options", "rules", "__version__"]
