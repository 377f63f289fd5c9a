"""The trainer's LSTM in PyTorch, with the trainer's names and its weights: the peer of `adamod bench train`, which has this
file in itself and runs it, and the truth of tests/trainer/test_torch_language.py.

Layers are nn.LSTM's own function, cuDNN's on a GPU, whose recurrent weights are dropped before each batch, as AWD-LSTM
(arXiv 1708.02182) does it. The state goes on from batch to batch, and no gradient does.

SPDX-License-Identifier: MIT
"""
import copy

import torch.nn.functional as F
from torch_model import *


class LanguageModel:
    """weights: by the trainer's names. config: the settings of language_bench.c."""
    PARTS = "weight_ih", "weight_hh", "bias_ih", "bias_hh"

    def __init__(self, weights, config):
        self.w, self.config, self.training = weights, config, False
        units = [weights[f"layers.{i}.weight_hh"].shape[1] for i in range(config["layers"])]
        like = weights["decoder.bias"]
        self.states = [tuple(like.new_zeros((1, config["columns"], n)).detach() for _ in "hc") for n in units]

    # Dropout factors: 0, or 1 / (1 - p). Tests give others.

    def mask(self, name, shape):
        """None: nothing is dropped."""
        p = self.config[name.split(".")[0] + "_dropout"]
        return F.dropout(self.w["decoder.bias"].new_ones(shape), p) if self.training and p > 0 else None

    def dropped_weights(self, name, w):
        p = self.config["weight_dropout"]
        return F.dropout(w, p) if self.training and p > 0 else w

    def locked(self, name, x):
        """One mask for all time steps."""
        mask = self.mask(name, (1, *x.shape[1:]))
        return x if mask is None else x * mask

    def embed(self, ids):
        x = F.embedding(ids, self.w["embedding.weight"])
        mask = self.mask("word", (len(self.w["embedding.weight"]), 1))
        return x if mask is None else x * F.embedding(ids, mask)

    def layer(self, i, x, carried):
        w_in, w_state, b_in, b_state = (self.w[f"layers.{i}.{part}"] for part in self.PARTS)
        weights = [w_in, self.dropped_weights(f"weight.{i}", w_state), b_in, b_state]
        before = tuple(s * carried for s in self.states[i])
        y, *after = torch.lstm(x, before, weights, True, 1, 0.0, self.training, False, False)
        with torch.no_grad():
            for state, new in zip(self.states[i], after):
                state.copy_(new)
        return y

    def loss(self, batch):
        last = self.config["layers"] - 1
        x = self.locked("input", self.embed(batch.ids))
        for i in range(last + 1):
            raw = self.layer(i, x, batch.carried)
            x = self.locked("output" if i == last else f"layer.{i}", raw)
        logits = F.linear(x.flatten(0, 1), self.w["embedding.weight"], self.w["decoder.bias"])
        nll = F.cross_entropy(logits, batch.targets.flatten(), reduction="sum")
        cost = self.config["activity"] * x.square().mean()
        if len(raw) > 1:
            cost = cost + self.config["change"] * (raw[1:] - raw[:-1]).square().mean()
        return nll + cost * batch.count


class Text:
    """Batch number i of a file. Row t of ids is time step t."""
    rows = 0  # nothing is padded

    def __init__(self, arrays, i, config, device, dtype=torch.float32):
        part = {name: arrays[f"batch/{i}/{name}"].to(device) for name in ("ids", "targets", "carried")}
        self.ids, self.targets = (part[name].long().reshape(-1, config["columns"]) for name in ("ids", "targets"))
        self.carried = part["carried"].to(dtype)
        self.count = torch.tensor(float(self.ids.numel()), device=device, dtype=dtype)

    def clone(self):
        other = copy.copy(self)
        other.ids, other.targets, other.carried = self.ids.clone(), self.targets.clone(), self.carried.clone()
        return other

    def copy_from(self, other):
        self.ids.copy_(other.ids)
        self.targets.copy_(other.targets)
        self.carried.copy_(other.carried)


class LanguageKind(Kind):
    def open(self, config, weights, arrays, device):
        return LanguageModel(weights, config), [Text(arrays, i, config, device) for i in range(config["batches"])]

    def same_shape(self, model, batches, arrays, device):
        """Lengths may vary; the longest."""
        most = max(len(b.ids) for b in batches)
        return [b for b in batches if len(b.ids) == most]


if __name__ == "__main__":
    serve(LanguageKind())
