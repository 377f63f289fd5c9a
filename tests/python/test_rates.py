"""learning_rates(): the rates that each element had, in the last update and by group.

SPDX-License-Identifier: MIT
"""

import ctypes
import pickle
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from libadamod import _c
from support import CLASSES, clones, library_optimizer, make_params, same_bits, set_grads, train


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
            (lt.AdaShift, {"window": 20, "spatial": "none", "bound": "momental"}),
            (lt.AMSGrad, {"bound": "momental", "beta3": 0.5}),
            (lt.RMSprop, {"centered": 1, "bound": "momental", "beta3": 0.5}),
            (lt.Lion, {}),
            (lt.NAdam, {"bound": "momental"}),
            (lt.Adamax, {"bound": "momental", "beta3": 0.5}),
            (lt.AdaBelief, {"bound": "momental", "beta3": 0.5}),
            (lt.AdaBelief, {"rectify": 0}),
            (lt.AdEMAMix, {"bound": "momental"}),
            (lt.Adan, {"bound": "momental"}),
            (lt.ScheduleFreeAdamW, {"warmup_steps": 20, "bound": "momental", "beta3": 0.5}),
            (lt.ScheduleFreeSGD, {"warmup_steps": 20}),
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


if __name__ == "__main__":
    unittest.main()
