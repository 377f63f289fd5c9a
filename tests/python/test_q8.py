"""States in 8 bits: uint8 codes and their scales, as tensors that PyTorch owns.

SPDX-License-Identifier: MIT
"""

import copy
import pickle
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from libadamod import _c
from libadamod.torch import q8
from published import PublishedAdaMod
from support import clones, library_optimizer, make_params, same_bits, set_grads, train
from test_checkpoints import through_a_file

RULES = (
    (lt.AdaMod, {}, ("exp_avg", "exp_avg_sq", "exp_avg_lr")),
    (lt.Adam, {}, ("exp_avg", "exp_avg_sq")),
    (lt.AdamW, {"weight_decay": 0.1}, ("exp_avg", "exp_avg_sq")),
    (lt.SGD, {"momentum": 0.9, "nesterov": True}, ("momentum_buffer",)),
    (lt.Lion, {}, ("exp_avg",)),
    (lt.AdamW, {"bound": "momental"}, ("exp_avg", "exp_avg_sq", "exp_avg_lr")),
    (lt.AdaMod, {"skip_idle": True}, ("exp_avg", "exp_avg_sq", "exp_avg_lr")),
    (lt.Adagrad, {"initial_accumulator_value": 0.1}, ("sum",)),
    (lt.RMSprop, {"momentum": 0.9, "bound": "momental"}, ("momentum_buffer", "square_avg", "exp_avg_lr")),
    (lt.LAMB, {}, ("exp_avg", "exp_avg_sq")),
    (lt.AdEMAMix, {}, ("exp_avg_fast", "exp_avg_sq", "exp_avg_slow")),
    (lt.Adan, {}, ("exp_avg", "exp_avg_sq", "exp_avg_diff", "neg_pre_grad")),
)
SHAPES = ((5, 3), (300, 7), (256,), (1,), (), (0, 3))


def bind(optimizer):
    """Does what a step does before its update: states become what the options say."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    for arrays in optimizer._all_arrays():
        arrays.prepare(optimizer.state)


def memory_of(state):
    return sum(t.numel() * t.element_size() for t in state.values() if torch.is_tensor(t))


class States(unittest.TestCase):
    def assert_same(self, one, params, other, others):
        for p, q in zip(params, others):
            self.assertTrue(same_bits(p.detach(), q.detach()))
            self.assertEqual(set(one.state[p]), set(other.state[q]))
            for name, value in one.state[p].items():
                same = same_bits(value, other.state[q][name]) if torch.is_tensor(value) else True
                self.assertTrue(same, name)

    def test_codes_and_scales_are_tensors(self):
        for cls, options, names in RULES:
            with self.subTest(cls.__name__):
                params = make_params(*SHAPES)
                optimizer = cls(params, state_type="q8", min_8bit_size=0, **options)
                train(optimizer, params, 3)
                for p in params:
                    state = optimizer.state[p]
                    self.assertEqual(set(state), {"step", *names, *(n + "_scale" for n in names)})
                    for name in names:
                        self.assertEqual((state[name].dtype, state[name].shape), (torch.uint8, p.shape))
                        scale = state[name + "_scale"]
                        self.assertEqual((scale.dtype, tuple(scale.shape)), (torch.float32, (-(-p.numel() // 256),)))

    def test_the_bits_are_the_librarys(self):
        for rule, cls, options, names in (
            ("adamod", lt.AdaMod, {}, RULES[0][2]),
            ("adam", lt.AdamW, {"weight_decay": 0.1}, RULES[1][2]),
            ("sgd", lt.SGD, {"momentum": 0.9}, RULES[3][2]),
            ("lamb", lt.LAMB, {"eps": 1e-6}, RULES[1][2]),
        ):
            params = make_params((300, 7), (5,), ())
            others = clones(params)
            one = cls(params, lr=0.01, seed=3, state_type="q8", min_8bit_size=0, **options)
            same = {"lr": 0.01, "seed": 3, "state_type": "q8", "min_8bit_size": 0, **options}
            with library_optimizer(rule, same, others) as (opt, grads):
                for t in range(1, 9):
                    set_grads(params, t)
                    for p, g in zip(params, grads):
                        g.copy_(p.grad)
                    one.step()
                    _c.check(_c.lib.adamod_step(opt))
            for p, q in zip(params, others):
                self.assertTrue(same_bits(p.detach(), q.detach()), rule)

    def test_a_quarter_of_the_memory(self):
        (p,) = make_params((100_000,))
        (q,) = clones([p])
        small, large = lt.AdaMod([p], state_type="q8", min_8bit_size=0), lt.AdaMod([q])
        train(small, [p], 1)
        train(large, [q], 1)
        self.assertLess(memory_of(small.state[p]), 0.255 * memory_of(large.state[q]))

    def test_close_to_states_in_f32(self):
        for cls, options, _ in RULES:
            params = make_params((300, 7))
            others = clones(params)
            before = [p.detach().clone() for p in params]
            train(cls(params, state_type="q8", min_8bit_size=0, lr=1e-3, **options), params, 30)
            train(cls(others, lr=1e-3, **options), others, 30)
            for p, q, b in zip(params, others, before):
                self.assertLess(float((p - q).detach().norm()), 0.2 * float((q - b).detach().norm()), cls.__name__)

    def test_parameters_of_every_type(self):
        for dtype in (torch.float64, torch.bfloat16, torch.float16):
            for low_precision in ("master", "stochastic"):
                params = make_params((300, 7), (5,), dtype=dtype)
                before = clones(params)
                optimizer = lt.AdaMod(params, lr=0.1, low_precision=low_precision, state_type="q8", min_8bit_size=0)
                train(optimizer, params, 4)
                for p, b in zip(params, before):
                    self.assertIs(optimizer.state[p]["exp_avg"].dtype, torch.uint8)
                    self.assertFalse(torch.equal(p, b))
                    self.assertTrue(torch.isfinite(p).all())

    def test_layouts(self):
        """Channels-last and transposed ones in place, with gaps through a copy: blocks are of memory as it lies."""
        generator = torch.Generator().manual_seed(3)
        image = torch.randn(8, 5, 6, 7, generator=generator)
        for tensor in (image.to(memory_format=torch.channels_last), torch.randn(40, 30).t(), image[:, ::2]):
            p = torch.nn.Parameter(tensor)
            dense = tensor.clone().stride() == tensor.stride()
            order = sorted(range(p.dim()), key=p.stride, reverse=True) if dense else range(p.dim())
            q = torch.nn.Parameter(p.detach().permute(*order).clone(memory_format=torch.contiguous_format))
            one, other = (lt.AdaMod([x], state_type="q8", min_8bit_size=0) for x in (p, q))
            for t in range(1, 6):
                set_grads([p], t)
                q.grad = p.grad.permute(*order).contiguous()
                one.step()
                other.step()
            self.assertTrue(torch.equal(p.permute(*order), q))
            self.assertTrue(torch.equal(one.state[p]["exp_avg_lr_scale"], other.state[q]["exp_avg_lr_scale"]))
            codes = one.state[p]["exp_avg"]
            self.assertTrue(torch.equal(codes.permute(*order), other.state[q]["exp_avg"]))

    def test_groups_copies_and_frozen_parameters(self):
        a, b, c = make_params((300,), (20, 20), (7,))
        optimizer = lt.AdaMod([{"params": [a], "state_type": "q8", "min_8bit_size": 0}, {"params": [b]}])
        optimizer.add_param_group({"params": [c], "state_type": "q8", "min_8bit_size": 0, "lr": 0.1})
        train(optimizer, [a, b], 2)
        self.assertEqual(
            [optimizer.state[p]["exp_avg"].dtype if p in optimizer.state else None for p in (a, b, c)],
            [torch.uint8, torch.float32, None],
        )
        train(optimizer, [a, b, c], 2, first=3)
        self.assertEqual([optimizer.state[p]["step"] for p in (a, b, c)], [4, 4, 2])
        for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
            others = [p for group in twin.param_groups for p in group["params"]]
            params = clones([a, b, c])
            go_on = lt.AdaMod([{"params": params[:1], "state_type": "q8", "min_8bit_size": 0}, {"params": params[1:2]}])
            go_on.add_param_group({"params": params[2:], "state_type": "q8", "min_8bit_size": 0, "lr": 0.1})
            go_on.load_state_dict(optimizer.state_dict())
            train(twin, others, 2, first=5)
            train(go_on, params, 2, first=5)
            self.assert_same(twin, others, go_on, params)

    def test_learning_rates(self):
        """As those of the numbers that the codes stand for."""
        params = make_params((300, 7), (5,))
        others = clones(params)
        for cls in (lt.AdaMod, lt.Adam):
            optimizer, other = cls(params, state_type="q8", min_8bit_size=0), cls(others)
            train(optimizer, params, 5)
            before = copy.deepcopy(optimizer.state_dict())
            before["state"] = {i: q8.decoded(state) for i, state in before["state"].items()}
            before["param_groups"][0]["state_type"] = "auto"  # what is in it now
            other.load_state_dict(before)
            self.assertEqual(optimizer.lr_histogram(), other.lr_histogram())
            self.assertGreater(optimizer.lr_histogram().step_median, 1e-6)


class Skipped(unittest.TestCase):
    def test_a_skipped_step_changes_nothing(self):
        (p,) = make_params((300,))
        optimizer = lt.AdaMod([p], state_type="q8", min_8bit_size=0)
        train(optimizer, [p], 2)
        before = copy.deepcopy(optimizer.state_dict()["state"][0])
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(1.0)
        optimizer.step()
        for name, value in optimizer.state_dict()["state"][0].items():
            self.assertTrue(torch.equal(torch.as_tensor(value), torch.as_tensor(before[name])), name)


class SmallParameters(unittest.TestCase):
    """min_8bit_size, as bitsandbytes has it."""

    SHAPES = ((64, 64), (63, 65), (5,))

    def dtypes(self, optimizer, params):
        return [optimizer.state[p]["exp_avg_sq"].dtype for p in params]

    def test_fewer_than_4096_elements_stay_in_f32(self):
        for options, expected in (
            ({}, [torch.uint8, torch.float32, torch.float32]),
            ({"min_8bit_size": 4097}, [torch.float32] * 3),
            ({"min_8bit_size": 5}, [torch.uint8] * 3),
        ):
            params = make_params(*self.SHAPES)
            others = clones(params)
            optimizer = lt.AdaMod(params, state_type="q8", **options)
            train(optimizer, params, 3)
            self.assertEqual(self.dtypes(optimizer, params), expected)
            train(lt.AdaMod(others), others, 3)
            for p, q, dtype in zip(params, others, expected):
                self.assertEqual(same_bits(p.detach(), q.detach()), dtype is torch.float32)

    def test_of_a_group_and_changed_while_training(self):
        params = make_params(*self.SHAPES)
        groups = [{"params": params[:2]}, {"params": params[2:], "min_8bit_size": 0}]
        optimizer = lt.AdaMod(groups, state_type="q8")
        train(optimizer, params, 1)
        self.assertEqual(self.dtypes(optimizer, params), [torch.uint8, torch.float32, torch.uint8])
        optimizer.param_groups[0]["min_8bit_size"] = 1
        optimizer.param_groups[1]["min_8bit_size"] = 6
        train(optimizer, params, 1, first=2)
        self.assertEqual(self.dtypes(optimizer, params), [torch.uint8, torch.uint8, torch.float32])
        self.assertNotIn("exp_avg_scale", optimizer.state[params[2]])

    def test_checkpoints_from_before(self):
        """All in 8 bits, and no word of a least size: what is small becomes f32, exactly what the codes stood for."""
        params = make_params(*self.SHAPES)
        old = lt.AdaMod(params, state_type="q8", min_8bit_size=0)
        train(old, params, 3)
        saved = copy.deepcopy(old.state_dict())
        for group in saved["param_groups"]:
            del group["min_8bit_size"]
        optimizer = lt.AdaMod(clones(params), state_type="q8")
        optimizer.load_state_dict(saved)
        bind(optimizer)
        others = optimizer.param_groups[0]["params"]
        self.assertEqual(self.dtypes(optimizer, others), [torch.uint8, torch.float32, torch.float32])
        for p, q in zip(params, others):
            for name, value in q8.decoded(old.state[p]).items():
                if torch.is_tensor(value) and value.dtype is torch.float32 and name.startswith("exp"):
                    self.assertTrue(same_bits(value, q8.decoded(optimizer.state[q])[name]), name)
        # How small is small, the optimizer knows, not the checkpoint.
        whole = lt.AdaMod(clones(params), state_type="q8", min_8bit_size=0)
        whole.load_state_dict(optimizer.state_dict())
        self.assertEqual(whole.param_groups[0]["min_8bit_size"], 0)


class Conversions(unittest.TestCase):
    def trained(self, params, steps=5, cls=lt.AdaMod, **options):
        optimizer = cls(params, **options)
        train(optimizer, params, steps)
        return optimizer

    def test_checkpoints_go_on_bit_for_bit(self):
        for cls, options, _ in RULES:
            params = make_params(*SHAPES) + make_params((9, 40), dtype=torch.bfloat16)
            params.append(torch.nn.Parameter(torch.randn(8, 5, 6, 7).to(memory_format=torch.channels_last)))
            one = self.trained(params, cls=cls, state_type="q8", min_8bit_size=0, **options)
            others = [
                torch.nn.Parameter(q.detach().to(memory_format=torch.channels_last) if q.dim() == 4 else q.detach())
                for q in clones(params)
            ]
            other = cls(others, state_type="q8", min_8bit_size=0, **options)
            other.load_state_dict(through_a_file(one.state_dict()))
            for optimizer, mine in ((one, params), (other, others)):
                train(optimizer, mine, 3, first=6)
            States.assert_same(self, one, params, other, others)

    def test_from_f32_and_back(self):
        for cls, options, names in RULES:
            with self.subTest(cls.__name__):
                params = make_params((300, 7), (5,), (), (0, 3))
                one = self.trained(params, cls=cls, **options)
                saved = copy.deepcopy(one.state_dict())
                small = cls(clones(params), state_type="q8", min_8bit_size=0, **options)
                small.load_state_dict(saved)
                self.assertEqual(small.param_groups[0]["state_type"], "q8")
                mine = small.param_groups[0]["params"]
                bind(small)
                for p, q in zip(params, mine):
                    for name in names:
                        self.assertIs(small.state[q][name].dtype, torch.uint8)
                        value = q8.decoded(small.state[q])[name]
                        error = (value - one.state[p][name]).abs()
                        bound = one.state[p][name].abs() / 16
                        if value.numel():
                            bound += 2e-5 * one.state[p][name].abs().max()
                        self.assertTrue((error <= bound).all(), name)
                large = cls(clones(params), **options)
                large.load_state_dict(small.state_dict())
                others = large.param_groups[0]["params"]
                bind(large)
                for p, q in zip(mine, others):
                    self.assertEqual(set(large.state[q]), {"step", *names})
                    for name in names:
                        self.assertTrue(same_bits(large.state[q][name], q8.decoded(small.state[p])[name]))

    def test_switched_while_training(self):
        (p,) = make_params((300, 7))
        optimizer = self.trained([p], min_8bit_size=0)
        for state_type, dtype in (("q8", torch.uint8), ("bf16", torch.bfloat16), ("q8", torch.uint8), ("auto", None)):
            optimizer.param_groups[0]["state_type"] = state_type
            train(optimizer, [p], 2)
            self.assertIs(optimizer.state[p]["exp_avg_sq"].dtype, dtype or torch.float32)
            self.assertEqual("exp_avg_sq_scale" in optimizer.state[p], state_type == "q8")

    def test_into_another_layout(self):
        """Blocks follow the layout, so codes cannot just be copied."""
        tensor = torch.randn(8, 5, 6, 7)
        p = torch.nn.Parameter(tensor.to(memory_format=torch.channels_last))
        one = self.trained([p], state_type="q8", min_8bit_size=0)
        q = torch.nn.Parameter(p.detach().contiguous())
        other = lt.AdaMod([q], state_type="q8", min_8bit_size=0)
        other.load_state_dict(one.state_dict())
        bind(other)
        for name in RULES[0][2]:
            a, b = (q8.decoded(o.state[x])[name] for o, x in ((one, p), (other, q)))
            self.assertTrue(((a - b).abs() <= a.abs() / 16 + 2e-5 * a.abs().max()).all(), name)

    def test_the_published_package(self):
        params = make_params((300, 7))
        published = PublishedAdaMod(params, lr=1e-2)
        train(published, params, 3)
        mine = clones(params)
        optimizer = lt.AdaMod(mine, lr=1e-2, state_type="q8", min_8bit_size=0)
        optimizer.load_state_dict(published.state_dict())
        train(published, params, 1, first=4)
        train(optimizer, mine, 1, first=4)
        self.assertIs(optimizer.state[mine[0]]["exp_avg_lr"].dtype, torch.uint8)
        self.assertLess(float((params[0] - mine[0]).detach().abs().max()), 1e-2 / 4)

    def test_codes_that_were_copied_into_numbers(self):
        """As torch.distributed.checkpoint does, into an optimizer of another state_type: that would be silently wrong."""
        (p,) = make_params((300,))
        optimizer = self.trained([p], state_type="q8", min_8bit_size=0)
        saved = copy.deepcopy(optimizer.state_dict())
        state = saved["state"][0]
        for name in RULES[0][2]:
            state[name] = state[name].float()
            del state[name + "_scale"]
        for state_type in ("auto", "q8"):
            with self.assertRaisesRegex(ValueError, "group 0: the checkpoint has states in 8 bits, which"):
                lt.AdaMod(clones([p]), state_type=state_type).load_state_dict(saved)
        # A checkpoint saved after f32 was loaded, and before a step, is not taken for that.
        (q,) = clones([p])
        other = lt.AdaMod([q], state_type="q8", min_8bit_size=0)
        other.load_state_dict(self.trained(clones([p])).state_dict())
        saved = other.state_dict()
        self.assertEqual(saved["param_groups"][0]["state_type"], "auto")
        self.assertEqual(other.param_groups[0]["state_type"], "q8")
        lt.AdaMod(clones([p])).load_state_dict(saved)

    def test_what_cannot_be(self):
        (p,) = make_params((300,))
        optimizer = self.trained([p], state_type="q8", min_8bit_size=0)
        saved = optimizer.state_dict()

        def refused(error, text, change):
            for state_type in ("q8", "auto"):
                broken = copy.deepcopy(saved)
                change(broken["state"][0])
                (q,) = clones([p])
                other = lt.AdaMod([q], state_type=state_type, min_8bit_size=0)
                with self.assertRaisesRegex(error, text):
                    other.load_state_dict(broken)
                other.load_state_dict(saved)
                change(other.state[q])
                set_grads([q], 1)
                with self.assertRaisesRegex(error, text):
                    other.step()

        refused(ValueError, "exp_avg of parameter 0 of group 0 .* no exp_avg_scale", lambda s: s.pop("exp_avg_scale"))
        refused(
            ValueError,
            r"exp_avg_lr_scale of parameter 0 of group 0 has shape \(1,\), expected \(2,\)",
            lambda s: s.update(exp_avg_lr_scale=torch.ones(1)),
        )
        refused(
            ValueError,
            r"exp_avg of parameter 0 of group 0 has shape \(3,\)",
            lambda s: s.update(exp_avg=torch.zeros(3, dtype=torch.uint8)),
        )
        optimizer.state[p]["exp_avg"] = torch.zeros(600, dtype=torch.uint8)[::2]
        with self.assertRaisesRegex(ValueError, "exp_avg of parameter 0 of group 0 is in 8 bits and has gaps"):
            optimizer.step()
        z = torch.nn.Parameter(torch.randn(4, dtype=torch.complex64))
        z.grad = torch.randn(4, dtype=torch.complex64)
        with self.assertRaisesRegex(TypeError, "parameter 0 of group 0 is torch.complex64, and states in q8"):
            lt.AdaMod([z], state_type="q8", min_8bit_size=0).step()
        for cls, options in ((lt.Adafactor, {}), (lt.Prodigy, {}), (lt.ScheduleFreeAdamW, {})):
            with self.assertRaisesRegex(ValueError, "group 0: .*state_type is 'q8'"):
                cls([p], state_type="q8", min_8bit_size=0, **options)


if __name__ == "__main__":
    unittest.main()
