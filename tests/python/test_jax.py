"""libadamod.jax against the C library, and what JAX and optax do with it. ADAMOD_REQUIRE_FRAMEWORKS=1 makes a missing
package an error.

SPDX-License-Identifier: MIT
"""

import functools
import inspect
import os
import pickle
import subprocess
import sys
import unittest

import find_package  # noqa: F401
import numpy as np
from libadamod import _c
from libadamod import numpy as an

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
try:
    import jax
    import optax
except ImportError:
    if os.environ.get("ADAMOD_REQUIRE_FRAMEWORKS"):
        raise
    jax = None
if jax:
    import jax.numpy as jnp
    import libadamod.jax as aj
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from libadamod.jax import formulas

    jax.config.update("jax_enable_x64", True)

NOT_HERE = {"low_precision", "state_type", "min_8bit_size", "clip_norm", "nonfinite", "seed", "threads"}
SIZE, STEPS = 6, 30
HESSIAN = [0, 0.01, 0.1, 1, 2, 0]


def numbers():
    """Parameters, and gradients of which one element begins late."""
    rng = np.random.default_rng(1)
    gradients = rng.standard_normal((STEPS, SIZE))
    gradients[:5, 0] = 0
    return rng.standard_normal(SIZE), gradients


def others(option):
    """Values of an option other than its default."""
    if option.choices:
        return [choice for choice in option.choices if choice != option.value]
    if isinstance(option.value, int):
        return [1 - option.value] if option.max == 1 else [7]
    if option.name == "clip_value":
        return [0.5]
    if option.max == 1:
        return [0.37, max(option.min, 0.0)]
    return [0.3]


# Sets of options that all rules have. No formula knows them, except decay.
COMMON = (
    {"weight_decay": 0.1, "decay": "l2", "maximize": 1, "clip_value": 0.5, "grad_scale": 0.7},
    {"weight_decay": 0.1, "decay": "decoupled"},
    {"weight_decay": 0.1, "decay": "independent"},
)
# Own options that act together.
TOGETHER = (
    {"cautious": 1, "flavour": "published"},
    {"momentum": 0.9, "centered": 1},
    {"momentum": 0.9, "nesterov": 1, "cautious": 1, "dampening": 0.2},
    {"warmup_steps": 9, "r": 1.5, "weight_lr_power": 3},
    {"beta_slow_warmup": 40, "alpha_warmup": 20},
)


def option_sets(rule):
    """Every option of a rule for itself, without the bound and with it; some together; those of all rules."""
    known = _c.options(rule)
    own = [name for name in known if name not in (*NOT_HERE, *COMMON[0], "bound")]
    together = [options for options in TOGETHER if set(options) <= set(known)]
    of_bound = {"bound", "beta3", "skip_idle"} if "bound" in known else set()
    yield {}
    yield from ({name: value} for name in own if name not in of_bound for value in others(known[name]))
    yield from together
    yield from COMMON
    if of_bound:
        yield from ({"beta3": 0.9, **options, "bound": "momental"} for options in ({}, *together))
        own = [name for name in own if name == "beta3" or not isinstance(known[name].value, float)]
        yield from ({"beta3": 0.9, name: others(known[name])[0], "bound": "momental"} for name in own)


def make(rule, options):
    options = dict(options)
    return aj.create(rule, options.pop("lr", None), **options)


def with_hessian(state):
    """The state that a caller writes."""
    if "hessian" not in state.states:
        return state
    h = jnp.asarray(HESSIAN, state.states["hessian"].dtype)
    return state._replace(states={**state.states, "hessian": h})


def by_library(rule, options, p, gradients, begin=0):
    p = p.copy()
    state = an.states(rule, p, **options)
    if "hessian" in state:
        state["hessian"][:] = HESSIAN
    if begin and "z" in state:
        state["z"][:] = p
    for t, g in enumerate(gradients, begin + 1):
        an.update(rule, p, g.astype(p.dtype), state, t, **options)
    return p, state


def by_jax(rule, options, p, gradients, begin=0, jit=False):
    tx = make(rule, options)
    p = jnp.asarray(p)
    state = with_hessian(tx.init(p))._replace(count=jnp.asarray(begin, jnp.int32))
    update = jax.jit(tx.update) if jit else tx.update
    for g in gradients:
        updates, state = update(jnp.asarray(g, p.dtype), state, p)
        p = optax.apply_updates(p, updates)
    return p, state


def far(one, other):
    """The difference, relative to the largest number."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return np.max(np.abs(one - other), initial=0) / max(np.max(np.abs(other), initial=0), 1e-300)


needs_jax = unittest.skipUnless(jax, "there is no jax or no optax")


class Import(unittest.TestCase):
    def test_the_package_alone_imports_no_framework(self):
        code = "import libadamod, sys; sys.exit(bool({'jax', 'keras', 'optax', 'torch'} & set(sys.modules)))"
        self.assertEqual(subprocess.run([sys.executable, "-c", code]).returncode, 0)


@needs_jax
class Agreement(unittest.TestCase):
    def compare(self, rule, options, tolerance, dtype=np.float64, begin=0, steps=STEPS, jit=False):
        p, gradients = numbers()
        p = p.astype(dtype)
        expected, states = by_library(rule, options, p, gradients[:steps], begin)
        found, state = by_jax(rule, options, p, gradients[:steps], begin, jit)
        self.assertEqual(found.dtype, dtype)
        self.assertEqual(set(state.states), set(states))
        self.assertEqual(int(state.count), begin + steps)
        for name, one, other in (("p", found, expected), *((n, state.states[n], states[n]) for n in states)):
            self.assertLess(far(one, other), tolerance, f"{rule} {options}: {name}")

    def test_every_formula_is_of_a_rule(self):
        """A rule of the library may have none yet."""
        self.assertEqual(sorted(formulas.FORMULAS), sorted(_c.rule_info(rule).name for rule in aj.rules()))
        for rule in (*aj.rules(), "adamw"):
            self.assertTrue(callable(getattr(aj, rule)))

    def test_every_option(self):
        for rule in aj.rules():
            for options in option_sets(rule):
                with self.subTest(rule=rule, **options):
                    self.compare(rule, options, 1e-12)
        self.compare("adamw", {}, 1e-12)
        self.compare("adamod", {"weight_decay": 0.1, "decay": "none"}, 1e-12)

    def test_jit(self):
        for rule in aj.rules():
            with self.subTest(rule):
                self.compare(rule, {"weight_decay": 0.1}, 1e-12, jit=True)

    def test_late_updates(self):
        """Series and sums that grow with the number of the update."""
        for rule, options in (
            ("nosadam", {}),
            ("nosadam", {"gamma": 1.0}),
            ("nosadam", {"gamma": 10.0}),
            ("nadam", {"beta1": 0.999, "momentum_decay": 1e-5}),
            ("radam", {}),
            ("radam", {"beta2": 0.0}),
            ("schedulefree_adamw", {"warmup_steps": 500, "r": 2.0}),
            ("schedulefree_sgd", {"warmup_steps": 10**6, "weight_lr_power": 10.0}),
            ("adabelief", {}),
        ):
            for begin in (3, 62, 700, 10**6):
                with self.subTest(rule=rule, begin=begin, **options):
                    self.compare(rule, options, 1e-12, begin=begin, steps=4)
                    # a coefficient is off by some roundings of 2^-24 each, and a power of the number by its logarithm
                    self.compare(rule, options, 3e-6, np.float32, begin=begin, steps=4)

    def test_float32(self):
        """Each of 30 updates rounds a few times."""
        for rule in aj.rules():
            with self.subTest(rule):
                self.compare(rule, {}, STEPS * 2**-24 * 4, np.float32)

    def test_first_update_in_float32(self):
        """A few roundings; 1 - 0.999 as float32 has it would be off by 1.3e-5, and the step by half of that."""
        _, gradients = numbers()
        p = np.zeros(SIZE, np.float32)
        for rule in aj.rules():
            with self.subTest(rule):
                expected, _ = by_library(rule, {}, p, gradients[5:6])
                found, _ = by_jax(rule, {}, p, gradients[5:6])
                self.assertLess(far(found, expected), 8 * 2**-24)

    def test_low_precision(self):
        p, gradients = numbers()
        for dtype in (jnp.bfloat16, np.float16):
            small = np.asarray(p).astype(dtype)
            for options in ({"weight_decay": 0.1, "lr": 0.01}, {"decay": "l2", "weight_decay": 0.1, "lr": 0.01}):
                expected, states = by_library("adamod", options, small, gradients)
                found, state = by_jax("adamod", options, small, gradients, jit=True)
                self.assertEqual((found.dtype, state.states["master"].dtype), (dtype, np.float32))
                self.assertEqual(state.states["exp_avg"].dtype, np.float32)
                self.assertLess(far(state.states["master"], states["master"]), 1e-5)
                # the same number, or where the copy lies in the middle of two, the other
                self.assertLess(far(found, expected), float(jnp.finfo(dtype).eps))
                np.testing.assert_array_equal(np.asarray(state.states["master"].astype(dtype)), np.asarray(found))

    def test_a_parameter_changed_by_hand(self):
        tx = aj.adamod(0.01)
        p = jnp.ones(3, jnp.bfloat16)
        _, state = tx.update(jnp.ones(3), tx.init(p), p)
        p = jnp.full(3, 7, jnp.bfloat16)
        _, state = tx.update(jnp.ones(3), state, p)
        np.testing.assert_allclose(state.states["master"], 7, rtol=1e-4)

    def test_beta3_of_0_is_adam(self):
        p, gradients = numbers()
        for flavour in _c.options("adam")["flavour"].choices:
            one, _ = by_jax("adamod", {"beta3": 0, "flavour": flavour}, p, gradients)
            other, _ = by_jax("adam", {"flavour": flavour}, p, gradients)
            np.testing.assert_array_equal(one, other)

    def test_adam_with_the_bound_is_adamod(self):
        p, gradients = numbers()
        one, _ = by_jax("adam", {"bound": True, "beta3": 0.99}, p, gradients)
        other, _ = by_jax("adamod", {"beta3": 0.99}, p, gradients)
        np.testing.assert_array_equal(one, other)

    def test_schedules(self):
        """The learning rate and any other real option may be functions of the number of updates so far."""
        p, gradients = numbers()
        schedules = {
            "lr": optax.cosine_decay_schedule(0.1, STEPS),
            "weight_decay": optax.linear_schedule(0.2, 0.1, 10),
            "beta3": lambda n: 0.9 + n / 1000,
        }
        found, _ = by_jax("adamod", schedules, p, gradients)
        state = an.states("adamod", p)
        for t, g in enumerate(gradients, 1):
            n = jnp.asarray(t - 1, jnp.int32)
            an.update("adamod", p, g, state, t, **{name: float(schedule(n)) for name, schedule in schedules.items()})
        self.assertLess(far(found, p), 1e-12)

    def test_not_finite(self):
        """A NaN or an infinity shows in the parameter where the library shows it."""
        p, gradients = numbers()
        gradients = gradients[:4].copy()
        gradients[2, 1], gradients[2, 2] = np.nan, np.inf
        for rule in aj.rules():
            for options in ({}, {"bound": "momental"} if "bound" in _c.options(rule) else {"weight_decay": 0.1}):
                with self.subTest(rule=rule, **options):
                    found, _ = by_jax(rule, options, p, gradients)
                    expected, _ = by_library(rule, options, p, gradients)
                    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))

    def test_evaluation(self):
        p, gradients = numbers()
        options = {"beta1": 0.8, "warmup_steps": 5}
        for rule in ("schedulefree_adamw", "schedulefree_sgd"):
            trained, states = by_library(rule, options, p, gradients)
            expected = an.evaluation(rule, trained, states, STEPS, **options)
            found, state = by_jax(rule, options, p, gradients)
            self.assertLess(far(aj.evaluation(rule, state, found, **options), expected), 1e-12)
        tree = {"a": jnp.ones(2)}
        self.assertIs(aj.evaluation("adamod", aj.adamod().init(tree), tree), tree)


@needs_jax
class Mapped(unittest.TestCase):
    """The numbers do not depend on how JAX divides the work. A few rules are enough to test, as rules are
    element-wise."""

    SOME = (("adamod", {"weight_decay": 0.1, "cautious": 1}), ("schedulefree_adamw", {"bound": "momental"}))

    def setUp(self):
        rng = np.random.default_rng(2)
        self.p = {"w": rng.standard_normal((8, 5)), "b": rng.standard_normal(8)}
        self.gradients = [{k: rng.standard_normal(v.shape) for k, v in self.p.items()} for _ in range(30)]

    def run_with(self, step, params, state, place=lambda tree: tree):
        for g in self.gradients:
            params, state = step(params, state, place(jax.tree_util.tree_map(jnp.asarray, g)))
        return params, state

    def step_of(self, tx):
        def step(params, state, g):
            updates, state = tx.update(g, state, params)
            return optax.apply_updates(params, updates), state

        return step

    def assert_same(self, one, other):
        jax.tree_util.tree_map(lambda a, b: self.assertLess(far(a, b), 1e-14), one, other)

    def test_sharded(self):
        self.assertEqual(len(jax.devices()), 4)
        sharding = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))

        def place(tree):
            return jax.device_put(tree, sharding)

        for rule, options in self.SOME:
            tx = make(rule, options)
            step = jax.jit(self.step_of(tx))
            expected = self.run_with(step, self.p, tx.init(self.p))
            params = place(self.p)
            state = tx.init(params)
            for leaf in jax.tree_util.tree_leaves(state.states):
                self.assertEqual(leaf.sharding, sharding)
            found = self.run_with(step, params, state, place)
            for leaf in jax.tree_util.tree_leaves((found[0], found[1].states)):
                self.assertEqual(leaf.sharding.spec, sharding.spec)
            self.assert_same(found, expected)

    def test_vmap(self):
        for rule, options in self.SOME:
            tx = make(rule, options)
            step = self.step_of(tx)
            expected = self.run_with(jax.jit(step), self.p, tx.init(self.p))
            double = functools.partial(jax.tree_util.tree_map, lambda x: jnp.stack([x, 2 * jnp.asarray(x)]))
            params = double(self.p)
            state = jax.vmap(tx.init)(params)
            found = self.run_with(jax.jit(jax.vmap(step)), params, state, double)
            self.assert_same(jax.tree_util.tree_map(lambda x: x[0], found), expected)

    @unittest.skipUnless(hasattr(jax, "pmap"), "this JAX has no pmap")
    def test_pmap(self):
        tx = aj.adamod(weight_decay=0.1)
        step = self.step_of(tx)
        expected = self.run_with(jax.jit(step), self.p, tx.init(self.p))
        copies = functools.partial(jax.tree_util.tree_map, lambda x: jnp.stack([x] * 4))

        def mean_step(params, state, g):
            return step(params, state, jax.lax.pmean(g, "x"))

        found = self.run_with(jax.pmap(mean_step, "x"), copies(self.p), copies(tx.init(self.p)), copies)
        self.assert_same(jax.tree_util.tree_map(lambda x: x[3], found), expected)

    def test_scan_and_donation(self):
        """Types and structures of a state stay as they are, and no array is in parameters and state both."""
        for rule in ("adamod", "schedulefree_adamw", "adopt"):
            tx = make(rule, {})
            step = self.step_of(tx)
            params = jax.tree_util.tree_map(lambda x: jnp.asarray(x, jnp.float32), self.p)
            grads = jax.tree_util.tree_map(lambda *x: jnp.stack(x).astype(jnp.float32), *self.gradients)
            state = tx.init(params)
            jitted = jax.jit(step, donate_argnums=(0, 1))
            one, _ = jax.lax.scan(lambda c, g: (step(*c, g), None), (params, state), grads)
            for t in range(len(self.gradients)):
                params, state = jitted(params, state, jax.tree_util.tree_map(lambda x: x[t], grads))
            jax.tree_util.tree_map(lambda a, b: self.assertLess(far(a, b), 1e-6), one, (params, state))


@needs_jax
class Trees(unittest.TestCase):
    def test_leaves_that_are_none(self):
        tx = aj.adamod(0.1)
        params = {"a": jnp.ones(3), "b": None, "c": [jnp.ones(()), None]}
        updates, state = tx.update(params, tx.init(params), params)
        self.assertIsNone(updates["b"])
        self.assertEqual(updates["c"][0].shape, ())
        self.assertIsNone(state.states["exp_avg"]["c"][1])

    def test_masked(self):
        tx = optax.masked(aj.adamod(0.1, weight_decay=0.1), {"a": True, "b": False})
        params = {"a": jnp.ones(3), "b": jnp.arange(3)}
        updates, _ = tx.update(params, tx.init(params), params)
        self.assertTrue(np.all(updates["a"] < 0))
        np.testing.assert_array_equal(updates["b"], params["b"])

    def test_mixed_types(self):
        tx = aj.adamod(0.1)
        params = {"a": jnp.ones(3, jnp.float32), "b": jnp.ones(3, jnp.bfloat16), "c": jnp.ones(3, jnp.float64)}
        state = tx.init(params)
        types = {k: v.dtype.name for k, v in state.states["exp_avg"].items()}
        self.assertEqual(types, {"a": "float32", "b": "float32", "c": "float64"})
        self.assertIsNone(state.states["master"]["a"])
        updates, state = jax.jit(tx.update)(params, state, params)
        params = optax.apply_updates(params, updates)
        self.assertEqual([params[k].dtype.name for k in "abc"], ["float32", "bfloat16", "float64"])

    def test_saved_and_restored(self):
        p, gradients = numbers()
        tx = aj.adamod(0.1)
        p = {"w": jnp.asarray(p, jnp.bfloat16), "v": jnp.asarray(p)}
        state = tx.init(p)

        def steps(p, state, part):
            for g in part:
                updates, state = tx.update({"w": g, "v": g}, state, p)
                p = optax.apply_updates(p, updates)
            return p, state

        p, state = steps(p, state, gradients[:10])
        saved = pickle.dumps(jax.tree_util.tree_map(np.asarray, (p, state)))
        leaves, tree = jax.tree_util.tree_flatten(state)
        expected = steps(p, state, gradients[10:])
        for found in (steps(*pickle.loads(saved), gradients[10:]), steps(p, tree.unflatten(leaves), gradients[10:])):
            jax.tree_util.tree_map(np.testing.assert_array_equal, found, expected)


@needs_jax
class Optax(unittest.TestCase):
    def test_chain(self):
        p, gradients = numbers()
        tx = optax.chain(optax.clip_by_global_norm(0.5), aj.adamod(0.1))
        q, state = jnp.asarray(p), tx.init(jnp.asarray(p))
        states = an.states("adamod", p)
        for t, g in enumerate(gradients, 1):
            updates, state = tx.update(jnp.asarray(g), state, q)
            q = optax.apply_updates(q, updates)
            an.update("adamod", p, g, states, t, lr=0.1, grad_scale=min(1, 0.5 / an.norm(g)))
        self.assertLess(far(q, p), 1e-12)

    def test_multi_steps(self):
        for dtype in (np.float64, jnp.bfloat16):
            p, gradients = numbers()
            tx = optax.MultiSteps(aj.adamod(0.1, weight_decay=0.1), 2)
            q = jnp.asarray(p, dtype)
            state, update = tx.init(q), jax.jit(tx.update)
            for g in gradients:
                updates, state = update(jnp.asarray(g, dtype), state, q)
                q = optax.apply_updates(q, updates)
            self.assertEqual(q.dtype, dtype)
            means = (gradients[::2] + gradients[1::2]) / 2
            expected, _ = by_jax("adamod", {"lr": 0.1, "weight_decay": 0.1}, np.asarray(p).astype(dtype), means)
            self.assertLess(far(q, expected), 1e-6 if dtype == np.float64 else 0.02)  # optax adds up in float32

    def test_inject_hyperparams(self):
        p, gradients = numbers()
        tx = optax.inject_hyperparams(aj.adam)(0.1, beta2=0.99, bound=True, beta3=optax.constant_schedule(0.9))
        q, state = jnp.asarray(p), tx.init(jnp.asarray(p))
        self.assertEqual(set(state.hyperparams), {"learning_rate", "beta2", "beta3"})
        update = jax.jit(tx.update)
        states = an.states("adam", p, bound="momental")
        for t, g in enumerate(gradients, 1):
            state.hyperparams["learning_rate"] = jnp.asarray(0.1 / t)
            updates, state = update(jnp.asarray(g), state, q)
            q = optax.apply_updates(q, updates)
            an.update("adam", p, g, states, t, lr=0.1 / t, beta2=0.99, bound="momental", beta3=0.9)
        self.assertLess(far(q, p), 1e-12)

    def test_without_optax(self):
        code = (
            "import sys; sys.modules['optax'] = None\n"
            "import libadamod.jax as aj, jax.numpy as jnp\n"
            "tx = aj.adamod(0.1); p = jnp.ones(3); u, s = tx.update(p, tx.init(p), p); print(float(u[0]) < 0)\n"
        )
        run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, universal_newlines=True)
        self.assertEqual((run.returncode, run.stdout), (0, "True\n"))


@needs_jax
class Refusals(unittest.TestCase):
    def refuses(self, error, text, call, *arguments, **options):
        with self.assertRaises(error) as caught:
            call(*arguments, **options)
        self.assertRegex(str(caught.exception), text)
        self.assertNotIn("\n", str(caught.exception))

    def test_options(self):
        self.refuses(TypeError, "adamod has no option 'beta33'; did you mean 'beta3'", aj.adamod, beta33=1)
        self.refuses(TypeError, "learning_rate", aj.adamod, lr=0.1)
        self.refuses(ValueError, "beta3 is 1, expected", aj.adamod, beta3=1)
        self.refuses(ValueError, "flavour", aj.adamod, flavour="papers")
        self.refuses(ValueError, "adam: beta3 is for bound='momental'", aj.adam, beta3=0.9)
        self.refuses(ValueError, "state_type is 'q8', and is not for JAX", aj.adamod, state_type="q8")
        self.refuses(ValueError, "clip_by_global_norm", aj.adamod, clip_norm=1.0)
        self.refuses(TypeError, "sgd: momentum is an array, expected a number", aj.sgd, 0.1, momentum=jnp.asarray(0.9))
        self.refuses(ValueError, r"lr has shape \(2,\), expected a number", aj.adamod, jnp.ones(2))
        self.refuses(ValueError, "lr is -1", aj.adamod, -1)
        self.refuses(TypeError, "beta1 is '0.9', expected a number", aj.adamod, beta1="0.9")
        self.refuses(TypeError, "flavour is a function, expected", aj.adamod, flavour=lambda n: 1)

    def test_rules(self):
        self.refuses(ValueError, "no rule 'adammod'; did you mean 'adamod'", aj.create, "adammod")
        self.refuses(ValueError, "lamb needs whole arrays, expected one of adamod, adam", aj.create, "lamb")
        self.refuses(TypeError, "expected a string", aj.create, 3)
        self.assertFalse(hasattr(aj, "lamb"))

    def test_parameters(self):
        tx = aj.adamod(0.1)
        self.refuses(TypeError, r"params\['a'\] is int32, expected float32", tx.init, {"a": jnp.zeros(2, jnp.int32)})
        self.refuses(TypeError, "params is complex64", tx.init, jnp.zeros(2, jnp.complex64))
        p = {"a": jnp.zeros(2)}
        state = tx.init(p)
        self.refuses(TypeError, r"gradient\['a'\] is int32", tx.update, {"a": jnp.zeros(2, jnp.int32)}, state, p)
        self.refuses(ValueError, r"gradient\['a'\] has shape \(3,\)", tx.update, {"a": jnp.zeros(3)}, state, p)
        self.refuses(ValueError, "different structures", tx.update, {"b": jnp.zeros(2)}, state, p)
        self.refuses(ValueError, "different structures", tx.update, p, state, jnp.zeros(2))
        self.refuses(ValueError, "different structures", tx.update, jnp.zeros(2), state)
        self.refuses(TypeError, "state is tuple", tx.update, p, (), p)
        self.refuses(TypeError, r"params\['a'\] is str, expected", tx.init, {"a": "x"})
        self.refuses(ValueError, "adam: state has exp_avg, exp_avg_lr, .*expected", aj.adam().update, p, state, p)
        self.refuses(ValueError, "eps", aj.adamod(eps=1e-300).init, jnp.zeros(2, jnp.float32))

    def test_missing_parameters(self):
        p = jnp.zeros(2)
        for tx, reason in (
            (aj.adamod(weight_decay=0.1), "weight_decay"),
            (aj.sgd(weight_decay=optax.constant_schedule(0.1)), "weight_decay"),
            (aj.schedulefree_sgd(), "this rule"),
        ):
            self.refuses(ValueError, f"without params, which {reason} needs", tx.update, p, tx.init(p))
        half = p.astype(jnp.bfloat16)
        self.refuses(ValueError, "16 bits", aj.adamod().update, half, aj.adamod().init(half))
        tx = aj.adamod(weight_decay=0.1, decay="none")
        tx.update(p, tx.init(p))

    def test_signatures(self):
        """The library's options, in its order, and the help of each."""
        for rule in aj.rules():
            function = getattr(aj, rule)
            names = [name for name in _c.options(rule) if name not in NOT_HERE]
            expected = ["learning_rate" if name == "lr" else name for name in names]
            self.assertEqual(list(inspect.signature(function).parameters), expected)
            for name in names[1:]:
                self.assertIn(_c.options(rule)[name].help, function.__doc__)


if __name__ == "__main__":
    unittest.main()
