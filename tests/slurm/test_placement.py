"""Where a node stands in a job of Slurm, by its variables: no Slurm is needed for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run
from tests.core.test_comparison import Pair, pair
from tests.core.test_direct import metadata
from tests.core.test_distributed import machine, origins, place, refused
from tests.core.test_nesting import folder, runs
from tests.core.test_rendezvous import site

from primus_core.environment.placement import resolve
from primus_core.plan.plan import Distributed
from primus_core.runs.comparison import compare
from primus_machine.host import UNREAD, HostRoot

__all__ = ["folder", "pair", "site"]

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_NNODES": "4",
    "SLURM_NODEID": "2",
    "SLURM_GPUS_ON_NODE": "6",
    "SLURM_JOB_NODELIST": "n[03-05,9],m1",
}


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


def test_a_job_script_that_starts_one_node_of_several_is_refused() -> None:
    script = {**SLURM, "SLURM_NODEID": "0", "ENVIRONMENT": "BATCH"}
    assert "nothing starts Primus on the others" in refused(script).what
    assert place({**script, "SLURM_STEP_ID": "0"}).nnodes == 4
    assert place({**script, "NNODES": "1"}).nnodes == 1
    assert place({**script, "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "n1"}).nnodes == 1


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


def test_the_wrong_value_is_named_by_the_variable_that_holds_it() -> None:
    assert refused({**SLURM, "SLURM_GPUS_ON_NODE": "0"}).what == "SLURM_GPUS_ON_NODE is '0'"


def test_a_contradiction_of_person_and_slurm_names_both_sources() -> None:
    error = refused({**SLURM, "NNODES": "1"})
    assert "NODE_RANK from Slurm, NNODES from user" in error.why


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


def test_a_person_inside_a_slurm_allocation_gets_slurms_place_in_the_job(primus: Run, project: Path) -> None:
    slurm = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_JOB_NODELIST": "n[03-04]",
             "SLURM_GPUS_ON_NODE": "4"}  # fmt: skip
    shown = primus("direct", "--dry-run", "--", "ranks", "end", "0", cwd=project, env=slurm).stdout
    assert re.search(r"--nproc-per-node 4 --nnodes 2 --node-rank 1 --master-addr n03 --master-port 20007 ", shown)
    mine = primus("direct", "--dry-run", "--", "ranks", "end", "0", cwd=project, env={**slurm, "NODE_RANK": "0"}).stdout
    assert "--node-rank 0" in mine


def test_several_tasks_on_one_node_are_refused(primus: Run, project: Path) -> None:
    slurm = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_PROCID": "3", "SLURM_LOCALID": "3"}
    result = primus("direct", "--dry-run", "--", "ranks", "end", "0", cwd=project, env=slurm)
    assert result.returncode == 2
    assert "--ntasks-per-node=1" in result.stderr


@pytest.mark.parametrize("name", ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"])
@pytest.mark.parametrize("job", [{}, {"SLURM_JOB_ID": "7", "SLURM_NODEID": "0", "SLURM_NNODES": "2"}])
def test_a_malformed_node_list_is_named_with_its_variable(primus: Run, name: str, job: dict[str, str]) -> None:
    done = primus("env", "explain", env={**job, name: "n[1-"})
    assert (done.returncode, f"{name} is 'n[1-', which is not a node list" in done.stderr) == (2, True)


def test_an_address_outside_of_the_allocation_is_refused(primus: Run, site: dict[str, str]) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_NODEID": "0", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]",
           "SLURMD_NODENAME": "n1"}  # fmt: skip
    for wrong, why in (("n9.invalid", "the job runs on n[1-2], not on 'n9.invalid'"),
                       ("192.0.2.7", "'192.0.2.7' leads to 192.0.2.7, which is not an address of n1")):  # fmt: skip
        done = primus("direct", "--dry-run", "--", "rank_report", env={**site, **job, "MASTER_ADDR": wrong})
        assert done.returncode == 2, done.stdout
        assert f"MASTER_ADDR is '{wrong}', but node rank 0 is n1" in done.stderr
        assert why in done.stderr
        assert "unset MASTER_ADDR" in done.stderr
    right = primus("direct", "--dry-run", "--", "rank_report", env={**site, **job, "MASTER_ADDR": "n1"})
    assert right.returncode == 0, right.stderr


@pytest.mark.full
def test_the_nodes_of_a_job_are_named(primus: Run, site: dict[str, str]) -> None:
    """Under Slurm, node 0 knows which node has which rank; a limit shorter than the first line ends it, too."""
    job = {"SLURM_JOB_ID": "7", "SLURM_NODEID": "0", "SLURM_NNODES": "3", "SLURM_JOB_NODELIST": "n[1,5-6]"}
    here = {"MASTER_ADDR": "127.0.0.1", "SLURMD_NODENAME": "n1"}
    done = primus("direct", "--rendezvous-timeout", "1s", "--", "rank_report", env={**site, **job, **here})
    assert done.returncode == 1
    assert "missing: node ranks 1 (n5), 2 (n6)" in done.stderr


@pytest.mark.full
def test_a_run_that_a_node_of_many_starts_is_on_that_node_alone(primus: Run, folder: Path) -> None:
    node = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "localhost", "PRIMUS_RUN_DIR": "output/shared"}
    slurm = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_JOB_NODELIST": "n[0-1]"}
    words = ("outer", "direct", "--", "inner")
    done = primus("direct", "--", *words, env={**node, "NODE_RANK": "0", **slurm}, cwd=folder)
    assert done.returncode == 0, done.stderr
    [inner] = runs(folder, "inner")
    assert f"inner 0 of 1 1 {inner}" in done.stdout
    assert metadata(inner)["parent"]["run_id"] == "shared"
    assert not (folder / "output/shared/nodes/0").exists()


def test_what_says_only_in_which_job_is_no_difference(pair: Pair) -> None:
    assert (
        compare(*pair({"environ": {"SSH_TTY": "/dev/pts/1", "USER": "ada"}}, {"environ": {"SLURM_JOB_ID": "7"}})) == []
    )
