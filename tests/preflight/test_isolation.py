"""Which node is at fault for bad links: simulated clusters with bad nodes among good ones, and what is said of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_core.testing import facts_of
from primus_preflight.checks.check import Check, Node
from primus_preflight.checks.findings import Finding
from primus_preflight.meeting import schedule
from primus_preflight.meeting.exchange import Measured
from primus_preflight.meeting.peers import Meeting, Met
from primus_preflight.network import pairs
from primus_preflight.verdict.cluster import Cluster, Expected, judge
from primus_preflight.verdict.isolation import End, Link, culprits
from primus_preflight.verdict.node_report import NodeReport

Speed = Callable[[int, int], float]
"""Gbit/s from one rank to another."""
GOOD = Finding("host.kernel", "", "pass", "6.8.0", severity="warn")


def host(rank: int) -> str:
    return f"n{rank}"


def partners(rank: int, nodes: int) -> list[int]:
    met = [schedule.partner(rank, number, nodes) for number in schedule.rounds(nodes)]
    return [one for one in met if one is not None]


def findings(rank: int, nodes: int, met: list[Met], checks: tuple[Check, ...]) -> tuple[Finding, ...]:
    node = Node(facts_of(), meeting=Meeting(tuple(met), nodes - 1))
    return (GOOD, *(finding for check in checks for finding in check.findings(node)))


def cluster(nodes: int, speed: Speed, *, cut: frozenset[int] = frozenset(), latency: Speed | None = None) -> Cluster:
    """The verdict of nodes that measured so; those that are `cut` off are reached by nobody, but report."""
    reports = []
    for rank in range(nodes):
        met = [
            Met(host(other), None, "no answer in time")
            if {rank, other} & cut
            else Met(
                host(other), Measured(latency(rank, other) if latency else 30.0, speed(rank, other), speed(other, rank))
            )
            for other in partners(rank, nodes)
        ]
        reports.append(NodeReport(host(rank), findings(rank, nodes, met, pairs.checks()), node_rank=rank))
    return judge(reports, wanted=Expected(count=nodes))


def slow(*pairs: tuple[int | None, int | None], to: float = 1.0) -> Speed:
    """4 Gbit/s, but `to` from one to another where both match; None: any."""

    def speed(one: int, other: int) -> float:
        return to if any(a in (None, one) and b in (None, other) for a, b in pairs) else 4.0

    return speed


def failed(found: Cluster, name: str) -> list[Finding]:
    return [one for one in found.nodes[name] if one.status == "fail"]


@pytest.mark.full
@settings(max_examples=50)
@given(st.data())
def test_bad_nodes_are_named_and_no_other(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(3, 40))
    few = min((nodes - 1) // 2, 3)
    bad = data.draw(st.dictionaries(st.integers(0, nodes - 1), st.sampled_from(("out", "in", "both")), max_size=few))
    draw = random.Random(data.draw(st.integers()))
    noise = {(a, b): draw.uniform(2.5, 4.5) for a in range(nodes) for b in range(nodes)}

    def speed(one: int, other: int) -> float:
        spoilt = bad.get(one) in ("out", "both") or bad.get(other) in ("in", "both")
        return noise[one, other] * (draw.uniform(0.01, 0.15) if spoilt else 1)

    found = cluster(nodes, speed)
    assert set(found.failing) == {host(rank) for rank in bad}
    assert len(found.passing) == nodes - len(bad)
    for rank, way in bad.items():
        directions = {"out": {"sending"}, "in": {"receiving"}, "both": {"sending", "receiving"}}[way]
        assert {one.subject for one in failed(found, host(rank))} == directions


@pytest.mark.full
@settings(max_examples=50)
@given(st.integers(3, 24), st.data())
def test_nodes_that_nobody_reaches_are_named_and_no_other(nodes: int, data: st.DataObject) -> None:
    cut = data.draw(st.frozensets(st.integers(0, nodes - 1), max_size=min((nodes - 1) // 2, 3)))
    found = cluster(nodes, slow(), cut=cut)
    assert set(found.failing) == {host(rank) for rank in cut}
    for rank in cut:
        (finding,) = failed(found, host(rank))
        assert finding.check == "network.peers"
        assert finding.measured == "not reached"


def test_of_three_nodes_the_slow_one_is_told_with_its_direction_and_what_to_do() -> None:
    found = cluster(3, slow((2, None)))
    assert (found.failing, found.passing) == (("n2",), ("n0", "n1"))
    (finding,) = failed(found, "n2")
    assert (finding.check, finding.subject, finding.measured) == ("network.bandwidth", "sending", "1")
    assert finding.expected == "≥ 1.2, as others have about 4"
    assert finding.why == "with 2 of 2 peers: n0, n1"
    assert finding.fix.startswith("ethtool")
    skipped = {one.subject: one.why for one in found.nodes["n0"] if one.status == "skip"}
    assert skipped == {"from n2": "judged with the other links of n2"}


def test_two_nodes_cannot_tell_which_of_them_it_is() -> None:
    found = cluster(2, slow(), cut=frozenset({1}))
    assert found.failing == ("n0", "n1")
    assert all("no other node can tell" in failed(found, name)[0].why for name in found.failing)
    assert cluster(2, slow()).passing == ("n0", "n1")


def test_one_bad_cable_between_good_nodes_is_told_at_both_ends() -> None:
    found = cluster(8, slow((3, 5), (5, 3)))
    assert found.failing == ("n3", "n5")


def test_a_floor_counts_where_all_are_slow() -> None:
    met = [Met("n1", Measured(30.0, 0.9, 9.0), gbps=10.0)]
    (bandwidth,) = (check for check in pairs.checks() if check.name == "network.bandwidth")
    node = Node(facts_of(), meeting=Meeting(tuple(met), 1))
    assert [(one.subject, one.status, one.expected) for one in bandwidth.findings(node)] == [
        ("to n1", "fail", "≥ 2"),
        ("from n1", "pass", "≥ 2"),
    ]


def test_where_the_cpu_is_what_is_measured_nobody_is_slow() -> None:
    assert cluster(3, lambda one, other: 5.5 if one == 2 else 40.0).exit_code == 0


@pytest.mark.parametrize("gbps", [40.0, 400.0])
def test_no_more_is_asked_of_one_stream_than_one_can_do(gbps: float) -> None:
    (bandwidth,) = (check for check in pairs.checks() if check.name == "network.bandwidth")
    node = Node(facts_of(), meeting=Meeting((Met("n1", Measured(30.0, 6.0, 6.0), gbps=gbps),), 1))
    assert {(one.status, one.expected) for one in bandwidth.findings(node)} == {("pass", "≥ 5")}


def test_a_far_node_is_a_warning() -> None:
    found = cluster(5, slow(), latency=lambda one, other: 900.0 if 4 in (one, other) else 30.0)
    assert len(found.passing) == 5
    assert [(one.check, one.status) for one in found.nodes["n4"] if one.subject == "" and one.status != "pass"] == [
        ("network.latency", "warn")
    ]


def test_a_node_that_met_others_and_left_no_report_is_named_by_them() -> None:
    """It ended in the middle: its partners knew its name."""
    reports = []
    for rank in range(3):
        met = [
            Met(host(other), None, "it closed the connection") if other == 3 else Met(host(other), Measured(30, 9, 9))
            for other in partners(rank, 4)
        ]
        reports.append(NodeReport(host(rank), findings(rank, 4, met, pairs.checks()), node_rank=rank))
    found = judge(reports, wanted=Expected(count=4))
    assert (found.failing, found.passing, found.absent) == (("n3",), ("n0", "n1", "n2"), 0)
    assert {one.check: one.status for one in found.nodes["n3"]} == {
        "network.peers": "fail",
        "cluster.report": "unknown",
    }


def test_a_node_that_never_came_is_nobody_elses_fault() -> None:
    reports = []
    for rank in range(3):
        met = [
            Met("rank 3", None, "it did not connect", came=False)
            if other == 3
            else Met(host(other), Measured(30, 9, 9))
            for other in partners(rank, 4)
        ]
        reports.append(NodeReport(host(rank), findings(rank, 4, met, pairs.checks()), node_rank=rank))
    found = judge(reports, wanted=Expected(("n0", "n1", "n2", "n3"), 4))
    assert (found.passing, found.unknown, found.exit_code) == (("n0", "n1", "n2"), ("n3",), 3)
    late = NodeReport("n3", findings(3, 4, [], pairs.checks()), node_rank=3)
    assert judge([*reports, late]).failing == ("n3",)


def test_who_could_measure_nothing_is_unknown() -> None:
    alone = NodeReport("n0", findings(0, 2, [], pairs.checks()))
    assert judge([alone]).unknown == ("n0",)


def test_a_node_that_was_bad_with_half_of_its_peers_only_because_of_them_passes() -> None:
    """Five nodes, two of them bad: each good one is bad with two of four, until those two are taken out."""
    ends = [End(name) for name in "abcde"]
    links = [Link((one, other), None if other.host in "de" else 10) for one in ends for other in ends if one < other]
    assert [one.end.host for one in culprits(links)] == ["d", "e"]


@given(st.integers(1, 70))
def test_in_each_round_a_node_talks_to_one_other_which_talks_to_it(nodes: int) -> None:
    met: dict[int, set[int]] = {rank: set() for rank in range(nodes)}
    for number in schedule.rounds(nodes, most=nodes):
        for rank in range(nodes):
            other = schedule.partner(rank, number, nodes)
            if other is not None:
                assert other != rank
                assert schedule.partner(other, number, nodes) == rank
                met[rank].add(other)
    assert met == {rank: set(range(nodes)) - {rank} for rank in range(nodes)}


def test_of_many_nodes_each_talks_to_eight_others() -> None:
    numbers = schedule.rounds(2000)
    assert len(set(numbers)) == schedule.MOST_ROUNDS
    assert {len({schedule.partner(rank, number, 2000) for number in numbers}) for rank in range(2000)} == {8}
    met = [Met(host(other), Measured(30, 9, 9)) for other in partners(7, 2000)]
    (said,) = [
        one for one in findings(7, 2000, met, pairs.checks()) if (one.check, one.subject) == ("network.peers", "")
    ]
    assert said.measured == "8 of 1999 other nodes, chosen by the schedule"
