"""A small network trained from start to end: AdaMod here and by the published formula reach the same loss.

SPDX-License-Identifier: MIT
"""

import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import support  # noqa: F401
import torch
from published import PublishedAdaMod
from torch import nn


def network():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 4),
    )


def images(n=256):
    """Bars: horizontal, vertical, both diagonals, with noise."""
    generator = torch.Generator().manual_seed(5)
    y = torch.randint(0, 4, (n,), generator=generator)
    x = 0.5 * torch.randn(n, 1, 12, 12, generator=generator)
    line = torch.arange(12)
    for i, kind in enumerate(y.tolist()):
        at = int(torch.randint(2, 10, (1,), generator=generator))
        if kind == 0:
            x[i, 0, at] += 1
        elif kind == 1:
            x[i, 0, :, at] += 1
        else:
            columns = (line + at) % 12 if kind == 2 else (at - line) % 12
            x[i, 0, line, columns] += 1
    return x, y


def fit(make, epochs=12, layout=torch.contiguous_format):
    x, y = images()
    model = network().to(memory_format=layout)
    optimizer = make(model.parameters())
    losses = []
    for _ in range(epochs):
        total = 0.0
        for i in range(0, len(x), 32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[i : i + 32].to(memory_format=layout)), y[i : i + 32])
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        losses.append(total / (len(x) // 32))
    return losses


class Training(unittest.TestCase):
    def test_the_same_loss_as_the_published_formula(self):
        arguments = dict(lr=3e-3, beta3=0.99, weight_decay=5e-4)
        theirs = fit(lambda p: PublishedAdaMod(p, **arguments))
        for layout in (torch.contiguous_format, torch.channels_last):
            ours = fit(lambda p: lt.AdaMod(p, flavour="published", **arguments), layout=layout)
            self.assertLess(ours[-1], 0.5 * ours[0])
            # The first epochs are alike to the last digits, later ones as far as rounding, which grows, lets them be.
            self.assertAlmostEqual(ours[0], theirs[0], delta=1e-4)
            self.assertAlmostEqual(ours[-1], theirs[-1], delta=0.05 * theirs[-1])


if __name__ == "__main__":
    unittest.main()
