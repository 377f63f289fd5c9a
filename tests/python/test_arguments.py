"""The constructors: the same arguments and defaults as torch.optim's classes of these names, and help with near misses.

SPDX-License-Identifier: MIT
"""

import inspect
import unittest

import find_package  # noqa: F401
import libadamod
import libadamod.torch as lt
import torch
from support import CLASSES, clones, make_params, train

# torch.optim's classes that ours stand in for. Adafactor is another: it has the arguments of Transformers'.
TORCH = ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "Adadelta", "RAdam")

# Arguments of torch.optim that are taken among the common ones here, by keyword alone.
BY_KEYWORD = {"capturable", "differentiable", "foreach", "fused", "maximize"}


def parameters(cls):
    return inspect.signature(cls).parameters


class Signatures(unittest.TestCase):
    def test_defaults_are_torchs(self):
        for name in TORCH:
            ours = parameters(getattr(lt, name))
            for argument, theirs in parameters(getattr(torch.optim, name)).items():
                if argument == "params" or argument in BY_KEYWORD or "required" in str(theirs.default):
                    continue
                with self.subTest(name, argument=argument):
                    self.assertIn(argument, ours)
                    self.assertEqual(ours[argument].default, theirs.default)

    def test_the_order_is_torchs(self):
        """The order of arguments that can be given by position. Ours come after them, or by keyword."""
        for name in TORCH:
            theirs = parameters(getattr(torch.optim, name)).values()
            positional = [p.name for p in theirs if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in BY_KEYWORD]
            self.assertEqual(list(parameters(getattr(lt, name)))[: len(positional)], positional, name)

    def test_what_torch_takes_is_taken(self):
        for name in TORCH:
            for argument, theirs in parameters(getattr(torch.optim, name)).items():
                if argument != "params" and "required" not in str(theirs.default):
                    with self.subTest(name, argument=argument):
                        getattr(lt, name)(make_params((2,)), **{argument: theirs.default})

    def test_sgds_learning_rate(self):
        """PyTorch 1.13 had none, later ones this."""
        self.assertEqual(lt.SGD(make_params((2,))).param_groups[0]["lr"], 1e-3)

    def test_decoupled_weight_decay(self):
        for cls in (lt.Adam, lt.RAdam):
            params = make_params((7, 3))
            others = clones(params)
            one = cls(params, weight_decay=0.1, decoupled_weight_decay=True)
            other = cls(others, weight_decay=0.1, decay="decoupled")
            train(one, params, 3)
            train(other, others, 3)
            self.assertTrue(torch.equal(params[0], others[0]))
            self.assertEqual(one.param_groups[0]["decay"], "decoupled")
            self.assertEqual(cls(params).param_groups[0]["decay"], "l2")
            other.param_groups[0]["decay"] = "l2"  # which decides, and is what torch.optim is told
            self.assertIs(other.state_dict()["param_groups"][0]["decoupled_weight_decay"], False)

    def test_groups_of_another_optimizer(self):
        """Ours, and torch.optim's; a group may have decoupled_weight_decay as there."""
        for cls, theirs in ((lt.Adam, torch.optim.Adam), (lt.AdamW, torch.optim.AdamW), (lt.RAdam, torch.optim.RAdam)):
            params = make_params((3,))
            for made in (cls(params, weight_decay=0.1), theirs(params, weight_decay=0.1)):
                (group,) = cls([dict(group) for group in made.param_groups]).param_groups
                self.assertEqual((group["decay"], group["weight_decay"]), ("decoupled" if cls is lt.AdamW else "l2", 0.1))
        for decoupled, decay in ((True, "decoupled"), (False, "l2")):
            (group,) = lt.NAdam([dict(params=params, decoupled_weight_decay=decoupled)]).param_groups
            self.assertEqual((group["decay"], group["decoupled_weight_decay"]), (decay, decoupled))


class NearMisses(unittest.TestCase):
    def refused(self, text, cls, **arguments):
        with self.assertRaisesRegex(TypeError, text):
            cls(make_params((2,)), **arguments)

    def test_every_option_is_suggested(self):
        """With a letter missing, with one too many, and in capitals."""
        for cls in CLASSES:
            own = [p.name for p in parameters(cls).values() if p.kind is not p.VAR_KEYWORD and p.name != "params"]
            lacking = {"cautious"} - set(libadamod.options(cls.rule))
            known = {*own, *lt.Common.__annotations__} - lacking
            for name in known:
                for wrong in {name[:-1], name + "x", name.upper()} - known:
                    if len(wrong) > 3:
                        self.refused(f"^{cls.__name__} has no option '{wrong}': did you mean '", cls, **{wrong: 1})

    def test_flavor(self):
        for cls in (lt.AdaMod, lt.Adam, lt.AdamW, lt.AMSGrad):
            self.refused("has no option 'flavor': did you mean 'flavour'", cls, flavor="paper")
        self.refused("RMSprop has no option 'flavor'; it has lr, alpha", lt.RMSprop, flavor="paper")

    def test_what_others_call_it(self):
        self.refused("learning_rate': did you mean 'lr'", lt.AdaMod, learning_rate=1)
        self.refused("epsilon': did you mean 'eps'", lt.AdaMod, epsilon=1)
        self.refused("weight_decouple': decay='decoupled' or 'l2'", lt.AdaMod, weight_decouple=True)
        self.refused("beta1': it is the first of betas", lt.AdaMod, beta1=0.9)
        self.refused("eps1': it is the first of eps", lt.Adafactor, eps1=1e-30)
        self.refused("has no option 'colour'; it has lr, betas, beta3", lt.AdaMod, colour=1)

    def test_the_bound_is_suggested(self):
        self.refused("has no option 'bounds': did you mean 'bound'", lt.Adam, bounds="momental")
        self.refused("has no option 'beta_3': did you mean 'beta3'", lt.Adam, beta_3=0.9)
        self.refused("has no option 'colour'; it has lr, .*, bound, beta3, skip_idle, decay", lt.Adam, colour=1)
        self.refused("decouple': decay='decoupled' or 'l2'", lt.Prodigy, decouple=True)
        self.refused("clip_lambda': clip=True clips to", lt.ADOPT, clip_lambda=None)
        self.refused("no_prox': decay='decoupled', the default, is what", lt.Adan, no_prox=True)

    def test_beta3_without_a_bound(self):
        """In the constructor and in groups, where the bound is not mentioned. Groups of another optimizer have both."""
        for cls in CLASSES:
            if "bound" not in libadamod.options(cls.rule):
                continue
            for make in (
                lambda: cls(make_params((2,)), beta3=0.9),
                lambda: cls([dict(params=make_params((2,)), beta3=0.9)]),
            ):
                with self.assertRaisesRegex(ValueError, f"^{cls.__name__}: beta3 is 0.9, and it is for bound='momental'"):
                    make()
            cls([dict(params=make_params((2,)), bound="momental"), dict(params=make_params((2,)))], beta3=0.9)
            cls(cls(make_params((2,)), bound="none", beta3=0.9).param_groups)
        with self.assertRaisesRegex(ValueError, "the authors' beta3 is beta_d here"):
            lt.Prodigy(make_params((2,)), beta3=0.9)

    def test_a_groups_keys(self):
        """A key that is nearly an option is refused; all others are a program's own, or a scheduler's."""
        for key, text in (("weight_decya", "did you mean 'weight_decay'"), ("beta1", "it is the first of betas")):
            with self.assertRaisesRegex(TypeError, f"AdaMod has no option '{key}': {text}"):
                lt.AdaMod([dict(params=make_params((2,)), **{key: 0.1})])
        own = dict(initial_lr=1, max_momentum=1, lr_scale=1, layer=1, weight_decay_mult=1, lr_mult=1, no_decay=1)
        optimizer = lt.AdaMod([dict(params=make_params((2,)), **own)])
        self.assertEqual(optimizer.param_groups[0]["layer"], 1)

    def test_words(self):
        """For every option that is a choice, in every class."""
        for cls in CLASSES:
            for name, option in libadamod.options(cls.rule).items():
                if name == "nonfinite":  # not PyTorch's
                    continue
                argument = next((a for a, names in cls._names.items() if names == (name,)), name)
                for word in option.choices:
                    if len(word) < 4:
                        continue
                    wrong = word[:-1] + "_"
                    with self.assertRaisesRegex(ValueError, f"{argument} is '{wrong}'.*did you mean '{word}'"):
                        cls(make_params((2,)), **{argument: wrong})


class Ranges(unittest.TestCase):
    """Bounds follow the type of computation."""

    def test_constructors(self):
        wide = make_params((3,), dtype=torch.float64)
        for cls in CLASSES:
            relative = {"relative_step": False} if cls is lt.Adafactor else {}
            for narrow in (make_params((3,)), make_params((3,), dtype=torch.bfloat16), wide + make_params((3,))):
                with self.assertRaisesRegex(ValueError, r"group 1: .*: lr is 1e\+100, expected lr <= 1.8e\+19 in f32"):
                    cls([{"params": make_params((2,))}, {"params": narrow, "lr": 1e100}], lr=1.0, **relative)
            cls(wide, lr=1e100, **relative)
            with self.assertRaisesRegex(ValueError, r"group 0: .*: lr is 1e\+200, expected lr <= 1.3e\+154 in f64"):
                cls(wide, lr=1e200, **relative)
        with self.assertRaisesRegex(ValueError, "group 0: adam: eps is 1e-46, expected eps >= 1.2e-38 in f32"):
            lt.Adam(make_params((3,)), eps=1e-46)
        with self.assertRaisesRegex(ValueError, r"group 0: adam: lr / \(1 - beta1\) / eps is 1e\+39, expected at most"):
            lt.Adam(make_params((3,)), lr=1e3, eps=1e-35)

    def test_steps(self):
        """A learning rate that is changed, in the second of two groups: none of them is updated."""
        params = make_params((3,)) + make_params((4,))
        optimizer = lt.AdaMod([{"params": params[:1]}, {"params": params[1:]}])
        train(optimizer, params, 2)
        before = [p.detach().clone() for p in params]
        optimizer.param_groups[1]["lr"] = 1e300
        for p in params:
            p.grad = torch.ones_like(p)
        for _ in range(2):
            with self.assertRaisesRegex(ValueError, r"group 1: adamod: lr is 1e\+300, expected lr <= 1.8e\+19 in f32"):
                optimizer.step()
            self.assertTrue(all(map(torch.equal, params, before)))
        optimizer.param_groups[1]["lr"] = 1e-3
        optimizer.step()
        self.assertFalse(any(map(torch.equal, params, before)))


if __name__ == "__main__":
    unittest.main()
