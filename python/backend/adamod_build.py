"""Builds the wheel: CMake makes the C library, and it is packed beside the Python files.

A backend as PEP 517 describes it, and PEP 660 for `pip install -e`. It is here because those that exist would have to be downloaded first, and because
they tie a wheel to one version of Python, while this one, which is called through ctypes, serves all.

SPDX-License-Identifier: MIT
"""

import base64
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "libadamod"
NAME = "libadamod"

METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: AdaMod, and every optimizer its paper names, for PyTorch and numpy
License: MIT
License-File: LICENSE
Keywords: adamod,adam,optimizer,deep-learning,pytorch,cuda,simd
Project-URL: Homepage, https://arxiv.org/abs/1910.12249
Classifier: Development Status :: 4 - Beta
Classifier: Intended Audience :: Developers
Classifier: Intended Audience :: Science/Research
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Python :: 3 :: Only
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Requires-Python: >=3.8
Provides-Extra: torch
Requires-Dist: torch>=1.13; extra == "torch"
Provides-Extra: timm
Requires-Dist: timm>=1.0.12; extra == "timm"
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Description-Content-Type: text/markdown

{description}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: adamod_build
Root-Is-Purelib: false
Tag: {tag}
"""


def _version():
    """The version lives in the public header and nowhere else."""
    header = (ROOT / "lib" / "include" / "adamod.h").read_text()
    return ".".join(
        re.search(rf"#define ADAMOD_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")
    )


def _tag():
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def _metadata():
    description = (ROOT / "README.md").read_text()
    return METADATA.format(name=NAME, version=_version(), description=description)


def _run(*command):
    print("+", *command, flush=True)
    if subprocess.call(command) != 0:
        sys.exit(f"{NAME}: {command[0]} failed; its messages are above")


def _build_libraries(folder):
    """The shared libraries: libadamod, and libadamod_cuda where CMake finds what it needs for it.

    ADAMOD_CMAKE_ARGS in the environment is given to CMake, say -DADAMOD_CUDA_ARCHITECTURES=90 or -DADAMOD_CUDA=OFF.
    """
    if not shutil.which("cmake"):
        sys.exit(f"{NAME}: building needs CMake 3.22 or later and a C compiler, and there is no cmake")
    generator = ["-G", "Ninja"] if shutil.which("ninja") and not os.environ.get("CMAKE_GENERATOR") else []
    _run(
        "cmake",
        "-S",
        str(ROOT / "lib"),
        "-B",
        str(folder),
        *generator,
        "-DCMAKE_BUILD_TYPE=Release",
        "-DADAMOD_INSTALL=OFF",
        *shlex.split(os.environ.get("ADAMOD_CMAKE_ARGS", "")),
    )
    _run("cmake", "--build", str(folder), "--config", "Release", "--parallel", str(os.cpu_count() or 1))
    found = {}
    for path in sorted(folder.glob("libadamod*.so*")):
        # Of the names that lead to one file, the one other programs are linked with: libadamod.so.0.
        name = re.match(r"libadamod\w*\.so(\.\d+)?$", path.name)
        if name:
            found[path.resolve()] = path.name
    if not found:
        sys.exit(f"{NAME}: CMake made no shared library in {folder}")
    return {name: path.read_bytes() for path, name in found.items()}


class _Wheel:
    """A zip file with a list of what is in it."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, mode=0o644):
        data = data.encode() if isinstance(data, str) else data
        info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # the same wheel from the same sources
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, dist_info):
        self.record.append(f"{dist_info}/RECORD,,")
        self.zip.writestr(zipfile.ZipInfo(f"{dist_info}/RECORD", (2020, 1, 1, 0, 0, 0)), "\n".join(self.record) + "\n")
        self.zip.close()


def _dist_info():
    return f"{NAME}-{_version()}.dist-info"


def _write_wheel(wheel_directory, files):
    """A wheel of (name, data, mode), and what every wheel has besides."""
    name = f"{NAME}-{_version()}-{_tag()}.whl"
    target = Path(wheel_directory) / name
    wheel = _Wheel(f"{target}.tmp")
    for file in files:
        wheel.add(*file)
    wheel.add(f"{_dist_info()}/METADATA", _metadata())
    wheel.add(f"{_dist_info()}/LICENSE", (ROOT / "LICENSE").read_bytes())
    wheel.add(f"{_dist_info()}/WHEEL", WHEEL.format(tag=_tag()))
    wheel.close(_dist_info())
    os.replace(f"{target}.tmp", target)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as folder:
        libraries = _build_libraries(Path(folder))
    files = [
        (path.relative_to(PACKAGE.parent).as_posix(), path.read_bytes(), 0o644)
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix == ".py" or path.name == "py.typed"
    ]
    return _write_wheel(
        wheel_directory, files + [(f"{NAME}/{library}", data, 0o755) for library, data in libraries.items()]
    )


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel that points to the sources. The library is built in build-python, and put beside the Python files, where
    the package looks for it; after a change of the C sources, install again."""
    libraries = _build_libraries(ROOT / "build-python")
    for old in PACKAGE.glob("libadamod*.so*"):
        old.unlink()
    for library, data in libraries.items():
        (PACKAGE / library).write_bytes(data)
    return _write_wheel(wheel_directory, [(f"{NAME}.pth", f"{PACKAGE.parent}\n", 0o644)])


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = Path(metadata_directory) / _dist_info()
    folder.mkdir()
    (folder / "METADATA").write_text(_metadata())
    (folder / "WHEEL").write_text(WHEEL.format(tag=_tag()))
    return _dist_info()


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel

SOURCES = ["LICENSE", "README.md", "pyproject.toml", "lib", "docs", "python"]


def _wanted(info):
    name = Path(info.name).name
    unwanted = name == "__pycache__" or name.startswith(".") or re.search(r"\.(pyc|o|tmp|so(\..*)?)$", name)
    return None if unwanted else info


def build_sdist(sdist_directory, config_settings=None):
    base = f"{NAME}-{_version()}"
    name = f"{base}.tar.gz"
    target = Path(sdist_directory) / name
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder) / "PKG-INFO"
        info.write_text(_metadata())
        with tarfile.open(f"{target}.tmp", "w:gz", format=tarfile.PAX_FORMAT) as tar:
            tar.add(info, f"{base}/PKG-INFO")
            for source in SOURCES:
                tar.add(ROOT / source, f"{base}/{source}", filter=_wanted)
    os.replace(f"{target}.tmp", target)
    return name
