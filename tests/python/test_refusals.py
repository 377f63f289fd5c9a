"""Values handed over by mistake are refused in a line that names them and what was expected; no value is silently taken
for another.

SPDX-License-Identifier: MIT
"""

import copy
import sys
import threading
import unittest
from functools import partial

import find_package  # noqa: F401
import libadamod
import libadamod.torch as lt
import torch
from support import CLASSES, clones, make_params, set_grads, train

try:
    import numpy as np
    from libadamod import numpy as arrays
except ImportError:
    np = None


class Refusals(unittest.TestCase):
    def refused(self, error, text, call):
        with self.assertRaisesRegex(error, text) as caught:
            call()
        self.assertNotIn("\n", str(caught.exception))

    def stepped(self, n=1, cls=lt.AdaMod, **options):
        params = make_params(*[(3,)] * n)
        optimizer = cls(params, **options)
        train(optimizer, params, 4)
        return params, optimizer

    def test_parameters(self):
        self.refused(TypeError, r"params is Linear, expected tensors or dicts .*: use its parameters\(\)", lambda: lt.AdaMod(torch.nn.Linear(2, 2)))
        self.refused(TypeError, "params is NoneType, expected tensors or dicts", lambda: lt.AdaMod(None))
        self.refused(ValueError, "group 0 has no params, only lr", lambda: lt.AdaMod([{"lr": 1}]))
        many = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2))])
        self.assertEqual(len(lt.AdaMod(many).param_groups[0]["params"]), 1)

    def test_parameters_of_a_group_that_was_changed(self):
        for n in (1, 12):  # of many, a step only looks at what moved
            params, optimizer = self.stepped(n)
            group = optimizer.param_groups[0]
            group["params"] = [*params, 3]
            self.refused(TypeError, f"parameter {n} of group 0 is int, expected a tensor", optimizer.step)
            group["params"] = (p for p in params)
            self.refused(TypeError, "group 0: params is generator, expected a list", optimizer.step)
            group["params"] = params[1:]
            optimizer.step()
            self.refused(ValueError, r"a state of a tensor of shape \(3,\) that is in no group: .* delete", optimizer.state_dict)
            del optimizer.state[params[0]]
            self.assertEqual(len(optimizer.state_dict()["state"]), n - 1)

    def test_options_without_a_value(self):
        meta = torch.tensor(0.5, device="meta")
        for cls in CLASSES:
            options = {"relative_step": False} if cls is lt.Adafactor else {}
            self.refused(ValueError, "group 0: lr is a meta tensor, .*expected a number", lambda: cls(make_params((3,)), lr=meta, **options))
        self.refused(ValueError, "group 0: betas is .*, expected 2 numbers", lambda: lt.AdaMod(make_params((3,)), betas=(meta, 0.9)))
        self.refused(TypeError, "clip_norm is .*, expected a number", lambda: lt.AdaMod(make_params((3,)), clip_norm=meta))
        self.refused(TypeError, "group 0: offload is 'no', expected True or False", lambda: lt.AdaMod(make_params((3,)), offload="no"))
        for key in ("lr", "betas", "weight_decay"):
            params, optimizer = self.stepped()
            before = clones(params)
            del optimizer.param_groups[0][key]
            self.refused(ValueError, f"group 0 has no '{key}', an option of AdaMod", optimizer.step)
            self.assertTrue(torch.equal(params[0], before[0]))

    def test_differentiable_in_a_group(self):
        group = {"params": make_params((3,)), "differentiable": True}
        self.refused(ValueError, "differentiable is True, expected False", lambda: lt.AdaMod([group]))

    def test_keys_of_a_group_that_are_no_strings(self):
        optimizer = lt.AdaMod([{"params": make_params((3,)), 5: "mine"}])
        self.assertEqual(optimizer.param_groups[0][5], "mine")

    @unittest.skipIf(np is None, "numpy is not installed")
    def test_a_rate_that_changes_in_place(self):
        """As a tensor, an array of numpy may do so."""
        rate = np.array(0.5)
        params, others = make_params((3,)), make_params((3,))
        optimizer, other = lt.SGD(params, lr=rate), lt.SGD(others, lr=0.5)
        for value in (0.5, 0.25, 0.125):
            rate[...] = value
            other.param_groups[0]["lr"] = value
            train(optimizer, params, 2)
            train(other, others, 2)
            self.assertTrue(torch.equal(params[0], others[0]), value)

    def test_steps(self):
        params, optimizer = self.stepped()
        before = clones(params)
        self.refused(TypeError, "closure is 5, expected a function", lambda: optimizer.step(5))
        self.refused(TypeError, "group is '0', expected its number", lambda: optimizer.lr_histogram("0"))
        self.assertTrue(torch.equal(params[0], before[0]))

    def test_states(self):
        sparse = torch.zeros(3).to_sparse()
        for n in (1, 12):
            for name, value, error, text in (
                ("exp_avg", torch.zeros(3, device="meta"), ValueError, "exp_avg of parameter 0 of group 0 is a meta tensor"),
                ("exp_avg", sparse, TypeError, "exp_avg of .* is torch.float32 in layout torch.sparse_coo, expected a dense"),
                ("exp_avg", torch.zeros(3, dtype=torch.int64), TypeError, "exp_avg of .* is torch.int64 .*expected a dense"),
                ("exp_avg", torch.zeros(3, dtype=torch.bool), TypeError, "exp_avg of .* is torch.bool .*expected a dense"),
                ("step", torch.tensor(2.5), ValueError, "step of parameter 0 of group 0 is 2.5, expected a whole number"),
                ("step", "3", ValueError, "step of parameter 0 of group 0 is '3', expected a whole number"),
            ):
                params, optimizer = self.stepped(n)
                before = clones(params)
                optimizer.state[params[0]][name] = value
                self.refused(error, text, optimizer.step)
                self.assertTrue(all(map(torch.equal, params, before)))
            params, optimizer = self.stepped(n)
            optimizer.state[params[0]] = None
            self.refused(TypeError, "the state of parameter 0 of group 0 is NoneType, expected a dict", optimizer.step)

    @unittest.skipUnless(hasattr(torch.Tensor, "untyped_storage"), "this PyTorch cannot free a storage so")
    def test_memory_that_was_freed(self):
        for n in (1, 12):
            params, optimizer = self.stepped(n)
            optimizer.state[params[0]]["exp_avg"].untyped_storage().resize_(0)
            self.refused(RuntimeError, "the memory of exp_avg of parameter 0 of group 0 was freed", optimizer.step)
            params, optimizer = self.stepped(n)
            params[0].untyped_storage().resize_(0)
            self.refused(RuntimeError, "the memory of parameter 0 of group 0 was freed", optimizer.step)

    def test_types_that_are_no_types_of_parameters(self):
        p = torch.nn.Parameter(torch.arange(3), requires_grad=False)
        p.grad = torch.arange(3)
        self.refused(TypeError, "a gradient of torch.int64, expected float32, float64, bfloat16 or", lt.AdaMod([p]).step)

    def test_checkpoints_of_another_form(self):
        params, optimizer = self.stepped()
        saved = optimizer.state_dict()
        groups = saved["param_groups"]

        def with_state(**values):
            return {"state": {0: {**saved["state"][0], **values}}, "param_groups": groups}

        for changed, error, text in (
            (5, TypeError, r"the checkpoint is int, expected what state_dict\(\) returns"),
            ({}, ValueError, "the checkpoint has no state"),
            ({"state": {}}, ValueError, "the checkpoint has no param_groups"),
            ({"state": None, "param_groups": groups}, TypeError, "state of the checkpoint is NoneType, expected a dict"),
            ({"state": {}, "param_groups": None}, TypeError, "param_groups of the checkpoint is NoneType, expected a list"),
            ({"state": {0: 3}, "param_groups": groups}, TypeError, "the state of parameter 0 is int, expected a dict"),
            ({"state": {}, "param_groups": [3]}, TypeError, "group 0 of the checkpoint is int, expected a dict"),
            ({"state": {}, "param_groups": [{"lr": 1}]}, ValueError, "group 0 of the checkpoint has no list of params"),
            ({"state": {}, "param_groups": [{**groups[0], "betas": 0.9}]}, ValueError, "group 0: betas is 0.9, expected 2"),
            (with_state(exp_avg=torch.zeros(3, device="meta")), ValueError, "exp_avg of parameter 0 is a meta tensor"),
            (with_state(exp_avg=torch.zeros(3, dtype=torch.int64)), TypeError, "exp_avg of .* is torch.int64"),
            (with_state(step=1.5), ValueError, "step of parameter 0 of group 0 is 1.5, expected a whole number"),
            (with_state(step="3"), ValueError, "step of parameter 0 of group 0 is '3', expected a whole number"),
        ):
            others, other = self.stepped()
            before = copy.deepcopy(other.state_dict())
            self.refused(error, text, lambda: other.load_state_dict(changed))
            after = other.state_dict()
            self.assertEqual(before["param_groups"], after["param_groups"])
            for name, value in before["state"][0].items():
                self.assertTrue(torch.equal(value, after["state"][0][name]), name)

    @unittest.skipUnless(hasattr(lt.AdaMod, "register_load_state_dict_pre_hook"), "this PyTorch has no such hook")
    def test_a_hook_makes_a_checkpoint_of_what_is_none(self):
        params, optimizer = self.stepped()
        other = lt.AdaMod(clones(params))
        other.register_load_state_dict_pre_hook(lambda _, saved: saved["optimizer"])
        other.load_state_dict({"optimizer": optimizer.state_dict()})
        self.assertEqual(other.state[other.param_groups[0]["params"][0]]["step"], 4)


class Threads(unittest.TestCase):
    def test_steps_of_one_optimizer_take_turns(self):
        slow = partial(lt.Prodigy, growth_rate=1.02)  # d would overflow, since the gradients stay as they are
        for make in (lt.AdaMod, slow, lt.ScheduleFreeSGD):
            params = make_params((3,), (4, 4))
            optimizer = make(params)
            set_grads(params, 1)
            failed = []

            def steps():
                try:
                    for _ in range(50):
                        optimizer.step()
                except BaseException as error:
                    failed.append(error)

            interval = sys.getswitchinterval()
            sys.setswitchinterval(1e-6)
            try:
                threads = [threading.Thread(target=steps, daemon=True) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(120)
            finally:
                sys.setswitchinterval(interval)
            self.assertFalse(any(thread.is_alive() for thread in threads), "not done after 120 s")
            self.assertEqual(failed, [])
            others = make_params((3,), (4, 4))
            other = make(others)
            set_grads(others, 1)
            for _ in range(200):
                other.step()
            self.assertTrue(all(p.isfinite().all() for p in others), make)
            self.assertTrue(all(map(torch.equal, params, others)), make)

    def test_copies_step(self):
        """Each has a lock of its own."""
        params = make_params((3,))
        optimizer = lt.AdaMod(params)
        train(optimizer, params, 2)
        for other in (copy.deepcopy(optimizer), copy.copy(optimizer)):
            train(other, other.param_groups[0]["params"], 1)
            self.assertIsNot(other._one_at_a_time, optimizer._one_at_a_time)


@unittest.skipIf(np is None, "numpy is not installed")
class Arrays(unittest.TestCase):
    def refused(self, error, text, call):
        with self.assertRaisesRegex(error, text) as caught:
            call()
        self.assertNotIn("\n", str(caught.exception))

    def setUp(self):
        self.param, self.grad = np.ones(3, np.float32), np.full(3, 0.5, np.float32)
        self.state = arrays.states("adamod", self.param)

    def update(self, step=1, rule="adamod", **options):
        arrays.update(rule, self.param, self.grad, self.state, step, **options)

    def test_counts(self):
        for step, error, text in (
            (1.0, TypeError, "step is 1.0, expected a whole number"),
            ("1", TypeError, "step is '1', expected a whole number"),
            (None, TypeError, "step is None, expected a whole number"),
            (2**64 + 1, ValueError, r"step is 18446744073709551617, expected step < 2\*\*62"),
        ):
            self.refused(error, text, lambda: self.update(step))
            self.refused(error, text, lambda: arrays.evaluation("adam", self.param, {}, step))
        self.refused(ValueError, "step is -1, expected 0 or more", lambda: arrays.evaluation("adam", self.param, {}, -1))
        self.assertEqual(self.param.tolist(), [1, 1, 1])
        self.update(np.int64(1))
        self.assertNotEqual(self.param.tolist(), [1, 1, 1])

    def test_threads(self):
        self.param = np.ones(1 << 17, np.float32)
        self.grad, self.state = self.param / 2, arrays.states("adamod", self.param)
        for threads in (1.5, "2", None, 2**32 + 2):
            self.refused(ValueError, "threads is .*, expected a whole number, threads <= 1024", lambda: self.update(threads=threads))
        self.assertTrue((self.param == 1).all())

    def test_names(self):
        for call in (lambda: self.update(rule=None), lambda: libadamod.options(None), lambda: arrays.states(None, self.param)):
            self.refused(TypeError, "the name of a rule is None, expected a string", call)
        self.refused(ValueError, r"the name of a rule is 'adamod\\x00', expected no NUL", lambda: self.update(rule="adamod\0"))
        self.refused(ValueError, r"the name of an option is 'lr\\x00', expected no NUL", lambda: self.update(**{"lr\0": 1}))
        self.refused(ValueError, r"flavour is 'paper\\x00', expected no NUL", lambda: self.update(flavour="paper\0"))
        self.refused(ValueError, "no rule 'ada", lambda: self.update(rule="ada\udc80"))
        self.assertEqual(self.param.tolist(), [1, 1, 1])

    def test_options(self):
        text = "clip_norm is for PyTorch tensors; here grad_scale"
        self.refused(ValueError, text, lambda: self.update(clip_norm=1.0))
        wrong = {"zork": 1}
        self.refused(ValueError, "adam has no option 'zork'", lambda: arrays.evaluation("adam", self.param, {}, 1, **wrong))

    def test_what_is_no_array(self):
        self.refused(TypeError, "parameters is NoneType, expected an array", lambda: arrays.update("adamod", None, None, None, 1))
        self.refused(TypeError, "gradients is NoneType, expected an array", lambda: arrays.norm(None))
        masked = np.ma.array(self.param, mask=[0, 1, 0])
        self.refused(TypeError, "param is a masked array", lambda: arrays.update("adamod", masked, self.grad, self.state, 1))
        for state in (None, [1, 2]):
            self.state = state
            self.refused(TypeError, "state is .*, expected a dict of arrays", self.update)

    def test_a_master_of_what_has_none(self):
        for dtype in (np.float32, np.float64):
            self.param, self.grad = self.param.astype(dtype), self.grad.astype(dtype)
            self.state = {**arrays.states("adamod", self.param), "master": self.param.astype(np.float32)}
            self.refused(ValueError, f"state has master, which is for float16 .* param is {np.dtype(dtype)}", self.update)


if __name__ == "__main__":
    unittest.main()
