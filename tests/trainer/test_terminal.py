#!/usr/bin/env python3
"""Nothing that a name holds speaks to the terminal: not in tables, not in messages, not in progress.

Names of runs, labels, units, files and flags have every character in them that a terminal obeys or that changes the order
of what it shows. ADAMOD is the program.

SPDX-License-Identifier: MIT
"""
import json
import os
import pty
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAM = os.environ.get("ADAMOD", os.path.join(ROOT, "build", "adamod"))

CONTROLS = [chr(i) for i in (*range(1, 0x20), *range(0x7F, 0xA0))]
DIRECTIONS = [chr(i) for i in (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x2070))]
NAME = "a\u009b31mb" + "".join(CONTROLS[32:]) + "".join(DIRECTIONS) + "\u00e4z"
# A file can have any but '/' and zero, and bytes that are not UTF-8.
FILE = os.fsencode("f\x1b[31m\nx" + NAME) + b"\x9b31m\xed\xa0\x80\xff"
SHORT = "s\u009b31m\u202e\u2067\u2028\u061c\u200ft"

RECIPE = """name: "%s"
data: {task: images, train: 16, valid: 8, test: 8, batch: 8}
model: {kind: resnet, blocks: "1,1", widths: "4,4"}
optimizer: {rule: adamod, lr: 3e-3}
train: {steps: 2, evaluate_every: 1, threads: 1, backend: cpu, progress_every: 1e-9}
"""


def escaped(text):
    return "".join(f"\\u{ord(c):04x}" if ord(c) > 0x7E else c for c in text)


class Terminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if subprocess.run([PROGRAM, "help", "train"], capture_output=True).returncode:
            raise unittest.SkipTest("built without the trainer")
        cls.folder = tempfile.TemporaryDirectory()
        os.chdir(cls.folder.name)
        with open("tiny.yaml", "w") as file:
            file.write(RECIPE % escaped(SHORT))
        cls.trained = cls.run_program("train", "tiny.yaml", "--out", "trained")

    @classmethod
    def tearDownClass(cls):
        os.chdir("/")
        cls.folder.cleanup()

    @staticmethod
    def run_program(*arguments, **keywords):
        result = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100,
                                **keywords)
        return result.returncode, result.stdout

    def check_harmless(self, said, expected=None):
        status, out = said
        text = out.decode()  # which fails if it is not UTF-8
        for c in CONTROLS + DIRECTIONS:
            if c != "\n":
                self.assertNotIn(c, text)
        if expected:
            self.assertRegex(text, expected)
        return status, text

    def test_training(self):
        self.check_harmless(self.trained, r"^(generating|\S*\s*step)")
        # a label goes into progress and into the last line
        said = self.run_program("compare", "tiny.yaml", "--variant", SHORT + ": optimizer.lr=1e-3", "--variant",
                                "plain: optimizer.lr=1e-2", "--set", "train.steps=1", "--out", "compared")
        status, text = self.check_harmless(said, r"(?m)^s\?31m\?+t: 1 update in")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"(?m)^s\?31m\?+t +[0-9]")  # its row of the table
        self.check_harmless(self.run_program("train", "tiny.yaml", "--out", FILE, "--set", "train.steps=1"), r"1 update")
        self.check_harmless(self.run_program("train", "tiny.yaml", "--out", FILE), r"(?m)^adamod: train: f\?\[31m\?xa\?31m")
        self.check_harmless(self.run_program("train", "tiny.yaml", "--dry-run"))

    def test_tables_of_reports(self):
        os.makedirs("run", exist_ok=True)
        with open("run/recipe.yaml", "w") as file:
            file.write(f'name: "{escaped(NAME)}"\n')
        with open("run/metrics.jsonl", "w") as file:
            file.write('{"kind":"train","step":1,"time":1,"loss":2,"points":7}\n{"kind":"valid","step":1,"q":0.5}\n')
        with open("run/task.json", "w") as file:
            metric = {"name": "q", "label": SHORT, "about": SHORT, "unit": SHORT, "signature": SHORT, "headline": True}
            json.dump({"about": NAME, "items": "points", "metrics": [metric]}, file)
        status, text = self.check_harmless(self.run_program("report", "run", "-o", b"out" + FILE + b".html"),
                                           r"(?m)^variant +a\?31mb")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"validation s\?31m\?+t s\?31m\?+")
        self.assertRegex(text, r"(?m)^s\?31m\?+t: s\?31m\?+t$")

    def test_files_as_they_are_named(self):
        os.makedirs(FILE, exist_ok=True)
        picture = FILE + b".png"
        with open(picture, "wb") as file:
            file.write(b"none")
        self.check_harmless(self.run_program("predict", "trained", picture), "neither PNG nor JPEG")
        with open(FILE + b".txt", "wb") as file:
            file.write(b"one\n")
        self.check_harmless(self.run_program("text", "score", FILE + b".txt", FILE + b".txt", FILE + b".txt"), "BLEU")
        self.check_harmless(self.run_program("data", "list", "cifar10", env={**os.environb, b"ADAMOD_DATA": FILE}))

    def test_messages(self):
        long = "x" * 700 + NAME + "y" * 700  # which is cut
        for arguments in ([SHORT], ["optim", "list", SHORT], ["optim", "trace", SHORT], ["report", FILE],
                          ["report", "--" + SHORT], ["train", FILE], ["train", "tiny.yaml", "--set", SHORT],
                          ["train", "tiny.yaml", "--set", "data.task=" + SHORT], ["train", long],
                          ["train", "tiny.yaml", "--set", "optimizer.rule=" + long], ["data", "prepare", SHORT],
                          ["data", "list", SHORT], ["compare", "tiny.yaml", "--vary", SHORT + "=1"],
                          ["evaluate", FILE], ["predict", FILE, "a"], ["text", "tokenize", "--language", SHORT],
                          ["info", SHORT]):
            with self.subTest(arguments=arguments):
                said = self.run_program(*arguments, stdin=subprocess.DEVNULL)
                self.check_harmless(said, "^adamod: ")
                if arguments[:2] != ["text", "tokenize"]:
                    self.assertIn(said[0], (1, 2))
                    self.assertEqual(said[1].count(b"\n"), 1, said)

    def test_json_escapes_what_a_terminal_obeys(self):
        status, out = self.run_program("predict", "trained", "--json", FILE + b".none")
        self.check_harmless((status, out))
        for name in ("reference", b"one" + FILE, b"two" + FILE):
            with open(name, "w") as file:
                file.write("one\n")
        _, text = self.check_harmless(self.run_program("text", "score", "--json", "reference", b"one" + FILE, b"two" + FILE))
        self.assertEqual(json.loads(text.splitlines()[0])["scores"][0]["system"], (b"one" + FILE).decode(errors="replace"))

    def test_what_a_folder_is_called_reaches_scripts_alone(self):
        """`cd "$(adamod data prepare ...)"` needs the name as it is; a terminal does not."""
        parent, child = pty.openpty()
        env = {**os.environb, b"ADAMOD_DATA": os.path.join(os.fsencode(os.getcwd()), FILE)}
        result = subprocess.run([PROGRAM, "data", "list", "cifar10"], stdout=child, stderr=child, env=env, timeout=60)
        os.close(child)
        said = b""
        try:
            while part := os.read(parent, 1 << 16):
                said += part
        except OSError:  # that is how a terminal without a program ends
            pass
        os.close(parent)
        self.check_harmless((result.returncode, said.replace(b"\r\n", b"\n")), "prepared in ")


if __name__ == "__main__":
    unittest.main()
