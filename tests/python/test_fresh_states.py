"""States that are made before the first update, as torch.distributed.checkpoint does: by a step with gradients of zeros
at a learning rate of 0. It must leave no trace.

SPDX-License-Identifier: MIT
"""

import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from support import CLASSES, clones, make_params, same_bits, train

try:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
except ImportError:
    get_optimizer_state_dict = None


def made_by_hand(params, optimizer):
    """Does what torch.distributed.checkpoint.state_dict does, also for a PyTorch that has none."""
    for p in params:
        p.grad = torch.zeros_like(p)
    before = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(0.0) if isinstance(group["lr"], torch.Tensor) else 0.0
    optimizer.step(closure=None)
    for group, lr in zip(optimizer.param_groups, before):
        group["lr"] = lr
    optimizer.zero_grad(set_to_none=True)


def made_by_pytorch(params, optimizer):
    model = torch.nn.Module()
    model.params = torch.nn.ParameterList(params)
    saved = get_optimizer_state_dict(model, optimizer)
    assert len(saved["state"]) == len(params)


WAYS = [made_by_hand] + ([made_by_pytorch] if get_optimizer_state_dict else [])


class Fresh(unittest.TestCase):
    def no_trace(self, make, dtype=torch.float32):
        for way in WAYS:
            params = make_params((6, 5), (7,), dtype=dtype)
            others, begin = clones(params), clones(params)
            optimizer, other = make(params), make(others)
            way(params, optimizer)
            for p, q in zip(params, begin):
                self.assertTrue(same_bits(p.detach(), q.detach()))
                self.assertEqual(int(optimizer.state[p]["step"]), 0)
            names = [set(optimizer.state[p]) for p in params]
            train(optimizer, params, 12)
            train(other, others, 12)
            self.assertEqual(names, [set(other.state[p]) for p in others])  # all of them were made
            for p, q in zip(params, others):
                self.assertTrue(same_bits(p.detach(), q.detach()))

    def test_every_class(self):
        for cls in CLASSES:
            with self.subTest(cls.__name__):
                self.no_trace(lambda p: cls(p, weight_decay=0.1))
                self.no_trace(lambda p: cls(p, weight_decay=0.1, decay="independent"))

    def test_options(self):
        for arguments in (dict(lr=torch.tensor(1e-2)), dict(state_type="q8"), dict(low_precision="stochastic")):
            self.no_trace(lambda p: lt.AdaMod(p, weight_decay=0.1, decay="independent", **arguments))
            self.no_trace(lambda p: lt.AdaMod(p, weight_decay=0.1, **arguments), torch.bfloat16)
        self.no_trace(lambda p: lt.SGD(p, momentum=0.9, dampening=0.5))

    def test_a_schedule_that_begins_or_ends_at_zero(self):
        """There are gradients then, so it is an update: independent decay acts whatever the learning rate is."""
        (p,) = make_params((7,))
        optimizer = lt.AdaMod([p], lr=0.0, weight_decay=0.25, decay="independent")
        for t in range(1, 4):
            before = p.detach().clone()
            train(optimizer, [p], 1, first=t)
            torch.testing.assert_close(p.detach(), 0.75 * before)
            self.assertEqual(int(optimizer.state[p]["step"]), t)
        p.grad.zero_()
        before = p.detach().clone()
        optimizer.step()  # nor is this one the first
        torch.testing.assert_close(p.detach(), 0.75 * before)

    def test_independent_decay_of_every_class_at_zero(self):
        """It is the same for all: no ratio or average of a rule gives it the learning rate."""
        options = {lt.Adafactor: dict(relative_step=False), lt.Muon: dict(adamw_lr=0.0)}
        options.update({cls: dict(final_lr=0.0) for cls in (lt.AdaBound, lt.AMSBound)})
        only_begin = (lt.ADOPT, lt.SOAP)  # in update 1
        averages = (lt.ScheduleFreeAdamW, lt.ScheduleFreeSGD)  # what it evaluates with; z decays so
        for cls in CLASSES:
            params = make_params((6, 5), (7,))
            optimizer = cls(params, lr=0.0, weight_decay=0.25, decay="independent", **options.get(cls, {}))
            for t in range(1, 2 if cls in averages else 4):
                before = clones(params)
                train(optimizer, params, 1, first=t)
                factor = 1 if t == 1 and cls in only_begin else 0.75
                with self.subTest(cls.__name__, t=t):
                    for p, q in zip(params, before):
                        torch.testing.assert_close(p.detach(), factor * q.detach())


if __name__ == "__main__":
    unittest.main()
