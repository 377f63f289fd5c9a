"""The rules' arithmetic: against torch.optim, the published formula, and the library's own optimizer.

SPDX-License-Identifier: MIT
"""

import contextlib
import copy
import inspect
import math
import os
import re
import unittest

import find_package  # noqa: F401
import libadamod
import libadamod.numpy as ln
import libadamod.torch as lt
import numpy as np
import torch
from libadamod import _c
from libadamod.torch.optimizer import _LIBRARY_NAMES
from published import PublishedAdaMod
from support import CLASSES, clones, library_optimizer, make_params, set_grads, train

SHAPES = [(7, 5), (33,), (), (2, 3, 4, 5)]
BETAS = {"betas": (0.8, 0.95)}

# Our class, its arguments, torch.optim's class, its arguments.
AGAINST_TORCH = [
    ("Adam", {}, "Adam", {}),
    (
        "Adam",
        dict(lr=1e-2, eps=1e-4, weight_decay=0.1, **BETAS),
        "Adam",
        dict(lr=1e-2, eps=1e-4, weight_decay=0.1, **BETAS),
    ),
    ("Adam", dict(amsgrad=True, weight_decay=0.1), "Adam", dict(amsgrad=True, weight_decay=0.1)),
    ("Adam", dict(maximize=True), "Adam", dict(maximize=True)),
    ("AdamW", {}, "AdamW", {}),
    ("AdamW", dict(lr=1e-2, weight_decay=0.3, amsgrad=True), "AdamW", dict(lr=1e-2, weight_decay=0.3, amsgrad=True)),
    ("AdamW", dict(maximize=True), "AdamW", dict(maximize=True)),
    ("AMSGrad", dict(lr=1e-2), "Adam", dict(lr=1e-2, amsgrad=True)),
    ("SGD", dict(lr=0.1), "SGD", dict(lr=0.1)),
    ("SGD", dict(lr=0.1, momentum=0.9, weight_decay=0.01), "SGD", dict(lr=0.1, momentum=0.9, weight_decay=0.01)),
    ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.5), "SGD", dict(lr=0.1, momentum=0.9, dampening=0.5)),
    ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True), "SGD", dict(lr=0.1, momentum=0.9, nesterov=True)),
    ("SGD", dict(lr=0.1, momentum=0.9, maximize=True), "SGD", dict(lr=0.1, momentum=0.9, maximize=True)),
    ("Adagrad", {}, "Adagrad", {}),
    (
        "Adagrad",
        dict(lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.1),
        "Adagrad",
        dict(lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.1),
    ),
    ("RMSprop", {}, "RMSprop", {}),
    (
        "RMSprop",
        dict(alpha=0.9, momentum=0.8, weight_decay=0.1),
        "RMSprop",
        dict(alpha=0.9, momentum=0.8, weight_decay=0.1),
    ),
    ("RMSprop", dict(centered=True), "RMSprop", dict(centered=True)),
    ("RMSprop", dict(centered=True, momentum=0.5, lr=1e-3), "RMSprop", dict(centered=True, momentum=0.5, lr=1e-3)),
    ("Adadelta", {}, "Adadelta", {}),
    ("Adadelta", dict(lr=0.5, rho=0.95, weight_decay=0.1), "Adadelta", dict(lr=0.5, rho=0.95, weight_decay=0.1)),
    ("Adamax", {}, "Adamax", {}),
    ("Adamax", dict(lr=1e-2, weight_decay=0.1, **BETAS), "Adamax", dict(lr=1e-2, weight_decay=0.1, **BETAS)),
    ("RAdam", {}, "RAdam", {}),
    (
        "RAdam",
        dict(lr=1e-2, weight_decay=0.1, betas=(0.9, 0.9)),
        "RAdam",
        dict(lr=1e-2, weight_decay=0.1, betas=(0.9, 0.9)),
    ),
]


def worst(a, b):
    """The largest difference, relative to the largest magnitude."""
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-300))


class AgainstTorch(unittest.TestCase):
    def compare(self, ours, theirs, params, others, steps, bound):
        for t in range(1, steps + 1):
            set_grads(params, t)
            set_grads(others, t)
            ours.step()
            theirs.step()
        for p, q in zip(params, others):
            self.assertLessEqual(worst(p, q), bound)
            for name, value in theirs.state[q].items():
                if name != "step" and isinstance(value, torch.Tensor):
                    self.assertLessEqual(worst(ours.state[p][name], value), bound, name)

    def test_f64_agrees_to_1e_12(self):
        for name, arguments, torch_name, torch_arguments in AGAINST_TORCH:
            with self.subTest(name, **arguments):
                params = make_params(*SHAPES, dtype=torch.float64)
                others = clones(params)
                self.compare(
                    getattr(lt, name)(params, **arguments),
                    getattr(torch.optim, torch_name)(others, **torch_arguments),
                    params,
                    others,
                    60,
                    1e-12,
                )

    def test_f32_agrees_to_a_few_last_bits_in_every_step(self):
        """Both continue from our state, so that differences do not add up; of an array's largest magnitude."""
        for name, arguments, torch_name, torch_arguments in AGAINST_TORCH:
            with self.subTest(name, **arguments):
                params = make_params(*SHAPES)
                ours = getattr(lt, name)(params, **arguments)
                train(ours, params, 20)
                others = clones(params)
                theirs = getattr(torch.optim, torch_name)(others, **torch_arguments)
                theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
                self.compare(ours, theirs, params, others, 1, 4 * 2.0**-23)

    def test_adamod_is_the_published_formula(self):
        arguments = dict(lr=1e-2, betas=(0.8, 0.95), beta3=0.99, eps=1e-7, weight_decay=0.1)
        for dtype, steps, bound in ((torch.float64, 200, 1e-12), (torch.float32, 1, 4 * 2.0**-23)):
            params = make_params(*SHAPES, dtype=dtype)
            ours = lt.AdaMod(params, flavour="published", **arguments)
            others = clones(params)
            theirs = PublishedAdaMod(others, **arguments)
            if steps == 1:
                train(ours, params, 30)
                for p, q in zip(params, others):
                    q.data.copy_(p.data)
                theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
            self.compare(ours, theirs, params, others, steps, bound)

    def test_adamod_is_the_papers_formula(self):
        (p,) = make_params((50,), dtype=torch.float64)
        optimizer = lt.AdaMod([p], lr=1e-2, betas=(0.8, 0.95), beta3=0.99, eps=1e-7, weight_decay=0.1)
        q, m, v, s = p.detach().clone(), *(torch.zeros(50, dtype=torch.float64) for _ in range(3))
        for t in range(1, 101):
            set_grads([p], t)
            optimizer.step()
            q -= 1e-2 * 0.1 * q
            m = 0.8 * m + 0.2 * p.grad
            v = 0.95 * v + 0.05 * p.grad**2
            eta = 1e-2 / ((v / (1 - 0.95**t)).sqrt() + 1e-7)
            s = 0.99 * s + 0.01 * eta
            q -= torch.min(eta, s) * m / (1 - 0.8**t)
        self.assertLessEqual(worst(p, q), 1e-12)

    def test_adamod_without_beta3_is_adamw(self):
        params = make_params(*SHAPES)
        others = clones(params)
        train(lt.AdaMod(params, beta3=0, weight_decay=0.1), params, 10)
        train(lt.AdamW(others, weight_decay=0.1), others, 10)
        for p, q in zip(params, others):
            self.assertTrue(torch.equal(p, q))


TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "rule_table.inc.h")


def number_or_word(text):
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def options_to_try():
    """By rule, options that are not the defaults: those that the table of rules has for Python, or its first ones."""
    with open(TABLE, encoding="utf-8") as f:
        rows = re.split(r"\.name = ", f.read())[1:]
    found = {}
    for row in rows:
        text = (re.search(r'PYTHON\(\s*((?:"[^"]*"\s*)+)\)', row) or re.search(r'SETS\(\s*("[^"]*")', row))[1]
        words = "".join(re.findall(r'"([^"]*)"', text)).split()
        found[re.match(r'"(\w+)"', row)[1]] = {k: number_or_word(v) for k, v in (word.split("=") for word in words)}
    return found


OPTIONS = options_to_try()


def betas_of(cls, options):
    """The class's betas as the options have them. Sophia's second is none of the library's."""
    names = {**_LIBRARY_NAMES, **cls._names}["betas"]
    return tuple(options[name] for name in names) + (0.99,) * (len(names) == 1)


def class_of(rule):
    return next(c for c in CLASSES if c.rule == rule and c is not lt.AdamW)


def arguments_of(rule, options):
    cls = class_of(rule)
    named = {**_LIBRARY_NAMES, **cls._names}
    ours = {theirs[0]: key for key, theirs in named.items() if len(theirs) == 1 and key != "betas"}
    arguments = {ours.get(k, k): v for k, v in options.items()}
    names = libadamod.options(rule)
    if rule == "sgd":
        arguments.setdefault("lr", names["lr"].value)
    if "betas" in inspect.signature(cls).parameters:
        arguments["betas"] = betas_of(cls, {**{name: o.value for name, o in names.items()}, **options})
        arguments = {k: v for k, v in arguments.items() if k not in named["betas"]}
    arguments.setdefault("decay", names["decay"].value)
    arguments.setdefault("weight_decay", 0)  # StableAdamW's is not
    return cls, arguments


class AgainstTheLibrary(unittest.TestCase):
    """The Python layer must not change a bit."""

    def handle_run(self, rule, options, arrays, grads):
        """adamod_step, through the handle that owns its states."""
        with library_optimizer(rule, options, [torch.from_numpy(a) for a in arrays]) as (handle, fixed):
            for step in grads:
                for to, g in zip(fixed, step):
                    to.copy_(torch.from_numpy(g))
                _c.check(_c.lib.adamod_step(handle))

    def test_all_rules_have_a_class(self):
        self.assertEqual({c.rule for c in CLASSES}, set(libadamod.rules()))
        self.assertEqual(set(OPTIONS), set(libadamod.rules()))

    def test_numpy_and_torch_give_the_librarys_bits(self):
        rng = np.random.default_rng(1)
        start = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]
        grads = [[rng.normal(size=shape).astype(np.float32) for shape in SHAPES] for _ in range(12)]
        for rule in libadamod.rules():
            for options in ({}, OPTIONS[rule]):
                with self.subTest(rule, **options):
                    expected = [a.copy() for a in start]
                    self.handle_run(rule, options, expected, grads)
                    plain = [a.copy() for a in start]
                    states = [ln.states(rule, a, **options) for a in plain]
                    for t, step in enumerate(grads, 1):
                        ln.update(rule, plain, step, states, t, **options)
                    cls, arguments = arguments_of(rule, options)
                    params = [torch.nn.Parameter(torch.tensor(a)) for a in start]
                    optimizer = cls(params, **arguments)
                    for step in grads:
                        for p, g in zip(params, step):
                            p.grad = torch.tensor(g)
                        optimizer.step()
                    for a, b, p, state in zip(expected, plain, params, states):
                        self.assertTrue(np.array_equal(a, b))
                        self.assertTrue(np.array_equal(a, p.detach().numpy()))
                        for name, value in state.items():
                            self.assertTrue(np.array_equal(value, optimizer.state[p][name].numpy()), name)

    def test_defaults_are_the_librarys_or_torchs(self):
        for cls in CLASSES:
            group = cls(make_params((2,))).param_groups[0]
            known = libadamod.options(cls.rule)
            for key, value in group.items():
                if key == "betas":
                    self.assertEqual(value, betas_of(cls, {name: o.value for name, o in known.items()}))
                elif key in known and (cls.__name__, key) not in {
                    ("Adam", "decay"),
                    ("RAdam", "decay"),
                    ("NAdam", "decay"),
                    ("Adamax", "decay"),
                    ("ADOPT", "decay"),  # its authors'
                    ("AdEMAMix", "alpha_warmup"),
                    ("AdamW", "weight_decay"),
                    ("StableAdamW", "weight_decay"),
                    ("Muon", "weight_decay"),
                    ("SOAP", "weight_decay"),  # its authors'
                    ("SOAP", "shampoo_beta"),
                    ("Sophia", "weight_decay"),  # its authors'
                    ("SGD", "lr"),
                    (cls.__name__, "min_8bit_size"),  # bitsandbytes'
                    *(("Adafactor", name) for name in ("lr", "decay_rate", "beta1")),  # as Transformers has them
                }:
                    self.assertEqual(value, known[key].value, (cls, key))

    def test_threads_do_not_change_a_bit(self):
        results = []
        before = torch.get_num_threads()
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            params = make_params((300, 300), (70000,))
            train(lt.AdaMod(params), params, 3)
            results.append(params)
        torch.set_num_threads(before)
        for params in results[1:]:
            for p, q in zip(results[0], params):
                self.assertTrue(torch.equal(p, q))

    def test_adabound_final_lr_follows_the_schedule(self):
        """As in the authors' package: final_lr * lr / base_lr."""
        params = make_params((20,), dtype=torch.float64)
        others = clones(params)
        optimizer = lt.AdaBound(params, lr=1e-2, final_lr=0.1, gamma=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.1)
        p, m, v = others[0].detach(), torch.zeros(20, dtype=torch.float64), torch.zeros(20, dtype=torch.float64)
        for t in range(1, 13):
            set_grads(params, t)
            lr = optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step()
            g = params[0].grad
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            final = 0.1 * lr / 1e-2
            eta = lr * math.sqrt(1 - 0.999**t) / (1 - 0.9**t) / (v.sqrt() + 1e-8)
            p -= eta.clamp(final * (1 - 1 / (0.1 * t + 1)), final * (1 + 1 / (0.1 * t))) * m
        self.assertLessEqual(worst(params[0], p), 1e-12)


class Numpy(unittest.TestCase):
    def test_f64_and_f16(self):
        for dtype in (np.float64, np.float16):
            w = np.ones((4, 3), dtype)
            state = ln.states("adamod", w, beta3=0.5)
            self.assertEqual("master" in state, dtype == np.float16)
            for t in range(1, 20):
                ln.update("adamod", w, w.copy(), state, t, lr=0.1, beta3=0.5)
            self.assertTrue((w < 0.5).all())

    def test_norm(self):
        a, b = np.full(3, 2.0, np.float32), np.full((2, 2), 1e200)
        self.assertAlmostEqual(ln.norm(a), math.sqrt(12), places=6)
        self.assertAlmostEqual(ln.norm([b, b]) / 1e200, math.sqrt(8), places=12)
        self.assertTrue(math.isinf(ln.norm(np.array([1.0, np.inf]))))

    def test_errors(self):
        w = np.ones((4, 3), np.float32)
        state = ln.states("adam", w)
        for error, text, call in [
            (ValueError, "no rule 'adamm'", lambda: ln.update("adamm", w, w, state, 1)),
            (ValueError, "adam has no option 'betas'", lambda: ln.update("adam", w, w, state, 1, betas=0.9)),
            (ValueError, "lr is -1", lambda: ln.update("adam", w, w.copy(), state, 1, lr=-1)),
            (ValueError, "grad has shape", lambda: ln.update("adam", w, w.T.copy(), state, 1)),
            (ValueError, "param is not contiguous", lambda: ln.update("adam", w.T, w.T, state, 1)),
            (ValueError, "^param and grad overlap", lambda: ln.update("adam", w, w, state, 1)),
            (
                ValueError,
                "param of array 0 and param of array 1 overlap",
                lambda: ln.update("adam", [w, w], [w.copy(), w.copy()], [state, ln.states("adam", w)], 1),
            ),
            (ValueError, "state has no exp_avg", lambda: ln.update("adam", w, w.copy(), {}, 1)),
            (ValueError, "state has exp_avg_sq, which lion does not", lambda: ln.update("lion", w, w.copy(), state, 1)),
            (ValueError, "^step is 0", lambda: ln.update("adam", w, w.copy(), state, 0)),
            (TypeError, "param is int64", lambda: ln.update("adam", np.ones(3, int), w, state, 1)),
            (TypeError, "param 0 is list", lambda: ln.update("adam", [[1.0]], [w], [state], 1)),
            (ValueError, "1 parameters, 2 gradients", lambda: ln.update("adam", [w], [w, w], [state], 1)),
            (
                ValueError,
                "exp_avg is float64",
                lambda: ln.update("adam", w, w.copy(), {**state, "exp_avg": np.zeros((4, 3))}, 1),
            ),
        ]:
            with self.assertRaisesRegex(error, text):
                call()
        self.assertTrue((w == 1).all())


if __name__ == "__main__":
    unittest.main()
