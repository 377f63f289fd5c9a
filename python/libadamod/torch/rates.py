"""The learning rates of single elements: formulas that several rules share, histograms, TensorBoard.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .._c import HIST_BINS, HIST_HIGH, HIST_LOW

if TYPE_CHECKING:
    from .optimizer import Optimizer


class Histogram(NamedTuple):
    """How many elements have which learning rate.

    `eta` is before the bound, as Adam would have it, and `step` after it: what AdaMod gives. Bin i counts rates from
    10**edges[i] to 10**edges[i + 1]; those below and above fall into the first and last bin, those that are not finite
    into none.
    """

    edges: List[float]
    eta: List[int]
    step: List[int]
    elements: int
    bounded: float  # the share of elements whose step is below their eta
    eta_min: float
    eta_median: float
    eta_max: float
    step_min: float
    step_median: float
    step_max: float


def _edges() -> List[float]:
    width = (HIST_HIGH - HIST_LOW) / HIST_BINS
    return [HIST_LOW + i * width for i in range(HIST_BINS + 1)]


def _counts(x: Tensor) -> Tensor:
    """Elements in each bin, with float32 edges as the library has them."""
    inner = torch.tensor([10.0**edge for edge in _edges()[1:-1]], dtype=torch.float32, device=x.device)
    return torch.bincount(torch.bucketize(x.float(), inner, right=True), minlength=HIST_BINS).cpu()


def histogram(parts: Sequence[Tuple[Tensor, Tensor]]) -> Histogram:
    """Of (eta, step), one pair for each parameter; all in one place."""
    counts = [torch.zeros(HIST_BINS, dtype=torch.long) for _ in range(2)]
    kept: Tuple[List[Tensor], List[Tensor]] = ([], [])
    bounded = 0
    for eta, step in parts:
        eta, step = (local_real(t) for t in torch.broadcast_tensors(eta, step))
        finite = torch.isfinite(eta) & torch.isfinite(step)
        eta, step = eta[finite], step[finite]
        bounded += int((step < eta).sum())
        for i, x in enumerate((eta, step)):
            counts[i] += _counts(x)
            kept[i].append(x.double().cpu())
    both = [torch.cat(k) if k else torch.empty(0, dtype=torch.float64) for k in kept]
    n = both[0].numel()
    summary = [[float(f(x)) for f in (torch.min, torch.median, torch.max)] if n else [math.nan] * 3 for x in both]
    return Histogram(
        _edges(), counts[0].tolist(), counts[1].tolist(), n, bounded / n if n else 0.0, *summary[0], *summary[1]
    )


def local_real(t: Tensor) -> Tensor:
    """All numbers of a tensor, this process's part of it, in one dimension; two for each complex number."""
    t = getattr(t, "_local_tensor", t)
    return (torch.view_as_real(t) if t.is_complex() else t).reshape(-1)


# ---- formulas, operation for operation as the library has them ----


def divided(lr: float, v: Tensor, eps: float, vscale: float = 1.0) -> Tensor:
    """lr / (sqrt(v vscale) + eps), in v's type."""
    x = local_real(v)
    if x.dtype is torch.bfloat16:
        x = x.float()
    return torch.full_like(x, lr) / ((x * vscale).sqrt_() + eps)


def published_lr(o: Dict[str, Any], t: int) -> float:
    """lr with both bias corrections in it."""
    return o["lr"] * math.sqrt(1 - o["beta2"] ** t) / (1 - o["beta1"] ** t)


def flavoured(o: Dict[str, Any], t: int) -> Tuple[float, float]:
    """lr and the factor of v in a flavour."""
    if o["flavour"] == "published":
        return published_lr(o, t), 1.0
    if o["flavour"] == "keras":
        return o["lr"] * math.sqrt(1 - o["beta2"] ** t), 1.0
    return o["lr"], 1 / (1 - o["beta2"] ** t)


# ---- TensorBoard ----


def log_learning_rates(
    writer: Any, optimizer: "Optimizer", step: int, tag: str = "learning_rates", group: Optional[int] = None
) -> Histogram:
    """Writes the learning rates of the last update to a torch.utils.tensorboard.SummaryWriter: histograms of their
    log10 before and after the bound, the medians, and the share of elements that are bounded."""
    h = optimizer.lr_histogram(group)
    for name, counts in (("eta", h.eta), ("step", h.step)):
        if h.elements == 0:
            continue
        centres = [(low + high) / 2 for low, high in zip(h.edges, h.edges[1:])]
        used = [i for i, n in enumerate(counts) if n]
        writer.add_histogram_raw(
            f"{tag}/log10_{name}",
            min=h.edges[used[0]],
            max=h.edges[used[-1] + 1],
            num=h.elements,
            sum=sum(n * x for n, x in zip(counts, centres)),
            sum_squares=sum(n * x * x for n, x in zip(counts, centres)),
            bucket_limits=h.edges[1:],
            bucket_counts=counts,
            global_step=step,
        )
    for name, value in (("eta_median", h.eta_median), ("step_median", h.step_median), ("bounded", h.bounded)):
        writer.add_scalar(f"{tag}/{name}", value, global_step=step)
    return h
