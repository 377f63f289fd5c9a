"""The trainer's Transformer in PyTorch, with the trainer's names and its weights: the peer of `adamod bench train`, which
has this file in itself and runs it, and the truth of tests/test_torch_model.py.

Batches are padded to their longest sentence, as users of nn.Transformer have them, tokens first ([longest, sentences]),
so that heads are views. Attention is torch's own fused one where there is one. Sentences begin at their first row, so
causal masking alone hides a target's padding; a source's needs a mask.

SPDX-License-Identifier: MIT
"""
import itertools
import json
import math
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except Exception as error:
    if __name__ == "__main__":
        print(json.dumps({"error": str(error).replace('"', "'")}))
    raise

FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")


# ---- files ----

def read_safetensors(path):
    """Tensors by name, and the metadata with its values as JSON reads them."""
    types = {"F32": torch.float32, "F64": torch.float64, "I32": torch.int32, "I64": torch.int64}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    metadata = {key: json.loads(value) for key, value in header.pop("__metadata__", {}).items()}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(data, dtype=types[entry["dtype"]], count=math.prod(entry["shape"]), offset=begin)
        tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors, metadata


def parameters(tensors, dtype=torch.float32):
    """The weights in a file of `adamod bench train --dump`."""
    return {name: torch.nn.Parameter(x.to(dtype)) for name, x in tensors.items()
            if not name.startswith(("gradient/", "batch/"))}


def pad(rows, ranges, fill):
    """Packed rows to [longest, sentences]."""
    return torch.nn.utils.rnn.pad_sequence([rows[a:b].long() for a, b in ranges.tolist()], padding_value=fill)


class Batch:
    def __init__(self, tensors, index, heads, dtype=torch.float32):
        part = lambda name: tensors[f"batch/{index}/{name}"]
        self.source = pad(part("src_ids"), part("src_ranges"), 0)
        self.target = pad(part("tgt_in"), part("tgt_ranges"), 0)
        self.expected = pad(part("tgt_out"), part("tgt_ranges"), -1)
        self.tokens = int((self.expected >= 0).sum())
        self.rows = self.source.numel() + self.target.numel()
        lengths = part("src_ranges")[:, 1] - part("src_ranges")[:, 0]
        hidden = torch.arange(len(self.source))[None, :] >= lengths[:, None]
        # Added to the scores [sentences * heads, queries, keys]; none where no sentence is shorter than another.
        self.mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -math.inf)
        self.mask = self.mask.repeat_interleave(heads, 0)[:, None] if hidden.any() else None
        n = len(self.target)
        self.causal = torch.full((n, n), -math.inf, dtype=dtype).triu(1)[None]


# ---- the model ----

class Transformer:
    """config: the metadata of the file. training: dropout drops."""

    def __init__(self, config, weights):
        self.c, self.w, self.training = config, weights, False
        self.tables = {}

    def dropout(self, x):
        p = self.c["dropout"]
        return F.dropout(x, p, self.training) if p > 0 else x

    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], 1e-5)

    def positions(self, n, dtype):
        """Sinusoids as fairseq lays them out: sines, then cosines."""
        if n not in self.tables:
            d = self.c["d"]
            rates = torch.exp(torch.arange(d // 2, dtype=torch.float64) * -(math.log(10000) / max(d // 2 - 1, 1)))
            angles = torch.arange(n, dtype=torch.float64)[:, None] * rates
            table = torch.cat([angles.sin(), angles.cos(), torch.zeros(n, d % 2, dtype=torch.float64)], 1)
            self.tables[n] = table[:, None].to(dtype)
        return self.tables[n]

    def embed(self, ids, table):
        x = F.embedding(ids, table)
        return self.dropout(torch.add(self.positions(len(ids), x.dtype), x, alpha=math.sqrt(self.c["d"])))

    def attend(self, q, k, v, mask, causal):
        """q [queries, sentences, d], k and v [keys, sentences, d]."""
        n, sentences, d = q.shape
        heads, drop = self.c["heads"], self.c["attention_dropout"] if self.training else 0.0
        if FUSED_ATTENTION:
            split = lambda x: x.unflatten(-1, (heads, d // heads)).permute(1, 2, 0, 3)
            mask = None if causal or mask is None else mask.view(sentences, heads, 1, -1)
            y = F.scaled_dot_product_attention(split(q), split(k), split(v), mask, drop, causal)
            return y.permute(2, 0, 1, 3).reshape(n, sentences, d)
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


# ---- training, as the program asks for it ----

def adamw(weights):
    """The fastest AdamW of this torch for processors, and its name."""
    for kind in ("fused", "foreach"):
        try:
            probe = torch.nn.Parameter(torch.ones(8))
            probe.grad = torch.ones(8)
            torch.optim.AdamW([probe], lr=1e-3, **{kind: True}).step()
            return torch.optim.AdamW(weights, lr=1e-3, weight_decay=0, **{kind: True}), kind
        except Exception:
            pass
    return torch.optim.AdamW(weights, lr=1e-3, weight_decay=0), "plain"


def resident(field):
    """VmRSS, or VmHWM for the most so far, in bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/status") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith(field + ":"))
    except (OSError, StopIteration):
        return 0


def forget_peak():
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass  # then the peak of importing counts, too


class Peer:
    def __init__(self, path):
        self.base = resident("VmRSS")
        forget_peak()
        tensors, config = read_safetensors(path)
        self.model = Transformer(config, parameters(tensors))
        self.batches = [Batch(tensors, i, config["heads"]) for i in range(config["batches"])]
        self.optimizer, self.kind = adamw(self.model.w.values())

    def describe(self):
        """With the loss of the first batch, a token, without dropout."""
        first = self.batches[0]
        with torch.no_grad():
            loss = self.model.loss(first).item() / first.tokens
        self.model.training = True
        return {"version": torch.__version__, "optimizer": self.kind, "attention": "fused" if FUSED_ATTENTION else "bmm",
                "rows": sum(b.rows for b in self.batches), "loss": loss}

    def probe(self):
        """A step that changes no weights."""
        start = time.perf_counter()
        self.model.loss(self.batches[0]).backward()
        return {"seconds": time.perf_counter() - start}

    def step(self, batch):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        (self.model.loss(batch) / batch.tokens).backward()
        self.optimizer.step()
        return time.perf_counter() - start

    def train(self, first, steps):
        times = [self.step(self.batches[i % len(self.batches)]) for i in range(first, first + steps)]
        return {"seconds": " ".join(f"{x:.9f}" for x in times)}

    def memory(self):
        return {"base": self.base, "peak": resident("VmHWM")}


def main():
    """python torch_transformer.py THREADS FILE: requests and answers are lines of JSON, one answer to each request after
    a first one that describes the peer; no quotes within strings."""
    peer = None
    for line in itertools.chain([None], sys.stdin):
        try:
            if line is None:
                torch.set_num_threads(int(sys.argv[1]))
                peer = Peer(sys.argv[2])
                answer = peer.describe()
            else:
                ask = json.loads(line)
                answer = {"probe": peer.probe, "train": peer.train, "memory": peer.memory}[ask.pop("do")](**ask)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}".replace('"', "'")[:300]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
