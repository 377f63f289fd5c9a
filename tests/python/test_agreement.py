"""Two processes that do not have the same of sharded parameters: parts of uneven sizes, empty ones, gradients in one of
them only, options switched on in mid-run. No step may wait in a collective that the other process does not come to: it
works, or all processes refuse it in the same step.

SPDX-License-Identifier: MIT
"""

import time
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import processes
import torch
import torch.distributed as dist
from processes import WORLD, mesh, run
from test_sharding import HAS_DTENSOR, fails
from torch import nn

if HAS_DTENSOR:
    from torch.distributed.tensor import DTensor, Shard

LIMIT = 90
FEW = 150  # of (3, 100), process 0 has 200 elements and process 1 has 100; of (1, 300), process 1 has none
SHAPES = ((3, 100), (1, 300), (4, 100))


def placed(t):
    return processes.placed(t, mesh(), [Shard(0)])


def begin(dtype):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in SHAPES]


def gradients(t, dtype):
    generator = torch.Generator().manual_seed(t)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def trained(make, dtype, change, sharded, steps=6):
    params = [nn.Parameter(placed(t) if sharded else t) for t in begin(dtype)]
    optimizer = make(params)
    for t in range(1, steps + 1):
        change(optimizer.param_groups[0], t)
        for p, g in zip(params, gradients(t, dtype)):
            p.grad = placed(g) if sharded else g
        optimizer.step()
    return params, optimizer


def switched(rank):
    """cautious, the bound, both, and the type of states with them, on and off again."""
    changes = {
        "cautious": (dict(cautious=True), dict(cautious=False)),
        "bound": (dict(bound="momental", beta3=0.9), dict(bound="none")),
        "both": (dict(cautious=True, bound="momental", beta3=0.9), dict(cautious=False)),
        "to numbers": (dict(cautious=True, state_type="auto"), dict(cautious=False, state_type="q8")),
        "to codes": (dict(cautious=True, state_type="q8"), dict(cautious=False, state_type="auto")),
        "to bf16": (dict(cautious=True, state_type="bf16"), dict(cautious=False, state_type="q8")),
    }
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for kind in ("auto", "q8"):
            for name, (on, off) in changes.items():

                def change(group, t):
                    group.update(on if t == 3 else off if t == 5 else {})

                def make(p):
                    return lt.AdamW(p, lr=0.01, state_type=kind, min_8bit_size=FEW)

                params, optimizer = trained(make, dtype, change, True)
                expected, _ = trained(make, dtype, change, False)
                exact = kind == "auto" and "to " not in name
                for p, q, start in zip(params, expected, begin(dtype)):
                    found = p.full_tensor().detach()
                    if exact:
                        assert torch.equal(found, q), (dtype, kind, name)
                    else:  # rounded in other blocks, at random
                        way = (q.detach() - start).double().norm()
                        assert (found - q.detach()).double().norm() < 0.15 * way, (dtype, kind, name)
                # Saved states can be gathered, with the same type in all processes.
                for state in optimizer.state_dict()["state"].values():
                    assert all(t.full_tensor().isfinite().all() for t in state.values() if isinstance(t, DTensor))


def saved_alike(rank):
    """Numbers in place of codes have the type that they have in a process without codes."""
    for dtype in (torch.float64, torch.float32):
        _, optimizer = trained(
            lambda p: lt.AdaMod(p, state_type="q8", min_8bit_size=FEW), dtype, lambda group, t: None, True, 2
        )
        kinds = [state["exp_avg"].dtype for state in optimizer.state.values()]
        assert (torch.uint8 in kinds) and (rank == 0 or dtype in kinds), kinds
        for state in optimizer.state_dict()["state"].values():
            for name in ("exp_avg", "exp_avg_sq", "exp_avg_lr"):
                assert state[name].dtype is dtype, (name, state[name].dtype)


def one_without(rank):
    """Element-wise rules do without the gradient of one process, also where they clip, and where a learning rate is 0."""
    for options in (dict(clip_norm=0.5), dict(state_type="q8", min_8bit_size=FEW, clip_norm=0.5), {}):
        for first in (0.01, 0.0):
            for who in range(WORLD):
                p = nn.Parameter(placed(torch.ones(3, 100)))
                optimizer = lt.AdamW([p], lr=first, **options)
                for t in range(1, 4):
                    g = placed(torch.full((3, 100), float(t)))
                    p.grad = g if rank == who else None
                    optimizer.step()
                    optimizer.param_groups[0]["lr"] = first if t < 2 else 0.01
                updates = optimizer.state[p].get("step", 0)
                assert updates == (3 if rank == who else 0), (options, first, updates)
    # The norm is that of the parts that there are.
    p = nn.Parameter(placed(torch.zeros(4, 1)))
    optimizer = lt.SGD([p], lr=1.0, clip_norm=1.0)
    g = placed(torch.full((4, 1), 3.0))
    p.grad = g if rank == 1 else None
    optimizer.step()
    expected = torch.full((2, 1), -(0.5**0.5)) if rank == 1 else torch.zeros(2, 1)
    torch.testing.assert_close(p.to_local().detach(), expected)


def only_states(rank):
    """A first step whose gradients are zero and with a learning rate of 0 makes states in all processes, or in none."""
    for make in (lt.AdamW, lt.LAMB, lt.StableAdamW):
        for nonzero in (None, 0, 1):
            p = nn.Parameter(placed(torch.ones(4, 10)))
            optimizer = make([p], lr=0.0, weight_decay=0.1, decay="independent")
            p.grad = placed(torch.zeros(4, 10))
            if nonzero == rank:
                p.grad.to_local()[0, 0] = 1
            optimizer.step()
            assert optimizer.state[p]["step"] == (0 if nonzero is None else 1), (make, nonzero)
            expected = torch.ones(4, 10) * (1 if nonzero is None else 1 - torch.tensor(0.1))
            assert torch.equal(p.full_tensor(), expected), (make, nonzero)


def refused(rank):
    """A gathered parameter that processes do not have alike is refused by both, and nothing has changed."""

    def cautious(p, **options):
        return lt.AdamW(p, cautious=True, **options)

    for make in (lt.LAMB, lt.StableAdamW, lt.Prodigy, cautious):
        for options in ({}, dict(clip_norm=1.0)):
            p = nn.Parameter(placed(torch.ones(3, 100)))
            optimizer = make([p], **options)
            for who in range(WORLD):
                g = placed(torch.ones(3, 100))
                p.grad = g if rank == who else None
                has = "a gradient of torch.float32" if rank == who else "no gradient"
                fails(optimizer.step, RuntimeError, "parameter 0 of group 0 is sharded", f"this one has {has}")
            p.grad = g
            optimizer.step()
            before = p.full_tensor()
            if rank == 1:  # what one process refuses, the other does not wait for
                optimizer.state[p]["exp_avg"] = torch.ones(3, 5)
                fails(optimizer.step, ValueError, "exp_avg of parameter 0 of group 0 has shape (3, 5)")
            else:
                fails(optimizer.step, RuntimeError, "another process", "refused this step")
            assert torch.equal(p.full_tensor(), before)
    # States that one process has since it alone had gradients, before the rule needed whole parameters.
    p = nn.Parameter(placed(torch.ones(3, 100)))
    optimizer = lt.AdamW([p])
    g = placed(torch.ones(3, 100))
    p.grad = g if rank == 0 else None
    optimizer.step()
    p.grad = g
    optimizer.param_groups[0]["cautious"] = True
    has = "states exp_avg, exp_avg_sq after 1 updates" if rank == 0 else "no states"
    fails(optimizer.step, RuntimeError, "parameter 0 of group 0 is sharded", has)


def none_at_all(rank):
    """A step without any gradient is nothing, in whichever processes."""
    for make in (lt.LAMB, lt.AdamW, lt.Prodigy):
        optimizer = make([nn.Parameter(placed(torch.ones(3, 100)))], clip_norm=1.0)
        optimizer.step()
        assert not any(optimizer.state.values())


def waits(rank):
    if rank == 0:
        dist.barrier()
    time.sleep(60)


def breaks(rank):
    assert rank != 1, "as it should"
    time.sleep(60)


@unittest.skipUnless(HAS_DTENSOR and dist.is_gloo_available(), "this PyTorch has no DTensors or no gloo")
class Agreement(unittest.TestCase):
    def test_options_switched_in_mid_run(self):
        run(switched, limit=2 * LIMIT)

    def test_types_of_what_is_saved(self):
        run(saved_alike, limit=LIMIT)

    def test_one_process_without_a_gradient(self):
        run(one_without, none_at_all, limit=LIMIT)

    def test_steps_that_only_make_states(self):
        run(only_states, limit=LIMIT)

    def test_both_refuse(self):
        run(refused, limit=LIMIT)


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "this PyTorch has no gloo")
class Limits(unittest.TestCase):
    """The tests' own processes."""

    def test_one_that_waits_for_ever_is_ended(self):
        began = time.monotonic()
        with self.assertRaisesRegex(AssertionError, "waits: not done after 4 s"):
            run(waits, limit=4)
        self.assertLess(time.monotonic() - began, 4 + processes._GRACE + 15)

    def test_one_that_fails_ends_the_others(self):
        with self.assertRaisesRegex(AssertionError, "process 1 of breaks(.|\n)*as it should"):
            run(breaks, limit=LIMIT)


if __name__ == "__main__":
    unittest.main()
