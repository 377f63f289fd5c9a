"""The CUDA library as a package of its own, libadamod-cuda13: where it is found, and what is said of one that does not
fit. The tests compile one that says who it is; no GPU is needed.

SPDX-License-Identifier: MIT
"""

import email
import glob
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from unittest import mock

import find_package  # noqa: F401
import libadamod
from libadamod import _c
from test_packaging import ROOT, backend

SOURCE = """
#include "optim/device.h"
static const char *error(void) { return "the fake was asked"; }
static adamod_status count(int *devices) { *devices = 0; return ADAMOD_ERROR_NO_CUDA; }
static adamod_status begin(adamod__device **out, int index, int rule, const device_limit limits[OPT_COUNT]) {
    (void)out; (void)index; (void)rule; (void)limits;
    return ADAMOD_ERROR_NO_CUDA;
}
static const adamod__device_api api = {
    .version = ADAMOD__DEVICE_VERSION, .error = error, .count = count, .open = begin};
const adamod__device_api *adamod__cuda(void) { return &api; }
"""
STATUS = "from libadamod import _c; _c.load_cuda(); _c.check(_c.lib.adamod_cuda_status())"
HANDLE = "from libadamod.torch.devices import Handle; Handle('cuda:0', 'adamod', 0)"
if not importlib.util.find_spec("torch"):
    HANDLE = STATUS


@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class Plugin(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.build = backend()
        library = f"{cls.folder}/libadamod_cuda.so.0"
        includes = [f"-I{ROOT}/lib", f"-I{ROOT}/lib/include", "-Wl,-soname,libadamod_cuda.so.0"]
        compiler = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library, *includes]
        subprocess.run(compiler, input=SOURCE.encode(), check=True)
        with open(library, "rb") as f:
            cls.data = f.read()
        os.unlink(library)
        cls.library = shutil.copy(_c.lib._name, f"{cls.folder}/libadamod.so.0")  # with no CUDA library beside it

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def site(self, version, data=None):
        """A folder with the plugin of a version installed."""
        site = tempfile.mkdtemp(dir=self.folder)
        self.build._version = lambda: version
        name = self.build.write_cuda_wheel(site, "linux_x86_64", data or self.data)
        with zipfile.ZipFile(f"{site}/{name}") as wheel:
            wheel.extractall(site)
        return site

    def answer(self, site, code=STATUS, **environment):
        """The last line of what a program says that needs CUDA."""
        outside = {k: v for k, v in os.environ.items() if k != "ADAMOD_CUDA_LIBRARY"}
        path = ":".join(p for p in (site, os.environ.get("PYTHONPATH"), os.path.dirname(libadamod.__path__[0])) if p)
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**outside, "ADAMOD_LIBRARY": self.library, "PYTHONPATH": path, **environment},
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr.splitlines()[-1]

    def test_it_is_found(self):
        site = self.site(libadamod.__version__)
        for code in {STATUS, HANDLE}:
            self.assertRegex(self.answer(site, code), "^RuntimeError: .*the fake was asked$")

    def test_another_version_is_refused(self):
        site = self.site("0.0.7")
        for code in {STATUS, HANDLE}:
            ours = libadamod.__version__
            self.assertEqual(
                self.answer(site, code),
                f"RuntimeError: cuda: libadamod-cuda13 is version 0.0.7, expected {ours}, which libadamod is: "
                f"pip install libadamod[cuda]=={ours}",
            )

    def test_there_is_none(self):
        for code in {STATUS, HANDLE}:
            said = self.answer("", code)
            self.assertNotIn("libadamod-cuda0", said)
            self.assertRegex(said, r"^RuntimeError: cuda: libadamod_cuda.so.0 cannot be loaded: .*; pip install libadamod\[cuda\], or")

    def test_there_is_none_beside_a_library_of_the_system(self):
        library = f"{tempfile.mkdtemp(dir=self.folder)}/libadamod.so.0"
        os.symlink(self.library, library)
        said = self.answer("", ADAMOD_LIBRARY=library)
        self.assertRegex(said, "^RuntimeError: cuda: .*cannot be loaded: .*; install the package libadamod-cuda0$")

    def test_one_beside_the_library_comes_first(self):
        beside = shutil.copytree(self.site("0.0.7"), f"{self.folder}/beside")
        shutil.copy(f"{beside}/libadamod_cuda13/libadamod_cuda.so.0", beside)
        library = shutil.copy(self.library, beside)
        self.assertRegex(self.answer(beside, ADAMOD_LIBRARY=library), "^RuntimeError: .*the fake was asked$")

    def test_one_that_was_named_comes_first(self):
        said = self.answer(self.site("0.0.7"), ADAMOD_CUDA_LIBRARY="/nowhere/cuda.so")
        self.assertRegex(said, "^RuntimeError: cuda: .*/nowhere/cuda.so")

    def test_one_for_another_processor(self):
        data = self.data[:18] + b"\xf3\x00" + self.data[20:]  # RISC-V
        said = self.answer(self.site(libadamod.__version__, data))
        self.assertRegex(
            said, "^RuntimeError: cuda: .*libadamod_cuda.so.0 is for ELF machine 243, and this Python is for "
        )

    def test_an_old_c_library(self):
        error = OSError("libc.so.6: version `GLIBC_2.98' not found (required by x.so)")
        path = f"{self.folder}/old.so"
        with open(path, "wb") as f:
            f.write(b"\x7fELF\0GLIBC_2.2.5\0GLIBC_2.98\0GLIBC_2.99\0GLIBC_2.4\0")
        for name, needed in ((path, "2.99"), ("/x.so", "2.98")):
            with mock.patch.object(_c, "_machine", return_value=""):
                said = _c._why(name, error)
            self.assertRegex(said, f"^{name} needs glibc {needed} or later, and this system has glibc 2")

    def test_the_same_bytes_again(self):
        wheels = []
        for _ in range(2):
            (name,) = glob.glob(f"{self.site('1.2.3')}/*.whl")
            with open(name, "rb") as f:
                wheels.append(f.read())
            time.sleep(2.1)  # times in zip files have steps of 2 s
        self.assertTrue(wheels[0] == wheels[1], "the wheels differ")

    @unittest.skipIf(shutil.which("nvcc", path=f"{os.environ['PATH']}:/usr/local/cuda/bin"), "there is an nvcc")
    def test_without_nvcc_nothing_is_built(self):
        folder = f"{self.folder}/none"
        done = subprocess.run(
            [f"{ROOT}/scripts/wheel", "--cuda", folder],
            env={k: v for k, v in os.environ.items() if not k.startswith("CUDA")},
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        self.assertEqual((done.returncode, done.stderr), (1, "wheel: there is no nvcc in PATH or /usr/local/cuda/bin\n"))
        self.assertFalse(os.path.exists(folder))

    def test_metadata(self):
        site = self.site("1.2.3")
        with open(f"{site}/libadamod_cuda13-1.2.3.dist-info/METADATA") as f:
            metadata = email.message_from_file(f)
        self.assertEqual((metadata["Name"], metadata["Version"]), ("libadamod-cuda13", "1.2.3"))
        self.assertEqual(metadata["Requires-Dist"], "libadamod==1.2.3")
        self.assertIn("driver 580 or later (CUDA 13)", metadata.get_payload())
        self.assertRegex(metadata.get_payload(), r"Installed it takes \d+ MiB")
        extra = email.message_from_string(self.build._metadata())
        self.assertIn('libadamod-cuda13==1.2.3; extra == "cuda"', extra.get_all("Requires-Dist"))
        self.assertIn("cuda", extra.get_all("Provides-Extra"))


if __name__ == "__main__":
    unittest.main()
