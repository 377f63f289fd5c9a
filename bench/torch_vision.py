"""The trainer's ResNet, DenseNet and MLP in PyTorch, with the trainer's names and its weights: the peer of `adamod bench train`,
which has this file in itself and runs it, and the truth of tests/trainer/test_torch_vision.py.

Blocks, norms and layers follow from the names of the weights. On a GPU arrays are channels-last; on a CPU
they are so or not, whichever is faster. Images are normalised and on the device before anything is measured.

SPDX-License-Identifier: MIT
"""
import copy

import torch.nn.functional as F
from torch_model import *


def to_torch(x, memory_format=torch.channels_last):
    """[out, height, width, in], or images with channels last, as torch has them."""
    return x.permute(0, 3, 1, 2).contiguous(memory_format=memory_format) if x.dim() == 4 else x


def from_torch(x):
    return x.permute(0, 2, 3, 1) if x.dim() == 4 else x


class VisionModel:
    """weights: as to_torch gives them. states: running means and variances by name; None: 0 and 1."""

    def __init__(self, weights, states=None):
        self.w, self.training = weights, False
        norms = [name[:-5] for name in weights if name.endswith(".bias") and name != "linear.bias"]
        self.states = states or {f"{name}.{part}": torch.full_like(weights[name + ".bias"].data, value)
                                 for name in norms for part, value in (("mean", 0), ("variance", 1))}
        self.fixup = "stem.shift" in weights

    def conv(self, name, x, stride=1):
        w = self.w[name + ".weight"]
        return F.conv2d(x, w, stride=stride, padding=w.shape[2] // 2)

    def norm(self, name, x):
        return F.batch_norm(x, self.states[name + ".mean"], self.states[name + ".variance"], self.w[name + ".weight"],
                            self.w[name + ".bias"], training=self.training, momentum=0.1, eps=1e-5)

    def block(self, at, x, stride):
        y = F.relu(self.norm(at + "norm1", self.conv(at + "conv1", x, stride)))
        y = self.norm(at + "norm2", self.conv(at + "conv2", y))
        if at + "shortcut.conv.weight" in self.w:
            x = self.norm(at + "shortcut.norm", self.conv(at + "shortcut.conv", x, stride))
        return F.relu(y + x)

    def fixup_block(self, at, x, stride):
        a = x + self.w[at + "shift1"]
        y = F.relu(self.conv(at + "conv1", a, stride) + self.w[at + "shift2"]) + self.w[at + "shift3"]
        y = self.conv(at + "conv2", y) * self.w[at + "scale"] + self.w[at + "shift4"]
        if at + "shortcut.conv.weight" in self.w:
            x = self.conv(at + "shortcut.conv", a, stride)
        return F.relu(y + x)

    def resnet(self, x):
        x = self.conv("stem.conv", x)
        x = F.relu(x + self.w["stem.shift"] if self.fixup else self.norm("stem.norm", x))
        i = k = 0
        while f"stages.{i}.{k}.conv1.weight" in self.w:
            x = (self.fixup_block if self.fixup else self.block)(f"stages.{i}.{k}.", x, 2 if i and not k else 1)
            i, k = (i, k + 1) if f"stages.{i}.{k + 1}.conv1.weight" in self.w else (i + 1, 0)
        return x + self.w["shift"] if self.fixup else x

    def densenet(self, x):
        x = self.conv("stem", x)
        i = k = 0
        while f"blocks.{i}.{k}.conv1.weight" in self.w:
            at = f"blocks.{i}.{k}."
            y = self.conv(at + "conv1", F.relu(self.norm(at + "norm1", x)))
            y = self.conv(at + "conv2", F.relu(self.norm(at + "norm2", y)))
            x, k = torch.cat([y, x], 1), k + 1
            if f"blocks.{i}.{k}.conv1.weight" not in self.w:
                at, i, k = f"transitions.{i}.", i + 1, 0
                if at + "conv.weight" in self.w:
                    x = F.avg_pool2d(self.conv(at + "conv", F.relu(self.norm(at + "norm", x))), 2)
        return F.relu(self.norm("norm", x))

    def mlp(self, x):
        x, i = from_torch(x).flatten(1), 0
        while f"layers.{i}.weight" in self.w:
            x = F.linear(F.relu(x) if i else x, self.w[f"layers.{i}.weight"], self.w[f"layers.{i}.bias"])
            i += 1
        return x

    def logits(self, images):
        if "layers.0.weight" in self.w:
            return self.mlp(images)
        x = (self.resnet if "stem.conv.weight" in self.w else self.densenet)(images)
        return F.linear(F.avg_pool2d(x, x.shape[2]).flatten(1), self.w["linear.weight"], self.w["linear.bias"])

    def loss(self, batch):
        """Summed over images."""
        return F.cross_entropy(self.logits(batch.images).float(), batch.targets, reduction="sum")


# ---- for bench train ----

class Images:
    def __init__(self, arrays, index, device, memory_format):
        self.images = to_torch(arrays[f"batch/{index}/images"], memory_format).to(device)
        self.targets = arrays[f"batch/{index}/targets"].long().to(device)
        self.rows = 0
        self.count = torch.tensor(float(len(self.targets)), device=device)

    def clone(self):
        other = copy.copy(self)
        other.images, other.targets = self.images.clone(), self.targets.clone()
        return other

    def copy_from(self, other):
        self.images.copy_(other.images)
        self.targets.copy_(other.targets)


def seconds(model, batch):
    """Seconds of a step that changes no weights."""
    start = time.perf_counter()
    model.loss(batch).backward()
    return time.perf_counter() - start


def convolutions_of(model, batch):
    """Names, strides, and the shapes of what is read and written."""
    calls, conv = [], model.conv

    def note(name, x, stride=1):
        y = conv(name, x, stride)
        calls.append((name, stride, x.shape, y.shape))
        return y

    model.conv = note
    with torch.no_grad():
        model.loss(batch)
    del model.conv
    return calls


class VisionKind(Kind):
    FORMATS = {"channels-last": torch.channels_last, "contiguous": torch.contiguous_format}
    layout = "channels-last"

    def make(self, config, weights, arrays, device, layout):
        to = lambda x: to_torch(x.data, self.FORMATS[layout]).clone()  # trials change no weights but their own
        model = VisionModel({name: torch.nn.Parameter(to(x)) for name, x in weights.items()})
        model.training = True  # norms are the batch's, and nothing is random
        return model, [Images(arrays, i, device, self.FORMATS[layout]) for i in range(config["batches"])]

    def faster(self, config, weights, arrays, device):
        """By the shortest of two steps of each, in turns, after one that touches all memory."""
        trials = {layout: self.make({"batches": 1}, weights, arrays, device, layout) for layout in self.FORMATS}
        times = [{layout: seconds(model, batches[0]) for layout, (model, batches) in trials.items()} for _ in range(3)]
        return min(self.FORMATS, key=lambda layout: min(row[layout] for row in times[1:]))

    def open(self, config, weights, arrays, device):
        if device == "cpu":
            self.layout = self.faster(config, weights, arrays, device)
        return self.make(config, weights, arrays, device, self.layout)

    def same_shape(self, model, batches, arrays, device):
        """The last one of an epoch may be smaller."""
        most = max(len(b.targets) for b in batches)
        return [b for b in batches if len(b.targets) == most]

    def convolutions(self, model, batch):
        """Each alone, on random numbers. The first has no gradient for the images."""
        total = 0
        random = lambda shape: torch.rand(shape).contiguous(memory_format=self.FORMATS[self.layout])
        for i, (name, stride, read, written) in enumerate(convolutions_of(model, batch)):
            x, w = random(read), model.w[name + ".weight"]
            start = time.perf_counter()
            y = F.conv2d(x.requires_grad_(i > 0), w, stride=stride, padding=w.shape[2] // 2)
            total += time.perf_counter() - start
            dy = random(written).to(y.dtype)  # which autocast decides
            start = time.perf_counter()
            torch.autograd.grad(y, (x, w) if i else (w,), dy)
            total += time.perf_counter() - start
        return total

    def describe(self):
        return {"layout": self.layout}


if __name__ == "__main__":
    serve(VisionKind())
