"""The arguments of optimizers: their types, and messages for unknown ones.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any, Dict, Iterable, List, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union

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
    clip_norm: scales the gradients of all groups together, so that their global norm is at most this; one number for
        all groups. What torch.nn.utils.clip_grad_norm_ does before a step, in the step.
    low_precision: how bfloat16 and float16 parameters are updated. "master" keeps a float32 copy in the state.
        "stochastic" keeps none and rounds at random, so that small updates act on average.
    state_type: the type of states. "auto" is float32, and float64 for float64 parameters. "bf16" takes half the memory
        and rounds at random. "q8" takes a quarter: 8 bits in blocks of 256 with a scale each; docs/pytorch.md says
        which optimizers have it.
    min_8bit_size: with state_type="q8", parameters with fewer elements in this process have states as with "auto".
    offload: keeps the states of parameters on a GPU in host memory, page-locked, where the GPU reads and writes them
        over the bus: less GPU memory, slower steps. Without effect for parameters on the CPU.
    seed: of the random rounding.
    cautious: elements that would step against their gradient stay, and the others step further (arXiv 2411.16085).
        Not all optimizers have it: see docs/pytorch.md.
    capturable, foreach: accepted as in torch.optim, without effect: every step can be captured into a CUDA graph.
    fused: every step is fused. With True, a step also unscales gradients for a GradScaler, as in torch.optim.
    differentiable: as in torch.optim; only False is accepted, since autograd cannot differentiate a step.
    """

    decay: Decay
    maximize: bool
    clip_value: float
    clip_norm: float
    low_precision: LowPrecision
    state_type: StateType
    min_8bit_size: int
    offload: bool
    seed: int
    cautious: bool
    capturable: bool
    differentiable: bool
    foreach: Optional[bool]
    fused: Optional[bool]


class Bounded(Common, total=False):
    """Options of the rules that have a learning rate for each element, and no bound of their own.

    bound: "momental" bounds each element's learning rate by its running average, as AdaMod does.
    beta3: decay of that average; 0 is no bound.
    skip_idle: an element's average begins with its first gradient other than 0 (AdaShift and Sophia do so by themselves).
    """

    bound: Bound
    beta3: float
    skip_idle: bool


_OF_BOUND = [name for name in Bounded.__annotations__ if name not in Common.__annotations__]
_OF_SOME = frozenset(("cautious", *_OF_BOUND))  # not of every rule


# Arguments by which torch.optim chooses among implementations. Here there is one.
_IMPLEMENTATIONS = ("capturable", "differentiable", "foreach", "fused")

# Names of options in other packages: the option here, and how to say the same with it.
_DECAY = "decay", "decay='decoupled' or 'l2' says how weight_decay acts"
_OTHER_NAMES = {
    "adam_debias": ("flavour", "flavour='adamd' is what adam_debias=True means"),
    "beta1": ("betas", "it is the first of betas"),
    "beta2": ("betas", "it is the second of betas"),
    "clip_lambda": ("clip", "clip=True clips to (t - 1)^0.25, the default there, and clip=False does not clip"),
    "clip_grad_norm": ("clip_norm", "did you mean 'clip_norm'?"),
    "decouple": _DECAY,
    "decoupled_weight_decay": _DECAY,
    "eps1": ("eps", "it is the first of eps"),
    "eps2": ("eps", "it is the second of eps"),
    "epsilon": ("eps", "did you mean 'eps'?"),
    "fixed_decay": ("decay", "decay='independent' is what fixed_decay=True means"),
    "learning_rate": ("lr", "did you mean 'lr'?"),
    "gradient_clip_val": ("clip_norm", "did you mean 'clip_norm'?"),
    "max_grad_norm": ("clip_norm", "did you mean 'clip_norm'?"),
    "max_precond_dim": ("max_precondition_dim", "did you mean 'max_precondition_dim'?"),
    "no_prox": ("decay", "decay='decoupled', the default, is what no_prox=True means"),
    "weight_decouple": _DECAY,
}


# Names in a constructor's locals() that are no options.
_NO_OPTIONS = ("self", "params", "common", "decoupled_weight_decay", "__class__")


def own(arguments: Dict[str, Any]) -> Dict[str, Any]:
    """The class's own options, from its constructor's locals()."""
    return {name: value for name, value in arguments.items() if name not in _NO_OPTIONS}


def _known(cls: type, options: Iterable[str]) -> List[str]:
    """The options of a class, params first; options: the library's."""
    own = [p.name for p in inspect.signature(cls).parameters.values() if p.kind is not p.VAR_KEYWORD]
    of_bound = [name for name in _OF_BOUND if name in options and name not in own]
    common = [name for name in Common.__annotations__ if name in options or name not in _OF_SOME]
    return [*own, *of_bound, *common]


def _hint(known: Sequence[str], name: str) -> Optional[str]:
    """The option that was probably meant by one that a class does not have; None: there is none like it."""
    option, text = _OTHER_NAMES.get(name, ("", ""))
    if option in known:
        return text
    near = difflib.get_close_matches(name.lower(), known, 1, 0.7)
    return f"did you mean '{near[0]}'?" if near else None


def _is_misspelt(known: Sequence[str], name: str) -> bool:
    """Whether a key of a group is probably meant to be an option. weight_decay_mult and the like are a program's own."""
    near = difflib.get_close_matches(name.lower(), known, 1, 0.8)
    return _OTHER_NAMES.get(name, ("",))[0] in known or any(abs(len(name) - len(option)) <= 2 for option in near)


# Keys that PyTorch, schedulers and timm put into groups beside an optimizer's options.
OF_OTHERS = frozenset(
    (
        *("params", "param_names", "step", "name", "capturable", "differentiable", "foreach", "fused", "maximize"),
        *("initial_lr", "base_lr", "max_lr", "min_lr", "swa_lr", "lr_scale", "max_lr_snapshot"),
        *("base_momentum", "initial_momentum", "max_momentum", "min_momentum"),
        *("lookahead_alpha", "lookahead_k", "lookahead_step"),
    )
)


def check_group(cls: type, group: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuses keys of a new group that are probably options misspelt, or the bound's beta3 where there is no bound. Other
    keys are a program's own."""
    known = _known(cls, defaults)
    for name in group:
        if isinstance(name, str) and name not in defaults and name not in OF_OTHERS and _is_misspelt(known, name):
            raise TypeError(f"{cls.__name__} has no option '{name}': {_hint(known, name)}")
    _check_differentiable(cls, group)
    check_of_bound(cls, group, [defaults])


def _check_differentiable(cls: type, options: Mapping[str, Any]) -> None:
    if options.get("differentiable"):
        raise ValueError(
            f"{cls.__name__}: differentiable is {options['differentiable']}, expected False: "
            f"autograd cannot differentiate a step"
        )


def check_of_bound(cls: type, options: Mapping[str, Any], groups: Iterable[Mapping[str, Any]]) -> None:
    """Refuses options of the bound where no group has the bound."""
    if "bound" in options or any(group.get("bound") != "none" for group in groups):
        return
    for name in _OF_BOUND:
        if name in options:
            theirs = name == "beta3" and "beta_d" in _known(cls, ())
            text = "; the authors' beta3 is beta_d here" if theirs else ""
            raise ValueError(
                f"{cls.__name__}: {name} is {options[name]}, and it is for bound='momental', which is not set{text}"
            )


def taken(cls: type, common: Mapping[str, Any], options: Iterable[str]) -> Dict[str, Any]:
    """The options of a group among the keywords that are not a class's own; options: the library's. Refuses unknown ones."""
    for name in sorted(common):
        if name not in Bounded.__annotations__ or (name in _OF_SOME and name not in options):
            known = _known(cls, options)
            hint = _hint(known, name)
            text = f": {hint}" if hint else f"; it has {', '.join(known[1:])}"
            raise TypeError(f"{cls.__name__} has no option '{name}'{text}")
    _check_differentiable(cls, common)
    return {name: value for name, value in common.items() if name not in _IMPLEMENTATIONS}
