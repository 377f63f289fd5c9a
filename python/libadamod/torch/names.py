"""Optimizers by name.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import difflib
import inspect
import re
from typing import Any, Dict, Type

from . import rivals, rules
from .optimizer import Optimizer
from .options import Params


def classes() -> Dict[str, Type[Optimizer]]:
    """All optimizers by the names of their classes in small letters: "adamod", "schedulefreeadamw"."""
    named = [getattr(module, name) for module in (rules, rivals) for name in module.__all__]
    return {cls.__name__.lower(): cls for cls in named if inspect.isclass(cls) and issubclass(cls, Optimizer)}


def create(name: str, params: Params, **options: Any) -> Optimizer:
    """An optimizer by name, for programs whose users choose one: create("adamod", model.parameters(), lr=1e-3).

    Names are those of the classes and those of the library's rules (`adamod optim list`), in capitals or not, with or
    without "_" and "-": "AdamW", "adamw", "schedulefree_adamw". Defaults are the class's: "adam" has L2 decay, as
    torch.optim.Adam. options are the arguments of the class.
    """
    known = classes()
    if not isinstance(name, str):
        raise TypeError(f"the name of an optimizer is {name!r}, expected a string")
    cls = known.get(re.sub(r"[-_\s]", "", name).lower())
    if cls is None:
        near = difflib.get_close_matches(name.lower(), known, 1, 0.6)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(sorted(known))}"
        raise ValueError(f"there is no optimizer '{name}': {hint}")
    return cls(params, **options)
