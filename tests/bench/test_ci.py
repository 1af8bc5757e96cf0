"""`primus ci` on a task that logs a training's metrics: what it says of a changed loss, a slow-down, and a failed run."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.conftest import Run, wait_until

pytestmark = pytest.mark.full

_TASK = """
import os, signal
from primus_core import register_task
from primus_core.journal.metrics import Metrics, append

@register_task("learn", scope="run")
def learn(call):
    "Log a training: LOSS SPEED CODE."
    loss, speed, code = map(float, call.words)
    for step in range(1, 41):
        figures = dict(tokens_per_second=speed * (1 + 0.01 * (step % 5)), memory_gib=3.0)
        append(os.environ["PRIMUS_METRICS_FILE"], Metrics(step=step, steps=40, loss=loss / step, **figures))
    while code == 99:
        signal.pause()
    return int(code)
"""


@pytest.fixture
def checks(tmp_path: Path, primus: Run) -> Path:
    """A file of one check, with its golden values."""
    (tmp_path / "learn.py").write_text(_TASK)
    (tmp_path / "primus.yaml").write_text("plugins: [./learn.py]\n")
    file = _write(tmp_path)
    updated = primus("ci", "--update")
    assert updated.returncode == 0, updated.stderr
    return file


def _write(folder: Path, loss: float = 2.0, speed: float = 1000.0, code: int = 0) -> Path:
    run = f"run: primus direct --single -- learn {loss} {speed} {code}"
    compare = "compare: {loss: 1%, tokens_per_second: 5%, memory_gib: 0.05}"
    (folder / "primus-ci.yaml").write_text(f"checks:\n  small:\n    {run}\n    {compare}\n")
    return folder / "primus-ci.yaml"


def _outcomes(primus: Run, folder: Path, code: int) -> dict[str, tuple[str, str]]:
    done = primus("ci", "--json")
    assert done.returncode == code, done.stderr + done.stdout
    [check] = json.loads(done.stdout)["checks"]
    return {finding["figure"]: (finding["outcome"], finding["says"]) for finding in check["findings"]}


def test_an_equal_run_passes_and_a_changed_one_fails_with_the_figure(checks: Path, primus: Run) -> None:
    assert {outcome for outcome, _ in _outcomes(primus, checks.parent, 0).values()} == {"passed"}
    _write(checks.parent, loss=2.1)
    changed = _outcomes(primus, checks.parent, 1)
    assert changed["loss"] == ("failed", "step 1: 2.1, golden 2 (+5.00%), tolerance 1.00%")
    assert changed["tokens_per_second"][0] == "passed"
    _write(checks.parent, speed=900.0)
    slower = _outcomes(primus, checks.parent, 1)
    assert slower["tokens_per_second"][0] == "failed"
    assert slower["tokens_per_second"][1].startswith("slower: +11.1% time")
    assert slower["loss"][0] == "passed"


def test_a_failed_run_is_a_failure_in_every_report(checks: Path, primus: Run) -> None:
    _write(checks.parent, code=7)
    assert _outcomes(primus, checks.parent, 1)["run"][1].startswith("exit code 7")
    suite = ET.parse(checks.parent / "output/ci/primus-ci.xml").getroot()[0]
    assert suite.get("failures") == "1"
    assert "| small" in (checks.parent / "output/ci/primus-ci.md").read_text()


def test_speed_without_a_golden_value_of_this_machine_is_unknown(checks: Path, primus: Run) -> None:
    golden = checks.parent / "primus-ci.golden.json"
    data = json.loads(golden.read_text())
    golden.write_text(json.dumps({**data, "machines": {}}))
    found = _outcomes(primus, checks.parent, 0)
    assert found["loss"][0] == "passed"
    assert found["tokens_per_second"][0] == "unknown"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("checks: {a: {rn: x, compare: {loss: 1%}}}", "did you mean 'run'?"),
        ("checks: {a: {run: direct -- learn, compare: {los: 1%}}}", "unknown key 'compare.los'"),
        ("checks: {a: {run: direct -- learn, compare: {loss: 3}}}", "write 5%"),
        ("checks: {a: {run: direct -- learn, compare: {loss: 1%}, timeout: -1}}", "'timeout' is -1"),
        ("checks: {a: {run: learn, compare: {loss: 1%}}}", "names no runtime and task"),
        ("checks: {a: {run: direct -- lern, compare: {loss: 1%}}}", "a cannot be planned"),
        ("checks: {}", "there are no checks"),
        ("checks: {../a: {run: direct -- learn, compare: {loss: 1%}}}", "a check is called '../a'"),
        ('checks: {"\\e[31m": {run: direct -- learn, compare: {loss: 1%}}}', r"a check is called '\x1b[31m'"),
        ("checks: {primus-ci: {run: direct -- learn, compare: {loss: 1%}}}", "a check is called 'primus-ci'"),
        ("checks: {a: {run: direct -- learn 'x, compare: {loss: 1%}}}", "close the quotation"),
    ],
)
def test_a_wrong_file_starts_nothing_and_says_what_is_wrong(primus: Run, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "primus-ci.yaml").write_text(text + "\n")
    wrong = primus("ci")
    assert wrong.returncode == 2
    assert said in wrong.stderr
    assert not (tmp_path / "output").exists()


def test_without_a_file_it_says_how_to_write_one(primus: Run) -> None:
    done = primus("ci")
    assert (done.returncode, "run: direct -- bench gemm" in done.stderr) == (2, True)
    assert "primus ci --update" in done.stderr


@pytest.mark.parametrize(
    ("golden", "said"),
    [
        ({}, "'losses' is missing"),
        ({"losses": {"small": {"first": 1.0}}}, "'losses.small.first'"),
        ({"losses": {"small": {"1": float("nan")}}}, "'losses.small.1' is nan"),
        ({"losses": {}, "machines": {"m": {"small": {"tokens_per_second": ["x"]}}}}, "tokens_per_second.0' is 'x'"),
        ({"losses": {}, "machines": {"m": {"small": {"wrong": 1}}}}, "'machines.m.small.wrong'"),
    ],
)
def test_golden_values_of_another_shape_are_refused_with_the_key_and_the_known_one(
    primus: Run, tmp_path: Path, golden: dict[str, object], said: str
) -> None:
    _write(tmp_path)
    (tmp_path / "learn.py").write_text(_TASK)
    (tmp_path / "primus.yaml").write_text("plugins: [./learn.py]\n")
    (tmp_path / "primus-ci.golden.json").write_text(json.dumps({"schema": 1, **golden}))
    refused = primus("ci")
    assert refused.returncode == 2, refused.stderr
    assert f"primus-ci.golden.json: {said}" in refused.stderr or said in refused.stderr
    assert "machine: {check: {memory_gib: number" in refused.stderr
    assert not (tmp_path / "output/ci/small.log").exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_an_ended_session_keeps_what_it_found_and_leaves_nothing_running(
    tmp_path: Path, clean_environ: dict[str, str], number: signal.Signals
) -> None:
    _write(tmp_path)
    (tmp_path / "learn.py").write_text(_TASK)
    (tmp_path / "primus.yaml").write_text("plugins: [./learn.py]\n")
    run = "{run: direct --single -- learn 2 1000 %s, compare: {loss: 1%%}}"
    (tmp_path / "primus-ci.yaml").write_text(f"checks:\n  a: {run % 0}\n  b: {run % 99}\n")
    log, words = tmp_path / "output/ci/b.log", [sys.executable, "-m", "primus_core", "ci", "--update"]
    process = subprocess.Popen(words, cwd=tmp_path, env=clean_environ, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: log.exists() and "primus: run " in log.read_text())
    run_directory = log.read_text().partition("primus: run ")[2].split("\n")[0]
    process.send_signal(number)
    said = process.communicate()[1]
    checks = json.loads((tmp_path / "output/ci/primus-ci.json").read_text())["checks"]
    outcomes = {check["name"]: check["outcome"] for check in checks}
    if number == signal.SIGKILL:
        assert outcomes == {"a": "passed"}
        wait_until(
            lambda: json.loads((tmp_path / run_directory / "metadata.json").read_text()).get("exit_code") is not None
        )
    else:
        assert (process.returncode, outcomes) == (128 + number, {"a": "passed", "b": "failed"})
        assert "the golden values are as before" in said
    assert not (tmp_path / "primus-ci.golden.json").exists()


def test_two_sessions_do_not_write_to_one_folder(primus: Run, checks: Path) -> None:
    with (checks.parent / "output/ci/lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = primus("ci")
    assert (refused.returncode, "another primus ci writes to output/ci" in refused.stderr) == (2, True)
