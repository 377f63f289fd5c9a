"""How parameters are spread over processes: what PyTorch tells of it, and the ways that rules do not support.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import sys
from typing import Any, Container, Dict, Iterable, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch import Tensor


def is_distributed(t: Any) -> bool:
    """Whether it is a DTensor, which not every PyTorch has."""
    return hasattr(t, "_local_tensor")


def local(t: Tensor) -> Tensor:
    """This process's part of a DTensor; any other tensor itself. Waits for a collective that is still to give it."""
    t = getattr(t, "_local_tensor", t)
    wait = getattr(t, "trigger_wait", None)
    here: Tensor = t if wait is None else wait()
    return here


def is_spread(t: Any) -> bool:
    """Whether this process may have a part only of a DTensor. Over one process, or replicated, it is whole."""
    if not is_distributed(t):
        return False
    sizes = tuple(t.device_mesh.shape)
    return any(size > 1 and not place.is_replicate() for size, place in zip(sizes, t.placements))


def same_place(p: Any, t: Any) -> bool:
    """Whether two DTensors are spread over processes in the same way."""
    same_mesh = p.device_mesh is t.device_mesh or p.device_mesh == t.device_mesh
    return same_mesh and tuple(p.placements) == tuple(t.placements)


def gathered(t: Tensor) -> Tensor:
    """A DTensor as a whole tensor, by collectives that all processes of its mesh call; any other tensor itself."""
    d: Any = t.detach()
    return local(d.full_tensor()).contiguous() if is_distributed(d) else d


def _one_later(place: Any) -> Any:
    """The placement of a tensor with one more dimension in front."""
    if not hasattr(place, "dim"):
        return place
    more = {"split_factor": place.split_factor} if hasattr(place, "split_factor") else {}
    return type(place)(place.dim + 1, **more)


def replicated(t: Tensor, p: Any) -> Any:
    """A tensor that is the same on all processes of a DTensor p, as a DTensor."""
    return type(p).from_local(t, p.device_mesh, run_check=False)  # replicated, if nothing else is said


def placed(t: Tensor, p: Any) -> Tensor:
    """A whole tensor, the same on all processes, as a DTensor that is placed as p is; so each keeps a part, without a
    collective. The part may be a view. t has p's shape, or it is a queue of such tensors."""
    mesh, places = p.device_mesh, p.placements
    if t.dim() > p.dim():
        places = tuple(map(_one_later, places))
    part: Tensor = replicated(t, p).redistribute(mesh, places)
    return part


def shape_allows(t: Tensor, p: Tensor) -> bool:
    """Whether a state can be placed as its parameter is: it has a number for each element, or a queue of them."""
    shape: Tuple[int, ...] = tuple(p.shape)
    return tuple(t.shape) == shape or tuple(t.shape[1:]) == shape


def most(t: Tensor, mesh: Any) -> Tensor:
    """Replaces numbers by their largest values over the processes of a mesh, all of which call it."""
    for dim, size in enumerate(tuple(mesh.shape)):
        if size > 1:
            dist.all_reduce(t, dist.ReduceOp.MAX, group=mesh.get_group(dim))
    return t


def meshes(params: Iterable[Tensor]) -> List[Tuple[Any, torch.device]]:
    """The meshes that DTensors are spread over, in the order of the first on each: the same in all processes, with
    gradients or without. Beside each mesh is the device for collectives of its processes."""
    found: Dict[Any, torch.device] = {}
    for p in params:
        d: Any = p
        here = d._local_tensor if is_spread(d) else None
        if here is not None and not here.is_meta and not hasattr(here, "fake_mode"):  # which no step takes
            found.setdefault(d.device_mesh, here.device)
    return list(found.items())


def is_anywhere(fact: bool, params: Iterable[Tensor]) -> bool:
    """Whether fact is true in any process that has a part of one of the parameters. All of these processes call it."""
    for mesh, device in meshes(params):
        fact = bool(most(torch.tensor(int(fact), device=device), mesh))
    return fact


class Stack:
    """Named DTensors of one shape, type and placement, gathered by one collective."""

    def __init__(self, tensors: Dict[str, Tensor]) -> None:
        self.tensors = tensors
        each: Any = tensors.values()
        self.like = next(iter(each))
        here = torch.stack([local(t.detach()) for t in tensors.values()])
        places = [_one_later(place) for place in self.like.placements]
        shape = torch.Size((len(tensors), *self.like.shape))
        stride = torch.empty(shape, device="meta").stride()
        d: Any = type(self.like).from_local(
            here, self.like.device_mesh, places, run_check=False, shape=shape, stride=stride
        )
        self.all = gathered(d)
        self.whole: Dict[str, Tensor] = dict(zip(tensors, self.all))

    def scatter(self, changed: Container[str]) -> None:
        """Writes this process's parts of the whole tensors that were changed."""
        parts = local(placed(self.all, self.like))
        for (name, t), part in zip(self.tensors.items(), parts):
            if name in changed:
                local(t).copy_(part)


# ---- ways that a rule cannot work with ----


def _processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_flattened(p: Tensor) -> bool:
    """Whether FSDP1 has made it a flat part of parameters. Parameters that FSDP1 does not shard keep their shapes; for
    a vector the two cannot be told apart."""
    if not getattr(p, "_fsdp_flattened", False):
        return False
    is_flat = getattr(p, "_is_flat_param", False) or type(p).__name__ == "FlatParameter"
    return is_flat or (p.dim() <= 1 and _processes() > 1)


_ZERO = "torch.distributed.optim.zero_redundancy_optimizer"


def zero_group() -> Any:
    """The processes among which PyTorch's ZeroRedundancyOptimizer divides the parameters, if it is making this
    optimizer, to give it some of them; else None."""
    frame: Optional[Any] = sys._getframe() if _ZERO in sys.modules and _processes() > 1 else None
    while frame is not None:
        maker = frame.f_locals.get("self") if frame.f_globals.get("__name__") == _ZERO else None
        group = getattr(maker, "process_group", None)
        if group is not None:
            return group if dist.get_world_size(group) > 1 else None
        frame = frame.f_back
    return None
