"""The GPU models that Primus knows, from `data/gpus.toml`: what each can do by its data sheet and what is reachable."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from primus_machine.gpus.devices import VENDORS

__all__ = ["GpuModel", "by_driver_name", "by_name", "by_pci_id", "load"]


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One model, as the whole package: a device that is a part of it has that share of the numbers."""

    name: str
    vendor: str
    architecture: str
    """AMD's gfx name, NVIDIA's compute capability."""
    pci_devices: tuple[int, ...]
    names: tuple[str, ...]
    compute_units: int
    chiplets: int
    """Compute dies with an L2 cache of their own."""
    memory_gb: float
    memory_tb_per_s: float
    sources: tuple[str, ...]
    peak_tflops: Mapping[str, float] = field(default_factory=dict)
    """Dense peak by data type (`bf16`, `fp16`, `fp8`, `fp4`), in TFLOP/s; a type without a number is missing."""
    reachable_tflops: Mapping[str, float] = field(default_factory=dict)
    """The best matrix multiplication that was published, by data type, in TFLOP/s."""
    driver_names: tuple[str, ...] = ()
    """What the driver calls exactly this model, for where the PCI id cannot be read."""
    other_models: tuple[str, ...] = ()
    """Words in a device's name that make it another model."""
    unverified: tuple[str, ...] = ()
    """Fields whose numbers nobody checked at their source."""

    @property
    def vendor_id(self) -> int:
        """The PCI vendor id."""
        return VENDORS[self.vendor]


@cache
def load() -> tuple[GpuModel, ...]:
    """All known models."""
    text = (Path(__file__).parent.parent / "data" / "gpus.toml").read_text(encoding="utf-8")
    return tuple(_model(row) for row in tomllib.loads(text)["gpu"])


def by_pci_id(vendor: int, device: int) -> GpuModel | None:
    """The model with these PCI ids, or None."""
    found = (model for model in load() if model.vendor_id == vendor and device in model.pci_devices)
    return next(found, None)


def by_name(text: str) -> GpuModel | None:
    """The model that a driver's name for the device means (`AMD Instinct MI300X OAM`), or None.

    Whole words only, so that `MI300` or `MI300XHF` is no MI300X; a name that fits two models fits none.
    """
    words = frozenset(re.split(r"[^a-z0-9]+", text.lower()))
    found = [model for model in load() if _fits(model, words)]
    return found[0] if len(found) == 1 else None


def by_driver_name(text: str) -> GpuModel | None:
    """The model that a driver calls exactly so, or None: `NVIDIA H100 96GB HBM2e` is no H100 of 80 GiB."""
    return next((model for model in load() if text in model.driver_names), None)


def _fits(model: GpuModel, words: frozenset[str]) -> bool:
    return not words.isdisjoint(_lower(model.names)) and words.isdisjoint(_lower(model.other_models))


def _lower(words: tuple[str, ...]) -> set[str]:
    return {word.lower() for word in words}


def _model(row: Mapping[str, Any]) -> GpuModel:
    return GpuModel(**{key: _frozen(value) for key, value in row.items()})


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return MappingProxyType(value) if isinstance(value, dict) else value
