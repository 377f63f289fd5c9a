"""Everything a torch.optim.Optimizer must do, over the cases that PyTorch tests its own with.

SPDX-License-Identifier: MIT
"""

import copy
import io
import multiprocessing
import os
import pickle
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from libadamod import _c
from support import CLASSES, clones, make_params, same_bits, set_grads, train


class Groups(unittest.TestCase):
    def test_groups_have_options_of_their_own(self):
        a, b = make_params((5,), (5,))
        alone = clones([a, b])
        optimizer = lt.AdaMod([{"params": [a], "lr": 1e-2, "betas": (0.5, 0.9)}, {"params": b}], lr=1e-4, beta3=0.9)
        train(optimizer, [a, b], 5)
        first, second = (
            lt.AdaMod([alone[0]], lr=1e-2, betas=(0.5, 0.9), beta3=0.9),
            lt.AdaMod([alone[1]], lr=1e-4, beta3=0.9),
        )
        for t in range(1, 6):
            set_grads(alone, t)
            first.step()
            second.step()
        self.assertTrue(torch.equal(a, alone[0]) and torch.equal(b, alone[1]))

    def test_a_group_added_later_starts_at_step_1(self):
        a, b = make_params((5,), (6,))
        optimizer = lt.AdaMod([a])
        train(optimizer, [a], 3)
        optimizer.add_param_group({"params": [b], "lr": 0.1})
        train(optimizer, [a, b], 2)
        self.assertEqual((optimizer.state[a]["step"], optimizer.state[b]["step"]), (5, 2))
        self.assertEqual(optimizer.param_groups[1]["beta3"], 0.999)

    def test_a_group_that_is_refused_is_not_added(self):
        a, b = make_params((5,), (6,))
        optimizer = lt.AdaMod([a])
        with self.assertRaisesRegex(ValueError, "group 1: adamod: beta3 is 2"):
            optimizer.add_param_group({"params": [b], "beta3": 2})
        self.assertEqual(len(optimizer.param_groups), 1)
        with self.assertRaisesRegex(ValueError, "appear in more than one"):
            optimizer.add_param_group({"params": [a]})

    def test_options_can_be_changed_between_steps(self):
        (a,) = make_params((5,))
        (b,) = clones([a])
        one, other = lt.SGD([a], lr=0.1), torch.optim.SGD([b], lr=0.1)
        for t in range(1, 8):
            for optimizer, p in ((one, a), (other, b)):
                optimizer.param_groups[0]["lr"] = 0.1 / t
                optimizer.param_groups[0]["weight_decay"] = 0.01 * t
                set_grads([p], t)
                optimizer.step()
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)

    def test_params_replaced_in_a_group(self):
        a, b = make_params((5,), (6,))
        optimizer = lt.AdaMod([a])
        train(optimizer, [a], 2)
        optimizer.param_groups[0]["params"] = [a, b]
        train(optimizer, [a, b], 1)
        self.assertEqual((optimizer.state[a]["step"], optimizer.state[b]["step"]), (3, 1))

    def test_repr_names_class_and_options(self):
        text = repr(lt.AdaMod(make_params((2,)), flavour="published"))
        self.assertTrue(text.startswith("AdaMod (") and "flavour: published" in text)


class Steps(unittest.TestCase):
    def test_every_class_minimizes(self):
        for cls in CLASSES:
            with self.subTest(cls.__name__):
                (p,) = make_params((10, 4))
                rates = {lt.Adadelta: 100.0, lt.SGD: 1.0, lt.ScheduleFreeSGD: 5.0}
                arguments = {} if cls is lt.Adafactor else {"lr": rates.get(cls, 0.05)}
                if cls is lt.AdaMod:
                    arguments["beta3"] = 0.9
                optimizer = cls([p], **arguments)

                def closure():
                    optimizer.zero_grad()
                    loss = (p - 1).pow(2).mean()
                    loss.backward()
                    return loss

                first = float(optimizer.step(closure).detach())
                for _ in range(120):
                    optimizer.step(closure)
                self.assertLess(float(closure().detach()), 0.5 * first)

    def test_after_a_step_that_failed(self):
        """The first step got as far as the second parameter's gradient."""
        params = make_params((3,), (4,))
        others = clones(params)
        optimizer = lt.AdaMod(params)
        set_grads(params, 1)
        params[1].grad = params[1].grad.to_sparse()
        with self.assertRaisesRegex(RuntimeError, "sparse"):
            optimizer.step()
        train(optimizer, params, 2)
        train(lt.AdaMod(others), others, 2)
        for p, q in zip(params, others):
            self.assertTrue(same_bits(p, q))

    def test_closure_runs_with_gradients_and_its_loss_returns(self):
        (p,) = make_params((3,))
        optimizer = lt.AdaMod([p])
        calls = []

        def closure():
            calls.append(torch.is_grad_enabled())
            optimizer.zero_grad()
            loss = p.sum()
            loss.backward()
            return loss

        before = float(p.detach().sum())
        with torch.no_grad():
            loss = optimizer.step(closure)
        self.assertEqual((calls, float(loss.detach())), ([True], before))
        self.assertIsNone(optimizer.step())

    def test_parameters_without_gradient_stand_still(self):
        a, b = make_params((4,), (4,))
        before = b.detach().clone()
        optimizer = lt.AdaMod([a, b], weight_decay=0.1)
        train(optimizer, [a], 2)
        self.assertTrue(torch.equal(b, before))
        self.assertNotIn(b, optimizer.state)
        train(optimizer, [a, b], 1, first=3)  # unfrozen
        self.assertEqual((optimizer.state[a]["step"], optimizer.state[b]["step"]), (3, 1))
        moved = b.detach().clone()
        b.grad = None  # frozen again
        set_grads([a], 4)
        optimizer.step()
        self.assertTrue(torch.equal(b, moved))
        self.assertEqual((optimizer.state[a]["step"], optimizer.state[b]["step"]), (4, 1))

    def test_gradients_that_come_and_go(self):
        """One of two parameters at a time, for every rule."""
        for cls in CLASSES:
            params = make_params((4, 3), (5,))
            alone = clones(params)
            optimizer, others = cls(params), [cls([p]) for p in alone]
            for t in range(1, 25):
                i = t % 3 % 2
                optimizer.zero_grad(set_to_none=True)
                set_grads([params[i]], t)
                alone[i].grad = params[i].grad.clone()
                optimizer.step()
                others[i].step()
            for p, q in zip(params, alone):
                self.assertTrue(torch.equal(p, q), cls)

    def test_no_gradients_at_all(self):
        params = make_params((4,))
        before = clones(params)
        lt.AdaMod(params).step()
        self.assertTrue(torch.equal(params[0], before[0]))

    def test_zero_grad(self):
        for none in (True, False):
            (p,) = make_params((4,))
            optimizer = lt.AdaMod([p])
            train(optimizer, [p], 1)
            optimizer.zero_grad(set_to_none=none)
            self.assertTrue(p.grad is None if none else bool((p.grad == 0).all()))

    def test_gradients_are_left_alone(self):
        (p,) = make_params((40,))
        optimizer = lt.Adam([p], weight_decay=0.1, maximize=True, clip_value=0.1)
        set_grads([p], 1)
        before = p.grad.clone()
        optimizer.step()
        self.assertTrue(torch.equal(p.grad, before))

    def test_maximize_ascends(self):
        for cls in CLASSES:
            (p,) = make_params((10,))
            (q,) = clones([p])
            up, down = cls([p], maximize=True), cls([q])
            for t in range(1, 13):
                set_grads([p], t)
                q.grad = -p.grad
                up.step()
                down.step()
            self.assertTrue(torch.equal(p, q), cls)

    def test_autograd_notices_the_write(self):
        """As with torch.optim: backward through values that a step has overwritten is an error, not a wrong result."""
        (p,) = make_params((4,))
        optimizer = lt.AdaMod([p])
        loss = (p * p).sum()
        p.grad = torch.ones(4)
        optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_hooks(self):
        (p,) = make_params((4,))
        optimizer = lt.AdaMod([p])
        if not hasattr(optimizer, "register_step_post_hook"):
            self.skipTest("this PyTorch has no step hooks")
        seen = []
        optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
        optimizer.register_step_post_hook(lambda *_: seen.append("after"))
        train(optimizer, [p], 1)
        self.assertEqual(seen, ["before", "after"])

    def test_a_forked_child_has_threads_of_its_own(self):
        _c.pool(2)  # the parent's, which stay with it

        def child(results):
            before = len(os.listdir("/proc/self/task"))
            _c.pool(2)
            results.put(len(os.listdir("/proc/self/task")) - before)

        context = multiprocessing.get_context("fork")
        results = context.SimpleQueue()
        process = context.Process(target=child, args=(results,))
        process.start()
        process.join(30)
        self.assertEqual(process.exitcode, 0)
        self.assertEqual(results.get(), 1)


class Copies(unittest.TestCase):
    def finish(self, optimizer, params, steps=3):
        train(optimizer, params, steps, first=10)
        return [p.detach().clone() for p in params]

    def test_pickle_and_deepcopy_go_on_alike(self):
        for cls in CLASSES:
            with self.subTest(cls.__name__):
                params = make_params((4, 3), (5,))
                optimizer = cls(params)
                train(optimizer, params, 4)
                buffer = io.BytesIO()
                torch.save([optimizer, params], buffer)
                buffer.seek(0)
                arguments = {"weights_only": False} if torch.__version__ >= "2" else {}
                copies = [
                    pickle.loads(pickle.dumps([optimizer, params])),
                    copy.deepcopy([optimizer, params]),
                    torch.load(buffer, **arguments),
                ]
                expected = self.finish(optimizer, params)
                for other, others in copies:
                    self.assertIsNot(other.param_groups[0]["params"][0], params[0])
                    for a, b in zip(expected, self.finish(other, others)):
                        self.assertTrue(torch.equal(a, b))


if __name__ == "__main__":
    unittest.main()
