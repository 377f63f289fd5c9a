"""The trainer's Transformer in PyTorch, with the trainer's names and its weights: the peer of `adamod bench train`, which
has this file in itself and runs it, and the truth of tests/trainer/test_torch_model.py.

Batches are padded to their longest sentence, as users of nn.Transformer have them, tokens first ([longest, sentences]),
so that heads are views; on a GPU with fused attention sentences first, as that likes it. Attention is torch's own fused
one where there is one. Sentences begin at their first row, so causal masking alone hides a target's padding; a source's
needs a mask. For a CUDA graph all batches are padded to one shape.

SPDX-License-Identifier: MIT
"""
import copy
import math

import torch.nn.functional as F
from torch_model import *

FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")


# ---- batches ----

def pad(rows, ranges, fill):
    """Packed rows to [longest, sentences]."""
    return torch.nn.utils.rnn.pad_sequence([rows[a:b].long() for a, b in ranges.tolist()], padding_value=fill)


def grow(x, rows, columns, fill):
    """Pads a matrix to at least these rows and columns."""
    return F.pad(x, (0, max(columns - x.shape[1], 0), 0, max(rows - x.shape[0], 0)), value=fill)


class Batch:
    """least: source rows, target rows and sentences that there are at least, with a mask in any case; None: as many as
    it takes."""
    TENSORS = ("source", "target", "expected", "mask", "causal", "count")

    def __init__(self, tensors, index, heads, dtype=torch.float32, least=None):
        part = lambda name: tensors[f"batch/{index}/{name}"]
        source, target, sentences = least or (0, 0, 0)
        self.source = grow(pad(part("src_ids"), part("src_ranges"), 0), source, sentences, 0)
        self.target = grow(pad(part("tgt_in"), part("tgt_ranges"), 0), target, sentences, 0)
        self.expected = grow(pad(part("tgt_out"), part("tgt_ranges"), -1), target, sentences, -1)
        self.tokens = int((self.expected >= 0).sum())
        self.count = torch.tensor(float(self.tokens))
        self.rows = self.source.numel() + self.target.numel()
        lengths = part("src_ranges")[:, 1] - part("src_ranges")[:, 0]
        lengths = F.pad(lengths, (0, self.source.shape[1] - len(lengths)), value=1)  # something to attend to
        hidden = torch.arange(len(self.source))[None, :] >= lengths[:, None]
        # Added to the scores [sentences * heads, queries, keys]; none where no sentence is shorter than another.
        self.mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -math.inf)
        self.mask = self.mask.repeat_interleave(heads, 0)[:, None] if least or hidden.any() else None
        n = len(self.target)
        self.causal = torch.full((n, n), -math.inf, dtype=dtype).triu(1)[None]

    def to(self, device, sentences_first):
        for name in ("source", "target", "expected") if sentences_first else ():
            setattr(self, name, getattr(self, name).t().contiguous())
        for name in self.TENSORS:
            x = getattr(self, name)
            setattr(self, name, x if x is None else x.to(device))
        return self

    def clone(self):
        other = copy.copy(self)
        for name in self.TENSORS:
            x = getattr(self, name)
            setattr(other, name, x if x is None else x.clone())
        return other

    def copy_from(self, other):
        """The numbers of another of the same shape, where these are."""
        for name in self.TENSORS:
            if getattr(self, name) is not None and name != "causal":
                getattr(self, name).copy_(getattr(other, name))


# ---- the model ----

class Transformer:
    """config: the metadata of the file. training: dropout drops. sentences_first: so are ids, [sentences, longest]."""

    def __init__(self, config, weights, sentences_first=False):
        self.c, self.w, self.training = config, weights, False
        self.sentences_first = sentences_first
        self.tables = {}

    def dropout(self, x):
        p = self.c["dropout"]
        return F.dropout(x, p, self.training) if p > 0 else x

    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], 1e-5)

    def positions(self, ids, dtype):
        """Sinusoids as fairseq lays them out: sines, then cosines."""
        n = ids.shape[1 if self.sentences_first else 0]
        if n not in self.tables:
            d = self.c["d"]
            rates = torch.exp(torch.arange(d // 2, dtype=torch.float64) * -(math.log(10000) / max(d // 2 - 1, 1)))
            angles = torch.arange(n, dtype=torch.float64)[:, None] * rates
            table = torch.cat([angles.sin(), angles.cos(), torch.zeros(n, d % 2, dtype=torch.float64)], 1)
            self.tables[n] = (table if self.sentences_first else table[:, None]).to(ids.device, dtype)
        return self.tables[n]

    def embed(self, ids, table):
        x = F.embedding(ids, table)
        return self.dropout(torch.add(self.positions(ids, x.dtype), x, alpha=math.sqrt(self.c["d"])))

    def attend(self, q, k, v, mask, causal):
        """q [queries, sentences, d], k and v [keys, sentences, d]; or sentences before the others."""
        n, sentences, d = q.shape
        heads, drop = self.c["heads"], self.c["attention_dropout"] if self.training else 0.0
        if FUSED_ATTENTION:
            to, back = ((0, 2, 1, 3), (0, 2, 1, 3)) if self.sentences_first else ((1, 2, 0, 3), (2, 0, 1, 3))
            split = lambda x: x.unflatten(-1, (heads, d // heads)).permute(to)
            mask = None if causal or mask is None else mask.view(-1, heads, 1, mask.shape[-1])
            y = F.scaled_dot_product_attention(split(q), split(k), split(v), mask, drop, causal)
            return y.permute(back).reshape(q.shape)
        split = lambda x: x.reshape(x.shape[0], sentences * heads, d // heads).transpose(0, 1)
        keys, scale = split(k).transpose(1, 2), math.sqrt(heads / d)
        if mask is None:
            scores = torch.bmm(split(q) * scale, keys)
        else:
            scores = torch.baddbmm(mask, split(q), keys, alpha=scale)
        weights = F.softmax(scores, -1)
        if drop > 0:
            weights = F.dropout(weights, drop)
        return torch.bmm(weights, split(v)).transpose(0, 1).reshape(n, sentences, d)

    def block(self, name, x, f):
        """x around a residual: norm(x + f(x)), or x + f(norm(x))."""
        if self.c["pre_norm"]:
            return x + self.dropout(f(self.norm(name, x)))
        return self.norm(name, x + self.dropout(f(x)))

    def self_attention(self, name, x, mask, causal):
        q, k, v = self.linear(name + ".self_qkv", x).chunk(3, -1)
        return self.linear(name + ".self_out", self.attend(q, k, v, mask, causal))

    def cross_attention(self, name, x, memory, mask):
        k, v = self.linear(name + ".cross_kv", memory).chunk(2, -1)
        return self.linear(name + ".cross_out", self.attend(self.linear(name + ".cross_q", x), k, v, mask, False))

    def feed_forward(self, name, x):
        return self.linear(name + ".ffn_out", F.relu(self.linear(name + ".ffn_in", x)))

    def encode(self, batch, table):
        x = self.embed(batch.source, table)
        for i in range(self.c["layers"]):
            name = f"encoder.{i}"
            x = self.block(name + ".self_norm", x, lambda y: self.self_attention(name, y, batch.mask, False))
            x = self.block(name + ".ffn_norm", x, lambda y: self.feed_forward(name, y))
        return self.norm("encoder.norm", x) if self.c["pre_norm"] else x

    def loss(self, batch):
        """Summed over target tokens, label-smoothed."""
        shared = self.w.get("embedding.weight")
        source = shared if shared is not None else self.w["encoder.embedding.weight"]
        target = shared if shared is not None else self.w["decoder.embedding.weight"]
        memory, x = self.encode(batch, source), self.embed(batch.target, target)
        for i in range(self.c["layers"]):
            name = f"decoder.{i}"
            x = self.block(name + ".self_norm", x, lambda y: self.self_attention(name, y, batch.causal, True))
            x = self.block(name + ".cross_norm", x, lambda y: self.cross_attention(name, y, memory, batch.mask))
            x = self.block(name + ".ffn_norm", x, lambda y: self.feed_forward(name, y))
        if self.c["pre_norm"]:
            x = self.norm("decoder.norm", x)
        logits = F.linear(x, self.w.get("decoder.output.weight", target))
        return F.cross_entropy(logits.flatten(0, 1), batch.expected.flatten(), ignore_index=-1, reduction="sum",
                               label_smoothing=self.c["smoothing"])


# ---- for bench train ----

class TransformerKind(Kind):
    def batches(self, model, arrays, device, least):
        made = [Batch(arrays, i, model.c["heads"], least=least) for i in range(model.c["batches"])]
        return made if device == "cpu" else [b.to(device, model.sentences_first) for b in made]

    def open(self, config, weights, arrays, device):
        model = Transformer(config, weights, sentences_first=device != "cpu" and FUSED_ATTENTION)
        return model, self.batches(model, arrays, device, None)

    def same_shape(self, model, batches, arrays, device):
        """Pads all to one shape that holds each, unless they are so already."""
        axes = (1, 0) if model.sentences_first else (0, 1)
        shapes = {(b.source.shape[axes[0]], b.target.shape[axes[0]], b.source.shape[axes[1]]) for b in batches}
        if len(shapes) == 1 and all(b.mask is None for b in batches):
            return batches
        return self.batches(model, arrays, device, [max(sizes) for sizes in zip(*shapes)])

    def describe(self):
        return {"attention": "fused" if FUSED_ATTENTION else "bmm"}


if __name__ == "__main__":
    serve(TransformerKind())
