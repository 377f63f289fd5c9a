"""Other packages' optimizers, where they are installed: the same formula step by step, and checkpoints both ways.

SPDX-License-Identifier: MIT
"""

import importlib
import itertools
import unittest

import find_package  # noqa: F401
import libadamod.numpy as ln
import libadamod.torch as lt
import numpy as np
import torch
from support import clones, make_params, set_grads, train
from test_checkpoints import through_a_file

SHAPES = [(7, 5), (33,), (), (2, 3, 4, 5), (1, 6), (40, 1)]


def imported(module):
    """A package, if it can be imported; some have faults of their own with this PyTorch."""
    try:
        return importlib.import_module(module)
    except Exception:
        return None


def worst(params, others):
    """The largest difference of any parameter, relative to its largest magnitude."""
    pairs = [(p.detach().double(), q.detach().double()) for p, q in zip(params, others)]
    return max(float((p - q).abs().max() / q.abs().max()) for p, q in pairs)


def both(ours, theirs, params, others, steps, first=1):
    """Steps of both; returns the largest difference after any of them."""
    most = 0.0
    for t in range(first, first + steps):
        set_grads(params, t)
        set_grads(others, t)
        ours.step()
        theirs.step()
        most = max(most, worst(params, others))
    return most


class AdafactorsArguments(unittest.TestCase):
    def test_they_are_the_librarys_by_other_names(self):
        arguments = dict(eps=(1e-20, 0.5), clip_threshold=0.7, decay_rate=-0.6, beta1=None, weight_decay=0.1)
        options = dict(eps1=1e-20, eps2=0.5, clip_threshold=0.7, decay_rate=0.6, beta1=0, weight_decay=0.1)
        for given in (arguments, dict(arguments, decay_rate=0.6, beta1=0)):
            params = make_params((7, 5), (6,))
            arrays = [p.detach().numpy().copy() for p in params]
            states = [ln.states("adafactor", a, **options) for a in arrays]
            optimizer = lt.Adafactor(params, **given)
            for t in range(1, 6):
                set_grads(params, t)
                optimizer.step()
                ln.update("adafactor", arrays, [p.grad.numpy() for p in params], states, t, **options)
            for p, a in zip(params, arrays):
                self.assertTrue(np.array_equal(p.detach().numpy(), a))

    def test_what_cannot_be(self):
        p = make_params((3,))
        for text, arguments in (
            ("lr is 0.1, and relative_step=True computes it", dict(lr=0.1)),
            ("warmup_init=True is a part of relative_step=True", dict(lr=0.1, relative_step=False, warmup_init=True)),
            ("eps is 0.001, expected 2 numbers", dict(eps=1e-3)),
        ):
            with self.assertRaisesRegex(ValueError, text):
                lt.Adafactor(p, **arguments)
        with self.assertRaisesRegex(TypeError, "lr is None, expected a number"):
            lt.Adafactor(p, relative_step=False)

    def test_checkpoints_with_two_epsilons(self):
        """As they were saved before eps was a pair."""
        p = make_params((4, 3))
        saved = lt.Adafactor(p).state_dict()
        group = saved["param_groups"][0]
        del group["eps"]
        group.update(eps1=1e-20, eps2=0.5, lr=1e-3, decay_rate=0.8, beta1=0)
        optimizer = lt.Adafactor(p)
        optimizer.load_state_dict(saved)
        self.assertEqual(optimizer.param_groups[0]["eps"], (1e-20, 0.5))
        train(optimizer, p, 1)


transformers = imported("transformers.optimization")


@unittest.skipUnless(hasattr(transformers, "Adafactor"), "there is no Adafactor of Transformers")
class TransformersAdafactor(unittest.TestCase):
    def combinations(self):
        """All that its constructor takes."""
        for relative, scale, warmup, beta1, decay in itertools.product((True, False), repeat=5):
            if warmup and not relative:
                continue
            yield dict(
                lr=None if relative else 1e-2,
                relative_step=relative,
                scale_parameter=scale,
                warmup_init=warmup,
                beta1=0.9 if beta1 else None,
                weight_decay=0.1 if decay else 0.0,
            )
        yield dict(eps=(1e-10, 0.5), clip_threshold=0.3, decay_rate=-0.5)
        yield dict(beta1=0.0)

    def test_every_step_agrees_to_1e_13(self):
        for arguments in self.combinations():
            with self.subTest(**arguments):
                params = make_params(*SHAPES, dtype=torch.float64)
                others = clones(params)
                ours, theirs = lt.Adafactor(params, **arguments), transformers.Adafactor(others, **arguments)
                self.assertLessEqual(both(ours, theirs, params, others, 30), 1e-13)

    def test_checkpoints_both_ways(self):
        for arguments in self.combinations():
            with self.subTest(**arguments):
                params = make_params(*SHAPES, dtype=torch.float64)
                others = clones(params)
                theirs = transformers.Adafactor(params, **arguments)
                train(theirs, params, 5)
                for p, q in zip(params, others):
                    q.data.copy_(p.data)
                ours = lt.Adafactor(others)
                ours.load_state_dict(through_a_file(theirs.state_dict()))
                self.assertLessEqual(both(ours, theirs, others, params, 5, first=6), 1e-13)
                back = transformers.Adafactor(clones(others))
                params = back.param_groups[0]["params"]
                back.load_state_dict(through_a_file(ours.state_dict()))
                self.assertLessEqual(both(ours, back, others, params, 5, first=11), 1e-13)

    def test_its_schedule_tells_the_learning_rate(self):
        params = make_params((7, 5), (3,))
        others = clones(params)
        arguments = dict(scale_parameter=True, relative_step=True, warmup_init=True, lr=None)
        ours, theirs = lt.Adafactor(params, **arguments), transformers.Adafactor(others, **arguments)
        schedules = [transformers.AdafactorSchedule(optimizer) for optimizer in (ours, theirs)]
        for t in range(1, 6):
            both(ours, theirs, params, others, 1, first=t)
            (mine,), (their,) = ([float(x) for x in s.get_lr()] for s in schedules)
            self.assertAlmostEqual(mine, their, delta=1e-4 * their)
            for schedule in schedules:
                schedule.step()

    def test_with_bfloat16_parameters(self):
        """Theirs have no master: within the rounding of the parameter."""
        params = make_params((7, 5), dtype=torch.bfloat16)
        others = clones(params)
        ours, theirs = lt.Adafactor(params), transformers.Adafactor(others)
        self.assertLessEqual(both(ours, theirs, params, others, 5), 2 * 2.0**-8)


@unittest.skipUnless(hasattr(torch.optim, "Adafactor"), "this PyTorch has no Adafactor")
class TorchAdafactor(unittest.TestCase):
    def compare(self, ours, theirs, bound):
        params = make_params(*SHAPES, dtype=torch.float64)
        others = clones(params)
        self.assertLessEqual(both(ours(params), theirs(others), params, others, 60), bound)

    def test_without_relative_step(self):
        """While lr < 1 / sqrt(t), and but for weight decay."""
        self.compare(
            lambda p: lt.Adafactor(p, lr=1e-3, relative_step=False),
            lambda p: torch.optim.Adafactor(p, lr=1e-3),
            1e-13,
        )

    def test_with_relative_step(self):
        """Its lr is then what ours has as 1e-2, which is its default."""
        self.compare(lambda p: lt.Adafactor(p), lambda p: torch.optim.Adafactor(p), 1e-13)


ports = imported("pytorch_optimizer")


@unittest.skipUnless(hasattr(ports, "AdaShift"), "there is no pytorch_optimizer")
class PytorchOptimizer(unittest.TestCase):
    def compare(self, ours, theirs, bound, steps=60):
        params = make_params(*SHAPES, dtype=torch.float64)
        others = clones(params)
        self.assertLessEqual(both(ours(params), theirs(others), params, others, steps), bound)

    def test_adashift(self):
        for window in (1, 3, 10):
            arguments = dict(lr=1e-2, betas=(0.8, 0.95))
            for spatial, reduce in (("max", torch.max), ("none", None)):
                with self.subTest(window=window, spatial=spatial):
                    self.compare(
                        lambda p: lt.AdaShift(p, window=window, spatial=spatial, **arguments),
                        lambda p: ports.AdaShift(p, keep_num=window, reduce_func=reduce, **arguments),
                        1e-14,
                    )

    def test_adamod(self):
        for debias, flavour in ((False, "published"), (True, "adamd")):
            self.compare(
                lambda p: lt.AdaMod(p, betas=(0.9, 0.99), beta3=0.9, lr=1e-2, flavour=flavour),
                lambda p: ports.AdaMod(p, betas=(0.9, 0.99, 0.9), lr=1e-2, adam_debias=debias),
                1e-13,
            )


if __name__ == "__main__":
    unittest.main()
