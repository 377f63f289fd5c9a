"""The program of docs/tutorial-pytorch.md runs, and what the page says about it holds.

SPDX-License-Identifier: MIT
"""

import contextlib
import io
import os
import re
import runpy
import tempfile
import unittest

import find_package  # noqa: F401

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "tutorial-pytorch.md")


class Tutorial(unittest.TestCase):
    def test_the_program_of_the_page(self):
        with open(PAGE, encoding="utf-8") as file:
            blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), flags=re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 5)
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as work:
            os.chdir(work)
            try:
                with open("swap.py", "w", encoding="utf-8") as file:
                    file.write("\n".join(blocks))
                with contextlib.redirect_stdout(io.StringIO()):
                    names = runpy.run_path("swap.py")
            finally:
                os.chdir(here)

        def end(losses):
            return sum(losses[-10:]) / 10

        self.assertGreater(end(names["before"]), 2.5)  # AdamW has not started
        self.assertLess(end(names["after"]), 2.0)  # AdaMod has
        self.assertLess(names["apart"], 1e-12)  # without the bound it is Adam
        self.assertAlmostEqual(names["ratio"], 0.01, places=6)
        self.assertLess(end(names["continued"]), end(names["continued"][:10]))


if __name__ == "__main__":
    unittest.main()
