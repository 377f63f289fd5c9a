#!/usr/bin/env python3
"""The trainer's Transformer against PyTorch's autograd: the program writes weights, batches, the gradients of the first
batch and the losses of a hundred training steps; PyTorch computes the same from the same weights, in float64.

The lines of docs/checkpoints.md are run too, on a checkpoint of `adamod train`: the loss they give is `adamod evaluate`'s.

A gradient's error is the norm of the difference over the norm. The program computes in float32, whose rounding is 6e-8.

ADAMOD is the program. Without PyTorch the test is skipped (77), or fails if ADAMOD_REQUIRE_TORCH is set. With
ADAMOD_TEST_DEVICE=cuda the program computes on the GPU, in each precision; PyTorch stays on the CPU in float64.

SPDX-License-Identifier: MIT
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from with_torch import PROGRAM, SOURCE, torch
import torch_transformer as peer

DEVICE = os.environ.get("ADAMOD_TEST_DEVICE", "cpu")
# Bounds of the loss, of gradients, of the losses of ten and of a hundred steps. A unit of a ReLU that rounding moves across 0
# changes what follows: PyTorch's own float32 comes to differ from its float64 by up to 5e-4 in a hundred steps. tf32 has
# 11 bits and bf16 8, whose roundings are 5e-4 and 4e-3, so that units cross in the first step already: one of the 41 x 48
# in a layer changes a gradient by about a hundredth.
BOUNDS = {
    "full": (5e-7, 2e-6, 1e-6, 1e-2),
    "tf32": (5e-4, 3e-2, 5e-3, 2e-2),
    "mixed": (5e-3, 1e-1, 2e-2, 5e-2),
}
ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.98, "eps": 1e-6}
RECIPE = """
name: small
data: {task: numbers, train: 64, valid: 10, test: 10, sentences: 16}
model: {layers: 2, d: 32, ffn: 48, heads: 4, dropout: 0, attention_dropout: 0}
optimizer: {rule: adam, lr: 1e-3, beta1: 0.9, beta2: 0.98, eps: 1e-6}
train: {steps: 100, threads: 2}
"""
SHARED = {"model.share_all": "true", "data.joint": "true"}
FEW, MANY = 10, 100  # steps of each case, and of the first; on a GPU of the last, too
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
if DEVICE != "cpu":
    del CASES["reference kernels"]
    wide = list(CASES)[:: len(CASES) - 1]
    CASES = {
        f"{name}, {p}": {"train.precision": p, **CASES[name]} for p in BOUNDS for name in (CASES if p == "full" else wide)
    }
if os.environ.get("ADAMOD_TEST_FAST", "0") not in ("", "0"):
    MANY, CASES = FEW, dict(list(CASES.items())[::3])


def run_program(folder, settings, steps):
    """The program's results: the file's tensors and metadata, and its results."""
    with open(folder + "/small.yaml", "w") as file:
        file.write(RECIPE)
    command = [PROGRAM, "bench", "train", folder + "/small.yaml", "--no-torch", "--steps", "1",
               "--device", DEVICE, "--losses", str(steps), "--dump", folder + "/dump.safetensors", "--json", folder + "/results.json"]
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


def train(model, batches, steps):
    """The loss of each step, over and over on the batches."""
    optimizer = torch.optim.Adam(model.w.values(), lr=ADAM["lr"], betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"])
    losses = []
    for batch in batches * (steps // len(batches)):
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


def compare(folder, settings, steps):
    """The values that differ by more than their bound, or None."""
    tensors, config, results = run_program(folder, settings, steps)
    model = peer.Transformer(config, peer.parameters(tensors, torch.float64))
    assert len(model.w) == sum(name.startswith("gradient/") for name in tensors) > 50
    batches = [peer.Batch(tensors, i, config["heads"], torch.float64) for i in range(config["batches"])]
    assert all(b.mask is not None for b in batches), "no sentence is shorter than another"
    assert padding_changes(model, tensors, config["heads"]) < 1e-12
    loss, worst, error = compare_gradients(model, batches[0], tensors)
    losses = train(model, batches, steps)
    assert losses[-1] < losses[0] and len(losses) == len(results["losses"]) == steps
    off = abs(results["check_loss"] - loss) / loss
    apart = [abs(ours - theirs) / theirs for ours, theirs in zip(results["losses"], losses)]
    found = (off, error, max(apart[:10]), max(apart))
    print("  loss {:.1e}, {} gradients {:.1e} ({}), ten steps {:.1e}, {} {:.1e}".format(
        off, len(model.w), error, worst, found[2], steps, found[3]))
    bounds = BOUNDS[settings.get("train.precision", "full")]
    good = all(x <= bound for x, bound in zip(found, bounds))
    return None if good else f"expected at most {bounds}"


# ---- docs/checkpoints.md ----

TEXT = {"s": ["ein Hund", "zwei Hunde bellen laut", "drei", "eine Katze und ein Hund schlafen"],
        "t": ["a dog", "two dogs bark aloud", "three", "a cat and a dog sleep"]}


def documented_lines(run, pre_norm):
    """The names that the document's lines define, run in order, for this run's checkpoint."""
    with open(os.path.join(SOURCE, "docs/checkpoints.md")) as file:
        blocks = [block.split("```")[0] for block in file.read().split("```python\n")[1:]]
    assert len(blocks) == 2 and blocks[0].count("\n") <= 10, "more than ten lines"
    lines = "".join(blocks)
    assert lines.count("runs/mine") == lines.count("16, 2, 24, 2, False") == 1
    names = {}
    exec(lines.replace("runs/mine", run).replace("16, 2, 24, 2, False", f"16, 2, 24, 2, {pre_norm}"), names)
    return names


def compare_document(folder, pre_norm):
    """The documented lines give the weights, and a model whose loss is what `adamod evaluate` says; or what is wrong."""
    for side, lines in TEXT.items():
        with open(f"{folder}/{side}", "w") as file:
            file.write("\n".join(lines) + "\n")
    run, text = folder + "/run", [f"--set=data.{split}{name}={folder}/{side}" for split in ("", "valid_")
                                  for name, side in (("source", "s"), ("target", "t"))]
    with open(folder + "/small.yaml", "w") as file:
        file.write("name: small\ndata: {task: bitext, tokens: words}\noptimizer: {rule: adam, lr: 1e-2}\n"
                   "model: {layers: 2, d: 16, ffn: 24, heads: 2, dropout: 0, attention_dropout: 0}\n"
                   "train: {steps: 20, threads: 1}\ndecode: {max_length: 5}\n")
    subprocess.run([PROGRAM, "train", folder + "/small.yaml", "--out", run, "--device", "cpu",
                    f"--set=model.pre_norm={str(pre_norm).lower()}", *text], check=True, stdout=subprocess.DEVNULL)
    said = json.loads(subprocess.run([PROGRAM, "evaluate", run, "--checkpoint", "best", "--device", "cpu", "--json"],
                                     check=True, stdout=subprocess.PIPE).stdout)
    names = documented_lines(run, pre_norm)
    vocabs = [open(f"{run}/{side}.vocab").read().split("\n") for side in ("source", "target")]
    total, count = 0.0, 0
    for source, target in zip(TEXT["s"], TEXT["t"]):
        ids = [[vocab.index(word) for word in line.split()] for vocab, line in zip(vocabs, (source, target))]
        source, begun = (torch.tensor(x)[:, None] for x in (ids[0] + [1], [0] + ids[1]))
        with torch.no_grad():
            log_probs = names["log_probs"](source, begun)[:, 0]
        total -= sum(float(row[token]) for row, token in zip(log_probs, ids[1] + [1]))
        count += len(begun)
    off = abs(total / count - said["nll"]) / said["nll"]
    print(f"  nll {total / count:.6f}, off by {off:.1e}")
    # both in float32, and the loss is a small difference of larger numbers
    return None if off < 5e-6 and count == said["tokens"] else f"evaluate says {said}"


def main():
    if subprocess.run([PROGRAM, "help", "bench", "train"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        print("skip: built without the trainer")
        return 77
    failed = []
    for i, (name, settings) in enumerate(CASES.items()):
        with tempfile.TemporaryDirectory() as folder:
            print(name, flush=True)
            wrong = compare(folder, settings, MANY if i == 0 or (DEVICE != "cpu" and i == len(CASES) - 1) else FEW)
            if wrong:
                failed.append(f"{name}: {wrong}")
    for pre_norm in (False, True) if DEVICE == "cpu" else ():
        with tempfile.TemporaryDirectory() as folder:
            print("docs/checkpoints.md," + (" pre-LN" if pre_norm else " post-LN"), flush=True)
            wrong = compare_document(folder, pre_norm)
            if wrong:
                failed.append(f"docs/checkpoints.md: {wrong}")
    for line in failed:
        print("FAILED: " + line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
