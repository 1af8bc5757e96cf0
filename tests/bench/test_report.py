"""The report: the same figures as a table, Markdown, CSV and JSON, and files that are never half written."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.machine.secret_kinds import KINDS

from primus_bench.benchmarks.gemm import report
from primus_bench.benchmarks.gemm.options import Settings
from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.benchmarks.gemm.report import Result
from primus_bench.measure.device import Device
from primus_bench.measure.timing import thinned
from primus_bench.measure.together import Together
from primus_bench.report.document import Document, as_json
from primus_bench.report.files import Forms, alone, prepare, write
from primus_bench.report.outcome import publish
from primus_bench.report.sheet import Sheet, as_csv, as_markdown, as_table
from primus_core.errors import MachineError
from primus_machine.gpus import models

pytestmark = pytest.mark.torch

SQUARE = Problem(8192, 8192, 8192)
THIN = Problem(8192, 8192, 16)


def result(engine: str, problem: Problem, *medians_ms: float) -> Result:
    """Figures around the slowest rank's median."""
    worst = max(medians_ms)
    samples = [worst * part for part in (0.99, 1, 1, 1, 1.05, 1.5)]
    return Result(engine, "a stand-in", problem, Together(medians_ms, samples), 0.1, 4096, 4, 2**29)


def made(
    model: str = "MI300X", *problems: Problem, ranks: Sequence[float] = (1.0,), title: str = "", kind: str = "cuda"
) -> tuple[Document, Sheet]:
    """Each problem at 1 ms with torch, at 8192³ 1,099.5 TFLOP/s, and at 2 ms with triton; `ranks`: factors of that."""
    name = f"AMD Instinct {model}" if kind == "cuda" else "a CPU"
    device = Device(kind, name, "gfx942", 304, 2**29, 2**36, None, models.by_name(name))
    problems = problems or (SQUARE,)
    hosts = [f"node-{rank // 2}" for rank in range(len(ranks))]
    settings = Settings(problems, ("torch", "triton"), kind, 1.0, 0, (), False, title)
    results = [result(engine, problem, *(ms * rank for rank in ranks))
               for problem in problems for engine, ms in (("torch", 1.0), ("triton", 2.0))]  # fmt: skip
    cases = [report.case(one, device, hosts) for one in results]
    found = report.document(settings, device, hosts, cases, ["mind the gap"], {"torch": "2.13"})
    return found, report.sheet(found, problems)


def forms(name: str = "") -> Forms:
    """All forms of one result."""
    found, sheet = made("MI300X", SQUARE._replace(name=name))
    return {".md": lambda: as_markdown(sheet), ".csv": lambda: as_csv(sheet), ".json": lambda: as_json(found.to_dict())}


def row(text: str, start: str) -> list[str]:
    """The cells of the first line of a table that begins so."""
    return next(line for line in text.splitlines() if line.startswith(f"│ {start}")).replace("│", " ").split()


def test_the_figures_follow_from_the_median() -> None:
    first = made()[1].records[0]
    assert first["tflops"] == pytest.approx(2 * 8192**3 / 1e-3 / 1e12)
    assert first["gb_per_s"] == pytest.approx(3 * 8192**2 * 2 / 1e-3 / 1e9)
    assert first["flop_per_byte"] == pytest.approx(8192 / 3)
    assert first["percent_of_peak"] == pytest.approx(100 * 1099.5 / 1307, rel=1e-3)
    assert first["percent_of_reachable"] == pytest.approx(100 * 1099.5 / 708, rel=1e-3)


@pytest.mark.parametrize("engine", ["torch", "hipblaslt"])
def test_the_method_names_hipblaslt_where_it_measured(engine: str) -> None:
    device = Device("cuda", "GPU", "gfx942", 304, 2**29, 2**36, None, None)
    settings = Settings((SQUARE,), (engine,), "cuda", 1.0, 0, (), False, "")
    found = report.document(settings, device, ["n1"], [], [], {})
    assert ("hipblaslt" in found.method) == (engine == "hipblaslt")


def test_the_roofline_tells_what_bounds_a_shape() -> None:
    """MI300X: 1307 TFLOP/s and 5.3 TB/s meet at 246.6 FLOP for each byte."""
    square, _, thin, _ = made("MI300X", SQUARE, THIN)[1].records
    assert (square["bound"], thin["bound"]) == ("compute", "memory")
    assert square["ridge_flop_per_byte"] == pytest.approx(1307 / 5.3)
    assert square["roof_tflops"] == pytest.approx(1307)
    assert thin["roof_tflops"] == pytest.approx(5.3 * THIN.intensity)
    assert thin["percent_of_roof"] == pytest.approx(100 * thin["tflops"] / thin["roof_tflops"])


def test_each_rank_is_shown_and_the_slowest_is_marked_with_its_distance_from_the_median() -> None:
    found, sheet = made("MI300X", SQUARE, ranks=(1.0, 1.0, 1.25, 1.1))
    first = found.cases[0]
    assert (first.rank, first.node) == (2, "node-1")
    assert first.derived["lag_percent"] == pytest.approx(100 * (1.25 / 1.05 - 1))
    assert first.value == pytest.approx(1099.5 / 1.25, rel=1e-3)
    text = as_table(sheet)
    assert max(map(len, text.splitlines())) <= 120
    assert row(text, "torch")[-3:] == ["2", "node-1", "19.0"]
    ranks = [line.replace("│", " ").split() for line in text.splitlines() if "node-" in line and "torch" in line][1:]
    assert [cells[:4] for cells in ranks] == [
        ["0", "node-0", "torch", "1100"], ["1", "node-0", "torch", "1100"], ["2", "node-1", "torch", "879.6"],
        ["3", "node-1", "torch", "999.6"],
    ]  # fmt: skip
    assert [cells[-1] for cells in ranks] == ["-4.8", "-4.8", "slowest", "4.8"]
    assert as_markdown(sheet).count("| slowest") == 3, "the heading, and one rank with each engine"


def test_on_a_cpu_the_peak_is_not_known_and_the_report_says_so() -> None:
    found, sheet = made("MI300X", kind="cpu")
    assert row(as_table(sheet), "torch")[-3:] == ["-", "-", "-"]
    assert "the peak of a CPU is not known here" in found.notes[-1]


def test_the_shapes_of_a_model_add_up_to_the_time_of_a_step() -> None:
    problems = [SQUARE._replace(name=f"{name}/fwd", repeats=32) for name in ("qkv", "shared-expert-gate-up")]
    found, sheet = made("MI300X", *problems, title="one training step of a model")
    text = as_table(sheet)
    assert max(map(len, text.splitlines())) <= 120
    assert row(text, "shared-expert-gate-up/fwd")[1:4] == ["8192x8192x8192", "32", "torch"]
    assert "GEMM: one training step of a model" in text
    assert "torch: all shapes, each as often as its number, take 64 ms: 70.37 TFLOP, 1100 TFLOP/s" in str(found.notes)


def test_a_rectangular_problem_counts_each_matrix_once() -> None:
    problem = Problem(2, 3, 5, "fp8")
    assert problem.flops == 60
    assert problem.bytes_moved == 2 * 5 + 5 * 3 + 2 * (2 * 3)


def test_the_table_fits_a_terminal_and_shows_every_figure() -> None:
    text = as_table(made()[1])
    assert max(map(len, text.splitlines())) <= 120
    assert row(text, "torch") == ["torch", "6", "1.0000", "1.3875", "1.5000", "1100", "402.7", "2731", "compute", "84.1",
                                  "155.3"]  # fmt: skip
    assert "C = A·B, M=8192 N=8192 K=8192, bf16" in text.splitlines()[0]
    assert "note: mind the gap" in text


def test_a_figure_that_nobody_knows_is_a_dash() -> None:
    for found, sheet in (made("MI999X"), made("MI300X", SQUARE._replace(dtype="fp32"))):
        assert row(as_table(sheet), "torch")[-3:] == ["-", "-", "-"]
        assert found.cases[0].derived["percent_of_peak"] is None
        assert "the table of GPUs has no " in found.notes[-1]


def test_csv_has_a_line_of_names_and_a_line_for_each_case() -> None:
    found, sheet = made()
    lines = list(csv.DictReader(io.StringIO(as_csv(sheet))))
    assert [line["engine"] for line in lines] == ["torch", "triton"]
    assert float(lines[1]["median_ms"]) == 2.0
    assert [line["percent_of_peak"] for line in lines] == [str(one.derived["percent_of_peak"]) for one in found.cases]


def test_markdown_is_a_heading_a_table_and_the_notes() -> None:
    lines = as_markdown(made()[1]).splitlines()
    assert lines[0] == "# GEMM"
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 4
    assert len({line.count("|") for line in table}) == 1
    assert lines[-1] == "> mind the gap"


@pytest.mark.parametrize("name", ["r.md", "r.csv", "r.json", "R.JSON"])
def test_the_suffix_names_the_form(tmp_path: Path, name: str) -> None:
    path, texts = tmp_path / name, forms()
    write(str(path), texts)
    assert path.read_text(encoding="utf-8")[:200] == texts[path.suffix.lower()]()[:200]


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path, link = tmp_path / "r.csv", tmp_path / "link.csv"
    path.write_text("old", encoding="utf-8")
    link.symlink_to(path)
    write(str(link), forms())
    assert path.read_text(encoding="utf-8") == forms()[".csv"]()
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


@pytest.mark.parametrize("kind", ["a FIFO", "a device"])
def test_a_report_does_not_replace_what_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "r.md"
    if kind == "a FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")
    with pytest.raises(MachineError, match="it is not a regular file"):
        prepare([str(path)])


def test_a_lock_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with (
        pytest.raises(MachineError, match="choose another --dir"),
        alone(str(tmp_path), "another process is in", "--dir"),
    ):
        pass


def test_a_secret_of_the_environment_is_in_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", "swordfish and chips")
    write(str(tmp_path / "r.md"), {".md": lambda: "failed: swordfish and chips"})
    assert (tmp_path / "r.md").read_text() == "failed: <secret>"


def test_names_of_others_are_neither_formulas_nor_markup_nor_orders_to_a_terminal() -> None:
    sheet = Sheet("t", ("on: \x1b[2J",), {"name": ("name", "s")}, [{"name": "=1+1|<b>\x1b[31m\n"}], {})
    assert "\x1b" not in as_table(sheet) + as_markdown(sheet) + as_csv(sheet)
    assert r"=1+1\|&lt;b>\x1b[31m\n" in as_markdown(sheet)
    assert as_csv(sheet).startswith("name\n'=1+1|<b>")


def test_bytes_of_a_path_that_are_no_text_do_not_lose_a_report(tmp_path: Path) -> None:
    write(str(tmp_path / "r.json"), {".json": lambda: as_json({"path": "\udcff"})})
    assert json.loads((tmp_path / "r.json").read_text()) == {"path": "\udcff"}


def test_a_report_that_cannot_be_written_costs_no_other(tmp_path: Path) -> None:
    found, sheet = made()
    (tmp_path / "r.md").mkdir()
    with pytest.raises(MachineError, match=r"cannot write .*r\.md"):
        publish(found, sheet, [str(tmp_path / "r.md"), str(tmp_path / "r.json")], json=False)
    assert json.loads((tmp_path / "r.json").read_text())["benchmark"] == "gemm"


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "r.md").mkdir()
    with pytest.raises(MachineError, match="cannot write"):
        write(str(tmp_path / "r.md"), forms())
    assert os.listdir(tmp_path) == ["r.md"]


def test_a_secret_that_a_name_holds_is_in_no_report(tmp_path: Path) -> None:
    text, secret = KINDS["github"]
    for name in ("r.md", "r.csv", "r.json"):
        write(str(tmp_path / name), forms(text))
        assert secret not in (tmp_path / name).read_text()
        assert "<secret>" in (tmp_path / name).read_text()


def test_json_has_the_form_that_all_benchmarks_share() -> None:
    found = json.loads(as_json(made()[0].to_dict()))
    assert (found["schema"], found["benchmark"]) == (3, "gemm")
    first = found["cases"][0]
    assert (first["name"], first["median"], first["unit"]) == ("torch/8192x8192x8192/bf16/NN", 1e-3, "TFLOP/s")
    assert first["value"] == first["derived"]["tflops"]
    assert (first["verified"], first["error"]) == (True, 0.1)


def test_at_most_a_thousand_samples_are_kept_in_their_order() -> None:
    assert thinned(range(1000)) == list(range(1000))
    assert thinned(range(2500)) == list(range(0, 2500, 3))
    assert thinned([]) == []
