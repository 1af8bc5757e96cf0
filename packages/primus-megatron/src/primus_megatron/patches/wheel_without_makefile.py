"""Data-set helpers: the wheel has them compiled, and no Makefile, with which Megatron would compile them again."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from primus_megatron.patches._patch import patch

__all__ = ["PATCH"]


def _needed() -> bool:
    found = find_spec("megatron.core.datasets")
    folders = found.submodule_search_locations if found else None
    return bool(folders) and not any(Path(folder, "Makefile").exists() for folder in folders or ())


def _apply() -> None:
    from megatron.core.datasets import utils

    utils.compile_helpers = lambda: None


PATCH = patch(
    id="wheel-without-makefile",
    reason="pretrain() runs make in megatron/core/datasets and exits when that fails, which it does in a wheel",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/utils.py",
    needed=_needed,
    apply=_apply,
)
