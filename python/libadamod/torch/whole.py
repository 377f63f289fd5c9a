"""Rules that look at whole parameters, where processes have parts of them (FSDP2, tensor parallelism).

Such a parameter is gathered with its gradient and its states, updated as any other, and scattered again: every process
computes the same, and keeps its part. So there are whole tensors of a few parameters at a time. A rule that looks at
all parameters at once has all of them whole in its step.

What is known of them is kept from step to step, their memory is not. PyTorch's allocator gives a step like the last the
same memory, so that the library's handles on GPUs need not be made anew.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import torch
from torch import Tensor

from . import q8
from .arrays import Arrays, Link
from .devices import Handles, Scaling, capturing
from .sharding import Stack, gathered, is_distributed, meshes, most, placed, replicated, same_place, shape_allows

States = Dict[Tensor, Dict[str, Any]]

_PARAM, _GRAD = "the parameter", "its gradient"  # among the names of states

_AT_A_TIME = 2**24  # elements of parameters that are whole at the same time, unless one has more


def _is_alike(p: Tensor, t: Tensor) -> bool:
    return is_distributed(t) and t.shape == p.shape and same_place(p, t)


def _typed(name: str, t: Any, dtype: torch.dtype) -> Any:
    """A spread state, converted to the type in which all processes gather it."""
    is_number = name not in ("step", "master") and is_distributed(t) and t.is_floating_point()
    return t.to(dtype) if is_number and t.dtype is not dtype else t


class Parts:
    """A parameter that is spread over processes, its gradient and its states, as whole tensors."""

    def __init__(self, p: Tensor, grad: Tensor, state: Dict[str, Any], dtype: torch.dtype) -> None:
        """dtype: the type of states that are numbers. A process with a small part may keep them in another type."""
        self.p, self.outer = p, state
        state = {name: _typed(name, t, dtype) for name, t in q8.decoded(state, of_parts_only=True).items()}
        # Sorted, so that the order is the same in all processes.
        states = {name: state[name] for name in sorted(state) if name != "step" and isinstance(state[name], Tensor)}
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
        self.as_it_was = {name for name, t in states.items() if self.outer.get(name) is t}

    def scatter(self) -> None:
        """Each process keeps its part of what was updated."""
        in_place = {name for name, t in self.state.items() if self.stacked.get(name) is t and name in self.as_it_was}
        for stack in self.stacks:
            stack.scatter(in_place | {_PARAM})
        for name in [name for name in self.outer if name not in self.state]:
            del self.outer[name]
        for name, t in self.state.items():
            if name not in in_place:
                self.outer[name] = self._part(name, t)

    def _part(self, name: str, t: Any) -> Any:
        if name in map(q8.scale_name, self.state):
            return replicated(t, self.p)
        has_place = name != "step" and isinstance(t, Tensor) and shape_allows(t, self.p)
        return placed(t, self.p).clone() if has_place else t


class Whole(Arrays):
    """Some parameters of a group; those that are spread over processes are gathered as whole tensors."""

    def __init__(self, of: Arrays, places: Sequence[int]) -> None:
        self.of = of
        self.places = list(places)  # in the group
        self.parts: List[Tuple[Tensor, Parts]] = []
        self.states: States = {}
        params = [of.params[i] for i in places]
        whole = [torch.empty(0, dtype=p.dtype, device=p.device) if of.spread[i] else p for i, p in zip(places, params)]
        super().__init__(of.hyper.rule, of.index, of.first, whole)

    def gather(self, states: States) -> None:
        self.set_options({**self.of.values, **self.of.tensors})
        for i, t in zip(self.places, self.params):
            p = self.of.params[i]
            if t is p or p.grad is None:
                self.states[t] = states[p]
                continue
            parts = Parts(p, p.grad, states[p], self.of.number_type(p))
            self.parts.append((t, parts))
            t.data = parts.param
            t.grad = parts.grad.to(t.dtype)
            t.grad.data = parts.grad  # which may have another type
            state = self.states.setdefault(t, {})
            state.clear()
            state.update(parts.state)

    def scatter(self) -> None:
        for t, parts in self.parts:
            parts.state = dict(self.states[t])
            parts.scatter()
        self.let_go()

    def let_go(self) -> None:
        """Releases all whole tensors."""
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


class Gathered:
    """Parameters that are gathered at the same time, and the library's handles for them."""

    def __init__(self, wholes: List[Whole]) -> None:
        self.wholes = wholes
        self.handles = Handles()

    def serves(self, groups: Sequence[Arrays]) -> bool:
        return all(any(whole.of is arrays for arrays in groups) for whole in self.wholes)

    def update(self, states: States, scaling: Scaling, scale: float, collect: bool) -> None:
        try:
            for whole in self.wholes:
                whole.gather(states)
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
                whole.scatter()
                whole.of.collected += [s for s in (whole.statistics, *self.handles.statistics(whole)) if s is not None]
        finally:
            for whole in self.wholes:
                whole.let_go()

    def make_states(self, states: States) -> None:
        for whole in self.wholes:
            whole.gather(states)
            whole.prepare(whole.states)
            whole.leave()
            whole.scatter()


def _told(p: Tensor, state: Dict[str, Any]) -> str:
    """Describes, for a message, everything that decides which collectives a process calls for a gathered parameter."""
    g: Any = p.grad
    if g is None:
        return "no gradient"
    names = []
    for name in sorted(name for name in state if name != "step" and isinstance(state[name], Tensor)):
        scale, t = state.get(q8.scale_name(name)), state[name]
        if name in map(q8.scale_name, state) and not is_distributed(t):
            continue  # whether this process's part is in 8 bits depends on its size alone
        names.append(f"{name} in 8 bits" if is_distributed(scale) else name)
        names[-1] += f" on {tuple(t.placements)}" if is_distributed(t) and not same_place(p, t) else ""
    where = f" on {tuple(g.placements)}" if is_distributed(g) and not same_place(p, g) else ""
    states = f"states {', '.join(names)} after {int(state.get('step') or 0)} updates" if names else "no states"
    return f"a gradient of {g.dtype}{where} and {states}"


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


class Gathering:
    """The parameters of an optimizer that are gathered in its steps."""

    def __init__(self) -> None:
        self.known: Dict[Any, Gathered] = {}

    def agree(self, groups: Sequence[Arrays], states: States, failed: bool = False) -> None:
        """Before a step's first collective: that all processes have the same of the parameters that it gathers. Each would
        wait for others that never come, or take their numbers for something else. So there is one small collective for
        each mesh, in every step, whatever this process has. failed: it refuses the step, and says so to the others."""
        gathers = [(a, i) for a in groups if a.has_spread for i in range(len(a.params)) if a.is_gathered(i)]
        for mesh, device in meshes(a.params[i] for a, i in gathers):
            here = [(a, i) for a, i in gathers if a.params[i].device_mesh == mesh]  # type: ignore[attr-defined]
            told = [_told(a.params[i], states.get(a.params[i], {})) if not failed else "" for a, i in here]
            digests = list(map(_digest, told))
            row = torch.tensor([int(failed), *digests, *(-n for n in digests)], dtype=torch.int64, device=device)
            any_failed, *largest = most(row, mesh).tolist()
            if failed:
                continue
            if any_failed:
                raise RuntimeError(f"another process of {mesh} refused this step: its message says why")
            for (a, i), text, high, low in zip(here, told, largest, largest[len(here) :]):
                if high != -low:
                    raise RuntimeError(
                        f"{a.name(i)} is sharded, and a step gathers it: all processes must have the same of it, and this "
                        f"one has {text}, others have not"
                    )

    def update(self, groups: Sequence[Arrays], states: States, scaling: Scaling, scale: float, collect: bool) -> None:
        """One update of the parameters that the groups have found to be gathered."""
        for arrays in groups:
            arrays.collected = []
            for i in arrays.gathers:
                if capturing(str(arrays.params[i].device)):
                    raise RuntimeError(f"{arrays.name(i)} is sharded: a step that gathers it cannot be captured")
        for each in self._turns(groups):
            each.update(states, scaling, scale, collect)

    def make_states(self, groups: Sequence[Arrays], states: States) -> None:
        """Makes the states that gathered parameters have before the first update."""
        for each in self._turns(groups):
            each.make_states(states)

    def _turns(self, groups: Sequence[Arrays]) -> Iterator[Gathered]:
        """The sets of parameters that are gathered at the same time, one after the other."""
        before, self.known = self.known, {}
        for turn in self._choices(groups):
            key = tuple((arrays.index, *places) for arrays, places in turn)
            found = before.get(key)
            if found is None or not found.serves(groups):
                found = Gathered([Whole(arrays, places) for arrays, places in turn])
            self.known[key] = found
            yield found

    def _choices(self, groups: Sequence[Arrays]) -> List[List[Tuple[Arrays, List[int]]]]:
        if any(arrays.gathers_all for arrays in groups):
            return [[(arrays, arrays.gathers) for arrays in groups if arrays.gathers]]
        return [[(arrays, batch)] for arrays in groups for batch in _batches(arrays)]
