"""The device under test: what it multiplies, and its share of its model's numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from primus_bench.measure.device import Device, fp8_format, probe
from primus_core.errors import MachineError
from primus_machine.gpus import models
from primus_machine.host import HostRoot

pytestmark = pytest.mark.torch


def device(model: str, compute_units: int) -> Device:
    """A GPU of that model with so many compute units."""
    return Device("cuda", model, "", compute_units, 2**29, 2**34, None, models.by_name(model))


def test_gfx942_multiplies_fnuz_and_others_the_open_format() -> None:
    assert fp8_format(True, "gfx942", (9, 4)) == "float8_e4m3fnuz"
    assert fp8_format(True, "gfx950", (9, 5)) == "float8_e4m3fn"
    assert fp8_format(False, "sm_90", (9, 0)) == "float8_e4m3fn"


def test_older_gpus_do_not_multiply_fp8() -> None:
    assert fp8_format(True, "gfx90a", (9, 0)) is None
    assert fp8_format(False, "sm_80", (8, 0)) is None


@pytest.mark.parametrize(
    ("model", "units", "peak", "chiplets"),
    [("MI300X", 304, 1307, 8), ("MI300X", 38, 1307 / 8, 1), ("MI250X", 110, 383 / 2, 1), ("H200", 132, 989, 1)],
)
def test_a_part_of_a_package_has_its_share_of_the_peak(model: str, units: int, peak: float, chiplets: int) -> None:
    """A CPX partition, or one of MI250X's two dies."""
    found = device(model, units)
    assert found.model is not None
    assert found.limit(found.model.peak_tflops, "bf16") == pytest.approx(peak)
    assert found.chiplets == chiplets


def test_a_rate_that_the_table_lacks_is_unknown() -> None:
    found = device("MI210", 104)
    assert found.model is not None
    assert found.limit(found.model.peak_tflops, "fp8") is None


def test_on_a_cpu_the_buffers_exceed_the_last_level_cache(tmp_path: Path) -> None:
    unknown = probe("cpu", HostRoot(str(tmp_path), {}))
    assert unknown.rotation_bytes >= 64 * 2**20
    assert unknown.memory_bytes > unknown.rotation_bytes


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU that torch can use")
def test_without_a_gpu_the_error_says_why_and_what_to_do() -> None:
    with pytest.raises(MachineError, match="torch finds no GPU") as caught:
        probe("cuda")
    assert caught.value.why
    assert "--device cpu" in caught.value.fix
