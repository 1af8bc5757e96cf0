"""How a run ended: the first failure among many, and the closing lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.journal import events, summary
from primus_core.journal.events import checkpoint_saved
from primus_core.journal.metrics import Metrics, Validation, append, is_step, log_line
from primus_core.outcome import attempts, closing, continuing, failed_lines, failure
from primus_core.output.console import say
from primus_core.runtimes.direct.torchrun import TORCHRUN

# As torch 2.13 prints it when rank 0 is killed, rank 1 crashes and rank 2 is ended by torchrun.
TABLE = """\
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=======================================================
train.py FAILED
-------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_10:15:26
  host      : node-7
  rank      : 1 (local_rank: 1)
  exitcode  : -11 (pid: 13158)  (SIGSEGV)
  error_file: <N/A>
  traceback : Signal 11 (SIGSEGV) received by PID 13158
[2]:
  time      : 2026-11-21_10:15:26
  host      : node-7
  rank      : 2 (local_rank: 2)
  exitcode  : -15 (pid: 13159)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 13159
-------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_10:15:26
  host      : node-7
  rank      : 0 (local_rank: 0)
  exitcode  : -9 (pid: 13157)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 13157
=======================================================
"""


def record(run: Path, rank: int, *, at: float, kind: str = "ValueError", message: str = "bad", code: int = 1) -> None:
    """What a failing rank leaves behind."""
    folder = run / "logs/failures"
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "time": at,
        "rank": rank,
        "node_rank": rank // 8,
        "host": f"node-{rank // 8}",
        "exit_code": code,
        "type": kind,
        "message": message,
        "traceback": f"Traceback of rank {rank}",
    }
    (folder / f"rank_{rank}.json").write_text(json.dumps(data))


def first(run: Path, log: str = "") -> failure.Failure:
    """The first failure, which there must be."""
    found = failure.first_failure(str(run), TORCHRUN.signalled(log))
    assert found
    return found


def test_nothing_said_is_no_failure(tmp_path: Path) -> None:
    assert failure.first_failure(str(tmp_path), TORCHRUN.signalled("some text")) is None


def test_the_earliest_exception_counts_not_the_lowest_rank(tmp_path: Path) -> None:
    record(tmp_path, 0, at=20.0, kind="ConnectionError")
    record(tmp_path, 9, at=10.0)
    record(tmp_path, 3, at=30.0, kind="ConnectionError")
    found = first(tmp_path)
    assert (found.rank, found.node_rank, found.host) == (9, 1, "node-1")
    assert found.what == "ValueError: bad"
    assert found.traceback == "Traceback of rank 9"


def test_a_rank_that_was_killed_comes_before_all_that_raised(tmp_path: Path) -> None:
    record(tmp_path, 1, at=1.0, kind="ConnectionError")
    found = first(tmp_path, TABLE)
    assert (found.rank, found.exit_code, found.host) == (0, 137, "node-7")
    assert found.what.startswith("ended by SIGKILL (out of memory?")


def test_a_rank_that_torchrun_killed_for_not_ending_is_not_the_first_failure(tmp_path: Path) -> None:
    record(tmp_path, 1, at=1.0, kind="TimeoutError")
    forced = "W1125 api.py:1047] Unable to shutdown process 13157 via 15, forcefully exiting via 9\n"
    assert first(tmp_path, forced + TABLE.replace("-11", "-15")).rank == 1


def test_of_several_killed_ranks_the_one_that_torchrun_saw_first_counts(tmp_path: Path) -> None:
    assert first(tmp_path, TABLE).rank == 0
    others, root = TABLE.split("Root Cause")
    assert first(tmp_path, others).rank == 1
    swapped = others.replace("rank      : 1", "rank      : 0") + "Root Cause" + root.replace(": 0 (", ": 1 (")
    assert first(tmp_path, swapped).rank == 1


def test_a_rank_that_was_only_told_to_end_is_not_the_cause_of_an_exception(tmp_path: Path) -> None:
    table = TABLE.replace("-11", "-15").replace("-9", "-6")
    record(tmp_path, 5, at=1.0)
    assert first(tmp_path, table).rank == 5


def test_without_any_exception_a_rank_that_was_told_to_end_is_the_first(tmp_path: Path) -> None:
    found = first(tmp_path, TABLE.replace("-11", "-15").replace("-9", "-6"))
    assert (found.rank, found.what, found.exit_code) == (0, "ended by SIGABRT", 134)


def test_nodes_in_one_run_directory_set_aside_each_attempt_once_whatever_each_counts(tmp_path: Path) -> None:
    failures = tmp_path / "logs/failures"
    for said in ("first", "second"):
        failures.mkdir(parents=True, exist_ok=True)
        (failures / "rank_0.json").write_text(said)
        for _ in range(2):
            attempts.set_aside(str(tmp_path), 1)
    assert [path.read_text() for path in sorted(tmp_path.glob("logs/failures_*/*"))] == ["first", "second"]
    assert not list(failures.iterdir())


def test_a_signal_without_a_name_is_a_number(tmp_path: Path) -> None:
    assert first(tmp_path, TABLE.replace("-9 ", "-40 ").replace("-11", "1").replace("-15", "1")).what == (
        "ended by signal 40"
    )


def test_an_exit_code_in_the_table_counts_where_the_rank_has_recorded_nothing(tmp_path: Path) -> None:
    """It left by `os._exit`, and another rank may have missed it."""
    table = TABLE.replace("exitcode  : -", "exitcode  : ")
    found = first(tmp_path, table)
    assert (found.rank, found.exit_code, found.what) == (0, 9, "ended with exit code 9 and recorded no exception")
    record(tmp_path, 1, at=1.0, kind="ConnectionError")
    assert first(tmp_path, table).rank == 0
    record(tmp_path, 0, at=2.0)
    assert first(tmp_path, table).rank == 1, "the launcher saw the end of a rank first that has its own record"


def block(found: failure.Failure | None, code: int, **more: Any) -> str:
    """The closing block."""
    return failed_lines.report(found, code, run_dir="output/x", log="output/x/logs/rank_9.log", step="worker", **more)


def test_the_closing_block_names_failure_rank_node_and_log(tmp_path: Path) -> None:
    record(tmp_path, 9, at=10.0, message="first line\nsecond line", code=7)
    lines = block(first(tmp_path), 7, last_metrics="40/120, loss 4.2100").splitlines()
    assert lines[0] == "primus: worker failed"
    rows = {line[:16].strip(): line[16:] for line in lines[1:]}
    assert rows["exit code"] == "7"
    assert rows["first failure"].startswith("rank 9 on node 1 (node-1) at ")
    assert rows["what"] == "ValueError: first line"
    assert rows["last step"] == "40/120, loss 4.2100"
    assert rows["log"] == "output/x/logs/rank_9.log"
    assert rows["run"] == "output/x"


def test_what_primus_repeats_of_a_rank_gives_the_terminal_no_orders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, 9, at=10.0, message="\x1b]0;title\x07\x1b[2Jgone\x9b1m\u202e")
    say(block(first(tmp_path), 1, last_metrics="step\t1"))
    shown = capsys.readouterr().err
    assert all(char.isprintable() or char in "\n\t" for char in shown)
    assert r"what          ValueError: \x1b]0;title\x07\x1b[2Jgone\x9b1m\u202e" in shown


@given(st.integers(0, 255))
def test_any_exit_code_can_be_reported(code: int) -> None:
    assert f"exit code     {code}\n" in block(None, code)


def test_the_signal_that_ended_the_launcher_is_named() -> None:
    killed = failure.of_process(137, "node-1", 1, None)
    assert "the launcher was ended by SIGKILL" in block(killed, 137)
    assert killed
    assert killed.rank == -1, "no rank"
    assert failure.of_process(255, "node-1", 1, None) is None


def test_where_native_code_ended_a_lone_rank_the_last_line_of_its_log_is_told(tmp_path: Path) -> None:
    log = tmp_path / "rank_0.log"
    log.write_text("an error that was none\nF1122 Unknown flag in XLA_FLAGS: --xla_nonsense\n\n")
    assert "what          F1122 Unknown flag in XLA_FLAGS" in block(failure.of_process(1, "vm", 0, 0, str(log)), 1)
    silent = failure.of_process(7, "vm", 0, 0, str(tmp_path / "none.log"))
    assert silent
    assert silent.what == "ended with exit code 7 and recorded no exception"


def test_where_no_rank_said_why_the_launchers_last_line_is_told() -> None:
    text = failed_lines.report(
        None, 1, run_dir="r", log="l", step="prepare text", launch_log="Traceback\nValueError: no text\n"
    )
    assert "what          ValueError: no text\n" in text


def test_an_error_of_primus_that_a_step_printed_is_told_and_not_the_advice_below_it() -> None:
    printed = "reading\nprimus: error: 7005 tokens, but 4000\n  why: too few\n  fix: use the model's\n"
    assert "what          7005 tokens, but 4000\n" in block(None, 1, launch_log=printed)


def row(step: int, loss: float | None, **more: Any) -> dict[str, Any]:
    """A line of metrics."""
    return {"step": step, "steps": 120, "loss": loss, **more}


def test_metrics_are_read_line_by_line_and_a_cut_or_strange_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        json.dumps(row(1, 2.5))
        + '\nnot json\n[1]\n3\n{"step": 2}\n{"step": 2, "steps": 3, "loss": null}\n'
        + json.dumps(row(3, float("nan")))
        + "\n"
        + json.dumps(row(4, 1.0))[:-3]
    )
    assert [found["step"] for found in summary.read(str(path))] == [1, 2, 3]
    assert summary.read(str(tmp_path / "nothing")) == []


def test_the_last_step_is_one_phrase() -> None:
    assert closing.last_step([row(1, 9.0), row(40, 4.21)]) == "40/120, loss 4.2100"
    assert closing.last_step([]) == ""
    assert closing.last_step([row(40, None)]) == "40/120, loss not finite"


def test_the_closing_lines_of_a_completed_run() -> None:
    rows = [row(1, 10.0, tokens_per_second=100.0), row(60, 5.0, tokens_per_second=1300.0), row(120, 4.0)]
    text = closing.render(
        rows, status="completed", run_dir="output/x", seconds=125.4, next_steps=("primus again", "primus more")
    )
    assert text == (
        "primus: completed in 2 min 5 s\n"
        "  run    output/x\n"
        "  loss   10.0000 at step 1 → 4.0000 at step 120\n"
        "  speed  700 tokens/s (median over 2 logged steps)\n"
        "  next   primus again\n"
        "         primus more\n"
    )


def test_a_step_that_was_done_again_counts_once() -> None:
    rows = [
        row(1, 9.0, tokens_per_second=100.0),
        row(2, 8.0, tokens_per_second=100.0),
        row(2, 8.0, tokens_per_second=300.0),
    ]
    text = closing.render(rows, status="completed", run_dir="r", seconds=1.0, next_steps=())
    assert "200 tokens/s (median over 2 logged steps)" in text


def test_an_interrupted_run_is_told_what_to_type_next() -> None:
    text = closing.render([], status="interrupted", run_dir="output/x", seconds=3.04, next_steps=("primus again",))
    assert text == "primus: interrupted in 3.0 s\n  run    output/x\n  next   primus again\n"


@pytest.mark.parametrize(
    ("saved", "continues", "shown"),
    [
        ([40, 80], "", "primus direct -- train x    # continues from step 80"),
        ([40], "/runs/before", "primus direct -- train x    # continues from step 40"),
        ([40, 120], "", ""),
        ([], "/runs/before", "primus direct -- train x --continue before@7    # continues before again"),
        ([], "", ""),
    ],
    ids=["its own", "its own first", "nothing is left to train", "the one before", "none"],
)
def test_the_command_that_continues_a_run_names_what_it_continues(
    tmp_path: Path, saved: list[int], continues: str, shown: str
) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row(90, 4.0)) + "\n", encoding="utf-8")
    (tmp_path / "logs").mkdir()
    for step in saved:
        checkpoint_saved(str(tmp_path), step=step, path="x")
    typed = ["primus", "direct", "--", "train", "x", "--continue", "before@7"]
    assert continuing.continuing_line(typed, str(tmp_path), continues) == shown


def test_a_replay_is_not_said_to_continue(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row(90, 4.0)) + "\n", encoding="utf-8")
    (tmp_path / "logs").mkdir()
    checkpoint_saved(str(tmp_path), step=80, path="x")
    line = continuing.continuing_line(["primus", "replay", "before"], str(tmp_path), "")
    assert line == "primus replay before    # from the first step"


def test_after_a_loss_that_is_not_finite_a_tenth_of_the_learning_rate_that_was_typed_is_proposed(
    tmp_path: Path,
) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row(1, None)) + "\n", encoding="utf-8")
    typed = ["primus", "direct", "--", "train", "x", "--optimizer.lr=0.004", "min_lr=0", "lr=1e9"]
    shown = "primus direct -- train x --optimizer.lr=0.0004 min_lr=0 lr=0.001 --new"
    how = "    # with a lower learning rate: the loss was not finite"
    assert continuing.continuing_line(typed, str(tmp_path), "") == shown + how
    shown = "primus direct -- train x --new    # with a lower learning rate: the loss was not finite"
    assert continuing.continuing_line(typed[:5], str(tmp_path), "") == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "0.0 s"), (59.4, "59.4 s"), (60.0, "1 min 0 s"), (59.6, "1 min 0 s")]
)
def test_a_duration_never_says_sixty_seconds(seconds: float, shown: str) -> None:
    text = closing.render([], status="completed", run_dir="r", seconds=seconds, next_steps=())
    assert text.startswith(f"primus: completed in {shown}\n")


def test_an_evaluation_is_a_line_of_its_own_and_no_step(tmp_path: Path) -> None:
    file = str(tmp_path / "metrics.jsonl")
    evaluation = Validation(step=2, steps=4, validation_loss=1.75)
    append(file, Metrics(step=2, steps=4, loss=1.5))
    append(file, evaluation)
    assert closing.last_step(summary.read(file)) == "2/4, loss 1.5000"
    assert [is_step(json.loads(line)) for line in Path(file).read_text().splitlines()] == [True, False]
    assert log_line(evaluation) == "iteration 2/4 | validation loss: 1.75000"


def test_each_attempt_has_its_records_apart(tmp_path: Path) -> None:
    for attempt in range(3):  # two nodes that were started by hand count the same one
        record = tmp_path / "logs/failures/rank_0.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(str(attempt))
        attempts.set_aside(str(tmp_path), 1)
    assert [(tmp_path / f"logs/failures_{n}/rank_0.json").read_text() for n in (1, 2, 3)] == ["0", "1", "2"]
    assert list((tmp_path / "logs/failures").iterdir()) == []


def test_every_code_of_a_signal_is_one() -> None:
    ends = [failure.of_process(128 + number, "here", 0, 0) for number in (1, 15)]
    assert [end and end.what for end in ends] == ["ended by SIGHUP", "ended by SIGTERM"]


@pytest.mark.parametrize(
    ("rows", "last"),
    [
        ([], None),
        ([(1, 2.0, 0.5), (2, 2.1, 0.5)], None),
        ([(1, 2.0, 0.5), (2, None, None), (3, 2.0, 0.5)], None),  # it was finite again
        ([(1, 2.0, 0.5), (2, 2.1, 0.5), (3, None, None)], 2),
        ([(1, 2.0, 0.5), (2, 2.1, None), (3, None, None)], 1),  # the weights of step 2 are not finite either
        ([(1, 2.0, None), (2, None, None)], 1),  # a framework that does not say the norm
        ([(1, None, None)], 0),
    ],
)
def test_the_last_finite_step_of_a_training_that_ended_with_a_loss_that_is_not(
    rows: list[tuple[int, float | None, float | None]], last: int | None
) -> None:
    found = [{"step": step, "loss": loss, "grad_norm": norm} for step, loss, norm in rows]
    assert continuing.last_finite(found) == last


def test_a_training_that_diverged_starts_again_from_the_last_good_checkpoint_that_is_left(tmp_path: Path) -> None:
    run, rows = tmp_path / "exp_1", [1.0, 1.0, 1.0, 1.0, None, None]
    (run / "logs").mkdir(parents=True)
    text = "".join(json.dumps({"step": at, "steps": 9, "loss": loss}) + "\n" for at, loss in enumerate(rows, 1))
    (run / "metrics.jsonl").write_text(text)
    assert continuing.restart_words(str(run)) == "--new"
    for step in (1, 2, 3, 4, 5):
        events.Events(f"{run}/{events.FILE}").emit(events.CHECKPOINT_SAVED, step=step, path=str(run / f"step-{step}"))
        (run / f"step-{step}").mkdir()
    assert continuing.restart_words(str(run)) == "--continue exp_1@3"
    (run / "step-3").rmdir()
    assert continuing.restart_words(str(run)) == "--continue exp_1@2"
    (run / "metrics.jsonl").write_text(text + '{"step": 7, "steps": 9, "loss": 1.0}\n')
    assert continuing.restart_words(str(run)) == ""
