#!/usr/bin/env python3
"""Every link in a page leads somewhere, and every path of the tree that a page names exists.

A path is a word in backticks with a slash and either a top folder of the tree in front or a source's ending, and scripts/NAME
anywhere. Names that stand for many (NAME, *, {a,b}) must match something. Folders that a page's commands write to are ones
that git ignores: else a release is refused, and packages are built with them inside.

SPDX-License-Identifier: MIT
"""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
ENDINGS = (".c", ".h", ".cu", ".cuh", ".cpp", ".py", ".sh", ".md", ".cmake", ".txt", ".yaml", ".json")
# Not of the tree: what is built or written by a user's commands.
MADE = re.compile(r"^(build[\w-]*|dist|runs?|DIR)/")
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^]]+\]: (\S+)", re.MULTILINE)
OURS = re.compile(r"(build.*|dist|runs|venv|\.git)")  # folders at the top that are not of the tree
OUT = re.compile(r"--out (\w+)/|-m venv (\w+)")
PATH = re.compile(r"^[\w.*{},-]+(/[\w.*{},-]+)+/?$")


def tree():
    """Paths from the root of files and folders, without what is built and what git keeps."""
    for folder, folders, names in os.walk(ROOT):
        top = folder == ROOT
        folders[:] = sorted(name for name in folders if not (top and OURS.fullmatch(name)) and name != "__pycache__")
        yield from (os.path.relpath(os.path.join(folder, name), ROOT) for name in sorted(folders + names))


TREE = set(tree())
TOP = {path for path in TREE if "/" not in path and os.path.isdir(os.path.join(ROOT, path))}


def anchors(page):
    """The names by which GitHub reaches a page's headings; a heading that is there twice has numbers."""
    seen, found = {}, set()
    with open(page, encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ +(.*)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        number = seen[name] = seen.get(name, -1) + 1
        found.add(f"{name}-{number}" if number else name)
    return found


def exists(word):
    """Whether the tree has it: from the root if a top folder is in front, else from any folder."""
    patterns = [word.rstrip("/")]
    while "{" in patterns[0]:  # as the shell's braces
        before, choices, after = re.match(r"^(.*?)\{(.*?)\}(.*)$", patterns[0]).groups()
        patterns = patterns[1:] + [before + choice + after for choice in choices.split(",")]
    anywhere = "" if word.split("/")[0] in TOP else "(.*/)?"
    for pattern in patterns:
        if pattern in TREE:
            continue
        named = re.sub(r"[A-Z]{3,}", "*", pattern)  # NAME stands for any
        named = anywhere + re.escape(named).replace(r"\*", "[^/]+")
        if not any(re.fullmatch(named, path) for path in TREE):
            return False
    return True


def faults(page):
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for match in LINK.finditer(text):
        target, _, anchor = (match[1] or match[2]).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = os.path.join(os.path.dirname(page), target) if target else page
        if not os.path.exists(path):
            yield match.start(), f"a link to {target}, which is not there"
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            yield match.start(), f"a link to {target}#{anchor}: there is no such heading"
    for match in re.finditer(r"`([^`\n]+)`", text):
        for word in match[1].split():
            of_tree = word.split("/")[0] in TOP or word.endswith(ENDINGS)
            if PATH.match(word) and of_tree and not MADE.match(word) and not exists(word):
                yield match.start(), f"{word} is not there"
    for match in re.finditer(r"(?<![\w/.])scripts/[a-z][\w-]*", text):
        if not exists(match[0]):
            yield match.start(), f"{match[0]} is not there"


def ignored(folder):
    """Whether git ignores a folder at the top; true where there is no git to ask."""
    if not shutil.which("git"):
        return True
    command = ["git", "check-ignore", "-q", f"{folder}/file"]
    return subprocess.run(command, cwd=ROOT, stderr=subprocess.DEVNULL).returncode != 1


def main():
    bad = checked = 0
    written = set()
    for page in sorted(os.path.join(ROOT, path) for path in TREE if path.endswith(".md")):
        checked += 1
        with open(page, encoding="utf-8") as file:
            text = file.read()
        written |= {match[1] or match[2] for match in OUT.finditer(text)}
        for at, why in sorted(set(faults(page))):
            bad += 1
            print(f"{os.path.relpath(page, ROOT)}:{text.count(chr(10), 0, at) + 1}: {why}")
    for folder in sorted(written):
        if not ignored(folder):
            bad += 1
            print(f".gitignore: pages write to {folder}/, which git does not ignore")
    if not {"runs", "venv"} <= written:
        bad += 1
        print(f"pages write to {sorted(written)}, expected runs and venv among them")
    print(f"{checked} pages, {bad} faults")
    return 1 if bad or checked < 15 else 0


if __name__ == "__main__":
    sys.exit(main())
