"""Type hints as users meet them: programs that are right pass mypy and pyright in their strict modes, and what is wrong
is found. Both checkers must be installed for the Python that runs this; Debian's mypy 1.0 does not know how the options
are described (PEP 692).

SPDX-License-Identifier: MIT
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import find_package  # noqa: F401
import libadamod
import torch

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(libadamod.__file__)))

RIGHT = """\
import torch
from typing import Optional

from libadamod.torch import SGD, Adafactor, Adam, AdaMod, Common, Optimizer, create
from libadamod.torch.options import Decay

model = torch.nn.Linear(3, 2)
named = AdaMod(model.named_parameters(), lr=1e-3, betas=(0.9, 0.999), beta3=0.999, decay="l2", state_type="q8")
plain = AdaMod(model.parameters(), lr=torch.tensor(0.1), flavour="published", fused=True, foreach=None)
groups = Adam([{"params": model.parameters(), "lr": 0.1}], amsgrad=True, low_precision="stochastic")
factors = Adafactor(model.parameters(), eps=(1e-30, 1e-3), beta1=None, lr=None, decay_rate=-0.8)
shared: Common = {"maximize": True, "seed": 1, "clip_value": 1.0, "clip_norm": 1.0, "offload": True}
one: Optimizer = SGD(model.parameters(), momentum=0.9, **shared)
by_name: Optimizer = create("adamw", model.named_parameters(), lr=1e-3)


def loss() -> torch.Tensor:
    return model(torch.ones(3)).sum()  # type: ignore[no-any-return]


def number() -> float:
    return 1.0


def closure() -> Optional[float]:
    return None


def chosen(decay: Decay) -> torch.optim.Optimizer:
    return AdaMod(model.parameters(), decay=decay)


value: torch.Tensor = named.step(loss)
real: float = plain.step(number)
maybe: Optional[float] = plain.step(closure)
scheduler = torch.optim.lr_scheduler.StepLR(groups, 10)
share: float = named.lr_histogram().bounded
named.load_state_dict(named.state_dict())
"""

WRONG = """\
import torch
from libadamod.torch import AdaMod, AdaShift, SGD, create

params = [torch.nn.Parameter(torch.ones(2))]
AdaMod(params, flavor="paper")
AdaMod(params, flavour="papers")
AdaMod(params, decay="L2")
SGD(params, state_type="int8")
AdaMod(params, low_precision="none")
AdaShift(params, spatial="mean")
AdaMod(params, betas=0.9)
AdaMod(params, clip_norm="1")
create(params, "adamod")
AdaMod(["weight"])
x: float = AdaMod(params).step()
AdaMod(params).step(found=1)
"""
FIRST_WRONG = 5  # line
LIMIT = 600  # seconds of a checker, on a machine that does much else
CACHE = os.path.join(tempfile.gettempdir(), f"mypy-{os.getuid()}")  # of what mypy read of PyTorch in 20 s


def needs(checker):
    return unittest.skipUnless(importlib.util.find_spec(checker), f"there is no {checker} for {sys.executable}")


@unittest.skipIf(torch.__version__ < "2.6", "the hints of this PyTorch know no named parameters")
class Hints(unittest.TestCase):
    def run_in(self, folder, checker, *options):
        run = subprocess.run(
            [sys.executable, "-m", checker, *options],
            cwd=folder,
            env={**os.environ, "MYPYPATH": PACKAGE},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            timeout=LIMIT,
        )
        return run.returncode, run.stdout

    def found(self, checker, *options, **settings):
        """The lines of both programs that a checker complains of, and all it said."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("right.py", RIGHT), ("wrong.py", WRONG)):
                with open(f"{folder}/{name}", "w") as f:
                    f.write(text)
            with open(f"{folder}/pyrightconfig.json", "w") as f:
                json.dump(settings, f)
            _, said = self.run_in(folder, checker, *options)
        lines = {"right": [], "wrong": []}
        for name, line in re.findall(r"(right|wrong)\.py:(\d+):.*error", said):
            lines[name].append(int(line))
        return lines, said

    def check(self, *arguments, **settings):
        lines, said = self.found(*arguments, **settings)
        self.assertEqual(lines["right"], [], said)
        self.assertEqual(sorted(set(lines["wrong"])), list(range(FIRST_WRONG, WRONG.count("\n") + 1)), said)

    @needs("mypy")
    def test_mypy(self):
        self.check("mypy", "--strict", "--cache-dir", CACHE, "right.py", "wrong.py")

    @needs("mypy")
    def test_the_package_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            status, said = self.run_in(folder, "mypy", "--strict", "--cache-dir", CACHE, "-p", "libadamod")
        self.assertEqual(status, 0, said)

    @needs("pyright")
    def test_pyright(self):
        self.check("pyright", "--pythonpath", sys.executable, typeCheckingMode="strict", extraPaths=[PACKAGE])


if __name__ == "__main__":
    unittest.main()
