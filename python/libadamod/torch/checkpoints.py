"""Checkpoints of other packages and of other optimizers: what they say in other words, and what has to be refused,
since a run would go on with another formula than it had.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from torch import Tensor

from .options import OF_OTHERS

Group = Dict[str, Any]

# Options that tell our optimizers apart, beside those that a class needs: a class without such an option refuses a
# checkpoint that has it. (Checkpoints of other packages may only have options that are known here.)
_TELLING = frozenset(("betas", "amsgrad", "beta3", "dampening", "rectify", "beta3_warmup", "centered", "bs", "no_prox"))

# Options by which other packages say how weight_decay acts. decay_in_other_words translates them.
_OF_DECAY = frozenset(("decouple", "decoupled_weight_decay", "weight_decouple", "fixed_decay", "adam_debias"))

# Options of other packages that change the formula unless they have this value.
_SWITCHES = {
    **{"correct_bias": True, "bias_correction": True, "adanorm": False, "use_gc": False, "cautious": False},
    **{"caution": False, "corrected_weight_decay": False, "max_grad_norm": False, "clipping_threshold": False},
    **{"decoupling_c": False, "ams_bound": False, "use_palm": False, "decay_at_z": False},  # Schedule-Free's
    **{"merge_dims": False, "precondition_1d": False, "normalize_grads": False, "normalize_gradient": False},  # SOAP's
}

# States of all rules, and what timm's Lookahead keeps beside an optimizer's own.
_ANY_STATES = frozenset(("step", "master", "lookahead_slow_buff"))


class Telling(NamedTuple):
    """How a class recognises its checkpoints, whichever package wrote them."""

    needed: Tuple[str, ...] = ()  # options that every one has
    foreign: Tuple[str, ...] = ()  # options that other packages save, and the class does not have
    ported: bool = False  # pytorch_optimizer, whose checkpoints have weight_decouple, computes the same
    states: Tuple[str, ...] = ()  # states that other packages save, and the class does not have
    caution: bool = False  # timm's caution is cautious here


def is_ours(group: Group) -> bool:
    """Whether one of our classes saved it."""
    return "low_precision" in group


def is_ported(group: Group) -> bool:
    """Whether pytorch_optimizer saved it."""
    return "weight_decouple" in group and "decay" not in group


def other_formula(
    rule: str, telling: Telling, others_need: FrozenSet[str], group: Group, before: Group, has_states: bool
) -> Optional[str]:
    """Why a saved group does not belong to a rule, in a few words; None: it may. before: the group that it replaces;
    keys that this has too do not matter. others_need: options that any class needs."""
    if "beta3" in group and "bound" not in group and "bound" in before:
        return f"it has beta3, which {rule} does not have without a bound"
    if group.get("cautious") and not is_ours(group):  # pytorch_optimizer's steps go as far as if one element more moved
        return f"it was saved with cautious={group['cautious']}, a formula that {rule} does not have here"
    for key in group:
        if key in before or key in telling.foreign or (key == "caution" and telling.caution and "cautious" in before):
            continue
        if key in _SWITCHES and bool(group[key]) is not _SWITCHES[key]:
            return f"it was saved with {key}={group[key]}, a formula that {rule} does not have here"
        known = key in OF_OTHERS or key in _OF_DECAY or key in _SWITCHES
        if key in _TELLING or key in others_need or not (known or is_ours(group)):
            return f"it has {key}, which {rule} does not have"
    missing = [key for key in telling.needed if key not in group] if has_states else []
    if missing:
        return f"it has no {missing[0]}, which {rule} has"
    if is_ported(group) and not telling.ported:
        return f"it has weight_decouple, as pytorch_optimizer's have, and none of these computes what {rule} does here"
    return None


def other_states(rule: str, telling: Telling, known: FrozenSet[str], states: List[Dict[str, Any]]) -> Optional[str]:
    """Why states that another package saved do not belong to a rule, in a few words; None: they may. known: the rule's
    states."""
    for state in states:
        for name in state:
            if name not in known and name not in _ANY_STATES and name not in telling.states:
                return f"its states have {name}, which {rule} does not have"
    return None


def decay_in_other_words(group: Group) -> None:
    """Sets decay in a group that has another package's option for how weight_decay acts."""
    decoupled = group.pop("decoupled_weight_decay", None)  # torch.optim's Adam and RAdam
    if decoupled is not None:
        group.setdefault("decay", "decoupled" if decoupled else "l2")
    decouple = group.pop("decouple", None)  # the authors' ADOPT and Prodigy
    if decouple is not None:
        group.setdefault("decay", "decoupled" if decouple else "l2")
    fixed = "independent" if group.pop("fixed_decay", False) else "decoupled"  # pytorch_optimizer's
    if "weight_decouple" in group:
        group.setdefault("decay", fixed if group.pop("weight_decouple") else "l2")
    caution = group.pop("caution", None)
    if caution is not None:  # timm's, which all decouple it
        group.setdefault("decay", "decoupled")
    if caution:
        group["cautious"] = True


def need_decay(group: Group, *telling: str) -> None:
    """Refuses a group with weight_decay that has neither decay nor one of the keys that tell how weight_decay acts."""
    if group.get("weight_decay") and not any(key in group for key in ("decay", *telling)):
        raise ValueError("it does not tell how weight_decay acts: set decay in it to 'l2' or 'decoupled'")


def check_form(saved: Any, groups: Sequence[Group]) -> None:
    """Refuses checkpoints that do not fit these groups, for mistakes that PyTorch has no message for."""
    for key, kind, name in (("state", Mapping, "a dict"), ("param_groups", (list, tuple), "a list")):
        if key not in saved:
            raise ValueError(f"the checkpoint has no {key}: expected what state_dict() of an optimizer returns")
        if not isinstance(saved[key], kind):
            raise TypeError(f"{key} of the checkpoint is {type(saved[key]).__name__}, expected {name}")
    for key, state in saved["state"].items():
        if not isinstance(state, dict):
            raise TypeError(f"the state of parameter {key} is {type(state).__name__}, expected a dict of tensors")
    for index, group in enumerate(saved["param_groups"]):
        if not isinstance(group, Mapping):
            raise TypeError(f"group {index} of the checkpoint is {type(group).__name__}, expected a dict")
        if not isinstance(group.get("params"), (list, tuple)):
            raise ValueError(f"group {index} of the checkpoint has no list of params")
    ids = [i for group in saved["param_groups"] for i in group["params"]]
    for i, p in zip(ids, [p for group in groups for p in group["params"]]):
        for name, value in saved["state"].get(i, {}).items():
            if name != "step" and isinstance(value, Tensor) and value.is_meta and not p.is_meta:
                raise ValueError(f"{name} of parameter {i} is a meta tensor, which has no values")


def whole(steps: Any) -> Any:
    """A count of updates as an int. A value that is no whole number stays, for a later message that names its
    parameter."""
    try:
        value = steps.item() if isinstance(steps, Tensor) else steps
        return int(value) if not isinstance(value, str) and int(value) == value else steps
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return steps


def count_as_saved(group: Group, states: Dict[Tensor, Dict[str, Any]]) -> None:
    """Takes over a group's count of updates, which some packages keep for all of its parameters, with a gradient or
    not. Counts of ours that such a package carried along in the states stand still, so the group's is larger; if we
    wrote the group's count ourselves, it is the largest of the parameters' own."""
    steps = whole(group.get("step", 0))
    params: List[Tensor] = group["params"]
    own = [whole(states[p]["step"]) for p in params if states.get(p) and states[p].get("step") is not None]
    if not isinstance(steps, int) or any(not isinstance(n, int) for n in own) or steps <= max(own, default=0):
        return
    group["count"] = "group"
    for p in params:
        states.setdefault(p, {})["step"] = steps
