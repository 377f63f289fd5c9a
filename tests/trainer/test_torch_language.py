#!/usr/bin/env python3
"""The language task against PyTorch's nn.LSTM in float64: the loss of a text with the state carried on, and one step of
gradient descent, with AR and TAR, from the state that a checkpoint has; then fifty steps with every regulariser on, their
masks drawn here by the same counters.

ADAMOD is the program. With ADAMOD_TEST_DEVICE=cuda only the fifty steps run, on the GPU, in float32. Without
PyTorch the test is skipped (77), or fails if ADAMOD_REQUIRE_TORCH is set.

SPDX-License-Identifier: MIT
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from with_torch import PROGRAM, torch
import torch_language as peer

TRAIN = "a b c a d\nb b a c\n" * 11 + "a b c a d\nb\n"  # 3 columns of 43 tokens: 6 batches of 7 steps, none shorter
TEST = "a c d b\na a b d c\n" * 3
RATE, LARGE_RATE, AR, TAR, STEPS = 0.5, 1e4, 2.0, 1.0, 3


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
    subprocess.run([PROGRAM, "train", recipe, "--out", os.path.join(folder, "run"), *settings, *more], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return checkpoint(os.path.join(folder, "run/checkpoints/last.safetensors"))


def close(what, got, wanted, bound):
    wanted = wanted.detach()
    error, most = float((got - wanted).norm()), bound * float(wanted.norm())
    print(f"{what}: {error:.1e}, at most {most:.1e}, of {float(wanted.norm()):.1e}")
    return error <= most


# ---- fifty steps with everything that is drawn ----

SMALL = """
name: small
data: {task: language, set: generated, words: 23, train: 300, valid: 20, test: 0, batch: 3, length: 8, spread: 2, halved: 0.2,
       shortest: 2}
model: {kind: lstm, layers: 3, embedding: 5, hidden: 21}
optimizer: {rule: adam, lr: 2e-2, beta1: 0.9, beta2: 0.98, eps: 1e-6}
train: {threads: 2, seed: 7}
"""
MANY, BITS = 50, (1 << 64) - 1
ADAM = {"lr": 2e-2, "betas": (0.9, 0.98), "eps": 1e-6}
# Nodes of the graph, whose numbers name their streams: the embedding is 0.
STREAMS = {"word": 1, "input": 2, "weight.0": 3, "layer.0": 4, "weight.1": 5, "layer.1": 6, "weight.2": 7, "output": 8}


def mix(x):
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & BITS
    x = (x ^ x >> 27) * 0x94d049bb133111eb & BITS
    return x ^ x >> 31


def philox(key, block):
    """Philox 4x32-10 (Salmon et al., SC 2011): four numbers of 32 bits."""
    k0, k1, x = key & 0xffffffff, key >> 32, [block & 0xffffffff, block >> 32, 0, 0]
    for _ in range(10):
        a, b = 0xd2511f53 * x[0], 0xcd9e8d57 * x[2]
        x = [b >> 32 ^ x[1] ^ k0, b & 0xffffffff, a >> 32 ^ x[3] ^ k1, a & 0xffffffff]
        k0, k1 = k0 + 0x9e3779b9 & 0xffffffff, k1 + 0xbb67ae85 & 0xffffffff
    return x


class Masked(peer.LanguageModel):
    """With the masks that the program draws in a step."""
    step = 0

    def mask(self, name, shape):
        p = self.config[name.split(".")[0] + "_dropout"]
        if not self.training:
            return None
        key = mix(mix(mix(7 + 0x9e3779b97f4a7c15) + self.step) + STREAMS[name] & BITS)
        n, threshold = int(torch.Size(shape).numel()), int(p * 2 ** 32)
        bits = [x for block in range((n + 3) // 4) for x in philox(key, block)][:n]
        return torch.tensor([x >= threshold for x in bits], dtype=torch.float64).reshape(shape) / (1 - p)

    def dropped_weights(self, name, w):
        mask = self.mask(name, w.shape)
        return w if mask is None else w * mask


def results(folder, *how):
    """The file's tensors and metadata, and the results of a bench."""
    path = os.path.join(folder, "small.yaml")
    open(path, "w").write(SMALL)
    subprocess.run([PROGRAM, "bench", "train", path, "--no-torch", "--steps", "1", *how,
                    "--losses", str(MANY), "--dump", path + ".dump", "--json", path + ".json"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (*peer.read_safetensors(path + ".dump"), json.load(open(path + ".json")))


def compare_steps(folder, name, bound, *how):
    """bound: of losses."""
    tensors, config, found = results(folder, *how)
    model = Masked(peer.parameters(tensors, torch.float64), config)
    assert all(config[f"{x}_dropout"] > 0 for x in ("output", "layer", "input", "word", "weight"))
    batches = [peer.Text(tensors, i, config, "cpu", torch.float64) for i in range(config["batches"])]
    assert len({len(b.ids) for b in batches}) > 3 and {float(b.carried) for b in batches} == {0, 1}
    loss = model.loss(batches[0]) / batches[0].count
    good = close(f"{name}: loss with nothing random", torch.tensor(found["check_loss"]), loss, 2e-7)
    (loss * batches[0].count).backward()
    for part, w in model.w.items():
        good &= close(f"{name}: gradient of {part}", tensors["gradient/" + part].double(), w.grad, 2e-6)
    optimizer, losses, model.training = torch.optim.Adam(model.w.values(), **ADAM), [], True
    for model.step in range(1, MANY + 1):
        batch = batches[(model.step - 1) % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(batch) / batch.count
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and len(found["losses"]) == MANY
    for n in 10, MANY:
        theirs = torch.tensor(losses[:n], dtype=torch.float64)
        ours = torch.tensor(found["losses"][:n], dtype=torch.float64)
        good &= close(f"{name}: losses of {n} steps", ours, theirs, bound)
    return good


def main():
    good, device = True, os.environ.get("ADAMOD_TEST_DEVICE", "cpu")
    with tempfile.TemporaryDirectory() as folder:
        if device != "cpu":
            return 0 if compare_steps(folder, device, 1e-6, "--device", device, "--set", "train.precision=full") else 1
        for backend in "ref", "cpu":
            good &= compare_steps(folder, backend, 2e-7, "--set", "train.backend=" + backend)
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
