"""DTensors, in two processes on the CPU: gradients and states that are not placed as their parameters are, tensor
parallelism, and results of collectives that are still under way.

SPDX-License-Identifier: MIT
"""

import importlib.util
import os
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
import torch.distributed as dist
from test_distributed import WORLD, run
from torch import nn

HAS_DTENSOR = importlib.util.find_spec("torch.distributed.tensor") is not None
if HAS_DTENSOR:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

PAIRS = (
    (lambda p: lt.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    (lambda p: lt.AdamW(p, lr=0.1), lambda p: torch.optim.AdamW(p, lr=0.1)),
)


def mesh():
    return init_device_mesh("cpu", (WORLD,))


def parameter(full, placement):
    return nn.Parameter(distribute_tensor(full.clone(), mesh(), [placement]))


def gradient(rank, full, placement):
    """A DTensor that is full, whatever its placement; parts of a sum differ between processes."""
    if not placement.is_partial():
        return distribute_tensor(full.clone(), mesh(), [placement])
    part = full if placement.reduce_op == "avg" else full * (rank + 1) / 3
    return DTensor.from_local(part, mesh(), [placement])


def all_placements(rank):
    """Results of one process with whole tensors, and of torch.optim with the same DTensors."""
    torch.manual_seed(3)
    begin, grads = torch.randn(4, 4), [torch.randn(4, 4) for _ in range(3)]
    places = (Replicate(), Shard(0), Shard(1))
    for ours, theirs in PAIRS:
        for place in places:
            for other in (*places, Partial(), Partial("avg")):
                p, q, one = parameter(begin, place), parameter(begin, place), nn.Parameter(begin.clone())
                optimizers = ours([p]), theirs([q]), ours([one])
                for full in grads:
                    p.grad, q.grad = gradient(rank, full, other), gradient(rank, full, other)
                    one.grad = full.clone()
                    for optimizer in optimizers:
                        optimizer.step()
                for expected in (q.full_tensor(), one):
                    torch.testing.assert_close(p.full_tensor(), expected, msg=lambda text: f"{place} {other}: {text}")
                state = optimizers[0].state[p]
                assert all(t.placements == (place,) for t in state.values() if isinstance(t, DTensor)), state
                alike(p, f"{place} {other}")


def alike(p, what):
    if p.placements == (Replicate(),):
        mine = p.to_local().detach()
        everyone = [torch.empty_like(mine) for _ in range(WORLD)]
        dist.all_gather(everyone, mine)
        assert all(torch.equal(mine, theirs) for theirs in everyone), f"{what}: replicas differ"


def still_under_way(rank):
    from torch.distributed._functional_collectives import AsyncCollectiveTensor, all_reduce

    p = parameter(torch.ones(4), Replicate())
    optimizer = lt.SGD([p], lr=0.1)
    for _ in range(2):
        part = DTensor.from_local(torch.full((4,), rank + 1.0), mesh(), [Partial()])
        p.grad = part.redistribute(placements=[Replicate()], async_op=True)
        assert isinstance(p.grad._local_tensor, AsyncCollectiveTensor)
        optimizer.step()
    torch.testing.assert_close(p.to_local(), torch.full((4,), 0.4))
    # Parameters that are no DTensors, enough for a step to take the fast way, one of them empty: it needs no memory.
    params = [nn.Parameter(torch.ones(n)) for n in range(10)]
    optimizer = lt.SGD(params, lr=0.1)
    for step in range(5):
        for p in params:
            p.grad = torch.full_like(p, rank + 1.0)
            if step == 4:
                p.grad = all_reduce(p.grad, "sum", dist.group.WORLD)
        assert (type(params[3].grad) is AsyncCollectiveTensor) == (step == 4)
        optimizer.step()
    for p in params:
        torch.testing.assert_close(p.detach(), torch.full_like(p, 1 - 0.4 * (rank + 1) - 0.3))


def states_placed_otherwise(rank):
    """As a program leaves them that shards parameters anew. Square, so that the shapes of parts do not tell."""
    torch.manual_seed(3)
    begin, grads = torch.randn(2, 2), [torch.randn(2, 2) for _ in range(4)]
    p, one = parameter(begin, Shard(0)), nn.Parameter(begin.clone())
    optimizer, plain = lt.AdaMod([p]), lt.AdaMod([one])
    for t, full in enumerate(grads):
        p.grad, one.grad = distribute_tensor(full, mesh(), [Shard(0)]), full.clone()
        if t == 2:
            state = optimizer.state[p]
            state["exp_avg"] = state["exp_avg"].redistribute(placements=[Shard(1)])
            state["exp_avg_sq"] = state["exp_avg_sq"].redistribute(placements=[Replicate()])
            state["exp_avg_lr"] = state["exp_avg_lr"].to_local().clone()
        optimizer.step()
        plain.step()
    torch.testing.assert_close(p.full_tensor(), one.detach())
    for name in ("exp_avg", "exp_avg_sq", "exp_avg_lr"):
        assert optimizer.state[p][name].placements == (Shard(0),), name


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


def tensor_parallel(rank):
    """SequenceParallel leaves the norm's gradients as sums that are still to be made."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    model, whole = parallelize_module(Block(), mesh(), plan), Block()
    optimizer, plain = lt.AdaMod(model.parameters(), beta3=0.9), lt.AdaMod(whole.parameters(), beta3=0.9)
    for _ in range(5):
        x, y = torch.randn(2, 2, 6, 8)
        model.zero_grad()
        (model(x.chunk(WORLD, 1)[rank]) * y.chunk(WORLD, 1)[rank]).sum().backward()
        assert model.norm.weight.grad.placements[0].is_partial()
        optimizer.step()
        whole.zero_grad()
        (whole(x) * y).sum().backward()
        plain.step()
    for p, q in zip(model.parameters(), whole.parameters()):
        torch.testing.assert_close(p.full_tensor(), q.detach(), rtol=1e-5, atol=1e-6)
        alike(p, "tensor parallel")


def refused(rank):
    def fails(optimizer, text):
        try:
            optimizer.step()
        except (TypeError, ValueError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"expected: {text}")

    p, plain = parameter(torch.ones(4), Shard(0)), nn.Parameter(torch.ones(4))
    plain.grad = torch.ones(4)
    partial = nn.Parameter(DTensor.from_local(torch.ones(4), mesh(), [Partial()]))
    partial.grad = DTensor.from_local(torch.ones(4), mesh(), [Partial()])
    fails(lt.AdaMod([partial]), "parameter 0 of group 0 has a pending sum")
    optimizer = lt.AdaMod([plain])
    optimizer.step()
    before = plain.detach().clone()
    optimizer.state[plain]["exp_avg"] = distribute_tensor(torch.ones(4), mesh(), [Replicate()])
    fails(optimizer, "parameter 0 of group 0 is not a DTensor, and exp_avg is one")
    assert torch.equal(plain, before)
    p.grad = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (WORLD, 1)), [Shard(0), Replicate()])
    fails(lt.AdaMod([p]), "and its gradient on DeviceMesh")


def everything(rank):
    for part in (all_placements, still_under_way, states_placed_otherwise, tensor_parallel, refused):
        part(rank)


@unittest.skipUnless(HAS_DTENSOR and dist.is_gloo_available(), "this PyTorch has no DTensor or no gloo")
class Placements(unittest.TestCase):
    def setUp(self):
        os.environ.setdefault("OMP_NUM_THREADS", "1")

    def test_all(self):
        """In one pair of processes, which takes seconds to start."""
        run(everything)


if __name__ == "__main__":
    unittest.main()
