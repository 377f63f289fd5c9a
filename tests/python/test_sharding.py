"""Rules that look at whole parameters, in two processes on the CPU that have parts of them: FSDP2 and DTensors give the
numbers of one process, and so does ZeroRedundancyOptimizer; FSDP1 is refused.

SPDX-License-Identifier: MIT
"""

import copy
import importlib.util
import pickle
import tempfile
import unittest
from unittest import mock

import find_package  # noqa: F401
import libadamod
import libadamod.torch as lt
import torch
import torch.distributed as dist
from libadamod.torch import devices, sharding
from processes import WORLD, mesh, placed, run
from test_distributed import HAS_FULLY_SHARD
from torch import nn

HAS_DTENSOR = importlib.util.find_spec("torch.distributed.tensor") is not None
if HAS_DTENSOR:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

RULES = {
    "Muon": lambda p: lt.Muon(p, lr=0.02, adamw_lr=0.01),
    "SOAP": lambda p: lt.SOAP(p, lr=0.01, precondition_frequency=2),
    "LAMB": lambda p: lt.LAMB(p, lr=0.01, bound="momental", beta3=0.9),
    "Prodigy": lambda p: lt.Prodigy(p, d0=1e-3),
    "Adafactor": lambda p: lt.Adafactor(p, beta1=0.9, weight_decay=0.1),
    "StableAdamW": lambda p: lt.StableAdamW(p, lr=0.01),
    "AdaShift": lambda p: lt.AdaShift(p, lr=0.01, window=3),
}
# Element-wise, except that the number of elements that move is the whole parameter's.
CAUTIOUS = {
    "AdaMod": lambda p, lr=0.01, **o: lt.AdaMod(p, lr=lr, beta3=0.9, weight_decay=0.1, cautious=True, **o),
    "AdamW": lambda p, **o: lt.AdamW(p, bound="momental", beta3=0.9, skip_idle=True, cautious=True, **o),
    "Adam": lambda p, **o: lt.Adam(p, amsgrad=True, cautious=True, **o),
    "SGD": lambda p, **o: lt.SGD(p, lr=0.01, momentum=0.9, cautious=True, **o),
    "Lion": lambda p, **o: lt.Lion(p, lr=0.01, cautious=True, **o),
}
for rule in libadamod.rules():  # and all others, as they are by default
    if "cautious" in libadamod.options(rule) and rule not in {name.lower() for name in CAUTIOUS}:
        CAUTIOUS[rule] = lambda p, rule=rule, **o: lt.create(rule, p, cautious=True, **o)
SHAPES = ((5, 3), (4, 4), (1, 3), (3,), (3, 2, 5))  # uneven parts, and empty ones
STEPS = 4


def begin(dtype):
    torch.manual_seed(3)
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in SHAPES]


def gradients(t, dtype):
    generator = torch.Generator().manual_seed(t)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def steps(optimizer, params, first, last, place=lambda g, p: g.clone()):
    for t in range(first, last + 1):
        for p, g in zip(params, gradients(t, params[0].dtype)):
            p.grad = place(g, p)
        optimizer.step()


def alone(make, dtype, last=STEPS):
    params = [nn.Parameter(t) for t in begin(dtype)]
    optimizer = make(params)
    steps(optimizer, params, 1, last)
    return params, optimizer


def as_parameter(g, p):
    return placed(g, p.device_mesh, p.placements)


def spread(make, dtype, where, places):
    """places: of a tensor's placements, by its number of dimensions."""
    params = [nn.Parameter(placed(t, where, places(t.dim()))) for t in begin(dtype)]
    return params, make(params)


def first_dimension(_):
    return [Shard(0)]


def last_dimension(dims):
    return [Shard(dims - 1)]


def whole(t):
    return t.full_tensor() if isinstance(t, DTensor) else t


def assert_same(what, params, optimizer, expected):
    """Parameters and states are those of one process."""
    for p, q in zip(params, expected[0]):
        torch.testing.assert_close(whole(p.detach()), q.detach(), rtol=0, atol=0, msg=lambda m: f"{what}: {m}")
        state, other = optimizer.state[p], expected[1].state[q]
        assert set(state) == set(other), (what, set(state), set(other))
        for name, t in other.items():
            assert torch.equal(whole(state[name]), t), (what, name)
            if isinstance(p, DTensor) and name != "step" and t.shape == p.shape:
                assert state[name].placements == p.placements, (what, name)
                assert state[name].to_local().shape == p.to_local().shape, (what, name)


def every_rule(rank):
    """Each process has the same inputs, so the bits are those of one process. With bfloat16 there are masters."""
    for name, make in RULES.items():
        for dtype, places in (
            (torch.float64, first_dimension),
            (torch.float64, last_dimension),
            (torch.bfloat16, first_dimension),
        ):
            params, optimizer = spread(make, dtype, mesh(), places)
            steps(optimizer, params, 1, STEPS, as_parameter)
            assert_same(f"{name} {dtype} {places.__name__}", params, optimizer, alone(make, dtype))
            if places is first_dimension:
                assert any(p.to_local().numel() == 0 for p in params) == (rank == 1)


def cautious(rank):
    """The share of elements that move is the whole parameter's."""
    for name, make in CAUTIOUS.items():
        for dtype, places in ((torch.float64, first_dimension), (torch.bfloat16, last_dimension)):
            expected = alone(make, dtype)
            params, optimizer = spread(make, dtype, mesh(), places)
            steps(optimizer, params, 1, STEPS, as_parameter)
            assert_same(f"cautious {name} {dtype}", params, optimizer, expected)
            here = sum(p.to_local().numel() for p in params)
            assert not optimizer._states_tell_rates or optimizer.lr_histogram().elements == here, name
    moved = [alone(lambda p, on=on: lt.AdaMod(p, lr=0.01, cautious=on), torch.float64)[0] for on in (False, True)]
    assert not torch.equal(moved[0][0], moved[1][0])

    # The norm is summed in another order, so not the same bits. A GradScaler's factor comes out of it.
    def clipped(p):
        return CAUTIOUS["AdaMod"](p, clip_norm=0.5)

    params, optimizer = spread(clipped, torch.float64, mesh(), first_dimension)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(0.0)
    steps(optimizer, params, 1, STEPS, lambda g, p: as_parameter(4 * g, p))
    free = alone(CAUTIOUS["AdaMod"], torch.float64)[0]
    for p, q, other in zip(params, alone(clipped, torch.float64)[0], free):
        torch.testing.assert_close(p.full_tensor().detach(), q.detach(), rtol=1e-12, atol=1e-14)
        assert not torch.allclose(q, other, rtol=1e-6)


def other_meshes(rank):
    """Replicas, gradients that are sums still to be made, and DTensors that are whole."""
    both = mesh(WORLD, 1)
    other = mesh(1, WORLD)
    for name in ("AdaShift", "SOAP", "Prodigy"):  # a queue, matrices that are no parameters', one number for all
        make = RULES[name]
        expected = alone(make, torch.float64)
        for where, place in (
            (both, [Replicate(), Shard(0)]),  # whole
            (both, [Shard(0), Replicate()]),
            (other, [Replicate(), Shard(0)]),
            (mesh(), [Replicate()]),
        ):
            params, optimizer = spread(make, torch.float64, where, lambda _, place=place: place)
            steps(optimizer, params, 1, STEPS, as_parameter)
            assert_same(f"{name} {where} {place}", params, optimizer, expected)
        params, optimizer = spread(make, torch.float64, mesh(), first_dimension)
        steps(optimizer, params, 1, STEPS, lambda g, p: DTensor.from_local(g / WORLD, p.device_mesh, [Partial()]))
        assert_same(f"{name} Partial", params, optimizer, expected)


def among_others(rank):
    """Parameters that are spread beside such that are not, in two groups, some without a gradient at first."""
    for name, make in RULES.items():
        results = []
        for sharded in (False, True):
            params = [nn.Parameter(t) for t in begin(torch.float64)]
            if sharded:
                for i in (0, 4):
                    params[i] = nn.Parameter(placed(params[i].detach(), mesh(), [Shard(0)]))
            optimizer = make([{"params": params[:3]}, {"params": params[3:], "weight_decay": 0.2}])
            optimizer.collect_learning_rates()
            for t in range(1, STEPS + 1):
                for i, (p, g) in enumerate(zip(params, gradients(t, torch.float64))):
                    late = i in (0, 1) and t < 3
                    p.grad = None if late else as_parameter(g, p) if isinstance(p, DTensor) else g
                optimizer.step()
            results.append((params, optimizer))
        assert_same(f"{name} among others", *results[1], results[0])
        if not results[0][1]._states_tell_rates:
            counted = [optimizer.lr_histogram() for _, optimizer in results]
            assert counted[0].elements == counted[1].elements > 0 and counted[0].eta == counted[1].eta, name


def checkpoints(rank):
    """state_dict, and what torch.distributed.checkpoint writes, here and in an optimizer of whole parameters."""
    import torch.distributed.checkpoint as dcp

    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    for name, make in RULES.items():
        expected = alone(make, torch.float64, STEPS)
        params, optimizer = spread(make, torch.float64, mesh(), first_dimension)
        steps(optimizer, params, 1, 3, as_parameter)
        again = [nn.Parameter(p.detach().clone()) for p in params]
        other = make(again)
        other.load_state_dict(optimizer.state_dict())
        steps(other, again, 4, STEPS, as_parameter)
        assert_same(f"{name} loaded", again, other, expected)

        if name not in ("AdaShift", "SOAP"):
            continue
        saved = {str(i): optimizer.state[p] for i, p in enumerate(params)}
        dcp.save(saved, checkpoint_id=f"{folder[0]}/{name}")
        plain = alone(make, torch.float64, 3)
        read = {str(i): {k: torch.zeros_like(t) for k, t in plain[1].state[p].items()} for i, p in enumerate(plain[0])}
        dcp.load(read, checkpoint_id=f"{folder[0]}/{name}")
        for i, p in enumerate(plain[0]):
            for key, t in plain[1].state[p].items():
                assert torch.equal(read[str(i)][key], t), (name, key)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)).double()


def backward(model, optimizer, t):
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
    optimizer.zero_grad()
    (model(x) - x[:, :1]).pow(2).mean().backward()


def train(model, optimizer, first, last):
    for t in range(first, last + 1):
        backward(model, optimizer, t)
        optimizer.step()


def fully_shard_2(rank):
    """With the functions of PyTorch's that save and load the states of a sharded model."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )
    from torch.distributed.fsdp import fully_shard

    def sharded(make):
        model = network()
        fully_shard(model, mesh=mesh())
        return model, make(model.parameters())

    for name, full in (("AdaShift", True), ("SOAP", False), ("SOAP", True), ("Prodigy", False), ("AdaMod", False)):
        make = {**CAUTIOUS, **RULES}[name]
        one = network()
        train(one, make(one.parameters()), 1, STEPS)
        options = StateDictOptions(full_state_dict=full)
        model, optimizer = sharded(make)
        train(model, optimizer, 1, 3)
        saved = get_optimizer_state_dict(model, optimizer, options=options)
        other, loaded = sharded(make)
        other.load_state_dict(model.state_dict())
        set_optimizer_state_dict(other, loaded, saved, options=options)
        for m, o in ((model, optimizer), (other, loaded)):
            train(m, o, 4, STEPS)
            for p, q in zip(m.parameters(), one.parameters()):
                torch.testing.assert_close(p.full_tensor(), q.detach(), rtol=1e-9, atol=1e-12)


def scaled(rank):
    """A GradScaler's factor, and rates that states tell."""
    for name in ("LAMB", "Prodigy", "AdaShift"):
        expected = alone(RULES[name], torch.float64)
        params, optimizer = spread(RULES[name], torch.float64, mesh(), first_dimension)
        optimizer.grad_scale = torch.tensor(4.0)
        optimizer.found_inf = torch.tensor(0.0)
        steps(optimizer, params, 1, STEPS, lambda g, p: as_parameter(4 * g, p))
        before = [p.full_tensor() for p in params]
        optimizer.found_inf = torch.tensor(1.0)
        steps(optimizer, params, STEPS + 1, STEPS + 1, as_parameter)
        assert all(torch.equal(p.full_tensor(), q) for p, q in zip(params, before)), name
        assert_same(f"{name} scaled", params, optimizer, expected)
        if optimizer._states_tell_rates:
            assert optimizer.lr_histogram().elements == sum(p.to_local().numel() for p in params), name


def element_wise(rank):
    """Rules that look at single elements gather nothing; nor does Muon where it takes AdamW's step."""
    matrix, vector = torch.ones(4, 4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    for make, t in (
        (lt.AdaMod, matrix),
        (lambda p: lt.Muon(p, use_muon=False), matrix),
        (lt.Muon, vector),
        (lt.SOAP, vector),
    ):
        p = nn.Parameter(placed(t, mesh(), [Shard(0)]))
        optimizer = make([p])
        p.grad = torch.ones_like(p)
        full = DTensor.full_tensor
        DTensor.full_tensor = None  # cannot be called
        try:
            optimizer.step()
        finally:
            DTensor.full_tensor = full
        assert all(state["step"] == 1 for state in optimizer.state.values())


def fails(function, error, *texts):
    try:
        function()
    except error as found:
        assert "\n" not in str(found) and all(text in str(found) for text in texts), found
    else:
        raise AssertionError(f"expected: {texts}")


def refused(rank):
    for name, make in RULES.items():
        ones = placed(torch.ones(4, 4), mesh(), [Shard(0)])
        p = nn.Parameter(ones.clone())
        optimizer = make([p])
        p.grad = placed(torch.ones(4, 4), mesh(WORLD, 1), [Shard(0), Replicate()])
        fails(optimizer.step, ValueError, "parameter 0 of group 0 is on", "and its gradient on DeviceMesh")
        p.grad = ones.clone()
        optimizer.step()
        p.grad, before = ones.clone(), p.full_tensor()
        key = next(key for key, t in optimizer.state[p].items() if key != "step" and t.dim())
        optimizer.state[p][key] = torch.ones(3, 5)
        fails(optimizer.step, ValueError, f"{key} of parameter 0 of group 0 has shape (3, 5)")
        assert torch.equal(p.full_tensor(), before), name


def flattened(rank):
    """FSDP1's parameters are flat parts: element-wise rules work, others say what to use."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    for original in (False, True):

        def wrapped():
            cpu = torch.device("cpu")
            return FullyShardedDataParallel(network(), use_orig_params=original, device_id=cpu)

        one = network()
        train(one, lt.AdamW(one.parameters(), lr=0.01), 1, 2)
        model = wrapped()
        train(model, lt.AdamW(model.parameters(), lr=0.01), 1, 2)
        with FullyShardedDataParallel.summon_full_params(model):
            for p, q in zip(model.parameters(), one.parameters()):
                torch.testing.assert_close(p.detach(), q.detach())
        model = wrapped()
        train(model, lt.Muon(model.parameters(), use_muon=False), 1, 2)
        for make in RULES.values():
            model = wrapped()
            optimizer = make(model.parameters())
            fails(lambda: train(model, optimizer, 1, 1), TypeError, " of group 0 is flattened by FSDP1", "fully_shard")
        before = network()
        optimizer = lt.LAMB(before.parameters())  # made before its parameters are sharded
        model = FullyShardedDataParallel(before, use_orig_params=True, device_id=torch.device("cpu"))
        fails(lambda: train(model, optimizer, 1, 1), TypeError, "flattened by FSDP1")


def zero_redundancy(rank):
    """It shards whole parameters: what looks at each alone is as ever."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    for make in (lt.LAMB, lt.Muon, lt.SOAP, CAUTIOUS["AdaMod"]):
        one, model = network(), network()
        sharded = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=make, lr=0.01)
        train(one, make(one.parameters(), lr=0.01), 1, STEPS)
        train(model, sharded, 1, STEPS)
        for p, q in zip(model.parameters(), one.parameters()):
            assert torch.equal(p, q), make
    for copied in (copy.deepcopy, pickle.dumps):  # which would not know of the other processes
        fails(lambda: copied(sharded.optim), TypeError, "AdaMod: ZeroRedundancyOptimizer made it", "state_dict()")


def zero_prodigy(rank):
    """Rules that look at all parameters have the sums of all processes: as one process, to a rounding error."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def nothing(model, t):
        pass

    def come_and_go(model, t):  # those of a process all at once, and of all of them
        for i, p in enumerate(model.parameters()):
            if t < (5, 1, 5, 2)[i] or (t == 8 and i > 0) or t == 10:
                p.grad = None

    def warm_up(model, t):
        return 0.0 if t < 3 else 1.0

    for options, change in (
        ({}, nothing),
        (dict(use_bias_correction=True, safeguard_warmup=True, weight_decay=0.1), nothing),
        (dict(clip_norm=0.1), nothing),
        ({}, come_and_go),
        ({}, warm_up),
    ):
        results = []
        for zero in (False, True):
            model = network()
            first, last = (list(model[i].parameters()) for i in (0, 2))
            some = [{"params": first}, {"params": last, "weight_decay": 0.2}]
            arguments = dict(d0=1e-5, **options)
            optimizer = (
                ZeroRedundancyOptimizer(some, optimizer_class=lt.Prodigy, **arguments)
                if zero
                else lt.Prodigy(some, **arguments)
            )
            for t in range(1, 13):
                backward(model, optimizer, t)
                lr = change(model, t)
                for group in optimizer.param_groups:
                    group["lr"] = 1.0 if lr is None else lr
                optimizer.step()
            own = optimizer.optim if zero else optimizer
            results.append((list(model.parameters()), {"%.10g" % s["d"] for s in own.state.values() if s}))
        for p, q in zip(results[0][0], results[1][0]):
            torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-13)
        if change is nothing:
            assert results[0][1] == results[1][1], (results[0][1], results[1][1])
            grown = all(float(d) > 2e-5 for d in results[0][1])
            assert grown or options, results[0][1]

    alone = nn.Parameter(torch.ones(3, dtype=torch.float64))  # one process has no parameter at all
    optimizer = ZeroRedundancyOptimizer([alone], optimizer_class=lt.Prodigy, clip_norm=1.0)
    for lr in (0.0, 1.0, 1.0):
        optimizer.param_groups[0]["lr"] = lr
        alone.grad = torch.ones_like(alone)
        optimizer.step()
    lt.Prodigy(network().parameters()).step()  # beside it, it is as ever


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "this PyTorch has no gloo")
class Sharding(unittest.TestCase):
    """Each test is one pair of processes."""

    @unittest.skipUnless(HAS_FULLY_SHARD and HAS_DTENSOR, "this PyTorch has no fully_shard")
    def test_sharded(self):
        parts = (every_rule, cautious, other_meshes, among_others, checkpoints, scaled, element_wise, refused)
        run(*parts, fully_shard_2, flattened)

    def test_zero_redundancy_optimizer(self):
        run(zero_redundancy, zero_prodigy)


@unittest.skipUnless(HAS_DTENSOR and dist.is_gloo_available(), "this PyTorch has no DTensors or no gloo")
class Handles(unittest.TestCase):
    """A step that gathers, with parameters that are updated by a handle, as on a GPU; one process that takes its whole
    parameters for parts."""

    def setUp(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        everything = mock.patch("libadamod.torch.arrays.is_spread", lambda p: True)
        on_handles = mock.patch("libadamod.torch.arrays.device_of", lambda p: "cpu")
        for patch in (everything, on_handles):
            patch.start()
            self.addCleanup(patch.stop)

    def made(self, name, gathered):
        """How many handles five steps make, and what is trained."""
        params, optimizer = spread(RULES[name], torch.float32, init_device_mesh("cpu", (1,)), first_dimension)
        new, count = devices.Handle.__init__, [0]

        def counted(*arguments):
            count[0] += 1
            new(*arguments)

        with mock.patch.object(devices.Handle, "__init__", counted), mock.patch.object(sharding, "gathered", gathered):
            for t in range(1, 6):
                gathered.calls = 0
                steps(optimizer, params, t, t, as_parameter)
        return count[0], [whole(p.detach()) for p in params]

    def test_they_are_kept_while_the_memory_is_the_same(self):
        for name in ("LAMB", "Muon", "Prodigy", "SOAP", "Adafactor"):
            plain, buffers, held = sharding.gathered, {}, []

            def same(t):
                """In the memory that the same call had in the last step."""
                same.calls += 1
                found = plain(t)
                if buffers.setdefault(same.calls, found).shape != found.shape:
                    buffers[same.calls] = found
                return buffers[same.calls].copy_(found)

            def other(t):
                held.append(plain(t).clone())
                return held[-1]

            expected = alone(RULES[name], torch.float32, 5)[0]
            for gathered in (same, other):
                made, found = self.made(name, gathered)
                with self.subTest(rule=name, how=gathered.__name__):
                    # In step 2 there are states to gather, too. Vectors may have a handle that is not of gathered ones.
                    self.assertEqual(made <= 3, gathered is same, made)
                    self.assertTrue(all(torch.equal(p, q) for p, q in zip(found, expected)))

    def test_no_memory_is_kept(self):
        params, optimizer = spread(lt.LAMB, torch.float32, init_device_mesh("cpu", (1,)), first_dimension)
        steps(optimizer, params, 1, 3, as_parameter)
        (gathered,) = optimizer._gathering.known.values()
        for arrays in gathered.wholes:
            self.assertEqual([p.numel() for p in arrays.params], [0] * len(params))
            self.assertEqual([set(state) for state in arrays.states.values()], [{"step"}] * len(params))
            self.assertEqual([link.touch.untyped_storage().nbytes() for link in arrays.links], [0] * len(params))


class OneProcess(unittest.TestCase):
    def test_flattened(self):
        """A parameter with the marks that FSDP1 of every version leaves."""
        p = nn.Parameter(torch.ones(4))
        p._fsdp_flattened = True
        p.grad = torch.ones(4)
        lt.LAMB([p]).step()  # of one process it is whole
        FlatParameter = type("FlatParameter", (nn.Parameter,), {})
        flat = FlatParameter(torch.ones(4))
        flat._fsdp_flattened = True
        flat.grad = torch.ones(4)
        lt.AdaMod([flat]).step()
        with self.assertRaisesRegex(TypeError, "parameter 0 of group 0 is flattened by FSDP1.*use FSDP2"):
            lt.LAMB([flat]).step()


if __name__ == "__main__":
    unittest.main()
