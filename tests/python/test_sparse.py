"""Gradients in other layouts: sparse ones as torch.optim takes them, in SGD and Adagrad; all else is refused by name.

SPDX-License-Identifier: MIT
"""

import unittest
import warnings

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from support import CLASSES, make_params


def embedding(dtype, sparse=True):
    torch.manual_seed(2)
    return torch.nn.Embedding(50, 8, sparse=sparse).to(dtype)


def backward(model, step):
    """Words that come more than once, and others that do not come."""
    model.zero_grad(set_to_none=True)
    generator = torch.Generator().manual_seed(step)
    words = torch.randint(0, 20, (6, 5), generator=generator)
    (model(words) * torch.randn(6, 5, 8, generator=generator).to(model.weight.dtype)).sum().backward()


class Sparse(unittest.TestCase):
    CASES = [
        (lt.SGD, torch.optim.SGD, dict(lr=0.1)),
        (lt.SGD, torch.optim.SGD, dict(lr=0.1, momentum=0.9)),
        (lt.SGD, torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
        (lt.SGD, torch.optim.SGD, dict(lr=0.1, momentum=0.9, dampening=0.3)),
        (lt.SGD, torch.optim.SGD, dict(lr=0.1, maximize=True)),
        (lt.Adagrad, torch.optim.Adagrad, dict(lr=0.1)),
        (lt.Adagrad, torch.optim.Adagrad, dict(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.1)),
    ]

    def test_as_in_torch(self):
        for ours, theirs, arguments in self.CASES:
            for dtype, rtol in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
                model, other = embedding(dtype), embedding(dtype)
                one, two = ours(model.parameters(), **arguments), theirs(other.parameters(), **arguments)
                for t in range(6):
                    for each, optimizer in ((model, one), (other, two)):
                        backward(each, t)
                        self.assertTrue(each.weight.grad.is_sparse)
                        optimizer.step()
                torch.testing.assert_close(model.weight, other.weight, rtol=rtol, atol=rtol)
                self.assertEqual(int(one.state[model.weight]["step"]), 6)

    def test_the_bits_of_a_dense_one(self):
        """Beside parameters with dense gradients, enough for a step to take the fast way between; and in turns."""
        for cls in (lt.SGD, lt.Adagrad):
            results = []
            for sparse in (True, False):
                model = embedding(torch.float32)
                others = make_params(*[(3,)] * 12)
                optimizer = cls([model.weight, *others], lr=0.1)
                for t in range(10):
                    backward(model, t)
                    if not sparse or t in (3, 4, 5, 6, 7):
                        dense = model.weight.grad.coalesce().to_dense()
                        model.weight.grad = None
                        model.weight.grad = dense
                    for p in others:
                        p.grad = torch.ones_like(p) * (t + 1)
                    optimizer.step()
                results.append([model.weight, *others])
            self.assertTrue(all(torch.equal(p, q) for p, q in zip(*results)))

    def test_decay_is_refused_as_in_torch(self):
        for cls in (lt.SGD, lt.Adagrad):
            for decay in ("l2", "decoupled"):
                model = embedding(torch.float32)
                optimizer = cls(model.parameters(), lr=0.1, weight_decay=0.1, decay=decay)
                backward(model, 1)
                before = model.weight.detach().clone()
                with self.assertRaisesRegex(RuntimeError, "parameter 0 of group 0 has a sparse gradient, and weight_d"):
                    optimizer.step()
                self.assertTrue(torch.equal(model.weight, before))

    def test_other_rules_refuse_it(self):
        for cls in CLASSES:
            if cls in (lt.SGD, lt.Adagrad):
                continue
            model = embedding(torch.float32)
            backward(model, 1)
            text = "parameter 0 of group 0 has a sparse gradient .*set sparse=False; SGD and Adagrad take sparse ones"
            with self.assertRaisesRegex(RuntimeError, text):
                cls(model.parameters()).step()

    def test_other_sparse_layouts(self):
        (p,) = make_params((4, 3))
        with warnings.catch_warnings():  # that they are in beta
            warnings.simplefilter("ignore")
            grad = torch.ones(4, 3).to_sparse_csr()
        try:
            p.grad = grad
        except RuntimeError:
            self.skipTest("this PyTorch takes no such gradient")
        with self.assertRaisesRegex(RuntimeError, "parameter 0 of group 0 has a sparse gradient .*to_sparse_coo()"):
            lt.SGD([p], lr=0.1).step()


class OtherLayouts(unittest.TestCase):
    def test_mkldnn(self):
        if not torch.backends.mkldnn.is_available():
            self.skipTest("this PyTorch has no MKL-DNN")
        p = torch.nn.Parameter(torch.ones(4, 3).to_mkldnn())
        p.grad = torch.ones(4, 3).to_mkldnn()
        with self.assertRaisesRegex(RuntimeError, "parameter 0 of group 0 has a gradient in MKL-DNN's layout"):
            lt.AdaMod([p]).step()

    def test_nested(self):
        layouts = [torch.jagged] if hasattr(torch, "jagged") else []
        for layout in [torch.strided, *layouts]:
            with warnings.catch_warnings():  # that they are prototypes
                warnings.simplefilter("ignore")
                if not hasattr(torch, "compile"):
                    self.skipTest("the nested tensors of this PyTorch cannot have such a gradient")
                arguments = {} if layout is torch.strided else {"layout": layout}
                p = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], **arguments).requires_grad_()
                torch.nested.to_padded_tensor(p * 2, 0.0).sum().backward()
            self.assertTrue(p.grad.is_nested)
            with self.assertRaisesRegex(RuntimeError, "parameter 0 of group 0 has a nested gradient, expected a dense"):
                lt.SGD([p], lr=0.1).step()


if __name__ == "__main__":
    unittest.main()
