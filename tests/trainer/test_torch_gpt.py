#!/usr/bin/env python3
"""GPT against PyTorch in float64: the loss and all gradients of a batch, and twenty steps of Adam, for GPT-2's form and for the
variants of today.

ADAMOD is the program. With ADAMOD_TEST_DEVICE=cuda they run on the GPU, in float32. Without PyTorch the test is skipped
(77), or fails if ADAMOD_REQUIRE_TORCH is set.

SPDX-License-Identifier: MIT
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from with_torch import PROGRAM, torch
import torch_gpt as peer

STEPS = 20
ADAM = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-4}  # larger than rounding errors, which Adam would enlarge to whole steps
RECIPE = """
name: small
data: {task: language, set: generated, words: 23, branches: 2, order: 1, train: 700, valid: 20, test: 0, batch: 3, length: 19}
model: {kind: gpt, layers: 3, d: 24, %s}
optimizer: {rule: adam, lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-4}
train: {threads: 2, seed: 7}
"""
MODELS = {
    "GPT-2": "heads: 3",
    "all switches": "heads: 4, kv_heads: 2, norm: rms, positions: rotary, activation: swiglu, qk_norm: true, biases: false, "
                    "z_loss: 1e-2",
    "one key and value": "heads: 4, kv_heads: 1, positions: rotary, rotary_base: 500, ffn: 40",
    "norms of queries and keys": "heads: 2, qk_norm: true, norm: rms, context: 30",
}


def close(what, got, wanted, bound):
    wanted = wanted.detach()
    error, most = float((got - wanted).norm()), bound * float(wanted.norm())
    print(f"{what}: {error:.1e}, at most {most:.1e}, of {float(wanted.norm()):.1e}")
    return error <= most


def results(folder, model, *how):
    """The file's tensors and metadata, and the results of a bench."""
    path = os.path.join(folder, "small.yaml")
    open(path, "w").write(RECIPE % model)
    subprocess.run([PROGRAM, "bench", "train", path, "--no-torch", "--steps", "1", *how,
                    "--losses", str(STEPS), "--dump", path + ".dump", "--json", path + ".json"], check=True,
                   stdout=subprocess.DEVNULL)
    return (*peer.read_safetensors(path + ".dump"), json.load(open(path + ".json")))


def compare(folder, name, model, bound, *how):
    """bound: of losses."""
    tensors, config, found = results(folder, model, *how)
    model = peer.Gpt(peer.parameters(tensors, torch.float64), config)
    batches = [peer.Windows(tensors, i, config, "cpu", torch.float64) for i in range(config["batches"])]
    loss = model.loss(batches[0]) / batches[0].count
    good = close(f"{name}: loss", torch.tensor(found["check_loss"]), loss, 2e-7)
    (loss * batches[0].count).backward()
    for part, w in model.w.items():
        good &= close(f"{name}: gradient of {part}", tensors["gradient/" + part].double(), w.grad, 2e-6)
    optimizer, losses = torch.optim.Adam(model.w.values(), **ADAM), []
    for step in range(STEPS):
        batch = batches[step % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(batch) / batch.count
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and len(found["losses"]) == STEPS
    theirs = torch.tensor(losses, dtype=torch.float64)
    return good & close(f"{name}: losses", torch.tensor(found["losses"], dtype=torch.float64), theirs, bound)


def main():
    good, device = True, os.environ.get("ADAMOD_TEST_DEVICE", "cpu")
    with tempfile.TemporaryDirectory() as folder:
        for name, model in MODELS.items():
            if device != "cpu":
                good &= compare(folder, f"{device}, {name}", model, 1e-5, "--device", device, "--set", "train.precision=full")
                continue
            for backend in "ref", "cpu":
                good &= compare(folder, f"{backend}, {name}", model, 1e-6, "--set", "train.backend=" + backend)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
