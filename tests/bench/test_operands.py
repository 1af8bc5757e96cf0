"""The rotating buffers: enough of them, each in a place of its own, always with the same data."""

from __future__ import annotations

import itertools

import pytest
import torch

from primus_bench.benchmarks.gemm.operands import Rotation, sets_for, torch_dtype
from primus_bench.benchmarks.gemm.problem import Problem
from primus_core.errors import MachineError

pytestmark = pytest.mark.torch

MIB = 2**20


def test_the_sets_together_exceed_the_cache() -> None:
    problem = Problem(256, 256, 256)
    count = sets_for(problem, 512 * MIB, 2**34)
    assert count * problem.bytes_moved > 512 * MIB
    assert (count - 1) * problem.bytes_moved <= 512 * MIB


def test_large_operands_rotate_too() -> None:
    assert sets_for(Problem(2**15, 2**15, 2**15), 512 * MIB, 2**37) == 2


def test_where_memory_is_short_there_are_fewer_sets_and_where_none_fits_an_error() -> None:
    problem = Problem(1024, 1024, 1024)  # 6 MiB
    assert sets_for(problem, 512 * MIB, 20 * MIB) == 3
    assert sets_for(problem, 512 * MIB, 7 * MIB) == 1
    with pytest.raises(MachineError, match="choose a smaller"):
        sets_for(problem, 512 * MIB, 5 * MIB)


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
def test_operands_have_the_shape_that_is_multiplied_and_the_layout_that_was_asked_for(
    trans_a: bool, trans_b: bool
) -> None:
    a, b, c = Rotation(Problem(3, 5, 7, "fp32", trans_a, trans_b), 2, "cpu", 0).operands(1)
    assert (a.shape, b.shape, c.shape) == ((3, 7), (7, 5), (3, 5))
    assert a.stride() == ((1, 3) if trans_a else (7, 1))
    assert b.stride() == ((1, 7) if trans_b else (5, 1))
    assert c.stride() == (5, 1)


def test_consecutive_iterations_touch_different_memory_and_come_round() -> None:
    rotation = Rotation(Problem(33, 17, 9, "bf16"), 4, "cpu", 0)
    first = [[matrix.data_ptr() for matrix in rotation.operands(i)] for i in range(4)]
    assert len({place for places in first for place in places}) == 12
    assert [matrix.data_ptr() for matrix in rotation.operands(4)] == first[0]


def test_no_two_sets_overlap_and_each_begins_aligned() -> None:
    rotation = Rotation(Problem(33, 17, 9, "fp16"), 3, "cpu", 0)
    spans = sorted((m.data_ptr(), m.data_ptr() + 2 * m.numel()) for i in range(3) for m in rotation.operands(i))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    offsets = {rotation.operands(i)[0].data_ptr() - rotation.operands(0)[0].data_ptr() for i in range(3)}
    assert all(offset % 256 == 0 for offset in offsets)


@pytest.mark.parametrize(("dtype", "fp8"), [("bf16", None), ("fp16", None), ("fp32", None), ("fp8", "float8_e4m3fn")])
def test_data_are_normal_differ_between_sets_and_follow_from_the_seed(dtype: str, fp8: str | None) -> None:
    problem = Problem(128, 128, 128, dtype)
    one, again, other = (Rotation(problem, 2, "cpu", seed, fp8).operands(0)[0].float() for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert abs(one.mean().item()) < 0.05
    assert 0.95 < one.std().item() < 1.05
    rotation = Rotation(problem, 2, "cpu", 1, fp8)
    assert not torch.equal(rotation.operands(0)[0].float(), rotation.operands(1)[0].float())


def test_a_device_without_fp8_says_so_and_names_what_it_takes() -> None:
    with pytest.raises(MachineError, match="fp8") as caught:
        torch_dtype("fp8", None)
    assert "bf16, fp16 or fp32" in caught.value.fix
    assert caught.value.exit_code == 3
