"""Parameters on GPUs: a handle of the C library for all of an optimizer's parameters on one device.

The handle is given PyTorch's own tensors, states included, and keeps what a step must find on the device: addresses,
options and counts of updates. So a step is one call that enqueues kernels, and can be captured into a CUDA graph. A
handle holds nothing that the optimizer's state does not tell: where that changes, it is made anew.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import ctypes
import math
import re
from array import array
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _c
from .arrays import Arrays, Link
from .settled import Settled

_SPAN = ctypes.sizeof(_c.Span)
_POINTERS = _c.Span.master.offset  # param and grad, which may change from step to step, come before all else
_VALUE_TYPES = {torch.float32: _c.F32, torch.float64: _c.F64}


class Scaling(NamedTuple):
    """A GradScaler's numbers: gradients are divided by scale, and the step is skipped unless found_inf is 0."""

    scale: Any = None
    found_inf: Any = None

    def __bool__(self) -> bool:
        return self.scale is not None or self.found_inf is not None


def capturing(device: str) -> bool:
    cuda: Any = torch.cuda  # whose hints come and go
    return device != "cpu" and cuda.is_initialized() and bool(cuda.is_current_stream_capturing())


class Changed(Exception):
    """The state is no longer the one a handle was made for."""


class Counted:
    """A parameter in a handle."""

    __slots__ = ("id", "link", "steps")

    def __init__(self, id: int, link: Link) -> None:
        self.id = id
        self.link = link
        self.steps = 0  # the handle's count when it last agreed with state["step"]


class Moved:
    """Parameters of a handle whose address, or whose gradient's, has changed since the handle got it."""

    def __init__(self) -> None:
        self.ids: List[int] = []
        self.params: List[int] = []
        self.grads: List[int] = []  # 0: none

    def __bool__(self) -> bool:
        return bool(self.ids)

    def add(self, ids: List[int], params: List[int], grads: List[int]) -> None:
        self.ids += ids
        self.params += params
        self.grads += grads


def _pointers(addresses: List[int]) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * len(addresses)).from_buffer(array("Q", addresses))


class Member:
    """A parameter group in a handle."""

    def __init__(self, arrays: Arrays, group: int) -> None:
        self.arrays = arrays
        self.group = group  # the handle's number for it
        self.values: Dict[str, Any] = {}  # options as they were set
        self.tensors: Dict[str, Tensor] = {}  # options that the device reads from a tensor
        self.addresses: Dict[str, int] = {}  # of the user's own tensors; the others are copies
        self.links: List[Optional[Link]] = []
        self.counted: List[Optional[Counted]] = [None] * len(arrays.params)
        self.seen = bytes(_SPAN * len(arrays.params))
        self.settled: Optional[Settled] = None  # the arrays' settled when everything was seen last
        self.settled_ids: List[int] = []  # the handle's numbers of its parameters


class Handle:
    """An adamod_optimizer for the parameters of one rule on one device."""

    def __init__(self, device: str, rule: str, seed: int) -> None:
        self.handle: Any = None
        handle = ctypes.c_void_p()
        if device != "cpu":
            _c.load_cuda()
        _c.check(_c.lib.adamod_create_on(ctypes.byref(handle), rule.encode(), device.encode()))
        self.handle = handle
        self.device = device
        self.number = torch.device(device).index
        self.stream: Optional[int] = None  # as it was set; None: not yet
        self.members: Dict[int, Member] = {}
        self.scaling = Scaling()
        self.collecting = False
        self.clip_norm = math.inf
        self.behind = False  # the device has counted steps that state["step"] does not show
        self.captured: Optional[List[Any]] = None  # what a graph may still use
        _c.check(_c.lib.adamod_set(handle, b"seed", float(seed)))
        self.on_host = device == "cpu" and _c.rule_info(rule).couples_arrays
        if self.on_host:
            _c.check(_c.lib.adamod_set(handle, b"threads", float(torch.get_num_threads())))

    def __del__(self, free: Any = _c.lib.adamod_free) -> None:  # at exit, modules may be gone already
        if getattr(self, "handle", None):
            free(self.handle)
            self.handle = None

    # ---- before a step: whatever can be wrong is found here ----

    def follow(self, groups: Sequence[Arrays]) -> None:
        """Updates the handle to the groups' present arrays and options; raises Changed if that takes a new handle."""
        for index in self.members:
            if not any(arrays.index == index for arrays in groups):
                raise Changed
        moved = Moved()
        new: List[Tuple[Member, Link]] = []
        for arrays in groups:
            member = self.members.get(arrays.index)
            if member is None:
                member = self.members[arrays.index] = self._new_member(arrays)
            elif member.arrays is not arrays:
                raise Changed
            self._follow_options(member)
            self._compare(member, moved, new)
        # The parameters that it has come first: their old memory may belong to others by now.
        if moved:
            self._move(moved)
        for member, link in new:
            self._add(member, link)
        for arrays in groups:
            self._settle(self.members[arrays.index])

    def _new_member(self, arrays: Arrays) -> Member:
        group = ctypes.c_int(0)
        if self.members:
            _c.check(_c.lib.adamod_add_group(self.handle, ctypes.byref(group)))
        return Member(arrays, group.value)

    def _follow_options(self, member: Member) -> None:
        arrays = member.arrays
        if member.values != arrays.values:
            for name, value in arrays.values.items():
                option = arrays.options[name]
                if option.optimizer_wide or member.values.get(name) == value:
                    continue
                if option.structural and member.links:
                    raise Changed
                self._set(member.group, name, value)
            member.values = dict(arrays.values)
        for name in [name for name in member.tensors if name not in arrays.tensors]:
            _c.check(_c.lib.adamod_set_device_value(self.handle, member.group, name.encode(), None, _c.F32))
            del member.tensors[name]
            member.addresses.pop(name, None)
        for name, tensor in arrays.tensors.items():
            self._follow_tensor(member, name, tensor)

    def _set(self, group: int, name: str, value: Any) -> None:
        if isinstance(value, str):
            _c.check(_c.lib.adamod_group_set_text(self.handle, group, name.encode(), value.encode()))
        else:
            _c.check(_c.lib.adamod_group_set(self.handle, group, name.encode(), float(value)))

    def _follow_tensor(self, member: Member, name: str, tensor: Tensor) -> None:
        """The device reads the learning rate in place; tensors that each step computes from it anew are copied."""
        held, address = member.tensors.get(name), member.addresses.get(name)
        if held is tensor and address == tensor.data_ptr():
            return
        direct = name == "lr" and tensor.dtype in _VALUE_TYPES and str(tensor.device) == self.device
        if direct or held is None or address is not None:
            dtype = tensor.dtype if tensor.dtype in _VALUE_TYPES else torch.float32
            held = tensor if direct else torch.empty((), dtype=dtype, device=self.device)
            pointer, kind = ctypes.c_void_p(held.data_ptr()), _VALUE_TYPES[held.dtype]
            _c.check(_c.lib.adamod_set_device_value(self.handle, member.group, name.encode(), pointer, kind))
            member.tensors[name] = held
            member.addresses.pop(name, None)
        if direct:
            member.addresses[name] = held.data_ptr()
        else:
            held.copy_(tensor.reshape(()))

    def _compare(self, member: Member, moved: Moved, new: List[Tuple[Member, Link]]) -> None:
        """Finds what has changed since it was last seen."""
        arrays, now = member.arrays, bytes(member.arrays.spans)
        if now == member.seen and member.links == arrays.links:
            return
        if arrays.settled is not None and arrays.settled is member.settled:
            settled, ids = arrays.settled, member.settled_ids
            moved.add(ids, settled.addresses[: len(ids)], settled.grads)
            return
        for i, (link, counted) in enumerate(zip(arrays.links, member.counted)):
            if link is None or link.device != self.device:
                if counted is not None:
                    raise Changed
                continue
            row, before = now[i * _SPAN : (i + 1) * _SPAN], member.seen[i * _SPAN : (i + 1) * _SPAN]
            if counted is None:
                new.append((member, link))
            elif row[_POINTERS:] != before[_POINTERS:]:
                raise Changed
            elif row != before:
                moved.add([counted.id], [arrays.rows[i].param or 0], [arrays.rows[i].grad or 0])

    def _move(self, moved: Moved) -> None:
        n = len(moved.ids)
        ids = (ctypes.c_int64 * n).from_buffer(array("q", moved.ids))
        _c.check(_c.lib.adamod_set_arrays(self.handle, n, ids, _pointers(moved.params), _pointers(moved.grads)))

    def _add(self, member: Member, link: Link) -> None:
        arrays, row = member.arrays, member.arrays.rows[link.index]
        tensor = _c.TensorDesc(
            name=b"param.%d" % arrays.place(link.index),
            param=row.param,
            grad=row.grad,
            param_type=row.param_type,
            grad_type=row.grad_type,
            ndim=row.ndim if link.shaped else 1,
            shape=row.shape if link.shaped else (row.count,),
            master=row.master,
            state=row.state,
            scale=row.scale,
        )
        id = ctypes.c_int64()
        _c.check(_c.lib.adamod_add_tensor(self.handle, member.group, ctypes.byref(tensor), ctypes.byref(id)))
        member.counted[link.index] = Counted(id.value, link)

    def _settle(self, member: Member) -> None:
        """Notes that everything has been seen, and sets the counts of updates."""
        arrays = member.arrays
        if arrays.settled is not None and arrays.settled is member.settled:
            member.seen = bytes(arrays.spans)
            return
        if member.links != arrays.links:
            for link, counted in zip(arrays.links, member.counted):
                if link is not None and counted is not None:
                    counted.link, link.counted = link, counted
            member.links = list(arrays.links)
        member.seen = bytes(arrays.spans)
        for link in arrays.active:
            counted = link.counted
            if counted is not None and counted.steps != link.updates.steps:
                _c.check(_c.lib.adamod_set_tensor_steps(self.handle, counted.id, link.updates.steps))
                counted.steps = link.updates.steps
        member.settled = arrays.settled
        member.settled_ids = [link.counted.id for link in arrays.settled.active] if arrays.settled else []

    def scale(self, scaling: Scaling) -> None:
        """The device reads the GradScaler's numbers: the host does not wait for them."""
        if not scaling and not self.scaling:
            return
        if self.on_host:  # a step with found_inf set has been skipped already
            self.scaling = Scaling(scaling.scale)
            scale = 1.0 if scaling.scale is None else 1.0 / float(scaling.scale)
            _c.check(_c.lib.adamod_set(self.handle, b"grad_scale", scale))
            return
        self.scaling = Scaling(  # kept alive until the step that reads it is enqueued
            *(None if x is None else torch.as_tensor(x, dtype=torch.float32, device=self.device) for x in scaling)
        )
        pointers = (None if x is None else ctypes.c_void_p(x.data_ptr()) for x in self.scaling)
        _c.check(_c.lib.adamod_set_scaler(self.handle, *pointers))

    def clip(self, norm: float) -> None:
        """Sets the norm that the gradients of all parameters are clipped to."""
        if norm != self.clip_norm:
            _c.check(_c.lib.adamod_set(self.handle, b"clip_norm", norm))
            self.clip_norm = norm

    def collect(self, on: bool) -> None:
        """Sets whether steps count the learning rates of single elements."""
        if on == self.collecting:
            return
        if capturing(self.device):
            raise RuntimeError(
                f"{self.device}: collect_learning_rates() has no effect within a capture: take a step outside first"
            )
        _c.check(_c.lib.adamod_collect(self.handle, int(on)))
        self.collecting = on

    def statistics(self, arrays: Arrays) -> Optional[_c.Statistics]:
        """The statistics of a group's last update, if they were collected; waits for it."""
        member = self.members.get(arrays.index)
        if not self.collecting or member is None or member.arrays is not arrays:
            return None
        self.use_current_stream()
        found = _c.Statistics()
        status = _c.lib.adamod_get_statistics(self.handle, member.group, ctypes.byref(found))
        if status == _c.ERROR_ORDER:  # no step since, or only skipped ones
            return None
        _c.check(status)
        return found

    def use_current_stream(self) -> None:
        if self.number is not None:
            stream = torch.cuda.current_stream(self.number).cuda_stream
            if stream != self.stream:
                self.stream = None  # not known, if this fails
                _c.check(_c.lib.adamod_set_stream(self.handle, ctypes.c_void_p(stream)))
                self.stream = stream

    # ---- the step, and what it counted ----

    def step(self) -> None:
        groups = [member.arrays for member in self.members.values()]
        active = [arrays for arrays in groups if any(link.device == self.device for link in arrays.active)]
        if not active:
            return
        status = _c.lib.adamod_step(self.handle)
        if not status and capturing(self.device):
            self.captured = [dict(counted.link.state) for counted in self._all_counted()]
        # A failure is that of an earlier step, which the host took for done.
        self.behind = self.behind or self.captured is not None or self.scaling.found_inf is not None or status != 0
        _c.check(status)
        if self.behind:
            return
        for arrays in active:
            arrays.count(self.device)

    def _all_counted(self) -> List[Counted]:
        return [counted for member in self.members.values() for counted in member.counted if counted is not None]

    def read_steps(self) -> None:
        """Brings state["step"] up to what the device has counted; waits for it."""
        if not self.behind:
            return
        self.use_current_stream()  # where graphs are replayed
        for member in self.members.values():
            member.arrays.unsettle()
        all_counted = self._all_counted()
        steps = (ctypes.c_int64 * len(all_counted))()  # ids are 0, 1, ...
        _c.check(_c.lib.adamod_all_tensor_steps(self.handle, len(steps), steps))
        for counted in all_counted:
            updates, shown = counted.link.updates, counted.link.state.get("step")
            if shown is updates.tensor and updates.cell.value == counted.steps:  # else it was set, and that counts
                updates.become(steps[counted.id])
            counted.steps = steps[counted.id]
        self.behind = self.captured is not None


class Handles:
    """The handles of one optimizer."""

    def __init__(self) -> None:
        self.by_key: Dict[Tuple[str, str, int], Handle] = {}
        self.kept: List[Handle] = []  # no longer used, except by graphs that were captured with them

    def prepare(
        self, groups: Sequence[Arrays], scaling: Scaling, collect: bool, clip_norm: float = math.inf
    ) -> List[Handle]:
        """Prepares the handles for a step and returns them. Failures occur here, before anything has changed."""
        wanted: Dict[Tuple[str, str, int], List[Arrays]] = {}
        for arrays in groups:
            for device in arrays.devices:
                wanted.setdefault((device, arrays.hyper.rule, arrays.values["seed"]), []).append(arrays)
        for key in [key for key in self.by_key if key not in wanted]:
            self._retire(key)
        try:
            ready = []
            for key, members in wanted.items():
                handle = self._following(key, members)
                handle.scale(scaling)
                handle.clip(clip_norm)
                handle.collect(collect)
                ready.append(handle)
            return ready
        except (ValueError, RuntimeError, MemoryError) as error:
            hint = "; push_options() before the capture does it" if "captured into a graph" in str(error) else ""
            raise type(error)(_named(str(error), groups) + hint) from None

    def _following(self, key: Tuple[str, str, int], groups: List[Arrays]) -> Handle:
        handle = self.by_key.get(key)
        try:
            if handle is not None:
                handle.use_current_stream()
                handle.follow(groups)
                return handle
        except Changed:
            pass
        if capturing(key[0]):
            raise RuntimeError(
                f"{key[0]}: parameters or states changed since the last step: take a step outside, then capture one"
            )
        if handle is not None:
            self._retire(key)
        try:
            handle = Handle(*key)
        except RuntimeError as error:
            first = next(b for b in groups[0].links if b is not None and b.device == key[0])
            raise RuntimeError(f"{groups[0].name(first.index)} is on {key[0]}: {error}") from None
        handle.use_current_stream()
        handle.follow(groups)
        self.by_key[key] = handle
        return handle

    def _retire(self, key: Tuple[str, str, int]) -> None:
        handle = self.by_key[key]
        handle.read_steps()
        del self.by_key[key]
        if handle.captured is not None:
            self.kept.append(handle)

    def push_options(self, groups: Sequence[Arrays]) -> None:
        for handle in self.by_key.values():
            handle.use_current_stream()
            for arrays in groups:
                member = handle.members.get(arrays.index)
                if member is not None and member.arrays is arrays:
                    handle._follow_options(member)

    def read_steps(self) -> None:
        for handle in self.by_key.values():
            handle.read_steps()

    def statistics(self, arrays: Arrays) -> List[_c.Statistics]:
        """The statistics of a group's last update, one for each device it has parameters on."""
        found = [handle.statistics(arrays) for handle in self.by_key.values()]
        return [statistics for statistics in found if statistics is not None]

    def drop(self) -> None:
        """Forgets all handles: the optimizer's state was replaced."""
        for key in list(self.by_key):
            self._retire(key)


def _named(message: str, groups: Sequence[Arrays]) -> str:
    """The library's message with its names for parameters replaced by those that the user knows."""

    def name(match: Any) -> str:
        number = int(match[1])
        for arrays in groups:
            for i in range(len(arrays.params)):
                if arrays.place(i) == number:
                    return arrays.name(i)
        return str(match[0])

    return re.sub(r"param\.(\d+)", name, message)
