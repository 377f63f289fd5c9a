"""Counts of updates as PyTorch has them: state["step"] is a tensor of one number on the CPU, counted in place.

The count itself is an int. The tensor is written, and read to see whether someone else wrote it, through its address:
for a model's parameters that takes microseconds, where an operation of PyTorch on each would take ten times that.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import ctypes
from array import array
from typing import Any, Callable, Dict, Iterable, List, Sequence

import torch
from torch import Tensor

END = 2**62  # where counting ends, as in the library: so what is saved can be loaded

# The types that a count may have, and the count from which a type can no longer represent the next.
_ENDS = {torch.float32: 2**24, torch.float64: 2**53, torch.int64: END}
_CELLS: Dict[torch.dtype, Any] = {
    torch.float32: ctypes.c_float,
    torch.float64: ctypes.c_double,
    torch.int64: ctypes.c_int64,
}


def new(steps: int) -> Tensor:
    """A count as a tensor. torch.optim's are float32, and other packages compute with it as it is: in float64 they go
    on with the digits that they had with an int."""
    return torch.tensor(steps, dtype=torch.float64 if steps < _ENDS[torch.float64] else torch.int64, device="cpu")


def row(counts: Sequence[int]) -> List[Tensor]:
    """Several new counts, each with its own storage, side by side in memory, so that they are written at once."""
    if any(n >= _ENDS[torch.float64] for n in counts):
        return [new(n) for n in counts]
    memory = array("d", counts)
    each = range(len(counts))
    return [torch.frombuffer(memory, dtype=torch.float64, count=1, offset=8 * i).reshape(()) for i in each]


def _serves(found: Any, steps: int) -> bool:
    """Whether an existing count can be incremented in place."""
    if type(found) is not Tensor or found.numel() != 1 or found.device.type != "cpu" or found.requires_grad:
        return False
    return steps < _ENDS.get(found.dtype, 0) and (found.dtype.is_floating_point or steps >= _ENDS[torch.float64])


def as_tensors(states: Iterable[Dict[str, Any]]) -> None:
    """Turns counts that are ints, as in checkpoints that torch.optim did not write, into tensors."""
    ints = [state for state in states if type(state.get("step")) is int and 0 <= state["step"] < END]
    for state, tensor in zip(ints, row([state["step"] for state in ints])):
        state["step"] = tensor


class Updates:
    """The count of one parameter."""

    __slots__ = ("tensor", "cell", "steps", "end")

    def __init__(self, found: Any, steps: int, make: Callable[[int], Tensor] = new) -> None:
        self.tensor: Tensor = found if _serves(found, steps) else make(steps)  # kept as long as it is written to
        self.cell: Any = _CELLS[self.tensor.dtype].from_address(self.tensor.data_ptr())
        self.end = _ENDS[self.tensor.dtype]
        self.steps = steps

    def holds(self) -> bool:
        """Whether the tensor holds the count, and can hold the next."""
        return bool(self.cell.value == self.steps and self.steps < self.end)

    def become(self, steps: int) -> None:
        self.steps = min(steps, END - 1)
        self.cell.value = self.steps


class Cells:
    """The counts of several parameters, all of one type, read and written together."""

    def __init__(self, updates: Sequence[Updates]) -> None:
        self.cells = [each.cell for each in updates]
        self.write_one = type(self.cells[0]).value.__set__
        addresses = [each.tensor.data_ptr() for each in updates]
        in_a_row = addresses == [addresses[0] + 8 * i for i in range(len(addresses))]
        self.row = None
        if in_a_row and updates[0].tensor.dtype is torch.float64:
            kind = ctypes.c_double * len(addresses)
            self.row = memoryview(kind.from_address(addresses[0])).cast("B").cast("d")

    def read(self) -> List[Any]:
        return self.row.tolist() if self.row is not None else [cell.value for cell in self.cells]

    def write(self, counts: List[int]) -> None:
        if self.row is not None:
            self.row[:] = array("d", counts)
        else:
            list(map(self.write_one, self.cells, counts))
