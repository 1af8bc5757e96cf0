"""A node compared with itself: what has become worse or other than it was does not pass in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run
from tests.preflight.test_cluster import DRIVER, GEMM, node

from primus_preflight.checks.findings import Finding
from primus_preflight.verdict import cluster, history, node_report
from primus_preflight.verdict.node_report import NodeReport

DAY = 86400.0
LATENCY = Finding("network.latency", "n2", "pass", "2", "≤ 9", "µs", value=2.0, compare="lower", severity="warn")


def gemm(value: float, **changes: object) -> Finding:
    """A measured speed."""
    return replace(GEMM, value=value, measured=f"{value:g}", **changes)  # type: ignore[arg-type]


def run(*findings: Finding, day: int = 0, host: str = "n1", model: str = "MI300X") -> NodeReport:
    """What a node found on a day."""
    return replace(node(host, *findings, model=model), time=day * DAY)


def after(before: list[NodeReport], *findings: Finding, host: str = "n1", model: str = "MI300X") -> tuple[Finding, ...]:
    """What is found now, compared with earlier runs."""
    (report,) = history.compared([run(*findings, day=100, host=host, model=model)], history.of(before))
    return report.findings


def test_a_gpu_that_has_become_slower_fails_and_the_day_is_named() -> None:
    before = [run(gemm(value), day=at) for at, value in enumerate((600.0, 604.0, 598.0))]
    (found,) = after(before, gemm(560.0))
    assert (found.status, found.expected) == ("fail", "about 600")
    assert found.source == "this node, on 1970-01-03"
    assert found.why == "7 % worse than before (3 earlier values)"


def test_all_nodes_that_have_become_slower_together_fail_where_no_outlier_is() -> None:
    hosts = [f"n{at}" for at in range(9)]
    now = [run(gemm(500.0 + at), host=host, day=9) for at, host in enumerate(hosts)]
    assert cluster.judge(now).failing == ()
    before = history.of([run(gemm(600.0 + at), host=host) for at, host in enumerate(hosts)])
    assert cluster.judge(history.compared(now, before)).failing == tuple(hosts)


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ((600.0,), 571.0),
        ((600.0,), 570.0),
        ((600.0,), 900.0),
        ((600.0, 500.0, 640.0), 520.0),
        ((600.0, 600.0, 540.0), 541.0),
    ],
)
def test_what_differs_by_little_or_no_more_than_before_or_is_better_passes(
    earlier: tuple[float, ...], now: float
) -> None:
    before = [run(gemm(value), day=at) for at, value in enumerate(earlier)]
    assert after(before, gemm(now)) == (gemm(now),)


def test_lower_may_be_better_and_a_check_that_only_warns_warns() -> None:
    (found,) = after([run(LATENCY)], replace(LATENCY, value=3.0, measured="3"))
    assert found.status == "warn"
    assert after([run(LATENCY)], replace(LATENCY, value=1.0)) == (replace(LATENCY, value=1.0),)


def test_a_word_that_has_changed_is_a_warning_with_what_it_was_last() -> None:
    before = [run(replace(DRIVER, measured="6.10.5"), day=3), run(replace(DRIVER, measured="6.8.5"), day=1)]
    (found,) = after(before, DRIVER)
    assert (found.status, found.measured, found.expected) == ("warn", "6.12.12", "6.10.5")
    assert (found.why, found.source) == ("it has changed", "this node, on 1970-01-04")
    assert after([run(DRIVER)], DRIVER) == (DRIVER,)


def test_what_was_never_a_number_is_compared_with_none() -> None:
    assert after([run(replace(gemm(600.0), value=None))], gemm(500.0)) == (gemm(500.0),)
    assert after([run(gemm(600.0))], replace(gemm(500.0), value=None)) == (replace(gemm(500.0), value=None),)


def test_what_did_not_pass_before_is_no_measure_and_what_does_not_pass_now_keeps_its_reason() -> None:
    slow = gemm(100.0, status="fail")
    assert after([run(gemm(900.0, status="warn"))], gemm(600.0)) == (gemm(600.0),)
    assert after([run(gemm(600.0))], slow) == (slow,)


@pytest.mark.parametrize("other", [{"host": "n2"}, {"model": "MI308X"}])
def test_other_nodes_and_other_gpus_are_not_compared(other: dict[str, str]) -> None:
    before = [run(gemm(900.0), **other)]  # type: ignore[arg-type]
    assert after(before, gemm(600.0)) == (gemm(600.0),)
    assert history.lacking([run(gemm(600.0))], history.of(before)) == ["n1"]


def test_other_gpus_of_the_node_are_not_compared() -> None:
    assert after([run(gemm(900.0, subject="0000:26:00.0"))], gemm(600.0)) == (gemm(600.0),)


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=9), st.sampled_from(["higher", "lower"]))
@pytest.mark.full
def test_a_value_that_was_measured_before_always_passes_again(values: list[float], compare: str) -> None:
    before = [run(gemm(value, compare=compare), day=at) for at, value in enumerate(values)]
    for value in values:
        assert after(before, gemm(value, compare=compare)) == (gemm(value, compare=compare),)


def save(folder: Path, *reports: NodeReport) -> str:
    """A run directory with these reports."""
    for report in reports:
        node_report.write(str(folder / "preflight"), report)
    return str(folder)


@pytest.mark.full
def test_the_command_compares_with_several_earlier_runs_and_names_nodes_that_are_new(
    primus: Run, tmp_path: Path
) -> None:
    save(tmp_path / "may", run(gemm(600.0), DRIVER))
    save(tmp_path / "june", run(gemm(602.0), DRIVER, day=31))
    save(tmp_path / "now", run(gemm(500.0), DRIVER), run(gemm(500.0), DRIVER, host="n2"))
    words = ("direct", "--", "preflight", "report", "now", "--json", "--baseline", "may")
    done = primus(*words, "--baseline", "june/preflight/n1.json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["failing"], report["passing"]) == (["n1"], ["n2"])
    assert report["nodes"]["n1"][0]["expected"] == "about 601"
    assert "the baseline has no report of n2" in done.stderr


@pytest.mark.full
def test_a_baseline_that_says_nothing_is_refused(primus: Run, tmp_path: Path) -> None:
    save(tmp_path / "now", run(DRIVER))
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn.json").write_text('{"schema": 1')
    for name, why in (("nowhere", "No such file"), ("empty", "no report of a node"), ("torn.json", "cannot be read")):
        done = primus("direct", "--", "preflight", "report", "now", "--baseline", name)
        assert done.returncode == 2, done.stderr
        assert f"--baseline {name}" in done.stderr
        assert why in done.stderr
        assert not (tmp_path / "output").exists()
