"""States in 8 bits of sharded parameters: FSDP2, and checkpoints of torch.distributed.checkpoint.

SPDX-License-Identifier: MIT
"""

import tempfile
import unittest
from functools import partial

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
import torch.distributed as dist
from libadamod.torch import q8
from processes import WORLD, mesh, placed, run
from test_distributed import HAS_FULLY_SHARD, alike
from torch import nn

STEPS = 5
# Shards of 1,000 elements of the first weight: blocks of 256 that no other number of processes has.
ARGUMENTS = dict(lr=1e-2, beta3=0.9, weight_decay=0.1, min_8bit_size=200, state_type="q8")


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, 200), nn.Tanh(), nn.Linear(200, 3))


def train(model, optimizer, steps=STEPS, first=1):
    """All processes have the same batches."""
    for t in range(first, first + steps):
        generator = torch.Generator().manual_seed(t)
        x, y = torch.randn(8, 10, generator=generator), torch.randn(8, 3, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def sharded():
    from torch.distributed.fsdp import fully_shard

    model = network()
    fully_shard(model, mesh=mesh())
    return model, lt.AdaMod(model.parameters(), **ARGUMENTS)


def numbers(model, optimizer):
    """The states as PyTorch's functions tell them, whole, by parameters' names."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    saved = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
    return saved["state"]


def training(rank):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    model, optimizer = sharded()
    train(model, optimizer)
    weight, bias, last = list(model.parameters())[:3]
    state = optimizer.state[weight]
    assert state["exp_avg"].dtype is torch.uint8 and state["exp_avg"].placements == weight.placements
    assert tuple(state["exp_avg_scale"].shape) == (4,) and type(state["exp_avg_scale"]) is torch.Tensor
    assert optimizer.state[bias]["exp_avg"].dtype is torch.float32, "100 elements here are few"
    assert optimizer.state[last]["exp_avg_sq"].dtype is torch.uint8

    plain = network()
    train(plain, lt.AdaMod(plain.parameters(), **dict(ARGUMENTS, state_type="auto")))
    for p, q, b in zip(model.parameters(), plain.parameters(), network().parameters()):
        assert (p.full_tensor() - q).norm() < 0.2 * (q - b).norm()
    assert optimizer.lr_histogram().elements == sum(p.to_local().numel() for p in model.parameters())

    # As FSDP2's users save it; what is loaded goes on with the same bits.
    saved = get_optimizer_state_dict(model, optimizer)
    for state in saved["state"].values():
        assert state["exp_avg"].dtype is torch.float32 and not any("scale" in name for name in state)
    other, other_optimizer = sharded()
    other.load_state_dict(model.state_dict())
    set_optimizer_state_dict(other, other_optimizer, saved)
    train(model, optimizer, 3, STEPS + 1)
    train(other, other_optimizer, 3, STEPS + 1)
    for p, q in zip(model.parameters(), other.parameters()):
        assert torch.equal(p.to_local(), q.to_local())
        assert other_optimizer.state[q]["exp_avg"].dtype == optimizer.state[p]["exp_avg"].dtype


def gathered(rank):
    """Rules that look at whole parameters have blocks of whole parameters, and the bits of one process."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard

    def cautious(params, **options):
        return lt.AdaMod(params, cautious=True, **options)

    def made(make, dim=None):
        model = network()
        if dim is not None:
            fully_shard(model, mesh=mesh(), shard_placement_fn=lambda p: Shard(dim % p.dim()))
        return model, make(model.parameters(), lr=1e-2, min_8bit_size=200, state_type="q8")

    def steps(model, optimizer, first, last):
        for t in range(first, last + 1):
            generator = torch.Generator().manual_seed(t)
            for p in model.parameters():
                g = torch.randn(p.shape, generator=generator)
                p.grad = placed(g, p.device_mesh, p.placements) if isinstance(p, DTensor) else g
            optimizer.step()

    def check(model, optimizer, one, alone):
        """Compares the states that are kept, and those that are saved."""
        saved = optimizer.state_dict()["state"]
        for i, (p, q) in enumerate(zip(model.parameters(), one.parameters())):
            state, expected = optimizer.state[p], alone.state[q]
            assert set(state) == set(expected)
            assert torch.equal(state["exp_avg"].full_tensor(), expected["exp_avg"])
            assert state["exp_avg"].placements == p.placements
            assert "exp_avg_scale" not in state or tuple(state["exp_avg_scale"].placements) == (Replicate(),)
            for name, numbers in q8.decoded(expected).items():
                found = saved[i][name]
                assert torch.equal(found if name == "step" else found.full_tensor(), numbers), name
        if optimizer._states_tell_rates:
            assert optimizer.lr_histogram().elements == sum(p.to_local().numel() for p in model.parameters())

    for make in (lt.LAMB, lt.StableAdamW, cautious):
        for dim in (0, 1):
            one, alone = made(make)
            model, optimizer = made(make, dim)
            steps(one, alone, 1, 3)
            steps(model, optimizer, 1, 3)
            check(model, optimizer, one, alone)
            other, loaded = made(make, dim)
            other.load_state_dict(model.state_dict())
            set_optimizer_state_dict(other, loaded, get_optimizer_state_dict(model, optimizer))
            steps(one, alone, 4, 5)
            for m, o in ((model, optimizer), (other, loaded)):
                steps(m, o, 4, 5)
                for p, q in zip(m.parameters(), one.parameters()):
                    assert torch.equal(p.full_tensor(), q), (make, dim)

    # Blocks of the whole become those of parts, and the other way round; the numbers are rounded anew.
    model, optimizer = made(cautious, 1)
    steps(model, optimizer, 1, 2)
    for on in (False, True):
        before = [q8.decoded(optimizer.state[p])["exp_avg"].full_tensor() for p in model.parameters()]
        for group in optimizer.param_groups:
            group.update(cautious=on, betas=(1 - 1e-12, 0.999))  # the first average stays
        steps(model, optimizer, 3, 3)
        for p, old in zip(model.parameters(), before):
            state = optimizer.state[p]
            assert "exp_avg_scale" not in state or isinstance(state["exp_avg_scale"], DTensor) == on
            assert (q8.decoded(state)["exp_avg"].full_tensor() - old).norm() < 0.1 * old.norm(), on


def save(folder, rank):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer = sharded()
    train(model, optimizer)
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder)
    expected = numbers(model, optimizer)
    train(model, optimizer, 3, STEPS + 1)
    trained = [p.full_tensor().detach() for p in model.parameters()]
    if rank == 0:
        torch.save({"states": expected, "trained": trained}, f"{folder}.expected")


def load(folder, rank):
    """In as many processes, or another number."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model, optimizer = sharded()
    weights, states = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": states}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    expected = torch.load(f"{folder}.expected", weights_only=False)
    found = numbers(model, optimizer)
    for name, state in expected["states"].items() if found else ():
        for key in ("exp_avg", "exp_avg_sq", "exp_avg_lr"):
            assert torch.equal(state[key], found[name][key]), (name, key)
    train(model, optimizer, 3, STEPS + 1)
    for p, q in zip(model.parameters(), expected["trained"]):
        same = torch.equal(p.full_tensor(), q)
        assert same or dist.get_world_size() != WORLD, "as many processes go on with the same bits"
        torch.testing.assert_close(p.full_tensor().detach(), q, rtol=0.05, atol=2e-3)


def whole(folder, rank):
    """Whole parameters are saved as codes and scales, and go on with the same bits."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    model = network()
    optimizer = lt.AdaMod(model.parameters(), **ARGUMENTS)
    train(model, optimizer)
    dcp.save({"optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=folder)
    other = network()
    other.load_state_dict(model.state_dict())
    other_optimizer = lt.AdaMod(other.parameters(), **ARGUMENTS)
    states = get_optimizer_state_dict(other, other_optimizer)
    dcp.load({"optimizer": states}, checkpoint_id=folder)
    set_optimizer_state_dict(other, other_optimizer, states)
    train(model, optimizer, 3, STEPS + 1)
    train(other, other_optimizer, 3, STEPS + 1)
    assert any(state["exp_avg"].dtype is torch.uint8 for state in other_optimizer.state.values())
    for p, q in zip(model.parameters(), other.parameters()):
        assert torch.equal(p, q)
    alike(model)
    # Into floats PyTorch would copy the codes as if they were numbers.
    for others, arguments in ((network(), dict(ARGUMENTS, state_type="auto")), (sharded()[0], ARGUMENTS)):
        wrong = lt.AdaMod(others.parameters(), **arguments)
        states = get_optimizer_state_dict(others, wrong)
        dcp.load({"optimizer": states}, checkpoint_id=folder)
        try:
            set_optimizer_state_dict(others, wrong, states)
        except ValueError as error:
            assert "the checkpoint has states in 8 bits" in str(error), error
        else:
            raise AssertionError("codes were taken for numbers")


@unittest.skipUnless(HAS_FULLY_SHARD, "this PyTorch has no fully_shard")
class Sharded(unittest.TestCase):
    def folder(self):
        found = tempfile.TemporaryDirectory()
        self.addCleanup(found.cleanup)
        return f"{found.name}/checkpoint"

    def test_training(self):
        run(training)

    def test_whole_parameters(self):
        run(gathered)

    def test_checkpoints(self):
        folder = self.folder()
        run(partial(save, folder), partial(load, folder))
        run(partial(load, folder), world=1)

    def test_checkpoints_of_whole_parameters(self):
        run(partial(whole, self.folder()))


if __name__ == "__main__":
    unittest.main()
