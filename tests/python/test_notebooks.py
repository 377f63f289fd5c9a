"""The notebooks of examples/ run from their first cell to their last, without Jupyter and in small; each ends with a
cell that checks what it claims. What is stored in them came from a whole run.

SPDX-License-Identifier: MIT
"""

import glob
import json
import os
import subprocess
import sys
import unittest

import find_package  # noqa: F401

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")


def notebooks():
    for path in sorted(glob.glob(os.path.join(EXAMPLES, "*.ipynb"))):
        with open(path, encoding="utf-8") as file:
            yield os.path.basename(path), json.load(file)


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


class Notebooks(unittest.TestCase):
    def test_every_cell_runs_and_the_claim_holds(self):
        environment = dict(os.environ, ADAMOD_NOTEBOOK_FAST="1", MPLBACKEND="Agg", OMP_NUM_THREADS="1")
        ran = 0
        for name, notebook in notebooks():
            program = "\n\n".join("".join(cell["source"]) for cell in code_cells(notebook))
            self.assertRegex(program, r"(?m)^ *assert ", f"{name} checks nothing")
            done = subprocess.run(
                [sys.executable, "-"],
                input=program,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
            self.assertEqual(done.returncode, 0, f"{name}:\n{done.stdout}")
            ran += 1
        self.assertGreaterEqual(ran, 2)

    def test_stored_outputs_are_of_a_whole_run_and_small(self):
        for name, notebook in notebooks():
            self.assertEqual(notebook["nbformat"], 4)
            cells = code_cells(notebook)
            self.assertEqual([cell["execution_count"] for cell in cells], list(range(1, len(cells) + 1)), name)
            outputs = [output for cell in cells for output in cell["outputs"]]
            self.assertTrue(outputs, f"{name} has no outputs")
            self.assertNotIn("error", [output["output_type"] for output in outputs], name)
            pictures = [output for output in outputs if "image/png" in output.get("data", {})]
            self.assertLessEqual(len(pictures), 1, name)
            self.assertLess(len(json.dumps(notebook)), 100000, name)


if __name__ == "__main__":
    unittest.main()
