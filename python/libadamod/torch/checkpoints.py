"""Checkpoints of other packages and of other optimizers: what they say in other words, and what has to be refused,
since a run would go on with another formula than it had.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Sequence

from torch import Tensor

Group = Dict[str, Any]

_BOUND = ("adabound", "amsbound")

# Options that tell what a checkpoint is of, and the rules that have them. None: of an optimizer that is not here.
_TELLING: Dict[str, Sequence[str]] = {
    "betas": (
        *("adamod", "adam", "amsgrad", *_BOUND, "adashift", "nosadam", "radam", "lion", "nadam", "adamax", "adabelief"),
        *("adopt", "ademamix", "adan", "lamb", "stableadamw", "schedulefree_adamw", "sophia", "prodigy", "soap"),
    ),
    "amsgrad": ("adam", "amsgrad"),
    "beta3": ("adamod",),
    "final_lr": _BOUND,
    "gamma": (*_BOUND, "nosadam"),
    "momentum": ("sgd", "rmsprop", "schedulefree_sgd", "muon"),
    "warmup_steps": ("schedulefree_adamw", "schedulefree_sgd"),
    "dampening": ("sgd",),
    "alpha": ("rmsprop", "ademamix"),
    "clip": ("adopt",),
    "trust_ratio": ("lamb",),
    "update_clipping": ("stableadamw",),
    "rectify": ("adabelief",),
    "beta3_warmup": ("ademamix",),
    "centered": ("rmsprop",),
    "rho": ("adadelta", "sophia"),
    "bs": ("sophia",),
    "d_coef": ("prodigy",),
    "lr_decay": ("adagrad", "nosadam"),
    "window": ("adashift",),
    "clip_threshold": ("adafactor",),
    "momentum_decay": ("nadam",),
    "lambd": (),  # its ASGD
    "etas": (),  # its Rprop
    "beta2_decay": (),  # its Adafactor
    "history_size": (),  # its LBFGS
    "ns_steps": ("muon",),
    "precondition_frequency": ("soap",),
    "no_prox": ("adan",),
    "buffer": (),  # RAdam and AdaBelief as their authors', and timm's legacy RAdam
    "lr_in_momentum": (),  # timm's RMSpropTF
    "decouple_lr": (),  # optimi's
}

# Options that every checkpoint of a rule has, whoever wrote it.
_NEEDED: Dict[str, Sequence[str]] = {
    "sgd": ("momentum",),
    "adagrad": ("lr_decay",),
    "rmsprop": ("alpha",),
    "adadelta": ("rho",),
    "adabound": ("final_lr", "gamma"),
    "amsbound": ("final_lr", "gamma"),
    "adashift": ("window",),
    "nosadam": ("gamma",),
    "adafactor": ("clip_threshold",),
    "nadam": ("momentum_decay",),
    "ademamix": ("alpha",),
    "adopt": ("clip",),
    "lamb": ("trust_ratio",),
    "schedulefree_adamw": ("warmup_steps",),
    "schedulefree_sgd": ("warmup_steps",),
    "sophia": ("rho",),
    "stableadamw": ("update_clipping",),
    "prodigy": ("d_coef",),
    "muon": ("ns_steps",),
    "soap": ("precondition_frequency",),
}

# Options of other packages that make another formula, unless they have this value.
_SWITCHES = {
    **{"correct_bias": True, "bias_correction": True, "adanorm": False, "use_gc": False, "cautious": False},
    **{"caution": False, "corrected_weight_decay": False, "max_grad_norm": False},
}

# pytorch_optimizer's checkpoints have weight_decouple. These of its rules are computed as here.
_PORTED = ("adamod", *_BOUND, "adadelta", "sgd", "radam")
_RADAM_OF_PORT = ("weight_decouple", "fixed_decay", "foreach", "adam_debias", "initial_lr")  # beside what is here too
_RECTIFIED_FROM = 6  # updates; before, pytorch_optimizer's RAdam may do nothing


def other_formula(rule: str, group: Group, before: Group, has_states: bool) -> Optional[str]:
    """Why a saved group does not belong to a rule, in a few words; None: it may. before: the group that it replaces;
    keys that this has too tell nothing."""
    unknown = [key for key in group if key not in before]
    if rule != "adamod" and "beta3" in group and "bound" not in group and "bound" in before:
        return f"it has beta3, which {rule} does not have without a bound"
    for key in unknown:
        if rule not in _TELLING.get(key, (rule,)):
            return f"it has {key}, which {rule} does not have"
        if key in _SWITCHES and bool(group[key]) is not _SWITCHES[key]:
            return f"it was saved with {key}={group[key]}, a formula that {rule} does not have here"
    if rule == "adan" and not group.get("no_prox", True) and group["weight_decay"]:
        return "it was saved with weight_decay and without no_prox, a formula that adan does not have here"
    if has_states:
        missing = [key for key in _NEEDED.get(rule, ()) if key not in group]
        # What has a say in this, ours or torch.optim's, and no amsgrad, is RAdam's, NAdam's and the like.
        if rule == "adam" and "amsgrad" not in group and ("decay" in group or "decoupled_weight_decay" in group):
            missing = ["amsgrad"]
        if missing:
            return f"it has no {missing[0]}, which {rule} has"
    return _other_port(rule, group, unknown) if "weight_decouple" in group and "decay" not in group else None


def _other_port(rule: str, group: Group, unknown: Iterable[str]) -> Optional[str]:
    if rule not in _PORTED:
        return f"it has weight_decouple, as pytorch_optimizer's have, and none of these computes what {rule} does here"
    if rule != "radam":
        return None  # states and options tell
    others = [key for key in unknown if key not in _RADAM_OF_PORT]
    if others:
        return f"it has {others[0]}, which radam does not have"
    if group["weight_decay"] and not group["weight_decouple"]:
        return "it was saved with weight_decouple=False, which pytorch_optimizer's RAdam takes for no decay"
    if int(group.get("step", 0)) < _RECTIFIED_FROM:
        return f"it was saved before update {_RECTIFIED_FROM}, until which pytorch_optimizer's RAdam has another formula"
    return None


def decay_in_other_words(group: Group) -> None:
    """Says how weight_decay acts as it is said here, where the group says it."""
    decoupled = group.pop("decoupled_weight_decay", None)  # torch.optim's Adam and RAdam
    if decoupled is not None:
        group.setdefault("decay", "decoupled" if decoupled else "l2")
    fixed = "independent" if group.pop("fixed_decay", False) else "decoupled"  # pytorch_optimizer's
    if "weight_decouple" in group:
        group.setdefault("decay", fixed if group.pop("weight_decouple") else "l2")
    if group.pop("caution", None) is not None:  # timm's, which all decouple it
        group.setdefault("decay", "decoupled")


def whole(steps: Any) -> Any:
    """Updates as an int; what is no number stays, for who can name the parameter that has it."""
    try:
        return int(steps)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return steps


def count_as_saved(group: Group, states: Dict[Tensor, Dict[str, Any]]) -> None:
    """Some packages count updates in the group, for all of its parameters, whether they have a gradient or not. A count
    of ours that came along with the states stands still there, so the group's is larger; where we wrote it ourselves,
    it is the largest of the parameters' own."""
    steps = whole(group.get("step", 0))
    params: List[Tensor] = group["params"]
    own = [whole(states[p]["step"]) for p in params if states.get(p) and states[p].get("step") is not None]
    if not isinstance(steps, int) or any(not isinstance(n, int) for n in own) or steps <= max(own, default=0):
        return
    group["count"] = "group"
    for p in params:
        states.setdefault(p, {})["step"] = steps
