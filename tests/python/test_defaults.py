"""A program's default for new tensors, a type (torch.set_default_dtype) or a device (torch.set_default_device), changes
nothing: the optimizers say of each tensor that they make what it is, since the library is given its address.

SPDX-License-Identifier: MIT
"""

import contextlib
import unittest

import find_package  # noqa: F401
import libadamod
import libadamod.torch as lt
import torch
from support import CLASSES, clones, make_params, set_grads

STEPS = 6


@contextlib.contextmanager
def default_type(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


DEFAULTS = {"float64": lambda: default_type(torch.float64), "bfloat16": lambda: default_type(torch.bfloat16)}
if hasattr(torch, "set_default_device"):  # any other device than that of the parameters; this one is everywhere
    DEFAULTS["meta"] = lambda: torch.device("meta")


def results(make, defaults, change):
    """The results of a run under a program's defaults for new tensors: parameters, states, rates."""
    params = make_params((20, 15), (7,), (300,))
    optimizer = make(params)
    for t in range(1, STEPS + 1):
        set_grads(params, t)
        with defaults():
            change(optimizer, t)
            optimizer.step()
    with defaults():
        optimizer.collect_learning_rates()
        optimizer.step()
        rates = optimizer.lr_histogram()
        saved = optimizer.state_dict()
        copied = clones(params)
        other = make(copied)
        other.load_state_dict(saved)
    for p, q in zip(params, copied):
        q.grad = p.grad.clone()
    with defaults():
        other.step()
    states = [t for state in saved["state"].values() for name, t in sorted(state.items()) if torch.is_tensor(t)]
    return [p.detach() for p in (*params, *copied)] + states, (rates.eta, rates.step, rates.step_median)


class Defaults(unittest.TestCase):
    def same(self, make, change=lambda optimizer, t: None):
        expected, rates = results(make, contextlib.nullcontext, change)
        for name, defaults in DEFAULTS.items():
            with self.subTest(default=name):
                found, other = results(make, defaults, change)
                self.assertEqual(len(found), len(expected))
                for one, two in zip(found, expected):
                    self.assertEqual((one.dtype, one.device), (two.dtype, two.device))
                    self.assertTrue(torch.equal(one, two))
                self.assertEqual(other, rates)

    def test_every_class(self):
        for cls in CLASSES:
            with self.subTest(cls.__name__):
                self.same(cls)

    def test_states_in_8_bits(self):
        def change(optimizer, t):
            for group in optimizer.param_groups:
                group["state_type"] = "q8" if t in (1, 3, 4) else "auto"

        for rule in libadamod.rules():
            if "q8" in libadamod.options(rule)["state_type"].choices and libadamod._c.rule_info(rule).q8_states:
                with self.subTest(rule):
                    self.same(lambda p, rule=rule: lt.create(rule, p, min_8bit_size=10), change)

    def test_clipping_and_scaling(self):
        def change(optimizer, t):
            optimizer.grad_scale = torch.tensor(2.0, dtype=torch.float32, device="cpu")
            optimizer.found_inf = torch.tensor(0.0, dtype=torch.float32, device="cpu")

        for cls in (lt.AdaMod, lt.Prodigy, lt.LAMB):
            with self.subTest(cls.__name__):
                self.same(lambda p, cls=cls: cls(p, clip_norm=0.5), change)


if __name__ == "__main__":
    unittest.main()
