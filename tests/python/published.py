"""AdaMod as the authors' package computes it, written down from its formula, and as ports have it that count updates in
the parameter group. The tests compare with them, and exchange checkpoints with them.

SPDX-License-Identifier: MIT
"""

import math

import torch


class PublishedAdaMod(torch.optim.Optimizer):
    """`step` for each parameter, as in the package and most ports."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), beta3=0.999, eps=1e-8, weight_decay=0):
        super().__init__(params, dict(lr=lr, betas=betas, beta3=beta3, eps=eps, weight_decay=weight_decay))

    def count(self, group, state):
        state["step"] = state.get("step", 0) + 1
        return state["step"]

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(group, p, p.grad)

    def update(self, group, p, g):
        state = self.state[p]
        for name in ("exp_avg", "exp_avg_sq", "exp_avg_lr"):
            if name not in state:
                state[name] = torch.zeros_like(p)
        t = self.count(group, state)
        beta1, beta2 = group["betas"]
        m, v, s = state["exp_avg"], state["exp_avg_sq"], state["exp_avg_lr"]
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        lr = group["lr"] * math.sqrt(1 - beta2**t) / (1 if group.get("adam_debias") else 1 - beta1**t)
        p.add_(p, alpha=-group["weight_decay"] * group["lr"])
        eta = torch.full_like(v, lr).div_(v.sqrt().add_(group["eps"]))
        s.mul_(group["beta3"]).add_(eta, alpha=1 - group["beta3"])
        p.sub_(torch.min(eta, s).mul_(m))


class GroupCountingAdaMod(PublishedAdaMod):
    """`step` in the parameter group, as in some ports."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
        super().step(closure)

    def count(self, group, state):
        return group["step"]


class ThreeBetasAdaMod(GroupCountingAdaMod):
    """AdaMod with the third beta among the others, three ways of decay, and AdamD's correction."""

    def __init__(self, params, betas=(0.9, 0.99, 0.9999), lr=1e-3, eps=1e-8, weight_decay=0, **others):
        super().__init__(params, lr, betas, eps=eps, weight_decay=weight_decay)
        for group in self.param_groups:
            del group["beta3"]
            group.update(weight_decouple=True, fixed_decay=False, adam_debias=False)
            group.update(others)

    def update(self, group, p, g):
        decay = group["weight_decay"]
        if not group["weight_decouple"]:
            g = g + decay * p
            decay = 0
        elif group["fixed_decay"]:
            decay = decay / group["lr"]
        options = {"betas": group["betas"][:2], "beta3": group["betas"][2], "weight_decay": decay}
        super().update({**group, **options}, p, g)
