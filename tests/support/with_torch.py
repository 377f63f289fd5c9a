"""The head of tests that compare with PyTorch, which import this first: modules or a skip, and where things are.

SPDX-License-Identifier: MIT
"""
import importlib
import os
import sys

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.environ.get("BUILD_DIR", os.path.join(SOURCE, "build"))
PROGRAM = os.environ.get("ADAMOD", os.path.join(SOURCE, "build", "adamod"))
sys.path.insert(0, os.path.join(SOURCE, "bench"))  # the peers


def needed(name):
    """A module. Without it the test is skipped (77), or fails if ADAMOD_REQUIRE_TORCH is set."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"skip: {error}")
        sys.exit(1 if os.environ.get("ADAMOD_REQUIRE_TORCH", "0") not in ("", "0") else 77)


torch = needed("torch")
torch.set_num_threads(1)
