"""The history of benchmarks as people see it: its table and its plots."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from primus_bench.commands import bench
from primus_bench.history.store import FILE, Point
from primus_bench.history.view import plot
from primus_core.errors import MachineError, RequestError

_BEGAN = 1.78e9


def _points(*after_s: float) -> list[Point]:
    return [
        Point(f"run-{seconds:g}", _BEGAN + seconds, "gemm", "a CPU", "square", "{}", "TFLOP/s", 1 + number / 10, 1.0)
        for number, seconds in enumerate(after_s)
    ]


@pytest.mark.parametrize("after_s", [(0, 0), (0, 3), (0, 70), (0, 90_000), (0, 5, 3e7)])
@pytest.mark.parametrize("width", [50, 100])
def test_the_axis_of_a_plot_is_the_time_from_the_first_result_to_the_last(
    after_s: tuple[float, ...], width: int
) -> None:
    labels = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?", plot(_points(*after_s), "square", width, colour=False))
    ends = [datetime.fromisoformat(labels[number]).astimezone().timestamp() for number in (0, -1)]
    assert abs(ends[0] - _BEGAN) <= 60
    assert abs(ends[1] - _BEGAN - after_s[-1]) <= 60
    assert len(set(labels)) == len(labels) >= 2


def _run(workspace: Path, name: str, *cases: dict[str, Any]) -> Path:
    (workspace / name).mkdir(parents=True)
    rows = [{"name": "copy", "parameters": {}, "median": 1.0, "unit": "GB/s", "value": 2.0, **one} for one in cases]
    found = {"schema": 3, "benchmark": "memory", "device": {"name": "X"}, "cases": rows}
    (workspace / name / "memory.json").write_text(json.dumps(found))
    return workspace / name


def _history(workspace: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert bench.run(["history", *words, "--workspace", str(workspace)], "") == 0
    shown = capsys.readouterr()
    return shown.out, shown.err


def test_rows_that_differ_in_a_parameter_show_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes: list[dict[str, Any]] = [{"parameters": {"bytes": size, "dtype": "fp64"}} for size in (64, 128)]
    _run(tmp_path, "bench-memory_2026_11_01_000000", *sizes, {"name": "triad"})
    shown, _ = _history(tmp_path, capsys)
    assert [re.search(r"memory +(copy \(.*?\)|triad) ", line) for line in shown.splitlines()[2:]]
    assert all(name in shown for name in ("copy (bytes 64) ", "copy (bytes 128) ", "triad  "))
    assert "fp64" not in shown


def test_results_that_cannot_be_read_are_named_in_one_line_until_they_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path, "bench-memory_2026_11_01_000000", {})
    (run / "cut.json").write_text('{"schema": 3, "benchmark": "io", "ca')
    (run / "bare.json").write_text('{"schema": 3, "benchmark": "io", "cases": [{"name": "write"}]}')
    (run / "of_others.json").write_text("[1]")
    os.mkfifo(run / "pipe.json")
    for _ in range(2):
        shown, said = _history(tmp_path, capsys)
        assert shown.count("copy") == 1
        assert said.count("\n") == 1
        assert f"{run.name}/bare.json (a case has no 'parameters')" in said
        assert f"{run.name}/cut.json (Unterminated string" in said
        assert f"{run.name}/pipe.json (it is not a regular file)" in said
        assert "of_others" not in said
    for name in ("cut", "bare", "pipe"):
        (run / f"{name}.json").unlink()
    assert _history(tmp_path, capsys)[1] == ""
    assert json.loads(_history(tmp_path, capsys, "--json")[0])["series"][0][0]["name"] == "copy"


def test_a_training_may_have_json_of_any_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(tmp_path, "exp_2026_11_01_000000")
    (run / "trace.json").write_text("{")
    (run / "metadata.json").write_text(json.dumps({"task": "train"}))
    assert _history(tmp_path, capsys)[1] == ""


def test_a_benchmark_that_nobody_has_is_refused_with_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(tmp_path, "bench-memory_2026_11_01_000000", {})
    with pytest.raises(RequestError, match="no benchmark is called 'memroy'") as refused:
        _history(tmp_path, capsys, "memroy")
    assert "gemm" in refused.value.why
    assert "did you mean 'memory'" in refused.value.fix
    assert "benchmarks with results: memory" in _history(tmp_path, capsys, "gemm")[0]


def test_a_folder_in_the_place_of_the_history_is_not_to_be_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(MachineError, match="it is a folder") as refused:
        _history(tmp_path, capsys)
    assert refused.value.fix == f"move it away: mv {tmp_path}/{FILE} {tmp_path}/{FILE}.old"
