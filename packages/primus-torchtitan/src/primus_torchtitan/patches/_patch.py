"""What a patch says about itself, and the conditions that patches share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

__all__ = ["Patch", "no_accelerator", "torch_before_2_14", "version_pair"]


@dataclass(frozen=True, slots=True)
class Patch:
    """One adaptation of one framework."""

    id: str
    reason: str
    needed: Callable[[], bool]
    """Whether this machine needs it."""
    apply: Callable[[], None]
    link: str = ""
    since: tuple[int, int] = (0, 3)
    before: tuple[int, int] = (0, 4)
    """The versions of TorchTitan that it was written for: `since` <= version < `before`."""

    def in_range(self) -> bool:
        """Whether the installed TorchTitan is one that the patch knows."""
        return self.since <= version_pair(version("torchtitan")) < self.before


def version_pair(text: str) -> tuple[int, int]:
    """`2.13.0+cpu` as (2, 13)."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def no_accelerator() -> bool:
    """Whether torch sees nothing but the CPU."""
    import torch

    return not torch.accelerator.is_available()


def torch_before_2_14() -> bool:
    """TorchTitan 0.3 was written against torch 2.14; the newest CPU build for Python 3.11 is 2.13."""
    import torch

    return version_pair(torch.__version__) < (2, 14)
