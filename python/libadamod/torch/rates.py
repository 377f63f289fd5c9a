"""The learning rates of single elements: formulas that several rules share, histograms, TensorBoard.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .._c import HIST_BINS, HIST_HIGH, HIST_LOW, Statistics

if TYPE_CHECKING:
    from .optimizer import Optimizer


Rates = Tuple[Tensor, Tensor]  # of elements, before and after a bound


class Histogram(NamedTuple):
    """How many elements have which learning rate.

    `eta` is the rate before the bound, as Adam has it. `step` is the rate after the bound, which AdaMod uses. Bin i
    counts rates from 10**edges[i] to 10**edges[i + 1]. The first and last bin also count rates below and above. Rates
    that are not finite are not counted.
    """

    edges: List[float]
    eta: List[int]
    step: List[int]
    elements: int
    bounded: float  # the share of elements whose step is below their eta
    eta_min: float
    eta_median: float  # to 5 %; to 13 % of Adadelta and Adafactor with several groups or devices
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


class _Sums:
    """Sums over the rates so far. The rates are not kept: there may be billions."""

    FINE = 4096  # bins by the first 12 bits after the sign of a float32: 16 for each power of two

    def __init__(self) -> None:
        self.counts = torch.zeros(HIST_BINS, dtype=torch.long, device="cpu")
        self.fine = torch.zeros(self.FINE, dtype=torch.long, device="cpu")
        self.least, self.most = math.inf, -math.inf

    def add(self, x: Tensor) -> None:
        if x.numel() == 0:
            return
        self.counts += _counts(x)
        self.fine += torch.bincount(x.float().view(torch.int32) >> 19, minlength=self.FINE).cpu()
        self.least, self.most = min(self.least, float(x.min())), max(self.most, float(x.max()))

    def summary(self) -> Tuple[float, float, float]:
        """The least, the median to 5 %, the most."""
        n = int(self.fine.sum())
        if n == 0:
            return math.nan, math.nan, math.nan
        middle = int(torch.searchsorted(self.fine.cumsum(0), (n + 1) // 2))
        bits = torch.tensor([middle << 19, (middle + 1) << 19], dtype=torch.int32, device="cpu")
        low, high = bits.view(torch.float32).tolist()
        return self.least, min(max((low + high) / 2, self.least), self.most), self.most


def histogram(parts: Iterable[Tuple[Tensor, Tensor]]) -> Histogram:
    """The histogram of (eta, step), one pair for each parameter, flat."""
    before, after = _Sums(), _Sums()
    bounded = elements = 0
    for eta, step in parts:
        finite = torch.isfinite(eta) & torch.isfinite(step)
        eta, step = eta[finite], step[finite]
        elements += eta.numel()
        bounded += int((step < eta).sum())
        before.add(eta)
        after.add(step)
    share = bounded / elements if elements else 0.0
    counts = before.counts.tolist(), after.counts.tolist()
    return Histogram(_edges(), *counts, elements, share, *before.summary(), *after.summary())


def merged(parts: Sequence[Statistics]) -> Histogram:
    """The histogram of what the library has counted. With several parts the median is known to 13 % only."""
    parts = [part for part in parts if part.elements]
    if not parts:
        return histogram([])
    elements = sum(part.elements for part in parts)
    counts = {which: [sum(n) for n in zip(*(getattr(part, which) for part in parts))] for which in ("eta", "step")}
    summary: List[float] = []
    for which in ("eta", "step"):
        least = min(getattr(part, f"{which}_min") for part in parts)
        most = max(getattr(part, f"{which}_max") for part in parts)
        median = getattr(parts[0], f"{which}_median") if len(parts) == 1 else _middle(counts[which], elements)
        summary += [least, min(max(median, least), most), most]
    bounded = sum(part.bounded * part.elements for part in parts) / elements
    return Histogram(_edges(), counts["eta"], counts["step"], elements, bounded, *summary)


def _middle(counts: Sequence[int], elements: int) -> float:
    """The middle of the bin that the median is in."""
    below = itertools.accumulate(counts)
    i = next(i for i, n in enumerate(below) if 2 * n >= elements)
    return float(10 ** ((_edges()[i] + _edges()[i + 1]) / 2))


def local_real(t: Tensor) -> Tensor:
    """All numbers of a tensor, this process's part of it, in one dimension; two for each complex number."""
    t = getattr(t, "_local_tensor", t)
    return (torch.view_as_real(t) if t.is_complex() else t).reshape(-1)


# ---- formulas, operation for operation as the library has them ----


def rounded(x: float, dtype: torch.dtype) -> float:
    """A number as a type has it: infinite where it is too large, which PyTorch would refuse."""
    return float(torch.tensor(x, dtype=torch.float64, device="cpu").to(dtype))


def constant(lr: float, like: Tensor) -> Tensor:
    """One rate for every element, in the type of computation."""
    x = local_real(like)
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    return torch.full_like(x, rounded(lr, dtype), dtype=dtype)


def divided(lr: float, v: Tensor, eps: float, vscale: float = 1.0) -> Tensor:
    """lr / (sqrt(v vscale) + eps), in the type of computation."""
    eta, x = constant(lr, v), local_real(v)
    return eta / ((x.to(eta.dtype) * vscale).sqrt_() + eps)


def published_lr(o: Dict[str, Any], t: int) -> float:
    """lr with both bias corrections in it."""
    return float(o["lr"] * math.sqrt(1 - o["beta2"] ** t) / (1 - o["beta1"] ** t))


def flavoured(o: Dict[str, Any], t: int) -> Tuple[float, float]:
    """lr and the factor of v in a flavour."""
    if o["flavour"] == "published":
        return published_lr(o, t), 1.0
    if o["flavour"] in ("keras", "adamd"):
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
