"""The binding and the wheel: structures are laid out as the C compiler does it, and everything is there.

SPDX-License-Identifier: MIT
"""

import ctypes
import importlib.metadata
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import find_package  # noqa: F401
import libadamod
from libadamod import _c

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HEADER = os.path.join(ROOT, "lib", "include", "adamod.h")
LIMIT = 300  # seconds of a process, on a machine that does much else
STRUCTURES = {
    "adamod_tensor": _c.TensorDesc,
    "adamod_span": _c.Span,
    "adamod_state_desc": _c.StateDesc,
    "adamod_option": _c.OptionDesc,
    "adamod_rule_state": _c.RuleStateDesc,
    "adamod_rule": _c.RuleDesc,
    "adamod_statistics": _c.Statistics,
}
CONSTANTS = {
    "ADAMOD_MAX_DIMS": _c.MAX_DIMS,
    "ADAMOD_MAX_STATES": _c.MAX_STATES,
    "ADAMOD_HIST_BINS": _c.HIST_BINS,
    "ADAMOD_HIST_LOW": _c.HIST_LOW,
    "ADAMOD_HIST_HIGH": _c.HIST_HIGH,
    "ADAMOD_F32": _c.F32,
    "ADAMOD_F64": _c.F64,
    "ADAMOD_BF16": _c.BF16,
    "ADAMOD_F16": _c.F16,
    "ADAMOD_Q8": _c.Q8,
    "ADAMOD_Q8_BLOCK": _c.Q8_BLOCK,
    "ADAMOD_ERROR_ORDER": _c.ERROR_ORDER,
    "ADAMOD_BEGINS_AS_PARAM": _c.BEGINS_AS_PARAM,
}


class Package(unittest.TestCase):
    def test_structures_are_the_headers(self):
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("there is no C compiler")
        lines = ["#include <adamod.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
        expected = {}
        for name, structure in STRUCTURES.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            expected[name] = ctypes.sizeof(structure)
            for field, _ in structure._fields_:
                lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
                expected[f"{name}.{field}"] = getattr(structure, field).offset
        for name, value in CONSTANTS.items():
            lines.append(f'printf("{name} %g\\n", (double)({name}));')
            expected[name] = value
        lines.append("return 0; }")
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/a.c", "w") as f:
                f.write("\n".join(lines))
            command = [compiler, "-I", os.path.dirname(HEADER), f"{folder}/a.c", "-o", f"{folder}/a"]
            subprocess.run(command, check=True, timeout=LIMIT)
            out = subprocess.run(
                [f"{folder}/a"], check=True, stdout=subprocess.PIPE, universal_newlines=True, timeout=LIMIT
            ).stdout
        found = {line.split()[0]: float(line.split()[1]) for line in out.splitlines()}
        self.assertEqual(found, expected)

    def test_version_is_the_headers(self):
        with open(HEADER) as f:
            text = f.read()
        parts = [re.search(rf"ADAMOD_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(libadamod.__version__, ".".join(parts))

    def test_the_wheel_has_everything(self):
        if "ADAMOD_LIBRARY" in os.environ:
            self.skipTest("not the installed package")
        files = {str(f) for f in importlib.metadata.files("libadamod")}
        for name in ("libadamod/py.typed", "libadamod/_c.py", "libadamod/torch/rules.py", "libadamod/libadamod.so.0"):
            self.assertIn(name, files)
        self.assertEqual(importlib.metadata.version("libadamod"), libadamod.__version__)

    def test_numpy_part_needs_no_torch(self):
        code = (
            "import sys; sys.modules['torch'] = None; import libadamod.numpy as n, numpy as np; w = np.ones(3); "
            "n.update('sgd', w, w.copy(), {}, 1, lr=0.5); assert (w == 0.5).all()"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT)

    def test_a_framework_that_is_missing_is_named(self):
        for module, framework, needed in (
            ("torch", "torch", "PyTorch 1.13 or later, pip install torch"),
            ("numpy", "numpy", "numpy, pip install numpy"),
            ("jax", "jax", "jax, pip install jax optax"),
            ("keras", "keras", "Keras 3, pip install keras"),
        ):
            code = f"import sys; sys.modules['{framework}'] = None; import libadamod.{module}"
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, stderr=subprocess.PIPE, universal_newlines=True, timeout=LIMIT)
            told = done.stderr.splitlines()[-1]
            self.assertIn(f"ImportError: libadamod.{module} needs {needed}: import of {framework} halted", told)
            self.assertEqual(done.stderr.count("Traceback"), 1)  # without the error it came from

    def test_options_tell_bounds_and_choices(self):
        options = libadamod.options("adamod")
        self.assertEqual(options["flavour"].choices, ("paper", "published", "keras", "adamd"))
        self.assertEqual((options["beta3"].value, options["beta3"].max), (0.999, 1.0))
        with self.assertRaisesRegex(ValueError, "did you mean 'adamod'"):
            libadamod.options("adamodd")

    def test_every_argument_is_explained(self):
        """In the docstring of its class, or of the one it refers to."""
        try:
            import libadamod.torch as lt
        except ImportError:
            self.skipTest("there is no PyTorch")
        for name in lt.__all__:
            cls = getattr(lt, name)
            if not isinstance(cls, type) or not issubclass(cls, lt.Optimizer) or cls is lt.Optimizer:
                continue
            text = cls.__doc__ + lt.Optimizer.__doc__ + (cls.__base__.__doc__ if "arguments are" in cls.__doc__ else "")
            for argument in inspect.signature(cls).parameters:
                self.assertRegex(text, rf"\n        {argument}: ", f"{name}: {argument}")
        for option in lt.Common.__annotations__:
            self.assertRegex(lt.Common.__doc__, rf"\b{option}\b")

    def test_the_page_names_the_rules_that_are_exceptions(self):
        try:
            import libadamod.torch as lt
        except ImportError:
            self.skipTest("there is no PyTorch")
        with open(os.path.join(ROOT, "docs", "pytorch.md"), encoding="utf-8") as f:
            page = " ".join(f.read().split())
        found = [getattr(lt, name) for name in lt.__all__ if isinstance(getattr(lt, name), type)]
        own = {cls.__name__: cls.rule for cls in found if issubclass(cls, lt.Optimizer) and cls is not lt.Optimizer}
        collected = [name for name in own if not getattr(lt, name)._states_tell_rates]
        unbounded = [name for name, rule in own.items() if "bound" not in libadamod.options(rule)]
        for sentence, names in (
            (r"The rates of ([A-Za-z, ]+) cannot be computed from their states", collected),
            (r"All but ([A-Za-z`, ]+) also take `bound", unbounded),
        ):
            said = re.search(sentence, page)
            self.assertIsNotNone(said, sentence)
            self.assertEqual(sorted(re.findall(r"[A-Z]\w+", said[1])), sorted(names), sentence)

    def test_nothing_is_said_at_exit(self):
        """Though an optimizer outlives the modules it needs."""
        code = (
            "import torch, libadamod.torch as lt; p = torch.nn.Parameter(torch.ones(3)); p.grad = torch.ones(3); "
            "o = lt.AdaMod([p]); o.step(); lt.optimizer._c.lib = None"
        )
        run = subprocess.run(
            [sys.executable, "-c", code], stderr=subprocess.PIPE, universal_newlines=True, timeout=LIMIT
        )
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_a_missing_library_is_named(self):
        run = subprocess.run(
            [sys.executable, "-c", "import libadamod"],
            env={**os.environ, "ADAMOD_LIBRARY": "/none.so"},
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=LIMIT,
        )
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("/none.so", run.stderr)


if __name__ == "__main__":
    unittest.main()
