"""States in host memory. Without a GPU the host's own memory stands for what a GPU reaches: what is tested is which
tensors are made there, and that they stay there. test_cuda.py has the rest.

SPDX-License-Identifier: MIT
"""

import copy
import unittest
from unittest import mock

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from libadamod.torch import host
from support import CLASSES, clones, make_params, same_bits, train

SHAPES = ((6, 5), (7,), ())


class Fake(unittest.TestCase):
    """Every parameter seems to be on a GPU, and what host.empty has made is page-locked."""

    def setUp(self):
        self.made, self.waits = [], 0
        for name, function in (
            ("is_elsewhere", lambda p: True),
            ("empty", self.empty),
            ("is_reached", lambda t: any(t is x or t.data_ptr() == x.data_ptr() for x in self.made)),
            ("wait", self.wait),
        ):
            patch = mock.patch.object(host, name, function)
            patch.start()
            self.addCleanup(patch.stop)

    def empty(self, shape, stride, dtype):
        self.made.append(torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype))
        return self.made[-1]

    def wait(self, params):
        self.waits += any(True for _ in params)

    def assert_all_there(self, optimizer):
        for state in optimizer.state.values():
            for name, t in state.items():
                if name != "step" and t.numel():
                    self.assertTrue(host.is_reached(t), (type(optimizer).__name__, name))

    def test_every_rule(self):
        for cls in CLASSES:
            for dtype in (torch.float32, torch.bfloat16):
                params = make_params(*SHAPES, dtype=dtype)
                others = clones(params)
                optimizer, other = cls(params, offload=True), cls(others)
                train(optimizer, params, 3)
                self.assert_all_there(optimizer)
                train(other, others, 3)
                for p, q in zip(params, others):
                    self.assertTrue(same_bits(p, q), cls.__name__)

    def test_8_bits(self):
        for before in ("auto", "q8"):  # converted, and new
            (p,) = make_params((600,))
            optimizer = lt.AdaMod([p], state_type=before, min_8bit_size=0, offload=True)
            train(optimizer, [p], 2)
            optimizer.param_groups[0]["state_type"] = "q8"
            train(optimizer, [p], 2, 3)
            self.assertEqual(optimizer.state[p]["exp_avg"].dtype, torch.uint8)
            self.assert_all_there(optimizer)

    def test_on_and_off(self):
        params = make_params(*SHAPES)
        others = clones(params)
        optimizer, other = lt.AdaMod(params), lt.AdaMod(others)
        for t, on in enumerate((False, True, True, False), 1):
            optimizer.param_groups[0]["offload"] = on
            train(optimizer, params, 1, t)
            train(other, others, 1, t)
            if on:
                self.assert_all_there(optimizer)
        self.assertTrue(all(map(same_bits, params, others)))

    def test_checkpoints(self):
        params = make_params(*SHAPES)
        optimizer = lt.AdaMod(params, offload=True)
        train(optimizer, params, 2)
        self.waits = 0
        saved = copy.deepcopy(optimizer.state_dict())
        self.assertEqual(self.waits, 1)  # for the step that may still be writing them
        for offload in (False, True):  # where there is memory, a checkpoint does not know
            others = clones(params)
            other = lt.AdaMod(others, offload=offload)
            other.load_state_dict(saved)
            self.assertIs(other.param_groups[0]["offload"], offload)
            train(other, others, 2, 3)
            if offload:
                self.assert_all_there(other)
        train(optimizer, params, 2, 3)
        self.assertTrue(all(map(same_bits, params, others)))
        del saved["param_groups"][0]["offload"]  # as it was before there was such an option
        other.load_state_dict(saved)

    def test_what_else_reads_states(self):
        params = make_params(*SHAPES)
        optimizer = lt.ScheduleFreeAdamW(params, offload=True)
        train(optimizer, params, 2)
        for read in (optimizer.eval, optimizer.train, optimizer.lr_histogram, lambda: copy.deepcopy(optimizer)):
            self.waits = 0
            read()
            self.assertGreater(self.waits, 0)
        sophia = lt.Sophia(params, offload=True)
        train(sophia, params, 1)
        self.waits = 0
        sophia.update_hessian()
        self.assertGreater(self.waits, 0)


class OnTheCpu(unittest.TestCase):
    def test_it_has_no_effect(self):
        params = make_params(*SHAPES)
        others = clones(params)
        for p, options in ((params, dict(offload=True)), (others, {})):
            train(lt.AdaMod(p, **options), p, 3)
        self.assertTrue(all(map(same_bits, params, others)))


if __name__ == "__main__":
    unittest.main()
