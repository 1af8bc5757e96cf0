"""Ranks that fail are started again while it gets them further, and ranks that hang are ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.core.test_direct import metadata, run_of

from primus_core.journal.record import Attempt
from primus_core.outcome.retry_policy import count_without_progress

TASKS = '''
"""Trains on paper: each start goes on from the last step, and fails where the words say."""
import json, os, pathlib, time
from primus_core import register_task
from primus_core.errors import RequestError
from primus_core.journal.metrics import Metrics, append

@register_task("steps")
def steps(call):
    "steps TOTAL FAIL_AT[,FAIL_AT...] [NAN_FROM]: the nth start fails after that step, - at once; hang and talk take long."
    run = pathlib.Path(call.run_dir)
    starts = len(list(run.glob("start*"))) + 1
    (run / f"start{starts}").touch()
    total, fails = int(call.words[0]), call.words[1].split(",") if len(call.words) > 1 else []
    fail = fails[starts - 1] if starts <= len(fails) else ""
    if fail == "refused":
        raise RequestError("this layout cannot be")
    if fail == "-":
        raise ValueError(f"start {starts} fails at once")
    if fail == "talk":
        for _ in range(60):
            print("still here", flush=True)
            time.sleep(0.1)
    if fail == "hang":
        print("quiet from now on", flush=True)
        time.sleep(600)
    saved = run / "saved"
    first = int(saved.read_text()) + 1 if saved.exists() else 1
    for step in range(first, total + 1):
        is_nan = step >= int(call.words[2]) if len(call.words) > 2 else False
        loss = float("nan") if is_nan else 1.0 / step
        append(os.environ["PRIMUS_METRICS_FILE"], Metrics(step=step, steps=total, loss=loss))
        saved.write_text(str(step))
        if str(step) == fail:
            raise ValueError(f"start {starts} fails after step {step}")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with that task."""
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n")
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


def starts(run: Path) -> int:
    return len(list(run.glob("start*")))


def attempts(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = metadata(run)["attempts"]
    return found


def steps(run: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_failing_rank_ends_the_run_unless_somebody_asks_for_restarts(primus: Run, folder: Path) -> None:
    result = primus("direct", "--", "steps", "5", "2", cwd=folder)
    assert result.returncode == 1
    assert starts(run_of(folder, "steps")) == 1
    [only] = attempts(run_of(folder, "steps"))
    assert (only["exit_code"], only["last_step"], only["what"]) == (1, 2, "ValueError: start 1 fails after step 2")


@pytest.mark.torch
def test_steps_whose_loss_is_not_finite_are_no_progress(primus: Run, folder: Path) -> None:
    result = primus("direct", "--single", "--max-restarts", "1", "--", "steps", "9", "3,5,7,9", "3", cwd=folder)
    assert (result.returncode, starts(run_of(folder, "steps"))) == (1, 2), result.stderr
    assert "not started again: restart brought no new step" in result.stderr
    assert [one["last_step"] for one in attempts(run_of(folder, "steps"))] == [2, None]


@pytest.mark.torch
@pytest.mark.full
def test_a_start_that_gets_further_is_no_vain_restart(primus: Run, folder: Path) -> None:
    result = primus("direct", "--max-restarts", "1", "--", "steps", "6", "1,2,3,4,5", cwd=folder)
    assert result.returncode == 0, result.stderr
    run = run_of(folder, "steps")
    assert steps(run) == [1, 2, 3, 4, 5, 6]
    assert [one["last_step"] for one in attempts(run)] == [1, 2, 3, 4, 5, 6]
    assert metadata(run)["status"] == "completed"
    assert "attempt 1 ended with exit code 1 at step 1: starting again" in result.stderr
    events = [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines()]
    assert [event["attempt"] for event in events if event["event"] == "restart"] == [2, 3, 4, 5, 6]
    assert (run / "logs/failures_1/rank_0.json").exists()
    shown = primus("runs", "show", "steps", cwd=folder).stdout.splitlines()
    [second] = [line for line in shown if line.startswith("attempt 2")]
    assert second.endswith("to step 2, ValueError: start 2 fails after step 2")


@pytest.mark.torch
@pytest.mark.full
def test_the_last_step_of_a_run_may_be_one_that_was_not_logged(primus: Run, folder: Path) -> None:
    event = "events.Events(call.run_dir + '/' + events.FILE).emit(events.TRAINING_ENDED, step=6)"
    text = TASKS.replace("    saved = run", f"    from primus_core.journal import events\n    {event}\n    saved = run")
    (folder / "tasks.py").write_text(text)
    assert primus("direct", "--", "steps", "4", cwd=folder).returncode == 0
    run = run_of(folder, "steps")
    assert steps(run) == [1, 2, 3, 4]
    assert (metadata(run)["last_step"], attempts(run)[0]["last_step"]) == (6, 6)
    assert json.loads(primus("runs", "list", "--json", cwd=folder).stdout)[0]["last_step"] == 6


@pytest.mark.parametrize(("fails", "begun"), [("-,-,-,-", 3), ("2,-,-,-,-", 3), ("2,3,-,-,-,-", 4)])
@pytest.mark.full
def test_a_crash_loop_stops_after_so_many_vain_restarts(primus: Run, folder: Path, fails: str, begun: int) -> None:
    result = primus("direct", "--max-restarts", "2", "--", "steps", "9", fails, cwd=folder)
    assert result.returncode == 1
    assert starts(run_of(folder, "steps")) == begun
    reached = [None if step == "-" else int(step) for step in fails.split(",")[:begun]]
    assert [one["last_step"] for one in attempts(run_of(folder, "steps"))] == reached, "each its own"
    assert "not started again: 2 restarts in a row brought no new step" in result.stderr
    assert f"ValueError: start {begun} fails at once" in result.stderr, "the last failure is the one that counts"


def test_a_rank_that_refuses_its_request_is_not_started_again(primus: Run, folder: Path) -> None:
    result = primus("direct", "--max-restarts", "3", "--", "steps", "3", "refused", cwd=folder)
    assert (result.returncode, starts(run_of(folder, "steps"))) == (2, 1)
    assert "not started again: the request is refused, and would be again" in result.stderr


@pytest.mark.full
def test_a_rank_that_hangs_is_ended_and_named(primus: Run, folder: Path) -> None:
    result = primus("direct", "--hang-timeout", "2", "--", "steps", "3", "hang", cwd=folder)
    assert result.returncode == 1
    assert "hung: no rank printed anything for 2 s" in result.stderr
    log = next(line.split()[1] for line in result.stderr.splitlines() if line.startswith("  log "))
    assert (folder / log).exists()
    assert metadata(run_of(folder, "steps"))["first_failure"]["what"].startswith("hung")
    assert "first failure" not in result.stderr


@pytest.mark.full
def test_a_rank_that_prints_does_not_hang_however_long_it_takes(primus: Run, folder: Path) -> None:
    result = primus("direct", "--hang-timeout", "4", "--", "steps", "3", "talk", cwd=folder)
    assert result.returncode == 0, result.stderr


@pytest.mark.full
def test_a_rank_that_hung_is_started_again_where_asked(primus: Run, folder: Path) -> None:
    words = ("--hang-timeout", "2", "--max-restarts", "1")
    result = primus("direct", *words, "--", "steps", "3", "hang", cwd=folder)
    assert result.returncode == 0, result.stderr
    first, second = attempts(run_of(folder, "steps"))
    assert (first["what"], second["what"]) == ("hung: no rank printed anything for 2 s", "")


@pytest.mark.full
def test_a_signal_ends_a_run_that_would_be_started_again(primus: Run, project: Path) -> None:
    result = primus("direct", "--max-restarts", "3", "--", "behave", "signal", "15", cwd=project)
    assert result.returncode == 143
    assert len(attempts(run_of(project))) == 4, "the rank's own signal is a failure as any other"


@pytest.mark.parametrize(
    ("last_steps", "vain"),
    [
        ([], 0), ([None], 0), ([5], 0), ([5, 5], 1), ([None, None, None], 2), ([5, 5, 6], 0), ([5, 6, 6, 6], 2),
        ([0, 0], 1), ([5, "told 5", 5], 1), ([5, 5, "told 5"], 1), (["told 3", 3], 1),
    ],
)  # fmt: skip
def test_only_attempts_that_ended_by_themselves_without_a_new_step_are_vain(
    last_steps: list[int | str | None], vain: int
) -> None:
    made = [
        Attempt(last_step=int(step.removeprefix("told ")), ended_by_others=True) if isinstance(step, str)
        else Attempt(last_step=step) for step in last_steps
    ]  # fmt: skip
    assert count_without_progress(made) == vain


@pytest.mark.parametrize("words", [("--max-restarts", "-1"), ("--max-restarts", "x"), ("--hang-timeout", "0")])
def test_wrong_numbers_are_refused(primus: Run, folder: Path, words: tuple[str, ...]) -> None:
    result = primus("direct", *words, "--", "steps", "3", cwd=folder)
    assert result.returncode == 2
    assert not (folder / "output").exists()
