"""llm.c as a contestant of `adamod bench train`: builds its train_gpt2 in a temporary folder, by its own Makefile, writes the
trainer's weights and batches as it reads them, and lets it take steps when it is told to.

A few lines of its main are changed in a copy: the size of batches, how long it goes on, and that it waits before each step.
The times are those that it prints.

SPDX-License-Identifier: MIT
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

MARK = "adamod: waiting"
WAIT = f'puts("\\n{MARK}"); fflush(stdout); if (getchar() < 0) exit(0); '


class Refused(Exception):
    pass


# ---- the model ----

class File:
    """Arrays as bytes, and the settings, of a file of bench_train_file.c."""

    def __init__(self, path):
        self.file = open(path, "rb")
        self.arrays = json.loads(self.file.read(int.from_bytes(self.file.read(8), "little")))
        self.begin = self.file.tell()
        self.settings = {key: json.loads(value) for key, value in self.arrays.pop("__metadata__").items()
                         if not key.startswith("crc32")}

    def shape(self, name):
        return self.arrays[name]["shape"] if name in self.arrays else None

    def read(self, name):
        first, end = self.arrays[name]["data_offsets"]
        self.file.seek(self.begin + first)
        return self.file.read(end - first)


LAYER = ["ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
         "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"]


def check_model(file):
    """llm.c has nothing but GPT-2."""
    has, s = file.shape, file.settings
    if not has("wte.weight") or s.get("batches", 0) < 1:
        raise Refused("it trains GPT-2 and no other model: model.kind must be gpt")
    d = has("wte.weight")[1]
    wants = [("learned positions", has("wpe.weight")),
             ("layer norms and biases", all(has(f"h.0.{name}") for name in LAYER) and has("ln_f.bias")),
             ("as many heads of keys as of queries", s["heads"] == s["kv_heads"]),
             ("gelu", not s["swiglu"]),
             ("a feed-forward layer of 4 x model.d", has("h.0.mlp.c_fc.weight") == [4 * d, d]),
             ("no norms of queries and keys", not has("h.0.attn.q_norm.weight")),
             ("no dropout", not s["dropout"]),
             ("no z-loss", not s["z_loss"]),
             ("at most 65536 tokens", has("wte.weight")[0] <= 65536)]
    for want, met in wants:
        if not met:
            raise Refused(f"its model is GPT-2, with {want}, and this recipe's is not")


def write_model(file, path, bf16):
    """Its checkpoint. bf16: numbers are cut to the upper half of their bits."""
    (words, d), positions, s = file.shape("wte.weight"), file.shape("wpe.weight")[0], file.settings
    padded = (words + 127) // 128 * 128

    def write(name):
        data = file.read(name)
        if bf16:
            short = bytearray(len(data) // 2)
            short[0::2], short[1::2] = data[2::4], data[3::4]
            data = short
        out.write(data)

    with open(path, "wb") as out:
        head = [20240326, 5 if bf16 else 3, positions, words, int(s["layers"]), int(s["heads"]), d, padded]
        out.write(struct.pack("<256i", *head, *[0] * 248))
        write("wte.weight")
        out.write(bytes((padded - words) * d * (2 if bf16 else 4)))
        write("wpe.weight")
        for name in LAYER:
            for i in range(int(s["layers"])):
                write(f"h.{i}.{name}")
        write("ln_f.weight")
        write("ln_f.bias")


def tokens_of(file, i, name):
    """The tokens of a batch, 16 bits each."""
    data = file.read(f"batch/{i}/{name}")
    short = bytearray(len(data) // 2)
    short[0::2], short[1::2] = data[0::4], data[1::4]
    return short


def write_tokens(file, path, batches):
    """Batches end to end, and one token more, as its loader reads them."""
    tokens = b"".join(tokens_of(file, i, "ids") for i in batches) + tokens_of(file, batches[-1], "targets")[-2:]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(struct.pack("<256i", 20240520, 1, len(tokens) // 2, *[0] * 253))
        out.write(tokens)


# ---- the program ----

def change(path, changes):
    """Pairs of what to find, once, and what takes its place."""
    with open(path) as file:
        text = file.read()
    for old, new in changes:
        if text.count(old) != 1:
            raise Refused(f"{os.path.basename(path)} has '{old}' {text.count(old)} times, expected once: another version of llm.c?")
        text = text.replace(old, new)
    with open(path, "w") as file:
        file.write(text)


def first_line(command):
    """The output of a program; None: there is no such program, or it fails."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return None


def version_of(source):
    """Its commit; "" if the directory is a copy, which may lie in another repository."""
    top = first_line(["git", "-C", source, "rev-parse", "--show-toplevel"])
    if not top or os.path.realpath(top.strip()) != os.path.realpath(source):
        return ""
    return (first_line(["git", "-C", source, "describe", "--always"]) or "").strip()


def make(folder, target, *variables):
    """None, or the error."""
    try:
        done = subprocess.run(["make", target, *variables], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL)
    except OSError as error:
        return f"make: {error.strerror}"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()] or ["no message"]
    errors = [line for line in lines if re.search(r"\berror\b|cannot find|undefined reference", line)]
    return (errors or lines)[0]


class Program:
    """Copies of llm.c's files in a folder, and the process."""

    def __init__(self, file, source, folder, threads):
        self.file, self.source, self.folder = file, source, folder
        self.device, self.precision = file.settings["device"], file.settings["precision"]
        windows = file.shape("batch/0/ranges")[0]
        self.batch = windows, file.shape("batch/0/ids")[0] // windows
        self.name = "train_gpt2.c" if self.device == "cpu" else "train_gpt2.cu"
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self.copy()

    def copy(self):
        if not os.path.isfile(os.path.join(self.source, self.name)):
            raise Refused(f"no {self.name} in {self.source}")
        shutil.copy(os.path.join(self.source, self.name), self.folder)
        if os.path.isdir(os.path.join(self.source, "llmc")):
            shutil.copytree(os.path.join(self.source, "llmc"), os.path.join(self.folder, "llmc"))
        for name in ("Makefile", "cudnn-frontend"):
            if os.path.exists(os.path.join(self.source, name)):
                os.symlink(os.path.abspath(os.path.join(self.source, name)), os.path.join(self.folder, name))

    def change_main(self, changes):
        """Windows have the trainer's last targets in the batch whose loss is compared; in a file of tokens they would be
        the next window's first."""
        last = tokens_of(self.file, 0, "targets")
        step = 2 * self.batch[1]
        last = ", ".join(str(int.from_bytes(last[i - 2:i], "little")) for i in range(step, len(last) + 1, step))
        take = "dataloader_next_batch(&val_loader);"
        fix = f"{{ static const int last[] = {{{last}}}; for (int b = 0; b < B; b++) val_loader.targets[b * T + T - 1] = last[b]; }}"
        change(os.path.join(self.folder, self.name), [(take, f"{take} {fix}"), *changes])

    def build_for_cpu(self):
        """How it was built."""
        clock = "clock_gettime(CLOCK_MONOTONIC, &start);"
        self.change_main([("int B = 4;", f"int B = {self.batch[0]};"), ("int T = 64;", f"int T = {self.batch[1]};"),
                          ("int val_num_batches = 5;", "int val_num_batches = 1;"), ("step <= 40;", ";"),
                          ("step % 10 == 0", "step == 0"), ("step > 0 && step % 20 == 0", "0"), (clock, WAIT + clock)])
        error = make(self.folder, "train_gpt2")
        if error:
            raise Refused(f"{self.name} cannot be compiled: {error}")
        return self.name

    def build_for_cuda(self):
        release = re.search(r"release (\d+)", first_line(["nvcc", "--version"]) or "")
        if not release:
            raise Refused("there is no nvcc to compile it with")
        clock = "cudaCheck(cudaEventRecord(start));"
        self.change_main([(clock, WAIT + clock)])
        if int(release[1]) >= 13:
            change(os.path.join(self.folder, "llmc", "cuda_utils.cuh"),
                   [("PreferredLocation, cudaCpuDeviceId)", "PreferredLocation, cudaMemLocation{cudaMemLocationTypeHost, 0})")])
        kinds = (first_line(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]) or "").split()
        options = ["NO_MULTI_GPU=1", "NO_USE_MPI=1", "PRECISION=" + ("BF16" if self.precision == "mixed" else "FP32")]
        options += ["GPU_COMPUTE_CAPABILITY=" + min(x.replace(".", "") for x in kinds)] if kinds else []
        headers = [os.path.join(place, "cudnn-frontend", "include") for place in (os.path.expanduser("~"), self.folder)]
        cudnn = "cuDNN's is not in full precision" if self.precision != "mixed" else \
            "there is no cudnn-frontend/include for cuDNN's" if not any(os.path.isdir(x) for x in headers) else \
            make(self.folder, "train_gpt2cu", *options, "USE_CUDNN=1", "NVCC_LDLIBS=-lnvrtc -lcuda")
        error = make(self.folder, "train_gpt2cu", *options) if cudnn else None
        if error:
            raise Refused(f"{self.name} cannot be compiled: {error}")
        return f"{self.name}, " + (f"attention of its own, since {cudnn}" if cudnn else "attention by cuDNN")

    def start(self):
        model = os.path.join(self.folder, "gpt2_124M.bin")
        data = [os.path.join("dev", "data", "tinyshakespeare", f"tiny_shakespeare_{part}.bin") for part in ("train", "val")]
        write_model(self.file, model, self.device != "cpu" and self.precision == "mixed")
        write_tokens(self.file, os.path.join(self.folder, data[0]), range(self.file.settings["batches"]))
        write_tokens(self.file, os.path.join(self.folder, data[1]), [0])
        command = ["./train_gpt2"]
        if self.device != "cpu":
            never, number = str(10**9), int(self.device.partition(":")[2] or 0)
            seen = os.environ.get("CUDA_VISIBLE_DEVICES")
            self.environment["CUDA_VISIBLE_DEVICES"] = seen.split(",")[number] if seen else str(number)
            command = ["./train_gpt2cu", "-i", data[0], "-j", data[1], "-e", "gpt2_124M.bin", "-b", str(self.batch[0]), "-t",
                       str(self.batch[1]), "-l", "1e-4", "-x", never, "-v", never, "-m", "1", "-s", never, "-h", "0", "-f",
                       str(int(self.precision != "full"))]
        self.process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = self.read()
        os.unlink(model)
        self.allocated = sum(float(x) for x in re.findall(r"allocat(?:ing|ed) (\d+) MiB for", "\n".join(lines))) * 2**20
        return self.number(lines, r"^val loss ([0-9.]+)$")

    def read(self):
        """Lines that it prints before it waits."""
        lines = []
        for line in self.process.stdout:
            line = line.decode(errors="replace").strip()
            if line == MARK:
                return lines
            lines += [line] if line else []
        raise Refused(f"{self.name} ended with status {self.process.wait()}: {lines[-1] if lines else 'no output'}")

    def number(self, lines, pattern):
        found = [x for x in (re.search(pattern, line) for line in lines) if x]
        if not found:
            raise Refused(f"what {self.name} prints is not understood: {lines[-1] if lines else 'nothing'}")
        return float(found[-1][1])

    def step(self):
        """Seconds of a step by its own clock."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return 1e-3 * self.number(self.read(), r"^step .*?([0-9.]+) ms\b")

    def peak(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))


# ---- requests ----

class Peer:
    WARM_STEPS = 3

    def __init__(self, threads, path, folder):
        self.threads, self.path, self.folder, self.program = threads, path, folder, None

    def open(self, source):
        """Builds and starts it; with the loss of the first batch, a target."""
        file = File(self.path)
        check_model(file)
        self.program = Program(file, source, self.folder, self.threads)
        how = self.program.build_for_cpu() if self.program.device == "cpu" else self.program.build_for_cuda()
        answer = {"version": version_of(source), "how": how, "loss": self.program.start()}
        file.file.close()
        return answer

    def train(self, first, steps):
        return {"seconds": " ".join(f"{self.program.step():.9f}" for _ in range(steps))}

    def burst(self, first, steps):
        for _ in range(self.WARM_STEPS):
            self.program.step()
        return {"seconds": sum(self.program.step() for _ in range(steps))}

    def memory(self):
        return {"base": 0, "peak": self.program.peak() if self.program.device == "cpu" else self.program.allocated}

    def end(self):
        process = self.program and getattr(self.program, "process", None)
        if process:
            process.stdin.close()
            process.wait()


def main():
    """python llmc.py THREADS FILE: requests and answers are lines of JSON, as those of torch_model.py."""
    with tempfile.TemporaryDirectory(prefix="adamod-llmc-") as folder:
        peer = Peer(int(sys.argv[1]), sys.argv[2], folder)
        print(json.dumps({"python": sys.executable}), flush=True)
        for line in sys.stdin:
            try:
                ask = json.loads(line)
                answer = getattr(peer, ask.pop("do"))(**ask)
            except Exception as error:
                text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
                answer = {"error": " ".join(text.split()).replace('"', "'").replace("\\", "/")[:300]}
            print(json.dumps(answer, ensure_ascii=False), flush=True)
        peer.end()


main()
