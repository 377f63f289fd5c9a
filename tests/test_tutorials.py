#!/usr/bin/env python3
"""The tutorials are true: the C program of docs/tutorial-c.md compiles and prints what the page says, and the commands
and recipes of the others are ones that the program takes.

A ```sh block is what a reader types, an ```output block what it then prints. Numbers in it may differ a little: the C
library's tanhf is not the same everywhere. tests/python/test_tutorial.py has the page for PyTorch.

SPDX-License-Identifier: MIT
"""

import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.environ.get("SOURCE_DIR") or os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
BUILD = os.environ.get("BUILD_DIR") or os.path.join(ROOT, "build")
ADAMOD = os.environ.get("ADAMOD") or os.path.join(BUILD, "adamod")
failed = 0


def check(holds, what):
    global failed
    print("ok" if holds else "FAIL", what)
    failed += not holds


def blocks(page):
    """(language, text) of each fenced block."""
    with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as file:
        return re.findall(r"^```(\w+)\n(.*?)^```$", file.read(), flags=re.MULTILINE | re.DOTALL)


def alike(expected, found):
    """Whether two texts have the same words, and numbers that differ by at most a twentieth."""
    pattern = re.compile(r"\d+\.\d+")
    if pattern.sub("#", expected) != pattern.sub("#", found):
        return False
    pairs = zip(map(float, pattern.findall(expected)), map(float, pattern.findall(found)))
    return all(abs(a - b) <= 0.02 + 0.05 * abs(a) for a, b in pairs)


def install(prefix):
    """Installs the build, for pkg-config to find; the environment that the page sets up."""
    done = subprocess.run(
        ["cmake", "--install", BUILD, "--prefix", prefix],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    found = glob.glob(os.path.join(prefix, "**", "adamod.pc"), recursive=True)
    if done.returncode or not found:
        sys.exit(f"FAIL cmake --install\n{done.stdout}")
    return dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(found[0]), LC_ALL="C")


def c_page(page="tutorial-c.md"):
    """Types every block but the first, which builds and installs the library as was done for the test."""
    with tempfile.TemporaryDirectory() as work:
        environment = install(os.path.join(work, "prefix"))
        os.symlink(os.path.join(ROOT, "docs"), os.path.join(work, "docs"))
        listed = [block for block in blocks(page) if block[0] in ("sh", "output")][1:]
        compared = 0
        for i, (language, text) in enumerate(listed):
            if language != "sh":
                continue
            said = subprocess.run(
                ["bash", "-c", text],
                cwd=work,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
            if i + 1 < len(listed) and listed[i + 1][0] == "output":
                compared += 1
                check(alike(listed[i + 1][1], said.stdout), f"{page}: {text.splitlines()[0]}")
                if not alike(listed[i + 1][1], said.stdout):
                    print(f"the page has\n{listed[i + 1][1]}printed was\n{said.stdout}")
            else:
                check(said.returncode == 0, f"{page}: {text.splitlines()[0]} {said.stdout}")
        check(compared == 4, f"{page}: {compared} outputs compared, of 4")


def commands(text):
    """Files that here-documents make, and lines that run the program."""
    files = re.findall(r"^cat > (\S+) <<'END'\n(.*?)^END$", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^cat > .*?^END$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = text.replace("\\\n", " ").splitlines()
    return files, [shlex.split(line.split(" | ")[-1], comments=True)[1:] for line in lines if "build/adamod " in line]


def run(arguments, work):
    done = subprocess.run(
        [ADAMOD, *arguments], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    )
    return done.returncode, done.stdout


def program_page(page):
    """Flags are those of the command, and a dry run takes recipes, keys and values."""
    with tempfile.TemporaryDirectory() as work:
        os.symlink(os.path.join(ROOT, "recipes"), os.path.join(work, "recipes"))
        tried = 0
        for language, text in blocks(page):
            if language != "sh":
                continue
            files, lines = commands(text)
            for name, content in files:
                with open(os.path.join(work, name), "w", encoding="utf-8") as file:
                    file.write(content)
            for line in lines:
                words = line[:2] if line[0] in ("optim", "bench", "data", "text") else line[:1]
                help_text = run(["help", *words], work)[1]
                unknown = [flag for flag in line if flag.startswith("--") and f"{flag} " not in f"{help_text} "]
                check(not unknown, f"{page}: adamod {' '.join(words)} has {unknown or 'its flags'}")
                if line[0] in ("compare", "reproduce"):
                    tried += 1
                    status, said = run([word for word in line if word != "--show"] + ["--dry-run"], work)
                    check(status == 0, f"{page}: adamod {' '.join(line)}{'' if status == 0 else ': ' + said}")
        check(tried >= 2, f"{page}: {tried} commands tried, at least 2")


def main():
    if not os.path.exists(ADAMOD):
        print(f"skipped: no {ADAMOD}")
        return 77
    c_page()
    for page in ("tutorial-paper.md", "tutorial-compare.md"):
        program_page(page)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
