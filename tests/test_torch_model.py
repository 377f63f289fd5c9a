#!/usr/bin/env python3
"""The trainer's Transformer against PyTorch's autograd: the program writes weights, batches, the gradients of the first
batch and the losses of ten training steps; PyTorch computes the same from the same weights, in float64.

A gradient's error is the norm of the difference over the norm. The program computes in float32, whose rounding is 6e-8.

ADAMOD is the program. Without PyTorch the test is skipped (77), or fails if ADAMOD_REQUIRE_TORCH is set.

SPDX-License-Identifier: MIT
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as error:
    print(f"skip: {error}")
    sys.exit(1 if os.environ.get("ADAMOD_REQUIRE_TORCH", "0") not in ("", "0") else 77)

PROGRAM = os.environ.get("ADAMOD", "build/adamod")
SOURCE = os.environ.get("SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(SOURCE, "src/cli"))
import torch_transformer as peer

torch.set_num_threads(1)

LOSS_BOUND, GRADIENT_BOUND, TRAINING_BOUND = 5e-7, 2e-6, 1e-6
ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.98, "eps": 1e-6}
RECIPE = """
name: small
data: {task: numbers, train: 64, valid: 10, test: 10, sentences: 16}
model: {layers: 2, d: 32, ffn: 48, heads: 4, dropout: 0, attention_dropout: 0}
optimizer: {rule: adam, lr: 1e-3, beta1: 0.9, beta2: 0.98, eps: 1e-6}
train: {steps: 10, threads: 2}
"""
SHARED = {"model.share_all": "true", "data.joint": "true"}
CASES = {  # what differs from the recipe
    "post-LN, separate embeddings": {"model.smoothing": 0.1},
    "post-LN, no smoothing": {"model.smoothing": 0},
    "post-LN, tied output": {"model.smoothing": 0.1, "model.tie_output": "true"},
    "post-LN, one table": {"model.smoothing": 0.1, **SHARED},
    "pre-LN, separate embeddings": {"model.smoothing": 0.1, "model.pre_norm": "true"},
    "pre-LN, tied output, no smoothing": {"model.smoothing": 0, "model.pre_norm": "true", "model.tie_output": "true"},
    "pre-LN, one table": {"model.smoothing": 0.1, "model.pre_norm": "true", **SHARED},
    "odd widths": {"model.d": 42, "model.heads": 3, "model.ffn": 70, "model.smoothing": 0.1},
    "reference kernels": {"model.smoothing": 0.1, "train.backend": "ref"},
}


def run_program(folder, settings):
    """What the program computed: the file's tensors and metadata, and its results."""
    with open(folder + "/small.yaml", "w") as file:
        file.write(RECIPE)
    command = [PROGRAM, "bench", "train", folder + "/small.yaml", "--no-torch", "--steps", "1",
               "--device", "cpu", "--dump", folder + "/dump.safetensors", "--json", folder + "/results.json"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(folder + "/results.json") as file:
        return (*peer.read_safetensors(folder + "/dump.safetensors"), json.load(file))


def relative(got, expected):
    got, expected = torch.as_tensor(got, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64)
    assert torch.isfinite(got).all() and expected.norm() > 0
    return float((got - expected).norm() / expected.norm())


def compare_gradients(model, batch, tensors):
    """The loss, and the name and error of the gradient that is furthest off."""
    loss = model.loss(batch)
    loss.backward()
    errors = {name: relative(tensors["gradient/" + name], x.grad) for name, x in model.w.items()}
    worst = max(errors, key=errors.get)
    return loss.item() / batch.tokens, worst, errors[worst]


def train(model, batches):
    """The loss of each step."""
    optimizer = torch.optim.Adam(model.w.values(), lr=ADAM["lr"], betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"])
    losses = []
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(batch) / batch.tokens
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def padding_changes(model, tensors, heads):
    """By how much the loss of the first batch changes when it is padded further, as for a CUDA graph."""
    batch = peer.Batch(tensors, 0, heads, torch.float64)
    (source, sentences), target = batch.source.shape, len(batch.target)
    padded = peer.Batch(tensors, 0, heads, torch.float64, (source + 3, target + 2, sentences + 1))
    assert padded.tokens == batch.tokens and padded.rows > batch.rows
    with torch.no_grad():
        loss = model.loss(batch).item()
        return abs(model.loss(padded).item() - loss) / loss


def compare(folder, settings):
    """False if anything differs by more than its bound."""
    tensors, config, results = run_program(folder, settings)
    model = peer.Transformer(config, peer.parameters(tensors, torch.float64))
    assert len(model.w) == sum(name.startswith("gradient/") for name in tensors) > 50
    batches = [peer.Batch(tensors, i, config["heads"], torch.float64) for i in range(config["batches"])]
    assert all(b.mask is not None for b in batches), "no sentence is shorter than another"
    assert padding_changes(model, tensors, config["heads"]) < 1e-12
    loss, worst, error = compare_gradients(model, batches[0], tensors)
    losses = train(model, batches)
    assert losses[-1] < losses[0] and len(losses) == len(results["losses"]) == 10
    off = abs(results["check_loss"] - loss) / loss
    drift = max(abs(ours - theirs) / theirs for ours, theirs in zip(results["losses"], losses))
    print(f"  loss {off:.1e}, {len(model.w)} gradients {error:.1e} ({worst}), ten steps {drift:.1e}")
    return off <= LOSS_BOUND and error <= GRADIENT_BOUND and drift <= TRAINING_BOUND


def main():
    if subprocess.run([PROGRAM, "help", "bench", "train"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        print("skip: built without the trainer")
        return 77
    failed = []
    for name, settings in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            print(name, flush=True)
            if not compare(folder, settings):
                failed.append(name)
    for name in failed:
        print(f"FAILED: {name}: expected at most {LOSS_BOUND}, {GRADIENT_BOUND}, {TRAINING_BOUND}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
