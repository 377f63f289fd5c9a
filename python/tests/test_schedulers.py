"""Schedulers that cycle more than the learning rate, with every rule: docs/pytorch.md says what to pass.

SPDX-License-Identifier: MIT
"""

import unittest
import warnings

import libadamod.torch as lt
import torch
from support import CLASSES, make_params, train

WITHOUT_MOMENTUM = (lt.Adagrad, lt.Adadelta, lt.NosAdam, lt.Adafactor)


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
            if cls not in WITHOUT_MOMENTUM:
                self.goes(cls, kinds=1)  # PyTorch 1.13's CyclicLR knows no betas
                continue
            optimizer, _ = self.make(cls)
            with self.assertRaisesRegex(ValueError, "cycle_momentum"):
                next(self.schedules(optimizer))()


if __name__ == "__main__":
    unittest.main()
