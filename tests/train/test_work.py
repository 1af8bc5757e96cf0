"""TFLOP/s and MFU follow from the tokens, the work of each, and the peak of the device."""

from __future__ import annotations

import pytest

from primus_core.journal.metrics import Metrics, log_line
from primus_core.testing import facts_of
from primus_train.kit.work import Work, planned
from primus_train.models import catalogue
from primus_train.models.arithmetic import flops_per_token

LLAMA = catalogue.load()["llama3.1_8B"].facts


def test_a_plan_knows_the_models_work_and_the_devices_peak() -> None:
    work, notes = planned(LLAMA, 8192, facts_of(gpus=8).gpus, "bf16")
    assert (work.flops_per_token, work.peak_tflops, notes) == (sum(flops_per_token(LLAMA, 8192).values()), 1307, [])


def test_a_part_of_a_gpu_has_its_share_of_the_peak() -> None:
    (whole,) = facts_of(gpus=1).gpus
    assert planned(LLAMA, 8192, [whole._replace(partitions=8, mode="CPX/NPS1")], "fp8")[0].peak_tflops == 2610 / 8


@pytest.mark.parametrize(("model", "dtype"), [("MI300X", "fp32"), ("", "bf16")])
def test_an_unknown_peak_is_said_and_gives_no_mfu(model: str, dtype: str) -> None:
    (whole,) = facts_of(gpus=1).gpus
    work, notes = planned(LLAMA, 8192, [whole._replace(model=model)], dtype)
    assert work.rates(1e4, None)["mfu"] is None
    assert notes == [f"no MFU: the peak of {model or 'this GPU'} in {dtype} is not known"]


def test_a_device_that_multiplies_at_half_its_peak_has_an_mfu_of_one_half() -> None:
    assert Work(flops_per_token=10**9, peak_tflops=100).rates(50_000, counted=10**6) == {
        "tflops_per_gpu": 50,
        "mfu": 0.5,
    }
    assert Work(peak_tflops=100).rates(50_000, counted=5 * 10**8) == {"tflops_per_gpu": 25, "mfu": 0.25}
    assert Work().rates(50_000, counted=None) == {"tflops_per_gpu": None, "mfu": None}


def test_the_log_line_ends_with_them_where_they_are_known() -> None:
    line = log_line(Metrics(step=1, steps=2, loss=3.0, tokens=4, tflops_per_gpu=412.34, mfu=0.3155))
    assert line.endswith("| tokens: 4 | TFLOP/s/GPU: 412.3 | MFU: 31.6%")
    assert log_line(Metrics(step=1, steps=2, loss=3.0, tokens=4)).endswith("| tokens: 4")
    assert log_line(Metrics(step=1, steps=2, loss=3.0, tflops_per_gpu=0.00123)).endswith("| TFLOP/s/GPU: 0.00123")


def test_the_log_line_has_every_figure_in_the_unit_that_it_names() -> None:
    step = {"step": 3, "steps": 10, "loss": 2.5, "step_time_s": 0.0125, "lr": 0.0003, "grad_norm": 1.25}
    counted = {"global_batch_size": 16, "tokens_per_second": 1024.04, "tokens": 98304}
    assert log_line(Metrics(**step, **counted)) == (  # type: ignore[arg-type]  # numbers of both kinds
        "iteration 3/10 | elapsed time per iteration (ms): 12.5 | learning rate: 3.000000E-04 | global batch size: 16"
        " | loss: 2.50000 | grad norm: 1.250 | throughput: 1024.0 tokens/s | tokens: 98304"
    )
