"""`bench comm`: bandwidths by hand, values that reveal a wrong result, and real ranks."""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ROOT, Run

from primus_bench.benchmarks.comm import report, traffic, values, worker
from primus_bench.benchmarks.comm.operations import Buffers, Group, buffers, wrong
from primus_bench.benchmarks.comm.overlap import Overlapped
from primus_bench.benchmarks.comm.report import Timed
from primus_bench.benchmarks.comm.sizes import shown, sizes
from primus_core.errors import PrimusError

pytestmark = pytest.mark.torch

BY_HAND = {  # of nccl-tests, doc/PERFORMANCE.md: all_reduce 2(p-1)/p; a part to each other rank (p-1)/p; else 1
    "all_reduce": {2: 1.0, 3: 4 / 3, 4: 1.5, 8: 1.75},
    "all_gather": {2: 0.5, 3: 2 / 3, 4: 0.75, 8: 0.875},
    "reduce_scatter": {2: 0.5, 3: 2 / 3, 4: 0.75, 8: 0.875},
    "all_to_all": {2: 0.5, 3: 2 / 3, 4: 0.75, 8: 0.875},
    "broadcast": {2: 1.0, 3: 1.0, 4: 1.0, 8: 1.0},
    "send_recv": {2: 1.0, 3: 1.0, 4: 1.0, 8: 1.0},
}


def test_the_factors_of_the_bus_bandwidth_are_those_by_hand() -> None:
    assert set(BY_HAND) == set(traffic.OPERATIONS)
    for operation, known in BY_HAND.items():
        for ranks, factor in known.items():
            assert traffic.factor(operation, ranks) == pytest.approx(factor, rel=1e-15)


def test_a_gigabyte_in_ten_milliseconds_is_100_gb_per_s_and_175_on_the_bus_of_8() -> None:
    assert traffic.algorithm_gb_per_s(10**9, 0.01) == pytest.approx(100)
    assert traffic.bus_gb_per_s("all_reduce", 8, 10**9, 0.01) == pytest.approx(175)
    assert traffic.bus_gb_per_s("all_reduce", 1, 10**9, 0.01) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4KiB", (4096,)),
        ("1k,1", (1000, 1)),
        ("1KiB:8KiB:x2", (1024, 2048, 4096, 8192)),
        ("1MB:3500kB:+1MB", (10**6, 2 * 10**6, 3 * 10**6)),
        ("8,8,8:9:x2", (8,)),
    ],
)
def test_sizes_are_lists_and_ranges(text: str, found: tuple[int, ...]) -> None:
    assert sizes(text) == found


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1KiB:", "2:1:x2", "1:8:x1", "1:8", "4 KiB", "1XiB", "2TiB", "1:1MiB:+1"]
)
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"such as|must rise|at most"):
        sizes(text)


@given(st.integers(1, 2**40))
def test_a_size_reads_as_it_is_shown(size: int) -> None:
    assert sizes(shown(size)) == (size,)


LIKE = [
    (dtype, ranks) for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int32) for ranks in (1, 2, 3, 8)
]


@pytest.mark.parametrize(
    ("dtype", "ranks"), [*LIKE, pytest.param(torch.bfloat16, 300, marks=pytest.mark.full)]
)  # more than bf16 has whole numbers
def test_sums_are_exact_in_every_order_and_each_rank_counts(dtype: torch.dtype, ranks: int) -> None:
    terms = [values.term(rank, ranks, dtype) for rank in range(ranks)]
    for order in (terms[::-1], [*terms[1::2], *terms[::2]]):
        total = torch.zeros_like(terms[0])
        for one in order:
            total += one
        assert torch.equal(total, values.expected_sum(ranks, dtype))
    assert all(one.count_nonzero() > 100 for one in terms)


GROUPS = [Group(tuple(range(count)), rank) for count, rank in ((2, 0), (2, 1), (3, 1), (5, 4))]


def right(operation: str, data: Buffers, group: Group) -> list[torch.Tensor]:
    """The parts that a correct collective leaves in what this rank receives, computed another way."""
    count, here, dtype = len(group.ranks), group.index, data.sent.dtype
    if operation in ("all_reduce", "reduce_scatter"):
        period = torch.stack([values.term(rank, count, dtype) for rank in range(count)]).sum(0).to(dtype)
        return [period]
    if operation in ("broadcast", "send_recv"):
        return [values.moved(0 if operation == "broadcast" else (here - 1) % count, 0, dtype)]
    return [values.moved(rank, here if operation == "all_to_all" else 0, dtype) for rank in range(count)]


def leave(operation: str, data: Buffers, parts: list[torch.Tensor]) -> None:
    """Put the parts where they belong."""
    for part, period in zip(data.received.chunk(len(parts)), parts, strict=True):
        values.fill(part, period)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: f"{group.rank}of{len(group.ranks)}")
@pytest.mark.parametrize("operation", traffic.OPERATIONS)
@pytest.mark.parametrize("size", [1, 4096, 600_000])
@pytest.mark.full
def test_a_right_result_passes_and_a_wrong_one_does_not(operation: str, group: Group, size: int) -> None:
    data = buffers(operation, size, torch.float32, group, "cpu")

    def correct(data: Buffers, group: Group) -> None:
        leave(operation, data, right(operation, data, group))

    def last_element_lost(data: Buffers, group: Group) -> None:
        correct(data, group)
        data.received[-1] += 1

    def nothing(data: Buffers, group: Group) -> None:
        """What an algorithm does that never starts."""

    assert wrong(operation, correct, data, group) == ""
    assert "is wrong" in wrong(operation, last_element_lost, data, group) or "1 of" in wrong(
        operation, last_element_lost, data, group
    )
    if not (operation == "broadcast" and group.index == 0):  # the root has it already
        assert wrong(operation, nothing, data, group)


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.full
def test_a_sum_without_one_rank_or_with_one_twice_is_wrong(ranks: int) -> None:
    group = Group(tuple(range(ranks)), 0)
    data = buffers("all_reduce", 1 << 20, torch.bfloat16, group, "cpu")
    for rank in {0, ranks - 1}:
        for factor in (-1, 1):
            period = values.expected_sum(ranks, torch.bfloat16) + factor * values.term(rank, ranks, torch.bfloat16)
            found = wrong("all_reduce", lambda data, _, period=period: values.fill(data.received, period), data, group)  # type: ignore[misc]
            assert " are wrong" in found


@pytest.mark.full
def test_parts_in_each_others_place_are_wrong() -> None:
    group = Group((0, 1, 2, 3), 2)
    for operation in ("all_gather", "all_to_all"):
        data = buffers(operation, 4096, torch.bfloat16, group, "cpu")
        swapped = right(operation, data, group)
        swapped[1], swapped[3] = swapped[3], swapped[1]
        assert wrong(operation, lambda data, _, op=operation, parts=swapped: leave(op, data, parts), data, group)  # type: ignore[misc]


def test_an_iteration_takes_as_long_as_its_slowest_rank_and_that_is_named() -> None:
    found = report.case(Timed("all_reduce", "job", 2, 1000, [[1.0, 4.0, 1.0], [2.0, 2.0, 2.0]]), ["node0", "node1"])
    assert found.samples_s == [2.0, 4.0, 2.0]
    assert (found.median_s, found.rank, found.node) == (2.0, 1, "node1")
    assert found.value == pytest.approx(1000 / 2.0 / 1e9)
    assert found.derived["slowest_of_median"] == pytest.approx(2 / 1.5)


def test_what_is_hidden_is_what_both_save_of_the_shorter_one() -> None:
    assert Overlapped(2.0, 3.0, 3.0).hidden_percent == 100
    assert Overlapped(2.0, 3.0, 5.0).hidden_percent == 0
    assert Overlapped(2.0, 3.0, 4.0).hidden_percent == 50
    assert Overlapped(2.0, 3.0, 6.0).hidden_percent == -50


@pytest.mark.full
def test_a_collective_is_measured_with_a_gemm_at_its_side(primus: Run, tmp_path: Path) -> None:
    words = ("--device", "cpu", "--op", "all_reduce", "--sizes", "1MiB", "--iterations", "3", "--overlap")
    done = primus("direct", "--", "bench", "comm", *words, env={"GPUS_PER_NODE": "2"}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "% hidden" in done.stdout
    [case] = json.loads((tmp_path / "output/bench-comm/comm.json").read_text())["cases"]
    assert case["derived"]["together_s"] > 0
    assert case["derived"]["gemm_s"] > 0
    assert isinstance(case["derived"]["hidden_percent"], float)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_collective_is_measured_between_real_ranks(primus: Run, tmp_path: Path, ranks: int) -> None:
    words = ("--device", "cpu", "--sizes", "4KiB,1MiB", "--iterations", "3", "--output", "r.csv", "--output", "r.md")
    done = primus("direct", "--", "bench", "comm", *words, env={"GPUS_PER_NODE": str(ranks)}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "results checked" in done.stdout
    found = json.loads((tmp_path / "output/bench-comm/comm.json").read_text())
    measured = [case["parameters"]["operation"] for case in found["cases"]]
    assert measured == [op for op in traffic.OPERATIONS for _ in range(2) if ranks > 1 or op != "send_recv"]
    for case in found["cases"]:
        assert case["verified"]
        assert len(case["samples"]) == 3
        size, p = case["parameters"]["bytes"], ranks
        algorithm = size / case["median"] / 1e9
        assert case["derived"]["algorithm_gb_per_s"] == pytest.approx(algorithm)
        expected = algorithm * traffic.factor(case["parameters"]["operation"], p)
        assert case["value"] == (pytest.approx(expected) if p > 1 else None)
        assert case["rank"] in range(ranks)
    assert found["machine"]["ranks"] == ranks
    with (tmp_path / "r.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(measured)
    assert (tmp_path / "r.md").read_text().startswith("# Collectives")


@pytest.mark.full
def test_a_wrong_reduction_put_in_is_exit_1_and_no_speed_is_shown(tmp_path: Path) -> None:
    program = ROOT / "tests/bench/wrong_sum.py"
    words = (
        str(program),
        "--device",
        "cpu",
        "--op",
        "all_reduce",
        "--sizes",
        "4KiB",
        "--output",
        str(tmp_path / "r.json"),
    )
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *words],
                          capture_output=True, text=True, check=False, timeout=120)  # fmt: skip
    assert done.returncode == 1
    assert "all_reduce of 4KiB has a wrong result on rank 1" in done.stderr
    assert "its speed is not reported" in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "r.json").exists()


def test_a_library_that_gives_up_is_a_message_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def gives_up(data: Buffers, group: Group) -> None:
        raise RuntimeError("Connection closed by peer [10.0.0.7]:4711\nand much more")

    with pytest.raises(PrimusError, match="broadcast of 1KiB failed on rank 0") as caught:
        worker.main(("--device", "cpu", "--op", "broadcast", "--sizes", "1KiB"), {"broadcast": gives_up})
    assert (caught.value.exit_code, caught.value.why) == (1, "Connection closed by peer [10.0.0.7]:4711")
    assert capsys.readouterr().out == ""


@pytest.mark.full
def test_scopes_and_ranks_that_cannot_be_are_refused_before_anything_starts(primus: Run, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        done = primus("direct", "--dry-run", "--", "bench", "comm", *words, cwd=tmp_path)
        assert done.returncode == 2, done.stdout
        return done.stderr

    assert "did you mean 'all_reduce'" in refused("--op", "allreduce")
    assert "64KiB" in refused("--sizes", "many")
    assert "fp32" in refused("--dtype", "fp64")
    assert "primus --dry-run slurm -N 2" in refused("--scope", "inter-node")


def test_one_rank_is_a_note(primus: Run, tmp_path: Path) -> None:
    done = primus("direct", "--dry-run", "--", "bench", "comm", cwd=tmp_path, env={"GPUS_PER_NODE": "1"})
    assert "set GPUS_PER_NODE" in done.stdout + done.stderr
