"""The GPUs that a person left visible: the lists of ROCr, HIP and CUDA are read as these read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.machine import machines

from primus_machine import facts
from primus_machine.errors import RequestError
from primus_machine.facts import Gpu
from primus_machine.gpus.visible import hides_gpus, remarks, visible

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
UUIDS = [f"GPU-{number:02x}00000000000000" for number in (0xA0, 0xA1, 0xB0, 0xB1, 0xC0, 0xC1, 0xD0, 0xD1)]
AMD = [Gpu("amd", f"0000:{index:02x}:00.0", ordinal=index, uuid=uuid) for index, uuid in enumerate(UUIDS)]
NVIDIA = [gpu._replace(vendor="nvidia") for gpu in AMD]


@pytest.mark.parametrize(
    ("environ", "left"),
    [
        ({}, (0, 1, 2, 3, 4, 5, 6, 7)),
        ({ROCR: "4,5"}, (4, 5)),
        ({ROCR: "0,3,4,7", HIP: "2,3"}, (4, 7)),
        ({ROCR: "0,3,4,7", CUDA: "3"}, (7,)),
        ({ROCR: "6,7", CUDA: "1,0"}, (7, 6)),
        ({HIP: "2", CUDA: "0,1"}, (2,)),
        ({HIP: "0,-1,2"}, (0,)),
        ({HIP: "1,9,2"}, (1,)),
        ({HIP: " 3 , 1 "}, (3, 1)),
        ({HIP: "2,3,"}, (2, 3)),
        ({HIP: "0,1x,2"}, (0,)),
        ({ROCR: "GPU-b1,0"}, (3, 0)),
        ({ROCR: "GPU-A1"}, (1,)),
        ({ROCR: "2,GPU-a,3"}, (2,)),
        ({ROCR: "GPU-c0,GPU-c1", HIP: "GPU-c1"}, (5,)),
    ],
)
def test_hip_indexes_what_rocr_leaves(environ: Mapping[str, str], left: tuple[int, ...]) -> None:
    assert visible(AMD, environ) == left


@pytest.mark.parametrize(
    ("environ", "left"),
    [
        ({CUDA: "4,5"}, (4, 5)),
        ({CUDA: "4", HIP: "", ROCR: "0"}, (4,)),
        ({CUDA: "1gpu,2"}, (1, 2)),
        ({CUDA: "GPU-a0,GPU-d1,3"}, (0, 7)),
        ({CUDA: "3,GPU-a0"}, (3,)),
        ({CUDA: "MIG-GPU-b000000000000000/7/0,MIG-GPU-b100000000000000/7/0"}, (2,)),
    ],
)
def test_cuda_reads_its_own_list_alone(environ: Mapping[str, str], left: tuple[int, ...]) -> None:
    assert visible(NVIDIA, environ) == left


@pytest.mark.parametrize(
    "environ", [{HIP: ""}, {HIP: " "}, {CUDA: "-1"}, {ROCR: ""}, {ROCR: "0,1", HIP: "-1,0"}, {CUDA: "NoDevFiles"}]
)
def test_an_empty_list_or_a_leading_minus_one_hides_all_gpus(environ: Mapping[str, str]) -> None:
    assert visible(AMD, environ) == ()
    assert hides_gpus(AMD, environ)
    assert hides_gpus((), environ)


def test_an_empty_list_of_hip_hides_all_gpus_from_pytorch_beside_one_of_cuda_too() -> None:
    assert hides_gpus(AMD, {HIP: "", CUDA: "3"})


@pytest.mark.parametrize("environ", [{ROCR: "4,5", HIP: "0,1,2"}, {ROCR: "4,5", HIP: "0,-1,1"}, {ROCR: "7", HIP: "0,"}])
def test_a_list_of_hip_that_is_longer_than_that_of_rocr_is_refused_as_pytorch_does(environ: Mapping[str, str]) -> None:
    with pytest.raises(RequestError, match="is longer than ROCR_VISIBLE_DEVICES"):
        visible(AMD, environ)


@pytest.mark.parametrize(
    "environ",
    [{ROCR: "1", HIP: "1"}, {HIP: "9"}, {ROCR: "8"}, {HIP: "all"}, {ROCR: "GPU-ff"}, {ROCR: "0,1", CUDA: "2"}],
)
def test_lists_that_leave_nothing_are_an_error_that_names_both_variables(environ: Mapping[str, str]) -> None:
    with pytest.raises(RequestError) as caught:
        visible(AMD, environ)
    assert all(f"{name}={value}" in caught.value.what for name, value in environ.items())
    assert ROCR in caught.value.why
    assert "counts from 0 among those" in caught.value.why


@pytest.mark.parametrize("environ", [{HIP: "0,0"}, {ROCR: "1,2,1"}, {ROCR: "3,GPU-b1"}, {ROCR: "4,5", HIP: "1,1"}])
def test_a_gpu_that_is_named_twice_is_an_error(environ: Mapping[str, str]) -> None:
    with pytest.raises(RequestError, match="names a GPU twice"):
        visible(AMD, environ)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({HIP: "0,9,1"}, "HIP_VISIBLE_DEVICES=0,9,1: '9' names no GPU here, and ends the list"),
        ({ROCR: "4,x"}, "ROCR_VISIBLE_DEVICES=4,x: 'x' names no GPU here, and ends the list"),
        ({ROCR: "4,5", HIP: "0,4"}, "HIP_VISIBLE_DEVICES=0,4: '4' names no GPU here, and ends the list"),
        (
            {HIP: "4,5", "GPUS_PER_NODE": "3"},
            "GPUS_PER_NODE is 3, but 2 GPUs can be used here: some ranks get none of their own",
        ),
    ],
)
def test_a_list_that_ends_early_and_more_ranks_than_gpus_are_remarked(environ: Mapping[str, str], said: str) -> None:
    assert remarks(AMD, environ) == (said,)


@pytest.mark.parametrize(
    "environ", [{}, {HIP: "0,-1,2"}, {HIP: "2,3,"}, {HIP: "-1"}, {HIP: "0,0"}, {"GPUS_PER_NODE": "4"}]
)
def test_a_list_that_is_meant_so_has_no_remark(environ: Mapping[str, str]) -> None:
    assert remarks(AMD, environ) == remarks((), environ) == ()


def test_a_gpu_that_hip_counts_but_no_rank_uses_keeps_its_number() -> None:
    behind_a_screen = [gpu._replace(ordinal=index + 1) for index, gpu in enumerate(AMD)]
    assert visible(behind_a_screen, {HIP: "1,2,8"}) == (0, 1, 7)
    assert visible(behind_a_screen, {ROCR: "0,3", HIP: "1"}) == (2,)
    assert visible(behind_a_screen, {HIP: "0,3"}) == (2,)


def test_uuids_are_those_of_the_driver(tmp_path: Path) -> None:
    amd = facts.read(machines.write(tmp_path / "amd", machines.base(), machines.amd("MI300X"))).gpus
    assert [gpu.uuid for gpu in amd[:2]] == ["GPU-d465af38bcaa89bd", "GPU-d465af38bcaa89be"]
    nvidia = facts.read(machines.write(tmp_path / "nvidia", machines.base(), machines.nvidia("H100 SXM"))).gpus
    uuid = "GPU-9221d5d1-b60b-a624-bf14-0a1819cfda05"
    assert visible(nvidia, {CUDA: f"{uuid},GPU-9221d5d1-b60b-a624-bf14-0a1819cfda00,GPU-9221"}) == (5, 0)
