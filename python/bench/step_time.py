#!/usr/bin/env python3
"""How long a step takes: AdaMod here, the published formula, and PyTorch's AdamW in its fastest form, in one run.

    python3 python/bench/step_time.py [--seconds S] [--threads N]

Milliseconds are the best of the steps that fit into S seconds. "x published" is how many times faster AdaMod is than
the published formula, "x AdamW" the same for AdamW for each byte moved: AdaMod has one state more. "Python" is what a
step costs whatever the size: it is measured with arrays of one element each.

SPDX-License-Identifier: MIT
"""

import argparse
import os
import sys
import time

import libadamod.torch as lt
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from published import PublishedAdaMod  # noqa: E402

BYTES = {"AdaMod": 36, "AdamW": 28}  # read and written for each parameter


def resnet34():
    """The 110 arrays of ResNet-34 for CIFAR-10."""
    shapes = [(64, 3, 3, 3), (64,), (64,)]
    before = 64
    for channels, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += [
                (channels, before, 3, 3),
                (channels,),
                (channels,),
                (channels, channels, 3, 3),
                (channels,),
                (channels,),
            ]
            if block == 0 and before != channels:
                shapes += [(channels, before, 1, 1), (channels,), (channels,)]
            before = channels
    return shapes + [(10, 512), (10,)]


def fastest_adamw(params):
    for arguments in ({"fused": True}, {"foreach": True}):
        try:
            optimizer = torch.optim.AdamW(params, **arguments)
            optimizer.step()
            return optimizer
        except (RuntimeError, TypeError):
            continue
    return torch.optim.AdamW(params)


def best(make, shapes, seconds):
    params = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer = make(params)
    for _ in range(3):
        optimizer.step()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"PyTorch {torch.__version__}, {arguments.threads} threads")
    print(f"{'shape':24}{'AdaMod ms':>12}{'published ms':>14}{'AdamW ms':>10}{'x published':>13}{'x AdamW':>9}")
    for name, shapes in (
        ("ResNet-34, 110 arrays", resnet34()),
        ("flat, 16 M", [(1 << 24,)]),
        ("flat, 64 k", [(1 << 16,)]),
        ("Python: 110 of 1", [(1,)] * 110),
    ):
        ours = best(lt.AdaMod, shapes, arguments.seconds)
        published = best(PublishedAdaMod, shapes, arguments.seconds)
        adamw = best(fastest_adamw, shapes, arguments.seconds)
        ratio = adamw / ours * BYTES["AdaMod"] / BYTES["AdamW"]
        print(f"{name:24}{ours:12.3f}{published:14.3f}{adamw:10.3f}{published / ours:13.1f}{ratio:9.2f}")


if __name__ == "__main__":
    main()
