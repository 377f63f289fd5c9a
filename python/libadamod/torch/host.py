"""States in host memory, of parameters on a GPU (offload=True).

They are in page-locked memory, where the kernels reach them over the bus by the addresses that they have on the host. So
a step works on them as on any others. The host must wait for the GPU before it reads or writes them itself.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Sequence

import torch
from torch import Tensor


def is_elsewhere(p: Tensor) -> bool:
    """Whether the parameter is not in host memory."""
    return p.device.type == "cuda"


def empty(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype, device="cpu", pin_memory=True)


def is_reached(t: Tensor) -> bool:
    """Whether a GPU reaches a tensor that is in host memory."""
    return t.device.type == "cpu" and bool(t.is_pinned())


def wait(params: Iterable[Tensor]) -> None:
    """Waits for the steps that were enqueued on the current streams of the parameters' GPUs."""
    for device in {p.device for p in params if is_elsewhere(p)}:
        torch.cuda.current_stream(device).synchronize()


def beside(p: Tensor, state: Dict[str, Any]) -> Dict[str, Any]:
    """Copies the tensors of a parameter's state to the parameter's device; counts stay."""
    local = getattr(p, "_local_tensor", p)
    return {
        name: t.to(local.device) if name != "step" and type(t) is Tensor and t.device != local.device else t
        for name, t in state.items()
    }
