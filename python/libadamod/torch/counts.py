"""Counts of updates as PyTorch has them: state["step"] is a tensor of one number on the CPU, counted in place.

The count itself is an int. The tensor is written, and read to see whether someone else wrote it, through its address:
for a model's parameters that takes microseconds, where an operation of PyTorch on each tensor would take ten times that.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict

import torch
from torch import Tensor

END = 2**62  # where counting ends, as in the library: so what is saved can be loaded

# The types that a count may have, and where they can no longer tell it from the next.
_ENDS = {torch.float32: 2**24, torch.float64: 2**53, torch.int64: END}
_CELLS: Dict[torch.dtype, Any] = {
    torch.float32: ctypes.c_float,
    torch.float64: ctypes.c_double,
    torch.int64: ctypes.c_int64,
}


def new(steps: int) -> Tensor:
    """A count as a tensor. torch.optim's are float32, and other packages compute with it as it is: in float64 they go on
    with the digits that they had with an int."""
    return torch.tensor(steps, dtype=torch.float64 if steps < _ENDS[torch.float64] else torch.int64, device="cpu")


def _serves(found: Any, steps: int) -> bool:
    """Whether a count that is there can be counted on in place."""
    if type(found) is not Tensor or found.numel() != 1 or found.device.type != "cpu" or found.requires_grad:
        return False
    return steps < _ENDS.get(found.dtype, 0) and (found.dtype.is_floating_point or steps >= _ENDS[torch.float64])


def as_tensor(state: Dict[str, Any]) -> None:
    """A count that is an int, as checkpoints have it that were not written by torch.optim, becomes a tensor."""
    if type(state.get("step")) is int and 0 <= state["step"] < END:
        state["step"] = new(state["step"])


class Updates:
    """The count of one parameter."""

    __slots__ = ("tensor", "cell", "steps", "end")

    def __init__(self, found: Any, steps: int) -> None:
        self.tensor: Tensor = found if _serves(found, steps) else new(steps)  # kept as long as it is written to
        self.cell: Any = _CELLS[self.tensor.dtype].from_address(self.tensor.data_ptr())
        self.end = _ENDS[self.tensor.dtype]
        self.steps = steps

    def holds(self) -> bool:
        """Whether the tensor shows the count, and can show the next."""
        return bool(self.cell.value == self.steps and self.steps < self.end)

    def become(self, steps: int) -> None:
        self.steps = min(steps, END - 1)
        self.cell.value = self.steps
