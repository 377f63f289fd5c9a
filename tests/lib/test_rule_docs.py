#!/usr/bin/env python3
"""Rules in docs/optimizers.md: their defaults and options are those that the program lists. The tables there and in
docs/pytorch.md are what it prints with --markdown.

ADAMOD is the program. Needs nothing but Python.

SPDX-License-Identifier: MIT
"""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAM = os.environ.get("ADAMOD", os.path.join(ROOT, "build", "adamod"))
DOCS = os.path.join(ROOT, "docs")

# Sections about two rules, or with another name than theirs.
SECTIONS = {"AdaBound and AMSBound": ["adabound", "amsbound"], "Schedule-Free": ["schedulefree_adamw", "schedulefree_sgd"]}
# Options that all rules have, or that a section explains for all that have them.
ELSEWHERE = ("weight_decay decay maximize clip_value low_precision state_type min_8bit_size grad_scale clip_norm nonfinite "
             "seed threads bound beta3 skip_idle cautious").split()
MARKS = ("<!-- Printed by: adamod optim list --markdown -->\n", "<!-- end -->\n")

failures = []


def check(condition, *what):
    if not condition:
        failures.append(" ".join(str(x) for x in what))


def number(text):
    """A default: a number, a word, or None if it is neither."""
    text = text.strip().rstrip(".;").replace("−", "-")
    if text == "∞":
        return "inf"
    try:
        return float(text)
    except ValueError:
        return text if re.fullmatch(r"[a-z_0-9]+", text) else None


def same(a, b):
    return a == b or (isinstance(a, float) and isinstance(b, (int, float)) and abs(a - b) <= 1e-12 * abs(b))


def table_rows(text):
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def check_tables(pages):
    """Each page has its table as the program prints it, and a link for every paper in it."""
    printed = subprocess.run([PROGRAM, "optim", "list", "--markdown"], stdout=subprocess.PIPE, check=True).stdout
    for (name, page), table in zip(pages.items(), printed.decode().split("\n\n")):
        begin, end = (page.find(mark) for mark in MARKS)
        found = page[begin + len(MARKS[0]):end] if 0 <= begin < end else ""
        check(found.strip() == table.strip(), "docs/%s does not have the table that adamod optim list --markdown prints" % name)
        for paper in re.findall(r"\| \[([^\]]*)\] \|", found):
            check("\n[%s]: https://" % paper in page, "docs/%s has no link to" % name, paper)


def sections(page):
    """The rules of each section, and its text."""
    for part in re.split(r"^## ", page.split("\n# Options of all rules")[0], flags=re.M)[1:]:
        title, text = part.split("\n", 1)
        if title not in ("The momental bound", "Cautious steps"):
            yield SECTIONS.get(title, [title.lower()]), text


def told_defaults(text):
    """(option, default) of a section's table of options and of its sentence 'Options: `lr` 1e-3, ...'."""
    if "| option | default |" in text:
        table = text[text.index("| option | default |"):]
        for cells in table_rows(table[:table.index("\n\n")]):
            names = re.findall(r"`([a-z0-9_]+)`", cells[0])
            values = [x for x in cells[1].split(",")]
            if len(names) == len(values):
                yield from zip(names, map(number, values))
            else:
                check(False, "the table has", cells[0], "with", cells[1])
    for sentence in re.findall(r"^Options: .*?(?:\n\n|\*\*When|\Z)", text, flags=re.S | re.M):
        for name, note, value in re.findall(r"`([a-z0-9_]+)`((?: \([^)]*\))?) ([-−0-9][-0-9.e]*|max|paper)\b", sentence):
            yield name, number(value)


def check_section(names, text, rules):
    told = list(told_defaults(text))
    check(told or "Options: as" in text, names, "says no default")
    for name in names:
        options = {o["name"]: o["default"] for o in rules[name]["options"]}
        for option, value in told:
            if option == "lr" and len(names) > 1 and value != options["lr"]:
                continue  # the table at the top has both
            if option not in options:
                check(len(names) > 1, name, "has no option", option)
            else:
                check(same(value, options[option]), name, "has", option, "=", options[option], "and the page says", value)
        as_adam = "as Adam" in text and "Options: as" in text
        for option in options:
            named = "`%s`" % option in text or (as_adam and option in "lr beta1 beta2 eps flavour".split())
            check(option in ELSEWHERE or named, name, "has option", option, "which its section does not name")


def check_lists(page, rules):
    """Rules that the page lists in a sentence, by what their options are."""
    lists = {r"`decay` is `decoupled` except for (.*?),\s+where it is `l2`": ("decay", lambda o: o["default"] == "l2"),
             r"`q8` \((.*?)\)\s+quarters them": ("state_type", lambda o: "q8" in o["choices"]),
             r"`cautious = 1`, of (.*?),\s+lets": ("cautious", lambda o: True)}
    for pattern, (option, holds) in lists.items():
        said = [x for x in re.findall(r"\w+", re.search(pattern, page, flags=re.S).group(1)) if x != "and"]
        found = [name for name in rules for o in rules[name]["options"] if o["name"] == option and holds(o)]
        check(sorted(said) == sorted(found), "the page lists", said, "by their", option, "and not", found)


def main():
    listed = json.loads(subprocess.run([PROGRAM, "optim", "list", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    rules = {rule["name"]: rule for rule in listed["rules"]}
    pages = {}
    for name in ("optimizers.md", "pytorch.md"):
        with open(os.path.join(DOCS, name), encoding="utf-8") as file:
            pages[name] = file.read()
    page = pages["optimizers.md"]
    check_tables(pages)
    explained = []
    for names, text in sections(page):
        check(all(name in rules for name in names), "there is a section about", names)
        if all(name in rules for name in names):
            explained += names
            check_section(names, text, rules)
    check_lists(page, rules)
    check(sorted(explained) == sorted(rules), "sections and rules differ in", set(explained) ^ set(rules))
    for line in failures:
        print("docs:", line)
    print("%d rules, %d mistakes" % (len(rules), len(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
