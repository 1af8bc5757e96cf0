"""The GPU table: each row is complete, and a device finds its own row and no other's."""

from __future__ import annotations

import dataclasses

import pytest

from primus_machine.gpus import devices, models
from primus_machine.gpus.models import GpuModel


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("AMD Instinct MI250X / MI250", "MI250X"),
        ("AMD Instinct MI355X", "MI355X"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H200 MIG 1g.18gb", "H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("nvidia b200", "B200"),
    ],
)
def test_a_drivers_name_for_a_device_finds_its_model(name: str, model: str) -> None:
    found = models.by_name(name)
    assert found is not None
    assert found.name == model


@pytest.mark.parametrize(
    "name",
    ["AMD Instinct MI300", "AMD Instinct MI300A", "AMD Instinct MI300XHF", "AMD Instinct MI300X HF",
     "AMD Radeon Graphics", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA GH200 480GB",
     "NVIDIA H20", "NVIDIA H100 96GB HBM2e", "H100 or B200", ""],
)  # fmt: skip
def test_a_name_that_is_not_quite_a_models_finds_none(name: str) -> None:
    """A wrong yardstick is worse than none."""
    assert models.by_name(name) is None


def test_a_pci_id_finds_its_model_under_its_own_vendor_only() -> None:
    found = models.by_pci_id(0x1002, 0x74A1)
    assert found is not None
    assert found.name == "MI300X"
    assert models.by_pci_id(0x10DE, 0x74A1) is None
    assert models.by_pci_id(0x1002, 0xFFFF) is None


def test_no_two_models_share_a_pci_id_or_a_name() -> None:
    ids = [(model.vendor_id, device) for model in models.load() for device in model.pci_devices]
    names = [name.lower() for model in models.load() for name in model.names]
    assert len(set(ids)) == len(ids)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("model", models.load(), ids=lambda model: model.name)
def test_every_row_has_sources_and_believable_numbers(model: GpuModel) -> None:
    assert model.sources
    assert model.vendor in devices.VENDORS
    assert model.peak_tflops or model.reachable_tflops
    assert min(model.compute_units, model.chiplets, model.memory_gb, model.memory_tb_per_s) > 0
    assert set(model.unverified) <= {field.name for field in dataclasses.fields(model)}
    for dtype, reachable in model.reachable_tflops.items():
        assert 0 < reachable <= model.peak_tflops.get(dtype, reachable)
