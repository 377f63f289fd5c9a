"""bfloat16 and float16 parameters that are changed between steps: the next step starts from what is there, though there is
a float32 master.

SPDX-License-Identifier: MIT
"""

import copy
import unittest

import find_package  # noqa: F401
import libadamod.numpy as ln
import libadamod.torch as lt
import numpy as np
import torch
from support import CLASSES, assert_near, clones, make_params, only_near_on_cuda, same_bits, set_grads, train

LOW = (torch.bfloat16, torch.float16)


def rounds_to(p, master):
    return same_bits(p.detach(), master.to(p.dtype))


class ByHandTest(unittest.TestCase):
    def test_the_best_weights_are_loaded(self):
        """As an optimizer with the same states goes on that has them as its masters."""
        for cls in CLASSES:
            for dtype in LOW:
                params = make_params((40, 30), (70,), dtype=dtype)
                optimizer = cls(params)
                best = [p.detach().clone() for p in params]
                train(optimizer, params, 5)
                states = copy.deepcopy(optimizer.state_dict())
                for state, p, b in zip(states["state"].values(), params, best):
                    # an element that is the same in both has not been changed
                    state["master"] = torch.where(p.detach() == b, state["master"], b.float())
                with torch.no_grad():
                    for p, b in zip(params, best):
                        p.copy_(b)
                other = [torch.nn.Parameter(b.clone()) for b in best]
                follower = cls(other)
                follower.load_state_dict(states)
                train(optimizer, params, 3, first=6)
                train(follower, other, 3, first=6)
                for p, q in zip(params, other):
                    self.assertTrue(same_bits(p.detach(), q.detach()), (cls, dtype))
                    self.assertTrue(same_bits(optimizer.state[p]["master"], follower.state[q]["master"]), (cls, dtype))
                    self.assertTrue(rounds_to(p, optimizer.state[p]["master"]))

    def test_a_model_loads_its_best_state(self):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4).bfloat16()
        optimizer = lt.AdamW(model.parameters(), lr=1e-3)
        best = copy.deepcopy(model.state_dict())

        def step():
            optimizer.zero_grad()
            model(torch.ones(2, 4).bfloat16()).sum().backward()
            optimizer.step()

        for _ in range(50):
            step()
        self.assertGreater(float((model.weight.detach() - best["weight"]).abs().max()), 0.02)
        model.load_state_dict(best)
        step()
        # one step of 1e-3, and half a bf16's spacing below 0.5
        self.assertLess(float((model.weight.detach() - best["weight"]).abs().max()), 0.0031)

    def test_weights_that_are_clamped(self):
        for dtype in LOW:
            p = torch.nn.Parameter(torch.full((700,), 0.5, dtype=dtype))
            optimizer = lt.SGD([p], lr=1e-2)
            bound = float(torch.tensor(0.51, dtype=dtype))
            for sign, steps in ((-1, 30), (1, 10)):
                for _ in range(steps):
                    p.grad = torch.full_like(p, sign)
                    optimizer.step()
                    with torch.no_grad():
                        p.copy_(p.float().clamp(-bound, bound))  # PyTorch 1 does not clamp float16
            # 10 steps of 0.01 down from the bound, which those before could not leave
            expected = torch.full((700,), bound) - 10 * 0.01
            torch.testing.assert_close(p.detach().float(), expected, rtol=0, atol=1.1 * 2**-9)
            torch.testing.assert_close(optimizer.state[p]["master"], expected, rtol=0, atol=1e-6)

    def test_only_what_is_changed_leaves_its_master(self):
        for dtype in LOW:
            (p,) = make_params((999,), dtype=dtype)
            (q,) = clones([p])
            one, other = lt.AdaMod([p], lr=1e-4), lt.AdaMod([q], lr=1e-4)
            train(one, [p], 5)
            train(other, [q], 5)
            with torch.no_grad():
                p[::7] = 2 - p[::7]
                p.mul_(1)  # written, and not changed
            changed = p.detach() != q.detach()
            start = p.detach().float()
            self.assertGreater(int(changed.sum()), 100)
            train(one, [p], 1, first=6)
            train(other, [q], 1, first=6)
            masters = one.state[p]["master"], other.state[q]["master"]
            self.assertTrue(same_bits(masters[0][~changed], masters[1][~changed]))
            self.assertLess(float((masters[0] - start)[changed].abs().max()), 1e-3)

    def test_a_checkpoint_for_other_weights(self):
        """The optimizer's state is loaded, but the weights are others than those it was saved with."""
        params = make_params((50,), dtype=torch.bfloat16)
        optimizer = lt.AdaMod(params, lr=1e-3)
        train(optimizer, params, 5)
        others = [torch.nn.Parameter(p.detach() + 1) for p in params]
        resumed = lt.AdaMod(others, lr=1e-3)
        resumed.load_state_dict(optimizer.state_dict())
        before = others[0].detach().float()
        train(resumed, others, 1, first=6)
        self.assertLess(float((resumed.state[others[0]]["master"] - before).abs().max()), 0.01)

    def test_parameters_that_are_not_dense(self):
        """Parameters that are updated through a copy."""
        for dtype in LOW:
            p = torch.nn.Parameter(torch.zeros(20, 12, dtype=dtype)[:, ::2])
            optimizer = lt.SGD([p], lr=0.5)
            set_grads([p], 1)
            optimizer.step()
            with torch.no_grad():
                p.fill_(3)
            set_grads([p], 2)
            optimizer.step()
            expected = 3 - 0.5 * p.grad.float()
            self.assertTrue(same_bits(optimizer.state[p]["master"].contiguous(), expected.contiguous()))
            self.assertTrue(rounds_to(p, expected))

    def test_numpy(self):
        p = np.linspace(-1, 1, 101).astype(np.float16)
        state = ln.states("adamod", p)
        grad = np.ones_like(p)
        for step in range(1, 4):
            ln.update("adamod", p, grad, state, step, lr=1e-3)
        p[:] = 0.5
        ln.update("adamod", p, grad, state, 4, lr=1e-3)
        self.assertLess(np.abs(state["master"] - 0.5).max(), 2e-3)
        self.assertTrue((p == state["master"].astype(np.float16)).all())


@unittest.skipUnless(torch.cuda.is_available(), "PyTorch sees no GPU")
class OnCudaTest(unittest.TestCase):
    def test_as_on_the_cpu(self):
        """Equal bits, except for Muon's matrices, which would be far off if a change did not count."""
        for cls in CLASSES:
            for dtype in LOW:
                here = make_params((40, 30), (7000,), dtype=dtype)
                there = [torch.nn.Parameter(p.detach().cuda()) for p in here]
                optimizers = cls(here), cls(there)
                for t in range(1, 7):
                    set_grads(here, t)
                    for p, q in zip(here, there):
                        q.grad = p.grad.cuda()
                    for optimizer in optimizers:
                        optimizer.step()
                    for p, q in zip(here, there):
                        masters = [o.state[x]["master"].cpu() for o, x in zip(optimizers, (p, q))]
                        self.assertTrue(rounds_to(q, masters[1].to(q.device)), (cls, dtype, t))
                        if only_near_on_cuda(optimizers[0], p):
                            assert_near(*masters, (cls, dtype, t))
                        else:
                            self.assertTrue(same_bits(p.detach(), q.detach().cpu()), (cls, dtype, t))
                            self.assertTrue(same_bits(*masters), (cls, dtype, t))
                        with torch.no_grad():
                            p.copy_(p.float().clamp(-0.5, 0.5))
                            q.copy_(q.float().clamp(-0.5, 0.5))


if __name__ == "__main__":
    unittest.main()
