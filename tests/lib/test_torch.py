#!/usr/bin/env python3
"""The library against PyTorch: `adamod optim trace` and torch.optim are fed the same 1000 recorded gradients, and their
parameters and states are compared after every step.

The gradients do not depend on the parameters, so a difference is one of arithmetic and does not feed on itself. All is
relative to the largest magnitude an element has had so far: sums are rounded at their own size, whatever is left of
them later. In f64 the bound is 1e-12, some 4500 units in the last place, over 1000 steps of accumulated rounding.

ADAMOD is the program. Without PyTorch the test is skipped (77), or fails if ADAMOD_REQUIRE_TORCH is set.

SPDX-License-Identifier: MIT
"""
import math
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from with_torch import PROGRAM, needed, torch

np = needed("numpy")
STEPS, N = 1000, 60
BOUND = 1e-12


def record(seed=1):
    """Parameters around 1, and gradients of very different sizes: 1e-5 to 100 by element, and by step a factor of up to
    30; one in ten is zero, two elements have none for the first 100 steps, one never."""
    rng = np.random.default_rng(seed)
    params = rng.choice([-1.0, 1.0], N) * rng.uniform(0.5, 2, N)
    grads = rng.normal(size=(STEPS, N)) * 10.0 ** np.linspace(-5, 2, N) * 10.0 ** rng.uniform(-1.5, 1.5, (STEPS, 1))
    grads += 0.3 * 10.0 ** np.linspace(-5, 2, N)
    grads[rng.uniform(size=grads.shape) < 0.1] = 0
    grads[:100, [10, 50]] = 0
    grads[:, 30] = 0
    return params, grads


def trace(folder, rule, params, grads, options, states=()):
    """The program's results: the parameters after every step, and the named states."""
    np.save(folder + "/p.npy", params)
    np.save(folder + "/g.npy", grads)
    command = [PROGRAM, "optim", "trace", "--rule", rule, "--params", folder + "/p.npy", "--grads", folder + "/g.npy"]
    command += ["--out", folder + "/t.npy", "--states"]
    for name, value in options.items():
        command += [f"--{name}", value if isinstance(value, str) else repr(value)]
    subprocess.run(command, check=True)
    return np.load(folder + "/t.npy"), {name: np.load(f"{folder}/t.{name}.npy") for name in states}


def torch_trace(make, params, grads, states):
    """torch.optim's results."""
    p = torch.nn.Parameter(torch.tensor(params))
    optimizer = make([p])
    out, kept = [], {name: [] for name in states}
    for g in grads:
        p.grad = torch.tensor(g)
        optimizer.step()
        out.append(p.detach().numpy().copy())
        for name in states:
            kept[name].append(optimizer.state[p][name].numpy().copy())
    return np.array(out), {name: np.array(rows) for name, rows in kept.items()}


def worst(got, expected, start=0.0):
    """The largest difference at any step, relative to the largest magnitude of the element so far."""
    assert got.shape == expected.shape and got.dtype == expected.dtype, (got.shape, got.dtype, expected.shape)
    assert np.isfinite(expected).all() and np.isfinite(got).all()
    size = np.maximum(np.maximum.accumulate(np.abs(expected), axis=0), np.abs(start))
    difference = np.abs(got - expected)
    return float(np.max(np.divide(difference, size, out=np.where(difference > 0, np.inf, 0.0), where=size > 0)))


# ---- torch.optim ----

ADAM_STATES = ("exp_avg", "exp_avg_sq")
CASES = [  # name, rule, its options, torch's class and arguments, states
    ("adam", "adam", {"lr": 1e-2}, "Adam", {"lr": 1e-2}, ADAM_STATES),
    ("adam betas eps", "adam", {"beta1": 0.7, "beta2": 0.95, "eps": 1e-4}, "Adam",
     {"betas": (0.7, 0.95), "eps": 1e-4}, ADAM_STATES),
    ("adam l2", "adam", {"weight_decay": 0.1, "decay": "l2"}, "Adam", {"weight_decay": 0.1}, ADAM_STATES),
    ("adam maximize", "adam", {"maximize": 1}, "Adam", {"maximize": True}, ADAM_STATES),
    ("adamw", "adam", {"lr": 1e-2, "weight_decay": 0.05}, "AdamW", {"lr": 1e-2, "weight_decay": 0.05}, ADAM_STATES),
    ("amsgrad", "amsgrad", {"lr": 1e-2}, "Adam", {"lr": 1e-2, "amsgrad": True}, ADAM_STATES),
    ("amsgrad decoupled", "amsgrad", {"weight_decay": 0.05}, "AdamW", {"weight_decay": 0.05, "amsgrad": True},
     ADAM_STATES),
    ("sgd", "sgd", {"lr": 1e-2}, "SGD", {"lr": 1e-2}, ()),
    ("sgd momentum", "sgd", {"lr": 1e-3, "momentum": 0.9}, "SGD", {"lr": 1e-3, "momentum": 0.9}, ("momentum_buffer",)),
    ("sgd dampening", "sgd", {"lr": 1e-3, "momentum": 0.9, "dampening": 0.3}, "SGD",
     {"lr": 1e-3, "momentum": 0.9, "dampening": 0.3}, ("momentum_buffer",)),
    ("sgd nesterov", "sgd", {"lr": 1e-3, "momentum": 0.9, "nesterov": 1}, "SGD",
     {"lr": 1e-3, "momentum": 0.9, "nesterov": True}, ("momentum_buffer",)),
    ("sgd weight decay", "sgd", {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.05}, "SGD",
     {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.05}, ("momentum_buffer",)),
    ("sgd maximize", "sgd", {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.05, "maximize": 1}, "SGD",
     {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.05, "maximize": True}, ("momentum_buffer",)),
    ("rmsprop", "rmsprop", {}, "RMSprop", {"lr": 1e-2}, ("square_avg",)),
    ("rmsprop momentum", "rmsprop", {"lr": 1e-3, "momentum": 0.9}, "RMSprop", {"lr": 1e-3, "momentum": 0.9},
     ("square_avg", "momentum_buffer")),
    ("rmsprop centered", "rmsprop", {"centered": 1, "alpha": 0.95}, "RMSprop",
     {"lr": 1e-2, "centered": True, "alpha": 0.95}, ("square_avg", "grad_avg")),
    ("rmsprop all", "rmsprop", {"lr": 1e-3, "centered": 1, "momentum": 0.8, "weight_decay": 0.01, "eps": 1e-6},
     "RMSprop", {"lr": 1e-3, "centered": True, "momentum": 0.8, "weight_decay": 0.01, "eps": 1e-6},
     ("square_avg", "momentum_buffer", "grad_avg")),
    ("adagrad", "adagrad", {}, "Adagrad", {"lr": 1e-2}, ("sum",)),
    ("adagrad lr_decay", "adagrad", {"lr": 0.1, "lr_decay": 1e-2}, "Adagrad", {"lr": 0.1, "lr_decay": 1e-2}, ("sum",)),
    ("adagrad initial", "adagrad", {"initial": 0.1, "weight_decay": 0.01}, "Adagrad",
     {"lr": 1e-2, "initial_accumulator_value": 0.1, "weight_decay": 0.01}, ("sum",)),
    ("adadelta", "adadelta", {}, "Adadelta", {"lr": 1.0}, ("square_avg", "acc_delta")),
    ("adadelta rho", "adadelta", {"lr": 0.5, "rho": 0.95, "eps": 1e-7, "weight_decay": 0.01}, "Adadelta",
     {"lr": 0.5, "rho": 0.95, "eps": 1e-7, "weight_decay": 0.01}, ("square_avg", "acc_delta")),
    ("radam", "radam", {}, "RAdam", {"lr": 1e-3}, ADAM_STATES),
    ("radam l2", "radam", {"lr": 1e-2, "weight_decay": 0.1, "decay": "l2", "beta2": 0.99}, "RAdam",
     {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.9, 0.99)}, ADAM_STATES),
]


def compare_with_torch(folder, case):
    _, rule, options, cls, arguments, states = case
    params, grads = record()
    if rule == "amsgrad":
        states = states + ("max_exp_avg_sq",)
    ours, our_states = trace(folder, rule, params, grads, options, states)
    theirs, their_states = torch_trace(lambda p: getattr(torch.optim, cls)(p, **arguments), params, grads, states)
    found = {"parameters": worst(ours, theirs, params)}
    for name in states:
        found[name] = worst(our_states[name], their_states[name])
    return found, BOUND


# ---- AdaMod, in torch operations ----

MOD_STATES = ("exp_avg", "exp_avg_sq", "exp_avg_lr")
MOD = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "beta3": 0.995, "eps": 1e-8, "weight_decay": 0.02}


def adamod_step(flavour, t, p, g, m, v, s):
    """One update of p, m, v and s, in their own type."""
    lr, beta1, beta2, beta3, eps = (MOD[k] for k in ("lr", "beta1", "beta2", "beta3", "eps"))
    bc1, bc2 = 1 - beta1**t, 1 - beta2**t
    p.sub_(p * (lr * MOD["weight_decay"]))  # not p * (1 - ...), whose rounding in f32 would be a drift of its own
    m.mul_(beta1).add_(g, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    if flavour == "paper":
        eta = lr / ((v / bc2).sqrt() + eps)
    elif flavour == "published":
        eta = lr * math.sqrt(bc2) / bc1 / (v.sqrt() + eps)
    else:
        eta = lr * math.sqrt(bc2) / (v.sqrt() + eps)
    s.mul_(beta3).add_(eta, alpha=1 - beta3)
    p.sub_(torch.min(eta, s) * (m if flavour == "published" else m / bc1))


def adamod_trace(flavour, params, grads):
    p, m, v, s = torch.tensor(params), *(torch.zeros(N, dtype=torch.tensor(params).dtype) for _ in range(3))
    rows = [[], [], [], []]
    for t, g in enumerate(grads, 1):
        adamod_step(flavour, t, p, torch.tensor(g), m, v, s)
        for row, x in zip(rows, (p, m, v, s)):
            row.append(x.numpy().copy())
    return [np.array(row) for row in rows]


def compare_adamod(folder, flavour):
    params, grads = record(2)
    ours, states = trace(folder, "adamod", params, grads, {"flavour": flavour, **MOD}, MOD_STATES)
    theirs = adamod_trace(flavour, params, grads)
    found = {"parameters": worst(ours, theirs[0], params)}
    for name, expected in zip(MOD_STATES, theirs[1:]):
        found[name] = worst(states[name], expected)
    return found, BOUND


def compare_adamod_f32(folder, flavour):
    """In f32, every single step: torch continues from the state the program had before the step, and what both then
    have differs by at most 4 units in the last place (of 24 bits) of an element's largest magnitude so far."""
    params, grads = (x.astype(np.float32) for x in record(3))
    ours, states = trace(folder, "adamod", params, grads, {"flavour": flavour, **MOD}, MOD_STATES)
    mine = [np.concatenate([params[None], ours])]
    mine += [np.concatenate([np.zeros((1, N), np.float32), states[name]]) for name in MOD_STATES]
    theirs = [np.empty_like(x) for x in mine]
    for t in range(1, STEPS + 1):
        x = [torch.tensor(row[t - 1]) for row in mine]
        adamod_step(flavour, t, x[0], torch.tensor(grads[t - 1]), *x[1:])
        for row, value in zip(theirs, x):
            row[t] = value.numpy()
    found = {}
    for name, a, b in zip(("parameters",) + MOD_STATES, mine, theirs):
        found[name] = worst(a[1:], b[1:], params if name == "parameters" else 0) / 2.0**-23
    return found, 4


def compare_adamod_f32_whole(folder, flavour):
    """In f32, all 1000 steps without such help: 2e-6, some 16 units in the last place."""
    params, grads = (x.astype(np.float32) for x in record(3))
    ours, states = trace(folder, "adamod", params, grads, {"flavour": flavour, **MOD}, MOD_STATES)
    theirs = adamod_trace(flavour, params, grads)
    found = {"parameters": worst(ours, theirs[0], params)}
    for name, expected in zip(MOD_STATES, theirs[1:]):
        found[name] = worst(states[name], expected)
    return found, 2e-6


def main():
    checks = [(case[0], compare_with_torch, case) for case in CASES]
    for flavour in ("paper", "published", "keras"):
        checks += [(f"adamod {flavour} f64", compare_adamod, flavour)]
        checks += [(f"adamod {flavour} f32, each step, in last places", compare_adamod_f32, flavour)]
        checks += [(f"adamod {flavour} f32, 1000 steps", compare_adamod_f32_whole, flavour)]
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    passed = failed = 0
    for name, compare, argument in checks:
        if chosen not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found, bound = compare(folder, argument)
        good = all(x <= bound for x in found.values())
        passed, failed = passed + good, failed + (not good)
        differences = ", ".join(f"{k} {x:.2g}" for k, x in found.items())
        print("ok" if good else "FAIL", f"{name}: {differences} <= {bound:g}")
    print(f"torch {torch.__version__}: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
