"""Names for timm: after `import libadamod.timm`, its create_optimizer_v2 knows every optimizer here.

    import libadamod.timm
    optimizer = timm.optim.create_optimizer_v2(model, "adamod", lr=1e-3, weight_decay=0.05)

Each has two names, in small letters: "libadamod.adamod", and "adamod" where timm has none of that name itself. So "adam"
stays timm's, and "libadamod.adam" is ours.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import inspect
from typing import Any, List, Type

from . import rules
from .torch.names import classes
from .torch.optimizer import Optimizer

try:
    from timm.optim._optim_factory import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
        OptimInfo,
        default_registry,
    )
except ImportError as error:
    raise ImportError(f"libadamod.timm needs timm 1.0.12 or later: {error}") from None

__all__ = ["names"]


def _info(name: str, cls: Type[Optimizer]) -> Any:
    """timm's record of a class: which of its arguments the class takes."""
    arguments = inspect.signature(cls).parameters
    return OptimInfo(
        name=name,
        opt_class=cls,
        description=f"libadamod: {rules()[cls.rule]}",
        has_eps="eps" in arguments and isinstance(arguments["eps"].default, float),  # Adafactor has two
        has_momentum="momentum" in arguments,
        has_betas="betas" in arguments,
        num_betas=len(arguments["betas"].default) if "betas" in arguments else 2,
    )


def _register() -> List[str]:
    found: List[str] = []
    there = set(default_registry.list_optimizers())
    for name, cls in classes().items():
        for known in (f"libadamod.{name}", name):
            if known not in there:
                default_registry.register(_info(known, cls))
                found.append(known)
    return found


# The names that were registered.
names = _register()
