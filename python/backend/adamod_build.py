"""Builds the wheels: CMake makes the C library, and it is packed beside the Python files.

A backend as PEP 517 describes it, and PEP 660 for `pip install -e`. It is here because those that exist would have to be
downloaded first, and because they tie a wheel to one version of Python, while this one, which is called through ctypes,
serves all.

The same sources and tools give the same archives, bit for bit, in any folder. The time of their files is
SOURCE_DATE_EPOCH, or 2020.

SPDX-License-Identifier: MIT
"""

import base64
import contextlib
import ctypes
import gzip
import hashlib
import io
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

import adamod_elf

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "libadamod"
NAME = "libadamod"

# The CUDA library as a package of its own, beside a libadamod without it. A driver of CUDA 13 is 580 or later.
CUDA_NAME, CUDA_PACKAGE, CUDA_MAJOR, CUDA_DRIVER = "libadamod-cuda13", "libadamod_cuda13", 13, 580

METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: AdaMod, and every optimizer its paper names, for PyTorch, JAX, Keras and numpy
License: MIT
Keywords: adamod,adam,optimizer,deep-learning,pytorch,jax,keras,cuda,simd
Project-URL: Homepage, https://arxiv.org/abs/1910.12249
Classifier: Development Status :: 5 - Production/Stable
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
Provides-Extra: cuda
Requires-Dist: {cuda}=={version}; extra == "cuda"
Provides-Extra: torch
Requires-Dist: torch>=1.13; extra == "torch"
Provides-Extra: timm
Requires-Dist: timm>=1.0.12; extra == "timm"
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Provides-Extra: jax
Requires-Dist: jax; extra == "jax"
Requires-Dist: optax; extra == "jax"
Provides-Extra: keras
Requires-Dist: keras>=3; extra == "keras"
Description-Content-Type: text/markdown

{description}"""

CUDA_METADATA = """\
Metadata-Version: 2.1
Name: {cuda}
Version: {version}
Summary: libadamod's CUDA library, for NVIDIA GPUs: pip install {name}[cuda]
License: MIT
Keywords: adamod,optimizer,cuda
Project-URL: Homepage, https://arxiv.org/abs/1910.12249
Classifier: Development Status :: 5 - Production/Stable
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Python :: 3 :: Only
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Requires-Python: >=3.8
Requires-Dist: {name}=={version}
Description-Content-Type: text/markdown

# {cuda}

The CUDA library of {name} {version}. Install it by

    pip install {name}[cuda]

It needs an NVIDIA GPU of compute capability 8.0 (A100) or later, and driver {driver} or later (CUDA {major}). It needs
no CUDA toolkit. Installed it takes {mib:.0f} MiB. It works with {name} {version} alone.
"""

CUDA_INIT = """\
\"\"\"libadamod_cuda.so.0, the CUDA library of libadamod, which finds it here.

SPDX-License-Identifier: MIT
\"\"\"

__version__ = "{version}"
"""

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


# A link or a picture of Markdown whose target is a file of the project, not an address or a place in the page.
_RELATIVE = re.compile(r"(!?)\[((?:[^\[\]])*)\]\((?![a-z]+:|#)([^()\s]+)\)")


def _address():
    """The address of the project's files, without a slash at the end: ADAMOD_URL. None: not known."""
    given = os.environ.get("ADAMOD_URL", "").rstrip("/")
    if given and not re.fullmatch(r"https?://[^\s()<>\"]+", given):
        sys.exit(f"{NAME}: ADAMOD_URL is '{given}', expected an address such as https://example.org/adamod/blob/v1.0.0")
    return given or None


def _page(text, address):
    """README.md for a page elsewhere, where its relative links lead nowhere: they become those of the project's files, or
    without an address their text. Hosts of git show a file under .../blob/... or .../src/..., and give a picture's bytes
    under .../raw/...."""
    raw = re.sub(r"/(blob|src)/", "/raw/", address, count=1) if address else None

    def absolute(link):
        picture, words, path = link.groups()
        if not address:
            return "" if picture else words
        return f"{picture}[{words}]({raw if picture else address}/{path})"

    text = _RELATIVE.sub(absolute, text)
    return text if address else text.rstrip("\n") + "\n\nFiles that this page names are in the project's sources.\n"


def _metadata():
    address = _address()
    description = _page((ROOT / "README.md").read_text(), address)
    text = METADATA.format(name=NAME, version=_version(), cuda=CUDA_NAME, description=description)
    if not address:
        return text
    homepage = "Project-URL: Homepage"
    return text.replace(homepage, f"Project-URL: Source, {address}\n{homepage}", 1)


def _time():
    """The time of all files in an archive, in seconds since 1970; zip files begin in 1980."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "1577836800")
    if not given.isdigit() or int(given) < 315532800:
        sys.exit(f"{NAME}: SOURCE_DATE_EPOCH is '{given}', expected seconds since 1970, from 1980 on")
    return int(given)


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
    if choice not in _CUDA_CHOICES:
        sys.exit(f"{NAME}: cuda is '{choice}', expected one of {', '.join(_CUDA_CHOICES)}")
    if choice == "off":
        return ["-DADAMOD_CUDA=OFF"], 0, "as was asked for"
    if any(argument.startswith("-DADAMOD_CUDA") for argument in given):
        return [], 0 if "-DADAMOD_CUDA=OFF" in given else 1, "as ADAMOD_CMAKE_ARGS says"
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
    with subprocess.Popen(command, universal_newlines=True, errors="replace", **pipes) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            if watch is not None:
                watch(line)
    if process.returncode != 0:
        sys.exit(f"{NAME}: {getattr(watch, 'error', None) or command[0] + ' failed; its messages are above'}")


class _Errors:
    """Keeps the first thing that CMake lacks, a compiler or nvcc or a newer CMake, in one line. It says "CMake Error at
    FILE:", then lines that begin with blanks, then others."""

    def __init__(self):
        self.error, self.open = None, False

    def __call__(self, line):
        found = re.match(r"CMake Error(?: at .*:$|: ?(.*))", line)
        if found and self.error is None:
            self.error, self.open = found[1] or "", True
        elif self.open and line.startswith("  "):
            self.error = f"{self.error} {line.strip()}".strip()
        elif self.error and not self.error.endswith(":"):
            self.open = False


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


def _check_tools(given):
    """CMake takes many lines to say that there is no compiler. given: the user's arguments, which may name one."""
    named = os.environ.get("CC") or re.search(r"CMAKE_C_COMPILER=|CMAKE_TOOLCHAIN_FILE|--toolchain", " ".join(given))
    for what, programs in (
        ("cmake", ["cmake"]),
        ("C compiler (cc, gcc or clang)", [] if named else ["cc", "gcc", "clang", "icx"]),
        ("make or ninja", [] if os.environ.get("CMAKE_GENERATOR") else ["ninja", "make", "gmake"]),
    ):
        if programs and not any(map(shutil.which, programs)):
            sys.exit(f"{NAME}: building needs CMake 3.22 or later and a C compiler, and there is no {what}")


def _configure(folder, arguments):
    """CMake's first run, with arguments before the user's own."""
    given = shlex.split(os.environ.get("ADAMOD_CMAKE_ARGS", ""))
    _check_tools(given)
    generator = ["-G", "Ninja"] if shutil.which("ninja") and not os.environ.get("CMAKE_GENERATOR") else []
    always = ["-DCMAKE_BUILD_TYPE=Release", "-DADAMOD_INSTALL=OFF"]
    _run("cmake", "-S", str(ROOT / "lib"), "-B", str(folder), *generator, *always, *arguments, *given, watch=_Errors())


def _compile(folder, target):
    progress = _Progress()
    choice = ["--config", "Release", "--parallel", str(_cores()), "--target", target]
    _run("cmake", "--build", str(folder), *choice, watch=progress)
    _tell(f"built in {time.monotonic() - progress.start:.0f} s")


def _libraries(folder):
    """The shared libraries in a folder: of names that lead to one file, the one that programs are linked with,
    libadamod.so.0."""
    found = {}
    for path in sorted(folder.glob("libadamod*.so*")):
        if re.match(r"libadamod\w*\.so(\.\d+)?$", path.name):
            found[path.resolve()] = path
    if not found:
        sys.exit(f"{NAME}: CMake made no shared library in {folder}")
    return list(found.values())


def _build_libraries(folder, settings):
    """libadamod, and libadamod_cuda where it is wanted (docs/pytorch.md says how to choose)."""
    given = shlex.split(os.environ.get("ADAMOD_CMAKE_ARGS", ""))
    choice = (settings or {}).get("cuda") or os.environ.get("ADAMOD_CUDA") or "gpu"
    arguments, kinds, why = _cuda_arguments(choice, given)
    _configure(folder, arguments)
    _tell_plan("CMAKE_CUDA_COMPILER:" in (folder / "CMakeCache.txt").read_text(), kinds, why)
    _compile(folder, "all")
    return _libraries(folder)


def _build_cuda_library(folder):
    """libadamod_cuda alone, for all GPUs or those that ADAMOD_CMAKE_ARGS names, by the nvcc that CMake finds."""
    _configure(folder, ["-DADAMOD_CUDA=ON"])
    nvcc = re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.*)$", (folder / "CMakeCache.txt").read_text(), re.M)
    if not nvcc:
        sys.exit(f"{CUDA_NAME}: CMake was told to build without CUDA, or for another processor than this one")
    said = subprocess.run([nvcc[1], "--version"], stdout=subprocess.PIPE, universal_newlines=True).stdout
    major = re.search(r"release (\d+)\.", said)
    if not major or int(major[1]) != CUDA_MAJOR:
        sys.exit(f"{CUDA_NAME}: {nvcc[1]} is of CUDA {major[1] if major else '?'}, expected CUDA {CUDA_MAJOR}")
    _tell("building the CUDA library: 3 minutes of one core for each kind of GPU")
    _compile(folder, "adamod_cuda")
    (library,) = _libraries(folder)
    return library


class _Wheel:
    """A zip file with a list of what is in it."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.time = time.gmtime(_time())[:6]
        self.record = []

    def _write(self, name, data, mode):
        info = zipfile.ZipInfo(name, self.time)
        info.create_system = 3  # Unix, whose modes these are
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)

    def add(self, name, data, mode=0o644):
        data = data.encode() if isinstance(data, str) else data
        self._write(name, data, mode)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, dist_info):
        self.record.append(f"{dist_info}/RECORD,,")
        self._write(f"{dist_info}/RECORD", "\n".join(self.record) + "\n", 0o644)
        self.zip.close()


def _dist_info(name=NAME):
    return f"{name.replace('-', '_')}-{_version()}.dist-info"


def _write_wheel(wheel_directory, platform, files, name=NAME, metadata=None):
    """A wheel of (name, data, mode), and what every wheel has besides."""
    tag, dist_info = f"py3-none-{platform}", _dist_info(name)
    file_name = f"{dist_info[: -len('.dist-info')]}-{tag}.whl"
    target = Path(wheel_directory) / file_name
    try:
        wheel = _Wheel(f"{target}.tmp")
        for file in files:
            wheel.add(*file)
        wheel.add(f"{dist_info}/METADATA", metadata or _metadata())
        wheel.add(f"{dist_info}/LICENSE", (ROOT / "LICENSE").read_bytes())
        wheel.add(f"{dist_info}/WHEEL", WHEEL.format(tag=tag))
        wheel.close(dist_info)
        os.replace(f"{target}.tmp", target)
    finally:
        if os.path.exists(f"{target}.tmp"):
            os.unlink(f"{target}.tmp")
    return file_name


def _platform(libraries, settings):
    """The machines that libraries are for; manylinux=on: with any system whose C library is new enough."""
    choice = (settings or {}).get("manylinux", "off")
    if choice not in ("on", "off"):
        sys.exit(f"{NAME}: manylinux is '{choice}', expected on or off")
    return adamod_elf.manylinux(libraries) if choice == "on" else adamod_elf.platform(libraries[0])


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = [
        (path.relative_to(PACKAGE.parent).as_posix(), path.read_bytes(), 0o644)
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix == ".py" or path.name == "py.typed"
    ]
    with tempfile.TemporaryDirectory() as folder:
        libraries = _build_libraries(Path(folder), config_settings)
        platform = _platform(libraries, config_settings)
        files += [(f"{NAME}/{library.name}", library.read_bytes(), 0o755) for library in libraries]
    return _write_wheel(wheel_directory, platform, files)


def build_cuda_wheel(wheel_directory, config_settings=None):
    """The wheel of libadamod-cuda13; scripts/wheel calls this, pip does not."""
    with tempfile.TemporaryDirectory() as folder:
        library = _build_cuda_library(Path(folder))
        platform, data = _platform([library], config_settings), library.read_bytes()
    return write_cuda_wheel(wheel_directory, platform, data)


def write_cuda_wheel(wheel_directory, platform, data):
    version = _version()
    files = [
        (f"{CUDA_PACKAGE}/__init__.py", CUDA_INIT.format(version=version), 0o644),
        (f"{CUDA_PACKAGE}/libadamod_cuda.so.0", data, 0o755),
    ]
    numbers = dict(version=version, driver=CUDA_DRIVER, major=CUDA_MAJOR, mib=len(data) / 2**20)
    metadata = CUDA_METADATA.format(name=NAME, cuda=CUDA_NAME, **numbers)
    return _write_wheel(wheel_directory, platform, files, CUDA_NAME, metadata)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel that points to the sources. The library is built in build-python, and put beside the Python files, where
    the package looks for it; after a change of the C sources, install again."""
    libraries = _build_libraries(ROOT / "build-python", config_settings)
    for old in PACKAGE.glob("libadamod*.so*"):
        old.unlink()
    for library in libraries:
        (PACKAGE / library.name).write_bytes(library.read_bytes())
    platform = adamod_elf.platform(libraries[0])
    return _write_wheel(wheel_directory, platform, [(f"{NAME}.pth", f"{PACKAGE.parent}\n", 0o644)])


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = Path(metadata_directory) / _dist_info()
    folder.mkdir()
    (folder / "METADATA").write_text(_metadata())
    # The wheel itself is for the processor that the compiler is for.
    (folder / "WHEEL").write_text(WHEEL.format(tag="py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())))
    return _dist_info()


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel

SOURCES = ["LICENSE", "README.md", "pyproject.toml", "lib", "docs", "python"]


def _wanted(info):
    """A tarfile filter: leaves out what does not belong in the source archive, and makes the rest the same on any
    machine."""
    name = Path(info.name).name
    if name == "__pycache__" or name.startswith(".") or re.search(r"\.(pyc|o|tmp|so(\..*)?)$", name):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = _time()
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def build_sdist(sdist_directory, config_settings=None):
    base = f"{NAME}-{_version()}"
    name = f"{base}.tar.gz"
    target = Path(sdist_directory) / name
    with open(f"{target}.tmp", "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=_time()) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            metadata = _metadata().encode()
            info = tarfile.TarInfo(f"{base}/PKG-INFO")
            info.size = len(metadata)
            tar.addfile(_wanted(info), io.BytesIO(metadata))
            for source in SOURCES:
                tar.add(ROOT / source, f"{base}/{source}", filter=_wanted)  # which sorts a folder's files
    os.replace(f"{target}.tmp", target)
    return name


def main(what, folder):
    """For scripts/wheel: makes the source archive, a wheel without CUDA, or the CUDA library's, the last two for other
    machines; prints the file's name, and everything else to standard error."""
    many = {"cuda": "off", "manylinux": "on"}
    with contextlib.redirect_stdout(sys.stderr):
        if what == "sdist":
            name = build_sdist(folder)
        elif what == "wheel":
            name = build_wheel(folder, many)
        elif what == "cuda":
            name = build_cuda_wheel(folder, many)
        else:
            sys.exit(f"adamod_build: '{what}', expected sdist, wheel or cuda")
    print(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
