"""libadamod's rules as torch.optim.Optimizers.

    from libadamod.torch import AdaMod
    optimizer = AdaMod(model.parameters(), lr=1e-3, beta3=0.999, weight_decay=5e-4)

PyTorch owns all tensors, states included; the C library updates them in place. One installation serves every PyTorch
from 1.13 on.

SPDX-License-Identifier: MIT
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(f"libadamod.torch needs PyTorch 1.13 or later, pip install torch: {error}") from None

from . import rivals, rules
from .names import create
from .optimizer import Optimizer
from .options import Bounded, Common
from .rates import Histogram, log_learning_rates
from .rivals import *
from .rules import *

__all__ = ["Bounded", "Common", "Histogram", "Optimizer", "create", "log_learning_rates"]
__all__ += rules.__all__
__all__ += rivals.__all__
