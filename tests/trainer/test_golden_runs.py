#!/usr/bin/env python3
"""Run directories and studies that versions of this program left in tests/golden: every later one evaluates their
checkpoints, reports on them, uses their models, goes on training where they stopped, and makes the same tables. Run
directories of a version that is still to come are refused.

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
USES = {"numbers": ("translate", "zwei\n"), "language": ("generate", ""), "gpt": ("generate", "")}


def start(*arguments, said=""):
    command = [PROGRAM, *map(str, arguments)]
    return subprocess.run(command, input=said, capture_output=True, encoding="utf-8", errors="replace")


def run(*arguments, said=""):
    done = start(*arguments, said=said)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, arguments))} failed: {done.stderr}")
    return done.stdout


def data_of(directory):
    """The flags that tell a run where its files are now."""
    data = directory.parent / "data"
    return ["--set", f"data.path={data}", "--set", f"data.bpe={data}"] if data.exists() else []


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


class GoldenRuns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.golden = sorted(GOLDEN.glob("*/runs/*"))
        self.assertGreaterEqual(len(self.golden), 4)  # those of version 0.1

    def extract(self, path):
        place = self.folder / path.relative_to(GOLDEN).parent
        place.mkdir(parents=True)
        with tarfile.open(path) as archive:
            archive.extractall(place)
        return place

    def unpack(self, golden):
        return self.extract(golden / "run.tar.xz") / "run"

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
                found = lines(run("evaluate", directory, "--checkpoint", evaluation["checkpoint"], "--json",
                                  *data_of(directory)))[0]
                self.check_same(found, evaluation, f"{golden} {evaluation['checkpoint']}")

    def test_training_goes_on(self):
        for golden in self.golden:
            directory = self.unpack(golden)
            before = lines((directory / "metrics.jsonl").read_text())
            recorded = lines((golden / "resumed.jsonl").read_text())
            run("train", "--resume", "--out", directory, "--set", "train.steps=10", *data_of(directory))
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
                directory = self.unpack(golden)
                self.assertTrue(run(command, directory, *data_of(directory), said=said), golden)

    def test_studies_make_the_same_tables(self):
        studies = sorted(GOLDEN.glob("*/study"))
        self.assertGreaterEqual(len(studies), 1)
        for golden in studies:
            place = self.extract(golden / "study.tar.xz")
            run("reproduce", "--plan", place / "plan.yaml", "--from", place / "records", "--out", place / "page")
            recorded = (golden / "table.csv").read_text().splitlines()
            found = (place / "page" / "tables" / "table1.csv").read_text().splitlines()
            self.assertEqual(found[0].split(",")[: len(recorded[0].split(","))], recorded[0].split(","), golden)
            self.assertEqual(len(found), len(recorded), golden)
            for row, was in zip(found[1:], recorded[1:]):
                self.assertEqual(row.split(",")[: len(was.split(","))], was.split(","), golden)

    def test_directories_of_newer_versions_are_refused(self):
        directory = self.unpack(next(golden for golden in self.golden if golden.name == "numbers"))
        about = directory / "task.json"
        task = {key: value for key, value in json.loads(about.read_text()).items() if key != "format"}
        about.write_text(json.dumps({"format": 1, **task}))
        run("report", directory, "-o", self.folder / "page.html")
        about.write_text(json.dumps({"format": 2, **task}))
        with open(directory / "recipe.yaml", "a") as recipe:
            recipe.write("later: 1\n")  # the number is the first that is looked at
        before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        why = f"{directory}: a run directory of format 2, which a newer version made, expected at most 1"
        new = self.folder / "none"
        for command in (["report", directory, "-o", new], ["evaluate", directory], ["translate", directory],
                        ["train", "--resume", "--out", directory],
                        ["train", self.recipe_like(directory), "--out", new, "--init-from", directory],
                        ["train", self.recipe_like(directory), "--out", new, "--set", f"data.vocabularies={directory}"]):
            self.refuses(command, why)
        self.assertEqual(before, {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()})
        self.assertFalse(new.exists())

    def test_vocabularies_of_newer_versions_are_refused(self):
        directory = self.folder / "run"
        directory.mkdir()
        (directory / "task.json").write_text('{"format": 2}')
        (directory / "words.vocab").write_text("<eos> 2\na 2\n")
        for name in ("train", "valid", "test"):
            (directory / f"{name}.txt").write_text("a\na\n")
        recipe = self.folder / "words.yaml"
        recipe.write_text("data: {task: language, set: text, path: run, vocabularies: run}\nmodel: {kind: lstm}\n")
        why = f"{directory}: a run directory of format 2, which a newer version made, expected at most 1"
        self.refuses(["train", recipe, "--out", self.folder / "none"], why)
        self.assertFalse((self.folder / "none").exists())

    def test_checkpoints_of_newer_versions_are_refused(self):
        directory = self.unpack(next(golden for golden in self.golden if golden.name == "numbers"))
        for name in ("averaged", "last"):
            self.make_newer(directory / "checkpoints" / f"{name}.safetensors")
        found = "a newer version's checkpoint: its format is 'adamod checkpoint 2', expected 'adamod checkpoint 1'"
        for source, name in ((directory, "averaged"), (directory / "checkpoints" / "last.safetensors", "last")):
            new = self.folder / f"from-{name}"
            path = directory / "checkpoints" / f"{name}.safetensors"
            self.refuses(["train", self.recipe_like(directory), "--out", new, "--init-from", source], f"{path}: {found}")
            self.assertFalse(new.exists())
        new = self.folder / "from-best"  # of this version
        run("train", self.recipe_like(directory), "--out", new, "--init-from", directory / "checkpoints" / "best.safetensors")
        self.assertTrue((new / "result.json").exists())

    def recipe_like(self, directory):
        """A copy of the run's recipe, without what a test has added."""
        path = self.folder / "like.yaml"
        lines = (directory / "recipe.yaml").read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith("later:")))
        return path

    def make_newer(self, path):
        """Raises the number of a checkpoint's format. Without its checksums, which are optional, the rest is intact."""
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        about = {key: value for key, value in header["__metadata__"].items() if not key.startswith("crc32")}
        self.assertEqual(about["format"], "adamod checkpoint 1")
        header["__metadata__"] = {**about, "format": "adamod checkpoint 2"}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])

    def refuses(self, command, why):
        """Status 1, and nothing but one line."""
        done = start(*command)
        self.assertEqual((done.returncode, done.stdout), (1, ""), command)
        self.assertEqual(done.stderr, f"adamod: {command[0]}: {why}\n", command)


if __name__ == "__main__":
    if subprocess.run([PROGRAM, "help", "train"], capture_output=True).returncode:
        sys.exit(77)  # built without the trainer
    unittest.main()
