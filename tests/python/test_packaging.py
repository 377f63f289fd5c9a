"""The package as others get it: from the source archive alone, without a network, as a wheel and editable; and what is
said where it cannot be built or imported. test_plugin.py has the CUDA library's package, test_foreign_wheel.py Arm's.

SPDX-License-Identifier: MIT
"""

import base64
import email
import glob
import hashlib
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
NUMPY = importlib.util.find_spec("numpy")
STEP = (
    "import libadamod.numpy as n, numpy as np; w = np.ones(3, np.float32); "
    "n.update('adamod', w, w.copy(), n.states('adamod', w), 1, lr=0.5); assert (w < 1).all(); print(n.__file__)"
)
LIMIT = 900  # seconds of a command, on a machine that does much else
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
        timeout=LIMIT,
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


def backend():
    sys.path.insert(0, f"{ROOT}/python/backend")  # as pip does, for the module beside it
    spec = importlib.util.spec_from_file_location("adamod_build", f"{ROOT}/python/backend/adamod_build.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
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
        for given in ([], ["-DADAMOD_CUDA_ARCHITECTURES=80"]):
            self.assertEqual(self.arguments([9], "off", given)[0], ["-DADAMOD_CUDA=OFF"])
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

    def test_what_cmake_lacks_is_one_line(self):
        for text, expected in (
            (
                "-- The C compiler identification is unknown\n"
                "CMake Error at CMakeLists.txt:8 (project):\n  No CMAKE_C_COMPILER could be found.\n\n"
                "  Tell CMake where to find the compiler by setting\n\n\n-- Configuring incomplete\n",
                "No CMAKE_C_COMPILER could be found.",
            ),
            (
                "CMake Error at CMakeLists.txt:1 (cmake_minimum_required):\n"
                "  CMake 3.22 or higher is required.  You are running version\n  3.18.4\n\n\nCMake Error: more\n",
                "CMake 3.22 or higher is required.  You are running version 3.18.4",
            ),
            ("CMake Error: CMake was unable to find Ninja\nmore\n\n", "CMake was unable to find Ninja"),
            ("-- Configuring done\n", None),
        ):
            errors = self.build._Errors()
            for line in text.splitlines(keepends=True):
                errors(line)
            self.assertEqual(errors.error, expected)

    def test_a_machine_without_tools_is_told_so(self):
        for environment, arguments, expected in (
            ({"PATH": "/nowhere"}, [], "building needs CMake 3.22 or later and a C compiler, and there is no cmake"),
            ({"CC": "/nowhere/cc"}, [], "Could not find compiler set in environment variable CC: /nowhere/cc.$"),
            ({}, ["-DADAMOD_NVCC="], "ADAMOD_CUDA is ON, and there is no nvcc in PATH"),
        ):
            with self.subTest(expected), tempfile.TemporaryDirectory() as folder:
                with mock.patch.dict(os.environ, {**environment, "ADAMOD_CMAKE_ARGS": " ".join(arguments)}):
                    with mock.patch("builtins.print"), self.assertRaises(SystemExit) as caught:
                        self.build._configure(self.build.Path(folder), ["-DADAMOD_CUDA=ON"])
                self.assertRegex(caught.exception.code, f"^libadamod: {expected}")
                self.assertNotIn("\n", caught.exception.code)

    def test_a_machine_without_a_compiler_is_told_so(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, PATH=folder, ADAMOD_CMAKE_ARGS=""):
            for variable in ("CC", "CMAKE_GENERATOR"):
                os.environ.pop(variable, None)
            lacking = {"cmake": "C compiler .cc, gcc or clang.", "gcc": "make or ninja", "make": None}
            for program, expected in lacking.items():
                with open(f"{folder}/{program}", "w") as f:
                    f.write("#!/bin/sh\nexit 1\n")
                os.chmod(f.name, 0o755)
                if expected:
                    with self.assertRaisesRegex(SystemExit, f"a C compiler, and there is no {expected}$"):
                        self.build._check_tools([])
            self.build._check_tools([])
            os.unlink(f"{folder}/gcc")
            self.build._check_tools(["-DCMAKE_C_COMPILER=/opt/cc"])

    def test_the_time_of_files(self):
        for given, expected in (("1700000000", 1700000000), ("yesterday", None), ("5", None)):
            with mock.patch.dict(os.environ, SOURCE_DATE_EPOCH=given):
                if expected:
                    self.assertEqual(self.build._time(), expected)
                    continue
                with self.assertRaisesRegex(SystemExit, f"SOURCE_DATE_EPOCH is '{given}', expected seconds"):
                    self.build._time()

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


class Page(unittest.TestCase):
    """What a package index reads: the metadata's fields, and README.md, whose relative links would lead nowhere."""

    README = "![A *curve*](docs/images/a.svg)\n\nThe [paper](https://x.org/1), [docs/a.md](docs/a.md#b), [`lib/`](lib), [up](#top)."

    def test_with_an_address(self):
        page = backend()._page(self.README, "https://example.org/me/adamod/blob/v1")
        self.assertEqual(
            page,
            "![A *curve*](https://example.org/me/adamod/raw/v1/docs/images/a.svg)\n\nThe [paper](https://x.org/1), "
            "[docs/a.md](https://example.org/me/adamod/blob/v1/docs/a.md#b), "
            "[`lib/`](https://example.org/me/adamod/blob/v1/lib), [up](#top).",
        )

    def test_without_an_address(self):
        page = backend()._page(self.README, None)
        self.assertEqual(
            page,
            "\n\nThe [paper](https://x.org/1), docs/a.md, `lib/`, [up](#top).\n\n"
            "Files that this page names are in the project's sources.\n",
        )

    def test_the_readme_has_no_dead_link(self):
        build = backend()
        with mock.patch.dict(os.environ, {"ADAMOD_URL": "https://example.org/adamod/blob/v1/"}):
            metadata = email.message_from_string(build._metadata())
        page, projects = metadata.get_payload(), metadata.get_all("Project-URL")
        self.assertIn("Source, https://example.org/adamod/blob/v1", projects)
        self.assertRegex(page, r"\]\(https://example.org/adamod/blob/v1/docs/tutorial-paper.md\)")
        self.assertRegex(page, r"!\[[^]]*\]\(https://example.org/adamod/raw/v1/docs/images/loss.svg\)")
        self.assertNotRegex(page, r"\]\((?!https?://|#)")
        for path in re.findall(r"example.org/adamod/(?:blob|raw)/v1/([^)#]+)", page):
            self.assertTrue(os.path.exists(f"{ROOT}/{path}"), path)

    def test_fields_are_of_the_metadata_version(self):
        """An index refuses a file with a field that its version of the metadata does not have."""
        build = backend()
        fields = (
            "Metadata-Version Name Version Platform Supported-Platform Summary Description Description-Content-Type "
            "Keywords Home-page Download-URL Author Author-email Maintainer Maintainer-email License Classifier Requires-Dist "
            "Requires-Python Requires-External Project-URL Provides-Extra Provides-Dist Obsoletes-Dist"
        ).split()
        numbers = dict(name=build.NAME, cuda=build.CUDA_NAME, version="1.0.0", driver=580, major=13, mib=1)
        for text in (build._metadata(), build.CUDA_METADATA.format(**numbers)):
            metadata = email.message_from_string(text)
            self.assertEqual(metadata["Metadata-Version"], "2.1")
            self.assertEqual(set(metadata.keys()) - set(fields), set())

    def test_what_is_no_address(self):
        for given in ("adamod", "file:///a", "https://a b"):
            with mock.patch.dict(os.environ, {"ADAMOD_URL": given}), self.assertRaises(SystemExit) as stop:
                backend()._metadata()
            self.assertIn(f"ADAMOD_URL is '{given}', expected an address", str(stop.exception))


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
        page = metadata.get_payload()
        self.assertIn("# adamod", page)
        self.assertNotRegex(page, r"\]\((?!https?://|#)")
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

    def test_it_is_for_many_linuxes(self):
        """A manylinux wheel needs only the C library; auditwheel says the same."""
        build = backend()
        with zipfile.ZipFile(self.wheel) as wheel:
            library = build.Path(wheel.extract("libadamod/libadamod.so.0", self.folder))
        platform = build.adamod_elf.manylinux([library])
        self.assertRegex(platform, r"^manylinux_2_\d+_\w+$")
        self.assertEqual(platform.split("_", 3)[3], os.uname().machine)
        if importlib.util.find_spec("auditwheel"):
            self.assertIn(f'"{platform}"', run(sys.executable, "-m", "auditwheel", "show", self.wheel))
        with self.assertRaisesRegex(SystemExit, "alone needs no symbol of glibc, expected GLIBC_2.N"):
            build.adamod_elf.manylinux([build.Path(self.fake("alone", "int f(void) { return 1; }", "-nostdlib"))])
        other = self.fake("libother.so.7", "int g(void) { return 1; }", "-Wl,-soname,libother.so.7")
        with self.assertRaisesRegex(SystemExit, "needs libother.so.7, which not every Linux has"):
            build.adamod_elf.manylinux(
                [build.Path(self.fake("needs", "int g(void); int f(void) { return g(); }", other))]
            )

    def fake(self, name, source, *arguments):
        with open(f"{self.folder}/{name}.c", "w") as f:
            f.write(source)
        run("cc", "-shared", "-fPIC", "-o", f"{self.folder}/{name}", f"{self.folder}/{name}.c", *arguments)
        return f"{self.folder}/{name}"

    def test_the_same_bytes_again(self):
        """From another folder, at another time, for another user; and nothing tells where it was built."""
        first, other = f"{self.folder}/{os.path.basename(self.sources)}.tar.gz", f"{self.folder}/other"
        shutil.copytree(self.sources, other)  # other times
        os.chmod(f"{other}/lib/include/adamod.h", 0o600)
        os.makedirs(f"{other}/again")
        make = "import sys; sys.path.insert(0, 'python/backend'); import adamod_build as b; b.build_sdist('again')"
        subprocess.run([sys.executable, "-B", "-c", make], cwd=other, check=True)
        with open(first, "rb") as a, open(f"{other}/again/{os.path.basename(first)}", "rb") as b:
            self.assertTrue(a.read() == b.read(), "the source archives differ")
        with zipfile.ZipFile(self.wheel) as wheel:
            library = wheel.read("libadamod/libadamod.so.0")
            times = {entry.date_time for entry in wheel.infolist()}
            modes = {entry.external_attr >> 16 for entry in wheel.infolist()}
        self.assertNotIn(os.path.basename(self.folder).encode(), library)
        self.assertEqual((len(times), modes), (1, {0o100644, 0o100755}))

    def test_what_is_listed_is_what_there_is(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
            (record,) = (n for n in names if n.endswith("/RECORD"))
            rows = [line.rsplit(",", 2) for line in wheel.read(record).decode().splitlines()]
            self.assertEqual([row[0] for row in rows], names)
            for name, digest, size in rows[:-1]:
                data = wheel.read(name)
                found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, int(size)), (f"sha256={found}", len(data)), name)
        self.assertEqual(rows[-1], [record, "", ""])

    def test_it_works_without_a_compiler_and_leaves_nothing_behind(self):
        venv = f"{self.folder}/venv"
        run(sys.executable, "-m", "venv", "--without-pip", venv)

        def files():
            return sorted(os.path.join(folder, name) for folder, _, names in os.walk(venv) for name in names)

        def pip(*arguments):
            return run(sys.executable, "-m", "pip", "--python", f"{venv}/bin/python", *arguments)

        before = files()
        pip("install", "--no-index", "--no-deps", self.wheel)
        beside = {"PYTHONPATH": os.path.dirname(os.path.dirname(NUMPY.origin))} if NUMPY else {}
        found = run(f"{venv}/bin/python", "-c", STEP if NUMPY else USE, PATH="/nowhere", **beside)
        self.assertTrue(found.startswith(f"{venv}/"), found)
        self.assertGreater(len(files()), len(before) + 5)
        pip("uninstall", "--yes", "libadamod")
        self.assertEqual(files(), before)

    def test_what_cannot_be_imported_is_one_line(self):
        site = f"{self.folder}/broken"
        with zipfile.ZipFile(self.wheel) as wheel:
            wheel.extractall(site)
        library = f"{site}/libadamod/libadamod.so.0"

        def refusal(**environment):
            command = [sys.executable, "-c", "import libadamod"]
            clean = {k: v for k, v in os.environ.items() if k != "ADAMOD_LIBRARY"}
            done = subprocess.run(
                command,
                env={**clean, "PYTHONPATH": site, **environment},
                stderr=subprocess.PIPE,
                universal_newlines=True,
            )
            self.assertEqual(done.returncode, 1, done.stderr)
            return done.stderr.splitlines()[-1]

        self.assertRegex(refusal(ADAMOD_LIBRARY="libm.so.6"), "libm.so.6 is of another version .*: it has no adamod_")
        shutil.copy(library, f"{site}/libadamod/libadamod.so.1")
        two = "libadamod.so.0, libadamod.so.1 in .*, expected one: two versions"
        self.assertRegex(refusal(), f"^ImportError: {two}")
        os.unlink(f"{site}/libadamod/libadamod.so.1")
        with open(library, "r+b") as f:
            f.seek(18)
            f.write(b"\xf3\x00")  # RISC-V
        self.assertRegex(refusal(), "^ImportError: .*libadamod.so.0 is for ELF machine 243, and this Python is for ")
        os.unlink(library)
        self.assertRegex(refusal(), "^ImportError: no libadamod.so in ")


if __name__ == "__main__":
    unittest.main()
