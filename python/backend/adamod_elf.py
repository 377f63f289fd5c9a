"""The machines that a shared library runs on, as a wheel's tag (PEP 600), found by readelf.

SPDX-License-Identifier: MIT
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig

_MACHINES = {3: "i686", 62: "x86_64", 183: "aarch64"}  # e_machine

# Libraries that every Linux with glibc has. Others would have to be in the wheel. The C++ compiler's libraries are on
# every system too, but glibc's version does not tell theirs: we allow the versions of gcc 4.8, as manylinux2014 does.
_EVERYWHERE = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux[-a-z0-9_]*)\.so\.\d+$")
_NEWEST = {"GLIBCXX": (3, 4, 19), "CXXABI": (1, 3, 7), "GCC": (4, 8, 0)}


def platform(path):
    """The platform that a library is for: linux_x86_64. It may be another than this machine's."""
    with open(path, "rb") as file:
        head = file.read(20)
    machine = _MACHINES.get(struct.unpack("<16xHH", head)[1]) if head[:4] == b"\x7fELF" and len(head) == 20 else None
    return f"linux_{machine}" if machine else re.sub(r"[-.]", "_", sysconfig.get_platform())


def _readelf(path):
    if not shutil.which("readelf"):
        sys.exit("libadamod: a manylinux wheel needs readelf, of binutils, and there is none in PATH")
    # For any processor, whichever this one is.
    done = subprocess.run(
        ["readelf", "--wide", "--dynamic", "--version-info", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode != 0:
        sys.exit(f"libadamod: readelf cannot read {path}: {done.stdout.strip()}")
    return done.stdout


def _numbers(text):
    return tuple(int(part) for part in text.split("."))


def manylinux(paths):
    """The platform of the systems that can load libraries: manylinux_2_34_x86_64 needs glibc 2.34."""
    oldest = (0, 0)
    for path in paths:
        text = _readelf(path)
        foreign = [name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text) if not _EVERYWHERE.match(name)]
        if foreign:
            sys.exit(
                f"libadamod: {path.name} needs {', '.join(foreign)}, which not every Linux has: no manylinux wheel"
            )
        versions = set(re.findall(r"Name: ((?:GLIBC|GLIBCXX|CXXABI|GCC)_\S+)", text))
        for version in sorted(versions):
            kind, _, number = version.partition("_")
            if not re.fullmatch(r"\d+(\.\d+)+", number) or _numbers(number) > _NEWEST.get(kind, (2, 999)):
                sys.exit(f"libadamod: {path.name} needs {version}, which not every Linux has: no manylinux wheel")
        glibc = [_numbers(version[len("GLIBC_") :])[:2] for version in versions if version.startswith("GLIBC_")]
        if not glibc:
            sys.exit(f"libadamod: {path.name} needs no symbol of glibc, expected GLIBC_2.N: no manylinux wheel")
        oldest = max([oldest, *glibc])
    return platform(paths[0]).replace("linux_", f"manylinux_{oldest[0]}_{oldest[1]}_", 1)
