"""Random sequences of what programs do to an optimizer between steps; torch.optim.AdamW, treated alike, must end at the
same parameters.

SPDX-License-Identifier: MIT
"""

import copy
import random
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from support import make_params

SHAPES = [(3, 4, 2, 2), (5, 4), (7,), (), (2, 1, 1, 1), (0, 3), (4, 3, 3)]


class Pair:
    """An optimizer of ours and one of PyTorch's, with parameters of equal values."""

    def __init__(self, generator):
        self.random = generator
        self.params = [make_params(*SHAPES[:4], dtype=torch.float64) for _ in range(2)]
        makes = (lt.AdamW, torch.optim.AdamW)
        self.optimizers = [
            make([{"params": p[:2]}, {"params": p[2:], "lr": 0.01}], lr=0.1, weight_decay=0.1)
            for make, p in zip(makes, self.params)
        ]
        self.step_number = 0

    def both(self, i):
        return self.params[0][i], self.params[1][i]

    # ---- events ----

    def step(self):
        self.step_number += 1
        generator = torch.Generator().manual_seed(self.step_number)
        for p, q in zip(*self.params):
            g = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            frozen = self.random.random() < 0.2
            q.grad = None if frozen else g
            p.grad = None if frozen else self.rearranged(g)
        for optimizer in self.optimizers:
            optimizer.step()

    def rearranged(self, t):
        """A tensor of these values, in another order or with gaps in memory."""
        order = list(range(t.dim()))
        self.random.shuffle(order)
        kind = self.random.randrange(4)
        if kind == 0 and t.dim() == 4:
            return t.to(memory_format=torch.channels_last)
        if kind == 1 and t.dim() > 1:
            back = [order.index(i) for i in range(t.dim())]
            return t.permute(order).contiguous().permute(back)
        if kind == 2 and t.dim() > 0:
            return t.repeat_interleave(2, dim=-1)[..., ::2]
        return t.clone()

    def move_a_parameter(self):
        p = self.random.choice(self.params[0])
        p.data = self.rearranged(p.data)

    def move_a_state(self):
        state = self.optimizers[0].state.get(self.random.choice(self.params[0]), {})
        for name, value in state.items():
            if torch.is_tensor(value) and self.random.random() < 0.5:
                state[name] = self.rearranged(value)

    def change_an_option(self):
        group, name = self.random.randrange(2), self.random.choice(("lr", "weight_decay", "betas"))
        value = self.random.uniform(0.01, 0.1)
        for optimizer in self.optimizers:
            optimizer.param_groups[group][name] = (0.9 - value, 0.99) if name == "betas" else value

    def add_a_group(self):
        if len(self.params[0]) < len(SHAPES):
            shape = SHAPES[len(self.params[0])]
            for params, optimizer in zip(self.params, self.optimizers):
                params += make_params(shape, dtype=torch.float64)
                optimizer.add_param_group({"params": params[-1:]})

    def save_and_load(self):
        """Into new optimizers; ours sometimes takes PyTorch's checkpoint."""
        saved = [copy.deepcopy(o.state_dict()) for o in self.optimizers]
        taken = self.random.choice(((0, 1), (1, 1), (0, 0)))
        for i, make in enumerate((lt.AdamW, torch.optim.AdamW)):
            groups = [{"params": g["params"]} for g in self.optimizers[i].param_groups]
            self.optimizers[i] = make(groups)
            self.optimizers[i].load_state_dict(copy.deepcopy(saved[taken[i]]))

    def copy_all(self):
        self.optimizers[0], self.params[0] = copy.deepcopy((self.optimizers[0], self.params[0]))


class Events(unittest.TestCase):
    def test_any_sequence_ends_where_torch_does(self):
        for seed in range(30):
            with self.subTest(seed=seed):
                generator = random.Random(seed)
                pair = Pair(generator)
                others = [pair.move_a_parameter, pair.move_a_state, pair.change_an_option, pair.add_a_group]
                others += [pair.save_and_load, pair.copy_all]
                for _ in range(20):
                    generator.choice(others)()
                    pair.step()
                for p, q in zip(*pair.params):
                    torch.testing.assert_close(p, q, rtol=1e-11, atol=1e-12, check_stride=False)


if __name__ == "__main__":
    unittest.main()
