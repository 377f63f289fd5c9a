#!/usr/bin/env python3
"""ResNet and DenseNet against PyTorch's autograd: test_vision writes weights, a batch, the gradients of the first step, the
losses of ten steps of gradient descent, and weights and running statistics after these; PyTorch computes the same from the
same weights, in float64.

An error is the norm of the difference over the norm. The program computes in float32, whose rounding is 6e-8.

BUILD_DIR is where the programs are. Without PyTorch the test is skipped (77), or fails if ADAMOD_REQUIRE_TORCH is set. With
ADAMOD_TEST_DEVICE=cuda the models run on the GPU, in each precision; with ADAMOD_TEST_WHOLE=1 ResNet-34 and DenseNet-121
are compared, too.

SPDX-License-Identifier: MIT
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from with_torch import BUILD, torch
import torch_vision as peer

# Bounds of the loss, of gradients, of the losses of ten steps, of weights and statistics after them. A unit of a ReLU that rounding
# moves across 0 changes what follows, in deep networks so much that PyTorch's own float32 goes far from its float64. So a
# whole model may be off by FACTOR times what that is, where it is more.
BOUNDS = {
    "full": (3e-7, 5e-6, 3e-7, 1e-6),
    "whole": (2e-6, 2e-5, 1e-5, 1e-5),
    "tf32": (5e-3, 1e-1, 5e-2, 5e-2),
    "mixed": (5e-2, 5e-1, 2e-1, 2e-1),
}
FACTOR = 3
RATE = 1e-3
WHOLE = os.environ.get("ADAMOD_TEST_WHOLE", "0") not in ("", "0")


def model_of(tensors, dtype):
    part = {name[7:]: x.to(dtype) for name, x in tensors.items() if name.startswith("weight/")}
    states = {name: x for name, x in part.items() if name.endswith((".mean", ".variance"))}
    model = peer.VisionModel({name: torch.nn.Parameter(peer.to_torch(x)) for name, x in part.items()
                              if name not in states}, states)
    model.training = True
    return model


def results(tensors, dtype):
    """The losses of the steps, the gradients of the first, and what is there after the last."""
    model = model_of(tensors, dtype)
    images, targets = peer.to_torch(tensors["images"].to(dtype)), tensors["targets"].long()
    losses, gradients = [], {}
    for _ in tensors["losses"]:
        loss = torch.nn.functional.cross_entropy(model.logits(images), targets, reduction="sum")
        losses.append(loss.item())
        for name, g in zip(model.w, torch.autograd.grad(loss, model.w.values())):
            gradients.setdefault(name, peer.from_torch(g))
            with torch.no_grad():
                model.w[name] -= RATE * g
    after = {name: peer.from_torch(x.detach()) for name, x in {**model.w, **model.states}.items()}
    return losses, gradients, after


def relative(got, expected):
    got, expected = torch.as_tensor(got, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64)
    assert torch.isfinite(got).all() and expected.norm() > 0
    return float((got - expected).norm() / expected.norm())


def worst(found, truth):
    """The largest error of all tensors. Tensors of one number, sums in which most cancels, are compared as one."""
    errors = [relative(found[name], x) for name, x in truth.items() if x.numel() > 1]
    numbers = [name for name, x in truth.items() if x.numel() == 1]
    join = lambda tensors: torch.cat([tensors[name].double().flatten() for name in numbers])
    return max(errors + ([relative(join(found), join(truth))] if numbers else []))


def differences(found, truth):
    """Errors in the order of BOUNDS. found, truth: losses, gradients, tensors after the last step."""
    return (relative(found[0][0], truth[0][0]), worst(found[1], truth[1]), relative(found[0], truth[0]),
            worst(found[2], truth[2]))


def compare(path, bounds):
    tensors, _ = peer.read_safetensors(path)
    truth = results(tensors, torch.float64)
    part = lambda kind: {name[len(kind):]: x for name, x in tensors.items() if name.startswith(kind)}
    ours = differences((tensors["losses"], part("gradient/"), part("after/")), truth)
    assert len(truth[1]) > 10 and truth[0][-1] < truth[0][0]
    text = "  loss {:.1e}, gradients {:.1e}, ten steps {:.1e}, after them {:.1e}"
    print(text.format(*ours), flush=True)
    if bounds == BOUNDS["whole"]:
        theirs = differences(results(tensors, torch.float32), truth)
        print(text.format(*theirs) + ": PyTorch in float32", flush=True)
        bounds = [max(bound, FACTOR * x) for bound, x in zip(bounds, theirs)]
    return all(x <= bound for x, bound in zip(ours, bounds))


def main():
    program, device = os.path.join(BUILD, "tests/test_vision"), os.environ.get("ADAMOD_TEST_DEVICE", "cpu")
    if not os.path.exists(program):
        print("skip: built without the trainer")
        return 77
    variants = [{"VISION_DEVICE": device, "VISION_PRECISION": p} for p in BOUNDS if p != "whole"] if device != "cpu" else [
        {"VISION_BACKEND": "cpu"}, {"VISION_BACKEND": "ref"}]
    failed = []
    for variant in variants:
        if WHOLE and variant.get("VISION_BACKEND") != "ref":
            variant["VISION_WHOLE"] = "1"
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([program, "files_for_pytorch"], check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, **variant, "VISION_FOLDER": folder})
            files = sorted(os.listdir(folder))
            assert len(files) >= 4
            for name in files:
                print(f"{name.split('.')[0]}, {' '.join(variant.values())}", flush=True)
                bounds = variant.get("VISION_PRECISION", "full")
                if bounds == "full" and name.startswith(("resnet34", "densenet121")):
                    bounds = "whole"
                if not compare(os.path.join(folder, name), BOUNDS[bounds]):
                    failed.append(f"{name}, {variant}")
    for line in failed:
        print("FAILED: " + line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
