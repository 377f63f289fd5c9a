"""The arguments of optimizers: their types, and messages for unknown ones.

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

Betas3 = Tuple[float, float, float]

Bound = Literal["none", "momental"]
Decay = Literal["none", "l2", "decoupled", "independent"]
Flavour = Literal["paper", "published", "keras", "adamd"]
LowPrecision = Literal["master", "stochastic"]
Spatial = Literal["max", "none"]
StateType = Literal["auto", "bf16", "q8"]


class Common(TypedDict, total=False):
    """Options that every optimizer here has, for all parameters or in a parameter group.

    decay: how weight_decay acts: "none", "l2" (added to the gradient), "decoupled" (p -= lr * weight_decay * p, as
        AdamW) or "independent" (p -= weight_decay * p, whatever the learning rate).
    maximize: maximizes the objective instead of minimizing it.
    clip_value: clamps each element of a gradient to [-clip_value, clip_value].
    low_precision: how bfloat16 and float16 parameters are updated. "master" keeps a float32 copy in the state.
        "stochastic" keeps none and rounds at random, so that small updates act on average.
    state_type: the type of states. "auto" is float32, and float64 for float64 parameters. "bf16" takes half the memory
        and rounds at random. "q8" takes a quarter: 8 bits in blocks of 256 with a scale each; it is for AdaMod, Adam,
        AdamW, SGD and Lion.
    min_8bit_size: with state_type="q8", parameters with fewer elements in this process have states as with "auto".
    seed: of the random rounding.
    capturable, foreach: accepted as in torch.optim, without effect: every step can be captured into a CUDA graph.
    fused: every step is fused. With True, a step also unscales gradients for a GradScaler, as in torch.optim.
    differentiable: as in torch.optim; only False is accepted, since autograd cannot differentiate a step.
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


class Bounded(Common, total=False):
    """Options of the rules that have a learning rate for each element, and no bound of their own.

    bound: "momental" bounds each element's learning rate by its running average, as AdaMod does.
    beta3: decay of that average; 0 is no bound.
    """

    bound: Bound
    beta3: float


# Arguments by which torch.optim chooses among implementations. Here there is one.
_IMPLEMENTATIONS = ("capturable", "differentiable", "foreach", "fused")

# Names of options in other packages: the option here, and how to say the same with it.
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


# Of a constructor's locals(), what is no option.
_NO_OPTIONS = ("self", "params", "common", "decoupled_weight_decay", "__class__")


def own(arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Of a constructor's locals(), the options that are its own."""
    return {name: value for name, value in arguments.items() if name not in _NO_OPTIONS}


def _hint(cls: type, name: str) -> str:
    """A hint at what was meant by an option that a class does not have."""
    own = [p.name for p in inspect.signature(cls).parameters.values() if p.kind is not p.VAR_KEYWORD]
    known = [*own, *Common.__annotations__]
    option, text = _OTHER_NAMES.get(name, ("", ""))
    if option in known:
        return f": {text}"
    near = difflib.get_close_matches(name.lower(), known, 1, 0.7)
    return f": did you mean '{near[0]}'?" if near else f"; it has {', '.join(known[1:])}"


def taken(cls: type, common: Mapping[str, Any], bounded: bool) -> Dict[str, Any]:
    """The options of a group among the keywords that are not a class's own. Refuses unknown ones."""
    for name in sorted(common):
        if name not in (Bounded if bounded else Common).__annotations__:
            raise TypeError(f"{cls.__name__} has no option '{name}'{_hint(cls, name)}")
    if common.get("differentiable"):
        raise ValueError(
            f"{cls.__name__}: differentiable is {common['differentiable']}, expected False: "
            f"autograd cannot differentiate a step"
        )
    return {name: value for name, value in common.items() if name not in _IMPLEMENTATIONS}
