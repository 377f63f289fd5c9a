#!/usr/bin/env python3
"""The language task against PyTorch's nn.LSTM in float64: the loss of a text with the state carried on, and one step of
gradient descent, with AR and TAR, from the state that a checkpoint has.

BUILD_DIR is where the program is. Without PyTorch the test is skipped (77), or fails if ADAMOD_REQUIRE_TORCH is set.

SPDX-License-Identifier: MIT
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as error:
    print(f"skip: {error}")
    sys.exit(1 if os.environ.get("ADAMOD_REQUIRE_TORCH", "0") not in ("", "0") else 77)

ADAMOD = os.path.join(os.environ.get("BUILD_DIR", "build"), "adamod")
TRAIN = "a b c a d\nb b a c\n" * 11 + "a b c a d\nb\n"  # 3 columns of 43 tokens: 6 batches of 7 steps, none shorter
TEST = "a c d b\na a b d c\n" * 3
RATE, LARGE_RATE, AR, TAR, STEPS = 0.5, 1e4, 2.0, 1.0, 3
torch.set_num_threads(1)


def checkpoint(path):
    """All arrays of f32, as float64."""
    data = open(path, "rb").read()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    arrays = {}
    for name, x in header.items():
        if name == "__metadata__" or x["dtype"] != "F32":
            continue
        begin, end = x["data_offsets"]
        flat = struct.unpack(f"<{(end - begin) // 4}f", data[8 + n + begin:8 + n + end])
        arrays[name] = torch.tensor(flat, dtype=torch.float64).reshape(x["shape"])
    return arrays


def find(arrays, name):
    (found,) = [x for key, x in arrays.items() if key == name or key == "param/" + name or key == "weight/" + name]
    return found


class Model(torch.nn.Module):
    def __init__(self, arrays):
        super().__init__()
        self.table = torch.nn.Parameter(find(arrays, "embedding.weight").clone())
        self.bias = torch.nn.Parameter(find(arrays, "decoder.bias").clone())
        self.layers = torch.nn.ModuleList()
        for i in range(2):
            w = {k: find(arrays, f"layers.{i}.{k}") for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
            layer = torch.nn.LSTM(w["weight_ih"].shape[1], w["weight_hh"].shape[1], dtype=torch.float64)
            with torch.no_grad():
                for k, x in w.items():
                    getattr(layer, k + "_l0").copy_(x)
            self.layers.append(layer)

    def forward(self, ids, states):
        x = self.table[ids]
        for i, layer in enumerate(self.layers):
            x, _ = layer(x, states[i] if states else None)
        return x, x @ self.table.T + self.bias

    def named(self):
        yield "embedding.weight", self.table
        yield "decoder.bias", self.bias
        for i, layer in enumerate(self.layers):
            for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                yield f"layers.{i}.{k}", getattr(layer, k + "_l0")


def tokens(text, vocabulary):
    return [vocabulary[x] for line in text.splitlines() for x in line.split() + ["</s>"]]


def nll(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def run(folder, steps, *more):
    keys = {"data.task": "language", "data.set": "text", "data.path": folder, "data.valid_file": "test.txt", "data.batch": 3,
            "data.valid_batch": 2, "data.test_batch": 2, "data.length": 7, "data.spread": 0, "data.halved": 0,
            "data.score_length": 4, "model.layers": 2, "model.embedding": 5, "model.hidden": 6, "model.activity": AR,
            "model.change": TAR, "optimizer.rule": "sgd", "optimizer.lr": RATE, "train.steps": steps, "train.threads": 1,
            "train.backend": "cpu", "train.evaluate_every": 0, "train.checkpoint_every": 0}
    for name in ("output", "layer", "input", "word", "weight"):
        keys[f"model.{name}_dropout"] = 0
    recipe = os.path.join(folder, "r.yaml")
    open(recipe, "w").write("name: r\n")
    settings = [x for key, value in keys.items() for x in ("--set", f"{key}={value}")]
    subprocess.run([ADAMOD, "train", recipe, "--out", os.path.join(folder, "run"), *settings, *more], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return checkpoint(os.path.join(folder, "run/checkpoints/last.safetensors"))


def close(what, got, wanted, bound):
    wanted = wanted.detach()
    error, most = float((got - wanted).norm()), bound * float(wanted.norm())
    print(f"{what}: {error:.1e}, at most {most:.1e}, of {float(wanted.norm()):.1e}")
    return error <= most


def main():
    good = True
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "train.txt"), "w").write(TRAIN)
        open(os.path.join(folder, "test.txt"), "w").write(TEST)
        before = run(folder, STEPS)
        vocabulary = {x: i for i, x in enumerate(open(os.path.join(folder, "run/words.vocab")).read().split("\n")[1:])}
        lines = [json.loads(x) for x in open(os.path.join(folder, "run/metrics.jsonl"))]
        (loss,) = [x["loss"] for x in lines if x["kind"] == "test"]
        test = torch.tensor(tokens(TEST, vocabulary))
        test = test[:len(test) // 2 * 2].reshape(2, -1).T
        model = Model(before)
        good &= close("loss of a text", torch.tensor(loss), nll(model(test[:-1], None)[1], test[1:]), 1e-6)

        # One step so large that rounding the weights to f32 does not show in what it changes.
        after = run(folder, STEPS + 1, "--resume", "--reset", "options", "--set", f"optimizer.lr={LARGE_RATE}")
        train = torch.tensor(tokens(TRAIN, vocabulary))
        train = train[:len(train) // 3 * 3].reshape(3, -1).T[7 * STEPS:7 * STEPS + 8]
        states = [tuple(find(before, f"state/layers.{i}.train_{k}")[None] for k in "hc") for i in range(2)]
        raw, logits = model(train[:-1], states)
        (nll(logits, train[1:]) + AR * (raw ** 2).mean() + TAR * ((raw[1:] - raw[:-1]) ** 2).mean()).backward()
        for name, p in model.named():
            good &= close(name, find(after, name) - find(before, name), -LARGE_RATE * p.grad, 1e-6)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
