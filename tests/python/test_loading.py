"""Checkpoints of other optimizers and packages, those that are installed: a run goes on here as it would there, or the
checkpoint is refused when it is loaded.

SPDX-License-Identifier: MIT
"""

import copy
import importlib
import math
import unittest
import warnings

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from published import GroupCountingAdaMod, PublishedAdaMod, ThreeBetasAdaMod
from support import CLASSES, clones, make_params, set_grads


def installed(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


PORTS, ADABOUND, TORCH = installed("pytorch_optimizer"), installed("adabound"), torch.optim
TIMM, SCHEDULE_FREE = installed("timm.optim"), installed("schedulefree")
DECAYED = dict(lr=1e-2, weight_decay=0.1)
BEFORE, AFTER = 7, 5
OLD_TORCH = not hasattr(torch.optim.Optimizer, "register_load_state_dict_pre_hook")


class AuthorsNosAdam(torch.optim.Optimizer):
    """NosAdam as its authors' program computes and saves it, written down from its formula."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, gamma=0.1, lr_decay=False):
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, gamma=gamma, lr_decay=lr_decay)
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                state, beta1 = self.state[p], group["betas"][0]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p), B_old=0)
                state["step"] += 1
                t, g = state["step"], p.grad + group["weight_decay"] * p
                b = state["B_old"] + t ** -group["gamma"]
                beta2, state["B_old"] = state["B_old"] / b, b
                state["exp_avg"].mul_(beta1).add_(g, alpha=1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
                lr = group["lr"] / (1 - beta1**t) / (math.sqrt(t) if group["lr_decay"] else 1)
                p.addcdiv_(state["exp_avg"], state["exp_avg_sq"].sqrt() + group["eps"], value=-lr)


def step(optimizer, params, t, late=False):
    """late: the last parameter has no gradient."""
    set_grads(params, t)
    if late:
        params[-1].grad = None
    optimizer.step()


class Loaded(unittest.TestCase):
    def begun(self, make, steps=BEFORE, late=True):
        params = make_params((6, 5), (7,), (4,), dtype=torch.float64)
        optimizer = make(params)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # adabound calls PyTorch as it was
            for t in range(1, steps + 1):
                step(optimizer, params, t, late)
        return optimizer, params

    def goes_on(self, theirs, ours, late=True, rtol=1e-11):
        """As theirs does; the last parameter's first gradient, with late, comes two steps after loading."""
        begun, params = self.begun(theirs, late=late)
        others = clones(params)
        loaded = ours(others)
        loaded.load_state_dict(copy.deepcopy(begun.state_dict()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for t in range(BEFORE + 1, BEFORE + 1 + AFTER):
                step(begun, params, t, late and t < BEFORE + 3)
                step(loaded, others, t, late and t < BEFORE + 3)
        for p, q, start in zip(params, others, make_params((6, 5), (7,), (4,), dtype=torch.float64)):
            torch.testing.assert_close(q, p, rtol=rtol, atol=1e-12)
            self.assertFalse(torch.equal(q, start))
        return begun, params, loaded, others

    def refused(self, theirs, ours, text, steps=BEFORE):
        begun, params = self.begun(theirs, steps)
        loaded = ours(clones(params))
        options = {key: value for key, value in loaded.param_groups[0].items() if key != "params"}
        with self.assertRaisesRegex((ValueError, TypeError), text):
            loaded.load_state_dict(copy.deepcopy(begun.state_dict()))
        self.assertFalse(loaded.state)
        for key, value in options.items():
            self.assertIs(loaded.param_groups[0][key], value)


class OfTorch(Loaded):
    FOLLOWED = [
        (lambda p: TORCH.Adam(p, **DECAYED), lt.Adam),
        (lambda p: TORCH.Adam(p, amsgrad=True, **DECAYED), lt.Adam),
        (lambda p: TORCH.Adam(p, maximize=True, **DECAYED), lt.Adam),
        (lambda p: TORCH.Adam(p, amsgrad=True, lr=1e-2), lt.AMSGrad),
        (lambda p: TORCH.AdamW(p, **DECAYED), lt.AdamW),
        (lambda p: TORCH.SGD(p, momentum=0.9, nesterov=True, **DECAYED), lt.SGD),
        (lambda p: TORCH.SGD(p, momentum=0.9, dampening=0.3, **DECAYED), lt.SGD),
        (lambda p: TORCH.SGD(p, **DECAYED), lt.SGD),
        (lambda p: TORCH.Adagrad(p, lr_decay=0.1, initial_accumulator_value=0.1, **DECAYED), lt.Adagrad),
        (lambda p: TORCH.RMSprop(p, momentum=0.9, centered=True, **DECAYED), lt.RMSprop),
        (lambda p: TORCH.Adadelta(p, **DECAYED), lt.Adadelta),
        (lambda p: TORCH.RAdam(p, **DECAYED), lt.RAdam),
    ]
    REFUSED = [
        (lambda p: TORCH.Adam(p), lt.AMSGrad, "parameter 0 of group 0 has no max_exp_avg_sq"),
        (lambda p: TORCH.Adam(p), lt.SGD, "not a checkpoint of SGD: it has betas, which sgd does not have"),
        (lambda p: TORCH.Adam(p), lt.AdaMod, "not a checkpoint of AdaMod: it has amsgrad"),
        (lambda p: TORCH.Adam(p), lt.AdaBound, "not a checkpoint of AdaBound: it has amsgrad"),
        (lambda p: TORCH.Adam(p), lt.NosAdam, "not a checkpoint of NosAdam: it has amsgrad"),
        (lambda p: TORCH.Adam(p), lt.RAdam, "not a checkpoint of RAdam: it has amsgrad"),
        (lambda p: TORCH.RAdam(p), lt.AdaBound, "not a checkpoint of AdaBound: it has no final_lr"),
        (lambda p: TORCH.NAdam(p), lt.Adam, "not a checkpoint of Adam: it has momentum_decay"),
        (lambda p: TORCH.NAdam(p), lt.RAdam, "not a checkpoint of RAdam: it has momentum_decay"),
        (lambda p: TORCH.Adamax(p), lt.Adam, "not a checkpoint of Adam: its states have exp_inf"),
        (lambda p: TORCH.SGD(p, lr=0.1, momentum=0.9), lt.Adam, "not a checkpoint of Adam: it has momentum"),
        (lambda p: TORCH.RMSprop(p, momentum=0.9), lt.SGD, "not a checkpoint of SGD: it has alpha"),
        (lambda p: TORCH.ASGD(p), lt.SGD, "not a checkpoint of SGD: it has lambd"),
        (lambda p: TORCH.Rprop(p), lt.SGD, "not a checkpoint of SGD: it has etas"),
        (lambda p: TORCH.Adadelta(p), lt.RMSprop, "not a checkpoint of RMSprop: it has rho"),
        (lambda p: TORCH.RMSprop(p), lt.Adadelta, "not a checkpoint of Adadelta: it has momentum"),
    ]

    def test_followed(self):
        for theirs, ours in self.FOLLOWED:
            for late in (False, True):
                self.goes_on(theirs, ours, late)

    def test_refused(self):
        for theirs, ours, text in self.REFUSED:
            with self.subTest(text):
                self.refused(theirs, ours, text)
        if not OLD_TORCH:
            self.refused(TORCH.RAdam, lt.Adam, "not a checkpoint of Adam: it has no amsgrad")
        if hasattr(TORCH, "Adafactor"):
            self.refused(TORCH.Adafactor, lt.Adafactor, "not a checkpoint of Adafactor: it has beta2_decay")

    def test_decay_that_a_checkpoint_does_not_tell(self):
        begun, params = self.begun(lambda p: TORCH.Adam(p, amsgrad=True, **DECAYED))
        saved = copy.deepcopy(begun.state_dict())
        saved["param_groups"][0].pop("decoupled_weight_decay", None)
        loaded = lt.AMSGrad(params)
        with self.assertRaisesRegex(ValueError, "group 0: it does not tell how weight_decay acts: set decay in it"):
            loaded.load_state_dict(saved)
        saved["param_groups"][0]["decay"] = "l2"
        loaded.load_state_dict(saved)
        self.assertEqual(loaded.param_groups[0]["decay"], "l2")


class OfOthers(Loaded):
    def test_nosadam(self):
        def theirs(p):
            return AuthorsNosAdam(p, betas=(0.8, 0.999), gamma=0.05, **DECAYED)

        self.goes_on(theirs, lt.NosAdam)
        self.refused(lambda p: AuthorsNosAdam(p, lr_decay=True), lt.NosAdam, "saved with lr_decay=True: use a sched")

    @unittest.skipUnless(ADABOUND, "adabound is not installed")
    def test_adabound(self):
        for amsbound, ours, other in ((False, lt.AdaBound, lt.AMSBound), (True, lt.AMSBound, lt.AdaBound)):

            def theirs(p, amsbound=amsbound):
                return ADABOUND.AdaBound(p, amsbound=amsbound, **DECAYED)

            begun, params, loaded, others = self.goes_on(theirs, lambda p, ours=ours: ours(p, lr=1e-2))
            begun.load_state_dict(copy.deepcopy(loaded.state_dict()))  # and back
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step(begun, params, 20)
            step(loaded, others, 20)
            for p, q in zip(params, others):
                torch.testing.assert_close(p, q, rtol=1e-11, atol=1e-12)
            self.refused(theirs, other, f"saved with amsbound={amsbound}: load it into {ours.__name__}")

    def test_bias_that_is_not_corrected(self):
        begun, params = self.begun(TORCH.AdamW)
        saved = copy.deepcopy(begun.state_dict())
        saved["param_groups"][0]["correct_bias"] = False  # as transformers' AdamW had it
        with self.assertRaisesRegex(ValueError, "group 0: .* it was saved with correct_bias=False"):
            lt.AdamW(params).load_state_dict(saved)


    def saved_by_another(self, ours, **options):
        """A checkpoint of ours without what only ours has, and with another package's options."""
        begun, params = self.begun(lambda p: ours(p, weight_decay=0.1))
        saved = copy.deepcopy(begun.state_dict())
        for key in ("decay", "bound", "beta3", "clip_value", "low_precision", "state_type", "min_8bit_size", "seed", "step"):
            saved["param_groups"][0].pop(key, None)
        saved["param_groups"][0].update(options)
        return saved, params

    def test_options_that_make_another_formula(self):
        for ours, options, text in (
            (lt.Adan, dict(no_prox=False), "saved with weight_decay and without no_prox"),
            (lt.Adan, dict(no_prox=True, max_grad_norm=1.0), "saved with max_grad_norm=1.0"),
            (lt.Adan, dict(no_prox=True, caution=True), "saved with caution=True"),
            (lt.RAdam, dict(caution=True), "saved with caution=True"),
            (lt.ADOPT, dict(caution=True), "saved with caution=True"),
            (lt.AdamW, dict(cautious=True), "saved with cautious=True"),
            (lt.AdamW, dict(corrected_weight_decay=True), "saved with corrected_weight_decay=True"),
            (lt.AdamW, dict(no_prox=True), "it has no_prox, which adam does not have"),
            (lt.RMSprop, dict(lr_in_momentum=True), "it has lr_in_momentum, which rmsprop does not have"),
            (lt.RAdam, dict(buffer=[]), "it has buffer, which radam does not have"),
            (lt.Adam, dict(decouple_lr=False), "it has decouple_lr, which adam does not have"),
        ):
            with self.subTest(text):
                saved, params = self.saved_by_another(ours, **options)
                with self.assertRaisesRegex(ValueError, text):
                    ours(params).load_state_dict(saved)

    def test_decay_of_timm_is_decoupled(self):
        saved, params = self.saved_by_another(lambda p, **o: lt.SGD(p, momentum=0.9, **o), caution=False)
        loaded = lt.SGD(params)
        loaded.load_state_dict(saved)
        self.assertEqual(loaded.param_groups[0]["decay"], "decoupled")

    def test_lion_without_a_count(self):
        saved, params = self.saved_by_another(lt.Lion)
        for state in saved["state"].values():
            state.pop("step")
        loaded = lt.Lion(params)
        loaded.load_state_dict(saved)
        step(loaded, params, BEFORE + 1)

    def test_authors_of_later_rules(self):
        """Groups and states have their packages' keys and no others: Adan's count is the group's, Lion has none."""
        for ours, own, count in (
            (lt.AdEMAMix, {"alpha", "beta3_warmup", "alpha_warmup"}, "state"),
            (lt.Adan, {"max_grad_norm", "no_prox", "foreach", "fused"}, "group"),
            (lt.Sophia, {"rho", "maximize", "capturable"}, "state"),
            (lt.Lion, set(), None),
        ):
            begun, params = self.begun(lambda p: ours(p, weight_decay=0.1), late=False)
            saved = copy.deepcopy(begun.state_dict())
            others = dict(max_grad_norm=0.0, no_prox=True, foreach=True, fused=False, capturable=False)
            group = {**others, **saved["param_groups"][0]}
            names = {"lr", "betas", "weight_decay", "params", *own, *(["eps"] if "eps" in group else [])}
            saved["param_groups"] = [{name: group[name] for name in names}]
            if count == "group":
                saved["param_groups"][0]["step"] = BEFORE
            for state in saved["state"].values() if count != "state" else ():
                state.pop("step")
            with self.subTest(ours.__name__):
                loaded = ours(clones(params))
                loaded.load_state_dict(saved)
                again = loaded.param_groups[0]["params"]
                for t in range(BEFORE + 1, BEFORE + 1 + AFTER):
                    step(begun, params, t)
                    step(loaded, again, t)
                self.assertTrue(all(torch.equal(p, q) for p, q in zip(params, again)))

    def test_groups_of_other_optimizers(self):
        """Keys and states as timm, torch_optimizer and others save them, whose names are else those of a class here."""
        adam, alone = ("lr", "betas", "eps", "weight_decay"), ("lr", "weight_decay", "momentum")
        sgd = (*alone, "dampening", "nesterov")
        for ours, keys, more, states, text in (
            (lt.AdamW, adam, dict(caution=False, foreach=None, maximize=False), (), "has no amsgrad"),  # NAdamW
            (lt.AdamW, adam, dict(delta=0.1, wd_ratio=0.1, nesterov=False), (), "has (delta|wd_ratio|nesterov)"),  # AdamP
            (lt.AdamW, (*adam, "amsgrad"), dict(phase="ADAM"), (), "it has phase"),  # SWATS
            (lt.Adam, adam, dict(initial_accumulator=1e-6), (), "it has initial_accumulator"),  # Yogi
            (lt.Adam, (*adam, "amsgrad"), {}, ("previous_grad",), "its states have previous_grad"),  # DiffGrad
            (lt.RAdam, adam, {}, (), "does not have the options of PyTorch's RAdam"),  # timm's legacy
            (lt.RAdam, adam, dict(foreach=None, step=BEFORE), (), "does not have the options of PyTorch's"),  # GaLore
            (lt.RAdam, adam, dict(weight_decouple=True), (), "it has no fixed_decay"),  # Grams
            (lt.SGD, sgd, {}, (), "does not tell how weight_decay acts"),  # SGDW
            (lt.SGD, sgd, dict(trust_coeff=1e-3), (), "it has trust_coeff"),  # LARS
            (lt.SGD, alone, {}, (), "it has no dampening"),  # the author's Muon
            (lt.Lion, ("lr", "betas", "weight_decay"), {}, ("exp_avg_sq",), "its states have exp_avg_sq"),
        ):
            with self.subTest(text):
                more_ours = dict(momentum=0.9) if ours is lt.SGD else {}
                begun, params = self.begun(lambda p: ours(p, weight_decay=0.1, **more_ours), late=False)
                saved = copy.deepcopy(begun.state_dict())
                group = saved["param_groups"][0]
                saved["param_groups"] = [{**{key: group[key] for key in (*keys, "params")}, **more}]
                for state in saved["state"].values():
                    state.update({name: torch.zeros(1) for name in states})
                with self.assertRaisesRegex(ValueError, text):
                    ours(params).load_state_dict(saved)

    def test_keys_of_a_programs_own(self):
        """Keys of our groups pass, and those that schedulers leave in any."""
        begun, params = self.begun(lambda p: TORCH.AdamW([dict(params=p, layer=3)]))
        TORCH.lr_scheduler.OneCycleLR(begun, 0.1, 10)
        saved = begun.state_dict()
        lt.AdamW([dict(params=params, layer=3)]).load_state_dict(saved)
        with self.assertRaisesRegex(ValueError, "it has layer, which adam does not have"):
            lt.AdamW(params).load_state_dict(saved)

    def test_states_that_are_no_dicts(self):
        saved = lt.Adam(make_params((3,))).state_dict()
        with self.assertRaisesRegex(TypeError, "the state of parameter 0 is Tensor, expected a dict of tensors"):
            lt.Adam(make_params((3,))).load_state_dict({**saved, "state": {0: torch.zeros(3)}})

    def saved_by_authors(self, ours, keys, more, translate, **arguments):
        """Theirs, made of ours: has these keys of the group, and more; translate changes a state and its parameter's."""
        begun, params = self.begun(lambda p: ours(p, **arguments), late=False)
        saved = copy.deepcopy(begun.state_dict())
        group = saved["param_groups"][0]
        saved["param_groups"] = [{**{key: group[key] for key in (*keys, "params")}, **more(saved["state"][0])}]
        for state in saved["state"].values():
            translate(state)
        return begun, params, saved

    def test_authors_whose_checkpoints_are_translated(self):
        adam = ("lr", "betas", "eps", "weight_decay")
        dims = dict(merge_dims=False, precondition_1d=False, normalize_grads=False, max_precond_dim=100, shampoo_beta=-1)

        def prodigyopt(state):
            for key in ("d", "d_max", "d_numerator"):
                del state[key]
            state.update(p0=state["p0"].flatten(), s=state["s"].flatten())

        def soap(state):
            state["step"] = int(state["step"]) - 1
            if "Q_0" in state:
                q, r = state["Q_0"], state["Q_1"]
                state.update(exp_avg=q.T @ state["exp_avg"] @ r, Q=[q, r], GG=[state["GG_0"], state["GG_1"]])
            for key in [key for key in state if key[-2:] in ("_0", "_1")]:
                del state[key]
            state.update(precondition_frequency=3, shampoo_beta=0.95)

        def laprop(state):
            state.update(exp_avg=state.pop("exp_avg_step"), exp_avg_lr_1=1e-2 * (1 - 0.9**BEFORE), exp_avg_lr_2=0.5)

        for ours, keys, more, translate, arguments in (
            (lt.ADOPT, adam, lambda _: dict(decouple=True), lambda _: None, dict(decay="decoupled", **DECAYED)),
            (lt.ADOPT, adam, lambda _: dict(decouple=False), lambda _: None, DECAYED),
            (lt.AdaBelief, adam, lambda _: dict(amsgrad=False, buffer=[]), lambda _: None, DECAYED),
            (
                lt.Prodigy,
                (*adam, "d0", "d_coef", "growth_rate", "use_bias_correction", "safeguard_warmup"),
                lambda state: dict(
                    **{key: float(state[key]) for key in ("d", "d_max", "d_numerator")},
                    **dict(beta3=0.9, k=BEFORE, decouple=True, fsdp_in_use=False, slice_p=1, d_denom=1.0, d_hat=1.0),
                ),
                prodigyopt,
                dict(d0=1e-3, weight_decay=0.1, beta_d=0.9),
            ),
            (lt.SOAP, (*adam, "precondition_frequency", "correct_bias"), lambda _: dims, soap, DECAYED),
            (lt.LaProp, adam, lambda _: dict(caution=False), laprop, dict(lr=1e-2)),
        ):
            with self.subTest(ours.__name__):
                begun, params, saved = self.saved_by_authors(ours, keys, more, translate, **arguments)
                loaded = ours(clones(params))
                loaded.load_state_dict(saved)
                again = loaded.param_groups[0]["params"]
                for t in range(BEFORE + 1, BEFORE + 1 + AFTER):
                    step(begun, params, t)
                    step(loaded, again, t)
                for p, q in zip(params, again):
                    torch.testing.assert_close(q, p, rtol=1e-6, atol=1e-9)  # d was a Python float

    def test_authors_muon(self):
        """With AdamW beside it, whose options keep their names; and alone."""
        params = make_params((6, 5), (7,), dtype=torch.float64)
        theirs = dict(lr=1e-2, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.2)
        begun = lt.Muon([dict(params=params[:1], lr=0.1), dict(params=params[1:], use_muon=False, **theirs)])
        for t in range(1, BEFORE + 1):
            step(begun, params, t)
        saved = copy.deepcopy(begun.state_dict())
        muon = {key: saved["param_groups"][0][key] for key in ("params", "lr", "momentum", "weight_decay")}
        del saved["state"][0]["step"]
        for first in (muon, dict(muon, use_muon=True)):
            groups = [first, dict(params=[1], use_muon=False, **theirs)]
            others = clones(params)
            loaded = lt.Muon([dict(params=others[:1]), dict(params=others[1:])], nesterov=False)
            loaded.load_state_dict({"state": saved["state"], "param_groups": groups})
            again = copy.deepcopy(begun)
            kept = [p for group in again.param_groups for p in group["params"]]
            step(again, kept, 20)
            step(loaded, others, 20)
            for p, q in zip(kept, others):
                self.assertTrue(torch.equal(p, q))

    def test_schedule_free_of_another_lr(self):
        for ours in (lt.ScheduleFreeAdamW, lt.ScheduleFreeSGD):
            saved, params = self.saved_by_another(ours, k=BEFORE, weight_sum=0.5)
            with self.assertRaisesRegex(ValueError, "its weight_sum, 0.5, is not that of a constant lr"):
                ours(params).load_state_dict(saved)

    def test_schedule_free_that_counts_in_k(self):
        for ours in (lt.ScheduleFreeAdamW, lt.ScheduleFreeSGD):
            saved, params = self.saved_by_another(ours, k=BEFORE, lr_max=1.0, scheduled_lr=1.0)
            saved["param_groups"][0]["weight_sum"] = BEFORE * saved["param_groups"][0]["lr"] ** 2
            for state in saved["state"].values():
                state.pop("step")
            loaded = ours(params)
            loaded.load_state_dict(saved)
            self.assertEqual([int(loaded.state[p]["step"]) for p in params], [BEFORE] * 3)
            self.assertFalse({"k", "weight_sum", "lr_max", "scheduled_lr"} & set(loaded.param_groups[0]))

    @unittest.skipUnless(hasattr(TIMM, "Adan") and hasattr(TIMM, "AdamWLegacy"), "there is no timm with these")
    def test_timm(self):
        self.goes_on(lambda p: TIMM.Adan(p, no_prox=True, **DECAYED), lt.Adan, late=False)
        self.goes_on(lambda p: TIMM.AdamWLegacy(p, **DECAYED), lt.AdamW)
        self.goes_on(lambda p: TIMM.SGDW(p, momentum=0.9, **DECAYED), lt.SGD)
        self.goes_on(lambda p: TIMM.Lion(p, **DECAYED), lt.Lion)
        self.refused(lambda p: TIMM.Adan(p, **DECAYED), lt.Adan, "without no_prox")
        self.refused(lambda p: TIMM.RMSpropTF(p, **DECAYED), lt.RMSprop, "it has decoupled_decay")
        self.refused(lambda p: TIMM.RAdamLegacy(p, **DECAYED), lt.RAdam, "it (has buffer|does not have the options)")

    @unittest.skipUnless(SCHEDULE_FREE, "schedulefree is not installed")
    def test_schedule_free(self):
        def training(cls, **options):
            def make(p):
                optimizer = cls(p, warmup_steps=9, r=0.5, **options)
                optimizer.train()
                return optimizer

            return make

        theirs = training(SCHEDULE_FREE.AdamWScheduleFree, **DECAYED)
        self.goes_on(theirs, lt.ScheduleFreeAdamW)
        theirs = training(SCHEDULE_FREE.SGDScheduleFree, **DECAYED)
        self.goes_on(theirs, lt.ScheduleFreeSGD)


@unittest.skipUnless(PORTS, "pytorch_optimizer is not installed")
class OfPytorchOptimizer(Loaded):
    DECAYS = dict(), dict(fixed_decay=True), dict(weight_decouple=False)

    def test_followed(self):
        for late in (False, True):
            for options in self.DECAYS:
                options = {**DECAYED, **options}
                # It adds 1e-15 under AdaBound's root.
                for theirs, ours, rtol in (
                    (lambda p: PORTS.AdaMod(p, **options), lt.AdaMod, 1e-11),
                    (lambda p: PORTS.AdaBound(p, **options), lambda p: lt.AdaBound(p, lr=1e-2), 1e-9),
                    (lambda p: PORTS.AdaBound(p, ams_bound=True, **options), lambda p: lt.AMSBound(p, lr=1e-2), 1e-9),
                    (lambda p: PORTS.AdaDelta(p, **options), lt.Adadelta, 1e-11),
                ):
                    self.goes_on(theirs, ours, late, rtol)
                if options.get("weight_decouple", True):
                    self.goes_on(lambda p: PORTS.RAdam(p, **options), lt.RAdam, late)
                if "fixed_decay" not in options:
                    self.goes_on(lambda p: PORTS.SGDW(p, momentum=0.9, **options), lt.SGD, late)

    def test_refused(self):
        for theirs, ours, text in (
            (lambda p: PORTS.RAdam(p, weight_decouple=False, **DECAYED), lt.RAdam, "takes for no decay"),
            (lambda p: PORTS.RAdam(p, adanorm=True, adanorm_r=0.95), lt.RAdam, "saved with adanorm=True"),
            (lambda p: PORTS.AdaBound(p, ams_bound=True), lt.AdaBound, "load it into AMSBound"),
            (PORTS.AdaBound, lt.AMSBound, "load it into AdaBound"),
            (PORTS.AdaShift, lt.AdaShift, "it has keep_num"),
            (PORTS.AdaFactor, lt.Adafactor, "it has betas"),
            (PORTS.StableAdamW, lt.AdamW, "it has kahan_sum"),
            (PORTS.Yogi, lt.RAdam, "which radam does not have"),
            *((getattr(PORTS, name), lt.Adam, "it has ") for name in ("AdamP", "DiffGrad", "Yogi", "Ranger", "Lamb")),
        ):
            self.refused(theirs, ours, text)
        self.refused(PORTS.RAdam, lt.RAdam, "saved before update 6", steps=3)


class ThereAndBack(Loaded):
    """Ours, then a port that counts in the group, and ours again: the count that came with the states is stale."""

    def back(self, port, translate):
        params = make_params((6, 5), (7,), (4,), dtype=torch.float64)
        expected = clones(params)
        plain = PublishedAdaMod(expected, betas=(0.9, 0.99), beta3=0.9999, lr=1e-2)
        for t in range(1, 16):
            step(plain, expected, t)
        first = lt.AdaMod(params, betas=(0.9, 0.99), beta3=0.9999, lr=1e-2, flavour="published")
        for t in range(1, 6):
            step(first, params, t)
        saved = copy.deepcopy(first.state_dict())
        translate(saved)
        second = port(params)
        second.load_state_dict(saved)
        for t in range(6, 11):
            step(second, params, t)
        third = lt.AdaMod(params)
        third.load_state_dict(copy.deepcopy(second.state_dict()))
        self.assertEqual([int(third.state[p]["step"]) for p in params], [10, 10, 10])
        for t in range(11, 16):
            step(third, params, t)
        for p, q in zip(params, expected):
            torch.testing.assert_close(p, q, rtol=1e-11, atol=1e-13)

    @staticmethod
    def with_three_betas(saved):
        for group in saved["param_groups"]:
            betas = (*group["betas"], group["beta3"])
            group.update(betas=betas, adam_debias=False, weight_decouple=True, fixed_decay=False)

    def test_counts_in_the_group(self):
        self.back(lambda p: GroupCountingAdaMod(p, betas=(0.9, 0.99), beta3=0.9999, lr=1e-2), lambda saved: None)
        self.back(lambda p: ThreeBetasAdaMod(p, lr=1e-2), self.with_three_betas)

    @unittest.skipUnless(PORTS, "pytorch_optimizer is not installed")
    def test_pytorch_optimizer(self):
        self.back(lambda p: PORTS.AdaMod(p, lr=1e-2), self.with_three_betas)

    def test_counts_of_single_parameters(self):
        """Ours, of parameters whose first gradients came at different times; also after a package with such counts."""
        for package in (None, PublishedAdaMod):
            params = make_params((6, 5), (7,), (4,), dtype=torch.float64)
            optimizer = lt.AdaMod(params)
            for t in range(1, 7):
                step(optimizer, params, t, late=t < 4)
            if package is not None:
                other = package(params)
                other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
                step(other, params, 7)
                optimizer = other
            loaded = lt.AdaMod(params)
            loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            expected = [6, 6, 3] if package is None else [7, 7, 4]
            self.assertEqual([int(loaded.state[p]["step"]) for p in params], expected)
            step(loaded, params, 8, late=True)
            self.assertEqual(int(loaded.state[params[-1]]["step"]), expected[-1])


class OfOurs(Loaded):
    def test_only_its_own_class(self):
        alike = (lt.Adam, lt.AdamW), (lt.AdamW, lt.Adam), (lt.AMSGrad, lt.Adam), (lt.AMSGrad, lt.AdamW)
        for first in CLASSES:
            begun, params = self.begun(lambda p: first(p, weight_decay=0.1), late=False)
            saved = copy.deepcopy(begun.state_dict())
            for second in CLASSES:
                if first is second or (first, second) in alike:
                    second(clones(params)).load_state_dict(saved)
                    continue
                loaded = second(clones(params))
                with self.assertRaises((TypeError, ValueError), msg=f"{first.__name__} into {second.__name__}"):
                    loaded.load_state_dict(saved)
                self.assertFalse(loaded.state)

    def test_another_model(self):
        begun, params = self.begun(lt.AdaMod, late=False)
        saved = begun.state_dict()
        others = make_params((6, 5), (8,), (4,), dtype=torch.float64)
        loaded = lt.AdaMod(others)
        with self.assertRaisesRegex(ValueError, r"exp_avg of parameter 1 of group 0 has shape \(7,\), expected \(8,\)"):
            loaded.load_state_dict(saved)

    def test_an_option_out_of_bounds(self):
        begun, params = self.begun(lt.AdaMod, late=False)
        saved = copy.deepcopy(begun.state_dict())
        saved["param_groups"][0]["eps"] = -1.0
        loaded = lt.AdaMod(params)
        with self.assertRaisesRegex(ValueError, "group 0: adamod: eps is -1"):
            loaded.load_state_dict(saved)
        self.assertEqual(loaded.param_groups[0]["eps"], 1e-8)

    def test_an_eps_of_zero(self):
        """torch.optim takes it, and divides zeros by it."""
        params = make_params((3,))
        theirs = torch.optim.Adam(params, eps=0)
        set_grads(params, 1)
        theirs.step()
        loaded = lt.Adam(params)
        with self.assertRaisesRegex(ValueError, "group 0: adam: eps is 0, expected 0 < eps < inf: .* default is 1e-08"):
            loaded.load_state_dict(theirs.state_dict())
        self.assertEqual(loaded.param_groups[0]["eps"], 1e-8)
        self.assertEqual(len(loaded.state), 0)
        saved = theirs.state_dict()
        saved["param_groups"][0]["eps"] = 1e-12
        loaded.load_state_dict(saved)
        loaded.step()


if __name__ == "__main__":
    unittest.main()
