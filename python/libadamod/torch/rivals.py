"""The rules that came after AdaMod, or that its paper does not name, each a torch.optim.Optimizer. docs/optimizers.md has
their formulas and where implementations disagree.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Tuple

import torch
from torch import Tensor

from . import checkpoints, host, rates
from .checkpoints import Telling
from .optimizer import Optimizer, numbers
from .options import OF_OTHERS, Betas, Betas3, Bounded, Common, Params, Rate, own
from .rates import Rates
from .rounding import round_at_random

if TYPE_CHECKING:
    from typing_extensions import Unpack


__all__ = [
    "Lion",
    "NAdam",
    "Adamax",
    "AdaBelief",
    "ADOPT",
    "AdEMAMix",
    "Adan",
    "LAMB",
    "Prodigy",
    "StableAdamW",
    "ScheduleFreeAdamW",
    "ScheduleFreeSGD",
    "Sophia",
    "Muon",
    "SOAP",
    "LaProp",
]


class Lion(Optimizer):
    """Lion, Chen et al., arXiv 2302.06675: steps of one size, by the sign of an average of gradients.

        p = p - lr sign(beta1 m + (1 - beta1) g)        m = beta2 m + (1 - beta2) g

    Args, besides those of every Optimizer here:
        betas: weight of the average in the step's sign, and decay of the average.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "lion"
    _telling = Telling(caution=True)

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-4,
        betas: Betas = (0.9, 0.99),
        weight_decay: float = 0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(params, own(locals()), common)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.constant(o["lr"], p)
        return eta, eta


class NAdam(Optimizer):
    """NAdam, Dozat, ICLR workshop 2016: Adam with Nesterov's momentum; as torch.optim.NAdam.

    The product of momenta, mu_product, is computed from the number of updates. It is only in checkpoints, so that
    torch.optim.NAdam can continue from them.

    Args, besides those of every Optimizer here:
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
        momentum_decay: how fast the momentum grows to beta1.
        decoupled_weight_decay: torch.optim's name for decay="decoupled".
    """

    rule = "nadam"
    _torch_decouples = True
    _telling = Telling(("momentum_decay",), states=("mu_product",))

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
        super().__init__(params, own(locals()), common, decay="decoupled" if decoupled_weight_decay else "l2")

    def state_dict(self) -> Dict[str, Any]:
        """See Optimizer.state_dict."""
        saved = super().state_dict()
        for group, live in zip(saved["param_groups"], self.param_groups):
            o = self._options(live)
            for i in group["params"]:
                if "step" in saved["state"].get(i, {}):
                    product = self._product_of_momenta(o, int(saved["state"][i]["step"]))
                    saved["state"][i] = {**saved["state"][i], "mu_product": product}
        return saved

    @staticmethod
    def _product_of_momenta(o: Dict[str, Any], steps: int) -> Tensor:
        product, t = 1.0, 1
        while t <= steps and product > 1e-20:  # as in nadam.inc.h: 1 less it is 1 then
            product *= o["beta1"] * (1 - 0.96 ** (t * o["momentum_decay"]) / 2)
            t += 1
        return torch.tensor(product, dtype=torch.float64, device="cpu")

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        for p in group["params"]:  # or it would be saved again as it is now
            self.state.get(p, {}).pop("mu_product", None)
        super()._complete(group, before)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.divided(o["lr"], state["exp_avg_sq"], o["eps"], 1 / (1 - o["beta2"] ** t))
        return eta, eta


class Adamax(Optimizer):
    """Adamax, Kingma and Ba, arXiv 1412.6980: Adam with the largest gradient in place of the root mean square; as
    torch.optim.Adamax.

    Args, besides those of every Optimizer here:
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
        super().__init__(params, own(locals()), common, decay="l2")

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr = rates.constant(o["lr"] / (1 - o["beta1"] ** t), p)
        eta = lr / rates.local_real(state["exp_inf"]).to(lr.dtype)
        return eta, eta


class AdaBelief(Optimizer):
    """AdaBelief, Zhuang et al., arXiv 2010.07468: Adam that divides by how far gradients were from their average; as in
    the authors' package.

    Args, besides those of every Optimizer here:
        eps: added to the divisor, and to the average of squares in every update.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        rectify: rectify early learning rates, as RAdam does.
    """

    rule = "adabelief"
    _telling = Telling(foreign=("amsgrad", "buffer"))

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
        super().__init__(params, own(locals()), common)

    def _other_formula(self, group: Dict[str, Any], before: Dict[str, Any], has_states: bool) -> Optional[str]:
        found = super()._other_formula(group, before, has_states)
        if found or checkpoints.is_ours(group) or not has_states:
            return found
        if group.get("amsgrad"):
            return "it was saved with amsgrad=True, a formula that adabelief does not have here"
        return None if "buffer" in group else "it has no buffer, which the authors' has"

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        for key in ("amsgrad", "buffer"):  # the authors' package; buffer has what it computes once for all parameters
            group.pop(key, None)
        super()._complete(group, before)

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

    Args, besides those of every Optimizer here:
        eps: the smallest divisor.
        clip: whether a normalized gradient is clipped to (t - 1)^0.25.
        weight_decay: added to the gradient, times the parameter, unless decay says otherwise.
    """

    rule = "adopt"
    _telling = Telling(("clip",))
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
        super().__init__(params, own(locals()), common, decay="l2")

    def _other_formula(self, group: Dict[str, Any], before: Dict[str, Any], has_states: bool) -> Optional[str]:
        if "decouple" in group:  # the authors' package, which does not save whether it clips
            group.setdefault("clip", before["clip"])
        return super()._other_formula(group, before, has_states)


class AdEMAMix(Optimizer):
    """AdEMAMix, Pagliardini, Ablin, Grangier, arXiv 2409.03137: Adam with a second, slow average of gradients; as in the
    authors' package.

    Args, besides those of every Optimizer here:
        betas: decay of the fast average of gradients, of the squares, and of the slow average.
        alpha: weight of the slow average.
        beta3_warmup: updates until the slow average's decay has grown from the fast one's; None: none.
        alpha_warmup: updates until alpha has grown from 0; None: none.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "ademamix"
    _telling = Telling(("alpha",))
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
        super().__init__(params, own(locals()), common)

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

    Args, besides those of every Optimizer here:
        betas: decay of the averages of gradients, of their changes, and of squares.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "adan"
    _telling = Telling(foreign=("no_prox",))
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
        super().__init__(params, own(locals()), common)

    def _other_formula(self, group: Dict[str, Any], before: Dict[str, Any], has_states: bool) -> Optional[str]:
        if not group.get("no_prox", True) and group["weight_decay"]:
            return "it was saved with weight_decay and without no_prox, a formula that adan does not have here"
        return super()._other_formula(group, before, has_states)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.divided(o["lr"], state["exp_avg_sq"], o["eps"], 1 / (1 - o["beta2"] ** t))
        return eta, eta


class LAMB(Optimizer):
    """LAMB, You et al., arXiv 1904.00962: Adam whose step on a parameter has the length of lr times the parameter.

    As in the paper, with the identity for its phi. It looks at whole parameters.

    Args, besides those of every Optimizer here:
        weight_decay: a part of the step whose length is set, unless decay says otherwise.
        bias_correction: whether both averages are corrected.
    """

    rule = "lamb"
    _telling = Telling(("trust_ratio",))
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
        super().__init__(params, {**own(locals()), "trust_ratio": True}, common)


# Keys of prodigyopt's groups that are no options.
_OF_PRODIGYOPT = ("d", "d_max", "d_numerator", "d_denom", "d_hat", "k")


class Prodigy(Optimizer):
    """Prodigy, Mishchenko and Defazio, arXiv 2306.06101: Adam that estimates its learning rate; as in the authors' package.

    The estimate d is one number for all parameters: of all groups, devices and, under ZeroRedundancyOptimizer, processes. It
    looks at whole parameters.

    Args, besides those of every Optimizer here:
        lr: factor of d in the learning rate. The authors advise 1, with a schedule that decays it.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        d0: initial d, rather too small than too large.
        d_coef: factor of the estimate d; tune this rather than lr.
        growth_rate: d grows by at most this factor in a step.
        beta_d: decay of the sums that d is estimated from, the authors' beta3; 0 is the root of betas[1].
        use_bias_correction: correct averages as Adam does.
        safeguard_warmup: leave lr out of the denominator of d's estimate, for long warm-ups.
    """

    rule = "prodigy"
    _telling = Telling(("d_coef",), foreign=("fsdp_in_use", "slice_p", *_OF_PRODIGYOPT))
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
        super().__init__(params, own(locals()), common)

    def _other_formula(self, group: Dict[str, Any], before: Dict[str, Any], has_states: bool) -> Optional[str]:
        if "fsdp_in_use" in group:
            if group.get("slice_p", 1) != 1:
                return f"it was saved with slice_p={group['slice_p']}, a formula that prodigy does not have here"
            group["beta_d"] = group.pop("beta3") or 0
        return super()._other_formula(group, before, has_states)

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        """prodigyopt has d and what it is estimated from in the group, and flattens p0 and s."""
        if group.pop("fsdp_in_use", None) is not None:
            group.pop("slice_p", None)
            of_group = {key: group.pop(key) for key in _OF_PRODIGYOPT if key in group}
            for p in group["params"]:
                state = self.state.get(p)
                if state:
                    state["step"] = of_group["k"]
                    for key in ("d", "d_max", "d_numerator"):
                        state[key] = torch.tensor(float(of_group[key]), dtype=torch.float64, device="cpu")
                    for key in ("p0", "s"):  # p0 is one number where the parameter was 0
                        state[key] = state[key].expand(p.numel()).reshape(p.shape).clone()
        super()._complete(group, before)


class StableAdamW(Optimizer):
    """StableAdamW, Wortsman et al., arXiv 2304.13013: AdamW that steps less where a parameter's gradients are larger than
    they were; as in optimi. It looks at whole parameters.

    Args, besides those of every Optimizer here:
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "stableadamw"
    _telling = Telling(("update_clipping",))
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
        super().__init__(params, {**own(locals()), "update_clipping": True}, common)


# Keys of schedulefree's and pytorch_optimizer's groups that are no options.
_OF_SCHEDULEFREE = ("k", "weight_sum", "lr_max", "scheduled_lr")


def _has_weights_of_a_constant_lr(group: Dict[str, Any]) -> bool:
    """Whether our average continues theirs exactly, by the sum of weights. AdamWScheduleFreePaper, which has the same
    options and states, has another sum."""
    steps = int(group.get("k", group.get("step", 0)))
    if "weight_sum" not in group or steps < 1:
        return True
    t = torch.arange(1, steps + 1, dtype=torch.float64, device="cpu")
    rate = float(group["lr"]) * (t / max(group["warmup_steps"], 1)).clamp_max(1)
    expected = float((t ** group["r"] * rate ** group["weight_lr_power"]).sum())
    return math.isclose(group["weight_sum"], expected, rel_tol=1e-6)


class _ScheduleFree(Optimizer):
    """The base of both: weights to train, and weights to evaluate with. As in the authors' package, train_mode of a
    group tells which of them its parameters are, so that copies and checkpoints have it."""

    # The weights that eval() replaced, and the parameter's count of writes after that. Not in copies and checkpoints.
    _kept: Dict[Tensor, Tuple[Tensor, int]] = {}

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self.param_groups[-1].setdefault("train_mode", all(g["train_mode"] for g in self.param_groups[:-1]))

    @torch.no_grad()
    def eval(self) -> None:
        """Puts the weights to evaluate with in the parameters' place. Call train() before the next step."""
        kept = {}
        self._wait()
        for beta1, p in self._to_switch(True):
            state = host.beside(p, self.state[p])
            y = state.get("master", p)
            before = p.detach().clone()
            p.copy_(y + (1 - 1 / beta1) * (state["z"].to(y.dtype) - y))
            kept[p] = before, p._version
        self._kept = {**self._kept, **kept}
        self._set_mode(False)

    @torch.no_grad()
    def train(self) -> None:
        """Puts back the weights to train, bit for bit. Computes them if they came with a copy or a checkpoint made
        after eval(), or have been changed since."""
        self._wait()
        for beta1, p in self._to_switch(False):
            state = host.beside(p, self.state[p])
            y, version = self._kept.get(p, (state.get("master"), p._version))
            if y is None or version != p._version:
                y = p + (1 - beta1) * (state["z"].to(p.dtype) - p)
            p.copy_(y)
        self._kept = {}
        self._set_mode(True)

    def _to_switch(self, train_mode: bool) -> Iterator[Tuple[float, Tensor]]:
        """The parameters of groups in this mode that have both weights, each with its beta1."""
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

    def _other_formula(self, group: Dict[str, Any], before: Dict[str, Any], has_states: bool) -> Optional[str]:
        found = super()._other_formula(group, before, has_states)
        if not found and has_states and not _has_weights_of_a_constant_lr(group):
            return f"its weight_sum, {group['weight_sum']:g}, is not that of a constant lr: lr changed, or it is another formula"
        return found

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        group["train_mode"] = bool(group.get("train_mode", True))
        if "k" in group:  # the authors' count of updates
            group["step"] = group["k"]
        for key in _OF_SCHEDULEFREE:  # sums that would not go on with ours
            group.pop(key, None)
        super()._complete(group, before)


class ScheduleFreeAdamW(_ScheduleFree):
    """Schedule-Free AdamW, Defazio et al., arXiv 2405.15682: an average of the path in place of a schedule.

    Gradients are to be taken at the parameters as they are. Call eval() before an evaluation and train() after it.

    Args, besides those of every Optimizer here:
        betas: weight of the average in the parameters, and decay of the average of squared gradients.
        warmup_steps: updates in which lr grows to its value.
        r: update t weighs t^r in the average.
        weight_lr_power: in the warm-up, an update weighs its learning rate to this power.
        weight_decay: of the parameters, unless decay says otherwise.
    """

    rule = "schedulefree_adamw"
    _telling = Telling(("warmup_steps",), foreign=_OF_SCHEDULEFREE, states=("x", "y"))

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
        super().__init__(params, own(locals()), common)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr = o["lr"] * min(1, t / o["warmup_steps"] if o["warmup_steps"] else 1)
        eta = rates.divided(lr, state["exp_avg_sq"], o["eps"], 1 / (1 - o["beta2"] ** t))
        return eta, eta


class ScheduleFreeSGD(_ScheduleFree):
    """Schedule-Free SGD, Defazio et al., arXiv 2405.15682; see ScheduleFreeAdamW.

    Args, besides those of every Optimizer here:
        momentum: weight of the average in the parameters.
        warmup_steps: updates in which lr grows to its value.
        r: update t weighs t^r in the average.
        weight_lr_power: in the warm-up, an update weighs its learning rate to this power.
        weight_decay: of the parameters, unless decay says otherwise.
    """

    rule = "schedulefree_sgd"
    _telling = Telling(("warmup_steps",), foreign=("eps", *_OF_SCHEDULEFREE), states=("x", "y"))
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
        super().__init__(params, own(locals()), common)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr = o["lr"] * min(1, t / o["warmup_steps"] if o["warmup_steps"] else 1)
        eta = rates.constant(lr, p)
        return eta, eta


class Sophia(Optimizer):
    """Sophia, Liu et al., arXiv 2305.14342: divides by an estimate of the Hessian's diagonal, and clips; as the authors'
    SophiaG. Call update_hessian() every few steps, after a backward pass of which the squared gradients are such an
    estimate: with labels that were drawn from the model's own answers.

    Args, besides those of every Optimizer here:
        betas: decay of the average of gradients, and of the estimates.
        rho: the larger, the fewer elements are clipped.
        bs: number of samples or tokens that the loss is a mean of.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "sophia"
    _telling = Telling(("rho",))
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
        super().__init__(params, own(locals()), common)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        beta1, beta2 = numbers("betas", group["betas"], 2)
        if not 0 <= beta2 < 1:
            raise ValueError(f"the second of betas is {beta2:g}, expected 0 <= it < 1")
        return super()._options({**group, "betas": beta1})

    @torch.no_grad()
    def update_hessian(self) -> None:
        """Takes the squares of the gradients there are into the estimate; before a parameter's first step, makes its states.
        After a GradScaler's scale(), call its unscale_() first."""
        self._make_states()
        self._wait()
        place = -1
        for group in self.param_groups:
            beta2 = group["betas"][1]
            for p in group["params"]:
                place += 1
                g = p.grad
                if g is None:
                    continue
                hessian = self.state[p]["hessian"]
                if g.layout is not torch.strided:
                    raise RuntimeError(f"update_hessian: a gradient has layout {g.layout}, expected a dense one")
                if g.device != hessian.device:  # offload
                    g = g.to(hessian.device)
                if g.is_complex():  # as pairs of reals, as in a step
                    hessian, g = torch.view_as_real(hessian), torch.view_as_real(g.resolve_conj())
                if hessian.dtype is not torch.bfloat16:
                    hessian.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                    continue
                mixed = beta2 * hessian.float() + (1 - beta2) * g.float() ** 2  # its change is less than bfloat16 can tell
                round_at_random(mixed, group["seed"], place, int(self.state[p]["step"]))
                hessian.copy_(mixed)

    def _make_states(self) -> None:
        """The states of parameters that have a gradient and had no step yet."""
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        if all("hessian" in self.state.get(p, {}) for p in params):
            return
        for arrays in self._all_arrays():
            arrays.prepare(self.state)
            arrays.leave()

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        lr = rates.constant(o["lr"], p)
        eta = lr / (o["rho"] * o["bs"] * rates.local_real(state["hessian"]).to(lr.dtype) + 1e-15)
        return eta, eta

    def _limits(self, state: Dict[str, Any], unbounded: Tensor) -> Tensor:
        limits = super()._limits(state, unbounded)
        return torch.where(rates.local_real(state["hessian"]) == 0, unbounded, limits)  # it begins with the first estimate


class Muon(Optimizer):
    """Muon, Jordan et al., kellerjordan.github.io/posts/muon: the momentum of a matrix made nearly orthogonal; as
    torch.optim.Muon, whose Newton-Schulz iterations are in bfloat16; here they are on GPUs, and on CPUs in float32 or
    float64.

    A parameter of two or more dimensions is a matrix of its first dimension by all others. All others, and groups with
    use_muon=False (embeddings, output layers), take AdamW's step. It looks at whole parameters.

    As in the author's MuonWithAuxAdam, lr, betas and eps of a group with use_muon=False are AdamW's, where the group has
    them; adamw_lr, adamw_betas and adamw_eps are for all else that AdamW updates.

    Args, besides those of every Optimizer here:
        lr: learning rate of matrices.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        momentum: decay of the average of gradients.
        nesterov: Nesterov's momentum.
        ns_coefficients: a, b and c of X = a X + (b A + c A^2) X, with A = X X^T.
        eps: the smallest norm that a matrix is divided by.
        ns_steps: number of these iterations.
        adjust_lr_fn: "original" (None), "match_rms_adamw" or "spectral_unclamped".
        use_muon: False: AdamW updates matrices too.
        adamw_lr: learning rate of AdamW; a scheduler changes it in proportion to lr. None: lr.
        adamw_betas: betas of AdamW. None: betas of the group.
        adamw_eps: eps of AdamW. None: eps.
    """

    rule = "muon"
    _telling = Telling(("ns_steps",), foreign=("betas",))
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
        adamw_lr: Optional[float] = 3e-4,
        adamw_betas: Optional[Betas] = (0.9, 0.95),
        adamw_eps: Optional[float] = 1e-10,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(params, own(locals()), common)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """See Optimizer.add_param_group. lr, betas and eps in a group with use_muon=False are AdamW's."""
        if not param_group.get("use_muon", self.defaults["use_muon"]):
            own = {f"adamw_{name}": None for name in _ADAMW if name in param_group}
            param_group = {**own, **param_group}
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group.setdefault("base_lr", float(group["lr"]))

    def _other_formula(self, group: Dict[str, Any], before: Dict[str, Any], has_states: bool) -> Optional[str]:
        if not _is_the_authors(group):
            return super()._other_formula(group, before, has_states)
        group.setdefault("use_muon", True)
        for p in group["params"]:
            if group["use_muon"] and p.dim() > 2 and _factor(*p.shape[-2:]) != _factor(len(p), p[0].numel()):
                return f"its factor of lr is that of the last two dimensions, and {tuple(p.shape)} has another here"
        return None

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        if _is_the_authors(group):
            group.update({f"adamw_{name}": None for name in (() if group["use_muon"] else _ADAMW)})
            own = ("nesterov", "ns_coefficients", "ns_steps", "adjust_lr_fn")
            formula = {name: inspect.signature(Muon).parameters[name].default for name in own}
            group.update(formula, decay="decoupled", maximize=False)
        group.setdefault("base_lr", float(group.get("initial_lr", group["lr"])))  # torch.optim's has none
        super()._complete(group, before)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        follows = group["adamw_lr"] is not None and group.get("base_lr", 0) > 0  # none yet while a new group is checked
        given = {f"adamw_{name}": group.get(name) for name in _ADAMW if group[f"adamw_{name}"] is None}
        values = super()._options({**group, **given, "adjust_lr_fn": group["adjust_lr_fn"] or "original"})
        if follows:
            values["adamw_lr"] *= values["lr"] / group["base_lr"]
        return values


# Options of a group that are AdamW's with use_muon=False, and have "adamw_" before their names otherwise.
_ADAMW = ("lr", "betas", "eps")


def _is_the_authors(group: Dict[str, Any]) -> bool:
    """Whether a saved group is of MuonWithAuxAdam, or of the Muon without it, which has these options and no others."""
    options = set(group) - OF_OTHERS
    return "ns_steps" not in group and ("use_muon" in group or options == {"lr", "momentum", "weight_decay"})


def _factor(rows: int, columns: int) -> float:
    return max(1.0, rows / columns)


class SOAP(Optimizer):
    """SOAP, Vyas et al., arXiv 2409.11321: Adam in the eigenbasis of Shampoo's averages, for matrices; as the authors'.

    A parameter of two or more dimensions is a matrix of its first dimension by all others. All others take Adam's step. The
    first step moves nothing. It looks at whole parameters. On GPUs its bits are those of CPUs.

    Args, besides those of every Optimizer here:
        shampoo_beta: decay of the averages that define the eigenbasis; None: betas[1].
        weight_decay: decoupled from the gradient, unless decay says otherwise.
        precondition_frequency: steps from one change of the basis to the next.
        max_precondition_dim: the longest side of a matrix that has a basis of its own.
        correct_bias: whether both averages are corrected.
    """

    rule = "soap"
    _telling = Telling(
        ("precondition_frequency",),
        foreign=("max_precond_dim",),
        states=("GG", "Q", "precondition_frequency", "shampoo_beta"),
    )
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
        super().__init__(params, own(locals()), common)

    def _options(self, group: Dict[str, Any]) -> Dict[str, Any]:
        beta = group["shampoo_beta"]
        return super()._options({**group, "shampoo_beta": -1 if beta is None else beta})

    def _other_formula(self, group: Dict[str, Any], before: Dict[str, Any], has_states: bool) -> Optional[str]:
        found = super()._other_formula(group, before, has_states)
        if found or not has_states or checkpoints.is_ours(group):
            return found
        if "max_precond_dim" not in group:
            return "it has no max_precond_dim, which the authors' has"
        more = next((p for p in group["params"] if p.dim() > 2 and self.state.get(p)), None)
        return None if more is None else f"the authors' has a basis for each dimension of {tuple(more.shape)}; here it is a matrix"

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        """The authors' count the first update, which moves nothing, as 0, and keep their matrices in lists."""
        if "max_precond_dim" in group:
            group["max_precondition_dim"] = group.pop("max_precond_dim")
            group["shampoo_beta"] = None if group["shampoo_beta"] < 0 else group["shampoo_beta"]
            for key in ("merge_dims", "precondition_1d", "normalize_grads"):
                group.pop(key, None)
            for p in group["params"]:
                if self.state.get(p):
                    self.state[p] = _soaps_state(p, self.state[p])
        super()._complete(group, before)


def _soaps_state(p: Tensor, theirs: Dict[str, Any]) -> Dict[str, Any]:
    """The authors' state as it is here, where exp_avg is not in the eigenbasis."""
    ours = {"step": theirs["step"] + 1, "exp_avg": theirs["exp_avg"], "exp_avg_sq": theirs["exp_avg_sq"]}
    for i in range(2) if p.dim() == 2 else ():
        basis = theirs["Q"][i]
        ours[f"GG_{i}"], ours[f"Q_{i}"] = (
            theirs[name][i].detach().clone() if len(basis) else p.new_empty((0, 0)) for name in ("GG", "Q")
        )
        turned = ours["exp_avg"].transpose(0, i)
        ours["exp_avg"] = (basis.to(turned) @ turned if len(basis) else turned).transpose(0, i)
    return ours


class LaProp(Optimizer):
    """LaProp, Ziyin, Wang, Ueda, arXiv 2002.04839: momentum of gradients that were divided by their root mean square first.

        v = beta2 v + (1 - beta2) g^2
        m = beta1 m + (1 - beta1) lr g / (sqrt(v / (1 - beta2^t)) + eps)        p = p - m / (1 - beta1^t)

    Args, besides those of every Optimizer here:
        betas: decay of the average of steps, and of the average of squared gradients.
        weight_decay: decoupled from the gradient, unless decay says otherwise.
    """

    rule = "laprop"
    _telling = Telling(states=("exp_avg", "exp_avg_lr_1", "exp_avg_lr_2"))

    def __init__(
        self,
        params: Params,
        lr: Rate = 4e-4,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-15,
        weight_decay: float = 0,
        **common: Unpack[Bounded],
    ) -> None:
        super().__init__(params, own(locals()), common)

    def _complete(self, group: Dict[str, Any], before: Dict[str, Any]) -> None:
        """The authors' and timm's call the average of steps exp_avg. They correct it by an average of learning rates."""
        for p in group["params"]:
            state = self.state.get(p, {})
            if "exp_avg_lr_1" not in state:
                continue
            if group["weight_decay"]:
                raise ValueError("it was saved with weight_decay, which acts after the step there, and before it here")
            constant = float(group["lr"]) * (1 - group["betas"][0] ** int(state["step"]))
            if not math.isclose(float(state.pop("exp_avg_lr_1")), constant, rel_tol=1e-6):
                raise ValueError("it was saved after lr had changed, which its averages have in them, and those here do not")
            state.pop("exp_avg_lr_2", None)
            state["exp_avg_step"] = state.pop("exp_avg")
        super()._complete(group, before)

    def _rates(self, o: Dict[str, Any], p: Tensor, state: Dict[str, Any], t: int) -> Rates:
        eta = rates.divided(o["lr"], state["exp_avg_sq"], o["eps"], 1 / (1 - o["beta2"] ** t))
        return eta, eta
