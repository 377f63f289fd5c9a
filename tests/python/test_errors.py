"""Refusals: their words, and that a refused call changes nothing.

SPDX-License-Identifier: MIT
"""

import importlib.util
import math
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from support import CLASSES, clones, make_params, set_grads, train


class Errors(unittest.TestCase):
    def refused(self, error, text, call):
        with self.assertRaisesRegex(error, text):
            call()

    def test_tensors_without_memory_of_their_own(self):
        try:
            from torch.testing._internal.two_tensor import TwoTensor
        except ImportError:
            self.skipTest("this PyTorch has no TwoTensor")
        pair = TwoTensor(torch.ones(3), torch.ones(3))
        p = torch.nn.Parameter(pair.clone())
        p.grad = pair
        self.refused(TypeError, "parameter 0 of group 0 is of class torch.TwoTensor, without memory of its own", lt.AdamW([p]).step)

    @unittest.skipUnless(importlib.util.find_spec("torchao"), "torchao is not installed")
    def test_weights_of_torchao(self):
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        model = torch.nn.Sequential(torch.nn.Linear(64, 64))
        quantize_(model, Int8WeightOnlyConfig())
        model[0].weight.requires_grad_()
        model[0].weight.grad = torch.zeros(64, 64)
        self.refused(TypeError, "parameter 0 of group 0 is of class torchao.Int8Tensor", lt.AdamW(model.parameters()).step)

    def test_options_are_named_as_arguments_are(self):
        p = make_params((3,))
        for make, text in (
            (lambda: lt.ScheduleFreeSGD(p, momentum=0), r"momentum is 0, expected 0.01 <= momentum < 1"),
            (lambda: lt.AdEMAMix(p, beta3_warmup=-1), "beta3_warmup is -1, expected a whole number, 0 <= beta3_warmup"),
            (lambda: lt.AdEMAMix(p, betas=(0.9, 0.99, 1)), r"betas\[2\] is 1, expected 0 <= betas\[2\] < 1"),
            (lambda: lt.Adan(p, betas=(0.9, 0.99, 1)), r"betas\[2\] is 1, expected 0 <= betas\[2\] < 1"),
            (lambda: lt.Sophia(p, betas=(1, 0.9)), r"betas\[0\] is 1, expected 0 <= betas\[0\] < 1"),
            (lambda: lt.Muon(p, adjust_lr_fn="none"), "adjust_lr_fn is 'none', expected one of original"),
            (lambda: lt.Muon(p, ns_coefficients=(1, 11, 1)), r"ns_coefficients\[1\] is 11, expected -10 <= ns_coeff"),
            (lambda: lt.SOAP(p, correct_bias=2), "correct_bias is 2"),
            (lambda: lt.Adagrad(p, initial_accumulator_value=-1), "initial_accumulator_value is -1"),
        ):
            self.refused(ValueError, text, make)

    def test_options(self):
        p = make_params((3,))
        self.refused(ValueError, "group 0: adamod: lr is -1", lambda: lt.AdaMod(p, lr=-1))
        self.refused(ValueError, "group 0: adamod: beta1 is 1", lambda: lt.AdaMod(p, betas=(1.0, 0.9)))
        self.refused(ValueError, "betas is 0.9, expected 2 numbers", lambda: lt.AdaMod(p, betas=0.9))
        self.refused(ValueError, "betas is .*, expected 2 numbers", lambda: lt.AdaMod(p, betas=(0.9, 0.9, 0.9)))
        self.refused(ValueError, "flavour.*'papers'", lambda: lt.AdaMod(p, flavour="papers"))
        self.refused(ValueError, "group 0: .*state_type is 'q8'", lambda: lt.Prodigy(p, state_type="q8"))
        self.refused(ValueError, "decay", lambda: lt.SGD(p, decay="L3"))
        self.refused(
            TypeError, "flavour is 1, expected one of paper, published, keras", lambda: lt.AdaMod(p, flavour=1)
        )
        self.refused(TypeError, "lr is '0.1', expected a number", lambda: lt.AdaMod(p, lr="0.1"))
        self.refused(TypeError, "AdaMod has no option 'lrr'", lambda: lt.AdaMod(p, lrr=1))
        self.refused(ValueError, "betas is .*, expected 2 numbers", lambda: lt.AdaMod(p, betas=("a", "b")))
        self.refused(IndexError, "group is 1, expected 0 <= group < 1", lambda: lt.AdaMod(p).lr_histogram(1))
        for cls in (lt.AdaMod, lt.AdaBound):
            self.refused(TypeError, "group 0: .*lr is None", lambda: cls(p, lr=None))
            self.refused(TypeError, "group 0: lr is 'x', expected a number", lambda: cls(p, lr="x"))
            self.refused(TypeError, "group 0: .*lr is 10+, expected a number", lambda: cls(p, lr=10**400))
            imaginary = torch.tensor(1j)
            self.refused(TypeError, "group 0: lr is a tensor of torch.complex64", lambda: cls(p, lr=imaginary))
        self.refused(TypeError, "group 0: final_lr is 'x'", lambda: lt.AdaBound(p, final_lr="x"))
        self.refused(ValueError, "empty parameter list", lambda: lt.AdaMod([]))
        self.refused(TypeError, "params argument", lambda: lt.AdaMod(p[0]))
        self.refused(ValueError, "non-leaf", lambda: lt.AdaMod([p[0] * 2]))
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'nothing'"):
            lt.AdaMod(p).step(nothing=1)

    def test_what_programs_tell_torch_optim_is_taken(self):
        """Options that choose among torch.optim's implementations: here there is one."""
        for cls in CLASSES:
            optimizer = cls(make_params((3,)), capturable=True, foreach=None, fused=True, differentiable=False)
            self.assertNotIn("fused", optimizer.param_groups[0])
            with self.assertRaisesRegex(ValueError, "differentiable is True, expected False: autograd"):
                cls(make_params((3,)), differentiable=True)

    def test_a_rate_that_a_scheduler_spoils(self):
        params = make_params((3,), (4,))
        optimizer = lt.AdaMod([{"params": params[:1]}, {"params": params[1:]}])
        train(optimizer, params, 1)
        before = clones(params)
        optimizer.param_groups[1]["lr"] = math.nan
        set_grads(params, 2)
        self.refused(ValueError, "group 1: adamod: lr is nan", optimizer.step)
        for p, q in zip(params, before):
            self.assertTrue(torch.equal(p, q))
        self.assertEqual(optimizer.state[params[0]]["step"], 1)

    def test_options_after_some_that_were_refused(self):
        """Options before the bad one had been set; the old ones count again."""
        params = make_params((3,), (4,))
        others = clones(params)
        optimizer, other = lt.AdaMod(params, lr=0.5), lt.AdaMod(others, lr=0.5)
        train(optimizer, params, 2)
        train(other, others, 3)
        group = optimizer.param_groups[0]
        before = dict(group)
        group.update(lr=0.25, eps=-1)
        set_grads(params, 3)
        self.refused(ValueError, "eps is -1", optimizer.step)
        group.update(before)
        optimizer.step()
        for p, q in zip(params, others):
            self.assertTrue(torch.equal(p, q))

    def test_sparse_gradients(self):
        (a,) = make_params((3,))
        embedding = torch.nn.Embedding(10, 3, sparse=True)
        optimizer = lt.AdaMod([{"params": [a]}, {"params": [a.detach().clone().requires_grad_(), embedding.weight]}])
        set_grads([a], 1)
        embedding(torch.tensor([1, 2])).sum().backward()
        before = a.detach().clone()
        self.refused(RuntimeError, "parameter 1 of group 1 has a sparse gradient", optimizer.step)
        self.assertTrue(torch.equal(a, before))

    def test_gradients_that_do_not_fit(self):
        """PyTorch looks at a gradient's shape when it is set; data that is set later goes unseen."""
        for cls in (lt.SGD, lt.AdaMod):
            (p,) = make_params((4,))
            optimizer = cls([p])
            set_grads([p], 1)
            p.data = torch.ones(1000)
            message = r"parameter 0 of group 0 has a gradient of shape \(4,\), expected its own, \(1000,\)"
            self.refused(ValueError, message, optimizer.step)
            self.assertEqual(p.tolist(), [1.0] * 1000)
            p.data = torch.ones(2, 2)
            self.refused(ValueError, r"gradient of shape \(4,\), expected its own, \(2, 2\)", optimizer.step)
            p.data = torch.ones(4)
            optimizer.step()
            p.grad.data = torch.ones(3)
            self.refused(ValueError, r"gradient of shape \(3,\), expected its own, \(4,\)", optimizer.step)
            self.assertEqual(optimizer.state[p]["step"], 1)
        (p,) = make_params((4,))
        set_grads([p], 1)
        p.data = p.data.to(torch.complex64)
        self.refused(TypeError, "a gradient of torch.float32, expected a complex type", lt.SGD([p]).step)

    def test_groups_that_share_memory_after_a_step_that_failed(self):
        (a, b) = make_params((3,), (4,))
        optimizer = lt.AdaMod([{"params": [a]}, {"params": [torch.nn.Parameter(a.detach()), b]}])
        params = [p for group in optimizer.param_groups for p in group["params"]]
        before = a.detach().clone()
        set_grads(params, 1)
        b.grad = b.grad.to_sparse()
        self.refused(RuntimeError, "parameter 1 of group 1 has a sparse gradient", optimizer.step)
        set_grads(params, 1)
        self.refused(ValueError, "parameter 0 of group 1", optimizer.step)
        self.assertTrue(torch.equal(a, before))

    def test_names_are_in_messages(self):
        (p,) = make_params((3,))
        optimizer = lt.AdaMod([{"params": [p], "param_names": ["head.weight"]}])
        p.grad = torch.ones(3).to_sparse()
        self.refused(RuntimeError, r"parameter 0 of group 0 \('head.weight'\)", optimizer.step)

    def test_named_parameters(self):
        model = torch.nn.Linear(2, 2)
        try:
            optimizer = lt.AdaMod(model.named_parameters())
        except TypeError:
            self.skipTest("this PyTorch takes no names")
        model.bias.grad = torch.ones(2).to_sparse()
        self.refused(RuntimeError, r"parameter 1 of group 0 \('bias'\) has a sparse gradient", optimizer.step)

    def test_tensors_that_cannot_be_updated(self):
        expanded = torch.randn(3, 1).expand(3, 4).requires_grad_()
        expanded.grad = torch.ones(3, 4)
        self.refused(RuntimeError, "parameter 0 of group 0 is expanded", lt.AdaMod([expanded]).step)
        meta = torch.nn.Parameter(torch.empty(3, device="meta"))
        meta.grad = torch.empty(3, device="meta")
        self.refused(RuntimeError, "parameter 0 of group 0 is a meta tensor", lt.AdaMod([meta]).step)
        with torch.inference_mode():
            frozen = torch.nn.Parameter(torch.ones(3))
        frozen.grad = torch.ones(3)
        self.refused(RuntimeError, "parameter 0 of group 0 was made in inference mode", lt.AdaMod([frozen]).step)
        self.assertEqual(frozen.tolist(), [1.0] * 3)
        z = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))
        z.grad = torch.ones_like(z)
        self.refused(TypeError, "adafactor is for real parameters", lt.Adafactor([z]).step)
        self.refused(TypeError, "muon is for real parameters", lt.Muon([z]).step)
        self.refused(TypeError, "states in bf16", lt.AdaMod([z], state_type="bf16").step)
        (deep,) = make_params((1,) * 9)
        set_grads([deep], 1)
        self.refused(ValueError, "has 9 dimensions", lt.Adafactor([deep]).step)

    def test_groups_that_share_memory(self):
        """Found before anything is changed, also by the second step that is tried."""
        memory = torch.randn(10)
        a, b = torch.nn.Parameter(memory[:6]), torch.nn.Parameter(memory[4:])
        (c,) = make_params((3,))
        for groups, text in (
            ([[c, a], [b]], "param of parameter 1 of group 0 and param of parameter 0 of group 1 overlap"),
            ([[c], [a, b]], "param of parameter 0 of group 1 and param of parameter 1 of group 1 overlap"),
        ):
            optimizer = lt.AdaMod([{"params": params} for params in groups])
            set_grads([a, b, c], 1)
            before = [p.detach().clone() for p in (a, b, c)]
            for _ in range(2):
                self.refused(ValueError, text, optimizer.step)
                for p, q in zip((a, b, c), before):
                    self.assertTrue(torch.equal(p, q))
            b.grad = None
            optimizer.step()
            self.assertFalse(torch.equal(c, before[2]))
            set_grads([b], 1)
            self.refused(ValueError, text, optimizer.step)

    def test_a_rate_on_a_gpu_out_of_range_in_the_second_group(self):
        """Only the step reads it. Any tensor does for one on a GPU here."""
        params = make_params((3,), (4,))
        optimizer = lt.AdaMod([{"params": [p]} for p in params])
        train(optimizer, params, 1)
        before = params[0].detach().clone()
        optimizer._arrays[1].tensors["lr"] = torch.tensor(math.nan)
        self.refused(ValueError, "group 1: adamod: lr is nan", optimizer.step)
        self.assertTrue(torch.equal(params[0], before))

    def test_a_count_out_of_range_in_the_second_group(self):
        """Found before the first is updated."""
        for count in (-1, -5, 2**63, 2**70):
            params = make_params((3,), (4,))
            optimizer = lt.AdaMod([{"params": [p]} for p in params])
            train(optimizer, params, 1)
            before = params[0].detach().clone()
            optimizer.state[params[1]]["step"] = count
            self.refused(ValueError, f"step of parameter 0 of group 1 is {count}, expected 0 <= step", optimizer.step)
            self.assertTrue(torch.equal(params[0], before))
            self.assertEqual(optimizer.state[params[0]]["step"], 1)

    def test_counts_end_where_they_can_be_loaded(self):
        most = 2**62 - 1
        for n in (1, 40):  # of few parameters each is looked at in every step, of many only what moved
            params = make_params(*[(3,)] * n)
            optimizer = lt.AdaMod(params)
            train(optimizer, params, 4)
            for p in params:
                optimizer.state[p]["step"] = most - 1
            train(optimizer, params, 4)
            self.assertEqual({int(optimizer.state[p]["step"]) for p in params}, {most})
            again = lt.AdaMod(params)
            again.load_state_dict(optimizer.state_dict())
            train(again, params, 1)

    def test_a_count_that_is_none(self):
        (p,) = make_params((3,))
        optimizer = lt.AdaMod([p])
        train(optimizer, [p], 1)
        optimizer.state[p]["step"] = "x"
        self.refused(TypeError, "step of parameter 0 of group 0 is 'x', expected a number", optimizer.step)

    def test_parameters_that_share_memory(self):
        a = torch.nn.Parameter(torch.randn(10))
        b = torch.nn.Parameter(a.data[5:])
        set_grads([a, b], 1)
        before = a.detach().clone()
        self.refused(
            ValueError,
            "param of parameter 0 of group 0 and param of parameter 1 of group 0 overlap",
            lt.AdaMod([a, b]).step,
        )
        self.assertTrue(torch.equal(a, before))
        (c,) = make_params((3,))  # without a gradient
        self.refused(
            ValueError, "param of parameter 1 of group 0 and .* 2 of group 0 overlap", lt.AdaMod([c, a, b]).step
        )


if __name__ == "__main__":
    unittest.main()
