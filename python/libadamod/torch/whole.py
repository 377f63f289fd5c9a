"""Rules that look at whole parameters, where processes have parts of them (FSDP2, tensor parallelism).

Such a parameter is put together with its gradient and its states, updated as any other, and taken apart again: every
process computes the same, and keeps its part. So there are whole tensors of a few parameters at a time. A rule that
looks at all parameters at once has all of them whole in its step.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence

import torch
from torch import Tensor

from .arrays import Arrays
from .devices import Handles, Scaling, capturing
from .sharding import Stack, gathered, is_distributed, placed, same_place, shape_allows

States = Dict[Tensor, Dict[str, Any]]

_PARAM, _GRAD = "the parameter", "its gradient"  # among the names of states

_AT_A_TIME = 2**24  # elements of parameters that are whole at the same time, unless one has more


def _is_alike(p: Tensor, t: Tensor) -> bool:
    return is_distributed(t) and t.shape == p.shape and same_place(p, t)


class Parts:
    """A parameter that is spread over processes, its gradient and its states, as whole tensors."""

    def __init__(self, p: Tensor, grad: Tensor, state: Dict[str, Any]) -> None:
        self.p, self.outer = p, state
        states = {name: t for name, t in state.items() if name != "step" and isinstance(t, Tensor)}
        tensors = {_PARAM: p, **states, _GRAD: grad}
        alike = {name: t for name, t in tensors.items() if _is_alike(p, t)}
        types = dict.fromkeys(t.dtype for t in alike.values())
        self.stacks = [Stack({name: t for name, t in alike.items() if t.dtype is dtype}) for dtype in types]
        stacked = {name: t for stack in self.stacks for name, t in stack.whole.items()}
        whole = {name: stacked[name] if name in stacked else gathered(t) for name, t in tensors.items()}
        self.param = whole.pop(_PARAM)
        grad = whole.pop(_GRAD)
        self.param.grad = grad.to(self.param.dtype)
        self.param.grad.data = grad  # which may have another type
        self.state: Dict[str, Any] = {**state, **whole}
        self.stacked = stacked

    def take_apart(self) -> None:
        """Each process keeps its part of what was updated."""
        in_place = {name for name, t in self.state.items() if self.stacked.get(name) is t}
        for stack in self.stacks:
            stack.take_apart(in_place | {_PARAM})
        for name in [name for name in self.outer if name not in self.state]:
            del self.outer[name]
        for name, t in self.state.items():
            if name not in in_place:
                has_place = name != "step" and isinstance(t, Tensor) and shape_allows(t, self.p)
                self.outer[name] = placed(t, self.p).clone() if has_place else t


class Whole(Arrays):
    """Some parameters of a group, those that are spread over processes as whole tensors."""

    def __init__(self, of: Arrays, places: Sequence[int], states: States) -> None:
        self.of = of
        self.places = list(places)  # in the group
        self.parts: List[Parts] = []
        self.states: States = {}
        super().__init__(of.hyper.rule, of.index, of.first, [self._whole(i, states) for i in places])
        self.set_options({**of.values, **of.tensors})

    def _whole(self, i: int, states: States) -> Tensor:
        p = self.of.params[i]
        if not self.of.spread[i] or p.grad is None:
            self.states[p] = states[p]
            return p
        parts = Parts(p, p.grad, states[p])
        self.parts.append(parts)
        self.states[parts.param] = parts.state
        return parts.param

    def name(self, i: int) -> str:
        return self.of.name(self.places[i])

    def place(self, i: int) -> int:
        return self.of.place(self.places[i])

    def take_apart(self) -> None:
        for parts in self.parts:
            parts.take_apart()


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


def _wholes(groups: Sequence[Arrays], states: States) -> Iterator[List[Whole]]:
    """Those that are updated together, made when it is their turn."""
    if any(arrays.together for arrays in groups):
        yield [Whole(arrays, arrays.gathers, states) for arrays in groups if arrays.gathers]
        return
    for arrays in groups:
        for batch in _batches(arrays):
            yield [Whole(arrays, batch, states)]


def update(groups: Sequence[Arrays], states: States, scaling: Scaling, scale: float, collect: bool) -> None:
    """One update of the parameters that the groups have found to be gathered."""
    for arrays in groups:
        arrays.collected = []
    for arrays in groups:
        for i in arrays.gathers:
            if capturing(str(arrays.params[i].device)):
                raise RuntimeError(f"{arrays.name(i)} is sharded: a step that gathers it cannot be captured")
    for wholes in _wholes(groups, states):
        handles = Handles()
        for whole in wholes:
            whole.prepare(whole.states)
        ready = handles.prepare(wholes, scaling, collect)
        for whole in wholes:
            whole.set_host_values(scale)
        for whole in wholes:
            whole.update(torch.get_num_threads(), collect)
        for handle in ready:
            handle.step()
        handles.read_steps()
        for whole in wholes:
            whole.finish()
            whole.take_apart()
            whole.of.collected += [s for s in (whole.statistics, *handles.statistics(whole)) if s is not None]


def make_states(groups: Sequence[Arrays], states: States) -> None:
    """The states of parameters that are gathered, as they are before the first update."""
    for wholes in _wholes(groups, states):
        for whole in wholes:
            whole.prepare(whole.states)
            whole.leave()
            whole.take_apart()
