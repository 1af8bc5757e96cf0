"""The report of a workspace: hours, goodput and failures, counted by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.report.runs import CPU, STARTED, add_lines, lines, make, three_attempts
from tests.report.test_command import HOSTILE, shown

from primus_machine.host import HostRoot
from primus_report.figures.failures import _cause
from primus_report.figures.fleet import read

DAY = 86_400


def fleet(primus: Run, *words: str) -> dict[str, Any]:
    """The report as JSON."""
    done = primus("report", "--workspace", "output", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def failed(folder: Path, name: str, what: str, *, node: str, day: float = 0, **known: Any) -> Path:
    """A run of 8 GPUs on a node that trains for 40 of 80 seconds, and then fails."""
    at = STARTED + day * DAY
    rows = [{**row, "time": row["time"] + day * DAY} for row in lines(1, 40, 21)]
    attempt = {"started": at, "ended": at + 80, "exit_code": 1, "last_step": 40, "what": what}
    metadata = {
        "status": "failed",
        "exit_code": 1,
        "host": node,
        "started": at,
        "ended": at + 80,
        "attempts": [attempt],
    }
    metadata["first_failure"] = {"rank": 3, "what": what, "node_rank": 0, "exit_code": 1}
    return make(folder, rows, name=name, metadata={**metadata, **known})


@pytest.mark.full
def test_failures_by_cause_and_by_node(primus: Run, tmp_path: Path) -> None:
    folder = tmp_path / "output"
    for number in range(3):
        failed(
            folder,
            f"a_2026_11_21_10152{number}",
            f"RuntimeError: no memory at 0x{number}f for {number} bytes",
            node="gpu-17",
        )
    failed(folder, "b_2026_11_22_101520", "ValueError: boom", node="gpu-3", day=1)
    run = failed(folder, "c_2026_11_22_101521", "exit code 1", node="gpu-3", day=1)
    cause = {"title": "A file is missing: /data/shard_0001.json", "nodes": ["gpu-17"], "first": {"node": "gpu-17"}}
    (run / "diagnosis.json").write_text(json.dumps({"schema": 1, "cause": cause}))
    three_attempts(folder, name="d_2026_11_23_101520", metadata={"host": "gpu-9"})
    found = fleet(primus, "--price", "3")
    causes = {one["name"]: (one["count"], one["others"]) for one in found["causes"]}
    assert causes == {
        "RuntimeError: no memory at N for N bytes": (3, ["gpu-17"]),
        "ValueError: boom": (2, ["gpu-3", "gpu-9"]),
        "A file is missing: <path>": (1, ["gpu-17"]),
        "ended by SIGKILL": (1, ["gpu-9"]),
    }
    assert [(one["name"], one["count"]) for one in found["nodes"]] == [("gpu-17", 4), ("gpu-9", 2), ("gpu-3", 1)]
    figures = {name: one["value"] for name, one in found["figures"].items()}
    assert (figures["runs"], figures["failed_runs"], figures["failures"]) == (6, 5, 7)
    assert figures["goodput"] == pytest.approx((5 * 40 + 100) / (5 * 80 + 229))
    assert figures["gpu_hours"] == pytest.approx((5 * 80 + 229) * 8 / 3600)
    assert figures["cost"] == pytest.approx(figures["gpu_hours"] * 3)
    assert [(one["runs"], one["failures"]) for one in found["periods"]] == [(4, 5), (2, 2)]
    primus("report", "--workspace", "output", "-o", "fleet.md")
    assert "The node that fails most is gpu-17: 4 of 7 failures." in (tmp_path / "fleet.md").read_text()


def five_hundred(folder: Path) -> Iterator[Path]:
    """Runs of ten weeks: each fourth fails, on one of ten nodes; the first node fails most."""
    for number in range(500):
        name, day = f"run{number:03}_2026_11_21_101526", number * 70 / 500
        if number % 4:
            rows = [{**row, "time": row["time"] + day * DAY} for row in lines(1, 40, 21)]
            at = STARTED + day * DAY
            yield make(folder, rows, name=name, metadata={"started": at, "ended": at + 80})
        else:
            yield failed(folder, name, "ValueError: boom", node=f"gpu-{number % 10 if number % 8 else 0}", day=day)


@pytest.mark.full
def test_five_hundred_runs(primus: Run, tmp_path: Path) -> None:
    assert len(list(five_hundred(tmp_path / "output"))) == 500
    done = primus("report", "--workspace", "output", "-o", "fleet.html", "-o", "fleet.json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fleet.html").stat().st_size < 5_000_000
    found = json.loads((tmp_path / "fleet.json").read_text())
    assert found["figures"]["goodput"]["value"] == pytest.approx(0.5)
    assert found["figures"]["gpu_hours"]["value"] == pytest.approx(500 * 80 * 8 / 3600)
    assert (found["figures"]["failures"]["value"], found["nodes"][0]["name"]) == (125, "gpu-0")
    assert len(found["periods"]) == pytest.approx(11, abs=1), "weeks"
    assert sum(one["runs"] for one in found["periods"]) == 500
    assert shown(tmp_path / "fleet.html").count("_2026_11_21_101526</td>") == 500


def test_a_run_without_step_times_has_no_goodput_and_does_not_lower_that_of_others(tmp_path: Path) -> None:
    make(tmp_path, lines(1, 40, 21), name="a_2026_11_21_101520", metadata={"ended": STARTED + 80})
    make(tmp_path, lines(1, 40, 21, step_time_s=None), name="b_2026_11_21_101521", metadata={"ended": STARTED + 80})
    found = read(str(tmp_path), HostRoot())
    assert {run.name: run.goodput for run in found.runs} == {"a_2026_11_21_101520": 0.5, "b_2026_11_21_101521": None}
    assert found.figures["goodput"].value == 0.5


@pytest.mark.full
def test_an_empty_workspace_and_strange_runs_have_a_report(primus: Run, tmp_path: Path) -> None:
    folder = tmp_path / "output"
    folder.mkdir()
    assert fleet(primus)["figures"]["goodput"]["why"] == "no run of the workspace logged a step with its time"
    (folder / "empty_2026_11_21_101526").mkdir()
    run = failed(folder, "x_2026_11_21_101526", HOSTILE, node=HOSTILE, model=HOSTILE)
    (run / "diagnosis.json").write_text('{"cause": {"title": "' + "</script>" + '", "nodes": [1], "first": 7}}')
    make(folder, lines(1, 9, 9), name="cpu_2026_11_21_101526", system=CPU, metadata={"gpu_model": "", "started": 1e300})
    other = make(
        folder,
        name="lost_2026_11_21_101526",
        metadata={"status": "started", "host": os.uname().nodename, "ended": None},
    )
    add_lines(other / "logs/events.jsonl", [{"time": STARTED + 5, "event": "run_started"}])
    found = fleet(primus)
    assert found["status"] == {"completed": 1, "failed": 1, "incomplete": 1, "lost": 1}
    assert {one["name"] for one in found["causes"]} == {"</script>", "lost: its end was not recorded"}
    assert primus("report", "--workspace", "output", "-o", "f.html", "-o", "f.md").returncode == 0
    assert "<img" not in shown(tmp_path / "f.html")


@pytest.mark.parametrize(
    ("words", "said"),
    [((), "or add --workspace DIR"), (("--workspace", "none"), "there is no folder 'none'")],
)
def test_a_workspace_is_named(primus: Run, words: tuple[str, ...], said: str) -> None:
    done = primus("report", *words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("rank 3: ended by SIGKILL", "ended by SIGKILL"),
        (
            "rank 3, node 0: TrainingError: the loss is nan at steps 5, 6, 7",
            "TrainingError: the loss is nan at steps N",
        ),
        ("node 1: gpu-17 is lost: Slurm says down, Not responding", "gpu-N is lost: Slurm says down, Not responding"),
        ("OSError: [Errno 28] No space left: '/scratch/me/x.bin'", "OSError: [Errno N] No space left: '<path>'"),
        ("hung: no rank printed anything for 600 s", "hung: no rank printed anything for N s"),
        ("", "not recorded"),
    ],
)
def test_the_same_failure_of_two_runs_has_one_name(what: str, cause: str) -> None:
    assert _cause(what) == cause
