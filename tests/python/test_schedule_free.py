"""Schedule-Free's two sets of weights in copies and checkpoints: which of them the parameters are is never mistaken.

SPDX-License-Identifier: MIT
"""

import copy
import importlib
import unittest

import find_package  # noqa: F401
import libadamod.numpy as ln
import libadamod.torch as lt
import numpy as np
import torch
from support import clones, make_params, set_grads, train

try:
    ports = importlib.import_module("pytorch_optimizer")
except Exception:  # some versions fail with some PyTorch
    ports = None

CLASSES = (lt.ScheduleFreeAdamW, lt.ScheduleFreeSGD)


class Evaluating(unittest.TestCase):
    def begun(self, cls, dtype=torch.float32, **arguments):
        params = make_params((6, 5), (7,), (), dtype=dtype)
        optimizer = cls(params, lr=0.1, **arguments)
        train(optimizer, params, 3)
        return optimizer, params, [p.detach().clone() for p in params]

    def goes_on(self, optimizer, params, trained):
        """train() restores the weights, except for the rounding of x."""
        with self.assertRaisesRegex(RuntimeError, "call train"):
            optimizer.step()
        optimizer.train()
        for p, y in zip(params, trained):
            exact = p.dtype is torch.bfloat16  # the master copy has it
            torch.testing.assert_close(p.detach(), y, rtol=0 if exact else 1e-6, atol=0 if exact else 1e-6)
        optimizer.step()

    def test_saved_and_loaded(self):
        for cls in CLASSES:
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(cls.__name__, dtype=dtype):
                    optimizer, params, trained = self.begun(cls, dtype)
                    optimizer.eval()
                    others = clones(params)
                    again = cls(others)
                    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
                    for p in others:
                        p.grad = torch.ones_like(p)
                    self.goes_on(again, others, trained)

    @unittest.skipUnless(hasattr(ports, "ScheduleFreeSGD"), "there is no pytorch_optimizer with Schedule-Free")
    def test_saved_by_the_port(self):
        for cls in CLASSES:
            for evaluating in (False, True):
                params = make_params((6, 5), dtype=torch.float64)
                theirs = getattr(ports, cls.__name__)(params, lr=0.1, warmup_steps=5)
                theirs.train()
                train(theirs, params, 7)
                if evaluating:
                    theirs.eval()
                others = clones(params)
                ours = cls(others)
                ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
                for optimizer, ps in ((theirs, params), (ours, others)):
                    optimizer.train()
                    train(optimizer, ps, 5, first=8)
                torch.testing.assert_close(others[0].detach(), params[0].detach(), rtol=1e-12, atol=1e-12)

    def test_a_parameter_that_begins_after_the_first_update(self):
        """As where a port counted for it: z is the parameter then, not 0."""
        for cls in CLASSES:
            for dtype in (torch.float64, torch.bfloat16):
                (p,) = make_params((6, 5), dtype=dtype)
                start = p.detach().clone()
                optimizer = cls([p], lr=1e-3)
                optimizer.state[p]["step"] = 3
                train(optimizer, [p], 1)
                self.assertLess(float((optimizer.state[p]["z"] - start).abs().max()), 0.02)

    def test_copied(self):
        for cls in CLASSES:
            optimizer, _, trained = self.begun(cls)
            optimizer.eval()
            again = copy.deepcopy(optimizer)
            self.goes_on(again, again.param_groups[0]["params"], trained)

    def test_what_was_replaced_does_not_come_back_over_what_is_loaded(self):
        for cls in CLASSES:
            optimizer, params, trained = self.begun(cls)
            saved = copy.deepcopy(optimizer.state_dict())
            train(optimizer, params, 3, first=4)
            optimizer.eval()
            with torch.no_grad():
                for p, y in zip(params, trained):
                    p.copy_(y)
            optimizer.load_state_dict(saved)
            optimizer.train()
            self.assertTrue(all(torch.equal(p, y) for p, y in zip(params, trained)))

    def test_weights_that_were_changed_meanwhile_stay_changed(self):
        optimizer, params, _ = self.begun(lt.ScheduleFreeSGD)
        optimizer.eval()
        with torch.no_grad():
            params[0].zero_()
        optimizer.train()
        torch.testing.assert_close(params[0].detach(), 0.1 * optimizer.state[params[0]]["z"])

    def test_a_group_that_is_added_has_the_mode_of_the_others(self):
        optimizer, params, trained = self.begun(lt.ScheduleFreeAdamW)
        optimizer.eval()
        optimizer.add_param_group({"params": make_params((3,))})
        optimizer.train()
        self.assertTrue(all(torch.equal(p, y) for p, y in zip(params, trained)))
        optimizer.step()


class Numpy(unittest.TestCase):
    """The weights equal those of the classes, without a mode."""

    def test_evaluation(self):
        options = dict(lr=0.1, beta1=0.8, warmup_steps=2)
        for rule, cls in zip(("schedulefree_adamw", "schedulefree_sgd"), CLASSES):
            for dtype in (torch.float32, torch.float64, torch.float16):
                with self.subTest(rule, dtype=dtype):
                    params = make_params((6, 5), (7,), dtype=dtype)
                    theirs = dict(betas=(0.8, 0.999)) if cls is lt.ScheduleFreeAdamW else dict(momentum=0.8)
                    optimizer = cls(params, lr=0.1, warmup_steps=2, **theirs)
                    arrays = [p.detach().numpy().copy() for p in params]
                    states = [ln.states(rule, a, **options) for a in arrays]
                    for a, b in zip(arrays, ln.evaluation(rule, arrays, states, 0, **options)):
                        self.assertTrue(np.array_equal(a, b))  # there is no average yet
                    for t in range(1, 5):
                        set_grads(params, t)
                        ln.update(rule, arrays, [p.grad.numpy() for p in params], states, t, **options)
                        optimizer.step()
                    before = [a.copy() for a in arrays]
                    found = ln.evaluation(rule, arrays, states, 4, **options)
                    self.assertTrue(np.array_equal(found[1], ln.evaluation(rule, arrays[1], states[1], 4, **options)))
                    optimizer.eval()
                    for p, a, b, old in zip(params, arrays, found, before):
                        self.assertTrue(np.array_equal(a, old))  # training goes on with what is there
                        self.assertFalse(np.array_equal(a, b))
                        least = {torch.float64: 1e-15, torch.float32: 1e-6, torch.float16: 1e-3}[dtype]
                        np.testing.assert_allclose(b, p.detach().numpy(), rtol=least, atol=least)

    def test_other_rules(self):
        array = np.ones(3)
        found = ln.evaluation("adam", array, ln.states("adam", array), 5)
        self.assertTrue(np.array_equal(found, array) and found is not array)

    def test_messages(self):
        array = np.ones(3)
        state = ln.states("schedulefree_sgd", array)
        with self.assertRaisesRegex(ValueError, "1 parameters and 2 states, expected as many of each"):
            ln.evaluation("schedulefree_sgd", [array], [state, state], 1)
        with self.assertRaisesRegex(ValueError, "state has no z"):
            ln.evaluation("schedulefree_sgd", array, {}, 1)
        with self.assertRaisesRegex(ValueError, "beta1 is 2"):
            ln.evaluation("schedulefree_sgd", array, state, 1, beta1=2)


if __name__ == "__main__":
    unittest.main()
