"""Parameters of any layout and type: strided, moved, complex, 16 bits.

SPDX-License-Identifier: MIT
"""

import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from support import CLASSES, clones, make_params, same_bits, set_grads, train

STATES_NAMES = ("exp_avg", "exp_avg_sq", "exp_avg_lr")
SHAPED = (lt.Adafactor, lt.Muon, lt.SOAP)  # rules that look at rows and columns


class Layouts(unittest.TestCase):
    """Whatever the memory looks like, the numbers are those of the contiguous tensor."""

    def check(self, make, cls=lt.AdaMod, grad=lambda g, p: g, steps=4, **arguments):
        p = make()
        q = torch.nn.Parameter(p.detach().clone(memory_format=torch.contiguous_format))
        one, other = cls([p], **arguments), cls([q], **arguments)
        for t in range(1, steps + 1):
            set_grads([q], t)
            p.grad = grad(q.grad.clone(), p)
            one.step()
            other.step()
        self.assertTrue(same_bits(p.detach().contiguous(), q.detach()))
        for name, value in other.state[q].items():
            if isinstance(value, torch.Tensor):
                self.assertTrue(same_bits(one.state[p][name].contiguous(), value), name)
        return p, one.state[p]

    def test_channels_last_is_updated_in_place(self):
        def make():
            return torch.nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last))

        for grad in (lambda g, p: g, lambda g, p: g.to(memory_format=torch.channels_last)):
            p, state = self.check(make, grad=grad)
            self.assertTrue(p.is_contiguous(memory_format=torch.channels_last))
            self.assertEqual(state["exp_avg"].stride(), p.stride())
        self.check(make, lt.AdaShift, window=2, spatial="none")
        self.check(make, lt.Adafactor)

    def test_transposed_and_strided(self):
        self.check(lambda: torch.nn.Parameter(torch.randn(6, 4).t()))
        self.check(lambda: torch.nn.Parameter(torch.randn(6, 8)[:, ::2]))
        self.check(lambda: torch.nn.Parameter(torch.randn(6, 8)[:, ::2]), lt.Adafactor)
        self.check(lambda: torch.nn.Parameter(torch.randn(5, 6, 4).permute(2, 0, 1)))

    def test_a_gradient_in_another_layout_or_an_expanded_one(self):
        def make():
            return torch.nn.Parameter(torch.randn(6, 6))

        self.check(make, grad=lambda g, p: g.t().contiguous().t())
        (p,) = make_params((3, 4))
        (q,) = clones([p])
        p.grad, q.grad = torch.ones(()).expand(3, 4), torch.ones(3, 4)
        lt.AdaMod([p]).step()
        lt.AdaMod([q]).step()
        self.assertTrue(torch.equal(p, q))

    def test_a_negated_view_as_gradient(self):
        z = torch.randn(5, dtype=torch.complex64)
        g = z.conj().imag  # a view whose sign is only noted
        self.assertTrue(g.is_neg())
        (p,) = make_params((5,))
        (q,) = clones([p])
        p.grad, q.grad = g, -z.imag.clone()
        lt.AdaMod([p]).step()
        lt.AdaMod([q]).step()
        self.assertTrue(torch.equal(p, q))

    def test_parameters_that_are_lazily_negated_or_conjugated(self):
        memory = torch.ones(3)
        p = torch._neg_view(memory).requires_grad_()
        p.grad = torch.ones(3)
        optimizer = lt.SGD([p], lr=0.5)
        optimizer.step()
        self.assertEqual((p.tolist(), memory.tolist()), ([-1.5] * 3, [1.5] * 3))
        self.assertEqual(optimizer.state[p]["step"], 1)
        z = torch.full((3,), 1 + 1j, dtype=torch.complex64)
        p = z.conj().detach().requires_grad_()
        p.grad = torch.full((3,), 1j, dtype=torch.complex64)
        version = p._version
        lt.SGD([p], lr=1.0).step()
        self.assertEqual((p.tolist(), z.tolist()), ([1 - 2j] * 3, [1 + 2j] * 3))
        self.assertGreater(p._version, version)

    def test_scalars_empties_and_many_dimensions(self):
        params = make_params((), (0,), (3, 0, 2), (1, 1, 1), (1,) * 5 + (2,) * 6)
        for cls in CLASSES:
            others = clones(params[:4] if cls in SHAPED else params)
            train(cls(others), others, 3)

    def test_a_1x1_convolution_in_either_layout_needs_no_copy(self):
        p = torch.nn.Parameter(torch.randn(8, 4, 1, 1))
        optimizer = lt.AdaMod([p])
        p.grad = torch.randn(8, 4, 1, 1).to(memory_format=torch.channels_last)
        optimizer.step()
        p.grad = torch.empty_strided((8, 4, 1, 1), (4, 1, 4, 4)).normal_()
        before = p.grad.data_ptr()
        optimizer.step()
        self.assertEqual(optimizer._arrays[0].rows[0].grad, before)

    def test_parameters_that_move(self):
        """p.data is given other memory, another layout, another type: states follow."""
        p = torch.nn.Parameter(torch.randn(4, 3, 2, 2))
        (q,) = clones([p])
        one, other = lt.AdaMod([p]), lt.AdaMod([q])
        change = [lambda x: x.clone(), lambda x: x.to(memory_format=torch.channels_last), lambda x: x.contiguous()]
        for t in range(1, 10):
            p.data = change[t % 3](p.data)
            set_grads([q], t)
            p.grad = q.grad.clone()
            one.step()
            other.step()
        self.assertTrue(same_bits(p.detach().contiguous(), q.detach()))
        p.data, p.grad = p.data.double(), None
        set_grads([p], 10)
        one.step()
        self.assertIs(one.state[p]["exp_avg"].dtype, torch.float64)

    def test_states_that_move(self):
        """As programs do that take an optimizer to another device and back."""
        (p,) = make_params((4, 3))
        (q,) = clones([p])
        one, other = lt.AdaMod([p]), lt.AdaMod([q])
        for t in range(1, 5):
            set_grads([p], t)
            set_grads([q], t)
            one.step()
            other.step()
            for name, value in list(one.state[p].items()):
                if isinstance(value, torch.Tensor):
                    one.state[p][name] = value.clone()
        for name in STATES_NAMES:
            one.state[p][name].data = one.state[p][name].data.clone()
        one.state[p]["step"] = torch.tensor(4.0)
        train(one, [p], 1, 5)
        train(other, [q], 1, 5)
        self.assertTrue(torch.equal(p, q))


class Types(unittest.TestCase):
    def test_complex_is_two_reals(self):
        for cls in CLASSES:
            if cls in SHAPED:
                continue
            for dtype in (torch.complex64, torch.complex128):
                z = torch.nn.Parameter(torch.randn(5, 3, dtype=dtype))
                r = torch.nn.Parameter(torch.view_as_real(z.detach()).clone())
                one, other = cls([z]), cls([r])
                for t in range(1, 13):
                    set_grads([r], t)
                    g = torch.view_as_complex(r.grad)
                    z.grad = g.conj().resolve_conj().conj() if t % 2 else g
                    one.step()
                    other.step()
                self.assertTrue(torch.equal(torch.view_as_real(z.detach()), r.detach()), cls)
                if cls is lt.AdaMod:
                    self.assertIs(one.state[z]["exp_avg"].dtype, dtype)

    def test_complex_as_torch_does(self):
        z = torch.nn.Parameter(torch.randn(5, dtype=torch.complex128))
        (w,) = clones([z])
        one, other = (
            lt.Adagrad([z], initial_accumulator_value=0.1),
            torch.optim.Adagrad([w], initial_accumulator_value=0.1),
        )
        for _ in range(5):
            z.grad = torch.randn(5, dtype=torch.complex128)
            w.grad = z.grad.clone()
            one.step()
            other.step()
        torch.testing.assert_close(z, w, rtol=1e-12, atol=1e-14)

    def test_16_bits_with_masters_follow_f32(self):
        for dtype in (torch.bfloat16, torch.float16):
            (p,) = make_params((50,), dtype=dtype)
            q = torch.nn.Parameter(p.detach().float())
            one, other = lt.AdaMod([p], lr=1e-4, beta3=0.5), lt.AdaMod([q], lr=1e-4, beta3=0.5)
            for t in range(1, 40):
                set_grads([p], t)
                q.grad = p.grad.float()
                one.step()
                other.step()
            self.assertTrue(same_bits(one.state[p]["master"], q.detach()))
            self.assertTrue(same_bits(p.detach(), q.detach().to(dtype)))

    def test_a_master_that_was_not_used_is_not_gone_back_to(self):
        (p,) = make_params((50,), dtype=torch.bfloat16)
        optimizer = lt.SGD([p], lr=1.0)
        train(optimizer, [p], 1)
        p.data = p.data.float()
        train(optimizer, [p], 2, first=2)
        self.assertNotIn("master", optimizer.state[p])
        p.data = p.data.bfloat16()
        before = p.detach().float()
        set_grads([p], 4)
        optimizer.step()
        self.assertTrue(same_bits(optimizer.state[p]["master"], before - p.grad.float()))
        optimizer.param_groups[0]["low_precision"] = "stochastic"
        train(optimizer, [p], 2, first=5)
        optimizer.param_groups[0]["low_precision"] = "master"
        before = p.detach().float()
        optimizer.step()
        self.assertTrue(same_bits(optimizer.state[p]["master"], before - p.grad.float()))

    def test_16_bits_without_masters_move_on_average(self):
        p = torch.nn.Parameter(torch.ones(20000, dtype=torch.bfloat16))
        optimizer = lt.SGD([p], lr=1e-4, low_precision="stochastic", seed=3)
        for _ in range(10):
            p.grad = torch.ones_like(p)
            optimizer.step()
        self.assertNotIn("master", optimizer.state[p])
        self.assertAlmostEqual(float(p.detach().double().mean()), 1 - 1e-3, delta=2e-4)

    def test_bf16_states(self):
        (p,) = make_params((300, 7))
        optimizer = lt.AdaMod([p], state_type="bf16")
        train(optimizer, [p], 4)
        self.assertTrue(all(optimizer.state[p][n].dtype is torch.bfloat16 for n in STATES_NAMES))

    def test_a_gradient_of_another_type(self):
        (p,) = make_params((30,))
        (q,) = clones([p])
        g = torch.randn(30, dtype=torch.bfloat16)
        one, other = lt.AdaMod([p]), lt.AdaMod([q])
        for _ in range(2):
            p.grad = torch.zeros(30)
            p.grad.data = g  # as programs do that reduce gradients in bfloat16
            q.grad = g.float()
            one.step()
            other.step()
        self.assertTrue(torch.equal(p, q))


if __name__ == "__main__":
    unittest.main()
