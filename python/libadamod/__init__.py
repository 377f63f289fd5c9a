"""AdaMod, and every optimizer its paper names: libadamod for Python.

    from libadamod.torch import AdaMod      # for PyTorch
    from libadamod import numpy as adamod   # for numpy arrays, without PyTorch

`rules()` lists the rules there are, `options(rule)` what can be set.

SPDX-License-Identifier: MIT
"""

from ._c import Option, options, rules, version

__version__ = version()
__all__ = ["Option", "options", "rules", "__version__"]
