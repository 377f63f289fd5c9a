"""Mixed precision as programs have it: GradScaler with and without `fused`, clipping between, Lightning.

SPDX-License-Identifier: MIT
"""

import copy
import importlib.util
import math
import pickle
import unittest
import warnings
from collections import namedtuple

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from support import CLASSES, clones, make_params, set_grads

HAS_SCALER = hasattr(torch.amp, "GradScaler")  # for the CPU too; before, it needs CUDA
HAS_LIGHTNING = importlib.util.find_spec("lightning") is not None
Stage = namedtuple("Stage", "name")


class WhoUnscales(unittest.TestCase):
    def test_step_only_where_fused_is_asked_for(self):
        """As in torch.optim: who finds it clips gradients that are unscaled already, or refuses to."""
        for cls in CLASSES:
            for fused in (None, False, True):
                optimizer = cls(make_params((3,)), fused=fused)
                self.assertIs(optimizer._step_supports_amp_scaling, bool(fused), cls.__name__)
                for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
                    self.assertIs(other._step_supports_amp_scaling, bool(fused), cls.__name__)
            self.assertIs(cls(make_params((3,)))._step_supports_amp_scaling, False)


@unittest.skipUnless(HAS_SCALER, "this PyTorch has a GradScaler for CUDA alone")
class Scaled(unittest.TestCase):
    def run_scaled(self, clip, cls=lt.AdaMod, **arguments):
        """Scaled, one step of them not finite, and clipped between; against an optimizer without it all."""
        (p,) = make_params((20,))
        (q,) = clones([p])
        one, other = cls([p], **arguments), cls([q])
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=100)
        for t in range(1, 9):
            factor = math.inf if t == 4 else 1.0
            one.zero_grad()
            scaler.scale((p * p * factor).sum()).backward()
            if clip:
                scaler.unscale_(one)
                torch.nn.utils.clip_grad_norm_([p], 0.5)
            scaler.step(one)
            scaler.update()
            if factor != 1.0:
                continue
            other.zero_grad()
            (q * q).sum().backward()
            if clip:
                torch.nn.utils.clip_grad_norm_([q], 0.5)
            other.step()
        self.assertEqual(scaler.get_scale(), 512.0)
        self.assertEqual(int(one.state[p]["step"]), 7)
        self.assertTrue(torch.equal(p, q))

    def test_either_way(self):
        for clip in (False, True):
            for fused in (None, False, True):
                with self.subTest(clip=clip, fused=fused), warnings.catch_warnings():
                    warnings.simplefilter("error")
                    self.run_scaled(clip, fused=fused)
                    self.run_scaled(clip, lt.Prodigy, fused=fused)


@unittest.skipUnless(HAS_LIGHTNING, "lightning is not installed")
class Lightning(unittest.TestCase):
    def test_gradient_clip_val_with_mixed_precision(self):
        from lightning.fabric.plugins.precision.amp import _optimizer_handles_unscaling
        from lightning.pytorch.plugins.precision import MixedPrecision

        params = make_params((3,))
        self.assertFalse(_optimizer_handles_unscaling(lt.AdaMod(params)))
        scaler = torch.amp.GradScaler("cpu")
        plugin = MixedPrecision("16-mixed", "cpu", scaler)
        params[0].grad = torch.full((3,), 4.0)
        plugin.clip_gradients(lt.AdaMod(params), clip_val=1.0)
        torch.testing.assert_close(params[0].grad.norm(), torch.tensor(1.0))


class Scaler:
    """A GradScaler as PyTorch 1.13's step sees it; PyTorch's own needs CUDA there."""

    def __init__(self, scale):
        self.scale = scale
        self.stage = "READY"
        self.found = {}

    @property
    def _per_optimizer_states(self):
        return self

    def __getitem__(self, _):
        return {"stage": Stage(self.stage), "found_inf_per_device": self.found}

    def _get_scale_async(self):
        return torch.tensor(self.scale)

    def _check_inf_per_device(self, optimizer):
        bad = any(not bool(torch.isfinite(p.grad).all()) for g in optimizer.param_groups for p in g["params"])
        self.found = {torch.device("cpu"): torch.tensor(float(bad))}
        return self.found


class GradScaler(unittest.TestCase):
    def run_scaled(self, step):
        """step(optimizer, scale, found) for scaled gradients, one of them bad; against an optimizer without it all."""
        (p,) = make_params((20,))
        (q,) = clones([p])
        one, other = lt.AdaMod([p]), lt.AdaMod([q])
        for t in range(1, 7):
            set_grads([p], t)
            q.grad = p.grad.clone()
            bad = t == 3
            p.grad.mul_(1024)
            if bad:
                p.grad[2] = math.inf
            step(one, 1024.0, bad)
            if not bad:
                other.step()
            self.assertEqual(one.state[p]["step"], other.state[q]["step"])
        self.assertTrue(torch.equal(p, q))

    def test_a_skipped_step_does_not_advance(self):
        def as_1_13(optimizer, scale, found):
            optimizer.step(grad_scaler=Scaler(scale))

        def as_1_13_unscaled(optimizer, scale, found):
            scaler = Scaler(scale)
            scaler._check_inf_per_device(optimizer)
            scaler.stage = "UNSCALED"
            optimizer.param_groups[0]["params"][0].grad.div_(scale)
            optimizer.step(grad_scaler=scaler)

        def as_2(optimizer, scale, found):
            optimizer.grad_scale, optimizer.found_inf = torch.tensor(scale), torch.tensor(float(found))
            optimizer.step()
            del optimizer.grad_scale, optimizer.found_inf

        for step in (as_1_13, as_1_13_unscaled, as_2):
            self.run_scaled(step)

    def test_pytorchs_own_on_the_cpu(self):
        if not hasattr(torch.amp, "GradScaler"):
            self.skipTest("this PyTorch has a GradScaler for CUDA alone")
        (p,) = make_params((20,))
        (q,) = clones([p])
        one, other = lt.AdaMod([p]), lt.AdaMod([q])
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for t in range(1, 9):
                factor = math.inf if t == 4 else 1.0
                one.zero_grad()
                scaler.scale((p * p * factor).sum()).backward()
                if t == 6:
                    scaler.unscale_(one)
                scaler.step(one)
                scaler.update()
                if factor == 1.0:
                    other.zero_grad()
                    (q * q).sum().backward()
                    other.step()
        self.assertEqual(one.state[p]["step"], 7)
        self.assertTrue(torch.equal(p, q))


if __name__ == "__main__":
    unittest.main()
