"""clip_norm: what torch.nn.utils.clip_grad_norm_ does before a step, in the step; over groups, handles and processes.

SPDX-License-Identifier: MIT
"""

import importlib.util
import math
import os
import unittest
from unittest import mock

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
import torch.distributed as dist
from support import CLASSES, clones, make_params, set_grads
from test_distributed import HAS_FULLY_SHARD, run
from torch import nn

HAS_SCALER = hasattr(torch.amp, "GradScaler")
HAS_DTENSOR = importlib.util.find_spec("torch.distributed.tensor") is not None
if HAS_DTENSOR:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

SHAPES = ((5, 3), (4,), (2, 6), (1,))
CLIP = 0.7


def norm_of(params):
    return math.sqrt(sum(float(p.grad.detach().abs().double().pow(2).sum()) for p in params if p.grad is not None))


def clip_by_hand(params, most=CLIP):
    """As the library has it; PyTorch's function adds 1e-6 to the norm."""
    norm = norm_of(params)
    for p in params:
        if p.grad is not None and norm > most:
            p.grad *= most / norm


def groups(params, **second):
    return [{"params": params[:2]}, {"params": params[2:], **second}]


class OneProcess(unittest.TestCase):
    def same(self, make, dtype=torch.float64, tolerance=1e-13, large=1.0, steps=6):
        """As gradients that were clipped before, to a rounding error. large: a factor of the gradients."""
        params = make_params(*SHAPES, dtype=dtype)
        others = clones(params)
        optimizer, other = make(params, clip_norm=CLIP), make(others)
        for t in range(1, steps + 1):
            set_grads(params, t)
            for p, q in zip(params, others):
                p.grad *= large if t != 3 else 0.01  # which is not clipped
                q.grad = p.grad.clone()
            if t == 4:
                params[1].grad = others[1].grad = None
            before = [None if p.grad is None else p.grad.clone() for p in params]
            clip_by_hand(others)
            optimizer.step()
            other.step()
            for p, g in zip(params, before):
                self.assertTrue(g is None or torch.equal(p.grad, g))  # the gradient itself stays
        for p, q in zip(params, others):
            torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)
        return optimizer

    def test_every_rule(self):
        for cls in CLASSES:
            with self.subTest(cls.__name__):
                self.same(lambda p, cls=cls, **o: cls(groups(p), **o))

    def test_types(self):
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.complex128, 1e-13)):
            self.same(lambda p, **o: lt.SGD(groups(p), lr=0.1, **o), dtype, tolerance)
        self.same(lambda p, **o: lt.AdaMod(groups(p), **o), torch.bfloat16, 2**-7)

    def test_groups_of_other_rules_and_seeds(self):
        """The library has a handle for each; the norm is still that of all."""
        self.same(lambda p, **o: lt.Adam(groups(p, amsgrad=True), **o))
        self.same(lambda p, **o: lt.Muon(groups(p, use_muon=False), **o))
        for place in ("libadamod.torch.arrays.device_of", "libadamod.torch.optimizer.device_of"):
            patch = mock.patch(place, lambda p: "cpu")
            patch.start()
            self.addCleanup(patch.stop)
        one = self.same(lambda p, **o: lt.SGD(groups(p), lr=0.1, **o))
        self.assertEqual([handle.clip_norm for handle in one._handles.by_key.values()], [CLIP])
        two = self.same(lambda p, **o: lt.Prodigy(groups(p, seed=1), **o))
        self.assertEqual([handle.clip_norm for handle in two._handles.by_key.values()], [math.inf, math.inf])

    def test_it_may_change(self):
        params = make_params(*SHAPES, dtype=torch.float64)
        optimizer = lt.SGD(groups(params), lr=1.0)
        for clip in (math.inf, 0.5, 1e-3, math.inf):
            for group in optimizer.param_groups:
                group["clip_norm"] = clip
            before = [p.detach().clone() for p in params]
            set_grads(params, 1)
            expected = min(clip, norm_of(params))
            optimizer.step()
            moved = math.sqrt(sum(float((p - q).detach().pow(2).sum()) for p, q in zip(params, before)))
            self.assertAlmostEqual(moved, expected, delta=1e-12 * max(expected, 1))

    def test_large_gradients(self):
        """Gradients whose squares overflow."""
        for dtype, large in ((torch.float32, 1e25), (torch.float64, 1e200)):
            (p,) = make_params((5,), dtype=dtype)
            before = p.detach().clone()
            optimizer = lt.SGD([p], lr=1.0, clip_norm=2.0)
            p.grad = torch.full_like(p, large)
            optimizer.step()
            torch.testing.assert_close(before - p.detach(), torch.full_like(before, 2 / math.sqrt(5)))

    def test_gradients_that_are_not_finite(self):
        for bad in (math.inf, math.nan):
            (p,) = make_params((5,))
            p.grad = torch.ones_like(p)
            p.grad[2] = bad
            lt.SGD([p], lr=1.0, clip_norm=2.0).step()  # as without: what is not finite arrives
            self.assertFalse(bool(p[2].isfinite()))

    @unittest.skipUnless(HAS_SCALER, "this PyTorch has a GradScaler for CUDA alone")
    def test_a_scaler(self):
        for fused in (False, True):
            for cls in (lt.AdaMod, lt.Prodigy):
                params = make_params(*SHAPES)
                others = clones(params)
                optimizer, other = cls(groups(params), clip_norm=CLIP, fused=fused), cls(groups(others))
                scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
                for t in range(1, 8):
                    for p, q in zip(params, others):
                        p.grad = q.grad = None
                    scaler.scale(sum((p * p).sum() for p in params) * (math.inf if t == 4 else 1)).backward()
                    scaler.step(optimizer)
                    scaler.update(64.0)
                    if t != 4:
                        sum((p * p).sum() for p in others).backward()
                        clip_by_hand(others)
                        other.step()
                for p, q in zip(params, others):
                    torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)

    def test_sparse_gradients(self):
        embedding = nn.Embedding(6, 3, sparse=True)
        before = embedding.weight.detach().clone()
        optimizer = lt.SGD(embedding.parameters(), lr=1.0, clip_norm=0.5)
        embedding(torch.tensor([1, 1, 4])).sum().backward()
        optimizer.step()
        self.assertAlmostEqual(float((embedding.weight.detach() - before).norm()), 0.5, delta=1e-6)

    def test_messages(self):
        params = make_params((2,), (3,))
        for value, error in ((0, ValueError), (-1.0, ValueError), (math.nan, ValueError), ("large", TypeError)):
            with self.assertRaisesRegex(error, "clip_norm is "):
                lt.AdaMod(params, clip_norm=value)
        each = [{"params": params[:1], "clip_norm": 1.0}, {"params": params[1:]}]
        with self.assertRaisesRegex(ValueError, "clip_norm is inf in group 1 and 1 in group 0: it is one number for"):
            lt.AdaMod(each)
        with self.assertRaisesRegex(TypeError, "no option 'max_grad_norm': did you mean 'clip_norm'"):
            lt.AdaMod(params, max_grad_norm=1.0)

    def test_checkpoints(self):
        params = make_params((2,))
        optimizer = lt.AdaMod(params, clip_norm=1.0)
        saved = optimizer.state_dict()
        other = lt.AdaMod(params)
        other.load_state_dict(saved)
        self.assertEqual(other.param_groups[0]["clip_norm"], 1.0)
        del saved["param_groups"][0]["clip_norm"]  # as it was before there was clip_norm
        optimizer.load_state_dict(saved)
        self.assertEqual(optimizer.param_groups[0]["clip_norm"], 1.0)


def begin():
    torch.manual_seed(2)
    return [torch.randn(shape, dtype=torch.float64) for shape in SHAPES]


def sharded(rank):
    """DTensors, sharded and whole, beside ordinary tensors; with gradients whose sums over processes are still to be
    computed."""
    one, both = init_device_mesh("cpu", (2,)), init_device_mesh("cpu", (2, 1))
    for make in (lt.SGD, lt.LAMB, lt.Muon):
        plain = [nn.Parameter(t) for t in begin()]
        a, b, c, d = begin()
        spread = [
            nn.Parameter(distribute_tensor(a, one, [Shard(0)])),
            nn.Parameter(distribute_tensor(b, one, [Replicate()])),
            nn.Parameter(distribute_tensor(c, both, [Shard(1), Replicate()])),
            nn.Parameter(d),
        ]
        optimizer, other = make(spread, clip_norm=CLIP), make(plain)
        for t in range(1, 4):
            set_grads(plain, t)
            for p, q in zip(spread, plain):
                g = q.grad.clone()
                p.grad = distribute_tensor(g, p.device_mesh, p.placements) if isinstance(p, DTensor) else g
            spread[0].grad = DTensor.from_local(plain[0].grad / 2, one, [Partial()])
            clip_by_hand(plain)
            optimizer.step()
            other.step()
        for p, q in zip(spread, plain):
            torch.testing.assert_close(p.full_tensor() if isinstance(p, DTensor) else p, q, rtol=1e-12, atol=1e-12)


def zero_and_fsdp1(rank):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.optim import ZeroRedundancyOptimizer

    plain, params = [nn.Parameter(t) for t in begin()], [nn.Parameter(t) for t in begin()]
    other = lt.AdaMod(plain)
    optimizer = ZeroRedundancyOptimizer(params, optimizer_class=lt.AdaMod, clip_norm=CLIP)
    for t in range(1, 4):
        set_grads(plain, t)
        set_grads(params, t)
        clip_by_hand(plain)
        optimizer.step()
        other.step()
    for p, q in zip(params, plain):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)
    model = FullyShardedDataParallel(nn.Linear(3, 4), device_id=torch.device("cpu"))
    optimizer = lt.AdaMod(model.parameters(), clip_norm=CLIP)
    model(torch.ones(2, 3)).sum().backward()
    try:
        optimizer.step()
    except TypeError as error:
        assert "is flattened by FSDP1" in str(error) and "clip_grad_norm_" in str(error), error
    else:
        raise AssertionError("clip_norm of parts was accepted")


def processes(rank):
    sharded(rank)
    zero_and_fsdp1(rank)


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "this PyTorch has no gloo")
@unittest.skipUnless(HAS_FULLY_SHARD and HAS_DTENSOR, "this PyTorch has no fully_shard")
class Processes(unittest.TestCase):
    def test_processes(self):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        run(processes)


if __name__ == "__main__":
    unittest.main()
