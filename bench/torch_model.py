"""PyTorch as a contestant of `adamod bench train`: reads model and batches from a file, takes steps when it is told to, and
says how long they took. torch_NAME.py has a model and what its batches are, and calls serve; the program has each of them
in itself, this file before it.

On a GPU a step is taken as most people take it, or as fast as torch can: compiled, forward, backward and optimizer one
CUDA graph, for which all batches have one shape.

SPDX-License-Identifier: MIT
"""
import contextlib
import ctypes
import gc
import itertools
import json
import math
import signal
import sys
import time

try:
    import torch
except Exception as error:
    if __name__ == "__main__":
        print(json.dumps({"error": str(error).replace('"', "'")}))
    raise

sys.modules.setdefault("torch_model", sys.modules[__name__])  # within the program there are no files to import


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


def settle():
    """Returns freed memory to the system, so that it no longer counts."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass  # another C library
    forget_peak()


class Kind:
    """A kind of model. A batch has count, the targets that the loss is divided by, as a tensor, rows with their
    padding (0: there is none), and, for CUDA graphs, clone() and copy_from(other)."""

    def open(self, config, weights, arrays, device):
        """A model, with w, its parameters by name, training, and loss(batch), summed over targets; and its batches, both
        on the device. It first computes a loss with nothing random, then trains."""
        raise NotImplementedError

    def same_shape(self, model, batches, arrays, device):
        """Batches that all have one shape."""
        return batches

    def convolutions(self, model, batch):
        """Seconds of a step's convolutions alone, forward and backward, on a CPU; 0: there are none."""
        return 0

    def describe(self):
        """Further facts for the program."""
        return {}


def batch_arrays(tensors):
    return {name: x for name, x in tensors.items() if name.startswith("batch/")}


class Peer:
    """On a CPU, in f32; mixed precision is autocast to bf16, with weights in f32."""

    def __init__(self, kind, path):
        self.base = resident("VmRSS")
        tensors, config = read_safetensors(path)
        self.kind, self.mixed = kind, config.get("precision") == "mixed"
        with self.cast():
            self.model, self.batches = kind.open(config, parameters(tensors), batch_arrays(tensors), "cpu")
        del tensors
        settle()
        self.optimizer, self.optimizer_kind = adamw(self.model.w.values())

    def describe(self):
        """With the loss of the first batch, a target."""
        first = self.batches[0]
        with torch.no_grad():
            loss = self.loss(first).item() / first.count.item()
        how = {"how": "autocast to bf16"} if self.mixed else {}
        self.model.training = True
        return {"version": torch.__version__, "python": sys.executable, "optimizer": self.optimizer_kind, **self.kind.describe(),
                "rows": sum(b.rows for b in self.batches), "loss": loss, **how}

    def cast(self):
        return torch.autocast("cpu", torch.bfloat16) if self.mixed else contextlib.nullcontext()

    def loss(self, batch):
        with self.cast():
            return self.model.loss(batch)

    def probe(self):
        """A step that changes no weights."""
        start = time.perf_counter()
        self.loss(self.batches[0]).backward()
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

    def convolutions(self):
        with self.cast():
            return {"seconds": self.kind.convolutions(self.model, self.batches[0])}

    def requests(self):
        return {"probe": self.probe, "train": self.train, "memory": self.memory, "convolutions": self.convolutions}


class DevicePeer(Peer):
    """On a GPU, in the precision that the file names: mixed is autocast to bf16, with weights in f32."""
    WARM_STEPS, COMPILE_SECONDS = 3, 240
    LR = 1e-4  # deep models stay finite: numbers that are not would be faster to multiply

    def __init__(self, kind, path):
        tensors, config = read_safetensors(path)
        self.device, self.mixed = config["device"], config["precision"] == "mixed"
        torch.cuda.set_device(self.device)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config["precision"] != "full"
        torch.backends.cudnn.benchmark = True
        weights = {name: torch.nn.Parameter(x.data.to(self.device)) for name, x in parameters(tensors).items()}
        self.kind, self.arrays = kind, batch_arrays(tensors)
        self.model, self.batches = kind.open(config, weights, self.arrays, self.device)
        self.optimizer, self.optimizer_kind = adamw(self.model.w.values(), self.device, self.LR)
        self.graph, self.forward = None, self.model.loss

    def describe(self):
        return {**super().describe(), "how": "eager"}

    def loss(self, batch):
        with torch.autocast("cuda", torch.bfloat16) if self.mixed else contextlib.nullcontext():
            return self.forward(batch)

    # ---- one CUDA graph ----

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
        self.batches = self.kind.same_shape(self.model, self.batches, self.arrays, self.device)
        self.static = self.batches[0].clone()
        self.optimizer, self.optimizer_kind = adamw(self.model.w.values(), self.device, self.LR, capturable=True)
        with torch.no_grad():
            self.loss(self.static)  # makes what a model keeps, which no graph should
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
        """Seconds of the steps, without a wait in between."""
        for i in range(-self.WARM_STEPS, steps):
            if i == 0:
                torch.cuda.synchronize()
                if self.graph is None:  # which has its memory already
                    torch.cuda.reset_peak_memory_stats()
                start = time.perf_counter()
            self.enqueue(self.batches[(first + i) % len(self.batches)])
        torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - start}

    def memory(self):
        return {"base": 0, "peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}

    def requests(self):
        return {"compile": self.compile, "burst": self.burst, "memory": self.memory}


def open_peer(kind, path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    device = json.loads(header["__metadata__"]["device"])
    return Peer(kind, path) if device == "cpu" else DevicePeer(kind, path)


def serve(kind):
    """python torch_NAME.py THREADS FILE: requests and answers are lines of JSON, one answer to each request after a first
    one that describes the peer; no quotes within strings."""
    peer = None
    for line in itertools.chain([None], sys.stdin):
        try:
            if line is None:
                torch.set_num_threads(int(sys.argv[1]))
                peer = open_peer(kind, sys.argv[2])
                answer = peer.describe()
            else:
                ask = json.loads(line)
                answer = peer.requests()[ask.pop("do")](**ask)
        except Exception as error:
            answer = {"error": one_line(error, 300)}
        print(json.dumps(answer), flush=True)
