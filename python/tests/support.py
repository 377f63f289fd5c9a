"""What the tests share.

SPDX-License-Identifier: MIT
"""

import libadamod.torch as lt
import torch

torch.set_num_threads(1)  # everything is small, and a busy machine is slow to wake others

CLASSES = [
    getattr(lt, name)
    for name in lt.__all__
    if isinstance(getattr(lt, name), type)
    and issubclass(getattr(lt, name), lt.Optimizer)
    and getattr(lt, name) is not lt.Optimizer
]


def make_params(*shapes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in shapes
    ]


def set_grads(params, step, seed=1):
    """Gradients that depend on the step alone."""
    generator = torch.Generator().manual_seed(1000 * seed + step)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)


def train(optimizer, params, steps, first=1):
    for t in range(first, first + steps):
        set_grads(params, t)
        optimizer.step()


def clones(params):
    return [torch.nn.Parameter(p.detach().clone()) for p in params]


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
