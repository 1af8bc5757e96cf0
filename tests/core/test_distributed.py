"""Where a node stands in the job: the person's variables, then Slurm's, then defaults, all validated."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.environment.placement import MAX_GPUS_PER_NODE, node_count, resolve
from primus_core.errors import RequestError
from primus_core.host import UNREAD, HostRoot
from primus_core.machine.facts import Facts, Gpu
from primus_core.plan.plan import Distributed

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_NNODES": "4",
    "SLURM_NODEID": "2",
    "SLURM_GPUS_ON_NODE": "6",
    "SLURM_JOB_NODELIST": "n[03-05,9],m1",
}


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


def test_slurm_wins_over_the_default() -> None:
    assert place(SLURM) == Distributed(4, 2, 6, "n03", 20007)
    assert origins(SLURM) == {
        "NNODES": "Slurm",
        "NODE_RANK": "Slurm",
        "GPUS_PER_NODE": "Slurm",
        "MASTER_ADDR": "Slurm",
        "MASTER_PORT": "default",
    }


def test_a_step_on_some_of_the_jobs_nodes_is_as_large_as_the_step() -> None:
    step = {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "n[04-05]", "SLURM_NODEID": "1"}
    assert place({**SLURM, "SLURM_JOB_NUM_NODES": "4", **step}) == Distributed(2, 1, 6, "n04", 20007)


def test_only_a_further_task_of_a_slurm_job_is_refused() -> None:
    task = {"SLURM_PROCID": "3", "SLURM_LOCALID": "3"}
    assert "several tasks on this node" in refused({"SLURM_JOB_ID": "7", **task}).what
    assert place(task) == Distributed()
    assert place({"SLURM_JOB_ID": "7", **task, "NODE_RANK": "0"}).world_size == 1


def test_a_node_may_be_alone() -> None:
    assert [node_count({"NNODES": text}) for text in ("1", "3", "")] == [1, 3, 1]


def test_the_person_wins_over_slurm() -> None:
    mine = {"NNODES": "3", "NODE_RANK": "1", "GPUS_PER_NODE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert place(SLURM, mine) == Distributed(3, 1, 2, "10.0.0.1", 29500)
    assert set(origins(SLURM, mine).values()) == {"user"}


@pytest.mark.parametrize(
    "slurm",
    [
        {"SLURM_NNODES": "4", "SLURM_NODEID": "2"},
        {"SLURM_NODELIST": "n[1-2]"},
        {"SLURM_JOB_NODELIST": "n[1-999999999]"},
    ],
)
def test_several_nodes_of_no_job_are_refused(slurm: dict[str, str]) -> None:
    name, value = next(iter(slurm.items()))
    error = refused(slurm)
    assert error.what == f"{name} is '{value}', but SLURM_JOB_ID is not set"
    assert place(slurm, {"NNODES": "1"}) == Distributed()


def test_one_node_of_no_job_is_this_one() -> None:
    assert place({"SLURM_NNODES": "1", "SLURM_NODELIST": "n1", "SLURM_NODEID": "0"}) == Distributed()


def test_a_job_in_the_words_of_early_versions_is_a_job() -> None:
    early = {"SLURM_JOBID": "7", "SLURM_NNODES": "2", "SLURM_PROCID": "1", "SLURM_NODELIST": "n[1-2]"}
    assert (found := place(early)).nnodes == 2
    assert (found.node_rank, found.master_addr) == (1, "n1")


def test_an_empty_variable_is_an_unset_one() -> None:
    assert place({"NNODES": "", "MASTER_ADDR": " ", "GPUS_PER_NODE": " "}) == Distributed()


def test_the_variables_say_the_same_as_the_place() -> None:
    found, variables = resolve(machine(), SLURM)
    assert {v.name: v.value for v in variables} == {
        "NNODES": str(found.nnodes),
        "NODE_RANK": str(found.node_rank),
        "GPUS_PER_NODE": str(found.gpus_per_node),
        "MASTER_ADDR": found.master_addr,
        "MASTER_PORT": str(found.master_port),
    }
    assert all(v.why for v in variables)


@pytest.mark.parametrize(("name", "low", "high"), [("GPUS_PER_NODE", 1, MAX_GPUS_PER_NODE), ("MASTER_PORT", 1, 65535)])
def test_the_ends_of_a_range_are_in_it_and_beyond_them_is_refused(name: str, low: int, high: int) -> None:
    for value in (low, high):
        place({name: str(value)})
    for text in (str(low - 1), str(high + 1), "-1", "1.0", "two", "0x10", "1 2", "٣", "9" * 5000):
        error = refused({name: text})
        assert error.what == f"{name} is '{text}'"
        assert error.why == f"it takes a whole number from {low} to {high}"


def test_the_wrong_value_is_named_by_the_variable_that_holds_it() -> None:
    assert refused({**SLURM, "SLURM_GPUS_ON_NODE": "0"}).what == "SLURM_GPUS_ON_NODE is '0'"


@given(nnodes=st.integers(1, 10**6), rank=st.integers(0, 10**6))
def test_a_node_rank_is_below_the_number_of_nodes(nnodes: int, rank: int) -> None:
    environ = {"NNODES": str(nnodes), "NODE_RANK": str(rank), "MASTER_ADDR": "h"}
    if rank < nnodes:
        assert place(environ).node_rank == rank
    else:
        assert refused(environ).what == f"NODE_RANK is {rank}, but NNODES is {nnodes}"


def test_a_contradiction_of_person_and_slurm_names_both_sources() -> None:
    error = refused({**SLURM, "NNODES": "1"})
    assert "NODE_RANK from Slurm, NNODES from user" in error.why


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


def test_visible_devices_make_no_gpu_where_there_is_none() -> None:
    assert place({"CUDA_VISIBLE_DEVICES": "0,1"}).gpus_per_node == 1


def test_all_nodes_of_a_job_step_agree_on_a_port_and_steps_have_different_ones() -> None:
    ports = {
        step: {place({**SLURM, "SLURM_NODEID": node, "SLURM_STEP_ID": step}).master_port for node in "0123"}
        for step in "012"
    }
    assert all(len(of_step) == 1 for of_step in ports.values())
    assert len({port for of_step in ports.values() for port in of_step}) == 3
    assert place({**SLURM, "SLURM_JOB_ID": "123456789"}).master_port in range(20000, 30000)
    assert place({**SLURM, "MASTER_PORT": "1111"}).master_port == 1111


def test_how_many_ranks_there_will_be_is_open_on_a_machine_that_nobody_knows() -> None:
    unknown = machine()._replace(host=HostRoot(UNREAD, {}))
    assert resolve(unknown, SLURM)[0].tentative is False
    assert resolve(unknown, {**SLURM, "SLURM_GPUS_ON_NODE": ""})[0].tentative


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[01-04,07],m3", "n01"),
        ("n[7,1-3]", "n7"),
        ("rack[1-2]n[001-128]", "rack1n001"),
        ("a-b[3]-ib,c", "a-b3-ib"),
        ("n[100-101]", "n100"),
    ],
)
def test_the_master_is_the_first_of_slurms_nodes(nodes: str, first: str) -> None:
    assert place({**SLURM, "SLURM_JOB_NODELIST": nodes}).master_addr == first


names = st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True)
ranges = st.lists(
    st.tuples(st.integers(0, 999), st.none() | st.integers(0, 999)).map(
        lambda pair: f"{pair[0]:03d}" + ("" if pair[1] is None else f"-{max(pair[0], pair[1]):03d}")
    ),
    min_size=1,
    max_size=3,
)


@given(prefix=names, items=ranges, rest=st.lists(names, max_size=2))
def test_the_first_host_of_any_list_has_the_first_number(prefix: str, items: list[str], rest: list[str]) -> None:
    nodes = ",".join([f"{prefix}[{','.join(items)}]", *rest])
    expected = prefix + re.split(r"[,-]", items[0])[0]
    assert place({**SLURM, "SLURM_JOB_NODELIST": nodes}).master_addr == expected
