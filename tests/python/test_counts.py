"""state["step"]: a tensor as torch.optim has it, counted in place, whoever writes to it in between.

SPDX-License-Identifier: MIT
"""

import copy
import pickle
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from support import CLASSES, clones, make_params, set_grads, train

try:
    from torch.optim import swap_in_optimizer_params_and_state
except ImportError:
    swap_in_optimizer_params_and_state = None
try:
    from torch._subclasses import FakeTensorMode
except ImportError:
    FakeTensorMode = None

FEW, MANY = 2, 20  # parameters; of many, a step looks at all together


def counts(optimizer, params):
    return [optimizer.state[p]["step"].item() for p in params]


class Counts(unittest.TestCase):
    def test_a_tensor_on_the_cpu(self):
        for cls in CLASSES:
            params = make_params((4, 3), (5,))
            optimizer = cls(params)
            train(optimizer, params, 3)
            copies = copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))
            loaded = cls(clones(params))
            loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            for each in (optimizer, *copies, loaded):
                for state in each.state.values():
                    self.assertEqual((state["step"].item(), state["step"].dim()), (3, 0), cls.__name__)
                    self.assertEqual(state["step"].device.type, "cpu")
                    self.assertTrue(state["step"].is_floating_point())

    def test_it_is_counted_in_place(self):
        for n in (FEW, MANY):
            params = make_params(*[(3,)] * n)
            optimizer = lt.AdaMod(params)
            train(optimizer, params, 1)
            held = [optimizer.state[p]["step"] for p in params]
            train(optimizer, params, 6, first=2)
            self.assertEqual([t.item() for t in held], [7] * n)
            for p, t in zip(params, held):
                self.assertIs(optimizer.state[p]["step"], t)

    def test_ints_of_older_checkpoints(self):
        params = make_params((4, 3), (5,))
        others = clones(params)
        optimizer, other = lt.AdaMod(params), lt.AdaMod(others)
        train(optimizer, params, 3)
        train(other, others, 3)
        saved = copy.deepcopy(optimizer.state_dict())
        for state in saved["state"].values():
            state["step"] = int(state["step"])
        del saved["param_groups"][0]["step"]
        optimizer.load_state_dict(saved)
        self.assertEqual(counts(optimizer, params), [3, 3])
        train(optimizer, params, 2, first=4)
        train(other, others, 2, first=4)
        self.assertTrue(all(torch.equal(p, q) for p, q in zip(params, others)))

    def by_hand(self, write):
        """Another count is written for one parameter after some steps; with tensors and ints it is the same run."""
        for n in (FEW, MANY):
            params = make_params(*[(3,)] * n)
            others = clones(params)
            optimizer, other = lt.AdaMod(params), lt.AdaMod(others)
            for one, ps in ((optimizer, params), (other, others)):
                train(one, ps, 4)
            write(optimizer.state[params[1]])
            other.state[others[1]]["step"] = 40
            for one, ps in ((optimizer, params), (other, others)):
                train(one, ps, 4, first=5)
                self.assertEqual(counts(one, ps), [8, 44] + [8] * (n - 2))
            self.assertTrue(all(torch.equal(p, q) for p, q in zip(params, others)))

    def test_written_in_place(self):
        self.by_hand(lambda state: state["step"].fill_(40))

    def test_replaced(self):
        self.by_hand(lambda state: state.update(step=torch.tensor(40.0)))
        self.by_hand(lambda state: state.update(step=torch.tensor([40])))
        self.by_hand(lambda state: state.update(step=40))

    def test_moved_in_place(self):
        """Its memory is another's then."""

        def move(state):
            state["step"].data = torch.tensor(40.0, dtype=state["step"].dtype)

        self.by_hand(move)

        def share(state):
            state["step"].share_memory_()
            state["step"].fill_(40)

        self.by_hand(share)

    def test_a_type_that_cannot_count_on(self):
        for n in (FEW, MANY):
            for dtype, end in ((torch.float32, 2**24), (torch.float64, 2**53)):
                params = make_params(*[(3,)] * n)
                optimizer = lt.AdaMod(params)
                train(optimizer, params, 4)
                for p in params:
                    optimizer.state[p]["step"] = torch.tensor(float(end - 6), dtype=dtype)
                train(optimizer, params, 12)
                self.assertEqual(counts(optimizer, params), [end + 6] * n)

    def test_torch_counts_on(self):
        """With its own types, and it leaves ours alone where it was given a copy."""
        params = make_params((4,))
        optimizer = lt.Adam(params)
        train(optimizer, params, 3)
        for arguments in (dict(foreach=False), dict(foreach=True)):
            theirs = torch.optim.Adam(clones(params), **arguments)
            theirs.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            train(theirs, theirs.param_groups[0]["params"], 2)
            self.assertEqual([state["step"].item() for state in theirs.state.values()], [5])
        self.assertEqual(counts(optimizer, params), [3])


@unittest.skipUnless(swap_in_optimizer_params_and_state, "this PyTorch does not swap an optimizer's parameters")
class Swapped(unittest.TestCase):
    def test_every_class(self):
        for cls in CLASSES:
            params = make_params((4, 3), (5,))
            optimizer = cls(params)
            train(optimizer, params, 3)
            expected_params = clones(params)
            expected = cls(expected_params)
            expected.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            train(expected, expected_params, 1, first=4)

            others = clones(params)
            saved = copy.deepcopy(optimizer.state_dict())
            before = copy.deepcopy(optimizer.state_dict()), clones(params)
            with swap_in_optimizer_params_and_state(optimizer, {str(i): p for i, p in enumerate(others)}, saved):
                train(optimizer, others, 1, first=4)
            for i, (p, q) in enumerate(zip(others, expected_params)):
                self.assertTrue(torch.equal(p, q), cls.__name__)
                for name, value in expected.state[q].items():  # what was swapped in was updated in place
                    self.assertTrue(torch.equal(saved["state"][i][name], value), f"{cls.__name__} {name}")
            self.assertEqual(str(optimizer.state_dict()), str(before[0]))
            self.assertTrue(all(torch.equal(p, q) for p, q in zip(params, before[1])))
            train(optimizer, params, 1, first=4)
            self.assertTrue(all(torch.equal(p, q) for p, q in zip(params, expected_params)))


class WithoutMemory(unittest.TestCase):
    def test_meta(self):
        p = torch.nn.Parameter(torch.empty(3, device="meta"))
        p.grad = torch.empty(3, device="meta")
        with self.assertRaisesRegex(RuntimeError, "parameter 0 of group 0 is a meta tensor, which has no memory"):
            lt.AdaMod([p]).step()

    @unittest.skipUnless(FakeTensorMode and hasattr(torch, "compile"), "this PyTorch has no FakeTensors to speak of")
    def test_fake(self):
        with FakeTensorMode() as mode:
            p = torch.nn.Parameter(torch.empty(3))
            p.grad = torch.empty(3)
            optimizer = lt.AdaMod([p])
            with self.assertRaisesRegex(RuntimeError, "parameter 0 of group 0 is a FakeTensor: a step calls compiled"):
                optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "parameter 0 of group 0 is a FakeTensor"):
            optimizer.step()
        (p,) = make_params((3,))
        optimizer = lt.AdaMod([p])
        train(optimizer, [p], 2)
        set_grads([p], 3)
        if swap_in_optimizer_params_and_state is not None:
            fakes = {"p": mode.from_tensor(p)}
            fakes["p"].grad = mode.from_tensor(p.grad)
            with swap_in_optimizer_params_and_state(optimizer, fakes, copy.deepcopy(optimizer.state_dict())):
                with self.assertRaisesRegex(RuntimeError, "is a FakeTensor"):
                    optimizer.step()
        optimizer.step()
        self.assertEqual(counts(optimizer, [p]), [3])


if __name__ == "__main__":
    unittest.main()
