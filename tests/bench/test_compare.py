"""`primus bench compare`: what it says of two results, with the exit code."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run

from primus_bench.comparison import documents
from primus_core.errors import RequestError


def _result(path: Path, scale: float = 1.0, benchmark: str = "gemm", **changed: Any) -> str:
    noise = random.Random(f"{path.name}{scale}")
    samples = [1e-3 * scale * noise.gauss(1, 0.01) for _ in range(100)]
    case = {
        "name": "a",
        "parameters": {"m": 8},
        "samples": samples,
        "median": 1e-3 * scale,
        "verified": True,
        **changed,
    }
    path.write_text(json.dumps({"schema": 3, "benchmark": benchmark, "cases": [case], "device": {"name": "X"}}))
    return str(path)


@pytest.mark.parametrize(
    ("scale", "changed", "outcome", "code"),
    [
        (1.0, {}, "equal", 0),
        (1.1, {}, "slower", 1),
        (0.9, {}, "faster", 0),
        (1.0, {"verified": False, "samples": [], "median": None}, "wrong", 1),
        (1.0, {"name": "b"}, "missing", 1),
        (1.0, {"parameters": {"m": 9}}, "not comparable", 0),
    ],
)
@pytest.mark.full
def test_a_case_has_an_outcome(
    primus: Run, tmp_path: Path, scale: float, changed: dict[str, Any], outcome: str, code: int
) -> None:
    before, after = _result(tmp_path / "a.json"), _result(tmp_path / "b.json", scale, **changed)
    done = primus("bench", "compare", before, after, "--json")
    assert (done.returncode, json.loads(done.stdout)["cases"][0]["outcome"]) == (code, outcome), done.stderr


@pytest.mark.full
def test_ten_per_cent_are_within_a_tolerance_of_fifteen(primus: Run, tmp_path: Path) -> None:
    before, after = _result(tmp_path / "a.json"), _result(tmp_path / "b.json", 1.1)
    done = primus("bench", "compare", before, after, "--tolerance", "15%")
    assert (done.returncode, "equal" in done.stdout) == (0, True)


@pytest.mark.full
def test_the_directory_of_a_run_stands_for_the_result_in_it(primus: Run, tmp_path: Path) -> None:
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        _result(tmp_path / run / "gemm.json")
        for own in ("metadata.json", "plan.json", "snapshot.json"):
            (tmp_path / run / own).write_text("{}")
    assert primus("bench", "compare", "a", "b").returncode == 0
    _result(tmp_path / "b/io.json")
    refused = primus("bench", "compare", "a", "b")
    assert (refused.returncode, "fix: name one: gemm.json, io.json" in refused.stderr) == (2, True)


def test_that_both_were_not_steady_is_shown_of_both(primus: Run, tmp_path: Path) -> None:
    before, after = _result(tmp_path / "a.json"), _result(tmp_path / "b.json", 1.5)
    for path in (before, after):
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        Path(path).write_text(json.dumps({**data, "steadiness": {"steady": False, "why": "heat"}}), encoding="utf-8")
    done = primus("bench", "compare", before, after)
    for name in ("A", "B"):
        assert f"note of {name}: not steady: heat" in done.stdout


def test_a_note_that_only_one_result_has_is_shown(primus: Run, tmp_path: Path) -> None:
    before, after = _result(tmp_path / "a.json"), _result(tmp_path / "b.json", 1.5)
    for path, notes in ((before, ["both"]), (after, ["both", "the latency was not steady"])):
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        Path(path).write_text(json.dumps({**data, "notes": notes}), encoding="utf-8")
    done = primus("bench", "compare", before, after)
    assert "note of B: the latency was not steady" in done.stdout + done.stderr
    assert "both" not in done.stdout + done.stderr


def test_a_result_that_is_not_there_is_answered_with_a_near_one_or_the_command_that_writes_it(
    primus: Run, tmp_path: Path
) -> None:
    _result(tmp_path / "a.json")
    _result(tmp_path / "before.json", benchmark="memory")
    for words, fixes in {
        ("a.json", "c.json"): ["write it: primus direct -- bench gemm -M 4096 --output c.json"],
        ("before.json", "x/after"): ["write it: primus direct -- bench memory --output x/after.json"],
        ("a.json", "befor.json"): ["did you mean 'before.json'?", "primus bench compare a.json before.json"],
        ("a.json", "a1.json"): ["write it: primus direct -- bench gemm -M 4096 --output a1.json"],
    }.items():
        refused = primus("bench", "compare", *words)
        shown = [line.strip().removeprefix("fix: ") for line in refused.stderr.splitlines()[2:]]
        assert (refused.returncode, shown) == (2, fixes), refused.stderr


@pytest.mark.full
def test_what_cannot_be_compared_is_refused_with_what_to_do(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"schema": 2}')
    good = _result(tmp_path / "a.json")
    for words, said in {
        ("compare", good): "required: B",
        ("compare", good, "nothing.json"): "nothing.json cannot be read",
        ("compare", good, "old.json"): "not a result of a benchmark with schema 3",
        ("compare", good, _result(tmp_path / "io.json", benchmark="io")): "gemm cannot be compared with io",
        ("compare", good, good, "--tolerance", "x"): "'x' is not a share",
        ("gemm", "-M", "8"): "primus direct -- bench gemm -M 8",
    }.items():
        refused = primus("bench", *words)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"median": "fast"}, 'a time of the case a is "fast"'),
        ({"samples": [1.0, "a"]}, 'a time of the case a is "a"'),
        ({"samples": [0.0] * 5}, "a time of the case a is 0.0"),
        ({"samples": [10**400]}, "a time of the case a is 1000"),
        ({"samples": None}, "'samples' of the case a is null"),
        ({"verified": "false"}, "'verified' of the case a is \"false\""),
        ({"parameters": []}, "'parameters' of the case a is []"),
        ({"name": {"a": 1}}, 'case 0 has no name: {"name": {"a": 1}'),
    ],
)
def test_a_damaged_case_is_named_with_its_value(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as refused:
        documents.read(_result(tmp_path / "b.json", **changed))
    assert "b.json is damaged" in str(refused.value)
    assert said in str(refused.value)


def test_a_case_that_is_there_twice_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    found = json.loads(Path(_result(path)).read_text())
    path.write_text(json.dumps({**found, "cases": found["cases"] * 2}))
    with pytest.raises(RequestError, match="the case a is there twice"):
        documents.read(str(path))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({}, {"parameters": {"m": 9, "n": 1}}, "other parameters: m 8 → 9, n null → 1"),
        ({"verified": False}, {}, "A has a wrong result"),
        ({}, {"samples": [1.0] * 4}, "too few samples: B has 4; 5 are needed"),
    ],
)
def test_a_case_that_is_not_comparable_says_why(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], said: str
) -> None:
    a, b = (documents.read(_result(tmp_path / f"{name}.json", **one)) for name, one in (("a", old), ("b", new)))
    [row] = documents.compare(a, b, 0.05)
    assert (row.outcome, row.note) == ("not comparable", said)


def test_the_names_of_a_result_cannot_steer_the_terminal(primus: Run, tmp_path: Path) -> None:
    good, hostile = _result(tmp_path / "a.json"), _result(tmp_path / "b.json", name="\x1b]0;x\x07\ud800")
    shown = primus("bench", "compare", good, hostile)
    assert (shown.returncode, r"\x1b]0;x\x07\ud800" in shown.stdout) == (1, True), shown.stderr


@pytest.mark.parametrize("kind", ["a FIFO", "a device", "too large"])
def test_what_has_no_end_is_not_read(primus: Run, tmp_path: Path, kind: str) -> None:
    good, bad = _result(tmp_path / "a.json"), tmp_path / "b.json"
    if kind == "a FIFO":
        os.mkfifo(bad)
    elif kind == "a device":
        bad.symlink_to("/dev/zero")
    else:
        with bad.open("wb") as file:
            file.truncate(1 << 40)
    refused = primus("bench", "compare", good, str(bad))
    assert (refused.returncode, "b.json cannot be read" in refused.stderr) == (2, True), refused.stderr


def _run(workspace: Path, name: str, value: Any, case_name: str = "copy") -> None:
    (workspace / name).mkdir(parents=True)
    case = {"name": case_name, "parameters": {}, "samples": [], "median": 1.0, "unit": "GB/s", "value": value}
    found = {"schema": 3, "benchmark": "memory", "device": {"name": "X"}, "cases": [case]}
    (workspace / name / "memory.json").write_text(json.dumps(found))


@pytest.mark.full
def test_the_history_keeps_the_results_of_deleted_runs(primus: Run, tmp_path: Path) -> None:
    for day, value in enumerate((100.0, 102.0, 50.0), start=1):
        _run(tmp_path / "output", f"bench-memory_2026_11_0{day}_000000", value)
        [series] = json.loads(primus("bench", "history", "--json").stdout)["series"]
        assert len(series) == day
        shown = primus("bench", "history", "--plot")
        assert ("one result, 100 GB/s; a plot needs two" in shown.stdout) == (day == 1)
    shutil.rmtree(tmp_path / "output/bench-memory_2026_11_01_000000")
    shown = primus("bench", "history", "memory", "--plot")
    assert re.search(r"memory +copy +X +3 +50 +GB/s +-50.5% +\S{3}\n", shown.stdout), shown.stdout + shown.stderr
    assert "\x1b" not in shown.stdout


def test_a_damaged_history_is_refused_with_what_to_do(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output/bench-history.sqlite").write_text("no database at all, but long enough to be read as one" * 9)
    refused = primus("bench", "history")
    assert (refused.returncode, "remove it: rm" in refused.stderr) == (3, True), refused.stderr


def test_the_history_takes_no_value_that_is_no_number(primus: Run, tmp_path: Path) -> None:
    for day, value in enumerate(("fast", {"a": 1}, 10**400, float("inf"), 10**30), start=1):
        _run(tmp_path / "output", f"bench-memory_2026_11_0{day}_000000", value, "\x1b[31m\ud800")
    shown = primus("bench", "history")
    assert re.search(r"memory +\\x1b\[31m\\ud800 +X +1 +1e\+30 ", shown.stdout), shown.stdout + shown.stderr


def test_a_history_whose_tables_are_others_is_refused(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    with closing(sqlite3.connect(tmp_path / "output/bench-history.sqlite")) as database:
        database.execute("CREATE TABLE points (run TEXT)")
    refused = primus("bench", "history")
    assert (refused.returncode, "remove it: rm" in refused.stderr) == (3, True), refused.stderr


@pytest.mark.full
def test_a_history_of_a_later_version_is_kept_and_not_called_damaged(primus: Run, tmp_path: Path) -> None:
    _run(tmp_path / "output", "bench-memory_2026_11_01_000000", 1.0)
    assert primus("bench", "history").returncode == 0
    with closing(sqlite3.connect(tmp_path / "output/bench-history.sqlite")) as database:
        database.execute("PRAGMA user_version = 9")
    refused = primus("bench", "history")
    assert (refused.returncode, "update primus-bench" in refused.stderr) == (3, True), refused.stderr
    assert "rm " not in refused.stderr


def test_values_of_other_types_in_a_history_are_left_out(primus: Run, tmp_path: Path) -> None:
    _run(tmp_path / "output", "bench-memory_2026_11_01_000000", 1.0)
    assert primus("bench", "history").returncode == 0
    with closing(sqlite3.connect(tmp_path / "output/bench-history.sqlite")) as database, database:
        database.execute("INSERT INTO points SELECT run, NULL, benchmark, device, x'ff', '', '', 'fast', 1 FROM points")
    shown = primus("bench", "history", "--plot")
    assert (shown.returncode, "memory       copy" in shown.stdout) == (0, True), shown.stderr


def test_a_fifo_in_the_place_of_the_history_is_not_waited_for(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    os.mkfifo(tmp_path / "output/bench-history.sqlite")
    refused = primus("bench", "history")
    assert (refused.returncode, "it is not a regular file" in refused.stderr) == (3, True), refused.stderr
