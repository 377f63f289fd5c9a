"""The rules for numpy arrays, without PyTorch. Nothing is kept between calls: arrays, states and the count of updates
are yours.

    from libadamod import numpy as adamod

    state = adamod.states("adamod", weight)
    for t in range(1, 1001):
        adamod.update("adamod", weight, gradient(weight), state, t, lr=1e-3)

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import ctypes
import re
from typing import Any, Dict, List, Sequence, Tuple, Union

try:
    import numpy as np
except ImportError as error:
    raise ImportError(f"libadamod.numpy needs numpy, pip install numpy: {error}") from None

from . import _c

__all__ = ["evaluation", "norm", "states", "update"]

Array = np.ndarray
State = Dict[str, Array]

# bfloat16 is a type that packages such as ml_dtypes add to numpy.
_TYPES = {"float32": _c.F32, "float64": _c.F64, "bfloat16": _c.BF16, "float16": _c.F16}


def _hyper(rule: str, options: Dict[str, Any]) -> _c.Hyper:
    hyper = _c.Hyper(rule)
    if options.get("clip_norm", np.inf) != np.inf:
        raise ValueError("clip_norm is for PyTorch tensors; here grad_scale=min(1, limit / norm(grads)) does the same")
    for name, value in options.items():
        hyper.set(name, value)
    return hyper


def _shape(a: Array, name: str) -> Sequence[int]:
    if a.ndim > _c.MAX_DIMS:
        raise ValueError(f"{name} has {a.ndim} dimensions, expected {_c.MAX_DIMS} at most")
    return a.shape


def _check(a: Any, name: str, written: bool) -> int:
    """The library's type of an array that it can work on."""
    if not isinstance(a, np.ndarray):
        raise TypeError(f"{name} is {type(a).__name__}, expected a numpy array")
    if isinstance(a, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose masked elements would be updated too: expected a plain one")
    if a.dtype.name not in _TYPES or not a.dtype.isnative:
        raise TypeError(f"{name} is {a.dtype}, expected {', '.join(_TYPES)}")
    if not a.flags.c_contiguous or not a.flags.aligned:
        raise ValueError(f"{name} is not contiguous and aligned in memory")
    if written and not a.flags.writeable:
        raise ValueError(f"{name} is read-only")
    return _TYPES[a.dtype.name]


def _state_dtype(dtype: np.dtype, options: Dict[str, Any]) -> np.dtype:
    if options.get("state_type", "auto") != "auto":
        raise ValueError("state_type is for PyTorch tensors; states of numpy arrays have the type of computation")
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def states(rule: str, param: Array, **options: Any) -> State:
    """The initial states of a rule, by name. float16 and bfloat16 parameters also have `master`, a float32 copy, unless
    low_precision="stochastic"."""
    kind = _check(param, "param", False)
    dtype = _state_dtype(param.dtype, options)
    found = {s.name: np.full(s.shape, s.initial, dtype) for s in _hyper(rule, options).states(_shape(param, "param"))}
    if kind in (_c.BF16, _c.F16) and options.get("low_precision", "master") == "master":
        found["master"] = param.astype(np.float32)
    return found


def _count(step: Any) -> int:
    """The number of an update, which the library has in 64 bits."""
    if not isinstance(step, (int, np.integer)):
        raise TypeError(f"step is {step!r}, expected a whole number")
    if step >= 2**62:
        raise ValueError(f"step is {step}, expected step < 2**62")
    return int(step)


def _fill(
    span: _c.Span, hyper: _c.Hyper, at: str, param: Array, grad: Array, state: State, step: int, options: Dict[str, Any]
) -> None:
    span.param_type = _check(param, f"param{at}", True)
    span.grad_type = _check(grad, f"grad{at}", False)
    if param.shape != grad.shape:
        raise ValueError(f"grad{at} has shape {grad.shape}, its parameter {param.shape}")
    if not isinstance(state, dict):
        raise TypeError(f"state{at} is {type(state).__name__}, expected a dict of arrays")
    dtype = _state_dtype(param.dtype, options)
    span.state_type = _TYPES[dtype.name]
    span.ndim, span.count, span.step = param.ndim, param.size, step
    span.shape[: param.ndim] = _shape(param, f"param{at}")
    span.param, span.grad = param.ctypes.data, grad.ctypes.data
    wanted = {s.name: (s.place, s.shape) for s in hyper.states(param.shape)}
    if "master" in state:
        if span.param_type not in (_c.BF16, _c.F16):
            raise ValueError(f"state{at} has master, which is for float16 and bfloat16, and param{at} is {param.dtype}")
        wanted["master"] = (-1, param.shape)
    others = [name for name in state if name not in wanted]
    if others:
        raise ValueError(f"state{at} has {others[0]}, which {hyper.rule} does not have with these options")
    for name, (index, shape) in wanted.items():
        if name not in state:
            raise ValueError(f"state{at} has no {name}")
        a = state[name]
        if _check(a, f"{name}{at}", True) != _TYPES[dtype.name] or a.shape != shape:
            raise ValueError(f"{name}{at} is {a.dtype} of shape {a.shape}, expected {dtype} of shape {shape}")
        if index < 0:
            span.master = a.ctypes.data
        else:
            span.state[index] = a.ctypes.data


def _lists(one: bool, *arguments: Tuple[str, Any]) -> List[List[Any]]:
    """Arguments that are lists of one length, or one of each."""
    for name, x in arguments:
        if not one and not hasattr(x, "__iter__"):
            raise TypeError(f"{name} is {type(x).__name__}, expected an array, or lists of as many arrays and states")
    lists = [[x] if one else list(x) for _, x in arguments]
    if len(set(map(len, lists))) > 1:
        counts = [f"{len(x)} {name}" for x, (name, _) in zip(lists, arguments)]
        raise ValueError(f"{', '.join(counts[:-1])} and {counts[-1]}, expected as many of each")
    return lists


def update(
    rule: str,
    params: Union[Array, Sequence[Array]],
    grads: Union[Array, Sequence[Array]],
    state: Union[State, Sequence[State]],
    step: int,
    *,
    threads: int = 1,
    **options: Any,
) -> None:
    """Updates one array, or many at once, in place.

    step is the number of the update; the first is 1. options are the rule's, under the library's names: lr, beta1,
    beta2, weight_decay, ...; `libadamod.options(rule)` lists them. All arrays must be contiguous. float64 arrays are
    computed in float64, all others in float32.
    """
    one, step = isinstance(params, np.ndarray), _count(step)
    all_params, all_grads, all_states = _lists(one, ("parameters", params), ("gradients", grads), ("states", state))
    hyper = _hyper(rule, options)
    spans = (_c.Span * len(all_params))()
    for i, (span, p, g, s) in enumerate(zip(spans, all_params, all_grads, all_states)):
        span.stream = i
        _fill(span, hyper, "" if one else f" {i}", p, g, s, step, options)
    try:
        hyper.update(spans, sum(p.size for p in all_params), threads)
    except ValueError as error:
        message = str(error).replace("span 0: ", "", 1) if one else re.sub(r"span (\d+)", r"array \1", str(error))
        raise ValueError(message) from None


def evaluation(
    rule: str,
    params: Union[Array, Sequence[Array]],
    state: Union[State, Sequence[State]],
    step: int,
    **options: Any,
) -> Union[Array, List[Array]]:
    """The weights to evaluate with after update number step, in new arrays: training goes on with params as they are.

    The Schedule-Free rules evaluate with an average of the weights. For all other rules these are copies of params.
    options are those of the updates.
    """
    one, step = isinstance(params, np.ndarray), _count(step)
    if step < 0:
        raise ValueError(f"step is {step}, expected 0 or more")
    all_params, all_states = _lists(one, ("parameters", params), ("states", state))
    for i, p in enumerate(all_params):
        _check(p, "param" if one else f"param {i}", False)
    found = [p.copy() for p in all_params]
    hyper = _hyper(rule, options)
    if _c.rule_info(rule).averages and step > 0:
        spans = (_c.Span * len(found))()
        for i, (span, p, s) in enumerate(zip(spans, found, all_states)):
            _fill(span, hyper, "" if one else f" {i}", p, p, s, step, options)
        _c.to_evaluate(rule, options, spans)
    return found[0] if one else found


def norm(grads: Union[Array, Sequence[Array]], *, threads: int = 1) -> float:
    """The global norm of gradients; infinite or NaN if any of them is not finite. Intermediate results neither overflow
    nor underflow."""
    (arrays,) = _lists(isinstance(grads, np.ndarray), ("gradients", grads))
    spans = (_c.Span * len(arrays))()
    for i, (span, g) in enumerate(zip(spans, arrays)):
        span.grad_type = _check(g, f"grad {i}", False)
        span.grad, span.count = g.ctypes.data, g.size
    out = ctypes.c_double()
    _c.check(_c.lib.adamod_norm(spans, len(spans), _c.pool(threads), ctypes.byref(out)))
    return out.value
