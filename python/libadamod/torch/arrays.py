"""The arrays of one parameter group as the C library sees them.

PyTorch owns parameters, gradients and states. The library is given their addresses, in an array of spans that is kept
from step to step: in a step only what moved is written again.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import functools
import operator
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from .. import _c
from . import counts, host, q8
from .settled import Settled, written
from .sharding import is_distributed, is_flattened, is_spread, local, same_place

_TYPES = {torch.float32: _c.F32, torch.float64: _c.F64, torch.bfloat16: _c.BF16, torch.float16: _c.F16}
_STATE_TYPES = {"bf16": torch.bfloat16, "q8": torch.uint8}  # "auto" is the type of computation
_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
_COMPUTE = {torch.float64: torch.float64}  # all others are computed in float32
_REAL = {complex_: real for real, complex_ in _COMPLEX.items()}

_FIXED = (float, int, bool, str, type(None))  # types of options whose values cannot change in place

_WORTH_SETTLING = 8  # parameters; fewer are looked at one by one in less time

_data_ptr = Tensor.data_ptr


@functools.lru_cache(maxsize=None)
def _device_name(device: torch.device) -> Optional[str]:
    return None if device.type == "cpu" else str(device)


def device_of(p: Tensor) -> Optional[str]:
    """The device whose handle updates a parameter; None: the CPU, where it takes none."""
    return _device_name(p.device)


def is_fake(t: Any) -> bool:
    """Whether it is a FakeTensor, which stands for one in what is traced; not every PyTorch has them."""
    return hasattr(t, "fake_mode")


def is_wrapper(t: Tensor) -> bool:
    """Whether its class keeps the values in other tensors, so that it has no memory of its own."""
    return hasattr(type(t), "__tensor_flatten__")


def _class_name(t: Tensor) -> str:
    """With the package that it is of: torchao.Int8Tensor."""
    return f"{type(t).__module__.split('.')[0]}.{type(t).__name__}"


def _without_values(t: Tensor) -> str:
    if is_fake(t):
        return "is a FakeTensor: a step calls compiled code, which cannot be traced and needs tensors that have memory"
    return "is a meta tensor, which has no memory: give it some first, as to_empty() or load_state_dict(assign=True) do"


def has_nonzero(t: Tensor) -> bool:
    """Whether any element is not 0. A DTensor: in this process's part."""
    if t.is_nested or t.is_meta or is_fake(t):
        return True  # refused in the step
    if not t.numel() or t.layout is not torch.strided:
        return bool(t.numel())
    return bool((local(t.detach()) != 0).any())


def _contiguous(shape: Sequence[int]) -> Tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _same_layout(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether strides mean the same; those of dimensions of size 1 mean nothing."""
    return all(x == y for size, x, y in zip(shape, a, b) if size > 1)


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in whatever order."""
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape) if size > 1):
        if stride != step:
            return False
        step *= size
    return True


def is_new(state: Dict[str, Any]) -> bool:
    """Whether a parameter has no state yet, except perhaps a count: some groups count for all of their parameters."""
    return all(name == "step" or value is None for name, value in state.items())


class Link:
    """A parameter whose addresses are in its span."""

    __slots__ = (
        "index",
        "state",
        "names",
        "key",
        "count",
        "numel",
        "stride",
        "in_place",
        "copy",
        "complex",
        "grad_stride",
        "grad_dtype",
        "touch",
        "device",
        "shaped",
        "updates",
        "counted",
    )
    index: int  # in the group
    state: Dict[str, Any]  # PyTorch's
    names: Tuple[str, ...]  # of the tensors in it that the span points to, and of the count
    key: Optional[Tuple[Any, ...]]
    count: int  # of real numbers
    numel: int  # of elements, as PyTorch counts them
    stride: Tuple[int, ...]  # of everything in the span
    in_place: bool  # the parameter has it too; otherwise the span points to a copy
    copy: Tensor  # which is this one
    complex: bool
    grad_stride: Tuple[int, ...]  # of the last gradient that needed no copy
    grad_dtype: torch.dtype
    touch: Tensor
    device: Optional[str]  # None: the CPU
    shaped: bool  # the rule looks at the parameter's shape
    updates: counts.Updates  # done so far
    counted: Any  # what a device's handle knows of it; None on the CPU


class Wanted(NamedTuple):
    """A tensor that the library needs in the state of a parameter."""

    name: str
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]
    dtype: torch.dtype
    shared: bool = True  # placed as the parameter, where that is a DTensor; others are tensors of this process


def _key(p: Tensor, state: Dict[str, Any], names: Sequence[str], sharded: bool) -> Optional[Tuple[Any, ...]]:
    """Everything that the addresses in a span depend on. They are right as long as this is equal."""
    try:
        states = map(state.__getitem__, names)
        addresses = map(_data_ptr, map(local, states) if sharded else states)
        return (p.data_ptr(), p.stride(), p.numel(), p.dtype, *addresses)
    except (KeyError, TypeError, RuntimeError):  # a state is missing, is no tensor, or has no memory
        return None


def _named(error: ValueError, names: Sequence[str]) -> ValueError:
    """The library's error with the names of parameters in place of the numbers of spans."""
    return ValueError(re.sub(r"span (\d+)", lambda m: names[int(m[1])], str(error)))


def check_groups(groups: Sequence[Arrays]) -> None:
    """Finds what is wrong with the arrays of any group on the CPU, before the first is updated. Each group's update
    does so for itself; what is between groups can only have changed where some memory is new."""
    relinked = any(arrays.relinked for arrays in groups)
    for arrays in groups:
        arrays.relinked = False
    if len(groups) < 2 or not relinked:
        return
    active = [(arrays, link) for arrays in groups for link in arrays.active if link.device is None]
    try:
        _c.check_groups(
            [arrays.hyper for arrays, _ in active], [arrays.rows[link.index] for arrays, link in active]
        )
    except ValueError as error:
        for arrays in groups:
            arrays.forget()  # so that the next step looks again
        raise _named(error, [arrays.name(link.index) for arrays, link in active]) from None


class Arrays:
    """One parameter group: its options as an adamod_hyper, its tensors as adamod_spans."""

    def __init__(self, rule: str, index: int, first: int, params: List[Tensor]) -> None:
        self.hyper = _c.Hyper(rule)
        self.facts = _c.rule_info(rule)
        self.options = _c.options(rule)
        self.values: Dict[str, Any] = {}
        self.in_range = False  # the values, for the parameters' types
        self.keys: Tuple[str, ...] = ()  # of the group; the values follow from these alone; empty: not known
        self.group_values: Tuple[Any, ...] = ()
        self.tensors: Dict[str, Tensor] = {}  # options whose value is on a GPU
        self.index = index
        self.first = first  # how many parameters the groups before have
        self.params = list(params)
        for i, p in enumerate(self.params):
            if not isinstance(p, Tensor):
                raise TypeError(f"parameter {i} of group {index} is {type(p).__name__}, expected a tensor")
        self.names: Sequence[str] = ()
        self.spans = (_c.Span * len(self.params))()
        self.rows = list(self.spans)
        self.sharded = [is_distributed(p) for p in self.params]
        self.spread = [sharded and is_spread(p) for p, sharded in zip(self.params, self.sharded)]
        self.has_spread = any(self.spread)
        self.offload = False  # states are in host memory; see host.py
        self.gathers_all = False  # a step gathers all parameters, as some are spread and the rule couples them
        self.gathers: List[int] = []  # parameters that whole.py updates in this step; only checked here
        self.collected: List[_c.Statistics] = []  # of their last update
        self.links: List[Optional[Link]] = [None] * len(self.params)
        self.devices: List[str] = []  # of links, without the CPU
        self.active: List[Link] = []
        self.active_before: List[int] = []  # indices of the last step's
        self.relinked = False  # other memory than at the last check_groups; a step that failed may have begun it
        self.settled: Optional[Settled] = None  # checks of all active parameters in one, if there are any
        self.statistics: Optional[_c.Statistics] = None  # of the last update on the CPU, if collected
        self.new_counts: List[Optional[Tensor]] = []  # one for each parameter that has not begun; empty: not made yet
        self.copies: List[Tensor] = []  # kept alive until the update is done
        self.copies_back: List[Tuple[Tensor, Tensor]] = []

    def name(self, i: int) -> str:
        """A parameter, for messages."""
        name = f" ('{self.names[i]}')" if i < len(self.names) else ""
        return f"parameter {i} of group {self.index}{name}"

    def place(self, i: int) -> int:
        """A parameter's number among those of all groups."""
        return self.first + i

    def matches(self, rule: str, first: int, params: Sequence[Tensor]) -> bool:
        """Whether these are still the arrays of a group."""
        return (
            self.hyper.rule == rule
            and self.first == first
            and len(self.params) == len(params)
            and all(map(operator.is_, self.params, params))
        )

    def remember(self, group: Dict[str, Any]) -> None:
        """Remembers the values that a group's options were set from, unless one of them can change in place."""
        self.keys = tuple(key for key in group if key not in ("params", "param_names", "step"))
        self.group_values = tuple(map(group.get, self.keys))
        flat = [x for value in self.group_values for x in (value if type(value) is tuple else (value,))]
        if not all(type(x) in _FIXED for x in flat):
            self.keys = ()

    def is_as_before(self, group: Dict[str, Any], first: int) -> bool:
        """Whether a group still has the values remembered, the same objects, and the same parameters."""
        same = all(map(operator.is_, map(group.get, self.keys), self.group_values))
        return bool(self.keys) and same and self.matches(self.hyper.rule, first, group["params"])

    def set_options(self, values: Dict[str, Any]) -> None:
        self.keys = ()
        self.tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        for name, value in values.items():
            if name in self.tensors or (name in self.values and self.values[name] == value):
                continue
            self._set_one(name, value)
            self.in_range = False
        if not self.in_range:
            self._check_range()

    def _check_range(self) -> None:
        """Fails unless the options suit the parameters' types. Called before any group is updated."""
        dtypes = {_REAL.get(p.dtype, p.dtype) for p in self.params}  # others are refused at the step
        for kind in sorted(_TYPES[dtype] for dtype in dtypes if dtype in _TYPES):
            try:
                self.hyper.check(kind)
            except ValueError as error:
                raise ValueError(f"group {self.index}: {error}") from None
        self.in_range = True

    def set_offload(self, on: bool) -> None:
        if on != self.offload:
            self.forget()
        self.offload = on

    def _set_one(self, name: str, value: Any) -> None:
        choices = self.options[name].choices
        if isinstance(value, str) != bool(choices):
            expected = f"one of {', '.join(choices)}" if choices else "a number"
            raise TypeError(f"group {self.index}: {name} is {value!r}, expected {expected}")
        try:
            self.hyper.set(name, value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"group {self.index}: {error}") from None
        self.values[name] = value
        if self.options[name].structural:
            self.forget()

    def forget(self) -> None:
        """The next step looks at everything."""
        self.unsettle()
        self.links = [None] * len(self.params)

    def unsettle(self) -> None:
        """The next step looks at each parameter."""
        if self.settled is not None:
            self.settled.tell_counts()
            self.settled = None

    # ---- a step: all groups are prepared before the first is updated ----

    def prepare(self, states: Dict[Tensor, Dict[str, Any]], same_states: bool = False) -> None:
        """Points the spans at what is there now. A faulty parameter is refused here. same_states:
        each parameter has the dict it had in the last step."""
        self.gathers = []
        if self.gathers_all:
            self._gather_all(states)
            return
        if same_states and self.settled is not None and self.settled.follow():
            self.active = self.settled.active
            return
        self.unsettle()
        self._prepare_each(states)
        if len(self.active) >= _WORTH_SETTLING:
            self._settle()

    def _settle(self) -> None:
        """Prepares for more steps like this one, if it was like the last."""
        active = [link.index for link in self.active]
        again, self.active_before = active == self.active_before and not self.relinked, active
        one_device = len({link.device for link in self.active}) == 1
        far = all(link.updates.steps + 1 < link.updates.end for link in self.active)  # from where counting ends
        one_type = len({link.updates.end for link in self.active}) == 1
        simple = not (self.copies or self.copies_back or any(self.sharded))
        if again and one_device and far and one_type and simple:
            known = [link for link in self.links if link is not None]
            self.settled = Settled(self.params, self.spans, self.active, known)

    def needs_whole(self, p: Tensor) -> bool:
        """Whether the rule looks at more than single elements of a parameter."""
        if self.facts.matrices_only:
            return p.dim() > 1 and bool(self.values.get("use_muon", True))
        return self.facts.whole_arrays or bool(self.values.get("cautious"))

    def _gather_all(self, states: Dict[Tensor, Dict[str, Any]]) -> None:
        self.active = []
        for i, p in enumerate(self.params):
            if p.grad is None:
                continue
            if self.spread[i]:
                self._gather(i, p, p.grad, states[p])
            else:
                self.gathers.append(i)

    def _gather(self, i: int, p: Tensor, g: Tensor, state: Dict[str, Any]) -> None:
        """Checks a parameter and leaves its update to whole.py."""
        self._check_place(i, p, "its gradient", g)
        self._check_param(i, local(p), _REAL.get(p.dtype, p.dtype))
        self._check_grad(i, p, g)
        self._check_states(i, p, state)
        self.gathers.append(i)

    def _prepare_each(self, states: Dict[Tensor, Dict[str, Any]]) -> None:
        self.active, self.copies, self.copies_back = [], [], []
        strided = torch.strided
        for i, (p, row, link, sharded) in enumerate(zip(self.params, self.rows, self.links, self.sharded)):
            g = p.grad
            if g is None:
                row.grad = None
                if link is not None and link.device is not None and not self._is_there(p, link, states):
                    self.relinked, self.links[i] = True, None  # a handle would take its old memory for used
                continue
            state = states[p]
            if sharded and self.is_gathered(i):
                row.grad, self.links[i] = None, None
                self._gather(i, p, g, state)
                continue
            if sharded or type(g) is not Tensor:
                g = self._here(i, p, "its gradient", g)
                p = local(p) if sharded else p
            if g.layout is not strided:
                g = self._dense(i, g)
            if (
                link is None
                or link.state is not state
                or link.key != _key(p, state, link.names, sharded)
                or not link.updates.holds()
            ):
                self.relinked, self.links[i] = True, None  # also where linking or a later parameter fails
                self._check_grad(i, p, g)
                link = self.links[i] = self._link(i, p, state)
            if (
                g.layout is not strided
                or g.dtype is not link.grad_dtype
                or g.stride() != link.grad_stride
                or g.numel() != link.numel
                or g.is_neg()
                or (link.complex and g.is_conj())
            ):
                g = self._fit_grad(i, p, g, link)
            if not link.in_place:
                self.copies_back.append((p, link.copy.copy_(p)))
            row.grad = address = g.data_ptr()
            if not address and link.count:
                raise RuntimeError(f"{self.name(i)} has a gradient whose memory was freed")
            if link.device is None:
                row.step = link.updates.steps + 1
            self.active.append(link)
        if self.relinked:
            self.devices = sorted({link.device for link in self.links if link and link.device})

    def _check_place(self, i: int, p: Tensor, what: str, t: Tensor) -> None:
        """Fails unless a gradient or state can be placed as its parameter is."""
        if is_fake(p) or is_fake(t):
            raise RuntimeError(f"{self.name(i)} {_without_values(p if is_fake(p) else t)}")
        if is_distributed(t) != self.sharded[i]:
            one, other = ("a DTensor", "none") if self.sharded[i] else ("no DTensor", "one")
            raise TypeError(f"{self.name(i)} is {one}, and {what} is {other}")
        mesh, there = getattr(p, "device_mesh", None), getattr(t, "device_mesh", None)
        if self.sharded[i] and mesh is not there and mesh != there:
            raise ValueError(f"{self.name(i)} is on {mesh}, and {what} on {there}")

    def _here(self, i: int, p: Tensor, what: str, t: Tensor) -> Tensor:
        """This process's part of a gradient or state, placed as its parameter is. If it is placed otherwise, or its sum
        over processes is still to be computed, this calls a collective. All processes call it, as they have the same
        parameters."""
        self._check_place(i, p, what, t)
        if self.sharded[i] and not same_place(p, t):
            t = t.redistribute(p.device_mesh, p.placements)  # type: ignore[attr-defined]
            self.copies.append(t)
        here = local(t)
        if here is not t:
            self.copies.append(here)
        return here

    def _dense(self, i: int, g: Tensor) -> Tensor:
        """A sparse gradient as a dense one, for rules that accept it. Like torch.optim's, they refuse it with weight
        decay."""
        if g.layout is torch.sparse_coo and self.facts.sparse_gradients:
            if self.values.get("weight_decay") and self.values["decay"] != "none":
                raise RuntimeError(
                    f"{self.name(i)} has a sparse gradient, and weight_decay is for dense ones: set it to 0"
                )
            g = g.coalesce().to_dense()
            self.copies.append(g)
        return g

    def _is_there(self, p: Tensor, link: Link, states: Dict[Tensor, Dict[str, Any]]) -> bool:
        """Whether what a span points to is still a parameter's, its gradient aside."""
        sharded = self.sharded[link.index]
        key = _key(local(p) if sharded else p, link.state, link.names, sharded)
        return states.get(p) is link.state and key == link.key

    def _on_host(self) -> List[Link]:
        return [link for link in self.active if link.device is None] if self.devices else self.active

    def set_host_values(self, scale: float) -> None:
        """Sets the options that only an update on the CPU needs: the gradients' factor, and the values of tensors."""
        if not self._on_host():
            return
        if self.values.get("grad_scale") != scale:
            self._set_one("grad_scale", scale)
        for name, tensor in self.tensors.items():
            self._set_one(name, float(tensor))

    def update(self, threads: int, collect: bool) -> None:
        """One update of the parameters on the CPU. If it fails, nothing of the group has changed."""
        self.statistics = None
        active = self._on_host()
        if not active:
            return
        spans = self.spans
        if len(active) < len(self.params):  # spans of other parameters may point to freed memory
            spans = (_c.Span * len(active))(*(self.rows[link.index] for link in active))
        try:
            elements = self.settled.elements if self.settled else sum(link.count for link in active)
            if collect:
                self.statistics = self.hyper.collect(spans, elements, threads)
            else:
                self.hyper.update(spans, elements, threads)
        except ValueError as error:
            raise _named(error, [self.name(link.index) for link in active]) from None
        self.count(None)
        if not self.devices:
            self.finish()

    def count(self, device: Optional[str]) -> None:
        """Counts an update that a device has done."""
        if self.settled is not None:
            self.settled.count()
            return
        for link in self.active:
            if link.device == device:
                link.updates.become(link.updates.steps + 1)
                if link.counted is not None:
                    link.counted.steps = link.updates.steps

    def finish(self) -> None:
        """After the update, of all devices."""
        if not self.active:
            return
        for p, copy in self.copies_back:
            p.copy_(copy)
        written(self.settled.touches if self.settled else [link.touch for link in self.active])
        self.active, self.copies, self.copies_back = [], [], []

    def leave(self) -> None:
        """Called in place of an update: everything is ready for one, and stays as it is."""
        self.active, self.copies, self.copies_back = [], [], []

    # ---- linking: the slow way, when something is new or has moved ----

    def _link(self, i: int, p: Tensor, state: Dict[str, Any]) -> Link:
        real = _REAL.get(p.dtype, p.dtype)
        self._check_param(i, p, real)
        link = Link()
        link.index, link.state, link.complex = i, state, p.dtype in _REAL
        # One handle has the parameters of all groups, on the CPU too, where a rule looks at all of them at once.
        link.device, link.counted = device_of(p) or ("cpu" if self.facts.couples_arrays else None), None
        link.shaped = shaped = self.facts.shaped
        link.numel = p.numel()
        link.count = link.numel * (2 if link.complex else 1)
        dense = p.is_contiguous() or (not shaped and _is_dense(p.shape, p.stride()))
        link.in_place = dense and not p.is_neg() and not p.is_conj()
        link.stride = p.stride() if link.in_place else _contiguous(p.shape)
        link.grad_stride, link.grad_dtype = link.stride, p.dtype
        # PyTorch itself writes arrays that go through a copy.
        link.touch = p.detach().as_strided((0,), (1,), 0) if link.in_place else torch.empty(0, device=p.device)
        steps = self._steps(i, state)
        link.updates = counts.Updates(state.get("step"), steps, functools.partial(self._new_count, i))
        state["step"] = link.updates.tensor

        row = self.rows[i]
        if not link.in_place:
            link.copy = torch.empty_strided(p.shape, link.stride, dtype=p.dtype, device=p.device)
        row.param = p.data_ptr() if link.in_place else link.copy.data_ptr()
        if link.count and not p.data_ptr():
            raise RuntimeError(f"the memory of {self.name(i)} was freed")
        row.param_type = row.grad_type = _TYPES[real]
        row.count = link.count
        row.ndim = p.dim() if shaped else 0
        row.shape[: row.ndim] = p.shape[: row.ndim]
        row.stream = _c.stream(f"param.{self.place(i)}")  # as the library has it for its own handles
        row.step = 0
        link.names = ("step", *self._link_states(i, p, real, link))
        link.key = _key(p, state, link.names, self.sharded[i])
        return link

    def _new_count(self, i: int, steps: int) -> Tensor:
        """A new count of steps. Counts of parameters that begin together lie side by side."""
        if steps > 0:
            return counts.new(steps)
        if not self.new_counts:
            self.new_counts = list(counts.row([0] * len(self.params)))
        count, self.new_counts[i] = self.new_counts[i], None
        return counts.new(0) if count is None else count

    def _link_states(self, i: int, p: Tensor, real: torch.dtype, link: Link) -> Tuple[str, ...]:
        """Points the span at the states and the master; returns their names."""
        row, names = self.rows[i], []
        dtype = self._state_dtype(p)
        row.state_type = _c.Q8 if dtype is torch.uint8 else _TYPES[dtype]
        for place in range(len(row.state)):  # the rule may have had others, under other options
            row.state[place] = row.scale[place] = None
        begins = is_new(link.state)
        for spec, wanted in self._wanted(p, link.stride):
            t = self._state(i, link, spec, wanted, begins)
            row.state[spec.place] = address = local(t).data_ptr()
            if not address and local(t).numel():
                raise RuntimeError(f"the memory of {spec.name} of {self.name(i)} was freed")
            names.append(spec.name)
            if dtype is torch.uint8:
                names.append(q8.scale_name(spec.name))
                row.scale[spec.place] = link.state[names[-1]].data_ptr()
        row.master = None
        if real in (torch.bfloat16, torch.float16) and self.values["low_precision"] == "master":
            row.master = local(self._master(i, p, link)).data_ptr()
            names.append("master")
        else:  # updates that it does not see are made from now on: should it be wanted again, it begins anew
            link.state.pop("master", None)
        return tuple(names)

    def _check_param(self, i: int, p: Tensor, real: torch.dtype) -> None:
        rule = self.hyper.rule
        if is_wrapper(p) and not p.is_nested:
            raise TypeError(
                f"{self.name(i)} is of class {_class_name(p)}, without memory of its own: expected a plain tensor"
            )
        if p.is_nested:
            raise RuntimeError(f"{self.name(i)} is a nested tensor, expected a dense one: make each part a parameter")
        if p.layout is not torch.strided:
            raise RuntimeError(f"{self.name(i)} has layout {p.layout}, expected a dense tensor")
        if p.is_inference() and not torch.is_inference_mode_enabled():
            raise RuntimeError(f"{self.name(i)} was made in inference mode: it cannot be changed outside")
        if is_fake(p) or p.is_meta:
            raise RuntimeError(f"{self.name(i)} {_without_values(p)}")
        if p.device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"{self.name(i)} is on {p.device}, expected the CPU or a CUDA device")
        if real not in _TYPES:
            raise TypeError(f"{self.name(i)} is {p.dtype}, expected float32, float64, bfloat16, float16 or complex")
        state_type = self.values["state_type"]
        if p.dtype in _REAL and state_type in _STATE_TYPES:
            raise TypeError(f"{self.name(i)} is {p.dtype}, and states in {state_type} are for real parameters")
        if self.sharded[i] and any(x.is_partial() for x in self.params[i].placements):  # type: ignore[attr-defined]
            raise TypeError(f"{self.name(i)} has a pending sum (Partial), expected Shard or Replicate")
        if self.sharded[i] and self._offloads(i):
            raise TypeError(
                f"{self.name(i)} is a DTensor, and offload=True is for plain tensors: use fully_shard's CPUOffloadPolicy"
            )
        if any(stride == 0 and size > 1 for stride, size in zip(p.stride(), p.shape)):
            raise RuntimeError(f"{self.name(i)} is expanded: its elements share memory; clone it first")
        if self.facts.shaped and p.dtype in _REAL:
            raise TypeError(f"{self.name(i)} is {p.dtype}; {rule} is for real parameters")
        if self.facts.shaped and p.dim() > _c.MAX_DIMS:
            raise ValueError(f"{self.name(i)} has {p.dim()} dimensions; {rule} is for {_c.MAX_DIMS} at most")
        whole = self.facts.whole_arrays and self.values.get("use_muon", True)
        if (whole or self.values.get("cautious")) and is_flattened(self.params[i]):
            who = rule if whole else "cautious=True"
            raise TypeError(
                f"{self.name(i)} is flattened by FSDP1 (FullyShardedDataParallel); {who} needs whole parameters: "
                f"use FSDP2 (fully_shard)"
            )

    def _steps(self, i: int, state: Dict[str, Any]) -> int:
        """Updates done so far: a tensor, an int in older checkpoints and other packages, nothing in PyTorch's SGD
        and Muon, nor in others' Lion, whose formulas do not ask."""
        if not isinstance(state, dict):
            raise TypeError(f"the state of {self.name(i)} is {type(state).__name__}, expected a dict")
        steps = state.get("step")
        if steps is None and all(value is None for value in state.values()):
            return 0
        if steps is None and (self.facts.uncounted or set(state) == {"momentum_buffer"}):
            return 1
        if steps is None:
            raise ValueError(f"the state of {self.name(i)} has no step, and its group has none either")
        try:
            value = steps.item() if isinstance(steps, Tensor) else steps
            count = int(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            raise TypeError(f"step of {self.name(i)} is {steps!r}, expected a number") from None
        if count != value:  # a string of digits too
            raise ValueError(f"step of {self.name(i)} is {value!r}, expected a whole number")
        if not 0 <= count < counts.END:
            raise ValueError(f"step of {self.name(i)} is {count}, expected 0 <= step < 2**62")
        return count

    def _state_dtype(self, p: Tensor) -> torch.dtype:
        """The type of real states."""
        real, wanted = _REAL.get(p.dtype, p.dtype), _STATE_TYPES.get(self.values["state_type"])
        if wanted is None or (wanted is torch.uint8 and p.numel() < self.values["min_8bit_size"]):
            return _COMPUTE.get(real, torch.float32)
        return wanted

    def number_type(self, p: Tensor) -> torch.dtype:
        """The type of real states while they are numbers: of a DTensor the same in all processes, where each has codes
        of its part or not, as many elements as it has."""
        dtype = self._state_dtype(p)
        return _COMPUTE.get(p.dtype, torch.float32) if dtype is torch.uint8 else dtype

    def _wanted(self, p: Tensor, stride: Sequence[int]) -> Iterator[Tuple[_c.State, Wanted]]:
        """The states that the library needs for a parameter."""
        shaped, complex_ = self.facts.shaped, p.dtype in _REAL
        dtype = self._state_dtype(p)
        for spec in self.hyper.states(p.shape if shaped else (p.numel() * (2 if complex_ else 1),)):
            wanted = Wanted(spec.name, spec.shape, _contiguous(spec.shape), _COMPLEX[dtype] if complex_ else dtype)
            if not shaped and len(spec.shape) == 1:  # one number for each element
                wanted = wanted._replace(shape=tuple(p.shape), stride=tuple(stride))
            elif not shaped and len(spec.shape) == 2:  # a queue of such
                wanted = wanted._replace(shape=(spec.shape[0], *p.shape), stride=(p.numel(), *stride))
            elif not shaped:  # one for all
                wanted = wanted._replace(dtype=dtype)
            yield spec, wanted._replace(shared=wanted.shape == tuple(p.shape))

    def check_states(self, states: Dict[Tensor, Dict[str, Any]]) -> None:
        """Refuses loaded states that are wrong, without a look at parameters' values or memory."""
        for i, p in enumerate(self.params):
            state = states.get(p)
            if not state or is_lazy(p):
                continue
            here = p if self.is_gathered(i) else getattr(p, "_local_tensor", p)
            if _REAL.get(here.dtype, here.dtype) in _TYPES:  # otherwise the step says so
                self._check_states(i, here, state)

    def is_gathered(self, i: int) -> bool:
        """Whether a step gathers a parameter that has a gradient. All processes have the same answer."""
        return self.spread[i] and self.needs_whole(self.params[i])

    def _check_states(self, i: int, p: Tensor, state: Dict[str, Any]) -> None:
        begins = self._steps(i, state) == 0 or is_new(state)
        for _, wanted in self._wanted(p, _contiguous(p.shape)):
            if state.get(wanted.name) is None:
                self._check_begins(i, state, wanted, begins)
                continue
            self._check_found(i, wanted, state[wanted.name])
            if state[wanted.name].dtype is torch.uint8:
                self._check_codes(i, state, wanted)

    def _check_begins(self, i: int, state: Dict[str, Any], wanted: Wanted, begins: bool) -> None:
        # Momentum and the bound may be switched on at any time. AdaMod always has it.
        optional = wanted.name == "momentum_buffer" or (wanted.name == "exp_avg_lr" and "bound" in self.options)
        if not begins and not optional:
            raise ValueError(
                f"the state of {self.name(i)} has no {wanted.name}, only {', '.join(state)}: "
                f"it is not a state of {self.hyper.rule}"
            )

    def _check_found(self, i: int, wanted: Wanted, found: Any) -> None:
        if not isinstance(found, Tensor):
            raise TypeError(f"{wanted.name} of {self.name(i)} is {type(found).__name__}, expected a tensor")
        here = getattr(found, "_local_tensor", found)
        if is_distributed(found) and not self.sharded[i]:
            raise TypeError(f"{self.name(i)} is not a DTensor, and {wanted.name} is one")
        if is_distributed(found) and not self.is_gathered(i) and wanted.shared:  # it may be placed otherwise
            self._check_shape(i, wanted._replace(shape=tuple(self.params[i].shape)), found)
        else:
            self._check_shape(i, wanted, found)
        if here.is_meta and not local(self.params[i]).is_meta:
            raise ValueError(f"{wanted.name} of {self.name(i)} is a meta tensor, which has no values")
        number = here.is_floating_point() or here.is_complex() or here.dtype is torch.uint8  # codes in 8 bits
        if here.layout is not torch.strided or not number or here.is_complex() != wanted.dtype.is_complex:
            raise TypeError(
                f"{wanted.name} of {self.name(i)} is {here.dtype} in layout {here.layout}, "
                f"expected a dense tensor of {wanted.dtype}"
            )

    def _state(self, i: int, link: Link, spec: _c.State, wanted: Wanted, begins: bool) -> Tensor:
        """A state as the library needs it: the one that is there, converted if it must be, or a new one."""
        if link.state.get(spec.name) is not None:
            return self._found(i, link, wanted)
        self._check_begins(i, link.state, wanted, begins or link.updates.steps == 0)
        if wanted.dtype is torch.uint8 and spec.initial != 0:
            self._new(i, link, wanted._replace(dtype=torch.float32), spec.initial)
            return self._found(i, link, wanted)
        if wanted.dtype is torch.uint8:
            self._new(i, link, self._wanted_scale(wanted, link.count), 0.0)
        t = self._new(i, link, wanted, spec.initial)
        # The library fills them in update 1; another may be the first of a parameter whose group counts for all.
        if spec.name in self.facts.begin_as_param and link.updates.steps > 0:
            local(t).copy_(local(self.params[i]))
        return t

    def _found(self, i: int, link: Link, wanted: Wanted) -> Tensor:
        """An existing state, converted to 8 bits or from them if needed."""
        found, want_codes = link.state[wanted.name], wanted.dtype is torch.uint8
        if not (isinstance(found, Tensor) and (want_codes or found.dtype is torch.uint8)):
            return self._adopted(i, link, wanted, found)
        self._check_found(i, wanted, found)
        numbers = found
        if found.dtype is torch.uint8:
            wanted_scale = self._check_codes(i, link.state, wanted)
            scale = link.state[wanted_scale.name]
            if not is_distributed(scale):
                scale = self._adopted(i, link, wanted_scale, scale)
                if want_codes and _same_layout(wanted.shape, local(found).stride(), wanted.stride):
                    return self._adopted(i, link, wanted, found)
            numbers = link.state[wanted.name] = q8.decode(wanted.name, found, scale)  # blocks follow the layout
            del link.state[wanted_scale.name]
        if not want_codes:
            return self._adopted(i, link, wanted, numbers)
        numbers = self._adopted(i, link, wanted._replace(dtype=torch.float32), numbers)
        codes, scale = q8.encode(wanted.name, numbers)
        link.state.update({wanted.name: codes, q8.scale_name(wanted.name): scale})
        self._adopted(i, link, self._wanted_scale(wanted, link.count), scale)
        return self._adopted(i, link, wanted, codes)

    def _wanted_scale(self, wanted: Wanted, count: int) -> Wanted:
        return Wanted(q8.scale_name(wanted.name), (q8.blocks(count),), (1,), torch.float32, False)

    def _check_codes(self, i: int, state: Dict[str, Any], wanted: Wanted) -> Wanted:
        """Checks a state in 8 bits; returns the form that its scales must have."""
        of_whole = is_distributed(state.get(q8.scale_name(wanted.name)))
        count = (self.params[i] if of_whole else local(self.params[i])).numel()
        codes, scale = state[wanted.name], self._wanted_scale(wanted, count)
        if self.sharded[i] and not (is_distributed(codes) and same_place(self.params[i], codes)):
            raise ValueError(f"{wanted.name} of {self.name(i)} is in 8 bits and is not sharded as its parameter is")
        codes = local(codes)
        if state.get(scale.name) is None or not _is_dense(codes.shape, codes.stride()):
            lacks = f"no {scale.name}" if state.get(scale.name) is None else "gaps in memory"
            raise ValueError(f"{wanted.name} of {self.name(i)} is in 8 bits and has {lacks}")
        self._check_found(i, scale, state[scale.name])
        return scale

    def _master(self, i: int, p: Tensor, link: Link) -> Tensor:
        wanted = Wanted("master", tuple(p.shape), link.stride, torch.float32)
        if link.state.get("master") is not None:
            return self._adopted(i, link, wanted, link.state["master"])
        t = self._new(i, link, wanted, 0.0)
        local(t).copy_(p)
        return t

    def _new(self, i: int, link: Link, wanted: Wanted, initial: float) -> Tensor:
        if self.sharded[i] and wanted.shared:
            t = torch.full_like(self.params[i], initial, dtype=wanted.dtype, requires_grad=False)
        else:
            value = complex(initial, initial) if wanted.dtype in _REAL else initial
            device = local(self.params[i]).device
            if self._offloads(i):
                t = host.empty(wanted.shape, wanted.stride, wanted.dtype)
            else:
                t = torch.empty_strided(wanted.shape, wanted.stride, dtype=wanted.dtype, device=device)
            t.fill_(value)
        link.state[wanted.name] = t
        return t

    def _check_shape(self, i: int, wanted: Wanted, found: Tensor) -> None:
        if tuple(found.shape) != wanted.shape:
            raise ValueError(f"{wanted.name} of {self.name(i)} has shape {tuple(found.shape)}, expected {wanted.shape}")

    def _adopted(self, i: int, link: Link, wanted: Wanted, found: Tensor) -> Tensor:
        self._check_found(i, wanted, found)
        here = self._here(i, self.params[i], wanted.name, found) if is_distributed(found) else local(found)
        there = host.is_reached(here) if self._offloads(i) else here.device == local(self.params[i]).device
        fits = here.dtype is wanted.dtype and there and not here.is_neg() and not here.is_conj()
        as_param = is_distributed(found) and same_place(self.params[i], found)
        placed = as_param or not (self.sharded[i] and wanted.shared)
        if fits and placed and _same_layout(wanted.shape, here.stride(), wanted.stride):
            return found
        t = self._new(i, link, wanted, 0.0)
        host.wait(self.params[i : i + 1] if here.device != local(self.params[i]).device else ())
        local(t).copy_(here)
        return t

    def _offloads(self, i: int) -> bool:
        return self.offload and host.is_elsewhere(self.params[i])

    def _check_grad(self, i: int, p: Tensor, g: Tensor) -> None:
        """PyTorch sees to it where a gradient is set, but not where the parameter's data, or the gradient's, is."""
        if g.is_nested:
            raise RuntimeError(f"{self.name(i)} has a nested gradient, expected a dense one: use to_padded_tensor()")
        if is_wrapper(g) and not is_wrapper(p):
            kind = _class_name(g)
            raise TypeError(f"{self.name(i)} has a gradient of class {kind}, without memory of its own: expected a plain tensor")
        if g.is_mkldnn:
            raise RuntimeError(f"{self.name(i)} has a gradient in MKL-DNN's layout, expected a dense one: use to_dense()")
        if g.layout is not torch.strided:
            advice = "to_sparse_coo()" if self.facts.sparse_gradients else "SGD and Adagrad take sparse ones"
            raise RuntimeError(
                f"{self.name(i)} has a sparse gradient ({g.layout}), expected a dense one: "
                f"for torch.nn.Embedding, set sparse=False; {advice}"
            )
        if g.shape != p.shape:
            raise ValueError(
                f"{self.name(i)} has a gradient of shape {tuple(g.shape)}, expected its own, {tuple(p.shape)}"
            )
        if g.device != p.device:
            raise RuntimeError(f"{self.name(i)} is on {p.device}, and its gradient on {g.device}")
        if _REAL.get(g.dtype, g.dtype) not in _TYPES or (g.dtype in _REAL) != (p.dtype in _REAL):
            expected = "a complex type" if p.dtype in _REAL else "float32, float64, bfloat16 or float16"
            raise TypeError(f"{self.name(i)} has a gradient of {g.dtype}, expected {expected}")

    def _fit_grad(self, i: int, p: Tensor, g: Tensor, link: Link) -> Tensor:
        """A gradient of another type or layout than the last: the library reads all types, but only one layout."""
        self._check_grad(i, p, g)
        resolved = g.resolve_conj().resolve_neg()
        if not _same_layout(g.shape, resolved.stride(), link.stride):
            resolved = torch.empty_strided(g.shape, link.stride, dtype=g.dtype, device=g.device).copy_(resolved)
        elif resolved is g or resolved.data_ptr() == g.data_ptr():
            link.grad_stride = g.stride()
        self.copies.append(resolved)
        link.grad_dtype = g.dtype
        self.rows[i].grad_type = _TYPES[_REAL.get(g.dtype, g.dtype)]
        return resolved
