"""Builds the wheel: CMake makes the C library, and it is packed beside the Python files.

A backend as PEP 517 describes it, and PEP 660 for `pip install -e`. It is here because those that exist would have to be downloaded first, and because
they tie a wheel to one version of Python, while this one, which is called through ctypes, serves all.

SPDX-License-Identifier: MIT
"""

import base64
import ctypes
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
import time
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


# ---- what is built, and telling of it ----


def _cores():
    return len(os.sched_getaffinity(0))


# Seconds of one core: the C library, and the CUDA one for each kind of GPU (measured with gcc 12 and CUDA 13).
_C_SECONDS, _CUDA_SECONDS = 40, 180

_CUDA_CHOICES = ("gpu", "auto", "on", "off")


def _terminal():
    """The terminal, on which a user sees a line at once: pip shows what is printed here only with -v, or when the build
    fails. None: there is no terminal."""
    try:
        return open("/dev/tty", "w")
    except OSError:
        return None


def _tell(text):
    terminal = _terminal()
    if terminal is None:
        print(f"{NAME}: {text}", flush=True)
        return
    with terminal:
        terminal.write(f"\r\033[K{NAME}: {text}\n")


def _gpus_by_nvidia_smi():
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if found.returncode != 0:
        return []
    return re.findall(r"^\s*(\d+)\.\d+\s*$", found.stdout.decode(errors="replace"), re.M)


def _gpus_by_driver():
    """The compute capabilities from the driver itself: a container may have no nvidia-smi, and an old one does not know
    compute_cap."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, major, majors = ctypes.c_int(), ctypes.c_int(), []
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    for device in range(count.value):  # 75: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        if cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device) == 0:
            majors.append(major.value)
    return majors


def _architectures(majors):
    """CMake's names of the GPUs of these compute capabilities, if the kernels support them; 100 has PTX too, for later
    GPUs."""
    kinds = {8: "80-real", 9: "90-real"}
    wanted = {kinds.get(int(major), "100") for major in majors if int(major) >= 8}
    return sorted(wanted, key=lambda name: int(name.split("-")[0]))


def _cuda_arguments(choice, given):
    """CMake's arguments for the CUDA library, the number of kinds of GPUs that it is built for, and why."""
    if any(argument.startswith("-DADAMOD_CUDA") for argument in given):
        return [], 0 if "-DADAMOD_CUDA=OFF" in given else 1, "as ADAMOD_CMAKE_ARGS says"
    if choice not in _CUDA_CHOICES:
        sys.exit(f"{NAME}: cuda is '{choice}', expected one of {', '.join(_CUDA_CHOICES)}")
    if choice == "off":
        return ["-DADAMOD_CUDA=OFF"], 0, "as was asked for"
    if choice in ("auto", "on"):  # -U: an editable build may have been for some only
        return ["-UADAMOD_CUDA_ARCHITECTURES", f"-DADAMOD_CUDA={choice.upper()}"], 3, "for all GPUs"
    wanted = _architectures(_gpus_by_nvidia_smi() or _gpus_by_driver())
    if not wanted:
        return ["-DADAMOD_CUDA=OFF"], 0, "there is no GPU here that it supports; ADAMOD_CUDA=on builds it"
    arguments = ["-DADAMOD_CUDA=AUTO", f"-DADAMOD_CUDA_ARCHITECTURES={';'.join(wanted)}"]
    return arguments, len(wanted), "for the GPUs here; ADAMOD_CUDA=on builds it for all"


def _tell_plan(cuda, kinds, why):
    """cuda: CMake has found all that the CUDA library needs."""
    if not cuda and kinds:
        kinds, why = 0, "there is no nvcc"
    minutes = max(1, round((_C_SECONDS + kinds * _CUDA_SECONDS) / _cores() / 60))
    also = f"and the CUDA one ({why})" if kinds else f"without the CUDA one ({why})"
    _tell(f"building the C library {also}: about {minutes} min. on {_cores()} cores")


# ---- building ----


def _run(*command, watch=None):
    """Runs a command, whose lines are printed, and shown to watch."""
    print("+", *command, flush=True)
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process = subprocess.Popen(command, universal_newlines=True, errors="replace", **pipes)
    for line in process.stdout:
        print(line, end="", flush=True)
        if watch is not None:
            watch(line)
    if process.wait() != 0:
        sys.exit(f"{NAME}: {command[0]} failed; its messages are above")


class _Progress:
    """Tells of each quarter of a build, from the lines of Ninja ("[12/60] ...") or make ("[ 20%] ...")."""

    def __init__(self):
        self.told = 0
        self.start = time.monotonic()

    def __call__(self, line):
        found = re.match(r"\[\s*(\d+)(?:/(\d+)|%)\]", line)
        if not found:
            return
        share = int(found[1]) / int(found[2] or 100)
        quarter = int(4 * share)
        if self.told < quarter < 4:
            self.told = quarter
            _tell(f"{25 * quarter} % compiled after {time.monotonic() - self.start:.0f} s")


def _build_libraries(folder, settings):
    """The shared libraries: libadamod, and libadamod_cuda where it is wanted (docs/pytorch.md says how to choose)."""
    if not shutil.which("cmake"):
        sys.exit(f"{NAME}: building needs CMake 3.22 or later and a C compiler, and there is no cmake")
    generator = ["-G", "Ninja"] if shutil.which("ninja") and not os.environ.get("CMAKE_GENERATOR") else []
    given = shlex.split(os.environ.get("ADAMOD_CMAKE_ARGS", ""))
    choice = (settings or {}).get("cuda") or os.environ.get("ADAMOD_CUDA") or "gpu"
    arguments, kinds, why = _cuda_arguments(choice, given)
    _run(
        "cmake",
        "-S",
        str(ROOT / "lib"),
        "-B",
        str(folder),
        *generator,
        "-DCMAKE_BUILD_TYPE=Release",
        "-DADAMOD_INSTALL=OFF",
        *arguments,
        *given,
    )
    _tell_plan("CMAKE_CUDA_COMPILER:" in (folder / "CMakeCache.txt").read_text(), kinds, why)
    progress = _Progress()
    _run("cmake", "--build", str(folder), "--config", "Release", "--parallel", str(_cores()), watch=progress)
    _tell(f"built in {time.monotonic() - progress.start:.0f} s")
    found = {}
    for path in sorted(folder.glob("libadamod*.so*")):
        # One name for each file, the one that other programs are linked with: libadamod.so.0.
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
        libraries = _build_libraries(Path(folder), config_settings)
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
    libraries = _build_libraries(ROOT / "build-python", config_settings)
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
