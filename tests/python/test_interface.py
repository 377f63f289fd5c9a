"""The public names of the package, their arguments and defaults, and the rules and their options are at least those
that earlier versions had: tests/python/names-VERSION.json; where there are JAX and Keras, also those of their modules:
frameworks-VERSION.json. What is added does not matter.

    python3 tests/python/test_interface.py --write 1.0      records those of this version, once for a version; needs JAX and Keras

SPDX-License-Identifier: MIT
"""

import glob
import importlib
import importlib.util
import inspect
import json
import os
import sys
import unittest

import find_package  # noqa: F401
import libadamod

FOLDER = os.path.dirname(os.path.abspath(__file__))
MODULES = ("libadamod", "libadamod.numpy", "libadamod.torch")
FRAMEWORKS = {"libadamod.jax": "jax", "libadamod.keras": "keras"}
REQUIRED = "(required)"
os.environ.setdefault("KERAS_BACKEND", "jax" if importlib.util.find_spec("jax") else "torch")  # Keras would take TensorFlow


def arguments(function):
    """[[name, kind, default]], without self. Defaults are as Python writes them; the name of **options is left out."""
    found = []
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            found.append(["*" if p.kind == p.VAR_POSITIONAL else "**", "any", ""])
        elif p.name != "self":
            found.append([p.name, p.kind.name.lower(), REQUIRED if p.default is p.empty else repr(p.default)])
    return found


def of_package(cls):
    """The names of a class that the package defines, not PyTorch or Python."""
    for base in reversed(cls.__mro__):
        if base.__module__.split(".")[0] == "libadamod":
            yield from ((name, value) for name, value in vars(base).items() if not name.startswith("_"))


def describe(value):
    if inspect.isclass(value):
        if hasattr(value, "__total__"):  # a TypedDict: options by name
            return {"options": sorted(value.__annotations__)}
        members = {
            name: arguments(member) if inspect.isfunction(member) else None for name, member in of_package(value)
        }
        return {"arguments": arguments(value), "members": members}
    return {"arguments": arguments(value)} if callable(value) else {}


def describe_rule(rule):
    return {
        option.name: list(option.choices) if option.choices else None for option in libadamod.options(rule).values()
    }


def describe_modules(names):
    modules = {}
    for name in names:
        module = importlib.import_module(name)
        rules = module.rules() if name == "libadamod.jax" else []  # which makes a function for each when it is asked for
        modules[name] = {public: describe(getattr(module, public)) for public in [*module.__all__, *rules]}
    return modules


def interface():
    return {"modules": describe_modules(MODULES), "rules": {rule: describe_rule(rule) for rule in libadamod.rules()}}


# ---- comparing ----


def lost_arguments(was, now):
    """Recorded arguments that are gone, moved or changed, and added ones that make older calls fail."""
    if was is None:
        return
    if now is None:
        yield "is no function any more"
        return
    before, after = ({name: (kind, default) for name, kind, default in some} for some in (was, now))
    gone = [name for name in before if name not in after]
    yield from (f"argument {name} is gone" for name in gone)
    for name in before:
        if name not in gone and before[name] != after[name]:
            yield f"argument {name} is {' '.join(after[name])}, was {' '.join(before[name])}"
    first, then = ([name for name in some if some[name][0].startswith("positional")] for some in (before, after))
    if not gone and then[: len(first)] != first:
        yield f"the order of arguments is {', '.join(then)}, was {', '.join(first)}"
    for name, (kind, default) in after.items():
        if name not in before and default == REQUIRED:
            yield f"argument {name} is new and required"


def lost(was, now):
    """One line for each recorded thing that is not there any more."""
    for module, names in was["modules"].items():
        for name, record in names.items():
            place, found = f"{module}.{name}", now["modules"].get(module, {}).get(name)
            if found is None:
                yield f"{place} is gone"
                continue
            yield from (
                f"{place}: {fault}" for fault in lost_arguments(record.get("arguments"), found.get("arguments"))
            )
            yield from (
                f"{place}: option {o} is gone" for o in record.get("options", []) if o not in found.get("options", [])
            )
            for member, its in record.get("members", {}).items():
                if member not in found.get("members", {}):
                    yield f"{place}.{member} is gone"
                else:
                    yield from (f"{place}.{member}: {fault}" for fault in lost_arguments(its, found["members"][member]))
    for rule, options in was["rules"].items():
        if rule not in now["rules"]:
            yield f"rule {rule} is gone"
            continue
        for option, choices in options.items():
            if option not in now["rules"][rule]:
                yield f"rule {rule}: option {option} is gone"
                continue
            there = now["rules"][rule][option] or []
            yield from (
                f"rule {rule}: {option} has no {choice} any more" for choice in choices or [] if choice not in there
            )


class Interface(unittest.TestCase):
    def test_nothing_on_record_is_lost(self):
        records = sorted(glob.glob(os.path.join(FOLDER, "names-*.json")))
        self.assertTrue(records)
        now = interface()
        for path in records:
            with open(path, encoding="utf-8") as file:
                was = json.load(file)
            self.assertGreaterEqual(len(was["modules"]["libadamod.torch"]), 30)
            self.assertEqual(list(lost(was, now)), [], path)

    def test_nothing_of_frameworks_is_lost(self):
        here = [name for name, needed in FRAMEWORKS.items() if importlib.util.find_spec(needed)]
        if not here:
            self.skipTest("there is no JAX and no Keras")
        records = sorted(glob.glob(os.path.join(FOLDER, "frameworks-*.json")))
        self.assertTrue(records)
        now = {"modules": describe_modules(here), "rules": {}}
        for path in records:
            with open(path, encoding="utf-8") as file:
                was = json.load(file)
            self.assertEqual(set(was["modules"]), set(FRAMEWORKS))
            was["modules"] = {name: was["modules"][name] for name in here}
            self.assertEqual(list(lost(was, now)), [], path)

    def test_losses_are_found(self):
        """Each kind of change that would break a program."""
        was = {
            "modules": {
                "m": {
                    "C": {
                        "arguments": [["a", "positional_or_keyword", REQUIRED], ["b", "positional_or_keyword", "1"]],
                        "members": {"f": [], "p": None},
                    },
                    "O": {"options": ["x"]},
                }
            },
            "rules": {"r": {"o": ["one", "two"], "n": None}},
        }

        def faults(change):
            now = json.loads(json.dumps(was))
            change(now)
            return list(lost(was, now))

        def of_class(now):
            return now["modules"]["m"]["C"]

        self.assertEqual(faults(lambda now: now["modules"]["m"].pop("C")), ["m.C is gone"])
        self.assertEqual(faults(lambda now: of_class(now)["arguments"].pop(1)), ["m.C: argument b is gone"])
        self.assertEqual(len(faults(lambda now: of_class(now)["arguments"].reverse())), 1)
        self.assertEqual(len(faults(lambda now: of_class(now)["arguments"].append(["c", "keyword_only", REQUIRED]))), 1)
        self.assertEqual(faults(lambda now: of_class(now)["arguments"].append(["c", "keyword_only", "0"])), [])
        self.assertEqual(
            len(faults(lambda now: of_class(now)["arguments"].__setitem__(1, ["b", "positional_or_keyword", "2"]))), 1
        )
        self.assertEqual(
            len(faults(lambda now: of_class(now)["arguments"].__setitem__(1, ["b", "keyword_only", "1"]))), 2
        )
        self.assertEqual(faults(lambda now: of_class(now)["members"].pop("p")), ["m.C.p is gone"])
        self.assertEqual(faults(lambda now: now["modules"]["m"]["O"]["options"].clear()), ["m.O: option x is gone"])
        self.assertEqual(faults(lambda now: now["rules"].clear()), ["rule r is gone"])
        self.assertEqual(faults(lambda now: now["rules"]["r"].pop("n")), ["rule r: option n is gone"])
        self.assertEqual(faults(lambda now: now["rules"]["r"]["o"].pop()), ["rule r: o has no two any more"])


def shorten(record):
    """Records of classes leave out members of Optimizer, which has a record of its own."""
    shared = record["modules"]["libadamod.torch"]["Optimizer"]["members"]
    for name, about in record["modules"]["libadamod.torch"].items():
        if name != "Optimizer" and "members" in about:
            about["members"] = {m: its for m, its in about["members"].items() if m not in shared or its != shared[m]}
    return record


def write(kind, version, make):
    path = os.path.join(FOLDER, f"{kind}-{version}.json")
    if os.path.exists(path):
        print(f"{path} is there, and records are never written again")
        return
    record = make()

    def one_line_each(names):
        return ",\n".join(f"  {json.dumps(name)}: {json.dumps(names[name])}" for name in sorted(names))

    parts = [f'"{module}": {{\n{one_line_each(names)}\n }}' for module, names in record["modules"].items()]
    text = f'{{"modules": {{\n {", ".join(parts)}}},\n "rules": {{\n{one_line_each(record["rules"])}\n }}}}\n'
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".tmp", path)
    print(path)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--write":
        write("names", sys.argv[2], lambda: shorten(interface()))
        write("frameworks", sys.argv[2], lambda: {"modules": describe_modules(FRAMEWORKS), "rules": {}})
    else:
        unittest.main()
