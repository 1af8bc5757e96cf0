"""Real hangs of one of four ranks: the rank and its line are named before Primus ends it, and nothing is left."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT, Run

from primus_diagnose import read

TASKS = ROOT / "tests/watch/hanging_tasks.py"
LIMIT_S = 6
ODD = 2


def line_of(task: str) -> str:
    """`tasks.py:27 in collective`: where a task's odd rank is."""
    lines = TASKS.read_text(encoding="utf-8").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(f"def {task}("))
    number = next(number for number in range(begin, len(lines)) if "the odd rank is here" in lines[number])
    return f"tasks.py:{number + 1} in {task}"


def ended(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(TASKS, tmp_path / "tasks.py")
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n", encoding="utf-8")
    return tmp_path


def dear(task: str, words: str, signature: str) -> Any:
    return pytest.param(task, words, signature, marks=pytest.mark.full)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("task", "words", "signature"),
    [
        dear("collective", "in a collective: barrier", "collective.desync"),
        ("python", "in the program's own code", "collective.rank_behind"),
        dear("native", "in a native call: pthread_mutex_lock (libc.so.6)", "collective.rank_behind"),
        dear("loader", "in its data loader: worker process ", "collective.rank_behind"),
        dear("stopped", "stopped by a signal", "collective.rank_behind"),
    ],
)
def test_the_rank_that_hangs_is_named_with_its_line(
    task: str, words: str, signature: str, primus: Run, project: Path
) -> None:
    limits = ("--hang-timeout", str(LIMIT_S), "--start-timeout", "300", "--grace-period", "1")
    done = primus("direct", *limits, "--", "hang", task, cwd=project, env={"GPUS_PER_NODE": "4"})
    assert done.returncode == 1
    console = done.stdout + done.stderr
    assert f"primus: ranks hang: rank {ODD} on " in console
    [at] = re.findall(r"^  at +(rank .*)$", console, re.MULTILINE)
    assert at.startswith(f"rank {ODD}: {words}")
    assert line_of(task) in at
    assert "others   ranks 0-1, 3: in a collective: all_reduce, at " in console
    assert "most recent call first" not in console  # the stacks themselves are in the logs
    [directory] = project.glob(f"output/hang-{task}_2*")
    verdict = read(str(directory))
    assert verdict
    assert verdict.cause
    assert (verdict.cause.signature, verdict.cause.first.rank) == (signature, ODD)
    assert line_of(task) in verdict.cause.first.code
    report = json.loads((directory / "hang/1/node_0.json").read_text(encoding="utf-8"))
    assert ended([row["pid"] for row in report["places"]])
    failed = [json.loads(line) for line in (directory / "logs/events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["event"] for row in failed if row["event"] == "hang"] == ["hang"]
