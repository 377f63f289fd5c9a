"""The way GPUs are used, without one: every parameter through a handle of the library, which here is one on the CPU.

SPDX-License-Identifier: MIT
"""

import copy
import unittest
from unittest import mock

import find_package  # noqa: F401
import libadamod.torch as lt
import test_arrays
import test_checkpoints
import test_optimizer
import test_q8
import test_rates
import test_rules
import test_schedulers
import torch
from libadamod import _c
from libadamod.torch import arrays
from support import CLASSES, clones, make_params, same_bits, set_grads, train

PLACES = ("libadamod.torch.arrays.device_of", "libadamod.torch.optimizer.device_of")


def through(device):
    """Parameters are updated by a handle on this device."""
    patches = [mock.patch(place, lambda p: device) for place in PLACES]

    class Through(unittest.TestCase):
        def setUp(self):
            for patch in patches:
                patch.start()
                self.addCleanup(patch.stop)

    return Through


OnHandles = through("cpu")


# All that is true of an optimizer without handles is true with them.
class Groups(OnHandles, test_optimizer.Groups):
    pass


class Steps(OnHandles, test_optimizer.Steps):
    pass


class Schedulers(OnHandles, test_schedulers.Schedulers):
    pass


class Layouts(OnHandles, test_arrays.Layouts):
    pass


class Types(OnHandles, test_arrays.Types):
    pass


class Copies(OnHandles, test_optimizer.Copies):
    pass


class LearningRates(OnHandles, test_rates.LearningRates):
    pass


class AgainstTorch(OnHandles, test_rules.AgainstTorch):
    pass


class EightBits(OnHandles, test_q8.States, test_q8.Conversions):
    pass


class Checkpoints(
    OnHandles, *(x for x in vars(test_checkpoints).values() if isinstance(x, type) and issubclass(x, unittest.TestCase))
):
    pass


class Recorder:
    """A library that records the functions called. Functions that fail on the CPU succeed."""

    REFUSED = ("adamod_set_scaler", "adamod_set_device_value")

    def __init__(self, lib):
        self.lib, self.calls = lib, []

    def __getattr__(self, name):
        function = getattr(self.lib, name)

        def call(*arguments):
            self.calls.append(name)
            return 0 if name in self.REFUSED else function(*arguments)

        return call

    def take(self):
        """The calls of handles since the last time, except those that free handles of older tests."""
        other = ("adamod_free", "adamod_hyper", "adamod_state_at")
        calls, self.calls = [name for name in self.calls if not name.startswith(other)], []
        return calls


class Gone(OnHandles):
    """A parameter without a gradient, whose old memory is another's by now."""

    def move_param(self, optimizer, p):
        old, p.data = p.data, p.data.clone()
        return old

    def replace_state(self, optimizer, p):
        old = optimizer.state[p]["exp_avg"]
        optimizer.state[p]["exp_avg"] = old.clone()
        return old

    def delete_states(self, optimizer, p):
        return optimizer.state.pop(p)["exp_avg"]

    def test_memory_that_is_used_again(self):
        for settle in (1, 100):
            for go in (self.move_param, self.replace_state, self.delete_states):
                with self.subTest(go.__name__, settle=settle), mock.patch.object(arrays, "_WORTH_SETTLING", settle):
                    self.check(go)

    def check(self, go):
        params = make_params((5,), (5,), (5,))
        expected = clones(params)
        optimizer, other = lt.AdaMod(params), lt.AdaMod(expected)
        train(optimizer, params, 1)
        train(other, expected, 1)
        params[0].grad = expected[0].grad = None
        train(optimizer, params[1:], 3, first=2)
        train(other, expected[1:], 3, first=2)
        memory = go(optimizer, params[0])
        set_grads(expected[1:], 5)
        for p, q in zip(params[1:], expected[1:]):
            p.grad = q.grad.clone()
        params[1].grad = memory.copy_(expected[1].grad)
        optimizer.step(), other.step()
        self.assertTrue(all(same_bits(p, q) for p, q in zip(params, expected)))
        self.assertEqual([optimizer.state[p]["step"] for p in params[1:]], [5, 5])


class Calls(OnHandles):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(_c, "lib", Recorder(_c.lib))
        self.lib = patch.start()
        self.addCleanup(patch.stop)

    def optimizer(self, n=3, **options):
        params = make_params(*[(5 + i,) for i in range(n)])
        optimizer = lt.AdaMod(params, **options)
        train(optimizer, params, 2)
        self.lib.take()
        return optimizer, params

    def test_a_step_in_which_nothing_changes_is_one_call(self):
        optimizer, _ = self.optimizer()
        for _ in range(3):
            optimizer.step()
            self.assertEqual(self.lib.take(), ["adamod_step"])

    def test_all_that_moved_is_one_call(self):
        optimizer, params = self.optimizer()
        old = [p.grad for p in params]  # kept, so that the new ones lie elsewhere
        set_grads(params, 3)
        optimizer.step()
        self.assertEqual(self.lib.take(), ["adamod_set_arrays", "adamod_step"])
        params[1].grad, old[1] = None, params[1].grad
        params[2].data = params[2].data.clone()
        optimizer.step()
        self.assertEqual(self.lib.take(), ["adamod_set_arrays", "adamod_step"])
        self.assertEqual([optimizer.state[p]["step"] for p in params], [4, 3, 4])

    def test_an_option_is_set_when_it_changed(self):
        optimizer, _ = self.optimizer()
        optimizer.param_groups[0]["lr"] = 0.5
        optimizer.step()
        self.assertEqual(self.lib.take(), ["adamod_group_set", "adamod_step"])
        optimizer.param_groups[0]["lr"] = 0.25
        optimizer.push_options()
        self.assertEqual(self.lib.take(), ["adamod_group_set"])

    def test_a_learning_rate_that_is_read_from_a_tensor(self):
        """Any tensor does for one on a GPU here."""
        optimizer, params = self.optimizer()
        lr = optimizer._arrays[0].tensors["lr"] = torch.tensor(0.1)
        train(optimizer, params, 1, first=3)
        self.assertIn("adamod_set_device_value", self.lib.take())
        lr.fill_(0.2)
        train(optimizer, params, 1, first=4)
        self.assertNotIn("adamod_set_device_value", self.lib.take())
        old, lr.data = lr.data, torch.tensor(0.3)
        train(optimizer, params, 1, first=5)
        self.assertIn("adamod_set_device_value", self.lib.take())
        del old
        optimizer._arrays[0].tensors["lr"] = torch.tensor(0.5, dtype=torch.float16)  # has to be copied
        for t in (6, 7):
            train(optimizer, params, 1, first=t)
            self.assertEqual("adamod_set_device_value" in self.lib.take(), t == 6)
        self.assertEqual(lr.item(), torch.tensor(0.3).item())  # not into the one before
        optimizer._arrays[0].tensors["lr"] = lr
        train(optimizer, params, 1, first=8)
        self.assertIn("adamod_set_device_value", self.lib.take())

    def test_without_gradients_nothing_is_called(self):
        optimizer, params = self.optimizer()
        for p in params:
            p.grad = None
        optimizer.step()
        self.assertEqual(self.lib.take(), ["adamod_set_arrays"])
        optimizer.step()
        self.assertEqual(self.lib.take(), [])

    def test_a_state_or_type_that_changed_takes_another_handle(self):
        optimizer, params = self.optimizer()
        for change in (
            lambda: optimizer.state[params[0]].update(exp_avg=optimizer.state[params[0]]["exp_avg"].clone()),
            lambda: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())),
            lambda: optimizer.param_groups[0].update(seed=7),
            lambda: optimizer.param_groups[0].update(state_type="bf16"),
            lambda: optimizer.param_groups[0].update(state_type="q8", min_8bit_size=0),
        ):
            change()
            self.lib.take()
            optimizer.step()
            calls = self.lib.take()
            self.assertEqual(calls.count("adamod_create_on"), 1, calls)
            self.assertEqual(calls.count("adamod_add_tensor"), 3)

    def test_a_count_set_by_hand_counts(self):
        optimizer, params = self.optimizer()
        optimizer.state[params[1]]["step"] = 40
        optimizer.step()
        self.assertEqual(self.lib.take(), ["adamod_set_tensor_steps", "adamod_step"])
        self.assertEqual([optimizer.state[p]["step"] for p in params], [3, 41, 3])

    def test_rules_and_seeds_have_handles_of_their_own(self):
        a, b, c, d = make_params((5,), (6,), (7,), (8,))
        groups = [{"params": a}, {"params": b, "amsgrad": True}, {"params": c, "seed": 3}, {"params": d}]
        optimizer = lt.Adam(groups)
        train(optimizer, [a, b, c, d], 2)
        self.assertEqual(self.lib.take().count("adamod_create_on"), 3)

    def test_what_a_scaler_found_is_left_to_the_device(self):
        optimizer, params = self.optimizer()
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(0.0)
        optimizer.step()
        self.assertEqual(self.lib.take(), ["adamod_set_scaler", "adamod_step"])
        self.assertEqual(optimizer.state[params[0]]["step"], 2)  # until it is asked for
        self.assertEqual(optimizer.state_dict()["state"][0]["step"], 3)
        self.assertEqual(self.lib.take().count("adamod_all_tensor_steps"), 1)
        del optimizer.grad_scale, optimizer.found_inf
        optimizer.step()
        self.assertEqual(self.lib.take(), ["adamod_set_scaler", "adamod_step"])
        self.assertEqual(optimizer.state[params[0]]["step"], 4)

    def test_many_parameters(self):
        params = make_params(*[(3,)] * 400)
        optimizer = lt.AdaMod([{"params": params[:300]}, {"params": params[300:], "lr": 0.1}])
        set_grads(params, 1)
        optimizer.step()
        self.lib.take()
        set_grads(params, 2)
        optimizer.step()
        self.assertEqual(self.lib.take().count("adamod_set_arrays"), 1)


class SameBits(unittest.TestCase):
    def test_with_and_without_handles(self):
        """Masters, random rounding, states in bf16 and 8 bits included: the random numbers are the same."""
        in_8_bits = [rule[0] for rule in test_q8.RULES]
        for cls in CLASSES:
            choices = [{}, {"low_precision": "stochastic"}, {"state_type": "bf16", "seed": 5}]
            for options in choices + [{"state_type": "q8", "min_8bit_size": 0}] * (cls in in_8_bits):
                params = make_params((5, 3), (70,), (), (0, 3)) + make_params((40,), (8, 9), dtype=torch.bfloat16)
                others = clones(params)
                one, other = cls(params, **options), cls(others, **options)
                train(one, params, 12)
                with mock.patch(PLACES[0], lambda p: "cpu"), mock.patch(PLACES[1], lambda p: "cpu"):
                    train(other, others, 12)
                for p, q in zip(params, others):
                    self.assertTrue(same_bits(p, q), (cls.__name__, options))
                    for name, value in one.state[p].items():
                        if name != "step":
                            self.assertTrue(same_bits(value, other.state[q][name]), (cls.__name__, options, name))


class NoGpu(through("cuda:77")):
    def test_the_parameter_and_the_reason_are_named(self):
        """Whether there are a library, a driver and a GPU or not: there is no such device."""
        (p,) = make_params((5,))
        before = p.detach().clone()
        optimizer = lt.AdaMod([p])
        set_grads([p], 1)
        with self.assertRaisesRegex(RuntimeError, "parameter 0 of group 0 is on cuda:77: cuda"):
            optimizer.step()
        self.assertTrue(torch.equal(p, before))


if __name__ == "__main__":
    unittest.main()
