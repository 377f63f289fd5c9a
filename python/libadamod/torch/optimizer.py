"""The base of all rules: a torch.optim.Optimizer whose step is one call of the C library for each parameter group on
the CPU, and one for all groups on each GPU.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import functools
import math
import re
import threading
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    overload,
)

import torch
from torch import Tensor

from .. import _c
from . import checkpoints, clipping, counts, host, q8, whole
from .arrays import Arrays, check_groups, device_of, has_nonzero, is_fake
from .coupled import Coupled
from .devices import Handles, Scaling
from .options import Common, Decay, Params, check_group, check_of_bound, taken
from .rates import Histogram, histogram, merged, local_real
from .settled import Remembered
from .sharding import is_anywhere, zero_group

# Keys of a parameter group that PyTorch names differently from the library, or has as a pair.
_LIBRARY_NAMES = {"betas": ("beta1", "beta2"), "initial_accumulator_value": ("initial",)}

_Step = TypeVar("_Step", bound=Callable[..., Any])
_Loss = TypeVar("_Loss")

# PyTorch would trace into step to compile it, and there is nothing to compile.
_not_compiled: Callable[[_Step], _Step] = getattr(torch, "_disable_dynamo", lambda function: function)


def numbers(key: str, value: Any, count: int) -> Tuple[float, ...]:
    """An option that is several numbers."""
    try:
        found = tuple(float(x) for x in value)
    except (TypeError, ValueError, RuntimeError):  # the last of tensors without a value
        found = ()
    if len(found) != count:
        raise ValueError(f"{key} is {value!r}, expected {count} numbers")
    return found


def _number(key: str, value: Any) -> Any:
    """An option that is one number, as a float unless it is one that Python has, or on a GPU: others, such as numpy's, may
    change in place. What is no number stays, for who can name what was expected."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{key} is a tensor of {value.numel()} elements, expected one")
        if value.is_complex():
            raise TypeError(f"{key} is a tensor of {value.dtype}, expected a number")
        if value.is_meta or is_fake(value):
            raise ValueError(f"{key} is a {'fake' if is_fake(value) else 'meta'} tensor, which has no value: expected a number")
        return value if value.is_cuda else float(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def _check_params(params: Any) -> None:
    """PyTorch names no argument where it cannot be iterated."""
    try:
        if not isinstance(params, Tensor):  # which PyTorch refuses itself
            iter(params)
    except TypeError:
        what = ": use its parameters()" if isinstance(params, torch.nn.Module) else ""
        raise TypeError(f"params is {type(params).__name__}, expected tensors or dicts that define groups{what}") from None


@functools.lru_cache(maxsize=None)
def _option_names(rule: str) -> "frozenset[str]":
    return frozenset(_c.options(rule))


def _all_subclasses(cls: Type["Optimizer"]) -> Iterator[Type["Optimizer"]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _all_subclasses(sub)


class Optimizer(torch.optim.Optimizer):
    """The base of all rules. States are tensors in `state[p]`, with the names PyTorch gives them, `step` too.

    Works wherever a torch.optim.Optimizer does: parameter groups, schedulers (also with a tensor as lr), closures,
    hooks, state_dict, GradScaler, copy and pickle, DistributedDataParallel, FSDP, ZeroRedundancyOptimizer.

    Arguments that mean the same in all rules that have them:
        params: parameters, pairs of name and parameter (PyTorch 2.6 or later), or dicts that define groups.
        lr: the learning rate, a number or a tensor.
        betas: decay of the averages of gradients and of squared gradients.
        eps: added to the divisor.
        common: decay, maximize, clip_value, clip_norm, low_precision, state_type, seed: see help(libadamod.torch.Common).
    """

    rule: str

    # Arguments whose names differ from the library's, beside those that all classes share.
    _names: Dict[str, Tuple[str, ...]] = {}

    _telling = checkpoints.Telling()

    # Whether single elements' learning rates follow from the states. If not, they must be collected in the step.
    _states_tell_rates = True
    _collecting = False

    # Whether GradScaler leaves unscaling, and skipping where a gradient is not finite, to step: as in torch.optim,
    # where fused is asked for. Programs that clip unscaled gradients, as Lightning does, refuse optimizers that do so.
    _step_supports_amp_scaling = False

    # Whether torch.optim's class for it takes weight_decay for L2 unless a group has decoupled_weight_decay. Groups here have
    # it for checkpoints, beside decay, which decides.
    _torch_decouples = False

    # Whether a step was taken that updates; all processes have the same answer.
    _has_stepped = False

    # The processes that have the other parameters, if ZeroRedundancyOptimizer made this optimizer.
    _group: Any = None

    def __init__(self, params: Params, defaults: Dict[str, Any], common: Common, decay: Decay = "decoupled") -> None:
        defaults = {
            **defaults,
            "decay": decay,
            "maximize": False,
            "clip_value": math.inf,
            "clip_norm": math.inf,
            "low_precision": "master",
            "state_type": "auto",
            "min_8bit_size": 4096,
            "offload": False,
            "seed": 0,
            **self._of_some(defaults),
            **taken(type(self), common, _option_names(self.rule)),
        }
        self._one_at_a_time = threading.RLock()  # steps of several threads would write through each other's addresses
        self._arrays: List[Arrays] = []
        self._states = Remembered()
        self._handles = Handles()
        self._group = zero_group()
        self._coupled = Coupled(self._group)
        self._gathering = whole.Gathering()
        self._step_supports_amp_scaling = bool(common.get("fused"))
        _check_params(params)
        super().__init__(params, defaults)
        check_of_bound(type(self), common, self.param_groups)

    # ---- groups and options ----

    def _of_some(self, own: Dict[str, Any]) -> Dict[str, Any]:
        """The options that not every rule has, with their defaults, if this one has them."""
        known = _option_names(self.rule)
        defaults = {"bound": "none", "beta3": 0.999, "skip_idle": False, "cautious": False}
        return {name: value for name, value in defaults.items() if name in known and name not in own}

    def _rule(self, group: Dict[str, Any]) -> str:
        """The library's rule for a group."""
        return self.rule

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        """A group's options under the library's names."""
        known = _option_names(self._rule(group))
        values: Dict[str, Any] = {}
        for key in self.defaults:
            names = self._names.get(key) or _LIBRARY_NAMES.get(key, (key,))
            if names[0] not in known or key == "clip_norm":  # which is of all groups
                continue
            value = group[key]
            if len(names) == 1:
                values[names[0]] = _number(key, value)
                continue
            values.update(zip(names, numbers(key, value, len(names))))
        return values

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds a parameter group. Options that it lacks are those of the constructor."""
        if isinstance(param_group, dict):  # PyTorch refuses what is not
            if self._torch_decouples and "decoupled_weight_decay" in param_group:
                checkpoints.decay_in_other_words(param_group)
            check_group(type(self), param_group, self.defaults)
            if "params" not in param_group:
                index, found = len(self.param_groups), ", ".join(map(str, param_group)) or "nothing"
                raise ValueError(f"group {index} has no params, only {found}")
        super().add_param_group(param_group)
        index = len(self.param_groups) - 1
        self.param_groups[index].setdefault("step", 0)
        self._tell_decay(self.param_groups[index])
        try:
            clipping.of_groups(self.param_groups)
            self._group_arrays(index, 0)
        except BaseException:
            del self.param_groups[index]
            raise

    def _tell_decay(self, group: Dict[str, Any]) -> None:
        if self._torch_decouples:
            group["decoupled_weight_decay"] = group.get("decay") == "decoupled"

    def _group_arrays(self, index: int, first: int) -> Arrays:
        """A group's arrays, with the options it has now."""
        group = self.param_groups[index]
        if not hasattr(group["params"], "__len__"):
            raise TypeError(f"group {index}: params is {type(group['params']).__name__}, expected a list")
        if index < len(self._arrays) and self._arrays[index].is_as_before(group, first):
            return self._arrays[index]
        try:
            rule, values = self._rule(group), self._options(group)
        except KeyError as error:
            raise ValueError(f"group {index} has no {error}, an option of {type(self).__name__}") from None
        except (TypeError, ValueError) as error:
            raise type(error)(f"group {index}: {error}") from None
        known = index < len(self._arrays) and self._arrays[index].matches(rule, first, group["params"])
        arrays = self._arrays[index] if known else Arrays(rule, index, first, group["params"])
        arrays.names = group.get("param_names", ())
        offload = group.get("offload", False)
        if offload not in (True, False):
            raise TypeError(f"group {index}: offload is {offload!r}, expected True or False")
        arrays.set_offload(bool(offload))
        try:
            arrays.set_options(values)
        except (TypeError, ValueError) as error:
            raise type(error)(self._in_words_of_the_class(str(error))) from None
        arrays.remember(group)
        return arrays

    def _in_words_of_the_class(self, message: str) -> str:
        """A message about an option, with the name of the argument that has another here."""
        names = {"initial_accumulator_value": _LIBRARY_NAMES["initial_accumulator_value"], **self._names}
        for key, theirs in names.items():
            for i, name in enumerate(theirs if key in self.defaults else ()):
                ours = key if len(theirs) == 1 and key != "betas" else f"{key}[{i}]"
                message = re.sub(rf"\b{name}\b", ours, message)
        return message

    def _all_arrays(self) -> List[Arrays]:
        arrays, first = [], 0
        for index, group in enumerate(self.param_groups):
            arrays.append(self._group_arrays(index, first))
            first += len(group["params"])
        if arrays and arrays[0].facts.couples_arrays and any(any(a.spread) for a in arrays):
            for each in arrays:
                each.gathers_all = True
        self._arrays = arrays
        return arrays

    # ---- the step ----

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], _Loss]) -> _Loss: ...

    @_not_compiled
    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None, **scaling: Any) -> Any:
        """Updates every parameter that has a gradient. Returns the result of the closure, if there is one.

        A step that fails changes nothing, and its message names the parameter.
        """
        loss = None
        if closure is not None:
            if not callable(closure):
                raise TypeError(f"closure is {closure!r}, expected a function")
            with torch.enable_grad():
                loss = closure()
        with self._one_at_a_time:
            self._step(self._scaling(**scaling))
        return loss

    def _step(self, scaled: Scaling) -> None:
        """After the closure."""
        if scaled.found_inf is not None and self._some_on_host() and float(scaled.found_inf) != 0:
            return
        couples = _c.rule_info(self.rule).couples_arrays
        if couples and self._coupled.others:
            self._handles.read_steps()  # it asks for counts of updates
        groups = self._all_arrays()
        makes_states = self._makes_states(groups)
        same_states = self._states.holds(self.state)
        try:
            for arrays in groups:
                arrays.prepare(self.state, same_states)
            if not makes_states:
                check_groups(groups)
        except Exception:
            self._gathering.agree(groups, self.state, failed=True)
            raise
        self._gathering.agree(groups, self.state)
        if makes_states:
            for arrays in groups:
                arrays.leave()
            self._gathering.make_states(groups, self.state)
            return
        if not same_states:
            self._states.remember(self.state)
        self._has_stepped = True
        scaled, clip_norm = clipping.clipped(groups, clipping.of_groups(self.param_groups), scaled, self._group)
        coupled: Sequence[Arrays] = self._coupled.prepare(groups, scaled) if couples else ()
        handles = self._handles.prepare([*coupled, *groups], scaled, self._collecting, clip_norm)
        scale = 1.0 / float(scaled.scale) if scaled.scale is not None and self._some_on_host() else 1.0
        for arrays in groups:
            arrays.set_host_values(scale)
        threads = torch.get_num_threads()
        for arrays in groups:
            arrays.update(threads, self._collecting)
        for handle in handles:
            handle.step()
        for arrays in (*coupled, *groups):
            arrays.finish()
        if any(arrays.gathers or arrays.collected for arrays in groups):
            self._gathering.update(groups, self.state, scaled, scale, self._collecting)
        for group in self.param_groups:
            if group.get("count") == "group":
                self._count_idle(group)

    def _some_on_host(self) -> bool:
        return any(device_of(p) is None for group in self.param_groups for p in group["params"])

    def _makes_states(self, groups: Sequence[Arrays]) -> bool:
        """Whether this step only creates states: torch.distributed.checkpoint takes one, with zero gradients and a
        learning rate of 0, where there are none. Such a step leaves the parameters alone, though independent decay and
        Adafactor do not depend on lr, and the states are those before the first step."""
        begun = any(self.state.values())
        spread = any(arrays.has_spread for arrays in groups)
        if self._group is not None or (begun and not spread):  # another process may have some
            return False
        rates = [group.get("lr") for group in self.param_groups]
        if spread and self._has_stepped and any(isinstance(lr, Tensor) and lr.is_cuda for lr in rates):
            return False  # such a step has numbers of the host, and reading others would wait for the GPU
        if any(lr is None or float(lr) != 0 for lr in rates):
            return False
        params = [p for group in self.param_groups for p in group["params"]]
        begun = begun or any(has_nonzero(p.grad) for p in params if p.grad is not None)
        return not (is_anywhere(begun, params) if spread else begun)

    def _count_idle(self, group: Dict[str, Any]) -> None:
        """Counts an update in a group from a package that keeps one count for all of its parameters."""
        for p in group["params"]:
            if p.grad is None:
                state = self.state[p]
                state["step"] = counts.new(int(state.get("step", 0)) + 1)

    def push_options(self) -> None:
        """Copies the options of the parameter groups to the GPUs.

        Every step does so, but a captured step that is replayed cannot: call this after a scheduler has changed an
        option. A learning rate that is a tensor on the GPU needs no call."""
        self._handles.push_options(self._all_arrays())

    def _scaling(self, grad_scaler: Any = None) -> Scaling:
        """The GradScaler's numbers for this step.

        PyTorch 1.13's GradScaler hands itself to step; later ones leave found_inf and grad_scale here for its duration.
        """
        scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if grad_scaler is not None:
            stage = grad_scaler._per_optimizer_states[id(self)]
            if stage["stage"].name == "UNSCALED":
                each = stage["found_inf_per_device"]
            else:
                each = grad_scaler._check_inf_per_device(self)
                scale = grad_scaler._get_scale_async()
            found = sum(float(f) for f in each.values())
        return Scaling(scale, found)

    # ---- saving and loading ----

    def state_dict(self) -> Dict[str, Any]:
        """As PyTorch's. Waits for the GPU if only it knows the step count: after steps with a GradScaler, and once a
        graph was captured.

        Each group also has a `step`, the count of its updates at the time of the call, for packages that count there.
        """
        self._handles.read_steps()
        self._wait()
        for group in self.param_groups:
            states = [self.state[p] for p in group["params"] if p in self.state]
            group["step"] = max((int(state.get("step", 0)) for state in states), default=0)
            self._tell_decay(group)
        params = [p for group in self.param_groups for p in group["params"]]
        try:
            saved = super().state_dict()
        except KeyError:
            known = set(map(id, params))
            stray = [p for p in self.state if isinstance(p, Tensor) and id(p) not in known]
            if not stray:
                raise
            raise ValueError(
                f"there is a state of a tensor of shape {tuple(stray[0].shape)} that is in no group: "
                f"where a parameter leaves its group, delete its state too"
            ) from None
        return q8.portable(saved, params)

    def _wait(self) -> None:
        """Waits until states in host memory are those of the last step."""
        host.wait(p for group in self.param_groups if group.get("offload") for p in group["params"])

    def __getstate__(self) -> Dict[str, Any]:
        if self._group is not None:  # which cannot be copied
            raise TypeError(
                f"{type(self).__name__}: ZeroRedundancyOptimizer made it, to work with those of other processes, "
                f"and a copy would not: save its state_dict()"
            )
        self._handles.read_steps()
        self._wait()
        own = ("_collecting", "_step_supports_amp_scaling")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        if hasattr(self, "_handles"):
            self._handles.drop()
        else:
            self._handles, self._one_at_a_time = Handles(), threading.RLock()
        super().__setstate__(state)
        self._arrays, self._states = [], Remembered()
        self._coupled = Coupled(self._group)
        self._gathering = whole.Gathering()
        for group in self.param_groups:
            group.setdefault("step", 0)
        counts.as_tensors(self.state.values())

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Loads what state_dict returned, here or in torch.optim or another package with states of the same names.

        Options that the saved groups lack keep their values. So does state_type: the next step converts states of
        another type. States of bfloat16 parameters keep their own type, where PyTorch would round them to bfloat16. The
        states are copied.

        A checkpoint of another optimizer, or of parameters with other shapes, is refused, and nothing changes.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"the checkpoint is {type(state_dict).__name__}, expected what state_dict() returns")
        kept = {name: getattr(self, name) for name in ("state", "param_groups")}
        seen = [state_dict]

        def see(_: Any, changed: Dict[str, Any]) -> None:
            checkpoints.check_form(changed, self.param_groups)
            seen.append(changed)

        hook = None
        if hasattr(self, "register_load_state_dict_pre_hook"):  # others may change what is loaded; this is the last
            hook = self.register_load_state_dict_pre_hook(see)
        else:
            see(self, state_dict)
        try:
            super().load_state_dict(state_dict)
            self._adopt(seen[-1], kept["param_groups"])
        except BaseException:
            self.__setstate__(kept)
            raise
        finally:
            if hook is not None:
                hook.remove()

    def _adopt(self, state_dict: Dict[str, Any], before: List[Dict[str, Any]]) -> None:
        """Validates what PyTorch has loaded and converts it to this optimizer's form."""
        self._copy_states(state_dict)
        for index, (group, old) in enumerate(zip(self.param_groups, before)):
            try:
                has_states = any(self.state.get(p) for p in group["params"])
                reason = self._other_formula(group, old, has_states)
                if reason is not None:
                    raise ValueError(f"this is not a checkpoint of {type(self).__name__}: {reason}")
                q8.check_loaded(group, self.state)
                self._complete(group, old)
            except (TypeError, ValueError) as error:
                raise type(error)(f"group {index}: {error}") from None
            checkpoints.count_as_saved(group, self.state)
        for arrays in self._all_arrays():
            arrays.check_states(self.state)
        counts.as_tensors(self.state.values())

    def _copy_states(self, state_dict: Dict[str, Any]) -> None:
        """The states as they were saved, in memory of our own. Their type is settled at the next step."""
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        for i, p in zip(saved, params):
            for name, value in state_dict["state"].get(i, {}).items():
                if name == "step" and value is not None:
                    self.state[p][name] = checkpoints.whole(value)
                elif isinstance(value, Tensor):
                    self.state[p][name] = value.detach().to(p.device, copy=True)

    def _other_formula(self, group: Dict[str, Any], before: Dict[str, Any], has_states: bool) -> Optional[str]:
        """Why a saved group is not one of this class, in a few words; None: it may be."""
        needed = frozenset(key for cls in _all_subclasses(Optimizer) for key in cls._telling.needed)
        found = checkpoints.other_formula(self.rule, self._telling, needed, group, before, has_states)
        if found or checkpoints.is_ours(group):
            return found
        known = _c.rule_info(self.rule).states | _c.rule_info(self._rule(group)).states
        states = [self.state[p] for p in group["params"] if p in self.state]
        return checkpoints.other_states(self.rule, self._telling, known, states)

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        """Fills in options that a loaded group lacks or has by other names. ValueError: they mean another formula."""
        if group.pop("adam_debias", False):
            raise ValueError(f"it was saved with adam_debias, which {type(self).__name__} does not have")
        checkpoints.decay_in_other_words(group)
        for key, value in before.items():
            group.setdefault(key, value)
        for key in ("state_type", "min_8bit_size", "offload"):  # how much memory there is, the checkpoint does not know
            group[key] = before[key]
        self._tell_decay(group)

    # ---- what no other package shows ----

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Tuple[Tensor, Tensor]:
        """The learning rates of p's elements in update t under options o, before and after the bound."""
        raise NotImplementedError

    def collect_learning_rates(self, on: bool = True) -> None:
        """Makes steps of rules whose states do not tell their learning rates (Adadelta, Adafactor, ADOPT, LAMB, StableAdamW,
        Prodigy, Muon, SOAP) collect them for lr_histogram; such steps take longer.

        Other rules do not need it: for them it has no effect. For a CUDA graph, call it before the last step outside.
        """
        self._collecting = on and not self._states_tell_rates

    @torch.no_grad()
    def lr_histogram(self, group: Optional[int] = None) -> Histogram:
        """The learning rate of each element in the last update, as a histogram over one group or all.

        It is computed from the states, so that steps cost no more. Some rules must collect it in the step: see
        collect_learning_rates.
        """
        n = len(self.param_groups)
        if group is not None and not isinstance(group, int):
            raise TypeError(f"group is {group!r}, expected its number")
        if group is not None and not 0 <= group < n:
            raise IndexError(f"group is {group}, expected 0 <= group < {n}")
        groups = range(n) if group is None else [group]
        self._handles.read_steps()
        self._wait()
        return histogram(self._all_rates(groups)) if self._states_tell_rates else self._collected(groups)

    def _collected(self, groups: Iterable[int]) -> Histogram:
        if not self._collecting:
            raise RuntimeError(
                f"the states of {self.rule} do not tell its learning rates: "
                f"call collect_learning_rates() before the step"
            )
        arrays = [self._arrays[index] for index in groups if index < len(self._arrays)]
        parts = [part for a in arrays for part in (a.statistics, *self._handles.statistics(a), *a.collected)]
        return merged([statistics for statistics in parts if statistics is not None])

    def _all_rates(self, groups: Iterable[int]) -> Iterator[Tuple[Tensor, Tensor]]:
        for index in groups:
            group = self.param_groups[index]
            options = self._options(group)
            if index < len(self._arrays):  # as they were in the last update
                options = {**options, **self._arrays[index].values, **self._arrays[index].tensors}
            options = {name: float(x) if isinstance(x, Tensor) else x for name, x in options.items()}
            for p in group["params"]:
                state = self.state.get(p)
                if not state or not state.get("step"):
                    continue
                values = host.beside(p, q8.decoded(state))
                eta, step = self._rates(options, p, values, int(state["step"]))
                if options.get("bound") == "momental":
                    eta, step = step, torch.minimum(step, self._limits(values, step))
                yield eta, step

    def _limits(self, state: Dict[str, Any], unbounded: Tensor) -> Tensor:
        """The largest learning rates that the momental bound allows; unbounded: those without it."""
        return local_real(state["exp_avg_lr"]).to(unbounded.dtype)
