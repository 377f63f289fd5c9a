"""Helpers of the tests.

SPDX-License-Identifier: MIT
"""

import contextlib
import ctypes

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from libadamod import _c

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


def only_near_on_cuda(optimizer, p):
    """Whether a GPU's numbers for p are near the CPU's and not the same: Muon's matrices, whose products are in bf16 there."""
    return isinstance(optimizer, lt.Muon) and p.ndim >= 2


def assert_near(a, b, what):
    """After a dozen steps at most, with a learning rate of 1e-3."""
    places = {torch.bfloat16: 2**-7, torch.float16: 2**-10}.get(a.dtype, 0)
    torch.testing.assert_close(
        a.detach().cpu(), b.detach().cpu(), rtol=places, atol=2.5e-3, msg=lambda m: f"{what}: {m}"
    )


@contextlib.contextmanager
def library_optimizer(rule, options, params):
    """The library's own optimizer, which has states of its own, for contiguous float32 tensors; yields its handle and
    the gradients it reads."""
    lib = _c.lib
    lib.adamod_free.argtypes, lib.adamod_free.restype = [ctypes.c_void_p], None
    handle = ctypes.c_void_p()
    _c.check(lib.adamod_create(ctypes.byref(handle), rule.encode()))
    try:
        for name, value in options.items():
            _c.check(lib.adamod_set_text(handle, name.encode(), str(value).encode()))
        grads = [torch.zeros_like(p) for p in params]
        for p, g in zip(params, grads):
            shape = (ctypes.c_int64 * max(p.dim(), 1))(*p.shape)
            addresses = ctypes.c_void_p(p.data_ptr()), ctypes.c_void_p(g.data_ptr())
            _c.check(lib.adamod_add(handle, None, *addresses, p.dim(), shape))
        yield handle, grads
    finally:
        lib.adamod_free(handle)
