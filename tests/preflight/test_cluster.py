"""The verdict of many nodes: who did not report, who differs, who is far off; and files that Slurm takes."""

from __future__ import annotations

import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run

from primus_core.errors import RequestError
from primus_preflight.checks.findings import Finding, verdict
from primus_preflight.verdict import cluster, node_report
from primus_preflight.verdict.cluster import Expected, judge
from primus_preflight.verdict.node_report import NodeReport

GEMM = Finding("gpu.gemm", "0000:05:00.0", "pass", "600", "≥ 500", "TFLOP/s", "RVS", value=600.0, compare="higher")
DRIVER = Finding("gpu.driver", "", "pass", "6.12.12", "loaded", compare="same")
KERNEL = Finding("host.kernel", "", "pass", "6.8.0", compare="same", severity="warn")


def node(name: str, *findings: Finding, model: str = "MI300X") -> NodeReport:
    """A node that found this."""
    return NodeReport(name, findings, model, 8)


def healthy(count: int) -> list[NodeReport]:
    """Nodes whose eight GPUs differ by as much as good ones do."""
    draw = random.Random(7)
    reports = []
    for number in range(count):
        values = [600 * draw.gauss(1, 0.008) for _ in range(8)]
        gemm = [replace(GEMM, subject=f"gpu {gpu}", value=v, measured=f"{v:.0f}") for gpu, v in enumerate(values)]
        reports.append(node(f"n{number:04}", DRIVER, KERNEL, *gemm))
    return reports


def changed(report: NodeReport, check: str, **values: object) -> NodeReport:
    """The same node, with its last finding of a check changed."""
    last = [one for one in report.findings if one.check == check][-1]
    found = tuple(replace(one, **values) if one is last else one for one in report.findings)  # type: ignore[arg-type]
    return replace(report, findings=found)


def plant(reports: list[NodeReport]) -> dict[str, str]:
    """Seven nodes that are not fit, by what is wrong with them."""
    planted: dict[int, tuple[str, dict[str, object]]] = {
        17: ("gpu.gemm", {"value": 540.0, "measured": "540"}),
        200: ("gpu.gemm", {"value": 300.0, "measured": "300"}),
        555: ("gpu.gemm", {"value": 12.0, "measured": "12"}),
        901: ("gpu.driver", {"measured": "6.10.5"}),
        1234: ("gpu.driver", {"status": "fail", "measured": "not loaded", "compare": ""}),
        1500: ("gpu.driver", {"measured": "6.14.0"}),
        1999: ("gpu.gemm", {"value": 565.0, "measured": "565"}),
    }
    for number, (check, values) in planted.items():
        reports[number] = changed(reports[number], check, **values)
    return {f"n{number:04}": check for number, (check, _) in planted.items()}


@pytest.mark.full
def test_seven_nodes_of_two_thousand_are_named_and_no_other(tmp_path: Path) -> None:
    reports = healthy(2000)
    planted = plant(reports)
    for report in reports:
        (tmp_path / f"{report.host}.json").write_text(json.dumps(report.to_dict()))
    found = judge(*node_report.read_all(str(tmp_path)), Expected(count=2000))
    assert found.failing == tuple(sorted(planted))
    assert len(found.passing) == 1993
    assert found.exit_code == 1
    for host, check in planted.items():
        [fault] = [one for one in found.nodes[host] if one.status == "fail"]
        assert fault.check == check
        assert fault.fix or host == "n1234", "what a comparison finds says what to do, too"


def test_a_cluster_of_good_nodes_passes() -> None:
    found = judge(healthy(64), wanted=Expected(count=64))
    assert (found.exit_code, found.failing, found.unknown, len(found.passing)) == (0, (), (), 64)


def test_nodes_that_did_not_report_are_named_where_their_names_are_known() -> None:
    found = judge([node("n1", DRIVER), node("n3", DRIVER)], wanted=cluster.expected("n[1-4]"))
    assert (found.passing, found.unknown, found.exit_code) == (("n1", "n3"), ("n2", "n4"), 3)
    assert "did not report" in found.nodes["n2"][0].why
    counted = judge([node("n1", DRIVER), node("n3", DRIVER)], wanted=cluster.expected("4"))
    assert (counted.passing, counted.absent, counted.exit_code) == (("n1", "n3"), 2, 3)


def test_a_node_that_measured_nothing_is_unknown_and_no_nodes_are_no_pass() -> None:
    skipped = node("n1", replace(DRIVER, status="skip", compare=""))
    unread = node("n2", DRIVER, replace(GEMM, status="unknown", value=None))
    found = judge([skipped, unread])
    assert (found.passing, found.unknown, found.exit_code) == ((), ("n1", "n2"), 3)
    assert judge([]).exit_code == 3


def test_what_can_only_warn_makes_no_node_unfit_or_unknown() -> None:
    odd = node("n3", DRIVER, replace(KERNEL, measured="6.9.0"))
    found = judge([node("n1", DRIVER, KERNEL), node("n2", DRIVER, KERNEL), odd])
    assert found.passing == ("n1", "n2", "n3")
    assert [one.status for one in found.nodes["n3"] if one.check == "host.kernel"] == ["warn"]
    assert verdict([DRIVER, replace(KERNEL, status="unknown")]) == "pass"


def test_where_no_majority_says_what_is_right_all_are_told() -> None:
    found = judge([node("n1", DRIVER), node("n2", replace(DRIVER, measured="6.10.5"))])
    assert found.failing == ("n1", "n2")
    assert "6.12.12 on 1" in found.nodes["n1"][0].why


def counted_node(name: str, count: int, floor: int = 0) -> NodeReport:
    """A node with so many GPUs, of which `floor` is known to be the least."""
    found = Finding("gpu.count", "", "pass", str(count), f"≥ {floor}", "GPUs", value=float(count), compare="same")
    return node(name, DRIVER, replace(found, status="fail") if count < floor else found)


@pytest.mark.parametrize(
    ("counts", "floor", "failing"),
    [
        ((8, 7), 8, "n1"),
        ((8, 8, 7, 7), 8, "n2 n3"),
        ((7, 7, 8), 8, "n0 n1"),
        ((7, 7, 7), 8, "n0 n1 n2"),
        ((8, 0), 8, "n1"),
        ((8, 8, 8, 0, 0), 8, "n3 n4"),
        ((0, 0), 8, "n0 n1"),
        ((8, 4), 0, "n1"),
        ((8, 8, 4, 4), 0, "n2 n3"),
        ((4, 4, 8), 0, "n2"),
    ],
)
def test_a_count_that_failed_has_no_vote_on_what_is_normal(counts: tuple[int, ...], floor: int, failing: str) -> None:
    found = judge([counted_node(f"n{at}", count, floor) for at, count in enumerate(counts)])
    assert " ".join(found.failing) == failing
    for host in found.failing:
        [fault] = [one for one in found.nodes[host] if one.status == "fail"]
        assert "set it to" not in fault.fix, "nobody makes a GPU less, or more, by a setting"
        assert floor == 0 or fault.expected == f"≥ {floor}"


def test_a_port_that_failed_has_no_vote_on_how_many_are_active() -> None:
    def wired(name: str, count: int) -> NodeReport:
        own = Finding("network.active-ports", "", "pass", str(count), unit="ports", value=float(count), compare="same")
        ports = [Finding("network.ports", f"mlx5_{at}:1", "pass" if at < count else "fail", "DOWN") for at in range(8)]
        return node(name, own, *ports)

    found = judge([wired("n0", 7), wired("n1", 7), wired("n2", 8)])
    assert (found.failing, found.passing) == (("n0", "n1"), ("n2",))


def test_a_speed_that_failed_has_no_vote_on_what_is_normal() -> None:
    bad = [node(f"b{at}", replace(GEMM, value=100.0 + at, status="fail")) for at in range(5)]
    good = [node(f"g{at}", replace(GEMM, value=value)) for at, value in enumerate((600, 601, 602, 603, 510))]
    assert judge([*bad, *good]).failing == ("b0", "b1", "b2", "b3", "b4", "g4")


def test_nodes_with_other_gpus_are_compared_among_themselves() -> None:
    slow = [node(f"b{i}", replace(GEMM, value=150.0 + i / 10), model="MI308X") for i in range(6)]
    fast = [node(f"a{i}", replace(GEMM, value=600.0 + i)) for i in range(6)]
    assert judge([*slow, *fast]).exit_code == 0


def test_better_is_no_outlier_and_lower_may_be_better() -> None:
    reports = [node(f"n{i}", replace(GEMM, value=600.0 + i / 10)) for i in range(9)]
    assert judge([*reports, node("n9", replace(GEMM, value=900.0))]).exit_code == 0
    slow = [node(f"n{i}", replace(GEMM, value=2.0 + i / 100, compare="lower")) for i in range(9)]
    assert judge([*slow, node("n9", replace(GEMM, value=9.0, compare="lower"))]).failing == ("n9",)


def test_among_few_values_nobody_is_an_outlier() -> None:
    assert (
        judge(
            [node(f"n{i}", replace(GEMM, value=float(value))) for i, value in enumerate((600, 601, 602, 100))]
        ).exit_code
        == 0
    )


@given(st.lists(st.floats(600, 600 * 1.049), min_size=5, max_size=40))
@pytest.mark.full
def test_values_within_what_good_silicon_differs_are_never_outliers(values: list[float]) -> None:
    assert judge([node(f"n{i}", replace(GEMM, value=value)) for i, value in enumerate(values)]).exit_code == 0


@pytest.mark.parametrize(
    ("text", "names", "count"),
    [("64", (), 64), ("n[01-03],m7", ("n01", "n02", "n03", "m7"), 4), ("n1", ("n1",), 1)],
)
def test_expected_nodes_are_a_number_or_a_list(text: str, names: tuple[str, ...], count: int) -> None:
    assert cluster.expected(text) == Expected(names, count)


def test_expected_nodes_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n[1-2]  # first rack\nn7 n8\n\nn1\n")
    assert cluster.expected(str(tmp_path / "hosts")).names == ("n1", "n2", "n7", "n8")
    (tmp_path / "empty").write_text("\n")
    for wrong in (str(tmp_path / "none"), str(tmp_path / "empty"), ""):
        with pytest.raises(RequestError, match="--expected-nodes"):
            cluster.expected(wrong)


def test_a_file_of_names_may_lie_in_the_current_folder_and_one_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("n1 n2\n")
    assert cluster.expected("hosts").names == ("n1", "n2")
    with pytest.raises(RequestError, match="nowhere/hosts: it cannot be read"):
        cluster.expected("nowhere/hosts")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("node[1-99999999999]", "more than 100000 nodes"),
        ("9" * 5000, "more than 100000 nodes"),
        ("node[01-", "'node[01-' is not a node list"),
        ("-3", "'-3' is not the name of a node"),
        ("n1;n2", "'n1;n2' is not the name of a node"),
    ],
)
def test_what_names_no_nodes_is_refused(text: str, why: str) -> None:
    """A range without end, above all: its names would fill the memory."""
    with pytest.raises(RequestError, match=re.escape(why)):
        cluster.expected(text)


@pytest.mark.parametrize(
    "damage",
    [
        {"time": "noon"},
        {"time": None},
        {"time": 10**400},
        {"time": float("nan")},
        {"host": ["n6"]},
        {"host": "n1"},
        {"gpu_model": ["MI300X"]},
        {"findings": "abc"},
        {"findings": [5]},
        {"findings": [GEMM.to_dict() | {"status": "fine"}]},
        {"findings": [GEMM.to_dict() | {"status": ["pass"]}]},
        {"findings": [GEMM.to_dict() | {"compare": "best"}]},
        {"findings": [GEMM.to_dict() | {"severity": ""}]},
        {"findings": [GEMM.to_dict() | {"check": None}]},
        {"findings": [GEMM.to_dict() | {"subject": 7}]},
        {"findings": [GEMM.to_dict() | {"why": "\ud800"}]},
        {"findings": [GEMM.to_dict() | {"value": "600"}]},
        {"findings": [GEMM.to_dict() | {"value": float("inf")}]},
        {"findings": [GEMM.to_dict() | {"value": 10**400}]},
        {"findings": [GEMM.to_dict() | {"share": float("nan")}]},
    ],
    ids=str,
)
def test_a_report_that_is_damaged_makes_its_node_unknown_and_takes_no_other_along(
    tmp_path: Path, damage: dict[str, object]
) -> None:
    reports = [node(f"n{number}", replace(GEMM, value=600.0 + number)) for number in range(7)]
    for report in reports:
        node_report.write(str(tmp_path), report)
    (tmp_path / "n6.json").write_text(json.dumps(reports[6].to_dict() | damage))
    found = judge(*node_report.read_all(str(tmp_path)))
    assert (found.passing, found.failing, found.unknown) == (tuple(f"n{n}" for n in range(6)), (), ("n6",))


def test_what_is_no_file_is_no_report_and_nobody_waits_for_it(tmp_path: Path) -> None:
    node_report.write(str(tmp_path), node("n1", DRIVER))
    os.mkfifo(tmp_path / "n2.json")
    (tmp_path / "n3.json").mkdir()
    found = judge(*node_report.read_all(str(tmp_path)))
    assert (found.passing, found.unknown) == (("n1",), ("n2", "n3"))
    assert "it is not a regular file" in found.nodes["n2"][0].why


@pytest.mark.full
def test_a_folder_of_files_is_judged_by_the_command_and_lists_are_such_as_slurm_takes(
    primus: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "some" / "preflight"
    slow = changed(healthy(1)[0], "gpu.gemm", status="fail", measured="12", why="below the floor")
    for report in (node("n1", DRIVER), node("n2", DRIVER), replace(slow, host="n3")):
        node_report.write(str(folder), report)
    (folder / "n4.json").write_text('{"schema": 1')
    done = primus("direct", "--", "preflight", "report", str(tmp_path / "some"), "--expected-nodes", "n[1-5]",
                  "--output", "out/report.json")  # fmt: skip
    assert done.returncode == 1
    assert "nodes: 2 fit, 1 not fit, 2 unknown" in done.stdout
    lists = next((tmp_path / "output").glob("preflight_*")) / "preflight"
    assert (lists / "passing_nodes.txt").read_text() == "n1,n2\n"
    assert (lists / "failing_nodes.txt").read_text() == "n3\n"
    assert (lists / "unknown_nodes.txt").read_text() == "n4,n5\n"
    written = json.loads((tmp_path / "out/report.json").read_text())
    assert (written["exit_code"], written["failing"], written["unknown"]) == (1, ["n3"], ["n4", "n5"])
    assert "its report cannot be read" in written["nodes"]["n4"][0]["why"]
    assert "| fail | gpu.gemm | n3 |" in (lists / "report.md").read_text()
