#!/usr/bin/env python3
"""How long a step takes: AdaMod here, the published formula, and PyTorch's AdamW in its fastest form, in one run.

    python3 bench/step_time.py [--seconds S] [--threads N] [--device cuda]

On the CPU, milliseconds are the best of the steps that fit into S seconds. On a GPU they are the median of several
measurements, each of about 50 ms of steps in a row between two events, so they include the time of Python; the
contestants take turns, for S seconds each. "x published" is how many times faster AdaMod is than the published formula,
"x AdamW" the same for AdamW for each byte moved: AdaMod has one state more. "Python" is what a step costs whatever the
size: it is measured with arrays of one element each. "graph" is AdaMod's step replayed from a CUDA graph.

On a GPU the last lines say whether AdaMod is no slower than AdamW for each byte, and at least 10 times as fast as the
published formula on the models; the exit status is 1 if not.

SPDX-License-Identifier: MIT
"""

import argparse
import os
import statistics
import sys
import time

import libadamod.torch as lt
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "python"))
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


def transformer_big():
    """The 186 arrays of the paper's Transformer-big with 37,000 words on either side, as torch.nn.Transformer's."""
    d, ffn, words = 1024, 4096, 37000

    def layer(attentions):
        attention = [(3 * d, d), (3 * d,), (d, d), (d,)]
        return attention * attentions + [(ffn, d), (ffn,), (d, ffn), (d,)] + [(d,)] * (2 * attentions + 2)

    return [(words, d)] * 2 + layer(1) * 6 + [(d,)] * 2 + layer(2) * 6 + [(d,)] * 2


def fastest_adamw(params):
    for arguments in ({"fused": True}, {"foreach": True}):
        try:
            optimizer = torch.optim.AdamW(params, **arguments)
            optimizer.step()
            return optimizer
        except (RuntimeError, TypeError):
            continue
    return torch.optim.AdamW(params)


def contestant(make, shapes, device="cpu"):
    params = [torch.nn.Parameter(torch.randn(shape, device=device)) for shape in shapes]
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer = make(params)
    for _ in range(3):
        optimizer.step()
    return optimizer


def best(make, shapes, seconds):
    optimizer = contestant(make, shapes)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


class OnGpu:
    """Times a call, such as a step, with events."""

    def __init__(self, call):
        self.call, self.times = call, []
        self.steps = 1
        self.steps = max(1, min(2000, int(50 / self.measure())))

    def measure(self):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(self.steps):
            self.call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / self.steps


def captured(optimizer):
    """Replays of the optimizer's step from a graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    return lambda keep=optimizer: graph.replay()


def race(shapes, seconds):
    """Milliseconds of AdaMod, of the published formula, of AdamW and of a graph, who take turns."""
    makers = (lt.AdaMod, PublishedAdaMod, fused_adamw)
    all_ = [OnGpu(contestant(make, shapes, "cuda").step) for make in makers]
    all_.append(OnGpu(captured(contestant(lt.AdaMod, shapes, "cuda"))))
    end = time.perf_counter() + seconds * len(all_)
    while time.perf_counter() < end or len(all_[0].times) < 5:
        for one in all_:
            one.times.append(one.measure())
    return [statistics.median(one.times) for one in all_]


def fused_adamw(params):
    return torch.optim.AdamW(params, fused=True)


def on_gpu(seconds):
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    print(
        f"{'shape':26}{'AdaMod ms':>10}{'published ms':>14}{'fused AdamW ms':>16}{'x published':>13}{'x AdamW':>9}"
        f"{'graph ms':>10}"
    )
    failed = 0
    for name, shapes, model in (
        ("ResNet-34, 110 arrays", resnet34(), True),
        ("Transformer-big, 186", transformer_big(), True),
        ("flat, 64 M", [(1 << 26,)], False),
        ("Python: 110 of 1", [(1,)] * 110, None),
    ):
        ours, published, adamw, graph = race(shapes, seconds)
        torch.cuda.empty_cache()
        ratio = adamw / ours * BYTES["AdaMod"] / BYTES["AdamW"]
        line = f"{name:26}{ours:10.4f}{published:14.4f}{adamw:16.4f}{published / ours:13.1f}{ratio:9.2f}{graph:10.4f}"
        print(line, flush=True)
        if model is None:
            continue
        goals = [("no slower than fused AdamW for each byte", ratio, 1.0)]
        if model:
            goals.append(("at least 10 times the published formula", published / ours, 10.0))
        for goal, value, bound in goals:
            failed += value < bound
            print(f"    {'holds' if value >= bound else 'FAILS'}: {goal}: {value:.2f}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        sys.exit(on_gpu(arguments.seconds))
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
