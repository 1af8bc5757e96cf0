"""`bench memory`: bytes by hand, a result that is wrong, and real processes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import Run

from primus_bench.benchmarks.memory.work import DTYPES, make

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_the_bytes_are_those_that_are_read_and_written(dtype: torch.dtype) -> None:
    assert make("copy", 4096, dtype, "cpu").bytes_moved == 2 * 4096
    assert make("triad", 4096, dtype, "cpu").bytes_moved == 3 * 4096


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("operation", ["copy", "triad"])
def test_a_right_result_passes_and_one_wrong_element_does_not(operation: str, dtype: torch.dtype) -> None:
    work = make(operation, 100_000, dtype, "cpu")
    assert work.wrong() == ""

    def spoiled() -> None:
        work.run()
        work.target[777] += 1

    assert replace(work, run=spoiled).wrong().startswith("element 777 is ")
    assert replace(work, run=lambda: None).wrong().startswith("element 0 is nan")


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
def test_memory_is_measured_by_all_processes_at_once(primus: Run, tmp_path: Path, ranks: int) -> None:
    words = ("--device", "cpu", "--size", "4MiB", "--duration", "0.2", "--output", "r.md", "--output", "r.csv")
    done = primus("direct", "--", "bench", "memory", *words, env={"GPUS_PER_NODE": str(ranks)}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "output/bench-memory/memory.json").read_text())
    assert [case["name"] for case in found["cases"]] == ["copy", "triad"]
    for case, streams in zip(found["cases"], (2, 3), strict=True):
        assert case["verified"]
        assert case["value"] == pytest.approx(streams * 4 * 2**20 / case["median"] / 1e9)
        assert len(case["derived"]["gb_per_s_of_ranks"]) == ranks
        assert case["derived"]["total_gb_per_s"] == pytest.approx(sum(case["derived"]["gb_per_s_of_ranks"]))
    assert "the last-level cache may hold the arrays" in str(found["notes"])
    assert (tmp_path / "r.md").read_text().startswith("# Memory")


def test_a_transfer_to_a_gpu_is_refused_on_a_cpu(primus: Run, tmp_path: Path) -> None:
    done = primus("direct", "--dry-run", "--", "bench", "memory", "--device", "cpu", "--op", "h2d", cwd=tmp_path)
    assert done.returncode == 2
    assert "choose copy or triad" in done.stderr
