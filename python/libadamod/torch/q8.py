"""States in 8 bits: codes as a uint8 tensor with the parameter's shape and layout; and, as NAME_scale, a float32 for
each block of 256 codes in the order of memory, the last of which may be shorter. The codes of a DTensor are a DTensor
placed as it is, with the scales of this process's part: blocks begin anew in every part. If a step gathers the
parameter (whole.py), blocks are those of the whole, and the scales are a replicated DTensor: each process has all of
them.

Steps work on the codes themselves. These functions convert them from and to numbers, for checkpoints with the other
form.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Sequence, Tuple

import torch
from torch import Tensor

from .. import _c
from .sharding import is_distributed, local, placed

# Names of 8-bit states that can be negative.
_SIGNED = frozenset().union(*(i.signed_states for i in map(_c.rule_info, _c.rules()) if i.q8_states))


def scale_name(name: str) -> str:
    return f"{name}_scale"


def blocks(count: int) -> int:
    return -(-count // _c.Q8_BLOCK)


def _like(t: Tensor, here: Tensor) -> Tensor:
    """Makes a tensor this process's part of a DTensor that is placed as t is; if t is no DTensor, returns it as it
    is."""
    if not hasattr(t, "_local_tensor"):
        return here
    d: Any = t
    whole: Tensor = type(d).from_local(
        here, d.device_mesh, d.placements, run_check=False, shape=d.shape, stride=d.stride()
    )
    return whole


def encode(name: str, values: Tensor) -> Tuple[Tensor, Tensor]:
    """The codes of a dense tensor, in its layout, and their scales."""
    here = getattr(values, "_local_tensor", values).to(torch.float32)
    host = here.cpu()
    codes = torch.empty_strided(host.shape, host.stride(), dtype=torch.uint8, device="cpu")
    scales = torch.empty(blocks(host.numel()), dtype=torch.float32, device="cpu")
    _c.q8_encode(name not in _SIGNED, host.numel(), host.data_ptr(), codes.data_ptr(), scales.data_ptr())
    return _like(values, codes.to(here.device)), scales.to(here.device)


def decode(name: str, codes: Tensor, scales: Tensor) -> Tensor:
    """The numbers that dense codes stand for, in float32 and the codes' layout."""
    here = getattr(codes, "_local_tensor", codes)
    of_whole = is_distributed(scales)
    ones = torch.ones(blocks(here.numel()), dtype=torch.float32, device="cpu")
    host, factors = here.cpu(), ones if of_whole else scales.cpu()
    values = torch.empty_strided(host.shape, host.stride(), dtype=torch.float32, device="cpu")
    _c.q8_decode(name not in _SIGNED, host.numel(), host.data_ptr(), factors.data_ptr(), values.data_ptr())
    found = values.to(here.device)
    return _like(codes, found.mul_(_of_elements(codes, scales)) if of_whole else found)


def _of_elements(codes: Tensor, scales: Tensor) -> Tensor:
    """The scales of this process's elements, for blocks of the whole DTensor. They are powers of two, so that
    multiplying by them is exact."""
    each = local(scales).repeat_interleave(_c.Q8_BLOCK)[: codes.numel()].view(codes.shape)
    return local(placed(each, codes))


def decoded(state: Dict[str, Any], of_parts_only: bool = False) -> Dict[str, Any]:
    """A parameter's state, with 8-bit codes converted to numbers. of_parts_only: not those whose blocks are of a whole
    DTensor."""
    numbers = dict(state)
    for name in state:
        scales = state.get(scale_name(name))
        if scales is not None and not (of_parts_only and is_distributed(scales)):
            del numbers[scale_name(name)]
            numbers[name] = decode(name, state[name], scales)
    return numbers


def _is_code(t: Any) -> bool:
    return isinstance(t, Tensor) and t.dtype is torch.uint8


def _of_all_processes(p: Tensor, state: Dict[str, Any]) -> Dict[str, Any]:
    """The state of a DTensor as numbers, in the type that is used by a process whose part is too small for codes."""
    dtype = p.dtype if p.dtype is torch.float64 else torch.float32
    numbers = decoded(state)
    return {name: t.to(dtype) if _is_code(state[name]) else t for name, t in numbers.items()}


def portable(saved: Dict[str, Any], params: Sequence[Tensor]) -> Dict[str, Any]:
    """A state_dict in which the states of DTensors are numbers: so they can be gathered, and sharded otherwise. Groups
    say "q8" only where there are codes."""
    states = {
        i: _of_all_processes(params[i], state)
        if any(_is_code(t) and hasattr(t, "_local_tensor") for t in state.values())
        else state
        for i, state in saved["state"].items()
    }
    for group in saved["param_groups"]:
        if group["state_type"] == "q8" and not _has_codes(states.get(i, {}) for i in group["params"]):
            group["state_type"] = "auto"
    return {**saved, "state": states}


def _has_codes(states: Iterable[Dict[str, Any]]) -> bool:
    return any(_is_code(t) for state in states for t in state.values())


def check_loaded(group: Dict[str, Any], states: Dict[Tensor, Dict[str, Any]]) -> None:
    """Finds codes that were copied into numbers: torch.distributed.checkpoint loads into whatever type is there."""
    own = [states.get(p, {}) for p in group["params"]]
    least = max(group.get("min_8bit_size", 0), 2)
    large = any(
        isinstance(t, Tensor) and t.is_floating_point() and t.numel() >= least
        for state in own
        for name, t in state.items()
        if name not in ("step", "master")
    )
    if group.get("state_type") == "q8" and large and not _has_codes(own):
        raise ValueError(
            "the checkpoint has states in 8 bits, which were loaded as numbers: torch.distributed.checkpoint needs an "
            "optimizer with the same state_type, and parameters that are sharded or whole as they were"
        )
