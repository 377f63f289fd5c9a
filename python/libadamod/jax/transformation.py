"""Rules as gradient transformations: options, states, and what surrounds a formula in every update.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import difflib
import inspect
from numbers import Real
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import jax  # type: ignore[import-not-found, import-untyped, unused-ignore]
import jax.numpy as jnp  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .. import _c
from .formulas import FORMULAS

__all__ = ["GradientTransformation", "State", "create", "evaluation", "named", "rules"]

try:
    from optax import GradientTransformation  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError:

    class GradientTransformation(NamedTuple):  # type: ignore[no-redef]
        """As optax has it."""

        init: Callable[[Any], Any]
        update: Callable[..., Tuple[Any, Any]]


class State(NamedTuple):
    """The state of a rule. states has a tree like the parameters under the name of each of the library's states, and
    "master", float32 copies, where there are parameters of 16 bits."""

    count: Any
    states: Dict[str, Any]


_TYPES = {"float32": _c.F32, "float64": _c.F64, "bfloat16": _c.BF16, "float16": _c.F16}

# Options of the C library that have no meaning here, and what to do instead.
_NOT_HERE = {
    "clip_norm": "optax.clip_by_global_norm does this, before it in optax.chain",
    "nonfinite": "optax.apply_if_finite does this, around it",
    "low_precision": "parameters of 16 bits have a float32 copy, and nothing is rounded at random",
    "state_type": "states are float32, and float64 for float64 parameters",
    "min_8bit_size": "there are no states in 8 bits",
    "seed": "nothing is rounded at random",
    "threads": "XLA decides this",
}


def _flatten(tree: Any) -> Tuple[List[Tuple[Any, Any]], Any]:
    """The leaves with the names of their places, and the structure."""
    flat: Tuple[List[Tuple[Any, Any]], Any] = jax.tree_util.tree_flatten_with_path(tree)
    return flat


def rules() -> List[str]:
    """The rules there are here: those of the library that need no whole arrays and have a formula in formulas.py."""
    return [rule for rule in _c.rules() if not _c.rule_info(rule).whole_arrays and _c.rule_info(rule).name in FORMULAS]


def _word_or_number(option: _c.Option, value: Any) -> Any:
    """A value as the formulas expect it: of a choice its word, of others a number of the type of the default."""
    if isinstance(value, str):
        return value
    return option.choices[int(value)] if option.choices else type(option.value)(value)


class _Options:
    """The options of a transformation: numbers that were checked, and others that only an update knows."""

    def __init__(self, rule: str, learning_rate: Any, given: Dict[str, Any]) -> None:
        if _c.rule_info(rule).whole_arrays:
            raise ValueError(f"{rule} needs whole arrays, expected one of {', '.join(rules())}")
        self.rule, self.hyper = rule, _c.Hyper(rule)
        self.info, known = _c.rule_info(rule), _c.options(rule)
        self.fixed: Dict[str, Any] = {name: option.value for name, option in known.items() if name not in _NOT_HERE}
        self.timed: Dict[str, Any] = {}
        if "lr" in given:
            raise TypeError(f"{rule}: lr is learning_rate here")
        given = {name: value for name, value in {"lr": learning_rate, **given}.items() if value is not None}
        for name, value in given.items():
            self._set(name, value, known)
        self.states = self.hyper.states((1,))  # states of any shape; only their shape differs
        self.bounded = any(state.name == "exp_avg_lr" for state in self.states)
        for name in ("beta3", "skip_idle"):
            if name in given and not self.bounded:
                raise ValueError(f"{rule}: {name} is for bound='momental', which is not set")

    def _set(self, name: str, value: Any, known: Dict[str, _c.Option]) -> None:
        if name not in known:
            names = ["learning_rate", *(n for n in known if n not in (*_NOT_HERE, "lr"))]
            near = difflib.get_close_matches(name, names, 1, 0.5)
            hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(names)}"
            raise TypeError(f"{self.rule} has no option '{name}'; {hint}")
        option = known[name]
        if name in _NOT_HERE and value != option.value:
            raise ValueError(f"{self.rule}: {name} is {value!r}, and is not for JAX: {_NOT_HERE[name]}")
        if isinstance(value, str) and not option.choices:
            raise TypeError(f"{self.rule}: {name} is {value!r}, expected a number")
        if isinstance(value, (str, Real)):
            self.hyper.set(name, value)
            if name not in _NOT_HERE:
                self.fixed[name] = _word_or_number(option, value)
        elif not isinstance(option.value, float) or option.structural:
            kind = "a function" if callable(value) else "an array"
            raise TypeError(
                f"{self.rule}: {name} is {kind}, expected a number or a word: it decides what is computed; "
                f"optax.inject_hyperparams has static_args for it"
            )
        elif not callable(value) and jnp.shape(value) != ():
            raise ValueError(f"{self.rule}: {name} has shape {jnp.shape(value)}, expected a number")
        else:
            self.timed[name] = value

    def decays(self) -> bool:
        return self.fixed["decay"] != "none" and ("weight_decay" in self.timed or self.fixed["weight_decay"] != 0)

    def at(self, count: Any, dtype: Any) -> SimpleNamespace:
        """All options in an update, after count others."""
        o = SimpleNamespace(**{"cautious": 0, "skip_idle": 0, **self.fixed}, bounded=self.bounded)
        for name, value in self.timed.items():
            setattr(o, name, jnp.asarray(value(count) if callable(value) else value, dtype))
        factor = {"decoupled": o.lr, "independent": 1}.get(o.decay, 0)
        o.decay_now = factor * o.weight_decay  # how much of the parameter goes before the step
        return o


_LAST = 2**31 - 1  # update that is counted


def _computed(dtype: Any) -> Any:
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def _array(rule: str, what: str, path: Any, leaf: Any) -> Any:
    """A leaf as an array of a type that rules can work on."""
    try:
        array = jnp.asarray(leaf)
        found = array.dtype.name
    except TypeError:
        found = type(leaf).__name__
    if found not in _TYPES:
        name = f"{what}{jax.tree_util.keystr(path)}"
        raise TypeError(f"{rule}: {name} is {found}, expected {', '.join(_TYPES)}")
    return array


def _check_state(settings: _Options, state: Any) -> None:
    if not isinstance(state, State):
        raise TypeError(f"{settings.rule}: state is {type(state).__name__}, expected what init or update returned")
    found, expected = set(state.states) - {"master"}, {s.name for s in settings.states}
    if found != expected:
        names = [", ".join(sorted(those)) or "nothing" for those in (found, expected)]
        raise ValueError(f"{settings.rule}: state has {names[0]}, expected {names[1]}: it is of another rule or option")


def create(rule: str, learning_rate: Any = None, **options: Any) -> GradientTransformation:
    """A rule of the library as a gradient transformation: create("adam", 1e-3, bound="momental", beta3=0.999).

    learning_rate and every other real option is a number, an array, or a schedule: a function of the number of updates
    so far. None is the library's default; `libadamod.options(rule)` has all options, their defaults and bounds.
    """
    settings = _Options(rule, learning_rate, options)
    formula = FORMULAS.get(settings.info.name)
    if formula is None:
        raise ValueError(f"libadamod.jax has no formula of {rule}")

    def init(params: Any) -> State:
        flat, tree = _flatten(params)
        leaves = [_array(rule, "params", path, leaf) for path, leaf in flat]
        for name in sorted({leaf.dtype.name for leaf in leaves}):
            settings.hyper.check(_TYPES[name])
        states = {}
        for s in settings.states:
            if s.name in settings.info.begin_as_param:
                made = [jnp.array(p, _computed(p.dtype), copy=True) for p in leaves]
            else:
                made = [jnp.full_like(p, s.initial, dtype=_computed(p.dtype)) for p in leaves]
            states[s.name] = tree.unflatten(made)
        small = [p.dtype.itemsize == 2 for p in leaves]
        if any(small):
            states["master"] = tree.unflatten(
                [p.astype(jnp.float32) if is_small else None for p, is_small in zip(leaves, small)]
            )
        return State(jnp.zeros((), jnp.int32), states)

    def update(updates: Any, state: State, params: Any = None) -> Tuple[Any, State]:
        flat, tree = _flatten(updates)
        _check_state(settings, state)
        reason = _needs_params(settings, state) if params is None else None
        if reason:
            raise ValueError(f"{rule}: update was called without params, which {reason} needs")
        before = jnp.asarray(state.count)  # a restored one may be numpy's
        columns = {name: _leaves(rule, name, tree, states) for name, states in state.states.items()}
        if params is not None:
            columns["p"] = _leaves(rule, "params", tree, params)
        steps: Dict[Any, Tuple[SimpleNamespace, Callable[[SimpleNamespace], Any]]] = {}
        found = []
        new: Dict[str, List[Any]] = {name: [] for name in state.states}
        for i, (path, g) in enumerate(flat):
            g = _array(rule, "gradient", path, g)
            there = {name: column[i] for name, column in columns.items() if column[i] is not None}
            x = SimpleNamespace(**{name: _array(rule, name, path, leaf) for name, leaf in there.items()})
            for name, array in vars(x).items():
                if array.shape != g.shape:
                    where, what = jax.tree_util.keystr(path), "parameter" if name == "p" else name
                    raise ValueError(f"{rule}: gradient{where} has shape {g.shape}, and its {what} {array.shape}")
            dtype = _computed(next(iter(vars(x).values()), g).dtype)  # that of the states
            if dtype not in steps:
                o = settings.at(before, dtype)
                steps[dtype] = o, formula(o, before.astype(dtype) + 1)
            o, step = steps[dtype]
            found.append(_update(o, step, x, g, dtype))
            for name, column in new.items():
                column.append(getattr(x, name).astype(dtype) if hasattr(x, name) else None)
        count = jnp.where(before < _LAST, before + 1, before)
        return tree.unflatten(found), State(count, {name: tree.unflatten(column) for name, column in new.items()})

    return GradientTransformation(init, update)


def _needs_params(settings: _Options, state: State) -> Optional[str]:
    """The reason why a transformation needs the parameters, for a message; None: it needs none."""
    if settings.info.begin_as_param:
        return "this rule"
    if "master" in state.states:
        return "a parameter of 16 bits"
    return "weight_decay" if settings.decays() else None


def _leaves(rule: str, what: str, tree: Any, values: Any) -> List[Any]:
    try:
        leaves: List[Any] = tree.flatten_up_to(values)
    except (ValueError, TypeError):
        leaves = [()]
    if any(isinstance(leaf, (tuple, list, dict)) for leaf in leaves):
        raise ValueError(f"{rule}: {what} and the gradients are trees of different structures")
    return leaves


def _update(o: SimpleNamespace, step: Callable[[SimpleNamespace], Any], x: SimpleNamespace, g: Any, dtype: Any) -> Any:
    """Returns the number to add to a parameter, and updates the states in x."""
    if hasattr(x, "p"):
        given = x.p.astype(dtype)
        # A parameter that no longer equals its rounded copy was changed by others: the update starts from the
        # parameter.
        x.p = jnp.where(x.master.astype(x.p.dtype) == x.p, x.master, given) if hasattr(x, "master") else given
    x.g = g.astype(dtype) * (-o.grad_scale if o.maximize else o.grad_scale)
    if not (isinstance(o.clip_value, float) and o.clip_value == float("inf")):
        x.g = jnp.clip(x.g, -o.clip_value, o.clip_value)
    if o.decay == "l2" and hasattr(x, "p"):
        x.g = x.g + o.weight_decay * x.p
    taken = step(x)
    if hasattr(x, "p"):
        taken = taken + o.decay_now * x.p
    if not hasattr(x, "master"):
        return (-taken).astype(dtype)
    x.master = x.p - taken
    return x.master - given


def evaluation(rule: str, state: State, params: Any, **options: Any) -> Any:
    """The weights to evaluate with. The Schedule-Free rules evaluate with an average of the weights; other rules with
    params. options are those of the transformation."""
    settings = _Options(rule, None, options)
    _check_state(settings, state)
    if not settings.info.averages:
        return params
    beta1 = settings.at(state.count, jnp.float32).beta1
    tree: Any = jax.tree_util.tree_structure(params)
    masters = _leaves(rule, "master", tree, state.states["master"]) if "master" in state.states else None

    def average(i: int, p: Any, z: Any) -> Any:
        y = p.astype(z.dtype) if masters is None or masters[i] is None else masters[i]
        return (y + (1 - 1 / beta1) * (z - y)).astype(p.dtype)

    pairs = zip(map(jnp.asarray, tree.flatten_up_to(params)), _leaves(rule, "z", tree, state.states["z"]))
    return tree.unflatten([average(i, p, z) for i, (p, z) in enumerate(pairs)])


def named(rule: str) -> Callable[..., GradientTransformation]:
    """create for one rule. Its signature names every option, as optax.inject_hyperparams needs."""

    def make(learning_rate: Any = None, **options: Any) -> GradientTransformation:
        return create(rule, learning_rate, **options)

    own = {name: option for name, option in _c.options(rule).items() if name not in (*_NOT_HERE, "lr")}
    make.__name__ = make.__qualname__ = rule
    make.__doc__ = "\n".join(
        [
            f"{rule}: {_c.rules().get(rule, 'another name, with other defaults')}. None is the default of each option.",
            "",
            f"learning_rate ({_c.options(rule)['lr'].value:g}): a number, an array or a schedule",
            *(f"{name} ({option.value}): {option.help}" for name, option in own.items()),
        ]
    )
    keywords = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in own]
    first = inspect.Parameter("learning_rate", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    make.__signature__ = inspect.Signature([first, *keywords])  # type: ignore[attr-defined]
    return make
