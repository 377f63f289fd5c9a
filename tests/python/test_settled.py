"""Steps that find everything as the last one left it take a shorter way: they must not miss what is not.

SPDX-License-Identifier: MIT
"""

import unittest
import warnings
import weakref
from unittest import mock

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from libadamod.torch import arrays, settled
from support import clones, make_params, same_bits, set_grads, train
from test_handles import PLACES

SHAPES = ((6, 6), (70,), (), (2, 3, 4, 4))


def transposed_memory(t):
    """These numbers in other places of the same memory."""
    return t.detach().as_strided(t.shape, tuple(reversed(t.stride()))).copy_(t.detach().clone())


# Each changes something between two steps, of an optimizer's state or of its parameters.


def no_gradient(optimizer, params):
    params[1].grad = None


def another_memory(optimizer, params):
    params[0].data = params[0].data.clone()


def another_order(optimizer, params):
    p = params[0]
    address = p.data_ptr()
    p.data = transposed_memory(p)
    assert p.data_ptr() == address


def gradient_in_another_order(optimizer, params):
    params[0].grad = params[0].grad.t().contiguous().t()


def gradient_in_another_order_in_place(optimizer, params):
    params[0].grad.data = transposed_memory(params[0].grad)


def gradient_of_another_type(optimizer, params):
    params[1].grad.data = params[1].grad.data.double()


def gradient_negated_lazily(optimizer, params):
    params[1].grad = torch._neg_view(params[1].grad)


def frozen(optimizer, params):
    params[2].requires_grad_(False)
    params[2].grad = None


def state_replaced(optimizer, params):
    state = optimizer.state[params[1]]
    state["exp_avg"] = 2 * state["exp_avg"]


def state_moved(optimizer, params):
    state = optimizer.state[params[1]]
    state["exp_avg_lr"].data = 2 * state["exp_avg_lr"].data


def states_of_equal_shape_exchanged(optimizer, params):
    a, b = params[0], params[4]
    optimizer.state[a], optimizer.state[b] = optimizer.state[b], optimizer.state[a]


def same_dicts_for_other_parameters(optimizer, params):
    of = {p: optimizer.state[p] for p in params}
    of[params[0]], of[params[4]] = of[params[4]], of[params[0]]
    optimizer.state.clear()
    order = [params[4], *params[1:4], params[0]]
    for p in order:
        optimizer.state[p] = of[p]


def all_states_gone(optimizer, params):
    optimizer.state.clear()


def count_set(optimizer, params):
    optimizer.state[params[1]]["step"] = 40


def count_as_a_tensor(optimizer, params):
    optimizer.state[params[1]]["step"] = torch.tensor(40.0)


def option_set(optimizer, params):
    optimizer.param_groups[0]["lr"] = 0.5


def state_type_set(optimizer, params):
    optimizer.param_groups[0]["state_type"] = "bf16"


def group_added(optimizer, params):
    (p,) = make_params((5,), seed=8)
    optimizer.add_param_group({"params": [p], "lr": 0.5})
    params.append(p)
    set_grads([p], 3)


CHANGES = (
    no_gradient,
    another_memory,
    another_order,
    gradient_in_another_order,
    gradient_in_another_order_in_place,
    gradient_of_another_type,
    gradient_negated_lazily,
    frozen,
    state_replaced,
    state_moved,
    states_of_equal_shape_exchanged,
    same_dicts_for_other_parameters,
    all_states_gone,
    count_set,
    count_as_a_tensor,
    option_set,
    state_type_set,
    group_added,
)


class Settling(unittest.TestCase):
    """With few parameters."""

    def setUp(self):
        patch = mock.patch.object(arrays, "_WORTH_SETTLING", 1)
        patch.start()
        self.addCleanup(patch.stop)


class Changes(Settling):
    """Bits are those of an optimizer that looks at everything in every step."""

    def outcome(self, change, look_again):
        params = make_params(*SHAPES, (6, 6))
        optimizer = lt.AdaMod(params)
        train(optimizer, params, 4)
        self.assertIsNotNone(optimizer._arrays[0].settled)
        set_grads(params, 20)
        change(optimizer, params)
        for i in range(4):
            if look_again:
                optimizer._arrays = []
            optimizer.step()
            if i == 0:
                for p in params:
                    if p.grad is not None:
                        p.grad.data = p.grad.data.clone()  # in other memory
        return optimizer, params

    def check(self, change):
        one, params = self.outcome(change, False)
        other, others = self.outcome(change, True)
        for i, (p, q) in enumerate(zip(params, others)):
            self.assertTrue(same_bits(p, q), i)
            self.assertEqual(one.state[p].keys(), other.state[q].keys())
            for name, value in one.state[p].items():
                same = value == other.state[q][name] if name == "step" else same_bits(value, other.state[q][name])
                self.assertTrue(same, (i, name))

    def check_all(self):
        for change in CHANGES:
            with self.subTest(change.__name__):
                self.check(change)

    def test_changes(self):
        self.check_all()

    def test_changes_without_guards(self):
        with mock.patch.object(settled, "_HAS_GUARDS", False):
            self.check_all()

    def test_changes_with_handles(self):
        with mock.patch(PLACES[0], lambda p: "cpu"), mock.patch(PLACES[1], lambda p: "cpu"):
            self.check_all()


class Misuse(Settling):
    def refused(self, change, error, message):
        params = make_params(*SHAPES)
        optimizer = lt.AdaMod(params)
        train(optimizer, params, 4)
        self.assertIsNotNone(optimizer._arrays[0].settled)
        change(optimizer, params)
        before = clones(params)
        with self.assertRaisesRegex(error, message):
            optimizer.step()
        self.assertTrue(all(same_bits(p, q) for p, q in zip(params, before)))

    def test_a_sparse_gradient(self):
        def change(optimizer, params):
            params[0].grad = params[0].grad.to_sparse()

        self.refused(change, RuntimeError, "parameter 0 of group 0 has a sparse gradient")

    def test_a_state_that_is_gone(self):
        def change(optimizer, params):
            del optimizer.state[params[1]]["exp_avg_sq"]

        self.refused(change, ValueError, "the state of parameter 1 of group 0 has no exp_avg_sq")

    def test_a_state_that_is_no_tensor(self):
        def change(optimizer, params):
            optimizer.state[params[1]]["exp_avg"] = 3.0

        self.refused(change, TypeError, "exp_avg of parameter 1 of group 0 is float, expected a tensor")

    def test_fewer_elements(self):
        def change(optimizer, params):
            p = params[1]
            p.data = p.data[:50]
            p.grad = p.grad[:50].clone()

        self.refused(change, ValueError, r"exp_avg of parameter 1 of group 0 has shape \(70,\), expected \(50,\)")

    def test_a_shorter_gradient(self):
        def change(optimizer, params):
            params[1].grad.data = params[1].grad.data[:50]

        message = r"parameter 1 of group 0 has a gradient of shape \(50,\), expected its own, \(70,\)"
        self.refused(change, ValueError, message)
        with mock.patch.object(settled, "_HAS_GUARDS", False):
            self.refused(change, ValueError, message)

    def test_a_gradient_whose_memory_is_gone(self):
        def change(optimizer, params):
            params[1].grad.storage().resize_(0)

        with warnings.catch_warnings():  # PyTorch's, of storage()
            warnings.simplefilter("ignore")
            self.refused(change, RuntimeError, "parameter 1 of group 0 has a gradient whose memory was freed")

    def test_a_count_that_is_no_number(self):
        def change(optimizer, params):
            optimizer.state[params[1]]["step"] = "many"

        self.refused(change, TypeError, "step of parameter 1 of group 0 is 'many'")


class Ways(Settling):
    """Tests whether a step takes the shorter way."""

    def test_the_short_way_is_taken_and_kept(self):
        params = make_params(*SHAPES)
        optimizer = lt.AdaMod(params)
        train(optimizer, params, 4)
        kept = optimizer._arrays[0].settled
        old = [p.grad for p in params]  # so that new ones lie elsewhere
        train(optimizer, params, 3, first=9)
        self.assertIsNotNone(kept)
        self.assertIs(optimizer._arrays[0].settled, kept)
        self.assertEqual([optimizer.state[p]["step"] for p in params], [7] * len(params))
        del old

    def test_frozen_parameters_do_not_prevent_it(self):
        params = make_params(*SHAPES)
        others = clones(params)
        for some in (params, others):
            some[1].requires_grad_(False)
        one, other = lt.AdaMod(params), lt.AdaMod(others)
        for i in range(8):
            for some in (params, others):
                set_grads([some[0], *some[2:]], i)
            other._arrays = []
            one.step(), other.step()
        self.assertIsNotNone(one._arrays[0].settled)
        self.assertTrue(all(same_bits(p, q) for p, q in zip(params, others)))

    def test_as_many_gradients_of_other_parameters(self):
        params = make_params((5,), (5,), (5,))
        optimizer = lt.AdaMod(params)
        for _ in range(4):
            set_grads(params[:2], 1)
            optimizer.step()
        self.assertIsNotNone(optimizer._arrays[0].settled)
        params[2].grad, params[0].grad = params[0].grad, None
        before = clones(params)
        optimizer.step()
        self.assertEqual([same_bits(p, q) for p, q in zip(params, before)], [True, False, False])
        self.assertEqual([optimizer.state[p].get("step") for p in params], [4, 5, 1])

    def test_autograd_is_told(self):
        params = make_params(*SHAPES)
        optimizer = lt.AdaMod(params)
        train(optimizer, params, 4)
        versions = [p._version for p in params]
        optimizer.step()
        self.assertTrue(all(p._version > before for p, before in zip(params, versions)))

    def test_gradients_are_not_kept_alive(self):
        params = make_params(*SHAPES)
        optimizer = lt.AdaMod(params)
        train(optimizer, params, 4)
        kept = [weakref.ref(p.grad) for p in params]
        for p in params:
            p.grad = None
        self.assertEqual([ref() for ref in kept], [None] * len(params))


if __name__ == "__main__":
    unittest.main()
