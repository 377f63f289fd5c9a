"""state_dict and load_state_dict: our own, torch.optim's, and those of the published AdaMod and its ports.

SPDX-License-Identifier: MIT
"""

import copy
import inspect
import io
import unittest
import warnings
from functools import partial

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from published import GroupCountingAdaMod, PublishedAdaMod, ThreeBetasAdaMod
from support import CLASSES, clones, make_params, same_bits, train

ARGUMENTS = dict(lr=1e-2, betas=(0.8, 0.95), beta3=0.99, weight_decay=0.1)


def through_a_file(state_dict):
    buffer = io.BytesIO()
    torch.save(state_dict, buffer)
    buffer.seek(0)
    return torch.load(buffer)


class OwnCheckpoints(unittest.TestCase):
    def go_on(self, cls, params, **arguments):
        """Trains, saves, and goes on both here and in a new optimizer that loaded it."""
        optimizer = cls(params, **arguments)
        train(optimizer, params, 5)
        others = clones(params)
        other = cls(others, **arguments)
        other.load_state_dict(through_a_file(optimizer.state_dict()))
        train(optimizer, params, 5, first=6)
        train(other, others, 5, first=6)
        for p, q in zip(params, others):
            self.assertTrue(same_bits(p.detach(), q.detach()))
            for name, value in optimizer.state[p].items():
                same = (
                    same_bits(value, other.state[q][name]) if torch.is_tensor(value) else value == other.state[q][name]
                )
                self.assertTrue(same, name)

    def test_every_class_goes_on_bit_for_bit(self):
        for cls in CLASSES:
            for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
                with self.subTest(cls.__name__, dtype=dtype):
                    self.go_on(cls, make_params((4, 3), (5,), dtype=dtype))

    def test_with_options_of_all_kinds(self):
        shape = (4, 3, 5, 5)
        self.go_on(lt.AdaMod, make_params(shape, dtype=torch.bfloat16), low_precision="stochastic", seed=7)
        self.go_on(lt.AdaMod, make_params(shape), state_type="bf16", seed=7)
        self.go_on(lt.AdaMod, make_params(shape), flavour="keras", lr=torch.tensor(0.01))
        self.go_on(lt.SGD, make_params(shape), momentum=0.9)
        self.go_on(lt.RMSprop, make_params(shape), momentum=0.9, centered=True)
        channels_last = [torch.nn.Parameter(torch.randn(shape).to(memory_format=torch.channels_last))]
        self.go_on(lt.AdaMod, channels_last)
        self.go_on(lt.AdaMod, [torch.nn.Parameter(torch.randn(4, dtype=torch.complex64))])

    def test_options_come_with_it(self):
        params = make_params((4,))
        saved = lt.AdaMod(params, lr=0.5, flavour="keras", decay="l2").state_dict()
        optimizer = lt.AdaMod(params)
        optimizer.load_state_dict(saved)
        group = optimizer.param_groups[0]
        self.assertEqual((group["lr"], group["flavour"], group["decay"]), (0.5, "keras", "l2"))
        self.assertEqual(group["step"], 0)  # in the group for packages that count there

    def test_what_was_loaded_is_not_shared(self):
        params = make_params((4,))
        optimizer = lt.AdaMod(params)
        train(optimizer, params, 2)
        saved = optimizer.state_dict()
        before = copy.deepcopy(saved)
        others = clones(params)
        other = lt.AdaMod(others)
        other.load_state_dict(saved)
        train(other, others, 2)
        for name in ("exp_avg", "exp_avg_sq", "exp_avg_lr"):
            self.assertTrue(torch.equal(saved["state"][0][name], before["state"][0][name]))

    def test_hooks_may_change_what_is_loaded(self):
        params = make_params((4,))
        optimizer = lt.AdaMod(params)
        if not hasattr(optimizer, "register_load_state_dict_pre_hook"):
            self.skipTest("this PyTorch has no hooks of loading")
        train(optimizer, params, 2)
        other = lt.AdaMod(params)

        def double(_, saved):
            saved = copy.deepcopy(saved)
            saved["state"][0]["exp_avg"] *= 2
            return saved

        other.register_load_state_dict_pre_hook(double)
        other.load_state_dict(optimizer.state_dict())
        self.assertTrue(torch.equal(other.state[params[0]]["exp_avg"], 2 * optimizer.state[params[0]]["exp_avg"]))

    def test_a_mismatch_is_refused(self):
        params = make_params((4,), (3,))
        optimizer = lt.AdaMod(params)
        train(optimizer, params, 2)
        saved = optimizer.state_dict()
        with self.assertRaisesRegex(ValueError, "doesn't match the size"):
            lt.AdaMod(params[:1]).load_state_dict(saved)
        self.refuses(
            lt.AdaMod(params[::-1]),
            saved,
            ValueError,
            r"exp_avg of parameter 0 of group 0 has shape \(4,\), expected \(3,\)",
        )
        adam = lt.Adam(params)
        train(adam, params, 1)
        message = "not a checkpoint of AdaMod: it has amsgrad, which"
        self.refuses(lt.AdaMod(params), adam.state_dict(), ValueError, message)
        old = adam.state_dict()
        del old["param_groups"][0]["amsgrad"]  # as others have it
        message = "parameter 0 of group 0 has no exp_avg_lr, only .*exp_avg_sq.*: it is not a state of adamod"
        self.refuses(lt.AdaMod(params), old, ValueError, message)
        del saved["param_groups"][0]["step"], saved["state"][0]["step"]
        self.refuses(lt.AdaMod(params), saved, ValueError, "the state of parameter 0 of group 0 has no step")

    def refuses(self, optimizer, saved, error, message):
        """When it is loaded, and leaves everything as it was."""
        params = optimizer.param_groups[0]["params"]
        train(optimizer, params, 1)
        before, others = copy.deepcopy(optimizer.state_dict()), clones(params)
        with warnings.catch_warnings():  # PyTorch's, of the imaginary part
            warnings.simplefilter("ignore")
            with self.assertRaisesRegex(error, message):
                optimizer.load_state_dict(saved)
        self.assertEqual(str(optimizer.state_dict()), str(before))
        other = type(optimizer)(others)
        other.load_state_dict(before)
        train(optimizer, params, 2)
        train(other, others, 2)
        self.assertTrue(all(torch.equal(p, q) for p, q in zip(params, others)))

    def test_what_is_spoiled_is_named(self):
        params = make_params((4,), (3,))
        optimizer = lt.AdaMod(params)
        train(optimizer, params, 2)
        for name, value, message in (
            ("step", float("nan"), "step of parameter 1 of group 0 is nan, expected a number"),
            ("step", float("inf"), "step of parameter 1 of group 0 is inf, expected a number"),
            ("step", torch.zeros(2), "step of parameter 1 of group 0 is tensor.*, expected a number"),
            ("exp_avg", torch.zeros(3).to_sparse(), "exp_avg of parameter 1 of group 0 is torch.float32 in layout"),
            ("exp_avg_sq", torch.zeros(3).cfloat(), "exp_avg_sq of parameter 1 of group 0 is torch.complex64"),
            ("exp_avg_sq", 1.0, "exp_avg_sq of parameter 1 of group 0 is float, expected a tensor"),
        ):
            saved = copy.deepcopy(optimizer.state_dict())
            saved["state"][1][name] = value
            self.refuses(lt.AdaMod(params), saved, TypeError, message)
            # Spoiled afterwards, it is refused in the step.
            other = lt.AdaMod(params)
            other.load_state_dict(optimizer.state_dict())
            other.state[params[1]][name] = value
            before = clones(params)
            with self.assertRaisesRegex(TypeError, message):
                other.step()
            self.assertTrue(all(torch.equal(p, q) for p, q in zip(params, before)))


class PublishedCheckpoints(unittest.TestCase):
    """A run begun with one goes on with the other, to where it would have got without the change."""

    def exchange(self, first, second):
        params = make_params((6, 5), (7,), dtype=torch.float64)
        expected = clones(params)
        train(PublishedAdaMod(expected, **ARGUMENTS), expected, 20)
        begun = first(params)
        train(begun, params, 10)
        continued = second(params)
        continued.load_state_dict(through_a_file(begun.state_dict()))
        train(continued, params, 10, first=11)
        for p, q in zip(params, expected):
            torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)

    @staticmethod
    def ours(params):
        return lt.AdaMod(params, flavour="published", **ARGUMENTS)

    def test_theirs_to_ours(self):
        for theirs in (PublishedAdaMod, GroupCountingAdaMod):
            self.exchange(lambda params: theirs(params, **ARGUMENTS), self.ours)

    def test_ours_to_theirs(self):
        for theirs in (PublishedAdaMod, GroupCountingAdaMod):
            self.exchange(self.ours, lambda params: theirs(params, **ARGUMENTS))

    def test_a_checkpoint_without_flavour_goes_on_as_published(self):
        self.exchange(
            lambda params: PublishedAdaMod(params, **ARGUMENTS), lambda params: lt.AdaMod(params, **ARGUMENTS)
        )

    def test_a_port_with_three_betas(self):
        ways = (
            (dict(), "decoupled"),
            (dict(fixed_decay=True), "independent"),
            (dict(weight_decouple=False), "l2"),
        )
        for keywords, decay in ways:
            params = make_params((6, 5), (7,), dtype=torch.float64)
            others = clones(params)
            theirs = ThreeBetasAdaMod(params, betas=(0.8, 0.95, 0.99), lr=1e-2, weight_decay=0.1, **keywords)
            train(theirs, params, 10)
            ours = lt.AdaMod(others)
            train(ours, others, 1)
            for p, q in zip(params, others):
                q.data.copy_(p.data)
            ours.load_state_dict(through_a_file(theirs.state_dict()))
            self.assertEqual(ours.param_groups[0]["decay"], decay)
            train(theirs, params, 10, first=11)
            train(ours, others, 10, first=11)
            # And back, as docs/pytorch.md says.
            saved = ours.state_dict()
            for group in saved["param_groups"]:
                betas = (*group["betas"], group["beta3"])
                group.update(betas=betas, adam_debias=False, weight_decouple=True, fixed_decay=False)
                group.update(keywords)
            theirs.load_state_dict(through_a_file(saved))
            for p, q in zip(params, others):
                torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)
            train(theirs, params, 5, first=21)
            train(ours, others, 5, first=21)
            for p, q in zip(params, others):
                torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)

    def test_adam_debias_is_a_flavour(self):
        """Ports leave 1 - beta1^t out. Rules that have no such flavour refuse it."""
        params = make_params((6, 5), (7,), dtype=torch.float64)
        others = clones(params)
        theirs = ThreeBetasAdaMod(params, betas=(0.8, 0.95, 0.99), lr=1e-2, adam_debias=True)
        train(theirs, params, 3)
        saved = through_a_file(theirs.state_dict())
        for p, q in zip(params, others):
            q.data.copy_(p.data)
        ours = lt.AdaMod(others)
        ours.load_state_dict(saved)
        self.assertEqual(ours.param_groups[0]["flavour"], "adamd")
        self.assertNotIn("adam_debias", ours.param_groups[0])
        train(theirs, params, 10, first=4)
        train(ours, others, 10, first=4)
        for p, q in zip(params, others):
            torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)
        (group,) = saved["param_groups"]
        saved["param_groups"][0]["step"] = 10
        for state in saved["state"].values():
            del state["exp_avg_lr"]
        for cls, extra in ((lt.AdaBound, {"final_lr": 0.1, "gamma": 1e-3}), (lt.RAdam, {})):
            optimizer = cls(others)
            with self.assertRaisesRegex(ValueError, "group 0: it was saved with adam_debias, which"):
                optimizer.load_state_dict(dict(saved, param_groups=[dict(group, **extra)]))
            self.assertFalse(optimizer.state)
        with self.assertRaisesRegex(TypeError, "AdaMod has no option 'adam_debias': flavour='adamd'"):
            lt.AdaMod(others, adam_debias=True)


class TorchCheckpoints(unittest.TestCase):
    PAIRS = [
        (lambda p: lt.Adam(p, weight_decay=0.1), lambda p: torch.optim.Adam(p, weight_decay=0.1)),
        (lambda p: lt.AdamW(p, amsgrad=True), lambda p: torch.optim.AdamW(p, amsgrad=True)),
        (
            lambda p: lt.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
        ),
        (lambda p: lt.SGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
        (lambda p: lt.Adagrad(p, lr_decay=0.1), lambda p: torch.optim.Adagrad(p, lr_decay=0.1)),
        (
            lambda p: lt.RMSprop(p, centered=True, momentum=0.5),
            lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.5),
        ),
        (lambda p: lt.Adadelta(p), lambda p: torch.optim.Adadelta(p)),
        (lambda p: lt.RAdam(p), lambda p: torch.optim.RAdam(p)),
        (lambda p: lt.Adamax(p, betas=(0.8, 0.9)), lambda p: torch.optim.Adamax(p, betas=(0.8, 0.9))),
    ]
    if torch.__version__ >= "2":  # PyTorch 1 takes mu_t into its product for the next update twice
        PAIRS.append((lambda p: lt.NAdam(p, betas=(0.8, 0.9)), lambda p: torch.optim.NAdam(p, betas=(0.8, 0.9))))

    for ours, theirs, more in (
        (lt.Adam, torch.optim.Adam, {}),
        (lt.AMSGrad, torch.optim.Adam, {"amsgrad": True}),
        (lt.RAdam, torch.optim.RAdam, {}),
        (lt.NAdam, torch.optim.NAdam, {}),
    ):
        if "decoupled_weight_decay" in inspect.signature(theirs).parameters:  # which old ones do not have
            decoupled = dict(more, weight_decay=0.1, decoupled_weight_decay=True)
            PAIRS.append((partial(ours, weight_decay=0.1, decay="decoupled"), partial(theirs, **decoupled)))

    def in_float64(self):
        """In the default type torch.optim keeps NAdam's product of momenta, whatever the parameters' type."""
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)

    def test_there_and_back(self):
        """States of torch.optim that we do not have must not grow stale here."""
        self.in_float64()
        for ours, theirs in self.PAIRS:
            params = make_params((6, 5), (7,), dtype=torch.float64)
            expected = clones(params)
            train(theirs(expected), expected, 12)
            begun = theirs(params)
            train(begun, params, 4)
            for make, first in ((ours, 5), (theirs, 9)):
                continued = make(params)
                continued.load_state_dict(through_a_file(begun.state_dict()))
                train(continued, params, 4, first=first)
                begun = continued
            for p, q in zip(params, expected):
                torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)

    def test_both_ways(self):
        self.in_float64()
        for ours, theirs in self.PAIRS:
            for first, second in ((ours, theirs), (theirs, ours)):
                params = make_params((6, 5), (7,), dtype=torch.float64)
                expected = clones(params)
                train(theirs(expected), expected, 12)
                begun = first(params)
                train(begun, params, 6)
                continued = second(params)
                continued.load_state_dict(through_a_file(begun.state_dict()))
                train(continued, params, 6, first=7)
                for p, q in zip(params, expected):
                    torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)

    def test_how_weight_decay_acts(self):
        """PyTorch 2 has it as an option of Adam, RAdam and, unless it is old, AdamW."""
        cases = (lt.Adam, True, "decoupled"), (lt.RAdam, False, "l2"), (lt.AdamW, None, "decoupled")
        for cls, decoupled, decay in cases:
            (p,) = make_params((3,))
            saved = (torch.optim.RAdam if cls is lt.RAdam else torch.optim.Adam)([p]).state_dict()
            saved["param_groups"][0].pop("decoupled_weight_decay", None)
            if decoupled is not None:
                saved["param_groups"][0]["decoupled_weight_decay"] = decoupled
            optimizer = cls([p])
            optimizer.load_state_dict(saved)
            self.assertEqual(optimizer.param_groups[0]["decay"], decay)
            self.assertEqual(optimizer.state_dict()["param_groups"][0]["decay"], decay)


if __name__ == "__main__":
    unittest.main()
