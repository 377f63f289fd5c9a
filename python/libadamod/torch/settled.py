"""Finds the checks that a step can leave out.

Most steps find everything but the gradients' memory as the last one left it. Whether that is so can be told for all
parameters of a group together, in loops that run in C: that takes half the time of going through them one by one.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import ctypes
import operator
from array import array
from itertools import chain
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _c
from .counts import Cells

if TYPE_CHECKING:
    from .arrays import Link

Same = Callable[..., bool]

_is = operator.is_
_get_dtype = operator.attrgetter("dtype")
_get_grad = operator.attrgetter("grad")

_WORDS = ctypes.sizeof(_c.Span) // 8
_GRAD, _STEP = _c.Span.grad.offset // 8, _c.Span.step.offset // 8


class Remembered:
    """The very keys and values that a dict had."""

    def __init__(self) -> None:
        self.keys: List[Any] = []
        self.values: List[Any] = []

    def remember(self, of: Dict[Any, Any]) -> None:
        self.keys, self.values = list(of), list(of.values())

    def holds(self, of: Dict[Any, Any]) -> bool:
        same_keys = len(of) == len(self.keys) and all(map(_is, of, self.keys))
        return same_keys and all(map(_is, of.values(), self.values))


# ---- whether tensors have the types and layouts that others had ----


def _compared(tensors: Sequence[Tensor], attributes: Sequence[Callable[[Tensor], Any]]) -> Same:
    before = [list(map(attribute, tensors)) for attribute in attributes]

    def same(*now: Tensor) -> bool:
        return all(list(map(attribute, now)) == values for attribute, values in zip(attributes, before))

    return same


def _guarded(tensors: Sequence[Tensor]) -> Optional[Same]:
    """PyTorch's own such check, in a third of the time, where this version has it in the form known here."""
    try:
        guards: Any = torch._C._dynamo.guards
        sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
        same: Same = guards.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        return same if same(*tensors) else None
    except (AttributeError, RuntimeError, SystemError, TypeError, ValueError):
        return None


def _guards_work() -> bool:
    """Whether they tell apart what has to be."""
    t = torch.zeros(2, 3, device="cpu")
    same = _guarded([t, t.clone()])
    try:
        others = (t.t().contiguous().t(), t[:1], t.view(6), t.double(), torch._neg_view(t), t.to_sparse())
        return same is not None and same(t.clone(), t) and not any(same(t, other) for other in others)
    except (AttributeError, RuntimeError, TypeError):
        return False


_HAS_GUARDS = _guards_work()


def _same_as(tensors: Sequence[Tensor], attributes: Sequence[Callable[[Tensor], Any]]) -> Same:
    return (_HAS_GUARDS and _guarded(tensors)) or _compared(tensors, attributes)


# ---- telling autograd ----


def _written() -> Callable[[List[Tensor]], Any]:
    graph: Any = torch.autograd.graph
    try:
        graph.increment_version([torch.empty(0, device="cpu")])
        return graph.increment_version  # type: ignore[no-any-return]
    except (AttributeError, RuntimeError, TypeError):  # before PyTorch 2.5: writes of nothing
        return torch._foreach_zero_


# Autograd notices writes to tensors that a graph still needs, but not writes through an address. This call reports
# those writes: its arguments are empty tensors that share their counts of writes with the tensors written to.
written = _written()


# ---- a group ----


class Settled:
    """Checks in one the parameters of a group that had a gradient in the last step, all on one device and without
    copies. The group's other parameters in a handle are only checked for their addresses."""

    def __init__(
        self, params: Sequence[Tensor], spans: "ctypes.Array[_c.Span]", active: List["Link"], known: List["Link"]
    ) -> None:
        self.all = params
        self.active = active
        self.device = active[0].device
        self.indices = [link.index for link in active]
        self.params = [params[i] for i in self.indices]
        self.touches = [link.touch for link in active]
        self.elements = sum(link.count for link in active)
        self.has_empty = any(link.count == 0 for link in active)
        self.steps = [link.updates.steps for link in active]
        self.next_steps = [n + 1 for n in self.steps]
        self.cells = Cells([link.updates for link in active])
        self.left = min(link.updates.end - link.updates.steps for link in active)  # until one needs another type
        with_grads = set(self.indices)
        idle = [link for link in known if link.index not in with_grads and link.device is not None]
        self.placed = self.params + [params[link.index] for link in idle]
        # Dicts that have the states' tensors, one for each tensor.
        self.holders = [link.state for link in active + idle for _ in link.names]
        self.names = [name for link in active + idle for name in link.names]
        self.addresses = self._addresses()

        grads, self.missing = self._find_grads()
        self.grads = list(map(Tensor.data_ptr, grads))
        lazy = (Tensor.is_neg, Tensor.is_conj) if any(link.complex for link in active) else (Tensor.is_neg,)
        self.same_params = _same_as(self.params, (Tensor.stride, Tensor.numel, _get_dtype))
        self.same_grads = _same_as(grads, (type, Tensor.stride, Tensor.numel, _get_dtype, *lazy))

        words = memoryview((ctypes.c_uint64 * (_WORDS * len(spans))).from_buffer(spans)).cast("B").cast("Q")
        self.grad_words, self.step_words = words[_GRAD::_WORDS], words[_STEP::_WORDS]

    def _find_grads(self) -> Tuple[List[Tensor], List[int]]:
        """The gradients that exist, and the indices of those that do not."""
        grads = list(map(_get_grad, self.all))
        missing = [i for i, g in enumerate(grads) if g is None]
        return [g for g in grads if g is not None] if missing else grads, missing

    def _addresses(self) -> List[int]:
        return list(map(Tensor.data_ptr, chain(self.placed, map(operator.getitem, self.holders, self.names))))

    def follow(self) -> bool:
        """Points the spans at the gradients there are now; False: something else has changed."""
        grads, missing = self._find_grads()
        try:
            if (
                missing != self.missing
                or not self.same_params(*self.params)
                or not self.same_grads(*grads)
                or self._addresses() != self.addresses
                or self.left <= 1
                or self.cells.read() != self.steps
            ):
                return False
            addresses = list(map(Tensor.data_ptr, grads))
            if 0 in addresses and not self.has_empty:  # memory was freed
                return False
            self._point_at(addresses)
            return True
        except (KeyError, TypeError, RuntimeError):  # a state is missing or no tensor, a gradient has no address
            return False

    def _point_at(self, grads: List[int]) -> None:
        if grads != self.grads:
            self.grads = grads
            self._write(self.grad_words, grads)
        if self.device is None:  # a handle counts for itself
            self._write(self.step_words, self.next_steps)

    def _write(self, words: memoryview, values: List[int]) -> None:
        if self.missing:
            all_values = words.tolist()
            for i, value in zip(self.indices, values):
                all_values[i] = value
            values = all_values
        words[:] = memoryview(array("Q", values))

    def count(self) -> None:
        """The update was done."""
        self.cells.write(self.next_steps)
        self.steps = self.next_steps
        self.next_steps = [n + 1 for n in self.steps]
        self.left -= 1

    def tell_counts(self) -> None:
        """To those that look at each parameter: so far they were told nothing of what was counted here."""
        for link, n in zip(self.active, self.steps):
            link.updates.steps = n
            if link.counted is not None:
                link.counted.steps = n
