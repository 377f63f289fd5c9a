"""State dictionaries that versions of libadamod.torch left in tests/golden/VERSION/torch: every later one loads them and takes
the same next update, bit for bit, and has the same states after it.

    python3 tests/python/test_golden_torch.py --write 1.0       writes those of this version that are not there yet

A file is what torch.save made of a dictionary, in gzip: rule and options, parameters and their next gradients, the state dictionary,
and parameters and states after that update.

SPDX-License-Identifier: MIT
"""

import glob
import gzip
import io
import os
import sys
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
FLOAT, HALF = torch.float32, torch.bfloat16
SETUPS = {  # name: rule, type of the parameters, options, options of a second group
    "adamod": ("adamod", FLOAT, {"lr": 1e-2, "beta3": 0.9, "weight_decay": 0.01}, {"lr": 2e-2}),
    "adamod_published": ("adamod", FLOAT, {"lr": 1e-2, "beta3": 0.99, "flavour": "published"}, {}),
    "adamod_bf16_q8": ("adamod", HALF, {"lr": 1e-2, "state_type": "q8", "min_8bit_size": 1}, {}),
    "adam_bound": ("adam", torch.float64, {"lr": 1e-3, "bound": "momental", "beta3": 0.9, "amsgrad": True}, {}),
    "adafactor": ("adafactor", FLOAT, {"weight_decay": 0.01}, {}),
    "muon": ("muon", FLOAT, {"lr": 1e-2}, {"use_muon": False}),
    "prodigy": ("prodigy", FLOAT, {}, {}),
    "schedulefree_adamw": ("schedulefree_adamw", FLOAT, {"lr": 1e-2, "warmup_steps": 3}, {}),
    "soap": ("soap", FLOAT, {"lr": 1e-2, "precondition_frequency": 2}, {}),
}
SHAPES = ((4, 6), (5,), (3, 4))
STEPS = 4


def numbers(kind, shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(kind)


def make(golden, params):
    half = len(params) // 2 + 1
    groups = [{"params": params[:half]}, {"params": params[half:], **golden["second"]}]
    return lt.create(golden["rule"], groups, **golden["options"])


def step(optimizer, params, grads):
    for p, g in zip(params, grads):
        p.grad = g.clone()
    optimizer.step()


def write(path, name):
    rule, kind, options, second = SETUPS[name]
    golden = {"rule": rule, "options": options, "second": second}
    params = [numbers(kind, shape, i).requires_grad_() for i, shape in enumerate(SHAPES)]
    optimizer = make(golden, params)
    for t in range(STEPS):
        step(optimizer, params, [numbers(kind, p.shape, 100 * t + i + 10) for i, p in enumerate(params)])
    golden["params"] = [p.detach().clone() for p in params]
    golden["grads"] = [numbers(kind, p.shape, 1000 + i) for i, p in enumerate(params)]
    golden["state_dict"] = copy_of(optimizer.state_dict())
    step(optimizer, params, golden["grads"])
    golden["after"], golden["state_after"] = [p.detach().clone() for p in params], optimizer.state_dict()
    made = io.BytesIO()
    torch.save(golden, made)
    with open(path, "wb") as file:
        file.write(gzip.compress(made.getvalue(), mtime=0))


def copy_of(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: copy_of(item) for key, item in value.items()}
    return type(value)(map(copy_of, value)) if isinstance(value, (list, tuple)) else value


class Golden(unittest.TestCase):
    def same(self, found, expected, where):
        """Whatever is expected is there; later versions may add to it."""
        if isinstance(expected, torch.Tensor):
            self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape), where)
            self.assertTrue(torch.equal(found, expected), where)
        elif isinstance(expected, dict):
            for key, value in expected.items():
                self.assertIn(key, found, where)
                self.same(found[key], value, f"{where}: {key}")
        elif isinstance(expected, (list, tuple)):
            self.assertEqual(len(found), len(expected), where)
            for i, value in enumerate(expected):
                self.same(found[i], value, f"{where}: {i}")
        else:
            self.assertEqual(found, expected, where)

    def test_state_dictionaries_are_continued(self):
        paths = sorted(glob.glob(os.path.join(GOLDEN, "*", "torch", "*.pt.gz")))
        self.assertGreaterEqual(len(paths), len(SETUPS))
        for path in paths:
            with gzip.open(path) as file:
                golden = torch.load(io.BytesIO(file.read()))
            params = [p.clone().requires_grad_() for p in golden["params"]]
            optimizer = make(golden, params)
            optimizer.load_state_dict(golden["state_dict"])
            self.same(optimizer.state_dict(), golden["state_dict"], f"{path} as loaded")
            step(optimizer, params, golden["grads"])
            self.same([p.detach() for p in params], golden["after"], f"{path}: parameters")
            self.same(optimizer.state_dict(), golden["state_after"], f"{path} after an update")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        folder = os.path.join(GOLDEN, sys.argv[2], "torch")
        os.makedirs(folder, exist_ok=True)
        for one in SETUPS:
            if not os.path.exists(os.path.join(folder, f"{one}.pt.gz")):
                write(os.path.join(folder, f"{one}.pt.gz"), one)
                print(os.path.join(folder, f"{one}.pt.gz"))
    else:
        unittest.main()
