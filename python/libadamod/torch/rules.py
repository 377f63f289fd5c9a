"""The rules that the paper compares AdaMod with, and itself, each a torch.optim.Optimizer; rivals.py has those that came
after. docs/optimizers.md has their formulas and where implementations disagree.

A class that torch.optim has too behaves as that one does: Adam, RAdam and SGD have L2 decay unless told otherwise.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from . import checkpoints, rates
from .checkpoints import Telling
from .optimizer import Optimizer, numbers
from .options import Betas, Bounded, Common, Flavour, Params, Rate, Spatial, own
from .rates import Rates

if TYPE_CHECKING:
    from typing_extensions import Unpack


__all__ = [
    "AdaMod",
    "Adam",
    "AdamW",
    "AMSGrad",
    "SGD",
    "Adagrad",
    "RMSprop",
    "Adadelta",
    "AdaBound",
    "AMSBound",
    "AdaShift",
    "NosAdam",
    "Adafactor",
    "RAdam",
]


class AdaMod(Optimizer):
    """AdaMod: Adam, its step bounded by a running average of each element's own learning rate.

    Ding, Ren, Luo, Sun, "An Adaptive and Momental Bound Method for Stochastic Learning", arXiv 1910.12249.

        m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
        eta = lr / (sqrt(v / (1 - beta2^t)) + eps)
        s = beta3 s + (1 - beta3) eta      p = p - min(eta, s) m / (1 - beta1^t)

    Args, besides those of every Optimizer here:
        beta3: decay of the average of learning rates; 0 is Adam. The paper recommends 0.999 or 0.9999.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        flavour: variant of the formula: "paper" (Algorithm 2); "published" (the authors' package and its ports,
            eta = lr sqrt(1 - beta2^t) / (1 - beta1^t) / (sqrt(v) + eps), a step on m itself); "adamd" (ports with
            adam_debias: the same without 1 - beta1^t); or "keras".
        skip_idle: an element's average of learning rates begins with its first gradient other than 0.
    """

    rule = "adamod"
    _telling = Telling(ported=True)

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
        skip_idle: bool = False,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(params, own(locals()), common)

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        # Ports of the published package have three betas in place of beta3. Packages that save no flavour have the
        # published formula, or with adam_debias AdamD's: a run must go on with the formula it had.
        group.setdefault("flavour", "adamd" if group.pop("adam_debias", False) else "published")
        betas = group.get("betas")
        if isinstance(betas, (list, tuple)) and len(betas) == 3:
            group["betas"], group["beta3"] = tuple(betas[:2]), betas[2]
        super()._complete(group, before)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr, vscale = rates.flavoured(o, t)
        eta = rates.divided(lr, state["exp_avg_sq"], o["eps"], vscale)
        return eta, torch.minimum(eta, rates.local_real(state["exp_avg_lr"]).to(eta.dtype))


class Adam(Optimizer):
    """Adam, Kingma and Ba, arXiv 1412.6980; as torch.optim.Adam.

        m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
        p = p - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    Args, besides those of every Optimizer here:
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        amsgrad: divide by the root of the largest v so far, Reddi et al., arXiv 1904.09237.
        decoupled_weight_decay: torch.optim's name for decay="decoupled".
        flavour: variant of the formula, as in AdaMod.
    """

    rule = "adam"
    _torch_decouples = True
    _telling = Telling(caution=True)

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
        super().__init__(params, own(locals()), common, decay="decoupled" if decoupled_weight_decay else "l2")

    def _other_formula(self, group: Dict[str, Any], before: Dict[str, Any], has_states: bool) -> Optional[str]:
        # A group without amsgrad is another rule's: RAdam's, timm's NAdamW and the like. Apex has bias_correction instead.
        unlike = "amsgrad" not in group and (checkpoints.is_ours(group) or "bias_correction" not in group)
        found = super()._other_formula(group, before, has_states)
        return found or ("it has no amsgrad, which adam has" if has_states and unlike else None)

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

    Args, besides those of every Optimizer here:
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        flavour: variant of the formula, as in AdaMod.
        bias_correction: False for the paper's formula, without correction.
    """

    rule = "amsgrad"
    _torch_decouples = True

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
        super().__init__(params, {**own(locals()), "amsgrad": True}, common)

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        # PyTorch's Adam and AdamW both have amsgrad; which of them wrote it, checkpoints of old ones do not tell.
        checkpoints.need_decay(group, "decoupled_weight_decay")
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

    Args, besides those of every Optimizer here:
        momentum: how much of the last step is kept; 0 needs no state.
        dampening: the gradient is multiplied by 1 - dampening in m.
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        nesterov: step along g + momentum m.
    """

    rule = "sgd"
    _telling = Telling(("momentum", "dampening", "nesterov"), ported=True, caution=True)

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
        super().__init__(params, own(locals()), common, decay="l2")

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        # PyTorch has maximize since 1.11; torch_optimizer's SGDW, whose decay is another, has what PyTorch had before.
        checkpoints.need_decay(group, "maximize", "weight_decouple", "caution")
        super()._complete(group, before)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.constant(o["lr"], p)
        return eta, eta


class Adagrad(Optimizer):
    """AdaGrad, Duchi, Hazan, Singer, JMLR 12; as torch.optim.Adagrad.

        sum = sum + g^2        p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps)

    Args, besides those of every Optimizer here:
        lr_decay: decay of the learning rate with the number of updates.
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        initial_accumulator_value: what sum begins with.
    """

    rule = "adagrad"
    _telling = Telling(("lr_decay",))

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
        super().__init__(params, own(locals()), common, decay="l2")

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.divided(o["lr"] / (1 + (t - 1) * o["lr_decay"]), state["sum"], o["eps"])
        return eta, eta


class RMSprop(Optimizer):
    """RMSProp, Tieleman and Hinton; as torch.optim.RMSprop.

        v = alpha v + (1 - alpha) g^2        p = p - lr g / (sqrt(v) + eps)

    Args, besides those of every Optimizer here:
        alpha: decay of the average of squared gradients.
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        momentum: of the steps.
        centered: less the square of the average gradient in v, Graves, arXiv 1308.0850.
    """

    rule = "rmsprop"
    _telling = Telling(("alpha",))

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
        super().__init__(params, own(locals()), common, decay="l2")

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

    Args, besides those of every Optimizer here:
        rho: decay of both averages.
        eps: in both roots.
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
    """

    rule = "adadelta"
    _telling = Telling(("rho",), ported=True)
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
        super().__init__(params, own(locals()), common, decay="l2")


class AdaBound(Optimizer):
    """AdaBound, Luo et al., arXiv 1902.09843: Adam clipped to bounds that close in on a learning rate of SGD, final_lr.

    final_lr follows what a scheduler makes of lr, as in the authors' package: it is scaled by lr / base_lr, where
    base_lr is the learning rate that the group was made with.

    Args, besides those of every Optimizer here:
        final_lr: where the bounds meet.
        gamma: how fast they close in: final_lr (1 -+ 1 / (gamma t)), about.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "adabound"
    _telling = Telling(("final_lr", "gamma"), foreign=("amsbound", "ams_bound"), ported=True, states=("max_exp_avg_sq",))

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
        super().__init__(params, own(locals()), common)

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

    Args, besides those of every Optimizer here:
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        window: how late the gradient in v is, and how many gradients are kept.
        spatial: v takes the largest gradient of the parameter ("max") or each element's own ("none").
    """

    rule = "adashift"
    _telling = Telling(("window",))

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
        super().__init__(params, own(locals()), common)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        v, late = rates.local_real(state["exp_avg_sq"]), t - o["window"]
        eta = rates.divided(o["lr"], v, o["eps"], 1 / (1 - o["beta2"] ** late) if late > 0 else 1.0)
        step = torch.where(v > 0, eta, torch.zeros_like(eta))  # an element whose gradients were all zero stays
        if o["spatial"] == "none":
            return eta, step if o["bound"] == "none" else eta  # the bound's average is 0 there, too
        return (step.expand(rates.local_real(p).numel()),) * 2


class NosAdam(Optimizer):
    """NosAdam, Huang, Wang, Dong, arXiv 1805.07557: Adam in whose second moment update k weighs k^-gamma.

    Args, besides those of every Optimizer here:
        beta1: decay of the average of gradients.
        gamma: how much earlier gradients weigh more; 0 is their plain mean.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        bias_correction: of the first moment; False is as the paper writes it.
    """

    rule = "nosadam"
    _telling = Telling(("gamma",), foreign=("betas", "lr_decay"), states=("B_old",))

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
        super().__init__(params, own(locals()), common)

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
    parameters.

    Args, besides those of every Optimizer here:
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
    _telling = Telling(("clip_threshold",), foreign=("eps1", "eps2"), states=("RMS",))
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
        super().__init__(params, own(locals()), common)

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
        if "eps2" in group:  # torch_optimizer has both there
            group.setdefault("eps", group.pop("eps2"))
        super()._complete(group, before)

    def _get_lr(self, group: Dict[str, Any], state: Dict[str, Any]) -> float:
        """The learning rate of the next update like the last; for transformers.optimization.AdafactorSchedule."""
        t = int(state["step"])
        lr = min(1e-6 * t if group["warmup_init"] else 1e-2, 1 / math.sqrt(t)) if group["relative_step"] else group["lr"]
        if group["scale_parameter"]:
            p = next(p for p in group["params"] if self.state.get(p) is state)
            lr *= max(group["eps"][1], float(p.detach().norm()) / math.sqrt(p.numel()))
        return float(lr)


_RECTIFIED_FROM = 6  # updates; before, pytorch_optimizer's RAdam may do nothing


class RAdam(Optimizer):
    """RAdam, Liu et al., arXiv 1908.03265: Adam whose early learning rates are rectified; as torch.optim.RAdam.

    Args, besides those of every Optimizer here:
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        decoupled_weight_decay: torch.optim's name for decay="decoupled".
    """

    rule = "radam"
    _torch_decouples = True
    _telling = Telling(ported=True)

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
        super().__init__(params, own(locals()), common, decay="decoupled" if decoupled_weight_decay else "l2")

    def _other_formula(self, group: Dict[str, Any], before: Dict[str, Any], has_states: bool) -> Optional[str]:
        found = super()._other_formula(group, before, has_states)
        if found or checkpoints.is_ours(group):
            return found
        if not checkpoints.is_ported(group):  # timm's legacy one has no foreach; GaLore and the like count in the group
            unlike = "foreach" not in group or group["step"] > 0
            return "it does not have the options of PyTorch's RAdam" if has_states and unlike else None
        if "fixed_decay" not in group:
            return "it has no fixed_decay, which pytorch_optimizer's RAdam has"
        if group["weight_decay"] and not group["weight_decouple"]:
            return "it was saved with weight_decouple=False, which pytorch_optimizer's RAdam takes for no decay"
        if int(group.get("step", 0)) < _RECTIFIED_FROM:
            return f"it was saved before update {_RECTIFIED_FROM}, until which pytorch_optimizer's RAdam has another formula"
        return None

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
