"""Prodigy where two handles of the library have its parameters, as on two devices: d is one number for all of them.

Groups with different seeds have handles of their own, on the CPU too. The seed itself has no effect on what is here.

SPDX-License-Identifier: MIT
"""

import copy
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from support import make_params, set_grads

SHAPES = ((5, 3), (4,), (2, 3, 4), (1,))
FAST = dict(d0=1e-2)


def groups(params, seeds):
    return [{"params": params[:2], "seed": seeds[0]}, {"params": params[2:], "seed": seeds[1]}]


def run(seeds, dtype=torch.float64, steps=30, change=None, **options):
    params = make_params(*SHAPES, dtype=dtype)
    optimizer = lt.Prodigy(groups(params, seeds), **{**FAST, **options})
    for t in range(1, steps + 1):
        set_grads(params, t % 5)
        if change is not None:
            optimizer = change(optimizer, params, t) or optimizer
        optimizer.step()
    return params, optimizer


def number(optimizer, p):
    return float(optimizer.state[p]["d"])


class TwoHandles(unittest.TestCase):
    def same(self, tolerance=1e-13, **options):
        """As one handle, to a rounding error."""
        one, apart = run((0, 0), **options), run((0, 1), **options)
        self.assertEqual((len(one[1]._handles.by_key), len(apart[1]._handles.by_key)), (1, 2))
        for p, q in zip(one[0], apart[0]):
            torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)
            for name, x in one[1].state[p].items():
                torch.testing.assert_close(x, apart[1].state[q][name], rtol=tolerance, atol=tolerance)
        return one[1], one[0]

    def test_d_is_one_number(self):
        optimizer, params = self.same()
        self.assertGreater(number(optimizer, params[0]), 2 * FAST["d0"])  # it has grown
        params, optimizer = run((0, 1))
        self.assertEqual(len({f"{number(optimizer, p):.12g}" for p in params}), 1)

    def test_options(self):
        for options in (
            dict(use_bias_correction=True, safeguard_warmup=True),
            dict(weight_decay=0.1, decay="l2", maximize=True),
            dict(weight_decay=0.1, growth_rate=1.02, d_coef=0.5, beta_d=0.9, betas=(0.8, 0.95)),
            dict(clip_value=0.3, bound="momental", beta3=0.9),
            dict(betas=(0.9, 0)),
            dict(clip_norm=0.7),
        ):
            with self.subTest(**options):
                self.same(**options)

    def test_types(self):
        self.same(1e-6, dtype=torch.float32)  # d is kept in float32
        self.same(2**-8, dtype=torch.bfloat16, steps=15)
        self.same(dtype=torch.complex128)

    def test_a_rate_of_0(self):
        def change(optimizer, params, t):
            for group in optimizer.param_groups:
                group["lr"] = 0.0 if t in (1, 2, 9) else 1.0

        self.same(change=change)

    def test_gradients_that_come_and_go(self):
        """A handle may have none, or parameters that have had fewer updates, whose d is old."""

        def change(optimizer, params, t):
            for i, p in enumerate(params):
                if t < (3, 6, 9, 12)[i] or t in (15, 16) and i >= 2 or t == 20:
                    p.grad = None

        self.same(change=change)

    def test_a_scaler(self):
        def change(optimizer, params, t):
            optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(float(t % 7 == 0))
            for p in params:
                p.grad *= 8

        self.same(change=change)

    def test_checkpoints(self):
        """A loaded optimizer continues with the same bits, in float32 too, whose d is rounded in between."""
        for dtype in (torch.float64, torch.float32):

            def change(optimizer, params, t):
                if t in (2, 11):
                    other = lt.Prodigy(groups(params, (0, 1)), **FAST)
                    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
                    return other

            for p, q in zip(run((0, 1), dtype=dtype)[0], run((0, 1), dtype=dtype, change=change)[0]):
                self.assertTrue(torch.equal(p, q))


if __name__ == "__main__":
    unittest.main()
