"""What a torch.optim.Optimizer must do, over the cases that PyTorch tests its own with.

SPDX-License-Identifier: MIT
"""

import copy
import ctypes
import io
import math
import multiprocessing
import os
import pickle
import unittest
import warnings
from collections import namedtuple

import libadamod.torch as lt
import torch
from libadamod import _c
from support import CLASSES, clones, library_optimizer, make_params, same_bits, set_grads, train

STATES_NAMES = ("exp_avg", "exp_avg_sq", "exp_avg_lr")


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
                arguments = {lt.Adadelta: {"lr": 100.0}, lt.SGD: {"lr": 1.0}, lt.Adafactor: {}}.get(cls, {"lr": 0.05})
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


class Layouts(unittest.TestCase):
    """Whatever the memory looks like, the numbers are those of the contiguous tensor."""

    def check(self, make, cls=lt.AdaMod, grad=lambda g, p: g, steps=4, **arguments):
        p = make()
        q = torch.nn.Parameter(p.detach().clone(memory_format=torch.contiguous_format))
        one, other = cls([p], **arguments), cls([q], **arguments)
        for t in range(1, steps + 1):
            set_grads([q], t)
            p.grad = grad(q.grad.clone(), p)
            one.step()
            other.step()
        self.assertTrue(same_bits(p.detach().contiguous(), q.detach()))
        for name, value in other.state[q].items():
            if isinstance(value, torch.Tensor):
                self.assertTrue(same_bits(one.state[p][name].contiguous(), value), name)
        return p, one.state[p]

    def test_channels_last_is_updated_in_place(self):
        def make():
            return torch.nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last))

        for grad in (lambda g, p: g, lambda g, p: g.to(memory_format=torch.channels_last)):
            p, state = self.check(make, grad=grad)
            self.assertTrue(p.is_contiguous(memory_format=torch.channels_last))
            self.assertEqual(state["exp_avg"].stride(), p.stride())
        self.check(make, lt.AdaShift, window=2, spatial="none")
        self.check(make, lt.Adafactor)

    def test_transposed_and_strided(self):
        self.check(lambda: torch.nn.Parameter(torch.randn(6, 4).t()))
        self.check(lambda: torch.nn.Parameter(torch.randn(6, 8)[:, ::2]))
        self.check(lambda: torch.nn.Parameter(torch.randn(6, 8)[:, ::2]), lt.Adafactor)
        self.check(lambda: torch.nn.Parameter(torch.randn(5, 6, 4).permute(2, 0, 1)))

    def test_a_gradient_in_another_layout_or_an_expanded_one(self):
        def make():
            return torch.nn.Parameter(torch.randn(6, 6))

        self.check(make, grad=lambda g, p: g.t().contiguous().t())
        (p,) = make_params((3, 4))
        (q,) = clones([p])
        p.grad, q.grad = torch.ones(()).expand(3, 4), torch.ones(3, 4)
        lt.AdaMod([p]).step()
        lt.AdaMod([q]).step()
        self.assertTrue(torch.equal(p, q))

    def test_a_negated_view_as_gradient(self):
        z = torch.randn(5, dtype=torch.complex64)
        g = z.conj().imag  # a view whose sign is only noted
        self.assertTrue(g.is_neg())
        (p,) = make_params((5,))
        (q,) = clones([p])
        p.grad, q.grad = g, -z.imag.clone()
        lt.AdaMod([p]).step()
        lt.AdaMod([q]).step()
        self.assertTrue(torch.equal(p, q))

    def test_parameters_that_are_lazily_negated_or_conjugated(self):
        memory = torch.ones(3)
        p = torch._neg_view(memory).requires_grad_()
        p.grad = torch.ones(3)
        optimizer = lt.SGD([p], lr=0.5)
        optimizer.step()
        self.assertEqual((p.tolist(), memory.tolist()), ([-1.5] * 3, [1.5] * 3))
        self.assertEqual(optimizer.state[p]["step"], 1)
        z = torch.full((3,), 1 + 1j, dtype=torch.complex64)
        p = z.conj().detach().requires_grad_()
        p.grad = torch.full((3,), 1j, dtype=torch.complex64)
        version = p._version
        lt.SGD([p], lr=1.0).step()
        self.assertEqual((p.tolist(), z.tolist()), ([1 - 2j] * 3, [1 + 2j] * 3))
        self.assertGreater(p._version, version)

    def test_scalars_empties_and_many_dimensions(self):
        params = make_params((), (0,), (3, 0, 2), (1, 1, 1), (1,) * 5 + (2,) * 6)
        for cls in CLASSES:
            if cls is not lt.Adafactor:
                others = clones(params)
                train(cls(others), others, 3)
        train(lt.Adafactor(params[:4]), params[:4], 3)

    def test_a_1x1_convolution_in_either_layout_needs_no_copy(self):
        p = torch.nn.Parameter(torch.randn(8, 4, 1, 1))
        optimizer = lt.AdaMod([p])
        p.grad = torch.randn(8, 4, 1, 1).to(memory_format=torch.channels_last)
        optimizer.step()
        p.grad = torch.empty_strided((8, 4, 1, 1), (4, 1, 4, 4)).normal_()
        before = p.grad.data_ptr()
        optimizer.step()
        self.assertEqual(optimizer._arrays[0].rows[0].grad, before)

    def test_parameters_that_move(self):
        """p.data is given other memory, another layout, another type: states follow."""
        p = torch.nn.Parameter(torch.randn(4, 3, 2, 2))
        (q,) = clones([p])
        one, other = lt.AdaMod([p]), lt.AdaMod([q])
        change = [lambda x: x.clone(), lambda x: x.to(memory_format=torch.channels_last), lambda x: x.contiguous()]
        for t in range(1, 10):
            p.data = change[t % 3](p.data)
            set_grads([q], t)
            p.grad = q.grad.clone()
            one.step()
            other.step()
        self.assertTrue(same_bits(p.detach().contiguous(), q.detach()))
        p.data, p.grad = p.data.double(), None
        set_grads([p], 10)
        one.step()
        self.assertIs(one.state[p]["exp_avg"].dtype, torch.float64)

    def test_states_that_move(self):
        """As programs do that take an optimizer to another device and back."""
        (p,) = make_params((4, 3))
        (q,) = clones([p])
        one, other = lt.AdaMod([p]), lt.AdaMod([q])
        for t in range(1, 5):
            set_grads([p], t)
            set_grads([q], t)
            one.step()
            other.step()
            for name, value in list(one.state[p].items()):
                if isinstance(value, torch.Tensor):
                    one.state[p][name] = value.clone()
        for name in STATES_NAMES:
            one.state[p][name].data = one.state[p][name].data.clone()
        one.state[p]["step"] = torch.tensor(4.0)
        train(one, [p], 1, 5)
        train(other, [q], 1, 5)
        self.assertTrue(torch.equal(p, q))


class Types(unittest.TestCase):
    def test_complex_is_two_reals(self):
        for cls in CLASSES:
            if cls is lt.Adafactor:
                continue
            for dtype in (torch.complex64, torch.complex128):
                z = torch.nn.Parameter(torch.randn(5, 3, dtype=dtype))
                r = torch.nn.Parameter(torch.view_as_real(z.detach()).clone())
                one, other = cls([z]), cls([r])
                for t in range(1, 13):
                    set_grads([r], t)
                    g = torch.view_as_complex(r.grad)
                    z.grad = g.conj().resolve_conj().conj() if t % 2 else g
                    one.step()
                    other.step()
                self.assertTrue(torch.equal(torch.view_as_real(z.detach()), r.detach()), cls)
                if cls is lt.AdaMod:
                    self.assertIs(one.state[z]["exp_avg"].dtype, dtype)

    def test_complex_as_torch_does(self):
        z = torch.nn.Parameter(torch.randn(5, dtype=torch.complex128))
        (w,) = clones([z])
        one, other = (
            lt.Adagrad([z], initial_accumulator_value=0.1),
            torch.optim.Adagrad([w], initial_accumulator_value=0.1),
        )
        for _ in range(5):
            z.grad = torch.randn(5, dtype=torch.complex128)
            w.grad = z.grad.clone()
            one.step()
            other.step()
        torch.testing.assert_close(z, w, rtol=1e-12, atol=1e-14)

    def test_16_bits_with_masters_follow_f32(self):
        for dtype in (torch.bfloat16, torch.float16):
            (p,) = make_params((50,), dtype=dtype)
            q = torch.nn.Parameter(p.detach().float())
            one, other = lt.AdaMod([p], lr=1e-4, beta3=0.5), lt.AdaMod([q], lr=1e-4, beta3=0.5)
            for t in range(1, 40):
                set_grads([p], t)
                q.grad = p.grad.float()
                one.step()
                other.step()
            self.assertTrue(same_bits(one.state[p]["master"], q.detach()))
            self.assertTrue(same_bits(p.detach(), q.detach().to(dtype)))

    def test_a_master_that_was_not_used_is_not_gone_back_to(self):
        (p,) = make_params((50,), dtype=torch.bfloat16)
        optimizer = lt.SGD([p], lr=1.0)
        train(optimizer, [p], 1)
        p.data = p.data.float()
        train(optimizer, [p], 2, first=2)
        self.assertNotIn("master", optimizer.state[p])
        p.data = p.data.bfloat16()
        before = p.detach().float()
        set_grads([p], 4)
        optimizer.step()
        self.assertTrue(same_bits(optimizer.state[p]["master"], before - p.grad.float()))
        optimizer.param_groups[0]["low_precision"] = "stochastic"
        train(optimizer, [p], 2, first=5)
        optimizer.param_groups[0]["low_precision"] = "master"
        before = p.detach().float()
        optimizer.step()
        self.assertTrue(same_bits(optimizer.state[p]["master"], before - p.grad.float()))

    def test_16_bits_without_masters_move_on_average(self):
        p = torch.nn.Parameter(torch.ones(20000, dtype=torch.bfloat16))
        optimizer = lt.SGD([p], lr=1e-4, low_precision="stochastic", seed=3)
        for _ in range(10):
            p.grad = torch.ones_like(p)
            optimizer.step()
        self.assertNotIn("master", optimizer.state[p])
        self.assertAlmostEqual(float(p.detach().double().mean()), 1 - 1e-3, delta=2e-4)

    def test_bf16_states(self):
        (p,) = make_params((300, 7))
        optimizer = lt.AdaMod([p], state_type="bf16")
        train(optimizer, [p], 4)
        self.assertTrue(all(optimizer.state[p][n].dtype is torch.bfloat16 for n in STATES_NAMES))

    def test_a_gradient_of_another_type(self):
        (p,) = make_params((30,))
        (q,) = clones([p])
        g = torch.randn(30, dtype=torch.bfloat16)
        one, other = lt.AdaMod([p]), lt.AdaMod([q])
        for _ in range(2):
            p.grad = torch.zeros(30)
            p.grad.data = g  # as programs do that reduce gradients in bfloat16
            q.grad = g.float()
            one.step()
            other.step()
        self.assertTrue(torch.equal(p, q))


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


# ---- GradScaler ----

Stage = namedtuple("Stage", "name")


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


# ---- learning rates ----


class Writer:
    def __init__(self):
        self.histograms, self.scalars = {}, {}

    def add_histogram_raw(self, tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts, global_step):
        assert len(bucket_limits) == len(bucket_counts) and min < max
        self.histograms[tag] = (num, bucket_counts, global_step)

    def add_scalar(self, tag, value, global_step):
        self.scalars[tag] = value


class LearningRates(unittest.TestCase):
    def library(self, rule, options, params, steps):
        """The statistics the library's own optimizer collects in the last of the steps."""
        statistics = _c.Statistics()
        with library_optimizer(rule, options, params) as (handle, grads):
            _c.check(_c.lib.adamod_collect(handle, 1))
            for t in range(1, steps + 1):
                set_grads(params, t)
                for to, p in zip(grads, params):
                    to.copy_(p.grad)
                _c.check(_c.lib.adamod_step(handle))
            _c.check(_c.lib.adamod_get_statistics(handle, -1, ctypes.byref(statistics)))
        return statistics

    def test_they_are_what_the_library_counts(self):
        for cls, options in [
            (lt.AdaMod, {}),
            (lt.AdaMod, {"flavour": "published", "beta3": 0.5}),
            (lt.AdaMod, {"flavour": "keras"}),
            (lt.Adam, {"decay": "l2"}),
            (lt.AMSGrad, {}),
            (lt.AMSGrad, {"bias_correction": 0}),
            (lt.AdaMod, {"flavour": "adamd"}),
            (lt.SGD, {"lr": 0.1}),
            (lt.Adagrad, {"lr_decay": 0.1}),
            (lt.RMSprop, {"centered": 1}),
            (lt.NosAdam, {}),
            (lt.RAdam, {}),
            (lt.AdaBound, {"gamma": 0.1}),
            (lt.AMSBound, {"gamma": 0.1}),
            (lt.AdaShift, {"window": 3}),
            (lt.AdaShift, {"window": 3, "spatial": "none"}),
            (lt.AdaShift, {"window": 20}),
            (lt.Adadelta, {}),
            (lt.Adafactor, {}),
            (lt.Adafactor, {"relative_step": 0, "lr": 1e-3, "beta1": 0.9}),
        ]:
            with self.subTest(cls.__name__, **options):
                params = make_params((400, 30), (77,), ())
                expected = self.library(cls.rule, options, clones(params), 9)
                optimizer = cls(params, **options)
                optimizer.collect_learning_rates()
                train(optimizer, params, 9)
                h = optimizer.lr_histogram()
                self.assertEqual(h.elements, expected.elements)
                self.assertEqual(h.eta, list(expected.eta))
                self.assertEqual(h.step, list(expected.step))
                for name in ("bounded", "eta_min", "eta_median", "eta_max", "step_min", "step_median", "step_max"):
                    self.assertAlmostEqual(
                        getattr(h, name), getattr(expected, name), delta=1e-6 * abs(getattr(h, name))
                    )

    def test_of_one_group_and_after_the_rate_changed(self):
        a, b = make_params((10,), (20,))
        optimizer = lt.AdaMod([{"params": [a]}, {"params": [b], "lr": 0.1}])
        self.assertEqual(optimizer.lr_histogram().elements, 0)
        train(optimizer, [a, b], 2)
        h = optimizer.lr_histogram(1)
        self.assertEqual(h.elements, 20)
        optimizer.param_groups[1]["lr"] = 1.0  # not used in an update yet
        self.assertEqual(optimizer.lr_histogram(1), h)
        self.assertEqual(optimizer.lr_histogram().elements, 30)

    def test_in_the_type_of_computation(self):
        for dtype in (torch.bfloat16, torch.float16):
            params = make_params((10,), dtype=dtype)
            optimizer = lt.SGD(params, lr=1e-9)
            train(optimizer, params, 1)
            self.assertAlmostEqual(optimizer.lr_histogram().step_max, 1e-9, delta=1e-16)

    def test_rates_that_are_too_large(self):
        for cls in CLASSES:
            if cls._states_tell_rates:
                params = make_params((10,))
                optimizer = cls(params, lr=1.8e19)
                train(optimizer, params, 1)
                self.assertIn(optimizer.lr_histogram().elements, (0, 10), cls.__name__)

    def test_rules_whose_states_do_not_tell_have_to_collect(self):
        for cls in (lt.Adadelta, lt.Adafactor):
            params = make_params((40, 30), (20,), (5, 6))
            others, quiet = clones(params), clones(params)
            groups = [{"params": params[:2]}, {"params": params[2:], "lr": 0.1}]
            optimizer, other, third = cls(groups), cls(others), cls(quiet)
            train(optimizer, params, 1)
            with self.assertRaisesRegex(RuntimeError, f"{cls.rule}.* collect_learning_rates"):
                optimizer.lr_histogram()
            optimizer.collect_learning_rates()
            self.assertEqual(optimizer.lr_histogram().elements, 0)
            train(optimizer, params, 1, first=2)
            self.assertEqual(optimizer.lr_histogram(1).elements, 30)
            h = optimizer.lr_histogram()
            self.assertEqual(h.elements, 1250)
            other.collect_learning_rates()
            train(other, others, 2)
            train(third, quiet, 2)
            self.assertTrue(all(same_bits(p, q) for p, q in zip(others, quiet)))  # counting changes nothing
            whole, first = other.lr_histogram(), optimizer.lr_histogram(0)
            self.assertEqual((h.elements, sum(h.eta), sum(h.step)), (whole.elements, 1250, 1250))
            self.assertEqual(h.eta, [a + b for a, b in zip(first.eta, optimizer.lr_histogram(1).eta)])
            self.assertLessEqual(h.step_min, h.step_median)
            if cls is lt.Adafactor:  # which does not read lr
                self.assertEqual((h.eta, h.step_min, h.step_max), (whole.eta, whole.step_min, whole.step_max))
                self.assertAlmostEqual(h.step_median / whole.step_median, 1, delta=0.18)
            lt.log_learning_rates(Writer(), optimizer, 3)
            copied = pickle.loads(pickle.dumps(optimizer))
            train(copied, [p for group in copied.param_groups for p in group["params"]], 1, first=3)
            train(optimizer, params, 1, first=3)
            self.assertEqual(copied.lr_histogram(), optimizer.lr_histogram())
            optimizer.collect_learning_rates(False)
            train(optimizer, params, 1, first=4)
            self.assertRaises(RuntimeError, optimizer.lr_histogram)

    def test_tensorboard(self):
        params = make_params((10, 10))
        optimizer = lt.AdaMod(params)
        train(optimizer, params, 3)
        writer = Writer()
        h = lt.log_learning_rates(writer, optimizer, 3, tag="lr")
        self.assertEqual(writer.histograms["lr/log10_eta"], (100, h.eta, 3))
        self.assertEqual(writer.histograms["lr/log10_step"], (100, h.step, 3))
        self.assertEqual(writer.scalars["lr/bounded"], h.bounded)


# ---- misuse ----


class Errors(unittest.TestCase):
    def refused(self, error, text, call):
        with self.assertRaisesRegex(error, text):
            call()

    def test_options(self):
        p = make_params((3,))
        self.refused(ValueError, "group 0: adamod: lr is -1", lambda: lt.AdaMod(p, lr=-1))
        self.refused(ValueError, "group 0: adamod: beta1 is 1", lambda: lt.AdaMod(p, betas=(1.0, 0.9)))
        self.refused(ValueError, "betas is 0.9, expected 2 numbers", lambda: lt.AdaMod(p, betas=0.9))
        self.refused(ValueError, "betas is .*, expected 2 numbers", lambda: lt.AdaMod(p, betas=(0.9, 0.9, 0.9)))
        self.refused(ValueError, "flavour.*'papers'", lambda: lt.AdaMod(p, flavour="papers"))
        self.refused(ValueError, "group 0: .*state_type is 'q8'", lambda: lt.RMSprop(p, state_type="q8"))
        self.refused(ValueError, "decay", lambda: lt.SGD(p, decay="L3"))
        self.refused(
            TypeError, "flavour is 1, expected one of paper, published, keras", lambda: lt.AdaMod(p, flavour=1)
        )
        self.refused(TypeError, "lr is '0.1', expected a number", lambda: lt.AdaMod(p, lr="0.1"))
        self.refused(TypeError, "AdaMod has no option 'lrr'", lambda: lt.AdaMod(p, lrr=1))
        self.refused(ValueError, "betas is .*, expected 2 numbers", lambda: lt.AdaMod(p, betas=("a", "b")))
        self.refused(IndexError, "group is 1, expected 0 <= group < 1", lambda: lt.AdaMod(p).lr_histogram(1))
        for cls in (lt.AdaMod, lt.AdaBound):
            self.refused(TypeError, "group 0: .*lr is None", lambda: cls(p, lr=None))
            self.refused(TypeError, "group 0: lr is 'x', expected a number", lambda: cls(p, lr="x"))
            self.refused(TypeError, "group 0: .*lr is 10+, expected a number", lambda: cls(p, lr=10**400))
            imaginary = torch.tensor(1j)
            self.refused(TypeError, "group 0: lr is a tensor of torch.complex64", lambda: cls(p, lr=imaginary))
        self.refused(TypeError, "group 0: final_lr is 'x'", lambda: lt.AdaBound(p, final_lr="x"))
        self.refused(ValueError, "empty parameter list", lambda: lt.AdaMod([]))
        self.refused(TypeError, "params argument", lambda: lt.AdaMod(p[0]))
        self.refused(ValueError, "non-leaf", lambda: lt.AdaMod([p[0] * 2]))
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'nothing'"):
            lt.AdaMod(p).step(nothing=1)

    def test_what_programs_tell_torch_optim_is_taken(self):
        """Which of its implementations to use: here there is one."""
        for cls in CLASSES:
            optimizer = cls(make_params((3,)), capturable=True, foreach=None, fused=True, differentiable=False)
            self.assertNotIn("fused", optimizer.param_groups[0])
            with self.assertRaisesRegex(ValueError, "differentiable is True, expected False: autograd"):
                cls(make_params((3,)), differentiable=True)

    def test_a_rate_that_a_scheduler_spoils(self):
        params = make_params((3,), (4,))
        optimizer = lt.AdaMod([{"params": params[:1]}, {"params": params[1:]}])
        train(optimizer, params, 1)
        before = clones(params)
        optimizer.param_groups[1]["lr"] = math.nan
        set_grads(params, 2)
        self.refused(ValueError, "group 1: adamod: lr is nan", optimizer.step)
        for p, q in zip(params, before):
            self.assertTrue(torch.equal(p, q))
        self.assertEqual(optimizer.state[params[0]]["step"], 1)

    def test_options_after_some_that_were_refused(self):
        """Those that came before the bad one were set; the old ones count again."""
        params = make_params((3,), (4,))
        others = clones(params)
        optimizer, other = lt.AdaMod(params, lr=0.5), lt.AdaMod(others, lr=0.5)
        train(optimizer, params, 2)
        train(other, others, 3)
        group = optimizer.param_groups[0]
        before = dict(group)
        group.update(lr=0.25, eps=-1)
        set_grads(params, 3)
        self.refused(ValueError, "eps is -1", optimizer.step)
        group.update(before)
        optimizer.step()
        for p, q in zip(params, others):
            self.assertTrue(torch.equal(p, q))

    def test_sparse_gradients(self):
        (a,) = make_params((3,))
        embedding = torch.nn.Embedding(10, 3, sparse=True)
        optimizer = lt.AdaMod([{"params": [a]}, {"params": [a.detach().clone().requires_grad_(), embedding.weight]}])
        set_grads([a], 1)
        embedding(torch.tensor([1, 2])).sum().backward()
        before = a.detach().clone()
        self.refused(RuntimeError, "parameter 1 of group 1 has a sparse gradient", optimizer.step)
        self.assertTrue(torch.equal(a, before))

    def test_gradients_that_do_not_fit(self):
        """PyTorch looks at a gradient's shape when it is set; data that is set later goes unseen."""
        for cls in (lt.SGD, lt.AdaMod):
            (p,) = make_params((4,))
            optimizer = cls([p])
            set_grads([p], 1)
            p.data = torch.ones(1000)
            message = r"parameter 0 of group 0 has a gradient of shape \(4,\), expected its own, \(1000,\)"
            self.refused(ValueError, message, optimizer.step)
            self.assertEqual(p.tolist(), [1.0] * 1000)
            p.data = torch.ones(2, 2)
            self.refused(ValueError, r"gradient of shape \(4,\), expected its own, \(2, 2\)", optimizer.step)
            p.data = torch.ones(4)
            optimizer.step()
            p.grad.data = torch.ones(3)
            self.refused(ValueError, r"gradient of shape \(3,\), expected its own, \(4,\)", optimizer.step)
            self.assertEqual(optimizer.state[p]["step"], 1)
        (p,) = make_params((4,))
        set_grads([p], 1)
        p.data = p.data.to(torch.complex64)
        self.refused(TypeError, "a gradient of torch.float32, expected a complex type", lt.SGD([p]).step)

    def test_groups_that_share_memory_after_a_step_that_failed(self):
        (a, b) = make_params((3,), (4,))
        optimizer = lt.AdaMod([{"params": [a]}, {"params": [torch.nn.Parameter(a.detach()), b]}])
        params = [p for group in optimizer.param_groups for p in group["params"]]
        before = a.detach().clone()
        set_grads(params, 1)
        b.grad = b.grad.to_sparse()
        self.refused(RuntimeError, "parameter 1 of group 1 has a sparse gradient", optimizer.step)
        set_grads(params, 1)
        self.refused(ValueError, "parameter 0 of group 1", optimizer.step)
        self.assertTrue(torch.equal(a, before))

    def test_names_are_in_messages(self):
        (p,) = make_params((3,))
        optimizer = lt.AdaMod([{"params": [p], "param_names": ["head.weight"]}])
        p.grad = torch.ones(3).to_sparse()
        self.refused(RuntimeError, r"parameter 0 of group 0 \('head.weight'\)", optimizer.step)

    def test_named_parameters(self):
        model = torch.nn.Linear(2, 2)
        try:
            optimizer = lt.AdaMod(model.named_parameters())
        except TypeError:
            self.skipTest("this PyTorch takes no names")
        model.bias.grad = torch.ones(2).to_sparse()
        self.refused(RuntimeError, r"parameter 1 of group 0 \('bias'\) has a sparse gradient", optimizer.step)

    def test_tensors_that_cannot_be_updated(self):
        expanded = torch.randn(3, 1).expand(3, 4).requires_grad_()
        expanded.grad = torch.ones(3, 4)
        self.refused(RuntimeError, "parameter 0 of group 0 is expanded", lt.AdaMod([expanded]).step)
        meta = torch.nn.Parameter(torch.empty(3, device="meta"))
        meta.grad = torch.empty(3, device="meta")
        self.refused(RuntimeError, "parameter 0 of group 0 is a meta tensor", lt.AdaMod([meta]).step)
        with torch.inference_mode():
            frozen = torch.nn.Parameter(torch.ones(3))
        frozen.grad = torch.ones(3)
        self.refused(RuntimeError, "parameter 0 of group 0 was made in inference mode", lt.AdaMod([frozen]).step)
        self.assertEqual(frozen.tolist(), [1.0] * 3)
        z = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))
        z.grad = torch.ones_like(z)
        self.refused(TypeError, "adafactor is for real parameters", lt.Adafactor([z]).step)
        self.refused(TypeError, "states in bf16", lt.AdaMod([z], state_type="bf16").step)
        (deep,) = make_params((1,) * 9)
        set_grads([deep], 1)
        self.refused(ValueError, "has 9 dimensions", lt.Adafactor([deep]).step)

    def test_groups_that_share_memory(self):
        """Found before anything is changed, also by the second step that is tried."""
        memory = torch.randn(10)
        a, b = torch.nn.Parameter(memory[:6]), torch.nn.Parameter(memory[4:])
        (c,) = make_params((3,))
        for groups, text in (
            ([[c, a], [b]], "param of parameter 1 of group 0 and param of parameter 0 of group 1 overlap"),
            ([[c], [a, b]], "param of parameter 0 of group 1 and param of parameter 1 of group 1 overlap"),
        ):
            optimizer = lt.AdaMod([{"params": params} for params in groups])
            set_grads([a, b, c], 1)
            before = [p.detach().clone() for p in (a, b, c)]
            for _ in range(2):
                self.refused(ValueError, text, optimizer.step)
                for p, q in zip((a, b, c), before):
                    self.assertTrue(torch.equal(p, q))
            b.grad = None
            optimizer.step()
            self.assertFalse(torch.equal(c, before[2]))
            set_grads([b], 1)
            self.refused(ValueError, text, optimizer.step)

    def test_a_rate_on_a_gpu_out_of_range_in_the_second_group(self):
        """Only the step reads it. Any tensor does for one on a GPU here."""
        params = make_params((3,), (4,))
        optimizer = lt.AdaMod([{"params": [p]} for p in params])
        train(optimizer, params, 1)
        before = params[0].detach().clone()
        optimizer._arrays[1].tensors["lr"] = torch.tensor(math.nan)
        self.refused(ValueError, "group 1: adamod: lr is nan", optimizer.step)
        self.assertTrue(torch.equal(params[0], before))

    def test_a_count_out_of_range_in_the_second_group(self):
        """Found before the first is updated."""
        for count in (-1, -5, 2**63, 2**70):
            params = make_params((3,), (4,))
            optimizer = lt.AdaMod([{"params": [p]} for p in params])
            train(optimizer, params, 1)
            before = params[0].detach().clone()
            optimizer.state[params[1]]["step"] = count
            self.refused(ValueError, f"step of parameter 0 of group 1 is {count}, expected 0 <= step", optimizer.step)
            self.assertTrue(torch.equal(params[0], before))
            self.assertEqual(optimizer.state[params[0]]["step"], 1)

    def test_counts_end_where_they_can_be_loaded(self):
        most = 2**62 - 1
        for n in (1, 40):  # of few parameters each is looked at in every step, of many only what moved
            params = make_params(*[(3,)] * n)
            optimizer = lt.AdaMod(params)
            train(optimizer, params, 4)
            for p in params:
                optimizer.state[p]["step"] = most - 1
            train(optimizer, params, 4)
            self.assertEqual({int(optimizer.state[p]["step"]) for p in params}, {most})
            again = lt.AdaMod(params)
            again.load_state_dict(optimizer.state_dict())
            train(again, params, 1)

    def test_a_count_that_is_none(self):
        (p,) = make_params((3,))
        optimizer = lt.AdaMod([p])
        train(optimizer, [p], 1)
        optimizer.state[p]["step"] = "x"
        self.refused(TypeError, "step of parameter 0 of group 0 is 'x', expected a number", optimizer.step)

    def test_parameters_that_share_memory(self):
        a = torch.nn.Parameter(torch.randn(10))
        b = torch.nn.Parameter(a.data[5:])
        set_grads([a, b], 1)
        before = a.detach().clone()
        self.refused(
            ValueError,
            "param of parameter 0 of group 0 and param of parameter 1 of group 0 overlap",
            lt.AdaMod([a, b]).step,
        )
        self.assertTrue(torch.equal(a, before))
        (c,) = make_params((3,))  # without a gradient
        self.refused(
            ValueError, "param of parameter 1 of group 0 and .* 2 of group 0 overlap", lt.AdaMod([c, a, b]).step
        )


if __name__ == "__main__":
    unittest.main()
