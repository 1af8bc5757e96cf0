"""The report: the same figures as a table, Markdown, CSV and JSON, and files that are never half written."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
from tests.core.secret_kinds import KINDS

from primus_bench.accuracy import Accuracy
from primus_bench.device import Device
from primus_bench.gemm_problem import Problem
from primus_bench.measure import Summary, WarmUp
from primus_bench.report import Report, Result, as_csv, as_json, as_markdown, as_table, prepare, write
from primus_core.errors import MachineError
from primus_core.machine import gpus

pytestmark = pytest.mark.torch


def result(engine: str, median_ms: float, problem: Problem) -> Result:
    """Figures around that median."""
    latency = Summary(1000, median_ms, median_ms * 0.99, median_ms * 1.05, median_ms * 1.5)
    return Result(engine, problem, latency, WarmUp(10, 0.5, median_ms, True), Accuracy(0.1, 0.2, 4096), 2**29, 4)


def report(model: str = "MI300X", dtype: str = "bf16", matrix: str = "") -> Report:
    """8192³ at 1 ms with torch, which is 1,099.5 TFLOP/s, and at 2 ms with triton."""
    device = Device("cuda", f"AMD Instinct {model}", "gfx942", 304, 2**29, 2**36, None, gpus.by_name(model))
    problem = Problem(8192, 8192, 8192, dtype, name=matrix)
    results = (result("torch", 1.0, problem), result("triton", 2.0, problem))
    return Report(device, results, 0, {"torch": "2.13"}, ("mind the gap",))


def test_the_figures_follow_from_the_median() -> None:
    first = json.loads(as_json(report()))["results"][0]
    assert first["tflops"] == pytest.approx(2 * 8192**3 / 1e-3 / 1e12)
    assert first["gb_per_s"] == pytest.approx(3 * 8192**2 * 2 / 1e-3 / 1e9)
    assert first["flop_per_byte"] == pytest.approx(8192 / 3)
    assert first["percent_of_peak"] == pytest.approx(100 * 1099.5 / 1307, rel=1e-3)
    assert first["percent_of_reachable"] == pytest.approx(100 * 1099.5 / 708, rel=1e-3)


def test_a_rectangular_problem_counts_each_matrix_once() -> None:
    problem = Problem(2, 3, 5, "fp8")
    assert problem.flops == 60
    assert problem.bytes_moved == 2 * 5 + 5 * 3 + 2 * (2 * 3)


def test_the_table_fits_a_terminal_and_shows_every_figure() -> None:
    lines = as_table(report()).splitlines()
    assert max(map(len, lines)) <= 120
    torch = next(line for line in lines if "│ torch" in line).replace("│", " ").split()
    assert torch == ["torch", "1000", "1.0000", "0.9900", "1.0500", "1.5000", "1100", "402.7", "2731", "84.1", "155.3"]
    assert "C = A·B, M=8192 N=8192 K=8192, bf16" in lines[0]
    assert lines[-1] == "note: mind the gap"


def test_the_table_of_a_models_matrices_has_their_names_and_sizes_and_fits_too() -> None:
    lines = as_table(report(matrix="shared-expert-gate-up")).splitlines()
    assert max(map(len, lines)) <= 120
    triton = next(line for line in lines if "│ triton" in line).replace("│", " ").split()
    assert triton[:7] == ["shared-expert-gate-up", "8192", "8192", "8192", "triton", "2.0000", "2.1000"]
    assert "with the matrices of a model, bf16" in lines[0]


def test_a_figure_that_nobody_knows_is_a_dash() -> None:
    for unknown in (report("MI999X"), report("MI300X", "fp32")):
        torch = next(line for line in as_table(unknown).splitlines() if "│ torch" in line).replace("│", " ").split()
        assert torch[-2:] == ["-", "-"]
        assert json.loads(as_json(unknown))["results"][0]["percent_of_peak"] is None


def test_csv_has_a_line_of_names_and_a_line_per_engine() -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv(report()))))
    assert [line["engine"] for line in lines] == ["torch", "triton"]
    assert float(lines[1]["median_ms"]) == 2.0
    assert lines == [{key: "" if value is None else str(value) for key, value in row.items()}
                     for row in json.loads(as_json(report()))["results"]]  # fmt: skip


def test_markdown_is_a_heading_a_table_and_the_notes() -> None:
    lines = as_markdown(report()).splitlines()
    assert lines[0] == "# GEMM"
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 4
    assert len({line.count("|") for line in table}) == 1
    assert lines[-1] == "> mind the gap"


@pytest.mark.parametrize("name", ["r.md", "r.csv", "r.json", "R.JSON"])
def test_the_suffix_names_the_form(tmp_path: Path, name: str) -> None:
    texts = {".md": as_markdown(report()), ".csv": as_csv(report()), ".json": as_json(report()) + "\n"}
    path = tmp_path / name
    write(str(path), report())
    assert path.read_text(encoding="utf-8") == texts[path.suffix.lower()]


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path, link = tmp_path / "r.csv", tmp_path / "link.csv"
    path.write_text("old", encoding="utf-8")
    link.symlink_to(path)
    write(str(link), report())
    assert path.read_text(encoding="utf-8") == as_csv(report())
    assert sorted(os.listdir(tmp_path)) == ["link.csv", "r.csv"]
    assert link.is_symlink()


def test_folders_on_the_way_are_made_before_the_measuring(tmp_path: Path) -> None:
    prepare([str(tmp_path / "a" / "b" / "r.md")])
    assert (tmp_path / "a" / "b").is_dir()


def test_a_place_that_cannot_be_written_is_an_error_before_the_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "folder.md").mkdir()
    for path in (tmp_path / "file" / "r.md", tmp_path / "folder.md"):
        with pytest.raises(MachineError, match="cannot write"):
            prepare([str(path)])


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "r.md").mkdir()
    with pytest.raises(MachineError, match="cannot write"):
        write(str(tmp_path / "r.md"), report())
    assert os.listdir(tmp_path) == ["r.md"]


def test_a_secret_that_a_name_holds_is_in_no_report(tmp_path: Path) -> None:
    text, secret = KINDS["github"]
    for name in ("r.md", "r.csv", "r.json"):
        write(str(tmp_path / name), report(matrix=text))
        assert secret not in (tmp_path / name).read_text()
        assert "<secret>" in (tmp_path / name).read_text()
