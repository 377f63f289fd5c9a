"""Schedulers: they act as on torch.optim's own; those that cycle more than the learning rate, with every rule, as
docs/pytorch.md says what to pass.

SPDX-License-Identifier: MIT
"""

import inspect
import unittest
import warnings

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from support import CLASSES, clones, make_params, set_grads, train



def has_momentum(cls):
    """In the sense of PyTorch's schedulers that cycle it."""
    return not {"betas", "momentum"}.isdisjoint(inspect.signature(cls).parameters)


class OneCycle(unittest.TestCase):
    def make(self, cls):
        params = make_params((4, 3), (5,))
        arguments = dict(lr=1e-2, relative_step=False) if cls is lt.Adafactor else dict(lr=1e-2)
        return cls(params, **arguments), params

    def schedules(self, optimizer, **arguments):
        s = torch.optim.lr_scheduler
        yield lambda: s.OneCycleLR(optimizer, 0.1, total_steps=20, **arguments)
        yield lambda: s.CyclicLR(optimizer, 0.01, 0.1, **arguments)

    def goes(self, cls, kinds=2, **arguments):
        for which in range(kinds):
            optimizer, params = self.make(cls)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scheduler = list(self.schedules(optimizer, **arguments))[which]()
                for t in range(1, 13):
                    train(optimizer, params, 1, first=t)
                    scheduler.step()
            self.assertTrue(all(bool(torch.isfinite(p).all()) for p in params), cls.__name__)

    def test_every_rule(self):
        for cls in CLASSES:
            self.goes(cls, cycle_momentum=False)
            if has_momentum(cls):
                self.goes(cls, kinds=1)  # PyTorch 1.13's CyclicLR knows no betas
                continue
            optimizer, _ = self.make(cls)
            with self.assertRaisesRegex(ValueError, "cycle_momentum"):
                next(self.schedules(optimizer))()


class Schedulers(unittest.TestCase):
    def compare(self, make, steps=12):
        (p,) = make_params((9,), dtype=torch.float64)
        (q,) = clones([p])
        ours, theirs = lt.AdamW([p], lr=0.1), torch.optim.AdamW([q], lr=0.1)
        schedules = [make(ours), make(theirs)]
        for t in range(1, steps + 1):
            set_grads([p], t)
            set_grads([q], t)
            ours.step()
            theirs.step()
            for s in schedules:
                s.step()
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)

    def test_schedulers_act_as_on_torchs_own(self):
        s = torch.optim.lr_scheduler
        for make in (
            lambda o: s.StepLR(o, 3, 0.5),
            lambda o: s.MultiStepLR(o, [2, 6], 0.1),
            lambda o: s.ExponentialLR(o, 0.9),
            lambda o: s.CosineAnnealingLR(o, 10),
            lambda o: s.LambdaLR(o, lambda t: 1 / (t + 1)),
            lambda o: s.OneCycleLR(o, 0.2, total_steps=20),
            lambda o: s.CyclicLR(o, 0.01, 0.1, cycle_momentum=False),
            lambda o: s.SequentialLR(o, [s.ConstantLR(o, 0.1), s.ExponentialLR(o, 0.9)], [4]),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.compare(make)

    def test_a_tensor_as_learning_rate(self):
        (p,) = make_params((9,))
        (q,) = clones([p])
        rate = torch.tensor(0.1, dtype=torch.float64)
        one, other = lt.AdaMod([p], lr=rate), lt.AdaMod([q], lr=0.1)
        for t in range(1, 5):
            set_grads([p], t)
            set_grads([q], t)
            one.step()
            other.step()
            rate.mul_(0.5)
            other.param_groups[0]["lr"] *= 0.5
        self.assertTrue(torch.equal(p, q))


if __name__ == "__main__":
    unittest.main()
