"""The table of docs/pytorch.md that says how many bytes states take.

SPDX-License-Identifier: MIT
"""

import os
import re
import unittest

import find_package  # noqa: F401
import libadamod
import libadamod.torch as lt
import torch
from support import CLASSES, make_params, train

COLUMNS = (
    (torch.float32, {}),
    (torch.bfloat16, {}),
    (torch.bfloat16, dict(low_precision="stochastic")),
    (torch.bfloat16, dict(low_precision="stochastic", state_type="bf16")),
    (torch.float32, dict(state_type="bf16")),
    (torch.float32, dict(state_type="q8")),
)
BOUNDED = (torch.float32, dict(bound="momental"))
MORE = {lt.SGD: dict(momentum=0.9)}


def bytes_per_element(cls, dtype, options):
    """Bytes of states per element of a matrix of 64 by 64, after two steps; None: the rule has no such option."""
    if options.get("state_type") == "q8" and not libadamod._c.rule_info(cls.rule).q8_states:
        return None
    if "bound" in options and "bound" not in libadamod.options(cls.rule):
        return None
    params = make_params((64, 64), dtype=dtype)
    optimizer = cls(params, **MORE.get(cls, {}), **options)
    train(optimizer, params, 2)
    states = [t for name, t in optimizer.state[params[0]].items() if name != "step"]
    return sum(t.numel() * t.element_size() for t in states) / params[0].numel()


def row(cls):
    found = [bytes_per_element(cls, *column) for column in (*COLUMNS, BOUNDED)]
    return ["–" if x is None else f"{x:.2f}".rstrip("0").rstrip(".") for x in found]


class Table(unittest.TestCase):
    def test_the_page_is_right(self):
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "pytorch.md")
        with open(page, encoding="utf-8") as file:
            text = file.read()
        table = text[text.index("| bytes for each element") :].split("\n\n")[0]
        told = {}
        for line in table.splitlines()[2:]:
            names, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            for name in re.findall(r"`(\w+)`", names):
                told[name] = cells
        self.assertEqual(sorted(told), sorted(cls.__name__ for cls in CLASSES))
        for cls in CLASSES:
            self.assertEqual(told[cls.__name__], row(cls), cls.__name__)


if __name__ == "__main__":
    unittest.main()
