"""The C interface, adamod.h, as ctypes sees it. Everything else in the package goes through this module.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib
import os
import re
import threading
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple, Type, Union

MAX_DIMS = 8
MAX_STATES = 8
F32, F64, BF16, F16, Q8 = range(5)
Q8_BLOCK = 256
HIST_BINS, HIST_LOW, HIST_HIGH = 200, -12.0, 8.0
WORTH_THREADS = 65536  # elements; fewer are updated before other threads are awake

_REAL, _INTEGER, _CHOICE = range(3)
BEGINS_AS_PARAM = 2


class Span(ctypes.Structure):
    """adamod_span: one array with its gradient and states."""

    _fields_ = [
        ("param", c_void_p),
        ("grad", c_void_p),
        ("master", c_void_p),
        ("state", c_void_p * MAX_STATES),
        ("param_type", c_int),
        ("grad_type", c_int),
        ("state_type", c_int),
        ("ndim", c_int),
        ("shape", c_int64 * MAX_DIMS),
        ("count", c_int64),
        ("step", c_int64),
        ("stream", c_uint64),
        ("scale", c_void_p * MAX_STATES),
    ]


class TensorDesc(ctypes.Structure):
    """adamod_tensor: a parameter as a handle is told of it."""

    _fields_ = [
        ("name", c_char_p),
        ("param", c_void_p),
        ("grad", c_void_p),
        ("param_type", c_int),
        ("grad_type", c_int),
        ("ndim", c_int),
        ("shape", c_int64 * MAX_DIMS),
        ("master", c_void_p),
        ("state", c_void_p * MAX_STATES),
        ("scale", c_void_p * MAX_STATES),
    ]


class StateDesc(ctypes.Structure):
    """adamod_state_desc"""

    _fields_ = [
        ("name", c_char_p),
        ("count", c_int64),
        ("ndim", c_int),
        ("shape", c_int64 * MAX_DIMS),
        ("initial", c_double),
    ]


class OptionDesc(ctypes.Structure):
    """adamod_option"""

    _fields_ = [
        ("name", c_char_p),
        ("help", c_char_p),
        ("kind", c_int),
        ("value", c_double),
        ("min", c_double),
        ("max", c_double),
        ("min_open", c_int),
        ("max_open", c_int),
        ("choices", POINTER(c_char_p)),
        ("structural", c_int),
        ("optimizer_wide", c_int),
    ]


class RuleStateDesc(ctypes.Structure):
    """adamod_rule_state"""

    _fields_ = [
        ("name", c_char_p),
        ("index", c_int),
        ("shape", c_int),
        ("presence", c_int),
        ("begins", c_int),
    ]


class RuleDesc(ctypes.Structure):
    """adamod_rule"""

    _fields_ = [
        ("name", c_char_p),
        ("summary", c_char_p),
        ("source", c_char_p),
        ("year", c_int),
        ("n_states", c_int),
        ("states", POINTER(RuleStateDesc)),
        ("shaped", c_int),
        ("whole_arrays", c_int),
        ("couples_arrays", c_int),
        ("sparse_gradients", c_int),
        ("q8_states", c_int),
        ("averages", c_int),
        ("uncounted", c_int),
        ("bound", c_int),
        ("signed_states", c_int),
        ("matrices_only", c_int),
    ]


class Statistics(ctypes.Structure):
    """adamod_statistics"""

    _fields_ = [
        ("elements", c_int64),
        ("bounded", c_double),
        ("eta_min", c_double),
        ("eta_median", c_double),
        ("eta_max", c_double),
        ("step_min", c_double),
        ("step_median", c_double),
        ("step_max", c_double),
        ("grad_norm", c_double),
        ("update_norm", c_double),
        ("eta", c_int64 * HIST_BINS),
        ("step", c_int64 * HIST_BINS),
        ("nonfinite", c_int64),
        ("idle_eta", c_int64 * HIST_BINS),
        ("idle_step", c_int64 * HIST_BINS),
    ]


def _find_library() -> str:
    given = os.environ.get("ADAMOD_LIBRARY")
    if given:
        return given
    folder = os.path.dirname(os.path.abspath(__file__))
    found = sorted(glob.glob(os.path.join(glob.escape(folder), "libadamod.so*")))
    if not found:
        raise ImportError(
            f"no libadamod.so in {folder}: install the package with pip, or set ADAMOD_LIBRARY to the library's path"
        )
    if len(found) > 1:
        names = ", ".join(os.path.basename(path) for path in found)
        raise ImportError(f"{names} in {folder}, expected one: two versions were installed there; remove the folder")
    return found[0]


def _machine(path: str) -> str:
    """The processor that a file is for."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError:
        return ""
    number = int.from_bytes(head[18:20], "little")
    return (
        {3: "i686", 62: "x86_64", 183: "aarch64"}.get(number, f"ELF machine {number}") if head[:4] == b"\x7fELF" else ""
    )


def _glibc(path: str) -> str:
    """The version of the C library that a library's symbols need; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            found = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", file.read())
    except OSError:
        return ""
    return "{}.{}".format(*max(tuple(map(int, version)) for version in found)) if found else ""


def _why(path: str, error: OSError) -> str:
    """Why the library does not load, in one line: the loader does not say it of another processor."""
    theirs, ours = _machine(path), _machine("/proc/self/exe")
    if theirs and ours and theirs != ours:
        return f"{path} is for {theirs}, and this Python is for {ours}: install the package with this Python's pip"
    old = re.search(r"version `GLIBC_([\d.]+)' not found", str(error))  # the first one that is missing
    if old:
        here, needed = os.confstr("CS_GNU_LIBC_VERSION") or "an older one", _glibc(path) or old[1]
        return f"{path} needs glibc {needed} or later, and this system has {here}: build the package from its sources"
    return f"{path} cannot be loaded: {error}"


def _load() -> ctypes.CDLL:
    path = _find_library()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(_why(path, error)) from None
    signatures = {
        "adamod_last_error": (c_char_p, []),
        "adamod_version_string": (c_char_p, []),
        "adamod_rule_name": (c_char_p, [c_int]),
        "adamod_rule_summary": (c_char_p, [c_int]),
        "adamod_rule_info": (c_int, [c_char_p, POINTER(RuleDesc), c_size_t]),
        "adamod_option_at": (c_int, [c_char_p, c_int, POINTER(OptionDesc)]),
        "adamod_hyper_create": (c_int, [POINTER(c_void_p), c_char_p]),
        "adamod_hyper_free": (None, [c_void_p]),
        "adamod_hyper_set": (c_int, [c_void_p, c_char_p, c_double]),
        "adamod_hyper_set_text": (c_int, [c_void_p, c_char_p, c_char_p]),
        "adamod_hyper_check": (c_int, [c_void_p, c_int]),
        "adamod_state_at": (c_int, [c_void_p, c_int, POINTER(c_int64), c_int, POINTER(StateDesc)]),
        "adamod_update": (c_int, [c_void_p, POINTER(Span), c_size_t, c_void_p]),
        "adamod_check": (c_int, [POINTER(c_void_p), POINTER(Span), c_size_t]),
        "adamod_update_collect": (c_int, [c_void_p, POINTER(Span), c_size_t, c_void_p, POINTER(Statistics)]),
        "adamod_q8_encode": (c_int, [c_int, c_int64, c_void_p, c_void_p, c_void_p]),
        "adamod_q8_decode": (c_int, [c_int, c_int64, c_void_p, c_void_p, c_void_p]),
        "adamod_norm": (c_int, [POINTER(Span), c_size_t, c_void_p, POINTER(c_double)]),
        "adamod_pool_create": (c_int, [POINTER(c_void_p), c_int]),
        "adamod_create_on": (c_int, [POINTER(c_void_p), c_char_p, c_char_p]),
        "adamod_free": (None, [c_void_p]),
        "adamod_set": (c_int, [c_void_p, c_char_p, c_double]),
        "adamod_set_text": (c_int, [c_void_p, c_char_p, c_char_p]),
        "adamod_evaluation": (c_int, [c_void_p, c_int]),
        "adamod_add_group": (c_int, [c_void_p, POINTER(c_int)]),
        "adamod_group_set": (c_int, [c_void_p, c_int, c_char_p, c_double]),
        "adamod_group_set_text": (c_int, [c_void_p, c_int, c_char_p, c_char_p]),
        "adamod_add_tensor": (c_int, [c_void_p, c_int, POINTER(TensorDesc), POINTER(c_int64)]),
        "adamod_set_arrays": (
            c_int,
            [c_void_p, c_int64, POINTER(c_int64), POINTER(c_void_p), POINTER(c_void_p)],
        ),
        "adamod_all_tensor_steps": (c_int, [c_void_p, c_int64, POINTER(c_int64)]),
        "adamod_set_tensor_steps": (c_int, [c_void_p, c_int64, c_int64]),
        "adamod_step": (c_int, [c_void_p]),
        "adamod_collect": (c_int, [c_void_p, c_int]),
        "adamod_get_statistics": (c_int, [c_void_p, c_int, POINTER(Statistics)]),
        "adamod_cuda_status": (c_int, []),
        "adamod_set_stream": (c_int, [c_void_p, c_void_p]),
        "adamod_set_device_value": (c_int, [c_void_p, c_int, c_char_p, c_void_p, c_int]),
        "adamod_set_scaler": (c_int, [c_void_p, c_void_p, c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path} is of another version than this package: it has no {name}") from None
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()

ERROR_ORDER = -4
_ERRORS: Dict[int, Type[Exception]] = {
    -1: ValueError,  # ADAMOD_ERROR_ARGUMENT
    -2: ValueError,  # _NAME
    -3: ValueError,  # _RANGE
    -5: MemoryError,  # _MEMORY
}


def check(status: int) -> None:
    """Raises what a failed call said."""
    if status:
        message = lib.adamod_last_error().decode()
        prefix = "adamod: "
        raise _ERRORS.get(status, RuntimeError)(message[len(prefix) :] if message.startswith(prefix) else message)


def version() -> str:
    return str(lib.adamod_version_string().decode())


def _check_cuda() -> None:
    """Where the library finds none by itself, says how to get one; anything else it says when it is asked for a GPU."""
    try:
        check(lib.adamod_cuda_status())
    except Exception as error:
        if "cannot be loaded" in str(error):
            how = "pip install libadamod[cuda], or build libadamod where nvcc is, with ADAMOD_CUDA=on"
            if os.path.islink(lib._name):  # as Debian's package has it
                how = "install the package libadamod-cuda0"
            raise RuntimeError(f"{error}; {how}") from None


def load_cuda() -> None:
    """Loads the CUDA library of libadamod-cuda13, where that package is installed and libadamod has none beside it: it
    then finds this one, by its name. Call it before anything that needs a GPU."""
    name = "libadamod_cuda.so.0"
    beside = os.path.join(os.path.dirname(os.path.abspath(lib._name)), name)
    if os.environ.get("ADAMOD_CUDA_LIBRARY") or os.path.exists(beside):
        return
    try:
        package = importlib.import_module("libadamod_cuda13")
    except ModuleNotFoundError:
        _check_cuda()
        return
    if package.__version__ != version():
        raise RuntimeError(
            f"cuda: libadamod-cuda13 is version {package.__version__}, expected {version()}, which libadamod is: "
            f"pip install libadamod[cuda]=={version()}"
        )
    path = os.path.join(os.path.dirname(os.path.abspath(str(package.__file__))), name)
    try:
        ctypes.CDLL(path)
    except OSError as error:
        raise RuntimeError(f"cuda: {_why(path, error)}") from None


# ---- rules and options ----


class Option(NamedTuple):
    """An option of a rule, from the library's own table. A choice's value is its word."""

    name: str
    help: str
    value: Union[float, int, str]
    min: float
    max: float
    choices: Tuple[str, ...]
    structural: bool
    optimizer_wide: bool


def rules() -> Dict[str, str]:
    """The rules there are, and one line about each."""
    found: Dict[str, str] = {}
    while True:
        name = lib.adamod_rule_name(len(found))
        if name is None:
            return found
        found[name.decode()] = lib.adamod_rule_summary(len(found)).decode()


class Rule(NamedTuple):
    """The properties of a rule, from its own file in the library; adamod.h explains the flags."""

    name: str  # of the rule itself, where it was asked for by another
    signed_states: FrozenSet[str]  # names of those that can be negative
    begin_as_param: FrozenSet[str]  # names of states
    states: FrozenSet[str]  # names of all that it may have
    shaped: bool
    whole_arrays: bool
    couples_arrays: bool
    sparse_gradients: bool
    q8_states: bool
    averages: bool
    uncounted: bool
    matrices_only: bool


def _text(what: str, value: Any) -> bytes:
    """A string for the library, which ends at its first NUL."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}, expected a string")
    if "\0" in value:
        raise ValueError(f"{what} is {value!r}, expected no NUL in it")
    return value.encode("utf-8", "backslashreplace")


@functools.lru_cache(maxsize=None)
def rule_info(rule: str) -> Rule:
    c = RuleDesc()
    check(lib.adamod_rule_info(_text("the name of a rule", rule), byref(c), ctypes.sizeof(c)))
    states = c.states[: c.n_states]
    return Rule(
        c.name.decode(),
        frozenset(s.name.decode() for s in states if c.signed_states >> s.index & 1),
        frozenset(s.name.decode() for s in states if s.begins == BEGINS_AS_PARAM),
        frozenset(s.name.decode() for s in states),
        *(bool(getattr(c, name)) for name in Rule._fields[4:]),
    )


def _option(c: OptionDesc) -> Option:
    choices: List[str] = []
    while c.choices and c.choices[len(choices)] is not None:
        choices.append(c.choices[len(choices)].decode())
    value = choices[int(c.value)] if c.kind == _CHOICE else int(c.value) if c.kind == _INTEGER else c.value
    return Option(
        c.name.decode(),
        c.help.decode(),
        value,
        c.min,
        c.max,
        tuple(choices),
        bool(c.structural),
        bool(c.optimizer_wide),
    )


def options(rule: str) -> Dict[str, Option]:
    """The options of a rule, its own first."""
    rule_info(rule)  # says which rules there are, if there is none such
    found: Dict[str, Option] = {}
    c = OptionDesc()
    while lib.adamod_option_at(rule.encode(), len(found), byref(c)) == 0:
        found[c.name.decode()] = _option(c)
    return found


def stream(name: str) -> int:
    """The stream of random numbers that the library's handles give a parameter of this name."""
    number = 0xCBF29CE484222325  # FNV-1a
    for byte in name.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return number


class State(NamedTuple):
    """A state that an array needs: where it belongs in a span, its name, shape, and what it starts from."""

    place: int
    name: str
    shape: Tuple[int, ...]
    initial: float


class Hyper:
    """A rule with its options (adamod_hyper)."""

    def __init__(self, rule: str) -> None:
        self.handle: Optional[c_void_p] = c_void_p()
        check(lib.adamod_hyper_create(byref(self.handle), _text("the name of a rule", rule)))
        self.rule = rule

    def __del__(self, free: Any = lib.adamod_hyper_free) -> None:  # at exit, modules may be gone already
        if getattr(self, "handle", None):
            free(self.handle)
            self.handle = None

    def set(self, option: str, value: Any) -> None:
        """A choice takes its word; anything else must be a number."""
        name = _text("the name of an option", option)
        if isinstance(value, str):
            check(lib.adamod_hyper_set_text(self.handle, name, _text(option, value)))
            return
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"{self.rule}: {option} is {value!r}, expected a number") from None
        check(lib.adamod_hyper_set(self.handle, name, number))

    def check(self, param_type: int) -> None:
        """That parameters of this type can be computed with the options: their bounds follow the type."""
        check(lib.adamod_hyper_check(self.handle, param_type))

    def states(self, shape: Sequence[int]) -> List[State]:
        """The states of an array of this shape."""
        found = []
        c_shape = (c_int64 * max(len(shape), 1))(*shape)
        c = StateDesc()
        for place in range(MAX_STATES):
            check(lib.adamod_state_at(self.handle, len(shape), c_shape, place, byref(c)))
            if c.name is not None:
                found.append(State(place, c.name.decode(), tuple(c.shape[: c.ndim]), c.initial))
        return found

    def update(self, spans: "ctypes.Array[Span]", elements: int, threads: int) -> None:
        """One update of all arrays, which have `elements` elements together. Other Python threads run meanwhile."""
        check(lib.adamod_update(self.handle, spans, len(spans), pool_for(elements, threads)))

    def collect(self, spans: "ctypes.Array[Span]", elements: int, threads: int) -> Statistics:
        """One update, which also counts the learning rates of single elements."""
        found = Statistics()
        check(lib.adamod_update_collect(self.handle, spans, len(spans), pool_for(elements, threads), byref(found)))
        return found


def check_groups(hypers: Sequence[Hyper], spans: Sequence[Span]) -> None:
    """Raises what updates of arrays, each with its hyper, would, and where two of them share memory."""
    n = len(spans)
    handles = (c_void_p * n)(*(hyper.handle for hyper in hypers))
    check(lib.adamod_check(handles, (Span * n)(*spans), n))


def to_evaluate(rule: str, options: Dict[str, Any], spans: "ctypes.Array[Span]") -> None:
    """Makes the parameters of spans, which have had an update, the weights to evaluate with."""
    handle = c_void_p()
    check(lib.adamod_create_on(byref(handle), rule.encode(), b"cpu"))
    try:
        for name, value in options.items():
            if isinstance(value, str):
                check(lib.adamod_set_text(handle, name.encode(), value.encode()))
            else:
                check(lib.adamod_set(handle, name.encode(), float(value)))
        for id, span in enumerate(spans):
            shared = ("param", "master", "state", "scale", "param_type", "grad_type", "ndim", "shape")
            tensor = TensorDesc(**{name: getattr(span, name) for name in shared})
            check(lib.adamod_add_tensor(handle, 0, byref(tensor), None))
            check(lib.adamod_set_tensor_steps(handle, id, span.step))
        check(lib.adamod_evaluation(handle, 1))
    finally:
        lib.adamod_free(handle)


def q8_encode(index: int, count: int, values: int, codes: int, scales: int) -> None:
    """Writes the codes and scales of a state's values; all three are addresses."""
    check(lib.adamod_q8_encode(index, count, values, codes, scales))


def q8_decode(index: int, count: int, codes: int, scales: int, values: int) -> None:
    """The way back."""
    check(lib.adamod_q8_decode(index, count, codes, scales, values))


# ---- threads ----

_pools: Dict[int, Optional[int]] = {}
_pools_lock = threading.Lock()


def pool(threads: int) -> Optional[int]:
    """The process's pool of `threads` threads: two updates at once take turns. None for one thread."""
    if not isinstance(threads, int) or threads >= 2**31:  # which the library would take for another number
        raise ValueError(f"threads is {threads!r}, expected a whole number, threads <= 1024")
    if threads <= 1:
        return None
    with _pools_lock:
        if threads not in _pools:
            handle = c_void_p()
            check(lib.adamod_pool_create(byref(handle), threads))
            _pools[threads] = handle.value
        return _pools[threads]


def pool_for(elements: int, threads: int) -> Optional[int]:
    return pool(threads) if elements >= WORTH_THREADS else None


def _forget_pools() -> None:
    """In a forked child: the pools' threads stayed with the parent, so it makes pools of its own."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_forget_pools)
