"""libadamod's rules as torch.optim.Optimizers.

    from libadamod.torch import AdaMod
    optimizer = AdaMod(model.parameters(), lr=1e-3, beta3=0.999, weight_decay=5e-4)

PyTorch owns all tensors, states included; the C library updates them in place. One installation serves every PyTorch
from 1.13 on.

SPDX-License-Identifier: MIT
"""

from .optimizer import Optimizer
from .options import Bounded, Common
from .rates import Histogram, log_learning_rates
from .rivals import (
    ADOPT,
    LAMB,
    AdaBelief,
    Adamax,
    Adan,
    AdEMAMix,
    Lion,
    Muon,
    NAdam,
    Prodigy,
    ScheduleFreeAdamW,
    ScheduleFreeSGD,
    SOAP,
    Sophia,
    StableAdamW,
)
from .rules import (
    SGD,
    AdaBound,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    AdaMod,
    AdamW,
    AdaShift,
    AMSBound,
    AMSGrad,
    NosAdam,
    RAdam,
    RMSprop,
)

__all__ = [
    "ADOPT",
    "AMSBound",
    "AMSGrad",
    "AdEMAMix",
    "AdaBelief",
    "AdaBound",
    "AdaMod",
    "AdaShift",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Adan",
    "Bounded",
    "Common",
    "Histogram",
    "LAMB",
    "Lion",
    "Muon",
    "NAdam",
    "NosAdam",
    "Optimizer",
    "Prodigy",
    "RAdam",
    "RMSprop",
    "SGD",
    "ScheduleFreeAdamW",
    "ScheduleFreeSGD",
    "SOAP",
    "Sophia",
    "StableAdamW",
    "log_learning_rates",
]
