"""Checkpoints of other packages and of other optimizers: what they say in other words, and what has to be refused,
since a run would go on with another formula than it had.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from torch import Tensor

Group = Dict[str, Any]

# Options that tell which optimizer a checkpoint is of, beside those that a class needs: a class that does not have them
# refuses it. The last lines are of optimizers that are not here.
_TELLING = frozenset(
    (
        *("betas", "amsgrad", "beta3", "dampening", "rectify", "beta3_warmup", "centered", "bs", "no_prox"),
        *("lambd", "etas", "beta2_decay", "history_size"),  # torch.optim's ASGD, Rprop, Adafactor, LBFGS
        "buffer",  # RAdam and AdaBelief as their authors', and timm's legacy RAdam
        "lr_in_momentum",  # timm's RMSpropTF
        "decouple_lr",  # optimi's
    )
)

# Options of other packages that make another formula, unless they have this value.
_SWITCHES = {
    **{"correct_bias": True, "bias_correction": True, "adanorm": False, "use_gc": False, "cautious": False},
    **{"caution": False, "corrected_weight_decay": False, "max_grad_norm": False},
}



class Telling(NamedTuple):
    """How a class knows its checkpoints, whichever package wrote them."""

    needed: Tuple[str, ...] = ()  # options that every one has
    foreign: Tuple[str, ...] = ()  # options that other packages save, and the class does not have
    ported: bool = False  # pytorch_optimizer, whose checkpoints have weight_decouple, computes the same


def is_ported(group: Group) -> bool:
    """Whether pytorch_optimizer saved it."""
    return "weight_decouple" in group and "decay" not in group


def other_formula(
    rule: str, telling: Telling, others_need: FrozenSet[str], group: Group, before: Group, has_states: bool
) -> Optional[str]:
    """Why a saved group does not belong to a rule, in a few words; None: it may. before: the group that it replaces;
    keys that this has too tell nothing. others_need: what any class needs."""
    if "beta3" in group and "bound" not in group and "bound" in before:
        return f"it has beta3, which {rule} does not have without a bound"
    for key in group:
        if key in before:
            continue
        if (key in _TELLING or key in others_need) and key not in telling.foreign:
            return f"it has {key}, which {rule} does not have"
        if key in _SWITCHES and bool(group[key]) is not _SWITCHES[key]:
            return f"it was saved with {key}={group[key]}, a formula that {rule} does not have here"
    missing = [key for key in telling.needed if key not in group] if has_states else []
    if missing:
        return f"it has no {missing[0]}, which {rule} has"
    if is_ported(group) and not telling.ported:
        return f"it has weight_decouple, as pytorch_optimizer's have, and none of these computes what {rule} does here"
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
