"""Modules that the tests' processes find imported (processes.py). Not every PyTorch has all of it.

SPDX-License-Identifier: MIT
"""

import contextlib
import importlib

import processes

for name in processes._PRELOADED:
    with contextlib.suppress(Exception):  # Debian's PyTorch 1.13 has an FSDP that its Python 3.11 cannot import
        importlib.import_module(name)
