"""Tests import this before libadamod. If no package is installed, they use the one of this tree, with build/libadamod.so.

SPDX-License-Identifier: MIT
"""

import importlib.util
import os
import sys

if importlib.util.find_spec("libadamod") is None:
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    package = os.path.join(root, "python")
    sys.path.insert(0, package)
    # Processes that tests start read these.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    os.environ.setdefault("ADAMOD_LIBRARY", os.path.join(root, "build", "libadamod.so"))
