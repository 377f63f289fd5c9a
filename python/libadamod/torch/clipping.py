"""clip_norm: gradients of all groups are scaled so that their global norm is at most this.

Where one handle of the library has all parameters, it clips. Otherwise the norm is computed before the step, over
devices and processes too, and the step scales by it as it does for a GradScaler.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _c
from .arrays import Arrays
from .devices import Scaling
from .sharding import is_distributed, is_flattened, local, same_place

# The least factors: a smaller one would be 0 in the type of computation, which the library refuses.
_LEAST = {torch.float64: 1e-300, torch.complex128: 1e-300}


class Clipped(NamedTuple):
    scaling: Scaling  # its scale includes the factor that clips
    by_handle: float  # the norm that the only handle clips to; inf: it does not


def check(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):  # the last of tensors without a value
        raise TypeError(f"clip_norm is {value!r}, expected a number") from None
    if not number > 0:
        raise ValueError(f"clip_norm is {number:g}, expected 0 < clip_norm <= inf")
    return number


def of_groups(groups: Sequence[Dict[str, Any]]) -> float:
    """The norm that all groups have."""
    values = [check(group.get("clip_norm", math.inf)) for group in groups]
    for index, value in enumerate(values):
        if value != values[0]:
            raise ValueError(
                f"clip_norm is {value:g} in group {index} and {values[0]:g} in group 0: it is one number for all groups"
            )
    return values[0] if values else math.inf


def _with_grads(groups: Sequence[Arrays]) -> List[Tensor]:
    """The parameters that this step updates. Refuses those that FSDP1 flattened, as nothing tells the norm of their
    other parts."""
    found = []
    for arrays in groups:
        for i in sorted([link.index for link in arrays.active] + arrays.gathers):
            if is_flattened(arrays.params[i]):
                raise TypeError(
                    f"{arrays.name(i)} is flattened by FSDP1 (FullyShardedDataParallel), and clip_norm needs the norm "
                    f"of all parts: use clip_grad_norm_ of the model, or FSDP2 (fully_shard)"
                )
            found.append(arrays.params[i])
    return found


def _host_norm(groups: Sequence[Arrays]) -> float:
    rows = [arrays.rows[link.index] for arrays in groups for link in arrays.active]
    elements = sum(row.count for row in rows)
    out = ctypes.c_double()
    spans = (_c.Span * len(rows))(*rows)
    _c.check(_c.lib.adamod_norm(spans, len(rows), _c.pool_for(elements, torch.get_num_threads()), ctypes.byref(out)))
    return out.value


def _numbers(g: Tensor) -> Tensor:
    g = local(g.detach())
    if g.layout is torch.sparse_coo:
        g = g.coalesce().values()
    return torch.view_as_real(g.resolve_conj()) if g.is_complex() else g


def _divided(p: Any) -> Tuple[Any, ...]:
    """The mesh of a DTensor, and the mesh's dimensions over which it is sharded."""
    if not is_distributed(p):
        return (None,)
    return (p.device_mesh, *(dim for dim, place in enumerate(p.placements) if not place.is_replicate()))


def _norm(every: Sequence[Tensor], params: Sequence[Tensor], group: Any) -> Tensor:
    """The global norm; all processes call it. A parameter that several processes have whole has the same gradient in
    each. every: parameters without a gradient too, because other processes may have gradients of their parts."""
    device = local(every[0]).device if every else torch.device("cpu")
    if not every and group is not None and dist.get_backend(group) == "nccl":
        device = torch.device("cuda", torch.cuda.current_device())
    total = torch.zeros((), dtype=torch.float64, device=device)
    sums = {_divided(p): total.clone() for p in every}  # of squares
    for p in params:
        d: Any = p
        g = d.grad
        if is_distributed(d) and not same_place(d, g):
            g = g.redistribute(d.device_mesh, d.placements)
        sums[_divided(p)] += torch.linalg.vector_norm(_numbers(g), dtype=torch.float64).square().to(device)
    for (mesh, *dims), square in sums.items():
        for dim in dims:
            dist.all_reduce(square, group=mesh.get_group(dim))
        total = total + square
    if group is not None:
        dist.all_reduce(total, group=group)
    return total.sqrt()


def clipped(groups: Sequence[Arrays], clip_norm: float, scaling: Scaling, group: Any) -> Clipped:
    """How a step clips before it updates the parameters that the groups have found. group: the processes that have the
    other parameters; None: there are none."""
    if clip_norm == math.inf:
        return Clipped(scaling, math.inf)
    params = _with_grads(groups)
    every = [p for arrays in groups for p in arrays.params]
    apart = group is not None or any(map(is_distributed, every))
    handles = {(link.device, a.hyper.rule, a.values["seed"]) for a in groups for link in a.active if link.device}
    on_host = any(link.device is None for arrays in groups for link in arrays.active)
    if not apart and len(handles) == 1 and not on_host:
        return Clipped(scaling, clip_norm)
    base = 1.0 if scaling.scale is None else scaling.scale
    if not apart and not handles:
        base = float(base)
        norm = _host_norm(groups) / base
        least = min((_LEAST.get(p.dtype, 1e-37) for p in params), default=1.0)
        factor = max(clip_norm / norm, least) if norm > clip_norm else 1.0
        return Clipped(Scaling(base / factor, scaling.found_inf), math.inf)
    norm_here = _norm(every, params, group)
    scale = torch.as_tensor(base, dtype=torch.float64, device=norm_here.device)
    return Clipped(Scaling(scale * (norm_here / scale / clip_norm).clamp(min=1), scaling.found_inf), math.inf)
