"""AdaMod for Keras 3, with any of its backends.

    from libadamod.keras import AdaMod

    model.compile(optimizer=AdaMod(1e-3), loss="mse")

It computes what the library's rule "adamod" does, by keras.ops.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence

from . import _c

try:
    import keras  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from keras import ops  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError as error:
    raise ImportError(f"libadamod.keras needs Keras 3, pip install keras: {error}") from None

__all__ = ["AdaMod"]

# The library's names of arguments.
_OPTIONS = {"beta_1": "beta1", "beta_2": "beta2", "beta_3": "beta3", "epsilon": "eps", "flavour": "flavour"}


@keras.saving.register_keras_serializable(package="libadamod")
class AdaMod(keras.optimizers.Optimizer):  # type: ignore[misc, name-defined, unused-ignore]
    """AdaMod: Adam, its step bounded by a running average of each element's own learning rate.

    Ding, Ren, Luo, Sun, "An Adaptive and Momental Bound Method for Stochastic Learning", arXiv 1910.12249.

        m = beta_1 m + (1 - beta_1) g        v = beta_2 v + (1 - beta_2) g^2
        eta = lr / (sqrt(v / (1 - beta_2^t)) + epsilon)
        s = beta_3 s + (1 - beta_3) eta      p = p - min(eta, s) m / (1 - beta_1^t)

    Args, besides those of every Keras optimizer (weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ...):
        learning_rate: a float, a keras.optimizers.schedules.LearningRateSchedule, or a function without arguments.
        beta_1, beta_2: decay of the averages of gradients and of their squares.
        beta_3: decay of the average of learning rates; 0 is Adam. The paper recommends 0.999 or 0.9999.
        epsilon: added to the divisor. Keras's Adam has 1e-7.
        flavour: variant of the formula: "paper" (Algorithm 2), "published" (the authors' package), "keras" (a port to
            Keras of the name Adamod) or "adamd": docs/optimizers.md.
    """

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        beta_3: float = 0.999,
        epsilon: float = 1e-8,
        flavour: str = "paper",
        weight_decay: Optional[float] = None,
        name: str = "adamod",
        **kwargs: Any,
    ) -> None:
        given: Dict[str, Any] = dict(beta_1=beta_1, beta_2=beta_2, beta_3=beta_3, epsilon=epsilon, flavour=flavour)
        hyper = _c.Hyper("adamod")
        for argument, value in given.items():
            hyper.set(_OPTIONS[argument], value)  # which refuses what is out of range
        super().__init__(learning_rate=learning_rate, weight_decay=weight_decay, name=name, **kwargs)
        self.beta_1, self.beta_2, self.beta_3 = float(beta_1), float(beta_2), float(beta_3)
        self.epsilon, self.flavour = float(epsilon), flavour

    def build(self, variables: Sequence[Any]) -> None:
        if self.built:
            return
        super().build(variables)
        for state in _c.Hyper("adamod").states((1,)):
            setattr(self, f"_{state.name}", [self._state(variable, state.name) for variable in variables])

    def _state(self, variable: Any, name: str) -> Any:
        """float32 at least: 16 bits would not hold averages with a decay of 0.999, nor a learning rate of 1e5."""
        if variable.dtype not in ("float16", "bfloat16"):
            return self.add_variable_from_reference(variable, name=name)
        return self.add_variable(variable.shape, "zeros", "float32", name=f"{variable.path.replace('/', '_')}_{name}")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        i = self._get_variable_index(variable)
        states = self._exp_avg[i], self._exp_avg_sq[i], self._exp_avg_lr[i]
        m, v, s = (ops.convert_to_tensor(state) for state in states)
        p, g, lr, t = (ops.cast(x, states[0].dtype) for x in (variable, gradient, learning_rate, self.iterations + 1))
        first, second = (-ops.expm1(t * _log(beta)) for beta in (self.beta_1, self.beta_2))
        mscale = vscale = 1
        if self.flavour == "paper":
            mscale, vscale = 1 / first, 1 / second
        else:
            lr = lr * ops.sqrt(second)
            if self.flavour == "published":
                lr = lr / first
            elif self.flavour == "keras":
                mscale = 1 / first
        m = self.beta_1 * m + (1 - self.beta_1) * g
        v = self.beta_2 * v + (1 - self.beta_2) * g * g
        eta = lr / (ops.sqrt(v * vscale) + self.epsilon)
        s = self.beta_3 * s + (1 - self.beta_3) * eta
        bounded = ops.where(s < eta, s, eta)  # minimum rounds float64 to float32 with the torch backend of Keras 3.15
        for state, value in zip(states, (m, v, s)):
            self.assign(state, value)
        self.assign(variable, ops.cast(p - bounded * (m * mscale), variable.dtype))

    def get_config(self) -> Dict[str, Any]:
        return {**super().get_config(), **{argument: getattr(self, argument) for argument in _OPTIONS}}


def _log(beta: float) -> float:
    return math.log(beta) if beta > 0 else -math.inf
