"""The launcher `one-per-node`, with real processes that are told where they stand. No torch and no JAX is needed."""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import rank_report
from tests.conftest import Run, free_port

CAPTURES = Path(__file__).parents[1] / "machine/captures"
Roll = dict[str, str | None]
Result = subprocess.CompletedProcess[str]


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """The environment in which the task `rank_report` is installed, and where nobody finds torch."""
    site = Path(rank_report.write(tmp_path / "site"))
    (site / "torch.py").write_text("raise ImportError('nobody needs it')\n")
    return {"PYTHONPATH": str(site)}


def run_of(folder: Path) -> Path:
    return (folder / "output" / "rank_report").resolve()


def metadata(folder: Path) -> dict[str, Any]:
    return dict(json.loads((run_of(folder) / "metadata.json").read_text(encoding="utf-8")))


def said(text: str) -> Roll:
    """What a node's process printed."""
    return dict(json.loads(next(line for line in text.splitlines() if line.startswith("{"))))


def both(primus: Run, folder: Path, env: dict[str, str], *words: str) -> list[Result]:
    """Two nodes that share a run directory, each started by hand, at once."""
    env = {"MASTER_PORT": str(free_port()), **env}
    node = {**env, "NNODES": "2", "PRIMUS_RUN_DIR": str(folder / "output/rank_report"), "PRIMUS_RUN_ID": "rank_report"}
    with ThreadPoolExecutor(2) as pool:
        return list(
            pool.map(lambda n: primus("direct", "--", "rank_report", *words, env={**node, "NODE_RANK": n}), "01")
        )


@pytest.mark.full
def test_each_of_two_nodes_has_one_rank_and_knows_where_they_meet(
    primus: Run, site: dict[str, str], tmp_path: Path
) -> None:
    env = {**site, "MASTER_ADDR": "localhost", "MASTER_PORT": "5432", "GPUS_PER_NODE": "4"}
    results = both(primus, tmp_path, env)
    assert [result.returncode for result in results] == [0, 0], results
    logs = tmp_path / "output/rank_report/logs"
    for node, rank in enumerate("01"):
        assert said((logs / f"rank_{node}.log").read_text()) == {
            "RANK": rank,
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "1",
            "NNODES": "2",
            "NODE_RANK": rank,
            "GPUS_PER_NODE": "4",
            "JAX_COORDINATOR_IP": "127.0.0.1",
            "JAX_COORDINATOR_PORT": "5432",
            "XLA_FLAGS": None,
        }
    assert sorted(path.name for path in logs.glob("rank_*.log")) == ["rank_0.log", "rank_1.log"]


@pytest.mark.full
@pytest.mark.parametrize(("do", "code", "what"), [("raise", 1, "ValueError: no roll call"),
                                                  ("die", 137, "ended by SIGKILL")])  # fmt: skip
def test_the_node_whose_only_process_ends_is_the_first_failure(
    primus: Run, site: dict[str, str], tmp_path: Path, do: str, code: int, what: str
) -> None:
    _, second = both(primus, tmp_path, {**site, "MASTER_ADDR": "127.0.0.1"}, "--do", do, "--rank", "1")
    assert second.returncode == code, second.stderr
    assert "first failure rank 1 on node 1" in second.stderr
    assert what in second.stderr
    assert "logs/rank_1.log" in second.stderr


@pytest.mark.full
def test_a_killed_process_is_the_first_failure_however_quickly_the_other_says_that_it_lost_it(
    primus: Run, site: dict[str, str], tmp_path: Path
) -> None:
    results = both(primus, tmp_path, {**site, "MASTER_ADDR": "127.0.0.1"}, "--do", "lose", "--rank", "1")
    for result in results:
        assert result.returncode == 137, result.stderr
        assert "first failure rank 1 on node 1" in result.stderr
        assert "ended by SIGKILL" in result.stderr
    assert metadata(tmp_path)["first_failure"]["rank"] == 1


@pytest.mark.torch
@pytest.mark.full
def test_a_lone_node_is_one_rank_that_meets_nobody(primus: Run, site: dict[str, str], tmp_path: Path) -> None:
    result = primus("direct", "--", "rank_report", env={**site, "GPUS_PER_NODE": "4"})
    assert result.returncode == 0, result.stderr
    roll = said(result.stdout)
    assert (roll["RANK"], roll["WORLD_SIZE"], roll["GPUS_PER_NODE"]) == ("0", "1", "4")
    assert (roll["JAX_COORDINATOR_IP"], roll["JAX_COORDINATOR_PORT"]) == (None, None)
    assert metadata(tmp_path)["world_size"] == 1
    assert "ranks      1 on one node, with 4 devices" in primus("runs", "show", "output/rank_report").stdout


@pytest.mark.full
def test_a_process_that_is_killed_alone_is_a_rank_and_no_launcher(
    primus: Run, site: dict[str, str], tmp_path: Path
) -> None:
    result = primus("direct", "--max-restarts", "1", "--", "rank_report", "--do", "die", env=site)
    assert result.returncode == 137
    assert "first failure rank 0 on node 0" in result.stderr
    assert len(metadata(tmp_path)["attempts"]) == 2


@pytest.mark.full
def test_single_is_one_process_that_is_told_that_it_is_alone(primus: Run, site: dict[str, str], tmp_path: Path) -> None:
    roll = said(primus("direct", "--single", "--", "rank_report", env={**site, "GPUS_PER_NODE": "4"}).stdout)
    assert (roll["RANK"], roll["WORLD_SIZE"]) == ("0", "1")
    plan = json.loads((run_of(tmp_path) / "plan.json").read_text())
    assert (plan["worker"]["launcher"], plan["distributed"]["one_per_node"]) == ("single", False)


def test_the_printed_script_pasted_into_a_shell_does_the_same(primus: Run, site: dict[str, str]) -> None:
    env = {**site, "NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "::1", "GPUS_PER_NODE": "4"}
    shown = primus("direct", "--dry-run", "--rendezvous-timeout", "0", "--", "rank_report", env=env).stdout
    assert "# ranks      2 (node 1 of 2, one per node, for 4 devices, master ::1, port 1234)" in shown
    assert not re.search("^# needs ", shown, re.M)
    pasted = subprocess.run(["bash"], input=shown, text=True, capture_output=True, check=True, env={**site})
    roll = said(pasted.stdout)
    assert (roll["RANK"], roll["JAX_COORDINATOR_IP"]) == ("1", "[::1]")


def test_a_coordinator_that_the_person_names_is_the_one(primus: Run, site: dict[str, str]) -> None:
    env = {**site, "NNODES": "2", "MASTER_ADDR": "node1", "JAX_COORDINATOR_IP": "10.0.0.7"}
    shown = primus("direct", "--dry-run", "--json", "--", "rank_report", env=env).stdout
    found = {v["name"]: (v["value"], v["origin"]) for v in json.loads(shown)["environment"]}
    assert found["JAX_COORDINATOR_IP"] == ("10.0.0.7", "user")
    assert found["JAX_COORDINATOR_PORT"] == ("1234", "direct")


@pytest.mark.full
def test_it_takes_as_many_gpus_as_are_asked_for(primus: Run, site: dict[str, str]) -> None:
    def taken(*more: str, **environ: str) -> str | None:
        words = (*more, "--dry-run", "--json", "--assume-host", str(CAPTURES / "mi210-8.tar.gz"), "--", "rank_report")
        shown = json.loads(primus("direct", *words, env={**site, **environ}).stdout)
        return {v["name"]: v["value"] for v in shown["environment"]}.get("JAX_LOCAL_DEVICE_IDS")

    assert taken() == "0,1,2,3,4,5,6,7"
    assert taken(GPUS_PER_NODE="2") == taken(HIP_VISIBLE_DEVICES="4,5") == "0,1"
    assert taken(JAX_LOCAL_DEVICE_IDS="3") == "3"
    assert taken("--single") == "0"
    assert taken(HIP_VISIBLE_DEVICES="") is None


@pytest.mark.full
def test_a_replay_keeps_nodes_and_devices_or_is_refused(primus: Run, site: dict[str, str], tmp_path: Path) -> None:
    env = {**site, "GPUS_PER_NODE": "4"}
    assert primus("direct", "--", "rank_report", env=env).returncode == 0
    again = primus("replay", "output/rank_report", env=site)
    assert again.returncode == 0, again.stderr
    assert said(again.stdout)["GPUS_PER_NODE"] == "4"
    refused = primus("replay", "output/rank_report", env={**site, "NNODES": "2", "MASTER_ADDR": "localhost"})
    assert refused.returncode == 3
    assert "nnodes: 1 then, here 2" in refused.stderr


@pytest.mark.torch
@pytest.mark.full
def test_another_launcher_is_a_difference_between_runs(primus: Run, site: dict[str, str], tmp_path: Path) -> None:
    primus("direct", "--", "rank_report", env=site)
    first = run_of(tmp_path)
    primus("direct", "--single", "--", "rank_report", env=site)
    shown = primus("runs", "diff", str(first), str(run_of(tmp_path))).stdout
    assert re.search(r"launcher.*one-per-node.*single", shown)
