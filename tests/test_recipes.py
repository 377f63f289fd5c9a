#!/usr/bin/env python3
"""Every key of a recipe of the paper's has the source of its value beside it, one that the head of the file explains.

SPDX-License-Identifier: MIT
"""
import glob
import os
import re
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
SOURCES = ("paper", "authors", "AWD-LSTM", "fairseq", "AdaBound", "ours")
KEY = re.compile(r"^( *)([a-z_0-9]+):(?: +([^#]*?))? *(?:# (.*))?$")
EXPLAINED = re.compile(r"^#   (\S+) +\S")


def read(path):
    """Sources that the head explains, and (line, key, comment) of every key in a section."""
    explained, keys, sections = set(), [], []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            if match := EXPLAINED.match(line):
                explained.add(match[1])
            if line.startswith("#") or not (match := KEY.match(line)):
                continue
            depth = len(match[1]) // 2
            sections = sections[:depth] + [match[2]]
            if depth and match[3]:
                keys.append((number, ".".join(sections), match[4] or ""))
    return explained, keys


def faults(path):
    explained, keys = read(path)
    if not keys:
        yield 1, "no keys"
    used = set()
    for number, key, comment in keys:
        source = re.split(r"[: ]", comment)[0]
        if source not in SOURCES:
            yield number, f"{key} has no source, expected one of {', '.join(SOURCES)} behind it"
        elif source not in explained:
            yield number, f"{key}: the head does not explain '{source}'"
        used.add(source)
    for source in sorted(explained - used):
        yield 1, f"the head explains '{source}', which no key has"


def papers():
    """The recipes of the paper's experiments say so in their first lines."""
    for path in sorted(glob.glob(os.path.join(ROOT, "recipes", "*.yaml"))):
        with open(path, encoding="utf-8") as file:
            head = file.read(300)
        if re.search(r"as the AdaMod paper trains it|of the AdaMod paper", head):
            yield path


def main():
    bad = checked = 0
    for path in papers():
        checked += 1
        for line, why in faults(path):
            bad += 1
            print(f"{os.path.relpath(path, ROOT)}:{line}: {why}")
    print(f"{checked} recipes, {bad} faults")
    return 1 if bad or checked < 8 else 0


if __name__ == "__main__":
    sys.exit(main())
