#!/usr/bin/env python3
"""Every key of a recipe of the paper's has the source of its value beside it, one that the head of the file explains, and
recipes/paper.yaml has the same sources. Every recipe of a release is kept in tests/golden, as it was released.

SPDX-License-Identifier: MIT
"""
import glob
import os
import re
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
STUDY = os.path.join(ROOT, "recipes", "paper.yaml")
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
        source = source_of(comment)
        if source not in SOURCES:
            yield number, f"{key} has no source, expected one of {', '.join(SOURCES)} behind it"
        elif source not in explained:
            yield number, f"{key}: the head does not explain '{source}'"
        used.add(source)
    for source in sorted(explained - used):
        yield 1, f"the head explains '{source}', which no key has"


def source_of(comment):
    return re.split(r"[: ]", comment)[0]


def experiments(text):
    """(line, recipe, {key: source}) of every experiment of a study; a key may have "of METHOD" behind it."""
    part = re.search(r"^experiments:\n(.*?)(?=^\S)", text, re.MULTILINE | re.DOTALL)
    for match in re.finditer(r"^  (\S+):\n((?:(?:    .*)?\n)+)", part[1], re.MULTILINE):
        recipe = re.search(r"^    recipe: (\S+)$", match[2], re.MULTILINE)[1]
        block = re.search(r"^    sources:\n((?:      .*\n)+)", match[2], re.MULTILINE)
        sources = {}
        for name, keys in re.findall(r"^      (\S+): \[(.*?)\]", block[1] if block else "", re.MULTILINE | re.DOTALL):
            sources.update({" ".join(key.split()): name for key in keys.split(",")})
        yield text.count("\n", 0, part.start(1) + match.start()) + 1, recipe, sources


def study_faults(path):
    """The first experiment of each recipe says what the recipe says; others of the same recipe say nothing."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    seen = set()
    for line, recipe, sources in experiments(text):
        said = {key: source_of(comment) for _, key, comment in read(os.path.join(os.path.dirname(path), recipe))[1]}
        own = {key: name for key, name in sources.items() if " of " not in key}
        for key in sorted(set(said) | set(own) if recipe not in seen else own):
            if said.get(key) != own.get(key):
                yield line, f"the source of {key} is {own.get(key)}, but {said.get(key)} in {recipe}"
        for key in sorted(set(sources) - set(own)):
            if sources[key] not in SOURCES:
                yield line, f"the source of {key} is {sources[key]}, expected one of {', '.join(SOURCES)}"
        seen.add(recipe)
    if len(seen) < 8:
        yield 1, f"{len(seen)} recipes, expected the paper's 8"


def papers():
    """The recipes of the paper's experiments say so in their first lines."""
    for path in sorted(glob.glob(os.path.join(ROOT, "recipes", "*.yaml"))):
        with open(path, encoding="utf-8") as file:
            head = file.read(300)
        if path != STUDY and re.search(r"as the AdaMod paper trains it|of the AdaMod paper", head):
            yield path


def golden_faults(path):
    """Where the changelog begins with a release, its recipes are those that scripts/golden has kept."""
    with open(os.path.join(ROOT, "CHANGELOG.md"), encoding="utf-8") as file:
        heading = re.search(r"^## .*$", file.read(), re.M)[0]
    release = re.fullmatch(r"## \[(\d+\.\d+)\.\d+\] - \d{4}-\d\d-\d\d", heading)
    if not release:
        return
    kept = [bare(name) for name in glob.glob(os.path.join(ROOT, "tests", "golden", "*", "recipes", os.path.basename(path)))]
    if not kept:
        yield 1, f"a recipe of a release, and tests/golden has none of this name: scripts/golden {release[1]} keeps it"
    elif bare(path) not in kept:
        yield 1, "other than the one in tests/golden, which was released: CHANGELOG.md needs a heading '## [Unreleased]'"


def bare(path):
    """A recipe's lines without comments, as scripts/golden keeps them."""
    with open(path, encoding="utf-8") as file:
        lines = [re.sub(r" *# .*$", "", line.rstrip("\n")) for line in file]
    return [line for line in lines if line and not re.match(r" *#", line)]


def show(path, found):
    count = 0
    for line, why in found:
        count += 1
        print(f"{os.path.relpath(path, ROOT)}:{line}: {why}")
    return count


def main():
    bad = checked = 0
    for path in papers():
        checked += 1
        bad += show(path, faults(path))
    bad += show(STUDY, study_faults(STUDY))
    for path in sorted(glob.glob(os.path.join(ROOT, "recipes", "*.yaml"))):
        bad += show(path, golden_faults(path))
    print(f"{checked} recipes, {bad} faults")
    return 1 if bad or checked < 8 else 0


if __name__ == "__main__":
    sys.exit(main())
