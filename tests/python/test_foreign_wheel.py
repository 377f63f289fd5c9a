"""The wheel for 64-bit Arm, built on another processor: what it says it is for, and that the library in it works, under
qemu. Skipped where there is no cross compiler.

SPDX-License-Identifier: MIT
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from test_packaging import ROOT, run

PROGRAM = """
#include <adamod.h>
#include <dlfcn.h>
#include <stdio.h>

static void *library;
#define LOAD(name) __typeof__(&name) name##_ = (__typeof__(&name))dlsym(library, #name); if (!name##_) return 3

int main(int argc, char **argv) {
    float p[3] = {1, 2, 3};
    const float g[3] = {1, -1, 0.5f};
    const int64_t shape[1] = {3};
    adamod_optimizer *opt;
    library = dlopen(argv[argc - 1], RTLD_NOW);
    if (!library) return fprintf(stderr, "%s\\n", dlerror()), 2;
    LOAD(adamod_create); LOAD(adamod_set); LOAD(adamod_add); LOAD(adamod_step); LOAD(adamod_version_string);
    if (adamod_create_(&opt, "adamod") || adamod_set_(opt, "lr", 0.01)) return 4;
    if (adamod_add_(opt, "p", p, g, 1, shape)) return 4;
    for (int i = 0; i < 3; i++) if (adamod_step_(opt)) return 5;
    printf("%s %d %d\\n", adamod_version_string_(), p[0] < 1, p[1] > 2);
    return 0;
}
"""


@unittest.skipUnless(
    shutil.which("aarch64-linux-gnu-gcc") and os.uname().machine == "x86_64", "no cross compiler for Arm"
)
@unittest.skipUnless(shutil.which("cmake"), "there is no CMake")
class Arm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        quick = "-DCMAKE_C_FLAGS_RELEASE=-O0"
        run(f"{ROOT}/scripts/wheel", "--arch", "aarch64", cls.folder, PYTHON=sys.executable, ADAMOD_CMAKE_ARGS=quick)
        (cls.wheel,) = glob.glob(f"{cls.folder}/*.whl")
        with zipfile.ZipFile(cls.wheel) as wheel:
            wheel.extractall(f"{cls.folder}/site")
        cls.library = f"{cls.folder}/site/libadamod/libadamod.so.0"

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_its_name_says_what_it_is_for(self):
        name = os.path.basename(self.wheel)
        self.assertRegex(name, r"^libadamod-[\d.]+-py3-none-manylinux_2_\d+_aarch64\.whl$")
        (info,) = glob.glob(f"{self.folder}/site/*.dist-info/WHEEL")
        with open(info) as f:
            self.assertIn(f"Tag: {name.split('-', 2)[2][: -len('.whl')]}\n", f.read())

    def test_the_library_is_for_arm_and_needs_the_c_library_alone(self):
        said = run("readelf", "--wide", "--file-header", "--dynamic", self.library)
        self.assertRegex(said, r"Machine: +AArch64")
        needed = [line.split("[")[1].rstrip("]") for line in said.splitlines() if "(NEEDED)" in line]
        self.assertLessEqual(set(needed), {"libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1"})

    def test_this_processor_refuses_it(self):
        environment = {k: v for k, v in os.environ.items() if k != "ADAMOD_LIBRARY"}
        done = subprocess.run(
            [sys.executable, "-c", "import libadamod"],
            env={**environment, "PYTHONPATH": f"{self.folder}/site"},
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(
            done.stderr.splitlines()[-1], "is for aarch64, and this Python is for x86_64: install the package"
        )

    @unittest.skipUnless(shutil.which("qemu-aarch64"), "there is no qemu")
    def test_a_program_takes_steps_with_it(self):
        source, program = f"{self.folder}/program.c", f"{self.folder}/program"
        with open(source, "w") as f:
            f.write(PROGRAM)
        run("aarch64-linux-gnu-gcc", f"-I{ROOT}/lib/include", "-o", program, source, "-ldl")
        said = run("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", program, self.library)
        version = os.path.basename(self.wheel).split("-")[1]
        self.assertEqual(said.split(), [version, "1", "1"])


if __name__ == "__main__":
    unittest.main()
