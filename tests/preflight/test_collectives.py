"""All-reduce among processes of this machine, over gloo; and what is said of results, good and bad."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from primus_preflight.checks import processes
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.processes import Ended
from primus_preflight.checks.rule import Rule
from primus_preflight.meeting.peers import Here, Place
from primus_preflight.network.collectives import PROGRAM, Group, gathered, summed
from primus_preflight.verdict.cluster import judge
from primus_preflight.verdict.node_report import NodeReport

RULE = Rule("network.all-reduce", compare="all", expected="the right sum", unit="GB/s busbw", fix="look")
GROUP = Group("cpu", 0, 2, 2, "127.0.0.1", "meet.json")


def said(**line: object) -> Ended:
    return Ended(0, f"a library says something\n{json.dumps(line)}\n", "")


def here(folder: Path, rank: int, nodes: int, wait_s: float = 60, absent: int = 0) -> Here:
    return Here(Place("", rank, nodes, 0, wait_s), str(folder), f"10.0.0.{rank}", "eth0", f"word{rank}", absent)


@pytest.mark.torch
@pytest.mark.full
def test_processes_sum_up_and_say_the_bandwidth_that_a_ring_has(tmp_path: Path) -> None:
    size, world = 1 << 16, 3
    same = ("--device", "cpu", "--world", str(world), "--meet", str(tmp_path / "meet.json"), "--bytes", str(size))
    programs = [(*PROGRAM, *same, "--rank", str(rank), "--parent", str(os.getpid())) for rank in range(world)]
    ended = processes.together(programs, dict(os.environ), 300, lambda: None)
    assert [one.how for one in ended] == [""] * world
    for one in ended:
        found = json.loads(one.out.splitlines()[-1])
        # All-reduce moves 2(n-1)/n of the data over each link of a ring.
        assert found["value"] == pytest.approx(size / found["seconds"] * 4 / 3 / 1e9)
    assert summed(RULE, GROUP, ended).status == "pass"


@pytest.mark.torch
@pytest.mark.full
def test_a_rank_that_nobody_meets_is_a_result(tmp_path: Path) -> None:
    words = (*PROGRAM, "--device", "cpu", "--world", "2", "--rank", "1", "--meet", str(tmp_path / "no.json"))
    ended = processes.together(
        [(*words, "--patience", "0.2", "--parent", str(os.getpid()))], dict(os.environ), 300, lambda: None
    )
    finding = summed(RULE, GROUP, ended)
    assert (finding.status, finding.measured) == ("fail", "no result")
    assert finding.why == "it ended with exit code 1: rank 0 did not publish its port"


def test_without_torch_nothing_is_known_and_how_to_get_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    words = (sys.executable, "-m", *PROGRAM[3:], "--device", "cpu", "--rank", "0", "--world", "2", "--meet", "x")
    (ended,) = processes.together([words], {**os.environ, "PYTHONPATH": str(tmp_path)}, 120, lambda: None)
    finding = summed(RULE, GROUP, [ended, ended])
    assert (finding.status, finding.why) == ("unknown", "torch cannot be imported: no torch here")
    assert "install torch" in finding.fix


@pytest.mark.parametrize(
    ("ended", "status", "measured", "why"),
    [
        ((said(value=2.0), said(value=1.5)), "pass", "1.5 by 2 ranks", ""),
        ((said(value=2.0), said(wrong="the sum is not 2")), "fail", "a wrong sum", "the sum is not 2"),
        ((said(value=2.0), Ended(None, "", "")), "fail", "no result", "it did not end within 150 s"),
        ((said(value=2.0), Ended(-6, "", "NCCL WARN x")), "fail", "no result", "it ended by SIGABRT: NCCL WARN x"),
        ((said(value=2.0), Ended(0, "[[[", "")), "fail", "no result", "a process printed nothing"),
    ],
)
def test_a_sum_that_is_wrong_or_does_not_come_fails(
    ended: tuple[Ended, ...], status: str, measured: str, why: str
) -> None:
    found = summed(RULE, GROUP, ended)
    assert (found.status, found.measured, found.why) == (status, measured, why)


def test_a_site_may_say_how_fast_it_should_be() -> None:
    assert summed(replace(RULE, floor=3), GROUP, (said(value=2.0), said(value=4.0))).status == "fail"


def test_nodes_agree_on_who_sums_up_and_leave_out_who_reaches_nobody(tmp_path: Path) -> None:
    (tmp_path / "group.json").write_text(
        json.dumps({"1": {"word": "of an earlier start", "devices": 3, "reached": True}})
    )
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda rank: gathered(here(tmp_path, rank, 3), 8, reached=rank != 1), range(3)))
    first, second, third = found
    assert second == "no peer was reached"
    assert isinstance(first, Group)
    assert isinstance(third, Group)
    assert [(one.device, one.first, one.own, one.world, one.address) for one in (first, third)] == [
        ("cuda", 0, 8, 16, "10.0.0.0"),
        ("cuda", 8, 8, 16, "10.0.0.0"),
    ]
    assert first.meet == third.meet
    assert os.listdir(tmp_path) == ["group.json"]


def test_where_one_node_has_no_gpu_each_has_one_rank_on_its_cpu(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda rank: gathered(here(tmp_path, rank, 2), 8 * rank, reached=True), range(2)))
    assert [(one.device, one.first, one.own, one.world) for one in found if isinstance(one, Group)] == [
        ("cpu", 0, 1, 2),
        ("cpu", 1, 1, 2),
    ]


def test_who_never_came_is_not_waited_for(tmp_path: Path) -> None:
    found = gathered(here(tmp_path, 0, 2, wait_s=600, absent=1), 8, reached=True)
    assert isinstance(found, Group)
    assert found.world == 8


def test_a_sum_that_fails_for_all_is_the_fault_of_who_is_bad_with_its_partners() -> None:
    failed = RULE.bad("", "no result", "it did not end within 150 s")

    def cluster(*pairs: tuple[int, int]) -> list[NodeReport]:
        return [
            NodeReport(f"n{rank}", (Finding("host.kernel", "", "pass", severity="warn"), failed, *peers(rank, pairs)))
            for rank in range(3)
        ]

    def peers(rank: int, bad: tuple[tuple[int, int], ...]) -> list[Finding]:
        rule = Rule("network.peers", compare="pair-higher", share=0.5)
        met = [other for other in range(3) if other != rank]
        cut = [{rank, other} in [set(pair) for pair in bad] for other in met]
        return [
            rule.bad(f"n{o}", "not reached") if c else rule.good(f"n{o}", "reached", 1.0)
            for o, c in zip(met, cut, strict=True)
        ]

    assert judge(cluster()).failing == ("n0", "n1", "n2")
    found = judge(cluster((0, 2), (1, 2)))
    assert (found.failing, found.passing) == (("n2",), ("n0", "n1"))
    assert [one.why for one in found.nodes["n0"] if one.check == "network.all-reduce"] == ["it fails because of n2"]
