"""The rules, each a torch.optim.Optimizer. docs/optimizers.md has their formulas and where implementations disagree.

A class that torch.optim has too behaves as that one does: Adam, RAdam and SGD have L2 decay unless told otherwise.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Tuple

import torch
from torch import Tensor

from . import rates
from .optimizer import Optimizer, numbers
from .options import Betas, Betas3, Bounded, Common, Flavour, Params, Rate, Spatial

if TYPE_CHECKING:
    from typing_extensions import Unpack

Rates = Tuple[Tensor, Tensor]


_NO_OPTIONS = ("self", "params", "common", "decoupled_weight_decay", "__class__")


def _own(arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Of a constructor's locals(), the options that are its own."""
    return {name: value for name, value in arguments.items() if name not in _NO_OPTIONS}


class AdaMod(Optimizer):
    """AdaMod: Adam, its step bounded by a running average of each element's own learning rate.

    Ding, Ren, Luo, Sun, "An Adaptive and Momental Bound Method for Stochastic Learning", arXiv 1910.12249.

        m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
        eta = lr / (sqrt(v / (1 - beta2^t)) + eps)
        s = beta3 s + (1 - beta3) eta      p = p - min(eta, s) m / (1 - beta1^t)

    Args, beside those of every Optimizer here:
        beta3: decay of the average of learning rates; 0 is Adam. The paper recommends 0.999 or 0.9999.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        flavour: where the bias corrections sit: "paper" (Algorithm 2); "published" (the authors' package and its ports,
            eta = lr sqrt(1 - beta2^t) / (1 - beta1^t) / (sqrt(v) + eps), a step on m itself); "adamd" (ports with
            adam_debias: the same without 1 - beta1^t); or "keras".
    """

    rule = "adamod"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.999),
        beta3: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        flavour: Flavour = "paper",
        **common: Unpack[Common],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        # Ports of the published package have three betas in place of beta3. Who saved no flavour knows none but the
        # published one, and adam_debias; a run must go on with the formula it had.
        group.setdefault("flavour", "adamd" if group.pop("adam_debias", False) else "published")
        if len(group.get("betas", ())) == 3:
            *betas, group["beta3"] = group["betas"]
            group["betas"] = tuple(betas)
        super()._complete(group, before)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr, vscale = rates.flavoured(o, t)
        eta = rates.divided(lr, state["exp_avg_sq"], o["eps"], vscale)
        return eta, torch.minimum(eta, rates.local_real(state["exp_avg_lr"]).to(eta.dtype))


class Adam(Optimizer):
    """Adam, Kingma and Ba, arXiv 1412.6980; as torch.optim.Adam.

        m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
        p = p - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    Args, beside those of every Optimizer here:
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        amsgrad: divide by the root of the largest v so far, Reddi et al., arXiv 1904.09237.
        decoupled_weight_decay: torch.optim's word for decay="decoupled".
        flavour: where the bias corrections sit, as in AdaMod.
    """

    rule = "adam"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        decoupled_weight_decay: bool = False,
        flavour: Flavour = "paper",
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common, decay="decoupled" if decoupled_weight_decay else "l2")

    def _rule(self, group: Dict[str, Any]) -> str:
        return "amsgrad" if group.get("amsgrad") else "adam"

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr, vscale = rates.flavoured(o, t)
        eta = rates.divided(lr, state["exp_avg_sq"], o["eps"], vscale)
        largest = state.get("max_exp_avg_sq")
        return eta, eta if largest is None else rates.divided(lr, largest, o["eps"], vscale)


class AdamW(Adam):
    """Adam with decoupled decay, Loshchilov and Hutter, arXiv 1711.05101; as torch.optim.AdamW.

    p = p - lr weight_decay p before Adam's step; its arguments are Adam's.
    """

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        flavour: Flavour = "paper",
        **common: Unpack[Bounded],
    ) -> None:
        merged: Bounded = {"decay": "decoupled", **common}
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, flavour=flavour, **merged)


class AMSGrad(Optimizer):
    """Adam with the largest v so far, Reddi, Kale, Kumar, arXiv 1904.09237, with decoupled decay.

    Args, beside those of every Optimizer here:
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        flavour: where the bias corrections sit, as in AdaMod.
        bias_correction: False is as they write it.
    """

    rule = "amsgrad"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        flavour: Flavour = "paper",
        bias_correction: bool = True,
        **common: Unpack[Bounded],
    ) -> None:
        # amsgrad is for torch.optim.Adam, should it load our checkpoint.
        super().__init__(params, {**_own(locals()), "amsgrad": True}, common)

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        # PyTorch's Adam and AdamW both have amsgrad; which of them wrote it, checkpoints of old ones do not tell.
        if group.get("weight_decay") and not any(key in group for key in ("decay", "decoupled_weight_decay")):
            raise ValueError("it does not tell how weight_decay acts: set decay in it to 'l2' or 'decoupled'")
        super()._complete(group, before)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr, vscale = rates.flavoured(o, t) if o["bias_correction"] else (o["lr"], 1.0)
        return (
            rates.divided(lr, state["exp_avg_sq"], o["eps"], vscale),
            rates.divided(lr, state["max_exp_avg_sq"], o["eps"], vscale),
        )


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum as in torch.optim.SGD.

        m = momentum m + (1 - dampening) g, in the first update g        p = p - lr m

    Args, beside those of every Optimizer here:
        momentum: how much of the last step is kept; 0 needs no state.
        dampening: of the gradient in m.
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        nesterov: step along g + momentum m.
    """

    rule = "sgd"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(params, _own(locals()), common, decay="l2")

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.constant(o["lr"], p)
        return eta, eta


class Adagrad(Optimizer):
    """AdaGrad, Duchi, Hazan, Singer, JMLR 12; as torch.optim.Adagrad.

        sum = sum + g^2        p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps)

    Args, beside those of every Optimizer here:
        lr_decay: of the learning rate with the number of updates.
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        initial_accumulator_value: what sum begins with.
    """

    rule = "adagrad"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common, decay="l2")

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.divided(o["lr"] / (1 + (t - 1) * o["lr_decay"]), state["sum"], o["eps"])
        return eta, eta


class RMSprop(Optimizer):
    """RMSProp, Tieleman and Hinton; as torch.optim.RMSprop.

        v = alpha v + (1 - alpha) g^2        p = p - lr g / (sqrt(v) + eps)

    Args, beside those of every Optimizer here:
        alpha: decay of the average of squared gradients.
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        momentum: of the steps.
        centered: less the square of the average gradient in v, Graves, arXiv 1308.0850.
    """

    rule = "rmsprop"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common, decay="l2")

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        v = rates.local_real(state["square_avg"])
        if o["centered"]:
            a = rates.local_real(state["grad_avg"])
            v = (v - a * a).clamp_(min=0)
        eta = rates.divided(o["lr"], v, o["eps"])
        return eta, eta


class Adadelta(Optimizer):
    """AdaDelta, Zeiler, arXiv 1212.5701; as torch.optim.Adadelta.

        v = rho v + (1 - rho) g^2        d = sqrt(s + eps) / sqrt(v + eps) g
        s = rho s + (1 - rho) d^2        p = p - lr d

    Args, beside those of every Optimizer here:
        rho: decay of both averages.
        eps: in both roots.
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
    """

    rule = "adadelta"
    _states_tell_rates = False

    def __init__(
        self,
        params: Params,
        lr: Rate = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common, decay="l2")


class AdaBound(Optimizer):
    """AdaBound, Luo et al., arXiv 1902.09843: Adam clipped to bounds that close in on a learning rate of SGD, final_lr.

    final_lr follows what a scheduler makes of lr, as in the authors' package: it is scaled by lr / base_lr, where
    base_lr is the learning rate that the group was made with.

    Args, beside those of every Optimizer here:
        final_lr: where the bounds meet.
        gamma: how fast they close in: final_lr (1 -+ 1 / (gamma t)), about.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "adabound"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.999),
        final_lr: float = 0.1,
        gamma: float = 1e-3,
        eps: float = 1e-8,
        weight_decay: float = 0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group.setdefault("base_lr", float(group["lr"]))
        group.setdefault("amsbound", self.rule == "amsbound")  # for the authors' package, should it load our checkpoint

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        values = super()._options(group)
        if group.get("base_lr", 0) > 0:  # none yet while a new group is checked
            values["final_lr"] *= values["lr"] / group["base_lr"]
        return values

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        for name in ("amsbound", "ams_bound"):  # in the authors' package, and in pytorch_optimizer
            if bool(group.get(name, self.rule == "amsbound")) != (self.rule == "amsbound"):
                other = "AdaBound" if self.rule == "amsbound" else "AMSBound"
                raise ValueError(f"it was saved with {name}={group[name]}: load it into {other}")
        if "amsbound" in group:  # the authors' package knows no other decay
            group.setdefault("decay", "l2")
        super()._complete(group, before)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        v = state["max_exp_avg_sq"] if "max_exp_avg_sq" in state else state["exp_avg_sq"]
        eta = rates.divided(rates.published_lr(o, t), v, o["eps"])
        low = o["final_lr"] * (1 - 1 / (o["gamma"] * t + 1))
        high = o["final_lr"] * (1 + 1 / (o["gamma"] * t)) if o["gamma"] > 0 else math.inf
        return eta, eta.clamp(min=rates.rounded(low, eta.dtype), max=rates.rounded(high, eta.dtype))


class AMSBound(AdaBound):
    """AdaBound with the largest v so far; its arguments are AdaBound's."""

    rule = "amsbound"


class AdaShift(Optimizer):
    """AdaShift, Zhou et al., arXiv 1810.00143: Adam whose second moment takes the gradient of `window` updates ago. The
    first `window` updates only fill the queue.

    Args, beside those of every Optimizer here:
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        window: how late the gradient in v is; so many gradients are kept.
        spatial: v takes the largest gradient of the parameter ("max") or each element's own ("none").
    """

    rule = "adashift"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-10,
        weight_decay: float = 0,
        *,
        window: int = 10,
        spatial: Spatial = "max",
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        v, late = rates.local_real(state["exp_avg_sq"]), t - o["window"]
        eta = rates.divided(o["lr"], v, o["eps"], 1 / (1 - o["beta2"] ** late) if late > 0 else 1.0)
        step = torch.where(v > 0, eta, torch.zeros_like(eta))  # an element whose gradients were all zero stays
        if o["spatial"] == "none":
            return eta, step
        return (step.expand(rates.local_real(p).numel()),) * 2


class NosAdam(Optimizer):
    """NosAdam, Huang, Wang, Dong, arXiv 1805.07557: Adam in whose second moment update k weighs k^-gamma.

    Args, beside those of every Optimizer here:
        beta1: decay of the average of gradients.
        gamma: how much earlier gradients weigh more; 0 is their plain mean.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        bias_correction: of the first moment; False is as the paper writes it.
    """

    rule = "nosadam"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        beta1: float = 0.9,
        gamma: float = 0.1,
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        bias_correction: bool = True,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        if "betas" in group and "beta1" not in group:  # the authors' program, which has L2 decay alone
            if group.get("lr_decay"):
                raise ValueError("it was saved with lr_decay=True: use a scheduler, and set lr_decay in it to False")
            group["beta1"] = group["betas"][0]
            group.setdefault("decay", "l2")
        super()._complete(group, before)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.divided(o["lr"], state["exp_avg_sq"], o["eps"])
        return eta, eta


class Adafactor(Optimizer):
    """Adafactor, Shazeer and Stern, arXiv 1804.04235: a matrix's second moment as the product of a row and a column.

    As in fairseq and Transformers, with their arguments and checkpoints; not as torch.optim.Adafactor. It looks at whole
    parameters, so under FSDP it is not what it is without.

    Args, beside those of every Optimizer here:
        lr: the learning rate, a tensor too; with relative_step there is none to be given.
        eps: what is added to squared gradients, and the least that a parameter's root mean square counts as.
        clip_threshold: the most that the root mean square of an update may be.
        decay_rate: the second moment's decay in update t is 1 - t^decay_rate; 0.8 means -0.8.
        beta1: decay of the average of updates; None keeps none.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        scale_parameter: the learning rate is times the parameter's root mean square.
        relative_step: it is min(1e-2, 1 / sqrt(t)) in place of lr.
        warmup_init: and 1e-6 t in place of 1e-2.
    """

    rule = "adafactor"
    _states_tell_rates = False

    def __init__(
        self,
        params: Params,
        lr: Optional[Rate] = None,
        eps: Tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        beta1: Optional[float] = None,
        weight_decay: float = 0,
        scale_parameter: bool = True,
        relative_step: bool = True,
        warmup_init: bool = False,
        **common: Unpack[Bounded],
    ) -> None:
        if lr is not None and relative_step:
            raise ValueError(f"Adafactor: lr is {lr}, and relative_step=True computes it: give one of them")
        if warmup_init and not relative_step:
            raise ValueError("Adafactor: warmup_init=True is a part of relative_step=True")
        super().__init__(params, _own(locals()), common)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        values = super()._options(group)
        values["eps1"], values["eps2"] = numbers("eps", group["eps"], 2)
        if values["beta1"] is None:
            values["beta1"] = 0.0
        if isinstance(values["decay_rate"], (int, float)):
            values["decay_rate"] = abs(values["decay_rate"])
        if values["lr"] is None and group["relative_step"]:
            del values["lr"]
        return values

    def state_dict(self) -> Dict[str, Any]:
        """As PyTorch's; transformers.Adafactor loads it."""
        saved = super().state_dict()
        for packed in saved["param_groups"]:
            packed["beta1"] = packed["beta1"] or None  # 0 keeps an average there
        return saved

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        if "eps1" in group and "eps2" in group:  # as they were saved before there was eps
            group.setdefault("eps", (group.pop("eps1"), group.pop("eps2")))
        super()._complete(group, before)

    def _get_lr(self, group: Dict[str, Any], state: Dict[str, Any]) -> float:
        """The learning rate of the next update like the last; for transformers.optimization.AdafactorSchedule."""
        t = int(state["step"])
        lr = min(1e-6 * t if group["warmup_init"] else 1e-2, 1 / math.sqrt(t)) if group["relative_step"] else group["lr"]
        if group["scale_parameter"]:
            p = next(p for p in group["params"] if self.state.get(p) is state)
            lr *= max(group["eps"][1], float(p.detach().norm()) / math.sqrt(p.numel()))
        return float(lr)


class RAdam(Optimizer):
    """RAdam, Liu et al., arXiv 1908.03265: Adam whose early learning rates are rectified; as torch.optim.RAdam.

    Args, beside those of every Optimizer here:
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        decoupled_weight_decay: torch.optim's word for decay="decoupled".
    """

    rule = "radam"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common, decay="decoupled" if decoupled_weight_decay else "l2")

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        correction = 1 - o["beta2"] ** t
        limit = 2 / (1 - o["beta2"]) - 1
        rho = limit - 2 * t * o["beta2"] ** t / correction
        if rho > 5:
            rectified = math.sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
            eta = rates.divided(o["lr"] * math.sqrt(correction) * rectified, state["exp_avg_sq"], o["eps"])
        else:
            eta = rates.constant(o["lr"], state["exp_avg_sq"])
        return eta, eta


class Lion(Optimizer):
    """Lion, Chen et al., arXiv 2302.06675: steps of one size, by the sign of an average of gradients.

        p = p - lr sign(beta1 m + (1 - beta1) g)        m = beta2 m + (1 - beta2) g

    Args, beside those of every Optimizer here:
        betas: weight of the average in the step's sign, and decay of the average.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "lion"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-4,
        betas: Betas = (0.9, 0.99),
        weight_decay: float = 0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.constant(o["lr"], p)
        return eta, eta


class NAdam(Optimizer):
    """NAdam, Dozat, ICLR workshop 2016: Adam with Nesterov's momentum; as torch.optim.NAdam.

    torch.optim's checkpoints have mu_product beside the states; here it follows from the number of updates.

    Args, beside those of every Optimizer here:
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        momentum_decay: how fast the momentum grows to beta1.
        decoupled_weight_decay: torch.optim's word for decay="decoupled".
    """

    rule = "nadam"

    def __init__(
        self,
        params: Params,
        lr: Rate = 2e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common, decay="decoupled" if decoupled_weight_decay else "l2")

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.divided(o["lr"], state["exp_avg_sq"], o["eps"], 1 / (1 - o["beta2"] ** t))
        return eta, eta


class Adamax(Optimizer):
    """Adamax, Kingma and Ba, arXiv 1412.6980: Adam with the largest gradient in place of the root mean square; as
    torch.optim.Adamax.

    Args, beside those of every Optimizer here:
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
    """

    rule = "adamax"

    def __init__(
        self,
        params: Params,
        lr: Rate = 2e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common, decay="l2")

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr = rates.constant(o["lr"] / (1 - o["beta1"] ** t), p)
        eta = lr / rates.local_real(state["exp_inf"]).to(lr.dtype)
        return eta, eta


class AdaBelief(Optimizer):
    """AdaBelief, Zhuang et al., arXiv 2010.07468: Adam that divides by how far gradients were from their average; as in
    the authors' package.

    Args, beside those of every Optimizer here:
        eps: added to the divisor, and to the average of squares in every update.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        rectify: early learning rates are rectified, as RAdam's.
    """

    rule = "adabelief"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-16,
        weight_decay: float = 0,
        *,
        rectify: bool = True,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        beta2 = o["beta2"]
        correction = 1 - beta2**t
        if not o["rectify"]:
            eta = rates.divided(o["lr"], state["exp_avg_var"], o["eps"], 1 / correction)
            return eta, eta
        rho = 2 / (1 - beta2) - 1
        rho_t = rho - 2 * t * beta2**t / correction
        if rho_t < 5:
            eta = rates.constant(o["lr"], p)
            return eta, eta
        r = math.sqrt(correction * (rho_t - 4) * (rho_t - 2) * rho / ((rho - 4) * (rho - 2) * rho_t))
        eta = rates.divided(o["lr"] * r, state["exp_avg_var"], o["eps"])
        return eta, eta


class ADOPT(Optimizer):
    """ADOPT, Taniguchi et al., arXiv 2411.02853: Adam that divides by the second moment of the update before. The first
    update only fills it.

        m = beta1 m + (1 - beta1) clip(g / max(sqrt(v), eps))        p = p - lr m        v = beta2 v + (1 - beta2) g^2

    Args, beside those of every Optimizer here:
        eps: the least divisor.
        clip: whether a normalized gradient is clipped to (t - 1)^0.25.
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
    """

    rule = "adopt"
    _states_tell_rates = False

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.9999),
        eps: float = 1e-6,
        clip: bool = True,
        weight_decay: float = 0,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common, decay="l2")


class AdEMAMix(Optimizer):
    """AdEMAMix, Pagliardini, Ablin, Grangier, arXiv 2409.03137: Adam with a second, slow average of gradients; as in the
    authors' package.

    Args, beside those of every Optimizer here:
        betas: decay of the fast average of gradients, of the squares, and of the slow average.
        alpha: weight of the slow average.
        beta3_warmup: updates until the slow average's decay has grown from the fast one's; None: none.
        alpha_warmup: updates until alpha has grown from 0; None: none.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "ademamix"
    _names = {
        "betas": ("beta1", "beta2", "beta_slow"),
        "beta3_warmup": ("beta_slow_warmup",),
    }

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas3 = (0.9, 0.999, 0.9999),
        alpha: float = 2.0,
        beta3_warmup: Optional[int] = None,
        alpha_warmup: Optional[int] = None,
        eps: float = 1e-8,
        weight_decay: float = 0,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        values = super()._options(group)
        for name in ("alpha_warmup", "beta_slow_warmup"):
            values[name] = values[name] or 0
        return values

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.divided(o["lr"], state["exp_avg_sq"], o["eps"], 1 / (1 - o["beta2"] ** t))
        return eta, eta


class Adan(Optimizer):
    """Adan, Xie et al., arXiv 2208.06677: Adam with an average of the changes of gradients; as in the authors' package,
    whose weight decay is decoupled here as with its no_prox.

    Args, beside those of every Optimizer here:
        betas: decay of the averages of gradients, of their changes, and of squares.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "adan"
    _names = {"betas": ("beta1", "beta_diff", "beta2")}

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas3 = (0.98, 0.92, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.divided(o["lr"], state["exp_avg_sq"], o["eps"], 1 / (1 - o["beta2"] ** t))
        return eta, eta


class LAMB(Optimizer):
    """LAMB, You et al., arXiv 1904.00962: Adam whose step on a parameter has the length of lr times the parameter.

    As in the paper, with the identity for its phi. It looks at whole parameters.

    Args, beside those of every Optimizer here:
        weight_decay: a part of the step whose length is set, unless decay says otherwise.
        bias_correction: of both averages.
    """

    rule = "lamb"
    _states_tell_rates = False

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        bias_correction: bool = True,
        **common: Unpack[Bounded],
    ) -> None:
        # trust_ratio tells a checkpoint from one of Adam's.
        super().__init__(params, {**_own(locals()), "trust_ratio": True}, common)


class Prodigy(Optimizer):
    """Prodigy, Mishchenko and Defazio, arXiv 2306.06101: Adam that estimates its learning rate; as in the authors' package.

    The estimate d is one number for all parameters of all groups, which must be on the CPU. It looks at whole parameters.

    Args, beside those of every Optimizer here:
        lr: times d, the learning rate. The authors advise 1, with a schedule that decays it.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        d0: the first d, which should be too small rather than too large.
        d_coef: times the estimate of d: the way to tune the rule.
        growth_rate: by at most this factor d grows in a step.
        beta_d: decay of the sums that d is estimated from, the authors' beta3; 0 is the root of betas[1].
        use_bias_correction: Adam's correction of averages.
        safeguard_warmup: the sum that d is divided by does not see lr, for long warm-ups.
    """

    rule = "prodigy"
    _states_tell_rates = False

    def __init__(
        self,
        params: Params,
        lr: Rate = 1.0,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        d0: float = 1e-6,
        d_coef: float = 1.0,
        growth_rate: float = float("inf"),
        beta_d: float = 0,
        use_bias_correction: bool = False,
        safeguard_warmup: bool = False,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common)


class StableAdamW(Optimizer):
    """StableAdamW, Wortsman et al., arXiv 2304.13013: AdamW that steps less where a parameter's gradients are larger than
    they were; as in optimi. It looks at whole parameters.

    Args, beside those of every Optimizer here:
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "stableadamw"
    _states_tell_rates = False

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: Betas = (0.9, 0.99),
        eps: float = 1e-6,
        weight_decay: float = 1e-2,
        **common: Unpack[Bounded],
    ) -> None:
        # update_clipping tells a checkpoint from one of Adam's.
        super().__init__(params, {**_own(locals()), "update_clipping": True}, common)


class _ScheduleFree(Optimizer):
    """What both have: the weights to train, and those to evaluate with. Which of them the parameters are is train_mode of
    the groups, as in the authors' package, so that copies and checkpoints tell it."""

    # What eval() replaced, and the parameter's count of writes after that. Copies and checkpoints do not have it.
    _kept: Dict[Tensor, Tuple[Tensor, int]] = {}

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self.param_groups[-1].setdefault("train_mode", all(g["train_mode"] for g in self.param_groups[:-1]))

    @torch.no_grad()
    def eval(self) -> None:
        """Puts the weights to evaluate with in the parameters' place. Call train() before the next step."""
        kept = {}
        for beta1, p in self._to_switch(True):
            y = self.state[p].get("master", p)
            before = p.detach().clone()
            p.copy_(y + (1 - 1 / beta1) * (self.state[p]["z"].to(y.dtype) - y))
            kept[p] = before, p._version
        self._kept = {**self._kept, **kept}
        self._set_mode(False)

    @torch.no_grad()
    def train(self) -> None:
        """Puts back the weights to train, bit for bit; where they came with a copy or a checkpoint that was made after
        eval(), or have been changed since, computes them."""
        for beta1, p in self._to_switch(False):
            y, version = self._kept.get(p, (self.state[p].get("master"), p._version))
            if y is None or version != p._version:
                y = p + (1 - beta1) * (self.state[p]["z"].to(p.dtype) - p)
            p.copy_(y)
        self._kept = {}
        self._set_mode(True)

    def _to_switch(self, train_mode: bool) -> Iterator[Tuple[float, Tensor]]:
        """The parameters that have both weights, of the groups in this mode, with their beta1."""
        for group in self.param_groups:
            if group["train_mode"] is not train_mode:
                continue
            beta1 = self._options(group)["beta1"]
            for p in group["params"]:
                if "z" in self.state.get(p, {}):
                    yield beta1, p

    def _set_mode(self, train_mode: bool) -> None:
        for group in self.param_groups:
            group["train_mode"] = train_mode

    def step(self, closure: Any = None, **scaling: Any) -> Any:
        """One update; see Optimizer.step."""
        if not all(group["train_mode"] for group in self.param_groups):
            raise RuntimeError("the parameters are the ones to evaluate with: call train() before a step")
        return super().step(closure, **scaling)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """See Optimizer.load_state_dict. If it was saved after eval(), the model's weights are to be those of then, too."""
        super().load_state_dict(state_dict)
        self._kept = {}

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        group["train_mode"] = bool(group.get("train_mode", True))
        super()._complete(group, before)


class ScheduleFreeAdamW(_ScheduleFree):
    """Schedule-Free AdamW, Defazio et al., arXiv 2405.15682: an average of the path in place of a schedule.

    Gradients are to be taken at the parameters as they are. Call eval() before an evaluation and train() after it.

    Args, beside those of every Optimizer here:
        betas: how near the parameters are to the average, and decay of the average of squared gradients.
        warmup_steps: updates in which lr grows to its value.
        r: update t weighs t^r in the average.
        weight_lr_power: updates of the warm-up weigh a power of their learning rate.
        weight_decay: of the parameters, unless decay says otherwise.
    """

    rule = "schedulefree_adamw"

    def __init__(
        self,
        params: Params,
        lr: Rate = 2.5e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        warmup_steps: int = 0,
        r: float = 0.0,
        weight_lr_power: float = 2.0,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr = o["lr"] * min(1, t / o["warmup_steps"] if o["warmup_steps"] else 1)
        eta = rates.divided(lr, state["exp_avg_sq"], o["eps"], 1 / (1 - o["beta2"] ** t))
        return eta, eta


class ScheduleFreeSGD(_ScheduleFree):
    """Schedule-Free SGD, Defazio et al., arXiv 2405.15682; see ScheduleFreeAdamW.

    Args, beside those of every Optimizer here:
        momentum: how near the parameters are to the average.
        warmup_steps: updates in which lr grows to its value.
        r: update t weighs t^r in the average.
        weight_lr_power: updates of the warm-up weigh a power of their learning rate.
        weight_decay: of the parameters, unless decay says otherwise.
    """

    rule = "schedulefree_sgd"
    _names = {"momentum": ("beta1",)}

    def __init__(
        self,
        params: Params,
        lr: Rate = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0,
        warmup_steps: int = 0,
        r: float = 0.0,
        weight_lr_power: float = 2.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr = o["lr"] * min(1, t / o["warmup_steps"] if o["warmup_steps"] else 1)
        eta = rates.constant(lr, p)
        return eta, eta


class Sophia(Optimizer):
    """Sophia, Liu et al., arXiv 2305.14342: divides by an estimate of the Hessian's diagonal, and clips; as the authors'
    SophiaG. Call update_hessian() every so many steps, after a backward pass of which the squared gradients are such an
    estimate: with labels that were drawn from the model's own answers.

    Args, beside those of every Optimizer here:
        betas: decay of the average of gradients, and of the estimates.
        rho: the larger, the fewer elements are clipped.
        bs: how many samples, or tokens, the loss is a mean of.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "sophia"
    _names = {"betas": ("beta1",)}

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-4,
        betas: Betas = (0.965, 0.99),
        rho: float = 0.04,
        weight_decay: float = 1e-1,
        *,
        bs: int = 5120,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        beta1, beta2 = numbers("betas", group["betas"], 2)
        if not 0 <= beta2 < 1:
            raise ValueError(f"the second of betas is {beta2:g}, expected 0 <= it < 1")
        return super()._options({**group, "betas": beta1})

    @torch.no_grad()
    def update_hessian(self) -> None:
        """Takes the squares of the gradients there are into the estimate. A parameter has one from its first step on.
        After a GradScaler's scale(), call its unscale_() first."""
        for group in self.param_groups:
            beta2 = group["betas"][1]
            for p in group["params"]:
                hessian, g = self.state.get(p, {}).get("hessian"), p.grad
                if g is None or hessian is None:
                    continue
                if g.layout is not torch.strided:
                    raise RuntimeError(f"update_hessian: a gradient has layout {g.layout}, expected a dense one")
                if g.is_complex():  # as pairs of reals, as in a step
                    hessian, g = torch.view_as_real(hessian), torch.view_as_real(g.resolve_conj())
                hessian.mul_(beta2).addcmul_(g, g, value=1 - beta2)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr = rates.constant(o["lr"], p)
        eta = lr / (o["rho"] * o["bs"] * rates.local_real(state["hessian"]).to(lr.dtype) + 1e-15)
        return eta, eta


class Muon(Optimizer):
    """Muon, Jordan et al., kellerjordan.github.io/posts/muon: the momentum of a matrix made nearly orthogonal; as
    torch.optim.Muon, whose steps of Newton and Schulz are in bfloat16; here they are on GPUs, and on CPUs in float32 or
    float64.

    A parameter of two or more dimensions is a matrix of its first dimension by all others. All others, and groups with
    use_muon=False (embeddings, output layers), take AdamW's step. It looks at whole parameters.

    Args, beside those of every Optimizer here:
        lr: of matrices.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        momentum: decay of the average of gradients.
        nesterov: the step is of that average with the gradient averaged in once more.
        ns_coefficients: a, b and c of X = a X + (b A + c A^2) X, with A = X X^T.
        eps: the least norm that a matrix is divided by.
        ns_steps: how many such steps.
        adjust_lr_fn: "original" (None), "match_rms_adamw" or "spectral_unclamped".
        use_muon: False: AdamW takes matrices, too.
        adamw_lr: of what AdamW takes; it follows what a scheduler makes of lr.
        adamw_betas: betas of AdamW.
        adamw_eps: eps of AdamW.
    """

    rule = "muon"
    _states_tell_rates = False
    _names = {
        "ns_coefficients": ("ns_a", "ns_b", "ns_c"),
        "adamw_betas": ("adamw_beta1", "adamw_beta2"),
        "adjust_lr_fn": ("adjust_lr",),
    }

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: Tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: Optional[str] = None,
        *,
        use_muon: bool = True,
        adamw_lr: float = 3e-4,
        adamw_betas: Betas = (0.9, 0.95),
        adamw_eps: float = 1e-10,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group.setdefault("base_lr", float(group["lr"]))

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        group.setdefault("base_lr", float(group.get("initial_lr", group["lr"])))  # torch.optim's has none
        super()._complete(group, before)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        values = super()._options({**group, "adjust_lr_fn": group["adjust_lr_fn"] or "original"})
        if group.get("base_lr", 0) > 0:  # none yet while a new group is checked
            values["adamw_lr"] *= values["lr"] / group["base_lr"]
        return values


class SOAP(Optimizer):
    """SOAP, Vyas et al., arXiv 2409.11321: Adam in the eigenbasis of Shampoo's averages, for matrices; as the authors'.

    A parameter of two or more dimensions is a matrix of its first dimension by all others. All others take Adam's step. The
    first step moves nothing. On CPUs only; it looks at whole parameters.

    Args, beside those of every Optimizer here:
        shampoo_beta: decay of the averages that have the eigenbasis; None: as the second of betas.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        precondition_frequency: steps from one change of the basis to the next.
        max_precondition_dim: the longest side of a matrix that has a basis of its own.
        correct_bias: of both averages.
    """

    rule = "soap"
    _states_tell_rates = False
    _names = {"correct_bias": ("bias_correction",)}

    def __init__(
        self,
        params: Params,
        lr: Rate = 3e-3,
        betas: Betas = (0.95, 0.95),
        shampoo_beta: Optional[float] = None,
        weight_decay: float = 1e-2,
        precondition_frequency: int = 10,
        max_precondition_dim: int = 10000,
        *,
        correct_bias: bool = True,
        eps: float = 1e-8,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(params, _own(locals()), common)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        beta = group["shampoo_beta"]
        return super()._options({**group, "shampoo_beta": -1 if beta is None else beta})
