"""Two processes on the CPU, connected by gloo: DistributedDataParallel, ZeroRedundancyOptimizer and FSDP take our
optimizers as they take torch.optim's.

SPDX-License-Identifier: MIT
"""

import copy
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
import torch.distributed as dist
from processes import WORLD, run
from torch import nn

STEPS = 6
ARGUMENTS = dict(lr=1e-2, beta3=0.9, weight_decay=0.1)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, 33), nn.Tanh(), nn.Linear(33, 17), nn.Tanh(), nn.Linear(17, 3))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 10, generator=generator), torch.randn(8, 3, generator=generator)


def train(model, optimizer, rank, steps=STEPS, first=1):
    """Each process takes its half of the batch; without ranks, all of it."""
    for t in range(first, first + steps):
        x, y = batch(t)
        if rank is not None:
            x, y = x[4 * rank : 4 * rank + 4], y[4 * rank : 4 * rank + 4]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def reference(steps=STEPS):
    model = network()
    optimizer = lt.AdaMod(model.parameters(), **ARGUMENTS)
    train(model, optimizer, None, steps)
    return model, optimizer


def close(model, expected):
    for p, q in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-4, atol=1e-6)


def alike(model):
    """All processes have the same bits."""
    for p in model.parameters():
        other = p.detach().clone()
        dist.broadcast(other, 0)
        assert torch.equal(p, other)


def data_parallel(rank):
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = lt.AdaMod(model.parameters(), **ARGUMENTS)
    train(model, optimizer, rank)
    alike(model)
    close(model.module, reference()[0])


def data_parallel_with_views(rank):
    """Gradients are then views of the buckets that are sent."""
    model = nn.parallel.DistributedDataParallel(network(), gradient_as_bucket_view=True)
    train(model, lt.AdaMod(model.parameters(), **ARGUMENTS), rank)
    alike(model)
    close(model.module, reference()[0])


def zero_redundancy(rank):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(network())
    plain_model = nn.parallel.DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=lt.AdaMod, **ARGUMENTS)
    plain = lt.AdaMod(plain_model.parameters(), **ARGUMENTS)
    train(model, optimizer, rank)
    train(plain_model, plain, rank)
    for p, q in zip(model.parameters(), plain_model.parameters()):
        assert torch.equal(p, q), "sharding the states must not change a bit"
    mine = sum("exp_avg" in state for state in optimizer.optim.state.values())
    assert 0 < mine < len(list(model.parameters())), "each process has the states of some parameters"

    # The states put together again are those of the plain optimizer, and it goes on from them.
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        saved = optimizer.state_dict()
        for i, p in enumerate(plain_model.parameters()):
            for name, value in plain.state[p].items():
                other = saved["state"][i][name]
                assert torch.equal(value, other) if torch.is_tensor(value) else value == int(other), name
        loaded = lt.AdaMod(network().parameters(), **ARGUMENTS)
        loaded.load_state_dict(copy.deepcopy(saved))
        assert loaded.state_dict()["param_groups"][0]["step"] == STEPS


def in_8_bits(rank):
    """Random rounding follows a parameter's place in its optimizer, so sharded states differ in bits, not in kind."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(network())
    train(model, lt.AdaMod(model.parameters(), state_type="q8", min_8bit_size=0, **ARGUMENTS), rank)
    alike(model)
    model = nn.parallel.DistributedDataParallel(network())
    arguments = dict(ARGUMENTS, state_type="q8", min_8bit_size=0)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=lt.AdaMod, **arguments)
    train(model, optimizer, rank)
    alike(model)
    for p, q, b in zip(model.parameters(), reference()[0].parameters(), network().parameters()):
        assert (p - q).norm() < 0.2 * (q - b).norm()
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        saved = optimizer.state_dict()
        other = network()
        loaded = lt.AdaMod(other.parameters(), **arguments)
        loaded.load_state_dict(copy.deepcopy(saved))
        for i, p in enumerate(loaded.param_groups[0]["params"]):
            for name in ("exp_avg", "exp_avg_lr_scale"):
                assert torch.equal(loaded.state[p][name], saved["state"][i][name]), name
            assert loaded.state[p]["exp_avg"].dtype is torch.uint8
        train(other, loaded, None, 1, STEPS + 1)


def fully_sharded(rank):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    optimizer = lt.AdaMod(model.parameters(), **ARGUMENTS)
    train(model, optimizer, rank)
    with FullyShardedDataParallel.summon_full_params(model):
        close(model, reference()[0])
    saved = FullyShardedDataParallel.optim_state_dict(model, optimizer)
    sizes = {name: tuple(state["exp_avg"].shape) for name, state in saved["state"].items()}
    assert sizes["0.weight"] == (33, 10), sizes
    # A new model and optimizer that load both go on as these do.
    other = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    other.load_state_dict(model.state_dict())
    other_optimizer = lt.AdaMod(other.parameters(), **ARGUMENTS)
    other_optimizer.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(other, other_optimizer, saved))
    train(model, optimizer, rank, 3, STEPS + 1)
    train(other, other_optimizer, rank, 3, STEPS + 1)
    for p, q in zip(model.parameters(), other.parameters()):
        assert torch.equal(p, q)


def fully_sharded_in_8_bits(rank):
    """FSDP1 trains with the states of its shards; of FSDP2 see test_sharded_q8.py."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    optimizer = lt.AdaMod(model.parameters(), state_type="q8", min_8bit_size=0, **ARGUMENTS)
    train(model, optimizer, rank)
    assert all(state["exp_avg"].dtype is torch.uint8 for state in optimizer.state.values())
    with FullyShardedDataParallel.summon_full_params(model):
        for p, q, b in zip(model.parameters(), reference()[0].parameters(), network().parameters()):
            assert (p - q).norm() < 0.2 * (q - b).norm()


def fully_shard_2(rank):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD,))
    model = network()
    fully_shard(model, mesh=mesh)
    optimizer = lt.AdaMod(model.parameters(), **ARGUMENTS)
    train(model, optimizer, rank)
    for p, q in zip(model.parameters(), reference()[0].parameters()):
        torch.testing.assert_close(p.full_tensor(), q.detach(), rtol=1e-4, atol=1e-6)
        assert optimizer.state[p]["exp_avg"].placements == p.placements
    saved = get_optimizer_state_dict(model, optimizer)
    other = network()
    fully_shard(other, mesh=mesh)
    other.load_state_dict(model.state_dict())
    other_optimizer = lt.AdaMod(other.parameters(), **ARGUMENTS)
    set_optimizer_state_dict(other, other_optimizer, saved)
    train(model, optimizer, rank, 3, STEPS + 1)
    train(other, other_optimizer, rank, 3, STEPS + 1)
    for p, q in zip(model.parameters(), other.parameters()):
        assert torch.equal(p.to_local(), q.to_local())


def has_fully_shard():
    try:
        import torch.distributed.fsdp as fsdp
    except Exception:  # Debian's PyTorch 1.13 has an FSDP that its Python 3.11 cannot import
        return False
    return hasattr(fsdp, "fully_shard")


HAS_FULLY_SHARD = has_fully_shard()


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "this PyTorch has no gloo")
class Distributed(unittest.TestCase):
    def test_distributed_data_parallel(self):
        run(data_parallel, data_parallel_with_views)

    def test_zero_redundancy_optimizer(self):
        run(zero_redundancy)

    def test_states_in_8_bits(self):
        run(in_8_bits)

    @unittest.skipUnless(HAS_FULLY_SHARD, "the FSDP of this PyTorch is for CUDA alone")
    def test_fully_sharded_data_parallel(self):
        run(fully_sharded)

    @unittest.skipUnless(HAS_FULLY_SHARD, "this PyTorch has no fully_shard")
    def test_fully_sharded_in_8_bits(self):
        run(fully_sharded_in_8_bits)

    @unittest.skipUnless(HAS_FULLY_SHARD, "this PyTorch has no fully_shard")
    def test_fully_shard(self):
        run(fully_shard_2)


if __name__ == "__main__":
    unittest.main()
