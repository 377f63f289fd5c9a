#!/usr/bin/env python3
"""What docs/optimizers.md says of rules: states, bytes, defaults and options, against what the program lists.

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
PAGE = os.path.join(ROOT, "docs", "optimizers.md")

# Sections about two rules, or with another name than theirs.
SECTIONS = {"AdaBound and AMSBound": ["adabound", "amsbound"], "Schedule-Free": ["schedulefree_adamw", "schedulefree_sgd"]}
# Options that all rules have, or that "The momental bound" explains for all that have them.
ELSEWHERE = ("weight_decay decay maximize clip_value low_precision state_type min_8bit_size grad_scale clip_norm nonfinite "
             "seed threads bound beta3").split()
# Rules that read parameter, gradient and states a second time.
READ_TWICE = ("lamb", "stableadamw", "prodigy")
# Whose bytes the table has in words, or for several sets of options.
IN_WORDS = {"adafactor": ("near 0", "28"), "muon": ("4; vectors 8", "20, and products"),
            "soap": ("8, and squares", "28, and products"), "sgd": ("0 or 4", "12 or 20"),
            "rmsprop": ("4 to 12", "20 to 36"), "adashift": ("44 or 48", "32 or 36")}
BOUNDS_OF_THEIR_OWN = {"adamod": "always", "adabound": "its own", "amsbound": "its own"}

failures = []


def check(condition, *what):
    if not condition:
        failures.append(" ".join(str(x) for x in what))


def number(text):
    """What a default is: a number, a word, or None if it is neither."""
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


def check_table(page, rules):
    """The table at the top: a line for each rule."""
    top = page[page.index("| rule | year |"):]
    rows = {cells[0].strip("`"): cells for cells in table_rows(top[:top.index("\n\n")])}
    check(sorted(rows) == sorted(rules), "the table has", set(rows) ^ set(rules), "too much or too little")
    for name, rule in rules.items():
        if name not in rows:
            continue
        _, _, _, states, size, step, bound, lr = rows[name]
        options = {o["name"]: o for o in rule["options"]}
        found = [x for x in re.findall(r"\w+", states) if x in rule["states"]]
        check(found == rule["states"], name, "has states", rule["states"], "and the table", states)
        if name in IN_WORDS:
            check((size, step) == IN_WORDS[name], name, "has", size, step)
        else:
            whole = rule["bytes_per_parameter"]
            check(size == "%g" % round(whole, 2), name, "has", whole, "bytes and the table", size)
            moves = 12 + 2 * whole + (8 + whole if name in READ_TWICE else 0)
            check(step == "%g" % round(moves, 2), name, "moves", moves, "bytes and the table says", step)
        has_bound = "yes" if "bound" in options else BOUNDS_OF_THEIR_OWN.get(name, "")
        check(bound == has_bound, name, "has bound", repr(has_bound), "and the table", repr(bound))
        check(same(number(lr.strip("()")), options["lr"]["default"]), name, "has lr", options["lr"]["default"], "not", lr)


def sections(page):
    """The rules of each section, and its text."""
    for part in re.split(r"^## ", page.split("\n# Options of all rules")[0], flags=re.M)[1:]:
        title, text = part.split("\n", 1)
        if title != "The momental bound":
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
             r"`q8` \((.*?)\)\s+quarters them": ("state_type", lambda o: "q8" in o["choices"])}
    for pattern, (option, holds) in lists.items():
        said = [x for x in re.findall(r"\w+", re.search(pattern, page, flags=re.S).group(1)) if x != "and"]
        found = [name for name in rules for o in rules[name]["options"] if o["name"] == option and holds(o)]
        check(sorted(said) == sorted(found), "the page lists", said, "by their", option, "and not", found)


def main():
    listed = json.loads(subprocess.run([PROGRAM, "optim", "list", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    rules = {rule["name"]: rule for rule in listed["rules"]}
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    check_table(page, rules)
    explained = []
    for names, text in sections(page):
        check(all(name in rules for name in names), "there is a section about", names)
        if all(name in rules for name in names):
            explained += names
            check_section(names, text, rules)
    check_lists(page, rules)
    check(sorted(explained) == sorted(rules), "sections and rules differ in", set(explained) ^ set(rules))
    for line in failures:
        print("docs/optimizers.md:", line)
    print("%d rules, %d mistakes" % (len(rules), len(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
