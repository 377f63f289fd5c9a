"""Optimizers by name.

SPDX-License-Identifier: MIT
"""

import unittest

import find_package  # noqa: F401
import libadamod
import libadamod.torch as lt
from support import CLASSES, make_params


class Create(unittest.TestCase):
    def test_every_name(self):
        """Names of rules, as in `adamod optim list`, and of classes."""
        for rule in libadamod.rules():
            self.assertEqual(lt.create(rule, make_params((2, 2))).rule, rule)
        for cls in CLASSES:
            for name in (cls.__name__, cls.__name__.lower(), cls.__name__.upper()):
                self.assertIs(type(lt.create(name, make_params((2, 2)))), cls)
        self.assertIs(type(lt.create("schedule-free AdamW", make_params((2, 2)))), lt.ScheduleFreeAdamW)

    def test_options(self):
        params = make_params((2,), (3,))
        groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.5}]
        optimizer = lt.create("adamw", groups, lr=0.1, clip_norm=1.0)
        self.assertEqual([group["lr"] for group in optimizer.param_groups], [0.1, 0.5])
        self.assertEqual(optimizer.param_groups[0]["weight_decay"], 1e-2)
        with self.assertRaisesRegex(TypeError, "AdamW has no option 'learning_rate': did you mean 'lr'"):
            lt.create("adamw", params, learning_rate=0.1)

    def test_unknown_names(self):
        for name, text in (
            ("adamood", "there is no optimizer 'adamood': did you mean 'adamod'\\?"),
            ("Adam-W2", "did you mean 'adamw'"),
            ("xyzzy", "there is no optimizer 'xyzzy': there are adabelief, adabound,.* stableadamw$"),
        ):
            with self.assertRaisesRegex(ValueError, text) as found:
                lt.create(name, make_params((2,)))
            self.assertNotIn("\n", str(found.exception))
        with self.assertRaisesRegex(TypeError, "is 3, expected a string"):
            lt.create(3, make_params((2,)))


if __name__ == "__main__":
    unittest.main()
