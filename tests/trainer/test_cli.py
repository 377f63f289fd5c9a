#!/usr/bin/env python3
"""The program: what every command prints and writes, and that every mistake gets one clear line and the right status.

ADAMOD is the program. Needs nothing but Python.

SPDX-License-Identifier: MIT
"""
import array
import ast
import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAM = os.environ.get("ADAMOD", os.path.join(ROOT, "build", "adamod"))
FAST = os.environ.get("ADAMOD_TEST_FAST", "0") not in ("", "0")


def rules_of_the_tree():
    """The names of all rules, from their files, in the order of the list."""
    found = []
    with open(os.path.join(ROOT, "lib", "rules", "list.inc.h")) as listed:
        for name in re.findall(r'^#include "(.*)"', listed.read(), flags=re.M):
            with open(os.path.join(ROOT, "lib", name)) as file:
                found += re.findall(r"^RULE\((\w+)\)", file.read(), flags=re.M)
    return found


RULES = rules_of_the_tree()


# ---- helpers ----

class Failed(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Failed(" ".join(str(x) for x in what))


def run(*arguments, env=None, cwd=None):
    """Exit status, standard output, standard error."""
    result = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
                            env={**os.environ, **(env or {})}, timeout=250)
    return result.returncode, result.stdout.decode(), result.stderr.decode()


def succeed(*arguments, **keywords):
    status, out, err = run(*arguments, **keywords)
    check(status == 0 and not err, arguments, "gave", status, err)
    return out


def refuse(status, message, *arguments, **keywords):
    """One line on standard error that begins with "adamod: " and has the message in it; nothing on standard output."""
    found, out, err = run(*arguments, **keywords)
    check(found == status, arguments, "gave", found, "not", status, err)
    check(not out, arguments, "printed", out)
    check(err.count("\n") == 1 and err.startswith("adamod: "), arguments, "said", err)
    check(message in err, arguments, "said", err, "without", repr(message))


def write_npy(path, shape, values, kind="f"):
    """kind: f is float32, d is float64."""
    header = "{'descr': '<%s', 'fortran_order': False, 'shape': %r, }" % ({"f": "f4", "d": "f8"}[kind], tuple(shape))
    header += " " * (63 - (len(header) + 10) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode())
        data = array.array(kind, values)
        if sys.byteorder == "big":
            data.byteswap()
        file.write(data.tobytes())


def read_npy(path):
    """(shape, kind, values)"""
    with open(path, "rb") as file:
        content = file.read()
    check(content[:8] == b"\x93NUMPY\1\0", path, "is no .npy file")
    end = 10 + int.from_bytes(content[8:10], "little")
    header = ast.literal_eval(content[10:end].decode())
    kind = {"<f4": "f", "<f8": "d"}[header["descr"]]
    values = array.array(kind, content[end:])
    if sys.byteorder == "big":
        values.byteswap()
    return header["shape"], kind, values


def numbers(n, seed=1):
    """Between -1 and 1, and every seventh is zero."""
    x, out = seed * 2654435761 % 2**32, []
    for i in range(n):
        x = (1664525 * x + 1013904223) % 2**32
        out.append(0.0 if i % 7 == 3 else x / 2**31 - 1)
    return out


class Folder:
    """A temporary folder with p.npy, 12 parameters, and g.npy, gradients for 20 steps."""

    def __init__(self, steps=20, n=12, kind="f"):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = self.temporary.name
        write_npy(self / "p.npy", [n], numbers(n), kind)
        write_npy(self / "g.npy", [steps, n], numbers(steps * n, 2), kind)

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    def arguments(self, *more, **files):
        files = {"params": "p.npy", "grads": "g.npy", "out": "t.npy", **files}
        return ["optim", "trace", *[x for k, v in files.items() for x in ("--" + k, self / v)], *more]

    def trace(self, *more, **files):
        succeed(*self.arguments(*more, **files))
        return read_npy(self / files.get("out", "t.npy"))

    def refuse(self, status, message, *more, **files):
        """Fails, and leaves nothing behind."""
        before = sorted(os.listdir(self.path))
        refuse(status, message, *self.arguments(*more, **files))
        check(sorted(os.listdir(self.path)) == before, "left", set(os.listdir(self.path)) - set(before))


# ---- the program as a whole ----

def test_help_and_version():
    check(re.fullmatch(r"adamod \d+\.\d+\.\d+\n", succeed("--version")), "the version")
    text = succeed("--help")
    check(text == succeed("help") == succeed("-h") == succeed("help", "help") == succeed("help", "--help"), "help differs")
    for command in COMMANDS:
        check(command in text, command, "is not in the help")
        page = succeed(*command.split(), "--help")
        check(page == succeed("help", *command.split()), command, "has two helps")
        check(page.startswith("usage: adamod " + command), page)
        check(all(len(line) <= 120 for line in page.splitlines()), command, "has help that is too wide")
    check("optim trace" in succeed("optim", "--help") and "optim trace" in succeed("help", "optim"), "help optim")
    check("--beta3" in succeed("optim", "trace", "--help") and "--momentum" in succeed(
        "optim", "trace", "--rule", "sgd", "--help"), "the help of a rule")


COMMANDS = ["info", "optim list", "optim trace", "optim bench", "text tokenize", "text detokenize", "text normalize",
            "text lowercase", "text bpe learn", "text bpe apply", "text bpe vocab", "text tokens learn",
            "text tokens encode", "text tokens decode", "text tokens pack", "text score", "text clean"]
TRAINING = ["train", "compare", "report", "evaluate", "translate", "generate", "export", "predict", "bench train",
            "bench comm",
            "bench decode", "data list", "data get", "data prepare", "reproduce"]


def flags_of(command):
    text = succeed(*command.split(), "--help").split("\nThe options of")[0]
    return re.findall(r"^  --([a-z-]+)", text, re.M)


def test_manual_and_completions_have_every_flag():
    with open(os.path.join(ROOT, "docs", "adamod.1")) as file:
        synopsis, manual = file.read().split(".Sh SYNOPSIS")[1].split(".Sh DESCRIPTION")
    sections = dict(part.split("\n", 1) for part in manual.split(".Ss adamod ")[1:])
    with open(os.path.join(ROOT, "completions", "_adamod")) as file:
        zsh = file.read()
    for command in COMMANDS + (TRAINING if has_trainer() else []):
        section, _, part = command.partition(" ")
        described = re.search(rf"^\.(It )?(Cm [a-z]+ , )*Cm {part}( |$)", sections.get(section, ""), re.M)
        check(command in sections or described, command, "is not described")
        manual = "".join(part for part in synopsis.split(".Nm\n") if part.startswith(f".Cm {command}\n"))
        begin = re.search(r"^        ([a-z' ]+ \| )?'?%s'?( \| [a-z' ]+)?\)" % command, zsh, re.M).start()
        completed = complete(*command.split(), "--")
        check(flags_of(command)[-1] == "help", command, "does not end with --help")
        for flag in flags_of(command):
            check(flag == "help" or re.search(rf"Fl -{flag}\b", manual), command, flag, "is not in the manual")
            check(f"--{flag}" in completed, command, flag, "is not completed by bash:", completed)
            check(f"--{flag}" in zsh[begin:zsh.index(";;", begin)], command, flag, "is not completed by zsh")


def complete(*words):
    """The words that bash offers for the last one."""
    script = 'source "$0"; COMP_WORDS=(adamod "${@:2}"); COMP_CWORD=$(($# - 1)); compopt() { :; }; ' \
        '_adamod "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; echo "${COMPREPLY[@]}"'
    result = subprocess.run(["bash", "-c", script, os.path.join(ROOT, "completions", "adamod.bash"), PROGRAM, *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(result.returncode == 0 and not result.stderr, words, result)
    return result.stdout.decode().split()


def test_bash_completes_values():
    check(complete("optim", "trace", "--rule", "adam") == [r for r in RULES if r.startswith("adam")], "rules")
    check(complete("evaluate", "--checkpoint", "") == ["averaged", "best", "last"], "checkpoints")
    check(complete("evaluate", "run", "--split", "v") == ["valid"], "splits")
    if has_trainer():
        check(complete("train", "--set", "data.to") == ["data.tokens="], "keys")
        check(complete("compare", "--vary", "optimizer.beta") == [f"optimizer.beta{i}=" for i in (1, 2, 3)], "options")


def test_fish_completes():
    if not shutil.which("fish"):
        return
    commands = COMMANDS + (TRAINING if has_trainer() else [])
    script = 'source $argv[1]; for line in $argv[2..-1]; echo "> $line"; complete -C $line; end'
    lines = [f"adamod {command} --" for command in commands] + ["adamod optim ", "adamod optim trace --rule ada"]
    file = os.path.join(ROOT, "completions", "adamod.fish")
    result = subprocess.run(["fish", "--no-config", "-c", script, file, *lines],
                            env={**os.environ, "PATH": f"{os.path.dirname(PROGRAM)}:{os.environ['PATH']}"},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(result.returncode == 0 and not result.stderr, result)
    parts = ("\n" + result.stdout.decode()).split("\n> ")[1:]
    offered = [re.findall(r"^(\S+)", part.split("\n", 1)[1], re.M) for part in parts]
    for command, words in zip(commands, offered):
        missing = {f"--{flag}" for flag in flags_of(command)} - set(words)
        check(words and not missing, command, missing, "is not completed by fish:", words)
    check(offered[-2:] == [["bench", "list", "trace"], sorted(r for r in RULES if r.startswith("ada"))], offered[-2:])


def test_wrong_commands():
    status, out, err = run()
    check(status == 2 and not out and "usage" in err, "no command")
    refuse(2, "unknown command 'inof'; did you mean 'info'?", "inof")
    refuse(2, "unknown command 'zzzzzz'", "zzzzzz")
    refuse(2, "; 'adamod --help' lists them", "x" * 150)  # near to nothing, long as it is
    refuse(2, "unknown command 'trac'; did you mean 'trace'?", "optim", "trac")
    refuse(2, "there are list, trace, bench", "optim", "zzzzzz")
    refuse(2, "needs a command", "optim")
    refuse(2, "unknown flag '--vresion'", "--vresion")
    refuse(2, "unexpected argument 'now'", "info", "now")
    refuse(2, "unknown flag '--jsno'; did you mean '--json'?", "info", "--jsno")
    refuse(2, "takes no value", "info", "--json=1")
    refuse(2, "unknown command", "help", "zzzzzz")
    refuse(2, "unexpected argument", "help", "info", "now")
    refuse(2, "two dashes", "info", "-j")


def test_full_disk_is_a_failure():
    if not os.path.exists("/dev/full"):
        return
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, "optim", "list"], stdout=full, stderr=subprocess.PIPE)
    check(result.returncode == 1 and b"cannot write" in result.stderr, result)


# ---- info, optim list ----

def test_info():
    found = json.loads(succeed("info", "--json"))
    check(found["instruction_set"] == found["instruction_sets"][0], found)
    check(found["instruction_sets"][-1] == "plain" and found["threads"] >= 1 and found["page_bytes"] > 0, found)
    text = succeed("info")
    for word in (found["version"], found["compiler"], found["instruction_set"] + " (in use)", "threads", "page size"):
        check(word in text, word, "is not in", text)
    found = json.loads(succeed("info", "--json", env={"ADAMOD_ISA": "plain"}))
    check(found["instruction_set"] == "plain", "ADAMOD_ISA")
    refuse(2, "ADAMOD_ISA is 'mmx'", "info", env={"ADAMOD_ISA": "mmx"})
    nowhere = {"ADAMOD_CUDA_LIBRARY": "/nowhere/libadamod_cuda.so"}
    found = json.loads(succeed("info", "--json", env=nowhere))
    check("/nowhere/libadamod_cuda.so" in found["cuda_off"] and found["cuda"] == [], found)
    check(found["cuda_training_off"] in (found["cuda_off"], "the trainer was not built"), found)
    check(re.search("^CUDA +off: .*/nowhere/libadamod_cuda.so", succeed("info", env=nowhere), re.M), "info")
    absent = {"ADAMOD_MPI_LIBRARY": "/nowhere/libmpi.so", "ADAMOD_NCCL_LIBRARY": "/nowhere/libnccl.so"}
    found = json.loads(succeed("info", "--json", env=absent))
    check("/nowhere/libmpi.so" in found["mpi_off"] and "/nowhere/libnccl.so" in found["nccl_off"], found)
    check(re.search("^MPI +off: no MPI library: .*/nowhere/libmpi.so", succeed("info", env=absent), re.M), "info")
    refuse(1, "/nowhere/libadamod_cuda.so", "optim", "bench", "--device", "cuda", env=nowhere)


def test_list():
    text = succeed("optim", "list")
    rules = json.loads(succeed("optim", "list", "--json"))["rules"]
    check([rule["name"] for rule in rules] == RULES, "the rules")
    tables = succeed("optim", "list", "--markdown")
    check(re.findall(r"^\| `(\w+)` \| \d{4} \|", tables, flags=re.M) == RULES, "the rules in Markdown")
    refuse(2, "--markdown goes with no rule", "optim", "list", "adam", "--markdown")
    refuse(2, "not with --json", "optim", "list", "--json", "--markdown")
    for rule in rules:
        check(rule["name"] in text and rule["summary"] in text, rule["name"], "is not in the table")
        line = next(line for line in text.splitlines() if line.split(" ")[0] == rule["name"])
        check(line.index(rule["summary"]) == text.index("summary"), "the columns are not straight:", line)
        check(json.loads(succeed("optim", "list", rule["name"], "--json")) == rule, rule["name"], "differs")
        table = succeed("optim", "list", rule["name"])
        for option in rule["options"]:
            check(re.search(r"^%s +\S+ +\S.*" % option["name"], table, re.M), option["name"], "is not in", table)
            line = next(line for line in table.splitlines() if line.split(" ")[0] == option["name"])
            check(line[table.splitlines()[3].index("meaning"):].startswith(option["help"]), "the columns are not straight:", line)
            if option["kind"] == "choice":
                check(option["default"] in option["choices"], option)
            else:
                check(float(option["min"]) <= float(option["default"]) <= float(option["max"]), option)
    check(re.search(r"^precondition_frequency +10 ", succeed("optim", "list", "soap"), re.M), "10 is not written as such")
    adamod = rules[0]
    check(adamod["states"] == ["exp_avg", "exp_avg_sq", "exp_avg_lr"] and adamod["bytes_per_parameter"] == 12, adamod)
    clip = next(option for option in adamod["options"] if option["name"] == "clip_value")
    check(clip["default"] == "inf" and clip["max"] == "inf", clip)
    adam, adamw = (json.loads(succeed("optim", "list", name, "--json")) for name in ("adam", "adamw"))
    differing = [b for a, b in zip(adam["options"], adamw["options"]) if a != b]
    check([(option["name"], option["default"]) for option in differing] == [("weight_decay", 0.01)], differing)
    check(adamw["name"] == "adamw" and f"\nadamw: {adamw['summary']}." in text, "adamw is not in the list", text)
    refuse(2, "did you mean 'adamod'?", "optim", "list", "adamond")
    refuse(2, "unexpected argument", "optim", "list", "adamod", "adam")


# ---- optim trace ----

def test_trace_is_the_formula():
    folder = Folder(kind="d")
    shape, kind, values = folder.trace("--rule", "sgd", "--lr", "0.25")
    check(shape == (20, 12) and kind == "d", shape, kind)
    p, g = list(read_npy(folder / "p.npy")[2]), read_npy(folder / "g.npy")[2]
    for step in range(20):
        p = [x - 0.25 * y for x, y in zip(p, g[12 * step:])]
        check(list(values[12 * step:12 * step + 12]) == p, "step", step)


def test_trace_flags():
    folder = Folder()
    plain = folder.trace()
    check(plain[:2] == ((20, 12), "f"), plain[:2])
    check(folder.trace("--rule", "adamod", "--lr", "1e-3", "--flavour", "paper") == plain, "the defaults")
    check(folder.trace("--rule=adamod", "--lr=1e-3") == plain, "flags with =")
    check(folder.trace("--weight_decay", "0.1") == folder.trace("--weight-decay", "0.1") != plain, "dashes")
    check(folder.trace("--flavour", "published") != plain, "the flavour")
    check(folder.trace("--threads", "1") == folder.trace("--threads", "3") == plain, "threads")
    check(folder.trace("--schedule", "lr=constant") == plain, "a constant schedule")
    both = folder.trace("--schedule", "lr=warmup(1e-7,10)", "--schedule", "beta3=linear(0.9,10)")
    check(both != folder.trace("--schedule", "lr=warmup(1e-7,10)") != plain, "schedules")
    halved = folder.trace("--schedule", "lr=multistep(1;0.5)")[2]
    check(halved[:12] == plain[2][:12] and halved[12:] != plain[2][12:], "multistep")


def test_trace_devices():
    folder = Folder()
    plain = folder.trace("--states")
    check(folder.trace("--device", "cpu", "--states") == plain, "the processor")
    folder.refuse(2, "device is 'tpu', expected cpu, cuda or cuda:N", "--device", "tpu")
    if not json.loads(succeed("info", "--json"))["cuda"]:
        folder.refuse(1, "optim trace: cuda: ", "--device", "cuda")
        return
    state = read_npy(folder / "t.exp_avg_lr.npy")
    check(folder.trace("--device", "cuda", "--states") == plain, "a GPU")
    check(read_npy(folder / "t.exp_avg_lr.npy") == state, "its states")
    check(folder.trace("--device", "cuda", "--type", "bf16") == folder.trace("--type", "bf16"), "in bf16")


def test_trace_every_rule_writes_its_states():
    counts = {"exp_avg_sq_row": 3, "exp_avg_sq_col": 4, "grad_queue": 120, ("adashift", "exp_avg_sq"): 1}
    counts.update({"d": 1, "d_max": 1, "d_numerator": 1, "GG_0": 9, "GG_1": 16, "Q_0": 9, "Q_1": 16})
    for rule in json.loads(succeed("optim", "list", "--json"))["rules"]:
        folder = Folder()
        shape, kind, _ = folder.trace("--rule", rule["name"], "--states", "--shape", "3,4")
        check(shape == (20, 12) and kind == "f", rule["name"], shape)
        files = {"p.npy", "g.npy", "t.npy"} | {f"t.{name}.npy" for name in rule["states"]}
        check(set(os.listdir(folder.path)) == files, rule["name"], os.listdir(folder.path))
        for name in rule["states"]:
            found = read_npy(folder / f"t.{name}.npy")[0]
            expected = counts.get((rule["name"], name), counts.get(name, 12))
            check(found == (20, expected), rule["name"], name, found)


def test_trace_optional_states():
    folder = Folder()
    folder.trace("--rule", "sgd", "--momentum", "0.9", "--states", out="a.b")
    check({"a.b", "a.b.momentum_buffer.npy"} < set(os.listdir(folder.path)), os.listdir(folder.path))
    folder.trace("--type", "bf16", "--states")
    master, param = read_npy(folder / "t.master.npy"), read_npy(folder / "t.npy")
    check(master[:2] == param[:2] == ((20, 12), "f") and master != param, master[:2])
    folder = Folder()
    folder.trace("--type", "bf16", "--low_precision", "stochastic", "--state_type", "bf16", "--states")
    check(not os.path.exists(folder / "t.master.npy"), "a master")


def bits(value):
    return array.array("I", array.array("f", [value]).tobytes())[0]


def test_trace_types():
    folder, lr = Folder(), ["--lr", "0.1"]
    f32 = folder.trace(*lr)
    check(folder.trace("--type", "f32", *lr) == f32, "f32")
    shape, kind, f64 = folder.trace("--type", "f64", *lr)
    check(kind == "d" and max(abs(a - b) for a, b in zip(f64, f32[2])) < 1e-6, "f64")
    shape, kind, bf16 = folder.trace("--type", "bf16", *lr)
    check(kind == "f" and max(abs(a - b) for a, b in zip(bf16, f32[2])) < 2**-8, "bf16")
    check(all(bits(x) % 2**16 == 0 for x in bf16), "bf16 has 16 bits")
    shape, kind, f16 = folder.trace("--type", "f16", *lr)
    check(kind == "f" and max(abs(a - b) for a, b in zip(f16, f32[2])) < 2**-11, "f16")
    check(all(bits(x) % 2**13 == 0 for x in f16), "f16 has 11 bits")
    random = folder.trace("--type", "bf16", "--low_precision", "stochastic", *lr)
    check(random == folder.trace("--type", "bf16", "--low_precision", "stochastic", *lr), "random twice")
    check(random != folder.trace("--type", "bf16", "--low_precision", "stochastic", "--seed", "1", *lr), "the seed")


def test_trace_rounds_parameters_to_nearest_even():
    """With lr 0 the output is what the parameters became."""
    cases = {"bf16": [(1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (1 + 2**-8 + 2**-20, 1 + 2**-7),
                      (3.392e38, 3.3895e38), (3.4e38, float("inf")), (1e-40, 2**-133), (1e39, float("inf"))],
             "f16": [(1 + 2**-11, 1.0), (1 + 3 * 2**-11, 1 + 2**-9), (65519.0, 65504.0), (65520.0, float("inf")),
                     (2**-25, 0.0), (2**-25 * 1.001, 2**-24), (3 * 2**-25, 2**-23), (-2**-14, -2**-14)]}
    for name, pairs in cases.items():
        folder = Folder()
        write_npy(folder / "p.npy", [len(pairs)], [x for x, _ in pairs], "d")
        write_npy(folder / "g.npy", [1, len(pairs)], [0] * len(pairs), "d")
        _, _, found = folder.trace("--rule", "sgd", "--lr", "0", "--type", name, "--low_precision", "stochastic")
        for (before, expected), after in zip(pairs, found):
            check(after == expected or abs(after - expected) < 1e-3 * abs(expected), name, before, "became", after)


def test_trace_shapes():
    folder = Folder()
    flat = folder.trace("--rule", "adafactor")
    matrix = folder.trace("--rule", "adafactor", "--shape", "3,4")
    check(flat != matrix and matrix[0] == (20, 12), "--shape")
    write_npy(folder / "p2.npy", [3, 4], numbers(12))
    write_npy(folder / "g2.npy", [20, 3, 4], numbers(240, 2))
    check(folder.trace("--rule", "adafactor", params="p2.npy", grads="g2.npy") == matrix, "shapes in the files")
    check(folder.trace("--rule", "adafactor", params="p2.npy") == matrix, "flat gradients")
    check(folder.trace("--rule", "adafactor", "--shape", "12", params="p2.npy", grads="g2.npy") == flat, "--shape 12")
    write_npy(folder / "p1.npy", [], [1.5])
    write_npy(folder / "g1.npy", [5], numbers(5))
    check(folder.trace(params="p1.npy", grads="g1.npy")[0] == (5, 1), "a scalar")
    write_npy(folder / "g0.npy", [0, 12], [])
    check(folder.trace(grads="g0.npy")[0] == (0, 12), "no steps")


def test_trace_continues_bit_for_bit():
    cases = [(rule, []) for rule in RULES]
    cases += [("adamod", ["--type", "bf16", "--low_precision", "stochastic", "--state_type", "bf16", "--seed", "7"]),
              ("adamod", ["--type", "f16"]), ("sgd", ["--momentum", "0.9"]), ("rmsprop", ["--centered", "1"]),
              ("adamod", ["--schedule", "lr=warmup(1e-7,80)", "--flavour", "published"]), ("adamod", ["--type", "f64"])]
    for rule, more in cases[::4 if FAST else 1]:  # test_state.c asks it of every rule
        folder, more = Folder(steps=100), ["--rule", rule, "--shape", "3,4", *more]
        gradients = read_npy(folder / "g.npy")[2]
        write_npy(folder / "g1.npy", [50, 12], gradients[:600])
        write_npy(folder / "g2.npy", [50, 12], gradients[600:])
        _, kind, whole = folder.trace(*more, "--save", folder / "whole")
        _, _, first = folder.trace(*more, "--save", folder / "half", grads="g1.npy", out="t1.npy")
        check(first == whole[:600], rule, more, "the first 50 steps differ")
        # A master is in the state; what the file of parameters then says is what it was rounded to.
        write_npy(folder / "p.npy", [12], first[-12:], kind)
        write_npy(folder / "g2.npy", [50, 12], gradients[600:], kind)
        more += ["--load", folder / "half", "--save", folder / "end"]
        _, _, second = folder.trace(*more, grads="g2.npy", out="t2.npy")
        check(second == whole[600:], rule, more, "the last 50 steps differ")
        with open(folder / "whole", "rb") as a, open(folder / "end", "rb") as b:
            check(a.read() == b.read(), rule, more, "the saved states differ")


def test_trace_usage_errors():
    folder = Folder()
    refuse(2, "--params is missing", "optim", "trace")
    refuse(2, "--grads is missing", "optim", "trace", "--params", "p")
    refuse(2, "--out is missing", "optim", "trace", "--params", "p", "--grads", "g")
    folder.refuse(2, "no rule 'adamd'; did you mean 'adamod'?", "--rule", "adamd")
    folder.refuse(2, "unknown flag '--betta3'; did you mean '--beta3'?", "--betta3", "0.9")
    folder.refuse(2, "unknown flag '--momentum'", "--rule", "adamod", "--momentum", "0.9")
    folder.refuse(2, "lr is -1", "--lr", "-1")
    folder.refuse(2, "beta1 is 1, expected 0 <= beta1 < 1", "--beta1", "1")
    folder.refuse(2, "lr is 'fast', expected a number", "--lr", "fast")
    folder.refuse(2, "flavour is 'papper'", "--flavour", "papper")
    folder.refuse(2, "needs a value", "--lr")
    folder.refuse(2, "takes no value", "--states=yes")
    folder.refuse(2, "unexpected argument 'now'", "now")
    folder.refuse(2, "unexpected argument '--lr'", "--", "--lr")
    folder.refuse(2, "expected f32, f64, bf16 or f16", "--type", "f8")
    folder.refuse(2, "--shape is '3,x'", "--shape", "3,x")
    folder.refuse(2, "--shape is '3,'", "--shape", "3,")
    folder.refuse(2, "--shape is [3, 5], expected a shape of 12 elements", "--shape", "3,5")
    folder.refuse(2, "expected OPTION=SCHEDULE", "--schedule", "warmup(1e-7,4000)")
    folder.refuse(2, "--schedule: ", "--schedule", "lr=warm(1)")
    folder.refuse(2, "--schedule: ", "--schedule", "beta9=constant")
    folder.refuse(2, "cannot have a schedule", "--schedule", "threads=constant")
    folder.refuse(2, "name the same file", "--save", folder / "t.npy")
    # The last --out counts. It would replace what is read, by whatever name.
    os.link(folder / "p.npy", folder / "again.npy")
    folder.refuse(2, "--out and --grads name the same file", "--out", folder / "g.npy")
    folder.refuse(2, "--out and --params name the same file", "--out", folder / "again.npy")
    folder.refuse(2, "--save and --params name the same file", "--save", folder / "again.npy")
    folder.refuse(2, "--out and --load name the same file", "--load", folder / "t.npy")
    folder.refuse(2, "--load is empty", "--load", "")


def test_trace_file_errors():
    folder = Folder()
    folder.refuse(1, "x.npy: ", params="x.npy")
    folder.refuse(1, "x.npy: ", grads="x.npy")
    write_npy(folder / "g5.npy", [10, 5], numbers(50))
    folder.refuse(1, "g5.npy: shape is [10, 5], expected [steps, 12] as " + folder / "p.npy" + " has 12 elements",
                  grads="g5.npy")
    write_npy(folder / "g1.npy", [12], numbers(12))
    folder.refuse(1, "g1.npy: shape is [12], expected [steps, 12]", grads="g1.npy")
    write_npy(folder / "p3.npy", [3, 4], numbers(12))
    folder.refuse(1, "expected [steps, 12] or [steps, 3, 4]", params="p3.npy", grads="g5.npy")
    write_npy(folder / "gd.npy", [20, 12], numbers(240), "d")
    folder.refuse(1, "gd.npy: dtype is float64, expected float32 as in " + folder / "p.npy", grads="gd.npy")
    with open(folder / "g.npy", "rb") as file:
        content = file.read()
    for name, wrong in {"ints": content.replace(b"<f4", b"<i4"), "short": content[:-1], "text": b"hello"}.items():
        with open(folder / name, "wb") as file:
            file.write(wrong)
        folder.refuse(1, name + ": ", grads=name)
    folder.refuse(1, "", grads=".")


def test_trace_output_errors():
    folder = Folder()
    folder.refuse(1, "t.npy", out="missing/t.npy")
    os.mkdir(folder / "taken.npy")
    folder.refuse(1, "taken.npy", out="taken.npy")
    os.mkdir(folder / "t.exp_avg_sq.npy")
    folder.refuse(1, "t.exp_avg_sq.npy", "--states")
    folder.refuse(1, "", "--save", folder / "missing/s")
    folder.refuse(1, "missing", "--load", folder / "missing")
    folder.refuse(1, "p.npy", "--load", folder / "p.npy")
    folder.trace("--save", folder / "s")
    os.remove(folder / "t.npy")
    folder.refuse(1, "", "--rule", "adam", "--load", folder / "s")
    folder.refuse(1, "", "--type", "f64", "--load", folder / "s")
    if os.getuid() != 0:
        os.chmod(folder.path, 0o555)
        folder.refuse(1, "t.npy")
        os.chmod(folder.path, 0o755)


def test_trace_nonfinite_gradients():
    folder = Folder()
    g = numbers(240, 2)
    g[5 * 12 + 3] = float("nan")
    write_npy(folder / "g.npy", [20, 12], g)
    folder.refuse(1, "g.npy: step 6: ", "--nonfinite", "error")
    _, _, skipped = folder.trace("--nonfinite", "skip")
    check(skipped[5 * 12:6 * 12] == skipped[4 * 12:5 * 12] and all(x == x for x in skipped), "skip")
    _, _, passed = folder.trace()
    check(passed[-9] != passed[-9] and passed[-1] == passed[-1], "pass")


def test_trace_replaces_a_file_only_when_done():
    folder = Folder()
    with open(folder / "t.npy", "w") as file:
        file.write("old")
    g = numbers(240, 2)
    g[-1] = float("inf")
    write_npy(folder / "bad.npy", [20, 12], g)
    folder.refuse(1, "step 20", "--nonfinite", "error", grads="bad.npy")
    with open(folder / "t.npy") as file:
        check(file.read() == "old", "the old file is gone")
    folder.trace()


# ---- optim bench ----

BENCH = ["optim", "bench", "--quick", "--sizes", "16K", "--cases", "flat"]


def bench(*arguments):
    status, out, _ = run(*arguments)
    check(status == 0, arguments, "gave", status)
    return out


def test_bench():
    sizes = [16384] if FAST else [16384, 32768]  # each takes a second and a half
    lines = [json.loads(line) for line in bench(*BENCH, "--sizes", ",".join(map(str, sizes)), "--no-torch", "--json",
                                                "--isa", "plain", "--rule", "sgd", "--threads", "1").splitlines()]
    check(lines[0]["isa"] == "plain" and lines[0]["bytes_per_element"] == 12 and lines[0]["torch"] is None, lines[0])
    check([x["elements"] for x in lines[1:]] == sizes, lines)
    check(all(x["ms"] > 0 and x["loop_ms"] > 0 and x["adamw_ms"] is None for x in lines[1:]), lines)
    check(all(x["steps"] == x["rounds"] * x["sets"] for x in lines[1:]), lines)


def test_bench_of_soap_counts_whole_periods_and_ends():
    """One step of ten changes the bases. Cases that would take minutes are found with shorter sides, and left out."""
    text = bench("optim", "bench", "--quick", "--no-torch", "--rule", "soap", "--threads", "1", "--cases", "small")
    found = re.search(r"^layer 64 wide +f32 +49152 +[\d.]+ +[\d.]+ +[\d.]+ +- +-  (\d+) steps$", text, re.M)
    # Three rounds of ten; fewer on a machine so busy that they take too long.
    check(found and int(found[1]) >= 10 and int(found[1]) % 10 == 0 and "share of the loop" not in text, text)
    check(re.search(r"^adamod \S+: rule soap, \d+ bytes an element in f32, \S+, 1 thread$", text, re.M), text)
    if FAST:
        return
    start = time.monotonic()
    status, out, err = run("optim", "bench", "--quick", "--no-torch", "--rule", "soap", "--cases", "resnet34")
    check(status == 0 and re.search(r"ResNet-34, 110 arrays, 21282122 is left out: its first step would take about \d+ s", err),
          status, err)
    check("ResNet" not in out and time.monotonic() - start < 60, out)


def test_bench_without_a_python():
    """Another is looked for; where there is none, the bench says so and goes on."""
    if FAST:
        return  # torch takes the time
    lines = [json.loads(line) for line in bench(*BENCH, "--threads", "1", "--json", "--python", "/nonexistent")
             .splitlines()]
    check("no_torch" in lines[0] or lines[0]["torch"], lines[0])
    check(all((row["adamw_ms"] is None) == (lines[0]["torch"] is None) for row in lines[1:2]), lines)


def test_bench_errors():
    refuse(2, "--sizes is '1X'", "optim", "bench", "--sizes", "1X")
    refuse(2, "--sizes is '0'", "optim", "bench", "--sizes", "0")
    refuse(2, "--cases is 'flat,round'", "optim", "bench", "--cases", "flat,round")
    refuse(2, "--threads is 'x'", "optim", "bench", "--threads", "x")
    refuse(2, "device is 'gpu', expected cpu, cuda or cuda:N", "optim", "bench", "--device", "gpu")
    refuse(2, "no rule 'adm'", "optim", "bench", "--rule", "adm")
    refuse(2, "--isa is 'mmx', expected one this processor has: ", "optim", "bench", "--isa", "mmx")
    refuse(2, "did you mean '--quick'?", "optim", "bench", "--quik")
    refuse(2, "unexpected argument", "optim", "bench", "now")


# ---- bench decode ----

def test_bench_decode_translates_without_data_and_tells_what_it_cannot():
    if not has_trainer():
        return
    status, text, err = run("bench", "decode", "--shape", "tiny", "--sentences", "12", "--rounds", "1", "--threads", "2",
                            "--no-peer")
    check(status == 0 and (not err or "load average" in err), status, err)
    found = re.search(r"^12 sentences of ([0-9.]+) tokens, beam 5, translations of ([0-9.]+) tokens$", text, re.M)
    check(found and 10 < float(found[1]) < 60 and 5 < float(found[2]) < 60, text)
    check(re.search(r"^adamod +[0-9.]+ s +[0-9.]+ sentences/s", text, re.M), text)
    check("CTranslate2" not in text, text)
    refuse(2, "bench decode: --shape is 'huge', expected tiny, small or base", "bench", "decode", "--shape", "huge")
    refuse(2, "bench decode: --precision is 'f8', expected full, tf32 or mixed", "bench", "decode", "--precision", "f8")
    refuse(2, "--beam is '65', expected a whole number from 1 to 64", "bench", "decode", "--beam", "65")
    refuse(2, "unexpected argument 'x'", "bench", "decode", "x")
    refuse(2, "bench decode: device is 'tpu', expected cpu", "bench", "decode", "--shape", "tiny", "--device", "tpu")


# ---- bench train ----

TINY = """
name: tiny
data: {task: numbers, train: 64, valid: 10, test: 10, sentences: 8}
model: {layers: 1, d: 16, ffn: 24, heads: 2}
optimizer: {rule: adamod}
train: {threads: 1}
"""
# Nothing is tried with torch's environment, which would take it longer to start.
CALM = {"OMP_WAIT_POLICY": "passive", "OPENBLAS_CORETYPE": ""}


PICTURES = """
name: pictures
data: {task: images, set: shapes, train: 20, valid: 1, test: 0, batch: 8}
model: {kind: densenet, blocks: "1,2", growth: 4, bottleneck: 2, stem: 6}
optimizer: {rule: adamod}
train: {threads: 1}
"""


class Tiny:
    """A recipe in a folder."""

    def __init__(self, recipe=TINY):
        self.folder = tempfile.TemporaryDirectory()
        with open(self / "tiny.yaml", "w") as file:
            file.write(recipe)
        self.command = ["bench", "train", self / "tiny.yaml", "--steps", "4", "--device", "cpu"]

    def __truediv__(self, name):
        return os.path.join(self.folder.name, name)

    def results(self, *more):
        """The output, and the content of the JSON file."""
        status, out, err = run(*self.command, "--json", self / "out.json", *more, env=CALM)
        check(status == 0, more, "gave", status, err)
        with open(self / "out.json") as file:
            return out, json.load(file)

    def fake_torch(self, loss, then, version="2.99"):
        """A program in place of Python that says it has this loss, then does that."""
        answer = {"version": version, "optimizer": "fused", "attention": "bmm", "rows": 1000, "loss": loss}
        return self.program("python", f"echo '{json.dumps(answer)}'\n{then}\n")

    def program(self, name, text):
        with open(self / name, "w") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(self / name, 0o755)
        return self / name


def has_trainer():
    return run("help", "bench", "train")[0] == 0


def on_terminal(columns, *command):
    """A command's output on a terminal of `columns` columns, cut where it goes back to the beginning of its line."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    process = subprocess.Popen([PROGRAM, *command], env={**os.environ, **CALM}, stdin=subprocess.DEVNULL, stdout=terminal,
                               stderr=terminal)
    os.close(terminal)
    drawn = b""
    try:
        while part := os.read(main, 1 << 16):
            drawn += part
    except OSError:  # the end of a terminal
        pass
    os.close(main)
    return process.wait(), drawn.decode().split("\r\033[K")


def test_progress_fits_the_terminal():
    """A line that wraps cannot be drawn over. Letters of two bytes take one column, and are not cut in half."""
    if not has_trainer():
        return
    folder = Tiny()
    for columns in (30,) if FAST else (20, 80, 200):
        # the widest line shows a validation loss only if training goes on for a tenth of a second after it
        every = 5 if FAST else 1000 if columns == 200 else 50
        steps = (2 if columns == 200 else 4) * every
        status, drawn = on_terminal(columns, "compare", folder / "tiny.yaml", "--set", f"train.steps={steps}",
                                    "--no-report", "--device", "cpu", "--variant", "äöüäöüäöüäöüä: train.seed=1", "--set",
                                    f"train.evaluate_every={every}", "--out", folder / f"at-{columns}")
        live, kept = [line for line in drawn if "\n" not in line], [line for line in drawn if "\n" in line]
        check(status == 0 and any(f"step {steps}/{steps}" in line for line in live), columns, status, drawn)
        check(all(len(line) < columns for line in live), "wraps at", columns, live)
        check(any("tokens/s" in line and "validation loss" in line for line in live) == (columns == 200), columns, live)
        check(any("batch loss" in line for line in live) == (columns > 20), columns, live)
        check(any(re.match(rf"\[1/1\] (äöü)+ä  step {every}/{steps} .* validation loss [0-9.]+ \(best", line) for line in kept), kept)
        check(any(line.startswith("run 1 of 1, äöü") for line in kept), kept)


def test_runs_at_the_same_time_share_a_line_of_the_terminal():
    """One live line for all of them; evaluations and results stay, each on a line of its own."""
    if not has_trainer():
        return
    folder = Tiny()
    if FAST:
        return  # they must take long enough to be drawn
    for columns in 80, 200:
        status, drawn = on_terminal(columns, "compare", folder / "tiny.yaml", "--set", "train.steps=300", "--no-report",
                                    "--device", "cpu", "--vary", "train.seed=1,2,3", "--jobs", "2", "--set",
                                    "train.evaluate_every=150", "--out", folder / f"at-{columns}")
        live = [line for line in drawn if "\n" not in line]
        check(status == 0 and drawn[0].startswith("3 runs, 2 at a time; in "), status, drawn)
        check(all(len(line) < columns for line in live), "wraps at", columns, live)
        wide = r"seed=1: step \d+/300, (batch|validation) loss [0-9.]+  \[2\] seed=2: step \d+/300, "
        both = r"^0 of 3 runs over, [0-9smh]+ left  \[1\] " + (wide if columns == 200 else r"(seed=1: )?\d+ %, loss")
        check(any(re.match(both, line) for line in live), columns, live)
        lines = "".join(re.sub(r"[^\n]*\r\033\[K", "", "\r\033[K".join(drawn)).split("\r")).split("\n")
        for seed in 1, 2, 3:
            check(sum(line.startswith(f"[{seed}/3] seed={seed}  step ") and "validation loss" in line
                      for line in lines) == 2, lines)
            check(sum(line.startswith(f"seed={seed}: 300 updates in ") for line in lines) == 1, lines)


def test_runs_that_are_stopped_are_not_over():
    if not has_trainer():
        return
    folder = Tiny()
    status, drawn = on_terminal(80, "compare", folder / "tiny.yaml", "--set", "train.steps=1000000", "--no-report",
                                "--device", "cpu", "--vary", "train.seed=1,2,3,4", "--jobs", "3", "--minutes", "0.05",
                                "--out", folder / "stopped")
    check(status == 0 and any("the time is up: 0 of 4 runs are over" in line for line in drawn), status, drawn)
    check(any("0 of 4 runs over" in line for line in drawn), drawn)
    check(not any(re.search("[1-4] of 4 runs over", line) for line in drawn), drawn)


def test_bench_train():
    if not has_trainer():
        return
    tiny = Tiny()
    out, x = tiny.results("--no-torch")
    check("torch is not measured: --no-torch" in out, out)
    check(re.search(r"^adamod +[\d.]+ +[\d.]+ - +[\d.]+ +\d+ +\d+ +[\d.]+$", out, re.M), out)
    check(re.search(r"(met   |MISSED)  share of the matrix library's own speed: at least 0.6, found", out), out)
    check(x["steps"] == 4 and x["threads"] == 1 and x["rule"] == "adamod" and x["torch"] is None, x)
    check(x["step_ms"]["low"] <= x["step_ms"]["median"] <= x["step_ms"]["high"], x)
    check(all(x[part]["low"] > 0 for part in ("forward_ms", "backward_ms", "optimizer_ms", "products_ms")), x)
    check(len(x["losses"]) == 10 and all(0 < loss < 10 for loss in x["losses"]), x)
    check(0 < x["state_bytes"] and 0 < x["value_bytes"] < x["value_bytes_without_reuse"], x)
    again = tiny.results("--no-torch", "--threads", "2")[1]
    check(again["threads"] == 2 and again["losses"] == x["losses"], "threads change the losses:", again)


def test_bench_train_counts_operations():
    """Every product by hand: 6 x rows x out x in for forward, and twice that for backward."""
    if not has_trainer():
        return
    x = Tiny().results("--no-torch", "--set", "model.layers=2")[1]
    source, target, d, ffn = x["source_tokens"], x["target_tokens"], 16, 24
    block = 3 * d * d + d * d + 2 * d * ffn
    cross = target * 2 * d * d + source * 2 * d * d
    vocabulary = x["parameters"] - 2 * (3 * 4 * (d * d + d) + 2 * (2 * d * ffn + ffn + d) + 5 * 2 * d)
    check(vocabulary % d == 0, "parameters", x)
    rest = x["flops"] / 6 - 2 * ((source + target) * block + cross)
    logits = rest / (target * d)  # the size of the target's vocabulary
    check(abs(logits - round(logits)) < 1e-6 and 10 < logits < vocabulary / d / 2, "operations", logits, x)


def test_bench_train_with_torch():
    """If there is one: the same loss, and the same steps."""
    if not has_trainer():
        return
    out, x = Tiny().results("--python", "/nonexistent")
    check("no_torch" in x or x["torch"]["relative_difference"] < 1e-6, x)
    check(x["torch"] is None or (x["torch"]["speedup"] > 0 and "speed over torch " + x["torch"]["version"] in out), x, out)


# Answers every request as torch would that takes 10 ms a step.
FAKE_STEPS = """while read -r request; do
    echo '{"seconds": "0.01 0.01 0.01 0.01 0.01 0.01 0.01 0.01 0.01 0.01", "base": 1e6, "peak": 2e6, "reserved": 0}'
done"""


def test_bench_train_names_the_torch_it_races():
    """In the line that claims to be faster. One that is old, or not of the Python that was asked, is told of."""
    if not has_trainer():
        return
    tiny = Tiny()
    loss = tiny.results("--no-torch")[1]["check_loss"]
    for version, old in ("2.99", False), ("10.1", False), ("1.13.1+cpu", True):
        fake = tiny.fake_torch(loss, FAKE_STEPS, version)
        status, out, err = run(*tiny.command, "--python", fake, env=CALM)
        check(status == 0 and f"torch {version} ({fake}): bmm attention, " in out, status, out, err)
        of = re.escape(version + (", which is old" if old else ""))
        check(re.search(rf"^(met   |MISSED)  speed over torch {of}: at least 1.5, found [0-9.]+$", out, re.M), out)
        check(re.search(rf"^(met   |MISSED)  memory over that of torch {of}: below 1, found [0-9.]+$", out, re.M), out)
        check(("is from before 2.0" in err) == old and "instead" not in err, err)
    none = tiny.program("none", """echo '{"error": "no torch here"}'\n""")
    tiny.program("python3", f"exec {fake}\n")
    status, out, err = run(*tiny.command, "--python", none,
                           env={**CALM, "PATH": tiny.folder.name + ":" + os.environ["PATH"]})
    check(f"adamod: bench train: {none}: no torch here; torch 1.13.1+cpu of python3 is measured instead\n" in err, err)


def test_bench_train_says_what_it_does():
    """On a terminal a live line; elsewhere a line for each part that takes longer than a moment."""
    if FAST or not has_trainer():
        return
    tiny = Tiny()
    fake = tiny.fake_torch(tiny.results("--no-torch")[1]["check_loss"], FAKE_STEPS)
    slow = tiny.program("slow", f"sleep 1.5\nexec {fake}\n")
    status, out, err = run(*tiny.command, "--python", slow, env=CALM)
    check(status == 0 and "adamod: bench train: starting torch\n" in err, status, err)
    status, drawn = on_terminal(80, *tiny.command, "--python", slow)
    check(status == 0 and any(re.match(r"bench train: starting torch, [12]s$", line) for line in drawn), drawn)
    check(all("\n" not in line for line in drawn[:-1]) and drawn[-1].startswith("adamod"), drawn)


def test_bench_train_of_images_with_torch():
    """Has the loss of a training step, with the norms of the batch. Batches of 8, 8 and 4 pictures."""
    if not has_trainer():
        return
    out, x = Tiny(PICTURES).results(*(["--no-torch"] if FAST else ["--python", "/nonexistent"]))
    check(re.search(r"^a step: \d images; 1 thread", out, re.M) and " images/s" in out, out)
    check("tok" not in out and "padding" not in out and "target_tokens" not in x, out, x)
    check("images_per_second" in x and 4 <= x["images"] <= 8, x)
    torch = x["torch"]
    if torch is None:
        check("torch is not measured" in out, out)
        return
    check(torch["relative_difference"] < 1e-6 and torch["layout"] in ("channels-last", "contiguous"), x)
    check(torch["step_ms"]["low"] > 0 and torch["resident_peak"] > torch["resident_base"] > 0, x)
    check(re.search(r"speed over torch [^:]+: at least 1.2", out) and "matrix library's own speed: at" not in out, out)
    check("loss of the first batch, nothing random" in out and torch["layout"] + ", " in out, out)
    check("torch's convolutions alone: " in out and torch["convolutions_ms"] > 0 < torch["convolutions_share"], x, out)


def test_bench_train_counts_convolutions():
    """By hand, as above: pixels x kernel x in x out."""
    if not has_trainer():
        return
    tiny = Tiny(PICTURES)
    x = tiny.results("--no-torch", "--steps", "3", "--dump", tiny / "dump")[1]
    layer = lambda pixels, n: pixels * (n * 8 + 9 * 8 * 4)
    image = 1024 * 27 * 6 + layer(1024, 6) + 1024 * 10 * 5 + layer(256, 5) + layer(256, 9) + 13 * 10
    check(abs(x["flops"] / 6 / x["images"] - image) < 1e-6 * image, "operations", x["flops"] / 6 / x["images"], image)
    with open(tiny / "dump", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    check([header[f"batch/{i}/images"]["shape"] for i in (0, 2)] == [[8, 32, 32, 3], [4, 32, 32, 3]], header)
    check(header["gradient/blocks.0.0.conv2.weight"]["shape"] == [4, 3, 3, 8], header)


def test_bench_train_without_agreement():
    if not has_trainer():
        return
    tiny = Tiny()
    loss = tiny.results("--no-torch")[1]["check_loss"]
    fake = tiny.fake_torch(1.001 * loss, "cat >/dev/null")
    status, out, err = run(*tiny.command, "--python", fake, env=CALM)
    check(status == 1 and not out and "expected the same within 1e-4" in err.splitlines()[-1], status, out, err)
    fake = tiny.fake_torch(loss, "exit 0")
    status, out, err = run(*tiny.command, "--python", fake, env=CALM)
    check(status == 1 and not out and "torch in " + fake + ": it " in err, status, out, err)


def test_bench_train_shapes():
    """Text of the whole vocabulary, sentences of 32 tokens, and nothing left behind."""
    if not has_trainer():
        return
    tiny = Tiny()
    os.mkdir(tiny / "tmp")
    small = ["--set", "model.d=16", "--set", "model.ffn=16", "--set", "model.layers=1", "--set", "data.max_tokens=64"]
    for shape, words in (("small", 10000), ("base", 37000)):
        status, out, err = run("bench", "train", "--shape", shape, *small, "--no-torch", "--steps", "1", "--device", "cpu",
                               "--threads", "1", "--json", tiny / "out.json", env={"TMPDIR": tiny / "tmp"})
        check(status == 0 and f"transformer-{shape}" in out, shape, status, out, err)
        with open(tiny / "out.json") as file:
            x = json.load(file)
        check([x[key] for key in ("sentences", "source_tokens", "target_tokens")] == [2, 64, 64], x)
        check(0 < x["parameters"] - 2 * 16 * words < 16 * 16 * 20, "two embeddings of", words, x)
    check(os.listdir(tiny / "tmp") == [], "left behind:", os.listdir(tiny / "tmp"))


def test_bench_train_table_of_shapes():
    """Each of several shapes has a row and a place in the JSON list; one that fails does not end the others."""
    if not has_trainer():
        return
    tiny = Tiny()
    os.mkdir(tiny / "tmp")
    command = ["bench", "train", "--set", "model.d=16", "--set", "model.ffn=16", "--set", "model.layers=1", "--set",
               "data.max_tokens=64", "--no-torch", "--steps", "1", "--device", "cpu", "--threads", "1"]
    number = r" +([\d.]+)"
    for shapes, failing in ((["small", "base"], []), (["lstm", "small"], ["lstm"])):
        status, out, err = run(*command, "--shape", ",".join(shapes), "--json", tiny / "out.json",
                               env={**CALM, "TMPDIR": tiny / "tmp"})
        check(status == (2 if failing else 0), status, out, err)
        check(out.count("ms/step") == 1 and out.count("torch is not measured: --no-torch") == 1, out)
        with open(tiny / "out.json") as file:
            results = {x["recipe"]: x for x in json.load(file)}
        check(list(results) == [f"transformer-{x}" for x in shapes if x not in failing], list(results))
        for shape in shapes:
            row = re.search(rf"^{shape} +(failed)$|^{shape}{number} +- +-{number}{number} +-  -$", out, re.M)
            check(row and bool(row[1]) == (shape in failing), shape, out)
            if not row[1]:
                x = results[f"transformer-{shape}"]
                check(row[2] == f"{x['step_ms']['median']:.2f}" and row[3] == f"{x['products_ms']['median']:.2f}", out, x)
        check(("model.d is given, but model.kind lstm has no such key" in err) == bool(failing), err)
    check(os.listdir(tiny / "tmp") == [], "left behind:", os.listdir(tiny / "tmp"))
    refuse(2, "--shape names small twice", *command, "--shape", "small,base,small")
    refuse(2, "--shape is 'small,', expected small, base", *command, "--shape", "small,")
    refuse(2, "--dump is for one shape, and there are ", *command, "--all", "--dump", tiny / "dump")
    refuse(2, "expected a recipe or --shape, not both", *command, "--all", tiny / "tiny.yaml")


def test_bench_train_shapes_of_images():
    """All layers of the paper's networks, with fewer channels, and their parameters by hand."""
    if not has_trainer():
        return
    tiny = Tiny()
    os.mkdir(tiny / "tmp")
    resnet = 27 * 2 + 32 * 9 * 2 * 2 + 33 * 4 + 3 * (2 * 2 + 4) + 30
    densenet, n = 27 * 64, 64
    for i, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            densenet, n = densenet + 2 * n + n * 8 + 16 + 9 * 8 * 2, n + 2
        if i < 3:
            densenet, n = densenet + 2 * n + n * (n // 2), n // 2
    densenet += 2 * n + n * 10 + 10
    for shape, small, parameters in (("resnet34", "model.widths=2,2,2,2", resnet),
                                     ("densenet121", "model.growth=2", densenet)):
        status, out, err = run("bench", "train", "--shape", shape, "--set", small, "--set", "data.batch=4",
                               "--set", "data.train=40", "--no-torch", "--steps", "1", "--device", "cpu",
                               "--threads", "1", "--json", tiny / "out.json", env={"TMPDIR": tiny / "tmp"})
        check(status == 0 and shape in out, shape, status, out, err)
        with open(tiny / "out.json") as file:
            x = json.load(file)
        check(x["images"] == 4 and x["recipe"] == shape and x["parameters"] == parameters, parameters, x)
    check(os.listdir(tiny / "tmp") == [], "left behind:", os.listdir(tiny / "tmp"))


def test_bench_train_shape_of_language():
    """The paper's LSTM, of fewer units: parameters and operations by hand; where there is torch, the same loss."""
    if not has_trainer():
        return
    tiny = Tiny()
    os.mkdir(tiny / "tmp")
    words, n, h = 50, 6, 10
    small = [x for key in (f"data.words={words}", f"model.embedding={n}", f"model.hidden={h}") for x in ("--set", key)]
    torch = ["--no-torch"] if FAST else ["--python", "/nonexistent"]  # which takes the time
    status, out, err = run("bench", "train", "--shape", "lstm", *small, "--steps", "1", "--device", "cpu", "--threads", "1",
                           *torch, "--json", tiny / "out.json", env={**CALM, "TMPDIR": tiny / "tmp"})
    check(status == 0 and "a step: 1400 tokens" in out and "3 layers, embedding 6, hidden 10" in out, status, out, err)
    with open(tiny / "out.json") as file:
        x = json.load(file)
    weights = words * n + 4 * h * (n + h) + 4 * h * (h + h) + 4 * n * (h + n)
    check(x["recipe"] == "lstm" and x["parameters"] == weights + 2 * 4 * (h + h + n) + words, x)
    check(abs(x["flops"] - 6 * 1400 * weights) < 1, "operations", x["flops"], 6 * 1400 * weights)
    check(x["torch"] is None or (x["torch"]["relative_difference"] < 1e-6 and x["torch"]["step_ms"]["low"] > 0), x)
    check(x["torch"] is None or re.search(r"speed over torch [^:]+: at least 1.5", out), out)
    check(os.listdir(tiny / "tmp") == [], "left behind:", os.listdir(tiny / "tmp"))


# The parts of llm.c's train_gpt2.c that bench/llmc.py needs: the lines that it changes, and the output.
LLMC = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef struct { int *targets; } loader;
static void dataloader_next_batch(loader *x) { x->targets = calloc(1024, sizeof(int)); }
static int word(FILE *file, int bytes) { int x = 0; return fread(&x, (size_t)bytes, 1, file) == 1 ? x : -1; }
static void describe(const char *path, int numbers, int bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) exit(3);
    for (int i = 0; i < numbers; i++) printf(i < 8 ? "%d " : "", word(file, 4));
    long n = 0;
    while (word(file, bytes) >= 0 || !feof(file)) n++;
    printf("and %ld\n", n);
}
int main() {
    int B = 4; // windows
    int T = 64; // tokens
    int val_num_batches = 5;
    loader val_loader;
    struct timespec start;
    describe("gpt2_124M.bin", 256, 4);
    describe("dev/data/tinyshakespeare/tiny_shakespeare_train.bin", 256, 2);
    for (int step = 0; step <= 40; step++) {
        if (step % 10 == 0) {
            for (int i = 0; i < val_num_batches; i++) dataloader_next_batch(&val_loader);
            printf("val loss %s\n", "@LOSS@");
        }
        if (step > 0 && step % 20 == 0) return 4;
        clock_gettime(CLOCK_MONOTONIC, &start);
        FILE *sizes = fopen("@SIZES@", "w");
        fprintf(sizes, "%d %d %d %s", B, T, val_loader.targets[2 * T - 1], getenv("OMP_NUM_THREADS"));
        fclose(sizes);
        @STEP@
    }
}
"""
SMALL_GPT = """
name: small
data: {task: language, set: generated, words: 30, branches: 4, order: 1, train: 321, valid: 20, test: 0, batch: 4, length: 8}
model: {kind: gpt, layers: 1, d: 8, heads: 2}
optimizer: {rule: adamod}
train: {threads: 1}
"""


def test_bench_train_with_llmc():
    """A program that prints as llm.c's does: its files, its batches, its times, and what may be wrong with it."""
    if not has_trainer() or not all(shutil.which(name) for name in ("make", "cc")):
        return
    tiny = Tiny(SMALL_GPT)
    for name in "tmp", "llm.c":
        os.mkdir(tiny / name)
    if shutil.which("git"):  # llm.c's files lie in another repository, whose commit is not theirs
        git = ["git", "-C", tiny.folder.name, "-c", "user.name=a", "-c", "user.email=a@example.org"]
        for command in ["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a commit"]:
            subprocess.run([*git, *command], check=True)
    plain = tiny.results("--no-torch", "--dump", tiny / "dump")[1]
    check("llmc" not in plain and "no_llmc" not in plain, plain)

    def bench(text=LLMC, step=r'printf("step %d: train loss 1.5 (took %f ms)\n", step, 5000.0);', loss=plain["check_loss"], more=()):
        with open(tiny / "llm.c/train_gpt2.c", "w") as file:
            file.write(text.replace("@STEP@", step).replace("@LOSS@", f"{loss:f}").replace("@SIZES@", tiny / "sizes"))
        status, out, err = run(*tiny.command, "--no-torch", "--llmc", tiny / "llm.c", "--json", tiny / "out.json", *more,
                               env={**CALM, "TMPDIR": tiny / "tmp"})
        check(os.listdir(tiny / "tmp") == [] and os.listdir(tiny / "llm.c") == ["train_gpt2.c"], "left behind")
        return status, out, err

    status, out, err = bench()
    check(status == 0 and re.search(r"^llm.c: train_gpt2.c; loss of the first batch [\d.]+, relative", out, re.M), status, out, err)
    check(re.search(r"^llm.c +5000.00 +5000.00 - +5000.00 +6 +[\d.]+$", out, re.M), out)
    check("\na step of llm.c takes " in out and "torch is not measured: --no-torch" in out, out)
    with open(tiny / "out.json") as file:
        x = json.load(file)["llmc"]
    check(x["step_ms"]["median"] == 5000 and x["speedup"] > 1 and x["relative_difference"] < 1e-5, x)
    with open(tiny / "dump", "rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        file.seek(head["batch/0/targets"]["data_offsets"][0] + 4 * 15, 1)
        second = int.from_bytes(file.read(4), "little")  # the last target of the second window
    with open(tiny / "sizes") as file:
        check(file.read() == f"4 8 {second} 1", "sizes and threads")

    def not_measured(why, **how):
        status, out, err = bench(**how)
        check(status == 0 and f"\nllm.c is not measured: {why}" in out and "\nadamod " in out, why, status, out, err)
        with open(tiny / "out.json") as file:
            check(json.load(file)["no_llmc"].startswith(why), why)

    not_measured("train_gpt2.c cannot be compiled: train_gpt2.c:", step="undeclared;")
    not_measured("train_gpt2.c has 'int B = 4;' 0 times, expected once", text=LLMC.replace("B = 4", "B = 8"))
    not_measured("train_gpt2.c ended with status 3: 20240326 3 8 30 1 2 8 128 and 1976", text=LLMC.replace("_train.bin", "_test.bin"))
    not_measured("its model is GPT-2, with gelu, and", more=["--set", "model.activation=swiglu"])
    not_measured("its model is GPT-2, with learned positions, and", more=["--set", "model.positions=rotary"])
    not_measured(f"no train_gpt2.c in {tiny.folder.name}", more=["--llmc", tiny.folder.name])
    status, out, err = bench(loss=2 * plain["check_loss"])
    check(status == 1 and not out and "in llm.c, expected the same within 1e-4" in err.splitlines()[-1], status, out, err)
    status, out, err = bench(step=r'printf("iteration %d\n", step);')
    check(status == 1 and "what train_gpt2.c prints is not understood: iteration 0" in err.splitlines()[-1], status, out, err)
    other = Tiny()
    status, out, err = run(*other.command, "--no-torch", "--llmc", tiny / "llm.c")
    check(status == 0 and "llm.c is not measured: it trains GPT-2 and no other model" in out, status, out, err)


def test_bench_train_on_a_gpu():
    """If there is one; else it says why not."""
    if not has_trainer():
        return
    tiny = Tiny()
    status, out, err = run(*tiny.command, "--device", "cuda", "--no-torch", "--verbose", "--json", tiny / "out.json",
                           "--set", "model.d=64", "--set", "model.ffn=128")
    if status:
        check(status == 1 and "cuda: " in err and not out, status, out, err)
        return
    with open(tiny / "out.json") as file:
        x = json.load(file)
    check(x["device"].startswith("cuda:0") and x["precision"] == "mixed" and x["device_bytes"] > 0, x)
    check(0 < x["peak_share"] < 1 and x["flops"] <= x["flops_run"] and x["step_ms"]["low"] > 0, x)
    check(all(x["kernel_ms"][f"{op}_{way}"] > 0 for op in ("linear", "attention") for way in ("forward", "backward")), x)
    check(x["kernel_ms"]["optimizer"] > 0 and all(k["calls"] > 0 for k in x["kernels"]), x)
    check("linear backward [" in out and "MISSED" not in out, out)


def test_bench_train_of_images_on_a_gpu():
    """If there is one, with torch if that sees it."""
    if not has_trainer():
        return
    tiny = Tiny(PICTURES)
    status, out, err = run(*tiny.command, "--device", "cuda", "--json", tiny / "out.json", "--set", "model.growth=32",
                           "--set", "model.stem=64", "--set", "data.batch=16")
    if status:
        check(status == 1 and "cuda: " in err and not out, status, out, err)
        return
    with open(tiny / "out.json") as file:
        x = json.load(file)
    ops = "pictures", "convolution", "batch_norm", "average_pool", "cross_entropy"
    check(x["images_per_second"] > 0 and all(x["kernel_ms"][f"{op}_forward"] > 0 for op in ops), x)
    check(x["torch"] is None or x["torch"]["layout"] == "channels-last", x)
    check("torch_graph" not in x or (x["torch_graph"]["step_ms"]["low"] > 0 and x["torch_graph"]["device_bytes"] > 0), x)


def test_bench_train_errors():
    if not has_trainer():
        return
    tiny = Tiny()
    refuse(2, "expected a recipe or --shape, not both", *tiny.command, "--shape", "small")
    refuse(2, "--shape is 'huge', expected small, base, big, resnet34, densenet121, lstm or gpt2", "bench", "train", "--shape", "huge")
    refuse(2, "needs a recipe", "bench", "train")
    refuse(2, "needs a command: train", "bench")
    refuse(2, "No such file", "bench", "train", tiny / "nothing.yaml")
    refuse(2, "unexpected argument", *tiny.command, "now")
    refuse(2, "--steps is '0'", *tiny.command, "--steps", "0")
    refuse(2, "--seconds is 'x'", *tiny.command, "--seconds", "x")
    refuse(2, "--threads is '-1'", *tiny.command, "--threads", "-1")
    refuse(2, "--device is 'tpu'", *tiny.command, "--device", "tpu")
    refuse(2, "did you mean model.d?", *tiny.command, "--set", "model.dd=1")
    refuse(2, "heads", *tiny.command, "--set", "model.heads=3")
    refuse(1, "/nonexistent/dump", *tiny.command, "--no-torch", "--dump", "/nonexistent/dump")
    status, out, err = run(*tiny.command, "--no-torch", "--json", "/nonexistent/x")
    check(status == 1 and "ms/step" in out and "/nonexistent/x: cannot create a temporary file" in err, status, out, err)


def main():
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    passed = failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or chosen not in name:
            continue
        try:
            start = time.monotonic()
            test()
            print(f"ok {name[5:]} ({time.monotonic() - start:.1f} s)")
            passed += 1
        except Failed as failure:
            print("FAIL", name[5:], "-", failure)
            failed += 1
        sys.stdout.flush()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
