"""Prodigy where one call of the library does not have all parameters: some are on another device, or other processes
update them (ZeroRedundancyOptimizer).

d is one number for all parameters, estimated from two sums over them (rules/prodigy.inc.h):

    along = sum of g (p0 - p), for each parameter times high = d^2 / d0 lr        size = sum of |s|, after this update

The library computes both for the parameters of a call. The sums of all others come as one more parameter of that call,
of a single float64, whose gradient and p0 are such that its own two sums are those. It has an update more than all
others, so the library also reads d there.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from . import host, q8
from .arrays import Arrays, Link
from .devices import Scaling, capturing

Key = Tuple[str, int]  # a device and a seed: what has a handle of its own

_NUMBERS = ("d", "d_max", "d_numerator")  # states that all parameters share
_KEPT = {torch.float64: 0.0, torch.float32: 1e-6}  # precision of a type, as in the library; others: 1e-2


class Others(Arrays):
    """One parameter that stands for all those that a handle does not have: it contributes their sums."""

    def __init__(self, index: int, key: Key, steps: int) -> None:
        self.key = key
        param = torch.zeros(1, dtype=torch.float64, device=key[0])
        super().__init__("prodigy", index, 0, [param])
        self.state: Dict[str, Any] = {"step": steps}

    def name(self, i: int) -> str:
        return "the sums of other parameters"

    def place(self, i: int) -> int:
        return 2**62 - self.index

    def follow(self, group: Arrays) -> None:
        """Takes the options of a group that decide how d is estimated."""
        own = {"lr": 1.0, "weight_decay": 0.0, "maximize": False, "clip_value": math.inf, "state_type": "auto"}
        own.update({"bound": "none", "use_bias_correction": False, "safeguard_warmup": False, "seed": self.key[1]})
        self.set_options({**{name: x for name, x in group.values.items() if name != "grad_scale"}, **own})

    @torch.no_grad()
    def become(self, sums: Tensor, numbers: Tensor, d0: float, scale: Any) -> None:
        """Sets the parameter so that the next update, which divides gradients by scale, adds these sums."""
        size, along = sums.to(self.params[0].device)
        d, most, numerator = numbers.to(self.params[0].device)
        high = d * d / d0
        grad = size / high * (1.0 if scale is None else torch.as_tensor(scale, dtype=size.dtype, device=size.device))
        self.params[0].zero_()
        self.params[0].grad = grad.reshape(1)
        p0 = along / size.where(size != 0, torch.ones_like(size))
        begin = {"p0": p0, "d": d, "d_max": most, "d_numerator": numerator}
        if "p0" not in self.state:
            self.prepare({self.params[0]: self.state})
            self.leave()
        for state in self.state:
            if state != "step":
                self.state[state].copy_(begin[state] if state in begin else torch.zeros_like(d))


def _real(t: Tensor, dtype: torch.dtype) -> Tensor:
    t = t.detach()
    return (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).to(dtype)


def _param(p: Tensor, state: Dict[str, Any], dtype: torch.dtype) -> Tensor:
    """The numbers that an update starts from: the master, but the parameter where it was changed by hand."""
    here, master = _real(p, dtype), state.get("master")
    return here if master is None else torch.where(master.to(p.dtype) == p.detach(), master, here)


def _sums(arrays: Arrays, link: Link, d: Tensor, d0: float, scale: Any) -> Tensor:
    """size and along of a parameter, operation for operation as the library has them."""
    o: Dict[str, Any] = {**arrays.values, **arrays.tensors}
    p, t = arrays.params[link.index], link.updates.steps + 1
    dtype = torch.float64 if p.dtype in (torch.float64, torch.complex128) else torch.float32
    needed = {name: x for name, x in q8.decoded(link.state).items() if name in ("s", "p0", "master")}
    state = host.beside(p, needed)
    d = d.to(p.device)
    corrected = math.sqrt(1 - o["beta2"] ** t) / (1 - o["beta1"] ** t) if o["use_bias_correction"] else 1.0
    lr = torch.as_tensor(o["lr"], dtype=torch.float64, device=p.device)
    rate, grown, moves = d * (lr * corrected), d / d0, lr != 0
    decay = torch.where(moves, torch.full_like(lr, o["beta_d"] or math.sqrt(o["beta2"])), torch.ones_like(lr))
    share = grown * (d if o["safeguard_warmup"] else rate) * moves
    here = _param(p, state, dtype)
    scaled = 1.0 if scale is None else 1.0 / torch.as_tensor(scale, dtype=d.dtype, device=d.device)
    g = _real(p.grad, dtype) * (-scaled if o["maximize"] else scaled)  # type: ignore[arg-type]
    g = g.clamp(-o["clip_value"], o["clip_value"])
    if o["decay"] == "l2":
        g = g + o["weight_decay"] * here
    size = (decay * _real(state["s"], dtype) + share * g).abs().sum(dtype=torch.float64)
    if t == 1:  # p0 is the parameter
        return torch.stack((size * moves, torch.zeros_like(size)))
    return torch.stack((size * moves, grown * rate * (g * (_real(state["p0"], dtype) - here)).sum(dtype=torch.float64)))


class Coupled:
    """The handles of an optimizer whose rule looks at all parameters at once, here and in other processes."""

    def __init__(self, group: Any) -> None:
        self.group = group  # of processes; None: there is this one
        self.others: Dict[Key, Others] = {}

    def prepare(self, groups: Sequence[Arrays], scaling: Scaling) -> List[Others]:
        """The parameters that stand for others in the handles of this step; none if one handle has all. All processes
        call it."""
        parts: Dict[Key, List[Tuple[Arrays, Link]]] = {}
        for arrays in groups:
            for link in arrays.active:
                parts.setdefault((link.device or "cpu", arrays.values["seed"]), []).append((arrays, link))
        if self.group is None and len(parts) < 2:
            self.others = {}
            return []
        for device, _ in parts:
            if capturing(device):
                raise RuntimeError(f"{device}: Prodigy's d depends on parameters elsewhere: the step cannot be captured")
        d0 = float(groups[0].values["d0"])
        numbers = self._numbers(parts, d0, self._device(groups))
        sums = {key: self._part_sums(part, numbers[0], d0, scaling.scale) for key, part in parts.items()}
        mine = list(sums.values())
        elsewhere = self._from_others(torch.stack(mine).sum(0) if mine else torch.zeros_like(numbers[:2]))
        for key, part in parts.items():
            if key not in self.others:
                steps = max(link.updates.steps for _, link in part) + 1
                self.others[key] = Others(-1 - len(self.others), key, steps)
        for key, others in self.others.items():
            others.follow(groups[0])
            others.params[0].grad = None
            if key in parts:
                here = [x for other, x in sums.items() if other != key]
                others.become(sum(here, elsewhere), numbers, d0, scaling.scale)
            others.prepare({others.params[0]: others.state})
        return list(self.others.values())

    def _device(self, groups: Sequence[Arrays]) -> torch.device:
        """The device on which numbers of all processes are summed."""
        params = [p for arrays in groups for p in arrays.params]
        if not params and self.group is not None and dist.get_backend(self.group) == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return params[0].device if params else torch.device("cpu")

    def _part_sums(self, part: Sequence[Tuple[Arrays, Link]], d: Tensor, d0: float, scale: Any) -> Tensor:
        return torch.stack([_sums(arrays, link, d, d0, scale).to(d.device) for arrays, link in part]).sum(0)

    def _all(self, row: Tensor) -> Tensor:
        """The row of each process."""
        if self.group is None:
            return row[None]
        rows = [torch.empty_like(row) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(rows, row, group=self.group)
        return torch.stack(rows)

    def _from_others(self, row: Tensor) -> Tensor:
        """The sum of the rows of all other processes."""
        rows = self._all(row)
        rows[0 if self.group is None else dist.get_rank(self.group)] = 0
        return rows.sum(0)

    def _numbers(self, parts: Dict[Key, List[Tuple[Arrays, Link]]], d0: float, device: torch.device) -> Tensor:
        """d, d_max and d_numerator of the parameter with the most updates, of all processes."""
        links = [link for part in parts.values() for _, link in part]
        lead: Optional[Link] = max(links, key=lambda link: link.updates.steps, default=None)
        row = torch.zeros(5, dtype=torch.float64, device=device)
        if lead is not None:
            values = [lead.state[name].reshape(()).to(device) for name in _NUMBERS]
            row[0] = lead.updates.steps + 1
            row[1] = _KEPT.get(values[0].dtype, 1e-2)
            row[2:] = torch.stack(values).to(row)
        rows = self._all(row)
        steps, kept, d, most, numerator = rows[rows[:, 0].argmax()]
        first = torch.tensor((d0, d0, 0.0), dtype=torch.float64, device=device)
        begins = d <= d0 * (1 + kept)  # the library asks whether d is still d0, here without a tolerance
        found = torch.stack((torch.where(begins, d.clamp(max=d0), d), most, numerator))
        return torch.where(d > 0, found, first)
