"""The trainer's Transformer in PyTorch, with the trainer's names and its weights: the peer of `adamod bench train`, which
has this file in itself and runs it, and the truth of tests/test_torch_model.py.

Batches are padded to their longest sentence, as users of nn.Transformer have them, tokens first ([longest, sentences]),
so that heads are views; on a GPU with fused attention sentences first, as that likes it. Attention is torch's own fused
one where there is one. Sentences begin at their first row, so causal masking alone hides a target's padding; a source's
needs a mask.

On a GPU a step is taken as most people take it, or as fast as torch can: compiled, forward, backward and optimizer one
CUDA graph, for which all batches are padded to one shape.

SPDX-License-Identifier: MIT
"""
import contextlib
import copy
import gc
import itertools
import json
import math
import signal
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
    metadata = {key: json.loads(value) for key, value in header.pop("__metadata__", {}).items()
                if not key.startswith("crc32")}
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


def grow(x, rows, columns, fill):
    """A matrix with at least so many rows and columns."""
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


# ---- training, as the program asks for it ----

def adamw(weights, device="cpu", lr=1e-3, **options):
    """The fastest AdamW of this torch for the device, and its name."""
    for kind in ("fused", "foreach"):
        try:
            probe = torch.nn.Parameter(torch.ones(8, device=device))
            probe.grad = torch.ones(8, device=device)
            torch.optim.AdamW([probe], lr=lr, **{kind: True}, **options).step()
            return torch.optim.AdamW(weights, lr=lr, weight_decay=0, **{kind: True}, **options), kind
        except Exception:
            pass
    return torch.optim.AdamW(weights, lr=lr, weight_decay=0, **options), "plain"


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


def one_line(error, most):
    """An exception for an answer."""
    return f"{type(error).__name__}: {(str(error) or '?').splitlines()[0]}".replace('"', "'").replace("\\", "/")[:most]


class Peer:
    def __init__(self, path):
        self.base = resident("VmRSS")
        forget_peak()
        tensors, config = read_safetensors(path)
        weights = parameters(tensors)
        self.batches = [Batch(tensors, i, config["heads"]) for i in range(config["batches"])]
        self.model = Transformer(config, weights)
        self.optimizer, self.kind = adamw(weights.values())

    def describe(self):
        """With the loss of the first batch, a token, without dropout."""
        first = self.batches[0]
        with torch.no_grad():
            loss = self.loss(first).item() / first.tokens
        self.model.training = True
        return {"version": torch.__version__, "optimizer": self.kind, "attention": "fused" if FUSED_ATTENTION else "bmm",
                "rows": sum(b.rows for b in self.batches), "loss": loss}

    def loss(self, batch):
        return self.model.loss(batch)

    def probe(self):
        """A step that changes no weights."""
        start = time.perf_counter()
        self.model.loss(self.batches[0]).backward()
        return {"seconds": time.perf_counter() - start}

    def step(self, batch):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        (self.loss(batch) / batch.count).backward()
        self.optimizer.step()
        return time.perf_counter() - start

    def train(self, first, steps):
        times = [self.step(self.batches[i % len(self.batches)]) for i in range(first, first + steps)]
        return {"seconds": " ".join(f"{x:.9f}" for x in times)}

    def memory(self):
        return {"base": self.base, "peak": resident("VmHWM")}

    def requests(self):
        return {"probe": self.probe, "train": self.train, "memory": self.memory}


class DevicePeer(Peer):
    """On a GPU, in the precision that the file names: mixed is autocast to bf16, with weights in f32."""
    WARM_STEPS, COMPILE_SECONDS = 3, 240
    LR = 1e-4  # deep models stay finite: numbers that are not would be faster to multiply

    def __init__(self, path):
        tensors, config = read_safetensors(path)
        self.device, self.mixed = config["device"], config["precision"] == "mixed"
        torch.cuda.set_device(self.device)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config["precision"] != "full"
        weights = {name: torch.nn.Parameter(x.data.to(self.device)) for name, x in parameters(tensors).items()}
        self.arrays = {name: x for name, x in tensors.items() if name.startswith("batch/")}
        self.model = Transformer(config, weights, sentences_first=FUSED_ATTENTION)
        self.batches = self.make_batches(None)
        self.optimizer, self.kind = adamw(weights.values(), self.device, self.LR)
        self.graph, self.forward = None, self.model.loss

    def make_batches(self, least):
        c = self.model.c
        return [Batch(self.arrays, i, c["heads"], least=least).to(self.device, self.model.sentences_first)
                for i in range(c["batches"])]

    def describe(self):
        return {**super().describe(), "how": "eager"}

    def loss(self, batch):
        with torch.autocast("cuda", torch.bfloat16) if self.mixed else contextlib.nullcontext():
            return self.forward(batch)

    # ---- one CUDA graph ----

    def same_shape(self):
        """Pads all batches to one shape that holds each, unless they are so already."""
        axes = (1, 0) if self.model.sentences_first else (0, 1)
        shapes = {(b.source.shape[axes[0]], b.target.shape[axes[0]], b.source.shape[axes[1]]) for b in self.batches}
        if len(shapes) > 1 or any(b.mask is not None for b in self.batches):
            self.batches = self.make_batches([max(sizes) for sizes in zip(*shapes)])

    def capture(self, forward):
        """A step on self.static, after a few on another stream, as torch asks for it."""
        self.forward = forward
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(self.WARM_STEPS):
                self.step(self.static)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            (self.loss(self.static) / self.static.count).backward()
            self.optimizer.step()
        graph.replay()
        torch.cuda.synchronize()
        self.graph = graph

    def capture_compiled(self):
        """None, or why it could not be."""
        def late(number, frame):
            raise TimeoutError(f"compiling took more than {self.COMPILE_SECONDS} s")
        signal.signal(signal.SIGALRM, late)
        signal.alarm(self.COMPILE_SECONDS)
        try:
            self.capture(torch.compile(self.model.loss, dynamic=False))
        except Exception as error:
            return one_line(error, 160)
        finally:
            signal.alarm(0)
        return None

    def compile(self):
        self.same_shape()
        self.static = self.batches[0].clone()
        self.optimizer, self.kind = adamw(self.model.w.values(), self.device, self.LR, capturable=True)
        with torch.no_grad():
            self.loss(self.static)  # makes the tables of positions, which no graph should
        failed = self.capture_compiled()
        if not failed:
            return {"how": "compiled, one CUDA graph"}
        torch.cuda.synchronize()
        self.capture(self.model.loss)
        return {"how": f"one CUDA graph, not compiled: {failed}"}

    # ---- requests ----

    def enqueue(self, batch):
        if self.graph is None:
            self.step(batch)
        else:
            self.static.copy_from(batch)
            self.graph.replay()

    def burst(self, first, steps):
        """Seconds of so many steps, without a wait in between."""
        for i in range(-self.WARM_STEPS, steps):
            if i == 0:
                torch.cuda.synchronize()
                start = time.perf_counter()
            self.enqueue(self.batches[(first + i) % len(self.batches)])
        torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - start}

    def memory(self):
        return {"base": 0, "peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}

    def requests(self):
        return {"compile": self.compile, "burst": self.burst, "memory": self.memory}


def open_peer(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    device = json.loads(header["__metadata__"]["device"])
    return Peer(path) if device == "cpu" else DevicePeer(path)


def main():
    """python torch_transformer.py THREADS FILE: requests and answers are lines of JSON, one answer to each request after
    a first one that describes the peer; no quotes within strings."""
    peer = None
    for line in itertools.chain([None], sys.stdin):
        try:
            if line is None:
                torch.set_num_threads(int(sys.argv[1]))
                peer = open_peer(sys.argv[2])
                answer = peer.describe()
            else:
                ask = json.loads(line)
                answer = peer.requests()[ask.pop("do")](**ask)
        except Exception as error:
            answer = {"error": one_line(error, 300)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
