#!/usr/bin/env python3
"""Run directories that versions of this program left in tests/golden: every later one evaluates their checkpoints, reports on
them, uses their models, and goes on training where they stopped.

Numbers may differ in the last digits between processors, whose matrix products round differently. scripts/golden wrote the
files, and says what is in them.

SPDX-License-Identifier: MIT
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("ADAMOD", ROOT / "build" / "adamod")
GOLDEN = ROOT / "tests" / "golden"
CLOCKS = {"seconds", "time", "tokens_per_second", "images_per_second"}
USES = {"numbers": ("translate", "zwei\n"), "language": ("generate", "")}


def run(*arguments, said=""):
    done = subprocess.run([PROGRAM, *map(str, arguments)], input=said, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, arguments))} failed: {done.stderr}")
    return done.stdout


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


class GoldenRuns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.golden = sorted(GOLDEN.glob("*/runs/*"))
        self.assertGreaterEqual(len(self.golden), 3)  # those of version 0.1

    def unpack(self, golden):
        place = self.folder / golden.parent.parent.name / golden.name
        place.mkdir(parents=True)
        with tarfile.open(golden / "run.tar.xz") as archive:
            archive.extractall(place)
        return place / "run"

    def check_same(self, found, recorded, what):
        for key, value in recorded.items():
            if key in CLOCKS:
                continue
            self.assertIn(key, found, what)
            if isinstance(value, float):
                self.assertTrue(math.isclose(found[key], value, rel_tol=1e-4), f"{what}: {key} {found[key]}, not {value}")
            else:
                self.assertEqual(found[key], value, f"{what}: {key}")

    def test_checkpoints_are_evaluated(self):
        for golden in self.golden:
            directory = self.unpack(golden)
            recorded = lines((golden / "evaluate.json").read_text())
            self.assertGreaterEqual(len(recorded), 2)
            for evaluation in recorded:
                found = lines(run("evaluate", directory, "--checkpoint", evaluation["checkpoint"], "--json"))[0]
                self.check_same(found, evaluation, f"{golden} {evaluation['checkpoint']}")

    def test_training_goes_on(self):
        for golden in self.golden:
            directory = self.unpack(golden)
            before = lines((directory / "metrics.jsonl").read_text())
            recorded = lines((golden / "resumed.jsonl").read_text())
            run("train", "--resume", "--out", directory, "--set", "train.steps=10")
            after = lines((directory / "metrics.jsonl").read_text())
            kept = len(after) - len(recorded)
            self.assertEqual(after[:kept], before[:kept], golden)
            self.assertEqual(kept, len([x for x in before if x["kind"] in ("train", "valid")]), golden)
            for found, line in zip(after[kept:], recorded):
                self.check_same(found, line, f"{golden} {line['kind']} {line['step']}")
            result = json.loads((directory / "result.json").read_text())
            self.assertEqual((result["status"], result["step"]), ("finished", 10), golden)

    def test_reports_show_them(self):
        runs = [self.unpack(golden) for golden in self.golden]
        page = self.folder / "page.html"
        table = run("report", *runs, "-o", page)
        text = page.read_text(encoding="utf-8")
        for golden, directory in zip(self.golden, runs):
            loss = json.loads((directory / "result.json").read_text())["training_loss"]
            self.assertIn(f"{loss:.2f}", text, golden)
            self.assertIn(golden.name, table + text, golden)

    def test_models_are_used(self):
        for golden in self.golden:
            if golden.name in USES:
                command, said = USES[golden.name]
                self.assertTrue(run(command, self.unpack(golden), said=said), golden)


if __name__ == "__main__":
    if subprocess.run([PROGRAM, "help", "train"], capture_output=True).returncode:
        sys.exit(77)  # built without the trainer
    unittest.main()
