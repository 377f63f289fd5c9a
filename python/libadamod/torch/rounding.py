"""Rounding at random, for what is computed here and not in the library.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import torch
from torch import Tensor

from .sharding import local


def _signed(n: int) -> int:
    """The 64 bits of n as PyTorch has them."""
    n &= 2**64 - 1
    return n - 2**64 if n >= 2**63 else n


def _noise(bits: Tensor, key: int) -> Tensor:
    """16 random bits for each number, the same on every device, by the steps of splitmix64. They depend on the numbers,
    too, so that several roundings between two steps are not alike."""
    z = torch.arange(bits.numel(), dtype=torch.int64, device=bits.device).view(bits.shape) * _signed(0x9E3779B97F4A7C15)
    z = z + bits * _signed(0xAEF17502108EF2D9) + _signed(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ ((z >> shift) & (2 ** (64 - shift) - 1))) * _signed(factor)
    return ((z >> 31) & 0xFFFF).to(torch.int32)


def round_at_random(t: Tensor, seed: int, place: int, step: int) -> None:
    """Rounds float32 numbers to ones that bfloat16 can hold, up or down with probabilities by distance. Numbers that
    are not finite stay. The bits depend on the arguments alone."""
    here = local(t)
    key = (seed * 0x8CB92BA72F3D8DD7 + place) * 0xD1342543DE82EF95 + step * 0xDA942042E4DD58B5
    bits = here.contiguous().view(torch.int32)
    rounded = ((bits + _noise(bits.to(torch.int64), key)) & -65536).view(torch.float32)
    here.copy_(torch.where(rounded.isfinite(), rounded, here))
