"""timm's factory, where timm is installed.

SPDX-License-Identifier: MIT
"""

import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from support import CLASSES, clones, make_params, set_grads

try:
    import timm.optim
except ImportError:
    timm = None


@unittest.skipUnless(timm, "there is no timm")
class Factory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.before = {name: timm.optim.get_optimizer_info(name) for name in timm.optim.list_optimizers()}
        import libadamod.timm

        cls.names = libadamod.timm.names

    def create(self, name, **arguments):
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        return timm.optim.create_optimizer_v2(model, name, **arguments)

    def step(self, optimizer):
        params = [p for group in optimizer.param_groups for p in group["params"]]
        set_grads(params, 1)
        before = [p.detach().clone() for p in params]
        for _ in range(12):  # AdaShift begins late
            optimizer.step()
        self.assertTrue(all(not torch.equal(p, q) for p, q in zip(params, before)))

    def test_adamod(self):
        optimizer = self.create("adamod", lr=0.1, weight_decay=0.05, betas=(0.8, 0.9), eps=1e-6, beta3=0.9)
        self.assertIs(type(optimizer), lt.AdaMod)
        decays = {group["weight_decay"] for group in optimizer.param_groups}
        self.assertEqual(decays, {0.0, 0.05})  # timm's groups: none of biases and norms
        group = optimizer.param_groups[0]
        self.assertEqual((group["lr"], group["betas"], group["eps"], group["beta3"]), (0.1, (0.8, 0.9), 1e-6, 0.9))
        self.step(optimizer)

    def test_every_class_has_a_name(self):
        for cls in CLASSES:
            with self.subTest(cls.__name__):
                # As timm's train.py calls it: with arguments that not all have.
                arguments = {} if cls is lt.Adafactor else {"lr": 0.1}
                name = f"libadamod.{cls.__name__.lower()}"
                betas = (0.9, 0.99, 0.999)[: timm.optim.get_optimizer_info(name).num_betas]
                optimizer = self.create(name, eps=1e-7, betas=betas, **arguments)
                self.assertIs(type(optimizer), cls)
                self.step(optimizer)

    def test_timms_own_stay(self):
        for name, info in self.before.items():
            self.assertIs(timm.optim.get_optimizer_info(name), info)
        self.assertIs(type(self.create("adamw", lr=0.1)), torch.optim.AdamW)
        short = {name for name in self.names if "." not in name}
        self.assertEqual(short, {cls.__name__.lower() for cls in CLASSES} - set(self.before))
        self.assertIn("adamod", short)

    def test_momentum_is_timms(self):
        self.assertEqual(self.create("libadamod.sgd", lr=0.1, momentum=0.7).param_groups[0]["momentum"], 0.7)

    def test_lookahead(self):
        self.step(self.create("lookahead_adamod", lr=0.1, beta3=0.5))


@unittest.skipUnless(timm, "there is no timm")
class Caution(unittest.TestCase):
    """cautious=True is timm's caution=True, in float64."""

    def compare(self, ours, theirs, steps=30):
        params = make_params((300, 7), (5,), (40,), dtype=torch.float64)
        others = clones(params)
        one, other = ours(params), theirs(others)
        for t in range(1, steps + 1):
            set_grads(params, t)
            for p, q in zip(params, others):
                q.grad = p.grad.clone()
            one.step()
            other.step()
        for p, q in zip(params, others):
            self.assertLess(float((p - q).detach().abs().max()), 1e-11)

    def test_adamw(self):
        for arguments in ({}, {"amsgrad": True}):
            self.compare(
                lambda p: lt.AdamW(p, lr=1e-2, weight_decay=0.1, cautious=True, **arguments),
                lambda p: timm.optim.AdamWLegacy(p, lr=1e-2, weight_decay=0.1, caution=True, **arguments),
            )

    def test_lion(self):
        self.compare(
            lambda p: lt.Lion(p, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1, cautious=True),
            lambda p: timm.optim.Lion(p, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1, caution=True),
        )

    def test_sgd(self):
        self.compare(
            lambda p: lt.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0, cautious=True),
            lambda p: timm.optim.SGDW(p, lr=1e-2, momentum=0.9, weight_decay=0, caution=True),
        )

    def test_checkpoints(self):
        """A run that timm began goes on here as it would there."""
        decayed = dict(lr=1e-2, weight_decay=0.1)
        for ours, theirs, arguments in (
            (lt.AdamW, timm.optim.AdamWLegacy, decayed),
            (lt.AdamW, timm.optim.AdamWLegacy, dict(decayed, amsgrad=True)),
            (lt.Adam, timm.optim.AdamWLegacy, decayed),
            (lt.Lion, timm.optim.Lion, decayed),
            (lt.SGD, timm.optim.SGDW, dict(decayed, momentum=0.9)),
            (lt.SGD, timm.optim.SGDW, dict(decayed, momentum=0.9, nesterov=True)),
        ):
            after = {}
            for caution in (True, False):
                others = make_params((300, 7), (5,), (40,), dtype=torch.float64)
                other = theirs(others, caution=caution, **arguments)
                for t in range(1, 11):
                    set_grads(others, t)
                    other.step()
                params = clones(others)
                one = ours(params)
                one.load_state_dict(other.state_dict())
                with self.subTest(theirs=theirs.__name__, caution=caution, **arguments):
                    self.assertIs(one.param_groups[0]["cautious"], caution)
                    self.assertNotIn("caution", one.param_groups[0])
                    for t in range(11, 31):
                        set_grads(params, t)
                        set_grads(others, t)
                        one.step()
                        other.step()
                    for p, q in zip(params, others):
                        self.assertLess(float((p - q).detach().abs().max()), 1e-11)
                after[caution] = params
            self.assertFalse(torch.allclose(after[True][0], after[False][0], rtol=1e-6))

    def test_checkpoints_of_another_formula(self):
        for ours, theirs in (
            (lt.NAdam, timm.optim.NAdamW),  # it masks what it keeps
            (lt.AdamW, timm.optim.NAdamW),
            (lt.Adan, timm.optim.Adan),
            (lt.ADOPT, timm.optim.Adopt),
            (lt.LAMB, timm.optim.Lamb),
            (lt.LaProp, timm.optim.LaProp),
        ):
            others = make_params((30, 7), dtype=torch.float64)
            other = theirs(others, lr=1e-2, caution=True)
            set_grads(others, 1)
            other.step()
            with self.subTest(theirs.__name__), self.assertRaises((ValueError, TypeError)) as caught:
                ours(clones(others)).load_state_dict(other.state_dict())
            self.assertNotIn("\n", str(caught.exception))


@unittest.skipUnless(timm, "there is no timm")
class LaProp(unittest.TestCase):
    def far(self):
        """How far from timm a run is after 20 updates here that timm began, without caution."""
        others = make_params((300, 7), (5,), dtype=torch.float64)
        other = timm.optim.LaProp(others, lr=1e-2)
        for t in range(1, 11):
            set_grads(others, t)
            other.step()
        params = clones(others)
        one = lt.LaProp(params)
        one.load_state_dict(other.state_dict())
        for t in range(11, 31):
            set_grads(params, t)
            set_grads(others, t)
            one.step()
            other.step()
        return max(float((p - q).detach().abs().max()) for p, q in zip(params, others))

    def test_checkpoints(self):
        """timm 1.0.31 has 1 - beta2^t in PyTorch's default type, and rounds it in every update."""
        before = torch.get_default_dtype()
        self.addCleanup(torch.set_default_dtype, before)
        torch.set_default_dtype(torch.float64)
        self.assertLess(self.far(), 1e-11)
        torch.set_default_dtype(torch.float32)
        # 30 roundings of 2^-24 of it, half of them in the root, in 20 steps of a few times lr
        self.assertLess(self.far(), 20 * 3e-2 * 15 * 2**-24)


if __name__ == "__main__":
    unittest.main()
