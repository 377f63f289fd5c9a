"""Rules that look at whole parameters, where processes have parts of them (FSDP2, tensor parallelism).

Such a parameter is put together with its gradient and its states, updated as any other, and taken apart again: every
process computes the same, and keeps its part. So there are whole tensors of a few parameters at a time. A rule that
looks at all parameters at once has all of them whole in its step.

What is known of them is kept from step to step, their memory is not. PyTorch's allocator gives a step like the last the
same memory, so that the library's handles on GPUs need not be made anew.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence, Tuple

import torch
from torch import Tensor

from . import q8
from .arrays import Arrays, Link
from .devices import Handles, Scaling, capturing
from .sharding import Stack, gathered, is_distributed, placed, replicated, same_place, shape_allows

States = Dict[Tensor, Dict[str, Any]]

_PARAM, _GRAD = "the parameter", "its gradient"  # among the names of states

_AT_A_TIME = 2**24  # elements of parameters that are whole at the same time, unless one has more


def _is_alike(p: Tensor, t: Tensor) -> bool:
    return is_distributed(t) and t.shape == p.shape and same_place(p, t)


class Parts:
    """A parameter that is spread over processes, its gradient and its states, as whole tensors."""

    def __init__(self, p: Tensor, grad: Tensor, state: Dict[str, Any]) -> None:
        self.p, self.outer = p, state
        state = q8.decoded(state, of_parts_only=True)
        states = {name: t for name, t in state.items() if name != "step" and isinstance(t, Tensor)}
        tensors = {_PARAM: p, **states, _GRAD: grad}
        alike = {name: t for name, t in tensors.items() if _is_alike(p, t)}
        types = dict.fromkeys(t.dtype for t in alike.values())
        self.stacks = [Stack({name: t for name, t in alike.items() if t.dtype is dtype}) for dtype in types]
        stacked = {name: t for stack in self.stacks for name, t in stack.whole.items()}
        whole = {name: stacked[name] if name in stacked else gathered(t) for name, t in tensors.items()}
        self.param = whole.pop(_PARAM)
        self.grad = whole.pop(_GRAD)
        self.state: Dict[str, Any] = {**state, **whole}
        self.stacked = stacked

    def take_apart(self) -> None:
        """Each process keeps its part of what was updated."""
        in_place = {name for name, t in self.state.items() if self.stacked.get(name) is t}
        for stack in self.stacks:
            stack.take_apart(in_place | {_PARAM})
        for name in [name for name in self.outer if name not in self.state]:
            del self.outer[name]
        for name, t in self.state.items():  # in the same order in all processes, which stack them next time
            if name not in in_place:
                self.outer[name] = self._part(name, t)

    def _part(self, name: str, t: Any) -> Any:
        if name in map(q8.scale_name, self.state):
            return replicated(t, self.p)
        has_place = name != "step" and isinstance(t, Tensor) and shape_allows(t, self.p)
        return placed(t, self.p).clone() if has_place else t


class Whole(Arrays):
    """Some parameters of a group, those that are spread over processes as whole tensors."""

    def __init__(self, of: Arrays, places: Sequence[int]) -> None:
        self.of = of
        self.places = list(places)  # in the group
        self.parts: List[Tuple[Tensor, Parts]] = []
        self.states: States = {}
        params = [of.params[i] for i in places]
        whole = [torch.empty(0, dtype=p.dtype, device=p.device) if of.spread[i] else p for i, p in zip(places, params)]
        super().__init__(of.hyper.rule, of.index, of.first, whole)

    def put_together(self, states: States) -> None:
        self.set_options({**self.of.values, **self.of.tensors})
        for i, t in zip(self.places, self.params):
            p = self.of.params[i]
            if t is p or p.grad is None:
                self.states[t] = states[p]
                continue
            parts = Parts(p, p.grad, states[p])
            self.parts.append((t, parts))
            t.data = parts.param
            t.grad = parts.grad.to(t.dtype)
            t.grad.data = parts.grad  # which may have another type
            state = self.states.setdefault(t, {})
            state.clear()
            state.update(parts.state)

    def take_apart(self) -> None:
        for t, parts in self.parts:
            parts.state = dict(self.states[t])
            parts.take_apart()
        self.let_go()

    def let_go(self) -> None:
        """Of all whole tensors."""
        for t, _ in self.parts:
            t.grad = None
            t.data = t.new_empty(0)
            for name in [name for name in self.states[t] if name != "step"]:
                del self.states[t][name]
        self.parts = []

    def _link(self, i: int, p: Tensor, state: Dict[str, Any]) -> Link:
        link = super()._link(i, p, state)
        if self.params[i] is not self.of.params[self.places[i]]:
            link.touch = torch.empty(0, device=p.device)  # the tensor's own would keep its memory
        return link

    def name(self, i: int) -> str:
        return self.of.name(self.places[i])

    def place(self, i: int) -> int:
        return self.of.place(self.places[i])


def _batches(arrays: Arrays) -> Iterator[List[int]]:
    batch: List[int] = []
    elements = 0
    for i in arrays.gathers:
        if batch and elements + arrays.params[i].numel() > _AT_A_TIME:
            yield batch
            batch, elements = [], 0
        batch.append(i)
        elements += arrays.params[i].numel()
    if batch:
        yield batch


class Together:
    """Parameters that are whole at the same time, and the library's handles for them."""

    def __init__(self, wholes: List[Whole]) -> None:
        self.wholes = wholes
        self.handles = Handles()

    def serves(self, groups: Sequence[Arrays]) -> bool:
        return all(any(whole.of is arrays for arrays in groups) for whole in self.wholes)

    def update(self, states: States, scaling: Scaling, scale: float, collect: bool) -> None:
        try:
            for whole in self.wholes:
                whole.put_together(states)
                whole.prepare(whole.states)
            ready = self.handles.prepare(self.wholes, scaling, collect)
            for whole in self.wholes:
                whole.set_host_values(scale)
            for whole in self.wholes:
                whole.update(torch.get_num_threads(), collect)
            for handle in ready:
                handle.step()
            self.handles.read_steps()
            for whole in self.wholes:
                whole.finish()
                whole.take_apart()
                whole.of.collected += [s for s in (whole.statistics, *self.handles.statistics(whole)) if s is not None]
        finally:
            for whole in self.wholes:
                whole.let_go()

    def make_states(self, states: States) -> None:
        for whole in self.wholes:
            whole.put_together(states)
            whole.prepare(whole.states)
            whole.leave()
            whole.take_apart()


class Gathering:
    """The parameters of an optimizer that are gathered in its steps."""

    def __init__(self) -> None:
        self.known: Dict[Any, Together] = {}

    def update(self, groups: Sequence[Arrays], states: States, scaling: Scaling, scale: float, collect: bool) -> None:
        """One update of the parameters that the groups have found to be gathered."""
        for arrays in groups:
            arrays.collected = []
            for i in arrays.gathers:
                if capturing(str(arrays.params[i].device)):
                    raise RuntimeError(f"{arrays.name(i)} is sharded: a step that gathers it cannot be captured")
        for together in self._turns(groups):
            together.update(states, scaling, scale, collect)

    def make_states(self, groups: Sequence[Arrays], states: States) -> None:
        """The states of parameters that are gathered, as they are before the first update."""
        for together in self._turns(groups):
            together.make_states(states)

    def _turns(self, groups: Sequence[Arrays]) -> Iterator[Together]:
        """Those that are updated together, one after the other."""
        before, self.known = self.known, {}
        for turn in self._choices(groups):
            key = tuple((arrays.index, *places) for arrays, places in turn)
            found = before.get(key)
            if found is None or not found.serves(groups):
                found = Together([Whole(arrays, places) for arrays, places in turn])
            self.known[key] = found
            yield found

    def _choices(self, groups: Sequence[Arrays]) -> List[List[Tuple[Arrays, List[int]]]]:
        if any(arrays.together for arrays in groups):
            return [[(arrays, arrays.gathers) for arrays in groups if arrays.gathers]]
        return [[(arrays, batch)] for arrays in groups for batch in _batches(arrays)]
