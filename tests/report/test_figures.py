"""The figures of a report: equal to the lines of the metrics, counted by hand, and honest about what is not there."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.runs import CPU, STARTED, THREE_ATTEMPTS, add_lines, line, lines, make, three_attempts

from primus_core.journal.metrics import Metrics
from primus_machine.host import HostRoot
from primus_report.figures import bottleneck, differences, spans, steady, steps
from primus_report.figures.attempts import Held
from primus_report.figures.figure import percentile
from primus_report.figures.goodput import shares
from primus_report.figures.records import Events
from primus_report.figures.report import Report
from primus_report.figures.run import RunReport, read
from primus_report.writers.forms import of_runs
from primus_report.writers.run_sections import sections


def report(directory: Path, price: float | None = None) -> RunReport:
    """The report of a run."""
    return read(str(directory), HostRoot(), price)


def values(found: RunReport) -> dict[str, float | None]:
    """Its figures by name."""
    return {name: figure.value for name, figure in found.figures.items()}


def test_a_report_reads_every_figure_of_a_line() -> None:
    assert {*steps.COLUMNS} == {field.name for field in fields(Metrics)} - {"step", "steps", "global_batch_size"}


def test_the_figures_are_those_of_the_lines_in_the_steady_state_window(tmp_path: Path) -> None:
    rows = [line(1, 20, step_time_s=9.0, tokens_per_second=10.0)]
    rows += [line(n, 20 + n, step_time_s=1 + n / 1000, tokens_per_second=1000.0 + n, mfu=n / 100) for n in range(2, 42)]
    found = report(make(tmp_path, rows))
    assert found.window
    assert (found.window.first_step, found.window.last_step, found.window.lines) == (2, 41, 40)
    window = rows[1:]
    for name in ("tokens_per_second", "tokens_per_second_per_gpu", "tflops_per_gpu", "mfu", "step_time_s"):
        assert values(found)[name] == median(row[name] for row in window), name
    assert values(found)["last_loss"] == rows[-1]["loss"]
    assert values(found)["last_step"] == 41
    assert values(found)["memory_gib"] == 100
    assert values(found)["step_time_max_s"] == rows[-1]["step_time_s"]
    assert all(figure.source for figure in found.figures.values() if figure.is_known)


def test_what_is_not_recorded_has_a_reason_and_no_number(tmp_path: Path) -> None:
    found = report(make(tmp_path, [line(1, 20, mfu=None), line(2, 21, mfu=None)]))
    unknown = {name: figure.why for name, figure in found.figures.items() if not figure.is_known}
    assert unknown["tokens_per_second"] == "too few steps: fewer than 3 lines after warm-up"
    assert unknown["last_validation_loss"] == "no line of metrics.jsonl has `validation_loss` as a finite number"
    assert all(unknown.values())
    assert "cost" not in found.figures


def test_a_folder_that_holds_nothing_has_a_report_without_a_number(tmp_path: Path) -> None:
    run = tmp_path / "empty_2026_11_21_101526"
    run.mkdir()
    found = report(run)
    assert found.identity.status == "incomplete"
    assert {name: figure.value for name, figure in found.figures.items() if figure.is_known} == {}
    assert all(figure.why for figure in found.figures.values())


def test_goodput_of_a_run_without_faults(tmp_path: Path) -> None:
    found = report(make(tmp_path, lines(1, 40, 21), metadata={"ended": STARTED + 80}))
    assert values(found)["goodput"] == 40 / 80
    assert {part.cause: part.seconds for part in found.time if part.seconds} == {"useful": 40, "start": 20, "end": 20}


def test_a_run_that_trains_nothing_has_no_goodput_and_one_that_fails_before_its_first_step_has_none_of_it(
    tmp_path: Path,
) -> None:
    ended = {"ended": STARTED + 80}
    found = report(make(tmp_path / "a", metadata={**ended, "framework": "", "task": "bench gemm"}))
    assert (found.figures["goodput"].value, found.time) == (None, ())
    found = report(make(tmp_path / "b", metadata={**ended, "framework": "torchtitan"}))
    assert found.figures["goodput"].value == 0


def test_without_step_times_it_is_not_known_where_the_time_went(tmp_path: Path) -> None:
    rows = [{"step": n, "steps": 40, "loss": 1.0, "time": STARTED + 20 + n} for n in range(1, 41)]
    found = report(make(tmp_path, rows, metadata={"ended": STARTED + 80}))
    assert (found.figures["goodput"].value, found.time) == (None, ())
    assert found.figures["goodput"].why == "no line of metrics.jsonl has step_time_s"
    assert values(found)["wall_s"] == 80
    text = of_runs(Report((found,), differences.between([]), time=0.0))[".md"]()
    assert "Not recorded: no line of metrics.jsonl has step\\_time\\_s." in text


@pytest.mark.parametrize(
    ("count", "step_time", "other"), [(40, 1.02, 0), (40, 1.03, -1.2), (400, 1.015, 0), (400, 1.03, -12)]
)
def test_steps_that_add_up_to_a_little_more_than_the_wall_time_were_rounded(
    count: int, step_time: float, other: float, tmp_path: Path
) -> None:
    rows = lines(1, count, 1, step_time_s=step_time)
    found = report(make(tmp_path, rows, metadata={"ended": STARTED + count}))
    assert {part.cause: part.seconds for part in found.time}["other"] == pytest.approx(other)


def test_goodput_and_lost_time_of_three_attempts_are_as_counted_by_hand(tmp_path: Path) -> None:
    found = report(three_attempts(tmp_path), price=2.0)
    seconds = {part.cause: part.seconds for part in found.time}
    assert seconds == pytest.approx({**THREE_ATTEMPTS, "other": 0}, abs=1e-6)
    assert values(found)["goodput"] == pytest.approx(100 / 229)
    assert values(found)["wall_s"] == pytest.approx(229)
    assert values(found)["gpu_hours"] == pytest.approx(229 * 8 / 3600)
    assert values(found)["cost"] == pytest.approx(229 * 8 / 3600 * 2)
    assert sum(part.device_hours for part in found.time) == pytest.approx(229 * 8 / 3600)
    assert [one.last_step for one in found.attempts] == [50, 85, 100]
    assert found.findings[0].is_bottleneck
    assert found.findings[0].figure == "restart"


def test_a_wait_in_the_queue_holds_no_device(tmp_path: Path) -> None:
    at = STARTED
    events = [
        {"time": at + 5, "event": "run_started"},
        {"time": at + 40, "event": "checkpoint_saved", "step": 10},
        {"time": at + 60, "event": "requeued"},
        {"time": at + 1060, "event": "run_started"},
    ]
    attempts = [{"started": at + 10, "ended": None, "last_step": 30, "what": "untold"},
                {"started": at + 1065, "ended": at + 1100, "exit_code": 0, "last_step": 30, "what": ""}]  # fmt: skip
    known = {"attempts": attempts, "started": at + 1058, "ended": at + 1100, "submitted": at - 100, "job_id": "7"}
    rows = [*lines(1, 30, 21), *lines(11, 30, 1076)]
    found = report(make(tmp_path, rows, events=events, metadata=known))
    assert values(found)["wall_s"] == 55 + 40
    assert values(found)["goodput"] == pytest.approx(30 / 95)
    lost = {part.cause: part.seconds for part in found.time if part.seconds}
    assert lost == pytest.approx({"useful": 30, "repeated": 20, "start": 15, "failure": 10, "restart": 15, "end": 5})


def test_lines_of_several_steps_count_as_many(tmp_path: Path) -> None:
    rows = [line(1, 31)] + [line(n, 31 + n - 1) for n in range(10, 101, 10)]
    found = report(make(tmp_path, rows, metadata={"ended": STARTED + 200}))
    assert values(found)["goodput"] == pytest.approx(100 / 200)


def test_a_run_that_continues_another_does_not_count_its_steps(tmp_path: Path) -> None:
    rows = [line(n, 30 + n - 500) for n in range(510, 601, 10)]
    found = report(make(tmp_path, rows, metadata={"ended": STARTED + 200}))
    assert values(found)["goodput"] == pytest.approx(100 / 200)


def test_a_training_on_cpus_costs_no_gpu_hour(tmp_path: Path) -> None:
    known = {"gpu_model": "", "world_size": 2}
    place = {"nnodes": 1, "gpus_per_node": 2}
    run = make(
        tmp_path, lines(1, 9, 9), system=CPU, metadata=known, plan={"distributed": place}, backend={"device": "cpu"}
    )
    found = values(report(run, price=3.0))
    assert (found["gpu_hours"], found["cost"]) == (0, 0)
    assert found["device_hours"] == pytest.approx(61.25 * 2 / 3600)


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    run = make(tmp_path, lines(1, 20, 21))
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 21, "steps": 30, "loss": 1e999, "step_time_s": NaN, "mfu": true}\n')
        file.write(b'{"step": "x", "loss": 1}\n{"step": 1e3, "loss": 2}\n[1]\n\xff\xfe\n{"step": 22, "loss": {}}\n')
        file.write(b'{"step": 23, "steps": 30, "loss": 1' + b"0" * 500 + b"}\n" + b"[" * 100_000 + b"\n")
        file.write(b'{"step": 24, "loss": 3.0, "cut": ')
    found = report(run)
    assert values(found)["last_step"] == 23
    assert values(found)["last_loss"] == 8.0 / 1.2
    assert "the loss of 3 lines is not finite" in found.notes
    assert "2 lines of metrics.jsonl are not steps and were left out" in found.notes


def test_metadata_of_another_form_says_nothing(tmp_path: Path) -> None:
    strange: dict[str, Any] = {
        "attempts": [7, {"started": "x"}, {"started": 1, "lost_nodes": {"a": 1}}],
        "ended": [1],
        "started": {},
    }
    strange |= {"first_failure": [1], "world_size": "many", "command": "no list", "gpu_model": ["x"]}
    found = report(make(tmp_path, lines(1, 5, 5), metadata=strange, plan={"environment": 5, "distributed": []}))
    assert found.identity.status == "completed"
    assert found.environment == ()


def test_a_validation_is_no_step(tmp_path: Path) -> None:
    run = make(tmp_path, lines(1, 5, 5))
    add_lines(run / "metrics.jsonl", [{"step": 5, "steps": 5, "validation_loss": 3.5, "time": STARTED}])
    found = report(run)
    assert values(found)["last_validation_loss"] == 3.5
    assert values(found)["last_step"] == 5


def test_the_report_of_a_benchmark_has_its_results_and_no_figures_of_a_training(tmp_path: Path) -> None:
    run = make(tmp_path, metadata={"framework": "", "task": "bench memory"})
    cases = [
        {"name": "copy", "value": 6.65, "unit": "GB/s", "verified": True, "error": None},
        {"name": "triad", "value": None, "unit": "GB/s", "verified": None, "error": "out of memory"},
    ]
    steadiness = {"steady": False, "cases": {"copy": "the latency was not steady"}}
    (run / "memory.json").write_text(json.dumps({"benchmark": "memory", "cases": cases, "steadiness": steadiness}))
    found = report(run)
    assert [(one.name, one.value, one.why) for one in found.cases] == [
        ("copy", 6.65, "the latency was not steady"),
        ("triad", None, "out of memory"),
    ]
    titles = [section.title for section in sections(Report((found,), differences.Differences(), STARTED), ())]
    assert titles[0] == "Benchmark"
    assert not {"Figures", "Bottleneck", "Where the time went"} & {*titles}


def test_preflight_and_a_benchmark_beside_the_run_are_joined(tmp_path: Path) -> None:
    run = make(tmp_path, lines(1, 20, 20))
    problem = {
        "check": "gpu.pcie-width",
        "subject": "0000:65:00.0",
        "status": "fail",
        "measured": "8",
        "expected": "≥ 16",
        "unit": "lanes",
    }
    for folder, findings in (("preflight", [{"check": "a", "status": "pass"}]), ("preflight_2", [problem])):
        (run / folder).mkdir()
        node = {"host": "gpu-17", "verdict": "fail", "level": "quick", "findings": findings}
        (run / folder / "gpu-17.json").write_text(json.dumps(node))
    bench = tmp_path / "bench-gemm_2026_11_20_101526"
    bench.mkdir()
    asked = {"engine": "torch", "m": 8, "n": 8, "k": 8, "dtype": "bf16"}
    cases = [{"parameters": asked, "value": t, "derived": {"percent_of_peak": 50.0}} for t in (300.0, 400.0)]
    (bench / "gemm.json").write_text(json.dumps({"device": {"model": "MI300X"}, "cases": cases}))
    (run / "prediction.json").write_text(json.dumps({"source": "a model", "figures": {"step_time_s": 0.9, "x": "y"}}))
    found = report(run)
    assert [one.problems for one in found.health] == [("fail: gpu.pcie-width 0000:65:00.0: 8 lanes; expected ≥ 16",)]
    assert found.bench
    assert found.bench.tflops == 400
    assert [(one.name, one.predicted) for one in found.predictions] == [("step_time_s", 0.9)]


def test_what_differs_between_runs_stands_in_one_table(tmp_path: Path) -> None:
    names = [f"small_2026_11_21_10152{n}" for n in range(3)]
    runs = [make(tmp_path, lines(1, 5, 5), name=name, environ={"X": str(n // 2)}) for n, name in enumerate(names)]
    found = differences.between([str(run) for run in runs])
    assert [(row.what, row.values) for row in found.rows] == [("X", ("0", "0", "1"))]
    (runs[1] / "snapshot.json").unlink()
    found = differences.between([str(run) for run in runs])
    assert [row.values for row in found.rows] == [("0", None, "1")]
    assert "not compared" in found.notes[0]


def test_every_rule_has_a_bound_and_advice_and_a_figure_that_may_be_missing() -> None:
    assert all((rule.above is None) != (rule.below is None) for rule in bottleneck.rules())
    assert bottleneck.apply({rule.figure: None for rule in bottleneck.rules()}) == ()
    found = bottleneck.apply({"checkpoint": 0.2, "evaluation": 0.3, "start": 0.01, "mfu": 0.1})
    assert [(one.figure, one.is_bottleneck) for one in found] == [
        ("evaluation", True),
        ("checkpoint", False),
        ("mfu", False),
    ]


def test_percentiles_are_between_the_nearest() -> None:
    assert percentile([1.0], 0.9) == 1
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2
    assert percentile([0.0, 10.0], 0.25) == 2.5


@st.composite
def _runs(draw: st.DrawFn) -> tuple[steps.Steps, list[tuple[float, int]]]:
    """Starts of a run, each with lines of steps in a row, a second each; when it began, and with which step."""
    found, starts, at = steps.Steps(), [], 10.0
    for _ in range(draw(st.integers(1, 4))):
        first, count = draw(st.integers(1, 30)), draw(st.integers(1, 20))
        starts.append((at - 0.5, first))
        at += draw(st.integers(2, 50))
        for step in range(first, first + count):
            found.step.append(step)
            for name, column in found.columns.items():
                column.append({"time": at, "step_time_s": 1.0}.get(name, 0.0))
            at += 1
    return found, starts


@given(_runs())
@pytest.mark.full
def test_no_step_is_kept_twice_and_all_time_has_a_cause(given_: tuple[steps.Steps, list[tuple[float, int]]]) -> None:
    found, starts = given_
    split = spans.split(found, [at for at, _ in starts], [first - 1 for _, first in starts])
    kept = spans.kept_steps(found, split)
    assert sum(map(sum, kept)) <= max(found.step)
    assert [found.step[span.first] for span in split] == [first for _, first in starts]
    held = Held(0, found.columns["time"][-1] + 5, (), False, "")
    parts = {part.cause: part.seconds for part in shares(found, split, [], held, Events(), 8)}
    assert sum(parts.values()) == pytest.approx(held.seconds)
    assert parts["useful"] == pytest.approx(sum(map(sum, kept)))
    assert min(parts.values()) >= -1e-6


def test_the_window_begins_where_the_step_time_settles() -> None:
    found = steps.Steps()
    for step, seconds in enumerate([9.0, 3.0, 1.2, 1.05, 1.0, 5.0, 1.0, 1.0, 0.98, math.nan], 1):
        found.step.append(step)
        for name, column in found.columns.items():
            column.append(seconds if name == "step_time_s" else 0.0)
    window, why = steady.find(found, spans.split(found))
    assert (window and window.first_step, why) == (4, "")
