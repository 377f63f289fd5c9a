"""The formulas of the rules that need no whole arrays, in JAX; each stands beside its C in lib/rules/NAME.inc.h.

A formula is a function of the options `o` and the number `t` of the update, 1 for the first. It computes what all
elements share and returns a function of the elements `x`: `x.g` is the gradient, `x.p` the parameter, states have the
library's names. That function changes the states and returns what is to be taken from the parameter.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, Callable, Dict, Tuple

import jax.numpy as jnp  # type: ignore[import-not-found, import-untyped, unused-ignore]

Step = Callable[[SimpleNamespace], Any]
Formula = Callable[[SimpleNamespace, Any], Step]

FORMULAS: Dict[str, Formula] = {}


def _of(*rules: str) -> Callable[[Formula], Formula]:
    def register(formula: Formula) -> Formula:
        FORMULAS.update(dict.fromkeys(rules, formula))
        return formula

    return register


# ---- what formulas share ----


def _average(beta: Any, average: Any, new: Any) -> Any:
    return beta * average + (1 - beta) * new


def _lesser(x: Any, y: Any) -> Any:
    return jnp.where(x < y, x, y)


def _greater(x: Any, y: Any) -> Any:
    return jnp.where(x > y, x, y)


def _log(x: Any) -> Any:
    """The natural logarithm; that of a Python float is in double precision, whatever the type of the parameters."""
    if isinstance(x, float):
        return math.log(x) if x > 0 else -math.inf
    return jnp.log(x)


def _correction(beta: Any, t: Any) -> Any:
    """1 - beta^t. In float32, 1 - 0.999 would be off by 1e-5."""
    return -jnp.expm1(t * _log(beta))


def _moments(o: SimpleNamespace, t: Any) -> Tuple[Any, Any, Any]:
    """The learning rate, and the factors of both moments, with the bias corrections where the flavour has them."""
    first, second = _correction(o.beta1, t), _correction(o.beta2, t)
    flavour = getattr(o, "flavour", "paper")
    if flavour == "published":
        return o.lr * jnp.sqrt(second) / first, 1, 1
    if flavour == "keras":
        return o.lr * jnp.sqrt(second), 1 / first, 1
    if flavour == "adamd":
        return o.lr * jnp.sqrt(second), 1, 1
    return o.lr, 1 / first, 1 / second


def _bounded(o: SimpleNamespace, x: SimpleNamespace, eta: Any, seen: Any) -> Any:
    """AdaMod's bound, where it is on: min(eta, s). With skip_idle, s stays 0 while `seen` is."""
    if not o.bounded:
        return eta
    s = _average(o.beta3, x.exp_avg_lr, eta)
    x.exp_avg_lr = jnp.where(seen <= 0, 0, s) if o.skip_idle else s
    return _lesser(x.exp_avg_lr, eta)


def _move(o: SimpleNamespace, x: SimpleNamespace, step: Any) -> Any:
    """The step. A cautious one moves only the elements whose step has their gradient's sign, and further the fewer
    these are."""
    if not o.cautious:
        return step
    mask = (step * x.g > 0).astype(step.dtype)
    return step * mask / jnp.maximum(jnp.mean(mask), 1e-3)


def _rho(beta2: Any, t: Any) -> Tuple[Any, Any]:
    """RAdam's 2 / (1 - beta2) - 1 and rho_t = rho - 2 t beta2^t / (1 - beta2^t), which is a small difference of large
    numbers. With y = -log(beta2) / 2 they are coth(y) and t + f(y) - t f(t y), where f(y) = coth(y) - 1 / y."""

    def f(y: Any) -> Any:
        series = y / 3 - y**3 / 45 + 2 * y**5 / 945 - y**7 / 4725
        return jnp.where(y < 0.05, series, 1 / jnp.tanh(y) - 1 / y)

    y = jnp.asarray(-_log(beta2) / 2, t.dtype)
    return 1 / jnp.tanh(y), t + f(y) - t * f(t * y)


def _rectified(rho: Any, rho_t: Any) -> Any:
    return jnp.sqrt((rho_t - 4) * (rho_t - 2) * rho / ((rho - 4) * (rho - 2) * rho_t))


def _power_sum(n: Any, power: Any, unit: Any) -> Any:
    """The sum of (k / unit)^power over k = 1 ... n: the first terms one by one, the rest by the Euler-Maclaurin
    formula."""

    def f(k: Any) -> Any:
        return (k / unit) ** power

    first = jnp.arange(1, 65, dtype=n.dtype)
    a, b = first[-1], jnp.maximum(n, 64)
    q, span = jnp.abs(power + 1.0), jnp.log(b / a)
    length = jnp.where(q == 0, span, -jnp.expm1(-q * span) / jnp.where(q == 0, 1, q))
    integral = jnp.maximum(a * f(a), b * f(b)) * length
    total = jnp.sum(jnp.where(first <= n, f(first), 0)) + integral + (f(b) - f(a)) / 2
    derivative = 1.0
    for order, factor in ((1, 1 / 12), (3, -1 / 720), (5, 1 / 30240), (7, -1 / 1209600)):
        derivative *= power - order + 1
        total += factor * derivative * (f(b) / b**order - f(a) / a**order)
        derivative *= power - order
    return total


# ---- the rules ----


@_of("adamod", "adam")
def _adam(o: SimpleNamespace, t: Any) -> Step:
    lr, mscale, vscale = _moments(o, t)

    def step(x: SimpleNamespace) -> Any:
        x.exp_avg = _average(o.beta1, x.exp_avg, x.g)
        x.exp_avg_sq = _average(o.beta2, x.exp_avg_sq, x.g * x.g)
        eta = lr / (jnp.sqrt(x.exp_avg_sq * vscale) + o.eps)
        return _move(o, x, _bounded(o, x, eta, x.exp_avg_sq) * (x.exp_avg * mscale))

    return step


@_of("amsgrad")
def _amsgrad(o: SimpleNamespace, t: Any) -> Step:
    lr, mscale, vscale = _moments(o, t) if o.bias_correction else (o.lr, 1, 1)

    def step(x: SimpleNamespace) -> Any:
        x.exp_avg = _average(o.beta1, x.exp_avg, x.g)
        x.exp_avg_sq = _average(o.beta2, x.exp_avg_sq, x.g * x.g)
        x.max_exp_avg_sq = _greater(x.exp_avg_sq, x.max_exp_avg_sq)
        eta = lr / (jnp.sqrt(x.max_exp_avg_sq * vscale) + o.eps)
        return _move(o, x, _bounded(o, x, eta, x.max_exp_avg_sq) * (x.exp_avg * mscale))

    return step


@_of("sgd")
def _sgd(o: SimpleNamespace, t: Any) -> Step:
    def step(x: SimpleNamespace) -> Any:
        if o.momentum == 0:
            return o.lr * x.g
        x.momentum_buffer = jnp.where(t == 1, x.g, o.momentum * x.momentum_buffer + (1 - o.dampening) * x.g)
        return _move(o, x, o.lr * (x.g + o.momentum * x.momentum_buffer if o.nesterov else x.momentum_buffer))

    return step


@_of("adagrad")
def _adagrad(o: SimpleNamespace, t: Any) -> Step:
    lr = o.lr / (1 + (t - 1) * o.lr_decay)

    def step(x: SimpleNamespace) -> Any:
        x.sum = x.sum + x.g * x.g
        return _bounded(o, x, lr / (jnp.sqrt(x.sum) + o.eps), x.sum) * x.g

    return step


@_of("rmsprop")
def _rmsprop(o: SimpleNamespace, t: Any) -> Step:
    def step(x: SimpleNamespace) -> Any:
        v = x.square_avg = _average(o.alpha, x.square_avg, x.g * x.g)
        if o.centered:
            x.grad_avg = _average(o.alpha, x.grad_avg, x.g)
            v = _greater(0, v - x.grad_avg * x.grad_avg)
        root = jnp.sqrt(v) + o.eps
        rate = _bounded(o, x, o.lr / root, x.square_avg)
        if o.momentum == 0:
            return rate * x.g
        # With the bound, the buffer is made of bounded steps.
        x.momentum_buffer = o.momentum * x.momentum_buffer + (rate * x.g if o.bounded else x.g / root)
        return x.momentum_buffer if o.bounded else o.lr * x.momentum_buffer

    return step


@_of("adadelta")
def _adadelta(o: SimpleNamespace, t: Any) -> Step:
    def step(x: SimpleNamespace) -> Any:
        x.square_avg = _average(o.rho, x.square_avg, x.g * x.g)
        rate = jnp.sqrt(x.acc_delta + o.eps) / jnp.sqrt(x.square_avg + o.eps)
        delta = rate * x.g
        x.acc_delta = _average(o.rho, x.acc_delta, delta * delta)
        return _bounded(o, x, o.lr * rate, x.square_avg) * x.g

    return step


@_of("adabound", "amsbound")
def _adabound(o: SimpleNamespace, t: Any) -> Step:
    lr = o.lr * jnp.sqrt(_correction(o.beta2, t)) / _correction(o.beta1, t)
    time = o.gamma * t
    low = o.final_lr * (1 - 1 / (time + 1))
    high = jnp.where(time > 0, o.final_lr * (1 + 1 / time), jnp.inf)

    def step(x: SimpleNamespace) -> Any:
        x.exp_avg = _average(o.beta1, x.exp_avg, x.g)
        v = x.exp_avg_sq = _average(o.beta2, x.exp_avg_sq, x.g * x.g)
        if hasattr(x, "max_exp_avg_sq"):
            v = x.max_exp_avg_sq = _greater(v, x.max_exp_avg_sq)
        return _lesser(high, _greater(low, lr / (jnp.sqrt(v) + o.eps))) * x.exp_avg

    return step


@_of("nosadam")
def _nosadam(o: SimpleNamespace, t: Any) -> Step:
    new = t**-o.gamma / _power_sum(t, -o.gamma, 1)
    mscale = 1 / _correction(o.beta1, t) if o.bias_correction else 1

    def step(x: SimpleNamespace) -> Any:
        x.exp_avg = _average(o.beta1, x.exp_avg, x.g)
        x.exp_avg_sq = (1 - new) * x.exp_avg_sq + new * x.g * x.g
        eta = o.lr / (jnp.sqrt(x.exp_avg_sq) + o.eps)
        return _bounded(o, x, eta, x.exp_avg_sq) * (x.exp_avg * mscale)

    return step


@_of("radam")
def _radam(o: SimpleNamespace, t: Any) -> Step:
    first, second = _correction(o.beta1, t), _correction(o.beta2, t)
    rho, rho_t = _rho(o.beta2, t)
    lr = o.lr * jnp.sqrt(second) * _rectified(rho, rho_t)

    def step(x: SimpleNamespace) -> Any:
        x.exp_avg = _average(o.beta1, x.exp_avg, x.g)
        x.exp_avg_sq = _average(o.beta2, x.exp_avg_sq, x.g * x.g)
        eta = jnp.where(rho_t > 5, lr / (jnp.sqrt(x.exp_avg_sq) + o.eps), o.lr)
        return _bounded(o, x, eta, x.exp_avg_sq) * (x.exp_avg / first)

    return step


@_of("lion")
def _lion(o: SimpleNamespace, t: Any) -> Step:
    def step(x: SimpleNamespace) -> Any:
        c = _average(o.beta1, x.exp_avg, x.g)
        x.exp_avg = _average(o.beta2, x.exp_avg, x.g)
        return _move(o, x, o.lr * jnp.sign(c) + (c - c))  # c - c is 0 but where c is not finite

    return step


@_of("nadam")
def _nadam(o: SimpleNamespace, t: Any) -> Step:
    c = o.momentum_decay * math.log(0.96)
    mu, ahead = (o.beta1 * (1 - jnp.exp(c * n) / 2) for n in (t, t + 1))
    # The product of mu_1 ... mu_t, by its logarithm: -log(1 - q / 2) is the sum of q^k / (k 2^k).
    k = jnp.arange(1, 61, dtype=t.dtype)
    powers = jnp.where(c == 0, t, jnp.exp(c * k) * jnp.expm1(c * k * t) / jnp.where(c == 0, 1, jnp.expm1(c * k)))
    product = jnp.exp(t * _log(o.beta1) - jnp.sum(powers / (k * 2**k)))
    low, high = (1 - mu) / (1 - product), ahead / (1 - product * ahead)
    vscale = 1 / _correction(o.beta2, t)

    def step(x: SimpleNamespace) -> Any:
        x.exp_avg = _average(o.beta1, x.exp_avg, x.g)
        x.exp_avg_sq = _average(o.beta2, x.exp_avg_sq, x.g * x.g)
        eta = o.lr / (jnp.sqrt(x.exp_avg_sq * vscale) + o.eps)
        return _move(o, x, _bounded(o, x, eta, x.exp_avg_sq) * (x.g * low + x.exp_avg * high))

    return step


@_of("adamax")
def _adamax(o: SimpleNamespace, t: Any) -> Step:
    lr = o.lr / _correction(o.beta1, t)

    def step(x: SimpleNamespace) -> Any:
        x.exp_avg = _average(o.beta1, x.exp_avg, x.g)
        x.exp_inf = _greater(o.beta2 * x.exp_inf, jnp.abs(x.g) + o.eps)
        seen = jnp.abs(x.g) + getattr(x, "exp_avg_lr", 0)
        return _bounded(o, x, lr / x.exp_inf, seen) * x.exp_avg

    return step


@_of("adabelief")
def _adabelief(o: SimpleNamespace, t: Any) -> Step:
    first, second = _correction(o.beta1, t), _correction(o.beta2, t)
    rho, rho_t = _rho(o.beta2, t)
    lr = o.lr * jnp.sqrt(second) * _rectified(rho, rho_t)

    def step(x: SimpleNamespace) -> Any:
        x.exp_avg = _average(o.beta1, x.exp_avg, x.g)
        v = x.exp_avg_var = _average(o.beta2, x.exp_avg_var, (x.g - x.exp_avg) ** 2) + o.eps
        if o.rectify:
            eta = jnp.where(rho_t >= 5, lr / (jnp.sqrt(v) + o.eps), o.lr)
        else:
            eta = o.lr / (jnp.sqrt(v / second) + o.eps)
        seen = jnp.abs(x.g) + getattr(x, "exp_avg_lr", 0)
        return _bounded(o, x, eta, seen) * (x.exp_avg / first)

    return step


@_of("adopt")
def _adopt(o: SimpleNamespace, t: Any) -> Step:
    first = t == 1  # it fills v, and nothing moves
    o.decay_now = jnp.where(first, 0, o.decay_now)
    limit = (t - 1) ** 0.25 * (o.lr if o.bounded else 1) if o.clip else jnp.inf

    def step(x: SimpleNamespace) -> Any:
        before, s = x.exp_avg_sq, getattr(x, "exp_avg_lr", 0)
        x.exp_avg_sq = jnp.where(first, x.g * x.g, _average(o.beta2, before, x.g * x.g))
        root = _greater(jnp.sqrt(before), o.eps)
        rate = _bounded(o, x, o.lr / root, before)
        new = jnp.clip(rate * x.g if o.bounded else x.g / root, -limit, limit) + (x.g - x.g)  # else it hides infinity
        x.exp_avg = jnp.where(first, x.exp_avg, _average(o.beta1, x.exp_avg, new))
        if o.bounded:
            x.exp_avg_lr = jnp.where(first, s, x.exp_avg_lr)
        return _move(o, x, jnp.where(first, 0, x.exp_avg if o.bounded else o.lr * x.exp_avg))

    return step


@_of("ademamix")
def _ademamix(o: SimpleNamespace, t: Any) -> Step:
    lr, mscale, vscale = _moments(o, t)
    alpha, beta_slow = o.alpha, o.beta_slow
    if o.alpha_warmup:
        alpha = alpha * jnp.minimum(t / o.alpha_warmup, 1)
    if o.beta_slow_warmup:  # the half-life grows along a line from that of beta1
        part = t / o.beta_slow_warmup
        life = (1 - part) * _half_life(o.beta1) + part * _half_life(o.beta_slow)
        beta_slow = jnp.where(part < 1, jnp.exp(-math.log(2) / (life + 1)), beta_slow)

    def step(x: SimpleNamespace) -> Any:
        x.exp_avg_fast = _average(o.beta1, x.exp_avg_fast, x.g)
        x.exp_avg_sq = _average(o.beta2, x.exp_avg_sq, x.g * x.g)
        x.exp_avg_slow = _average(beta_slow, x.exp_avg_slow, x.g)
        eta = lr / (jnp.sqrt(x.exp_avg_sq * vscale) + o.eps)
        return _bounded(o, x, eta, x.exp_avg_sq) * (x.exp_avg_fast * mscale + alpha * x.exp_avg_slow)

    return step


def _half_life(beta: Any) -> Any:
    """Less 1. The 1e-8 is the authors'; it must not make a decay of 1."""
    if isinstance(beta, float):
        return math.log(0.5) / math.log(beta + 1e-8 if beta + 1e-8 < 1 else beta) - 1
    return math.log(0.5) / jnp.log(jnp.where(beta + 1e-8 < 1, beta + 1e-8, beta)) - 1


@_of("adan")
def _adan(o: SimpleNamespace, t: Any) -> Step:
    lr, mscale, vscale = _moments(o, t)
    weight = o.beta_diff / _correction(o.beta_diff, t)

    def step(x: SimpleNamespace) -> Any:
        change = jnp.where(t == 1, 0, x.g + x.neg_pre_grad)
        x.exp_avg = _average(o.beta1, x.exp_avg, x.g)
        x.exp_avg_diff = _average(o.beta_diff, x.exp_avg_diff, change)
        x.exp_avg_sq = _average(o.beta2, x.exp_avg_sq, (x.g + o.beta_diff * change) ** 2)
        x.neg_pre_grad = -x.g
        eta = lr / (jnp.sqrt(x.exp_avg_sq * vscale) + o.eps)
        return _bounded(o, x, eta, x.exp_avg_sq) * (x.exp_avg * mscale + x.exp_avg_diff * weight)

    return step


@_of("schedulefree_adamw", "schedulefree_sgd")
def _schedulefree(o: SimpleNamespace, t: Any) -> Step:
    part, total = 1, _power_sum(t, o.r, t)
    if o.warmup_steps:
        last = jnp.minimum(t, o.warmup_steps)
        part = last / o.warmup_steps
        # In units of the weight of update t: those of the warm-up weigh less.
        less = _power_sum(last, o.r, last) - _power_sum(last, o.r + o.weight_lr_power, last)
        total = total - (last / t) ** o.r * less
    weight = 1 / total
    lr, decay, o.decay_now = o.lr * part, o.decay_now * part, 0

    def step(x: SimpleNamespace) -> Any:
        rate = lr
        if hasattr(x, "exp_avg_sq"):
            x.exp_avg_sq = _average(o.beta2, x.exp_avg_sq, x.g * x.g)
            eta = lr / (jnp.sqrt(x.exp_avg_sq / _correction(o.beta2, t)) + o.eps)
            rate = _bounded(o, x, eta, x.exp_avg_sq)
        u = rate * x.g + decay * x.p
        before, x.z = x.z, x.z - u
        return (1 - o.beta1 * (1 - weight)) * u - weight * (before - x.p)

    return step


@_of("sophia")
def _sophia(o: SimpleNamespace, t: Any) -> Step:
    def step(x: SimpleNamespace) -> Any:
        x.exp_avg = _average(o.beta1, x.exp_avg, x.g)
        h = o.rho * o.bs * x.hessian
        rate = eta = o.lr / (h + 1e-15)
        if o.bounded:
            x.exp_avg_lr = jnp.where(h != 0, _average(o.beta3, x.exp_avg_lr, eta), 0)
            rate = jnp.where(h != 0, _lesser(x.exp_avg_lr, eta), eta)
        size = _lesser(jnp.abs(x.exp_avg) * rate, o.lr)
        return jnp.sign(x.exp_avg) * size + (x.exp_avg - x.exp_avg)  # or clipping would hide infinity

    return step


@_of("laprop")
def _laprop(o: SimpleNamespace, t: Any) -> Step:
    lr, mscale, vscale = _moments(o, t)

    def step(x: SimpleNamespace) -> Any:
        x.exp_avg_sq = _average(o.beta2, x.exp_avg_sq, x.g * x.g)
        eta = lr / (jnp.sqrt(x.exp_avg_sq * vscale) + o.eps)
        x.exp_avg_step = _average(o.beta1, x.exp_avg_step, _bounded(o, x, eta, x.exp_avg_sq) * x.g)
        return _move(o, x, x.exp_avg_step * mscale)

    return step
