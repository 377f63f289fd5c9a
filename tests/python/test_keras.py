"""libadamod.keras with the backends that are installed, each in a process of its own. ADAMOD_REQUIRE_FRAMEWORKS=1 makes
a missing Keras or JAX an error.

SPDX-License-Identifier: MIT
"""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import unittest

import find_package  # noqa: F401

FOLDER = os.path.dirname(os.path.abspath(__file__))
REQUIRED = bool(os.environ.get("ADAMOD_REQUIRE_FRAMEWORKS"))


def installed(name, least=0):
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return importlib.util.find_spec(name) is not None and float(re.match(r"\d+\.\d+", version)[0]) >= least


@unittest.skipUnless(REQUIRED or installed("keras", 3), "there is no Keras 3")
class Backends(unittest.TestCase):
    def check(self, backend):
        run = subprocess.run(
            [sys.executable, "-W", "ignore", os.path.join(FOLDER, "keras_checks.py")],
            env={**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertRegex(run.stdout, r"Ran \d+ tests")

    @unittest.skipUnless(REQUIRED or installed("jax"), "there is no jax")
    def test_jax(self):
        self.check("jax")

    # Keras names types that PyTorch 1.13 does not have.
    @unittest.skipUnless(installed("torch", 2.1), "there is no PyTorch 2.1 or later")
    def test_torch(self):
        self.check("torch")


if __name__ == "__main__":
    unittest.main()
