"""Whatever the files of a run hold, of any type and any size, no command ends in a traceback."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.core.run_directories import make, metrics, seal

from primus_core.cli.main import main
from primus_machine.packages import version_of

ODD: tuple[Any, ...] = (
    7,
    -1,
    10**400,
    1e308,
    1e99,
    -1e99,
    1e-320,
    True,
    None,
    "x",
    "9" * 50,
    [],
    {},
    [7],
    [None],
    [[]],
    {"a": None},
)
OTHER = {"run_id": "a", "directory": "b"}
ATTEMPT = {"started": 1.0, "ended": 2.0, "exit_code": 1, "last_step": 2, "what": "a", "lost_nodes": ["n"]}
RECORD = {
    "first_failure": {"rank": 0, "what": "x", "node_rank": 0, "exit_code": 1, "time": 1.0},
    "attempts": [ATTEMPT, ATTEMPT], "continues": OTHER, "started_by": OTHER, "parent": OTHER,
    "files_changed": {"a": "b"}, "plan_differs": [{"key": "a", "submitted": 1, "here": 2}],
    "scheduler": {"name": "slurm", "flavour": "x", "version": "1"},
}  # fmt: skip
Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every place in a JSON value but the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield (*at, key)
        yield from places(below, (*at, key))


def changed(text: str, at: Place, value: Any) -> str:
    """JSON text with another value at a place."""
    data = json.loads(text)
    part = data
    for key in at[:-1]:
        part = part[key]
    part[at[-1]] = value
    return json.dumps(data)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two runs of a workspace."""
    monkeypatch.chdir(tmp_path)
    first, second = make(tmp_path / "o", "a_2026_11_21_101526", metadata=RECORD), make(tmp_path / "o")
    for run in (first, second):
        metrics(run, 3.0, 2.0, 1.0)
    return first, second


FILES = ("plan.json", "metadata.json", "metrics.jsonl", "env/system_info.json", "code/code.json")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.full
def test_odd_values_in_a_file_of_a_run_are_no_bug_of_ours(
    runs: tuple[Path, Path], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = (str(path) for path in runs)
    commands = (
        ["runs", "show", run], ["runs", "list", "o"], ["runs", "diff", other, run], ["report", run],
        ["replay", run, "--check"], ["diagnose", run],
    )  # fmt: skip
    path, picked = runs[0] / name, random.Random(name)
    whole = path.read_text()
    text = whole.splitlines()[-1] if name.endswith("l") else whole
    for at in picked.sample(found := list(places(json.loads(text))), min(len(found), 24)):
        odd = picked.choice(ODD)
        path.write_text(whole.replace(text, changed(text, at, odd)))
        seal(runs[0])
        for words in commands:
            with contextlib.suppress(SystemExit):
                assert main(words) in (0, 2, 3), (words, at, odd, capsys.readouterr().err)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "at", "odd", "words"),
    [
        ("metrics.jsonl", ("step_time_s",), 1e308, ["report", "o/a_2026_11_21_101526"]),
        ("metrics.jsonl", ("tokens_per_second",), 10**400, ["runs", "diff", "latest", "a", "--workspace", "o"]),
        ("metadata.json", ("last_loss",), 10**400, ["runs", "show", "o/a_2026_11_21_101526"]),
        ("metadata.json", ("first_failure", "time"), 1e99, ["diagnose", "o/a_2026_11_21_101526"]),
        ("env/system_info.json", ("gpus",), True, ["report", "o/a_2026_11_21_101526"]),
    ],
)
def test_numbers_that_no_run_has_count_as_not_known(
    runs: tuple[Path, Path], name: str, at: Place, odd: Any, words: list[str]
) -> None:
    if words[0] != "runs" and not version_of(f"primus-{words[0]}"):
        pytest.skip(f"primus-{words[0]} is not installed")
    path = runs[0] / name
    lines = path.read_text().splitlines() if name.endswith("l") else [path.read_text()]
    path.write_text("".join(changed(line, at, odd) + "\n" for line in lines))
    assert main(words) == 0


def test_a_snapshot_of_another_form_is_damaged_and_says_where(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = runs[0] / "plan.json"
    path.write_text(changed(path.read_text(), ("place",), 7))
    seal(runs[0])
    assert main(["runs", "diff", *map(str, runs)]) == 3
    assert "plan.json is damaged\n  why: its 'place' is 7, not an object" in capsys.readouterr().err
