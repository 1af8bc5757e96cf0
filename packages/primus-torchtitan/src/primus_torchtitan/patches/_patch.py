"""The conditions that patches share, and the versions that they are for."""

from __future__ import annotations

from functools import partial

from primus_train.kit import versions
from primus_train.kit.patches import Patch

__all__ = ["no_accelerator", "patch", "torch_before_2_14"]


patch = partial(Patch, since=(0, 3), before=(0, 4))
"""One for all versions of TorchTitan that are supported, unless it says otherwise."""


def no_accelerator() -> bool:
    """Whether torch sees nothing but the CPU."""
    import torch

    return not torch.accelerator.is_available()


def torch_before_2_14() -> bool:
    """TorchTitan 0.3 was written against torch 2.14; the newest CPU build for Python 3.11 is 2.13."""
    import torch

    return versions.release(torch.__version__) < (2, 14)
