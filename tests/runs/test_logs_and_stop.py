"""`primus logs` and `primus stop`, on runs that go on and on runs that have ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import Run, wait_until
from tests.core.test_direct import metadata, run_of

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(clean_environ: dict[str, str], project: Path) -> Iterator[Start]:
    """`start(*words)`: Primus in the background, ended with the test."""
    begun: list[subprocess.Popen[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        command = [str(Path(sys.executable).with_name("primus")), *words]
        process = subprocess.Popen(
            command, env=clean_environ, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        begun.append(process)
        return process

    yield run
    for process in begun:
        process.kill()
        process.communicate(timeout=60)


@pytest.fixture
def going(start: Start, project: Path) -> subprocess.Popen[str]:
    """A run that goes on, whose rank has printed `ready`."""
    process = start("direct", "--", "behave", "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.full
def test_the_log_of_a_rank_is_printed_as_it_is(primus: Run, project: Path) -> None:
    primus("direct", "--", "behave", "talk", "3000", cwd=project)
    log = run_of(project) / "logs/rank_0.log"
    assert primus("logs", "behave", cwd=project).stdout == log.read_text()
    assert primus("logs", "latest", "--follow", cwd=project).stdout == log.read_text()


def test_several_ranks_are_told_apart(primus: Run, project: Path) -> None:
    run = project / "output/x_2026_01_01_000000"
    (run / "logs").mkdir(parents=True)
    (run / "metadata.json").write_text("{}")
    for rank in (0, 1, 2, 5):
        (run / f"logs/rank_{rank}.log").write_text(f"a{rank}\nb{rank}\n")
    found = primus("logs", "x", "--rank", "0-1,5", cwd=project).stdout.splitlines()
    assert sorted(found) == [f"[rank{rank}] {line}{rank}" for rank in (0, 1, 5) for line in "ab"]
    wrong = primus("logs", "x", "--rank", "3", cwd=project)
    assert wrong.returncode == 2
    assert "why: it has 0-2, 5" in wrong.stderr
    assert "3 or 0-3,7" in primus("logs", "x", "--rank", "3-1", cwd=project).stderr


def test_an_empty_log_is_told(primus: Run, project: Path) -> None:
    run = project / "output/x_2026_01_01_000000"
    (run / "logs").mkdir(parents=True)
    (run / "metadata.json").write_text("{}")
    (run / "logs/rank_0.log").write_text("")
    shown = primus("logs", "x", cwd=project)
    assert (shown.stdout, shown.stderr) == ("", "primus: note: the rank has printed nothing\n")


@pytest.mark.parametrize("follow", [(), ("--follow",)])
def test_a_run_that_ended_before_its_ranks_began_is_no_empty_log(
    primus: Run, project: Path, follow: tuple[str, ...]
) -> None:
    run = project / "output/x_2026_01_01_000000"
    run.mkdir(parents=True)
    (run / "metadata.json").write_text('{"status": "failed"}')
    told = primus("logs", "x", *follow, cwd=project)
    assert told.returncode == 2
    assert f"fix: primus runs show {run}" in told.stderr


@pytest.mark.full
def test_what_hooks_and_the_launcher_said_is_apart(primus: Run, project: Path) -> None:
    (project / "hooks").mkdir()
    (project / "hooks/1.sh").write_text("echo from the hook\n")
    primus("direct", "--", "behave", "exit", "0", cwd=project)
    assert primus("logs", "behave", "--launch", cwd=project).stdout == "from the hook\n"


@pytest.mark.full
def test_a_run_is_followed_to_its_end(start: Start, going: subprocess.Popen[str], primus: Run, project: Path) -> None:
    follower = start("logs", "latest", "--follow")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "ready\n"
    assert follower.poll() is None
    log = run_of(project) / "logs/rank_0.log"
    with log.open("a") as file:
        file.write("more\n")
    assert follower.stdout.readline() == "more\n"
    assert primus("stop", "latest", cwd=project).returncode == 0
    assert follower.wait(timeout=60) == 0


@pytest.mark.full
def test_a_log_with_a_limit_is_followed_into_its_pieces(
    start: Start, going: subprocess.Popen[str], primus: Run, project: Path
) -> None:
    """They are written by turns, each with another first line (`primus_machine.files.capped_log`)."""
    follower = start("logs", "latest", "--follow")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "ready\n"
    log = run_of(project) / "logs/rank_0.log"
    for number, end in enumerate((".1", ".2", ".1", ".2")):
        head, line = f"primus: {number}000 bytes of this log are left out so far (--log-limit)\n", f"line {number}\n"
        Path(f"{log}{end}").write_text(head + line + "more\n" * number)
        assert [follower.stdout.readline() for _ in range(2 + number)] == [head, line, *["more\n"] * number]
    assert primus("stop", "latest", cwd=project).returncode == 0
    assert follower.wait(timeout=60) == 0


@pytest.mark.full
def test_stop_ends_a_run_and_waits_for_it(going: subprocess.Popen[str], primus: Run, project: Path) -> None:
    result = primus("stop", "behave", cwd=project)
    assert result.returncode == 0
    assert result.stderr.endswith(": interrupted\n")
    assert going.wait(timeout=60) == 143
    assert metadata(run_of(project))["status"] == "interrupted"
    again = primus("stop", "behave", cwd=project)
    assert (again.returncode, "is not running: its status is interrupted" in again.stderr) == (0, True)


@pytest.mark.full
def test_a_run_of_another_host_is_not_guessed_at(primus: Run, project: Path) -> None:
    primus("direct", "--", "behave", "exit", "0", cwd=project)
    run = run_of(project)
    (run / "metadata.json").write_text(json.dumps({**metadata(run), "status": "started", "host": "node7"}))
    result = primus("stop", "behave", cwd=project)
    assert result.returncode == 3
    assert "runs on node7" in result.stderr


@pytest.mark.parametrize("command", ["logs", "stop"])
def test_a_run_that_is_not_there_is_a_wrong_request(primus: Run, project: Path, command: str) -> None:
    result = primus(command, "nothing", cwd=project)
    assert result.returncode == 2
    assert "there is no run 'nothing'" in result.stderr or "no runs" in result.stderr


def test_a_run_whose_primus_was_killed_is_not_over_while_its_ranks_live(
    start: Start, primus: Run, project: Path
) -> None:
    process = start("direct", "--grace-period", "60", "--", "behave", "stubborn")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait(timeout=60)
    shown = primus("runs", "show", "behave", cwd=project).stdout
    assert "status     lost, its ranks are still running: processes " in shown
    done = primus("stop", "behave", "--timeout", "0.5", cwd=project)
    assert done.returncode == 3
    [number] = re.findall(
        r"its ranks, which have lost their Primus: (\d+) is still running$", done.stderr, re.MULTILINE
    )
    assert f"kill -9 {number}" in done.stderr
    os.kill(int(number), signal.SIGKILL)
    wait_until(lambda: primus("stop", "behave", cwd=project).returncode == 0)
