"""The trainer's GPT in PyTorch, with the trainer's names and its weights: the peer of `adamod bench train`, which has this
file in itself and runs it, and the truth of tests/trainer/test_torch_gpt.py.

Attention is torch's own, scaled_dot_product_attention; windows of a batch all have one length.

SPDX-License-Identifier: MIT
"""
import copy

import torch.nn.functional as F
from torch_model import *

EPS = 1e-5


def rms_norm(x, gain):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * gain


def attend(q, k, v):
    """Causal, of [windows, heads, tokens, size]. Before version 2, torch has no op for it."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    n = q.shape[2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[3])
    hidden = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v


class Gpt:
    """weights: by the trainer's names. config: the settings of language_bench.c."""

    def __init__(self, weights, config):
        self.w, self.config, self.training = weights, config, False

    def drop(self, x):
        p = self.config["dropout"]
        return F.dropout(x, p) if self.training and p > 0 else x

    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def norm(self, name, x):
        gain, bias = self.w[name + ".weight"], self.w.get(name + ".bias")
        return rms_norm(x, gain) if bias is None else F.layer_norm(x, gain.shape, gain, bias, EPS)

    def rotate(self, x):
        """Numbers i and i + size / 2 of each head by an angle of its position, as Llama in transformers does it."""
        base, (n, size) = self.config["rotary_base"], x.shape[-2:]
        if base == 0:
            return x
        i = torch.arange(0, size, 2, device=x.device, dtype=torch.float64)
        angle = torch.arange(n, device=x.device, dtype=torch.float64)[:, None] * base ** (-i / size)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(self, at, x):
        heads, kv_heads = int(self.config["heads"]), int(self.config["kv_heads"])
        qkv = self.linear(f"{at}.c_attn", x)
        size = qkv.shape[-1] // (heads + 2 * kv_heads)
        q, k, v = (y.unflatten(-1, (-1, size)).transpose(1, 2)
                   for y in qkv.split([heads * size, kv_heads * size, kv_heads * size], -1))
        if f"{at}.q_norm.weight" in self.w:
            q, k = rms_norm(q, self.w[f"{at}.q_norm.weight"]), rms_norm(k, self.w[f"{at}.k_norm.weight"])
        q, k = self.rotate(q), self.rotate(k)
        k, v = (y.repeat_interleave(heads // kv_heads, 1) for y in (k, v))
        return self.linear(f"{at}.c_proj", attend(q, k, v).transpose(1, 2).flatten(2))

    def feed_forward(self, at, x):
        y = self.linear(f"{at}.c_fc", x)
        if self.config["swiglu"]:
            gate, y = y.chunk(2, -1)
            y = F.silu(gate) * y
        else:
            y = F.gelu(y, approximate="tanh")
        return self.linear(f"{at}.c_proj", y)

    def hidden(self, ids):
        """The output layer's input, for ids of [windows, tokens]."""
        x = F.embedding(ids, self.w["wte.weight"])
        if "wpe.weight" in self.w:
            x = x + self.w["wpe.weight"][:ids.shape[1]]
        x = self.drop(x)
        for i in range(int(self.config["layers"])):
            x = x + self.drop(self.attention(f"h.{i}.attn", self.norm(f"h.{i}.ln_1", x)))
            x = x + self.drop(self.feed_forward(f"h.{i}.mlp", self.norm(f"h.{i}.ln_2", x)))
        return self.norm("ln_f", x)

    def loss(self, batch):
        logits = F.linear(self.hidden(batch.ids), self.w["wte.weight"]).flatten(0, 1)
        nll = F.cross_entropy(logits, batch.targets.flatten(), reduction="sum")
        if self.config["z_loss"]:
            nll = nll + self.config["z_loss"] * logits.logsumexp(-1).square().sum()
        return nll


class Windows:
    """Batch number i of a file."""
    rows = 0  # nothing is padded

    def __init__(self, arrays, i, config, device, dtype=torch.float32):
        part = {name: arrays[f"batch/{i}/{name}"].to(device).long() for name in ("ids", "targets", "ranges")}
        windows = len(part["ranges"].reshape(-1, 2))
        self.ids, self.targets = (part[name].reshape(windows, -1) for name in ("ids", "targets"))
        self.count = torch.tensor(float(self.ids.numel()), device=device, dtype=dtype)

    def clone(self):
        other = copy.copy(self)
        other.ids, other.targets = self.ids.clone(), self.targets.clone()
        return other

    def copy_from(self, other):
        self.ids.copy_(other.ids)
        self.targets.copy_(other.targets)


class GptKind(Kind):
    def open(self, config, weights, arrays, device):
        return Gpt(weights, config), [Windows(arrays, i, config, device) for i in range(config["batches"])]


if __name__ == "__main__":
    serve(GptKind())
