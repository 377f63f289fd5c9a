#!/usr/bin/env python3
"""A state file: what docs/c-api.md says verifies it does, for every bit, and the safetensors package reads it.

ADAMOD is the program. Needs nothing but Python; safetensors, where it is installed, reads the file too.

SPDX-License-Identifier: MIT
"""
import array
import os
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAM = os.environ.get("ADAMOD", os.path.join(ROOT, "build", "adamod"))


def check(condition, *what):
    if not condition:
        sys.exit("test_state_file: " + " ".join(str(x) for x in what))


def write_npy(path, values):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (len(values), len(values[0]))
    head += " " * (117 - len(head)) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        for row in values:
            f.write(array.array("f", row).tobytes())


def documented_check():
    """The program in the documentation, as a function of a path: whether the file is good."""
    with open(os.path.join(ROOT, "docs", "c-api.md"), encoding="utf-8") as f:
        blocks = [b for b in re.findall(r"```python\n(.*?)```", f.read(), re.S) if "zlib.crc32" in b]
    check(len(blocks) == 1, "programs with zlib.crc32 in docs/c-api.md:", len(blocks))
    code = compile(blocks[0], "docs/c-api.md", "exec")

    def good(path):
        sys.argv[1:] = [path]
        try:
            exec(code, {})
        except SystemExit as e:
            return not e.code
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
            return False  # no such header
        return None

    return good


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def main():
    good = documented_check()
    with tempfile.TemporaryDirectory() as folder:
        path = {name: os.path.join(folder, name) for name in ("p.npy", "g.npy", "state", "broken", "out.npy")}
        write_npy(path["p.npy"], [[1.0, 2.0, 3.0]])
        write_npy(path["g.npy"], [[0.5, -1.0, 0.25], [0.5, 1.0, 0.125]])
        trace = ["optim", "trace", "--rule", "adamod", "--params", path["p.npy"], "--grads", path["g.npy"], "--out",
                 path["out.npy"]]
        made = run(*trace, "--save", path["state"])
        check(made.returncode == 0, made.stderr)
        check(good(path["state"]) is True, "the documented check refuses a good file")

        with open(path["state"], "rb") as f:
            data = bytearray(f.read())
        for bit in range(8 * len(data)):
            if bit // 8 in range(3, 8):
                continue  # a header of gigabytes, which Python would take memory for
            data[bit // 8] ^= 1 << bit % 8
            with open(path["broken"], "wb") as f:
                f.write(data)
            check(good(path["broken"]) is False, "the documented check accepts a file with bit", bit, "changed")
            data[bit // 8] ^= 1 << bit % 8

        data[-1] ^= 1
        with open(path["broken"], "wb") as f:
            f.write(data)
        refused = run(*trace, "--load", path["broken"])
        check(refused.returncode != 0 and path["broken"] + ": damaged: " in refused.stderr, refused.stderr)

        try:
            import numpy
            from safetensors import safe_open
        except ImportError:
            print("test_state_file: no safetensors package, its reader was not tried")
            return
        with safe_open(path["state"], framework="np") as f:
            check(f.metadata()["rule"] == "adamod", f.metadata())
            names = sorted(f.keys())
            check(any(name.endswith(".exp_avg_lr") for name in names), names)
            for name in names:
                check(numpy.isfinite(f.get_tensor(name)).all(), name)


if __name__ == "__main__":
    main()
