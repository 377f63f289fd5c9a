"""What optimizers can be told: the types of their arguments, and what to say about one that there is not.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any, Dict, Iterable, Literal, Mapping, Optional, Tuple, TypedDict, Union

from torch import Tensor

Params = Union[Iterable[Tensor], Iterable[Dict[str, Any]], Iterable[Tuple[str, Tensor]]]
Rate = Union[float, Tensor]
Betas = Tuple[float, float]

Decay = Literal["none", "l2", "decoupled", "independent"]
Flavour = Literal["paper", "published", "keras", "adamd"]
LowPrecision = Literal["master", "stochastic"]
Spatial = Literal["max", "none"]
StateType = Literal["auto", "bf16", "q8"]


class Common(TypedDict, total=False):
    """Options that every optimizer here has, for all parameters or in a parameter group.

    decay: how weight_decay acts: "none", "l2" (added to the gradient), "decoupled" (p -= lr * weight_decay * p, as
        AdamW) or "independent" (p -= weight_decay * p, whatever the learning rate).
    maximize: ascend.
    clip_value: gradients are clamped to plus and minus this.
    low_precision: bfloat16 and float16 parameters: "master" keeps a float32 copy in the state, "stochastic" keeps none
        and rounds at random, so that small updates act on average.
    state_type: "auto" (float32; float64 for float64 parameters); "bf16": half the memory, rounded at random; or "q8",
        for AdaMod, Adam, AdamW and SGD: a quarter, 8 bits in blocks of 256 with a scale each.
    min_8bit_size: with state_type="q8", parameters with fewer elements, in this process, have states as with "auto".
    seed: of the random rounding.
    capturable, foreach: torch.optim's, for programs that pass them, and without effect: all steps can be captured into a
        CUDA graph.
    fused: torch.optim's; all steps are fused, and with True a step also does a GradScaler's unscaling.
    differentiable: torch.optim's too; only False, since autograd cannot see through a step.
    """

    decay: Decay
    maximize: bool
    clip_value: float
    low_precision: LowPrecision
    state_type: StateType
    min_8bit_size: int
    seed: int
    capturable: bool
    differentiable: bool
    foreach: Optional[bool]
    fused: Optional[bool]


# What torch.optim's optimizers have to be told: there, which of several implementations to use. Here one does it all.
_IMPLEMENTATIONS = ("capturable", "differentiable", "foreach", "fused")

# Names that others have for what is here: which option it is, and how it says the same.
_DECAY = "decay", "decay='decoupled' or 'l2' says how weight_decay acts"
_OTHER_NAMES = {
    "adam_debias": ("flavour", "flavour='adamd' is what adam_debias=True means"),
    "beta1": ("betas", "it is the first of betas"),
    "beta2": ("betas", "it is the second of betas"),
    "decoupled_weight_decay": _DECAY,
    "eps1": ("eps", "it is the first of eps"),
    "eps2": ("eps", "it is the second of eps"),
    "epsilon": ("eps", "did you mean 'eps'?"),
    "fixed_decay": ("decay", "decay='independent' is what fixed_decay=True means"),
    "learning_rate": ("lr", "did you mean 'lr'?"),
    "weight_decouple": _DECAY,
}


def _hint(cls: type, name: str) -> str:
    """What may be meant by an option that a class has not."""
    own = [p.name for p in inspect.signature(cls).parameters.values() if p.kind is not p.VAR_KEYWORD]
    known = [*own, *Common.__annotations__]
    option, text = _OTHER_NAMES.get(name, ("", ""))
    if option in known:
        return f": {text}"
    near = difflib.get_close_matches(name.lower(), known, 1, 0.7)
    return f": did you mean '{near[0]}'?" if near else f"; it has {', '.join(known[1:])}"


def taken(cls: type, common: Mapping[str, Any]) -> Dict[str, Any]:
    """Of the keywords that a class was given beside its own, those that are options of a group; refuses others."""
    for name in sorted(common):
        if name not in Common.__annotations__:
            raise TypeError(f"{cls.__name__} has no option '{name}'{_hint(cls, name)}")
    if common.get("differentiable"):
        raise ValueError(
            f"{cls.__name__}: differentiable is {common['differentiable']}, expected False: "
            f"autograd cannot see through a step"
        )
    return {name: value for name, value in common.items() if name not in _IMPLEMENTATIONS}
