"""Where a node stands in the job: the person's variables, then defaults, all validated (a scheduler's: tests/slurm)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.environment.placement import MAX_GPUS_PER_NODE, node_count, resolve
from primus_core.errors import RequestError
from primus_core.plan.plan import Distributed
from primus_core.runtimes.direct.runtime import _numa
from primus_machine.facts import Facts, Gpu
from primus_machine.host import HostRoot


def machine(gpus: int = 0) -> Facts:
    """A machine with so many GPUs."""
    return Facts(
        environ={},
        hostname="here",
        cwd="/",
        time=0.0,
        python="python",
        cpu_count=8,
        gpus=tuple(Gpu("amd", f"0000:{index:02x}:00.0") for index in range(gpus)),
        numa_cpus={},
        host=HostRoot("/nonexistent", {}),
    )


def place(*environ: Mapping[str, str], gpus: int = 0) -> Distributed:
    """The place with these variables."""
    return resolve(machine(gpus), dict(ChainMap(*map(dict, environ))))[0]


def origins(*environ: Mapping[str, str]) -> dict[str, str]:
    """Where each value came from."""
    return {v.name: v.origin for v in resolve(machine(), dict(ChainMap(*map(dict, environ))))[1]}


def refused(*environ: Mapping[str, str]) -> RequestError:
    """The error that these variables give."""
    with pytest.raises(RequestError) as caught:
        place(*environ)
    assert caught.value.fix
    return caught.value


def test_one_process_on_one_node_is_the_default() -> None:
    assert place() == Distributed(1, 0, 1, "localhost", 29500)
    assert set(origins().values()) == {"default"}


def test_every_gpu_gets_a_rank() -> None:
    assert place(gpus=8).gpus_per_node == 8


def test_a_node_may_be_alone() -> None:
    assert [node_count({"NNODES": text}) for text in ("1", "3", "")] == [1, 3, 1]


def test_an_empty_variable_is_an_unset_one() -> None:
    assert place({"NNODES": "", "MASTER_ADDR": " ", "GPUS_PER_NODE": " "}) == Distributed()


@pytest.mark.parametrize(("name", "low", "high"), [("GPUS_PER_NODE", 1, MAX_GPUS_PER_NODE), ("MASTER_PORT", 1, 65535)])
def test_the_ends_of_a_range_are_in_it_and_beyond_them_is_refused(name: str, low: int, high: int) -> None:
    for value in (low, high):
        place({name: str(value)})
    for text in (str(low - 1), str(high + 1), "-1", "1.0", "two", "0x10", "1 2", "٣", "9" * 5000):
        error = refused({name: text})
        assert error.what == f"{name} is '{text}'"
        assert error.why == f"it must be a whole number from {low} to {high}"


@given(nnodes=st.integers(1, 10**6), rank=st.integers(0, 10**6))
def test_a_node_rank_is_below_the_number_of_nodes(nnodes: int, rank: int) -> None:
    environ = {"NNODES": str(nnodes), "NODE_RANK": str(rank), "MASTER_ADDR": "h"}
    if rank < nnodes:
        assert place(environ).node_rank == rank
    else:
        assert refused(environ).what == f"NODE_RANK is {rank}, but NNODES is {nnodes}"


def test_several_nodes_need_to_know_where_to_meet() -> None:
    assert "MASTER_ADDR is not set" in refused({"NNODES": "2"}).what
    assert place({"NNODES": "2", "MASTER_ADDR": "node1"}) == Distributed(2, 0, 1, "node1", 1234)


@pytest.mark.parametrize(
    ("given_address", "kept"),
    [
        ("node1", "node1"),
        ("gpu-01.cluster.local.", "gpu-01.cluster.local."),
        ("a_b", "a_b"),
        ("192.168.0.1", "192.168.0.1"),
        ("::1", "::1"),
        ("[2001:DB8::0:1]", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        (" node1 ", "node1"),
    ],
)
def test_names_and_addresses_of_both_kinds_are_masters(given_address: str, kept: str) -> None:
    assert place({"MASTER_ADDR": given_address}).master_addr == kept


@pytest.mark.parametrize(
    "address", ["node1:29500", "http://n", "-n", "a b", "[node1]", "::1]", "[::1]:29500", "a,b", "ü"]
)
def test_what_is_neither_name_nor_address_is_refused(address: str) -> None:
    assert refused({"MASTER_ADDR": address}).what == f"MASTER_ADDR is '{address}'"


@pytest.mark.parametrize(
    ("environ", "ranks"),
    [
        ({"HIP_VISIBLE_DEVICES": "0,2"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa, GPU-bb,GPU-cc"}, 3),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2,3", "HIP_VISIBLE_DEVICES": "1"}, 1),
        ({"CUDA_VISIBLE_DEVICES": ""}, 1),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 1),
        ({"HIP_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7,8,9"}, 8),
        ({"HIP_VISIBLE_DEVICES": "0", "GPUS_PER_NODE": "4"}, 4),
    ],
)
def test_only_visible_gpus_count_unless_the_person_says_a_number(environ: dict[str, str], ranks: int) -> None:
    assert place(environ, gpus=8).gpus_per_node == ranks


def test_numa_binds_each_rank_beside_the_gpu_that_it_has() -> None:
    gpus = tuple(gpu._replace(numa_node=index // 4) for index, gpu in enumerate(machine(8).gpus))
    facts = machine()._replace(gpus=gpus, numa_cpus={0: "0-63", 1: "64-127"})

    def cpus(**environ: str) -> str:
        call = _numa(facts, resolve(facts, environ)[0].gpus_per_node, environ)
        return "".join(variable.value for variable in call)

    assert cpus(ROCR_VISIBLE_DEVICES="4,5") == "64-127;64-127"
    assert cpus(ROCR_VISIBLE_DEVICES="0,3,4,7", HIP_VISIBLE_DEVICES="2,3") == "64-127;64-127"
    assert cpus(HIP_VISIBLE_DEVICES="7,0") == "64-127;0-63"


def test_the_reason_of_the_number_of_ranks_names_the_lists() -> None:
    found = {v.name: v.why for v in resolve(machine(8), {"ROCR_VISIBLE_DEVICES": "4,5"})[1]}
    assert found["GPUS_PER_NODE"] == "2 of 8 devices are visible (4,5): ROCR_VISIBLE_DEVICES=4,5"


def test_more_ranks_than_devices_are_told() -> None:
    found = {v.name: v.why for v in resolve(machine(8), {"GPUS_PER_NODE": "16"})[1]}
    assert found["GPUS_PER_NODE"] == "devices to use on each node; it has only 8"


@pytest.mark.parametrize("devices", ["0,0", "9"])
def test_a_wrong_list_of_devices_is_refused(devices: str) -> None:
    with pytest.raises(RequestError, match=devices):
        place({"HIP_VISIBLE_DEVICES": devices}, gpus=8)


def test_visible_devices_make_no_gpu_where_there_is_none() -> None:
    assert place({"CUDA_VISIBLE_DEVICES": "0,1"}).gpus_per_node == 1
