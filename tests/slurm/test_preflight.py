"""`preflight` on a real cluster with sick nodes: each is named by its reason, and Slurm takes the lists as they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.lab.slurm import Cluster, wait_until

SITE = """
[host.nofile]
floor = 1024
severity = "fail"

[network.bandwidth]    # the nodes share this machine's cores
share = 0.02
of_speed = 0.002
"""
CHECKS = ("--level", "perf", "--only", "network.*", "--only", "host.nofile", "--thresholds", "site.toml")


def found(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "report.json").read_text(encoding="utf-8")))


def lists(folder: Path) -> Path:
    return folder / "output" / "preflight" / "preflight"


def failures(report: dict[str, Any]) -> dict[str, set[str]]:
    """What failed or is not known, by node."""
    return {
        host: {f"{one['check']} {one['subject']}".strip() for one in said if one["status"] in ("fail", "unknown")}
        for host, said in report["nodes"].items()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the site's thresholds."""
    (tmp_path / "site.toml").write_text(SITE)
    return tmp_path


@pytest.fixture
def sick(cluster: Cluster) -> Iterator[None]:
    """Node 2 sends slowly, on node 3 few files can be opened, node 4 is dead."""
    cluster.shape(2, "20mbit")
    cluster.limit_files(3, 512)
    cluster.crash(4)
    yield
    cluster.shape(2, "")
    cluster.crash(3)
    for number in (3, 4):
        cluster.start_node(number)
    wait_until(lambda: cluster.idle() == 4)


@pytest.mark.usefixtures("sick")
def test_three_sick_nodes_of_four_are_named_by_their_reasons_and_left_out(
    primus: Run, on_cluster: dict[str, str], cluster: Cluster, folder: Path
) -> None:
    words = ("slurm", "srun", "-N", "3", "-w", "node[1-3]", "--", "preflight", *CHECKS, "--skip", "network.all-reduce")
    asked = ("--expected-nodes", "node[1-4]", "--wait", "30", "--output", "report.json")
    done = primus(*words, *asked, cwd=folder, env=on_cluster)
    assert done.returncode == 1, done.stderr
    assert "not fit to train: node2 (network.bandwidth), node3 (host.nofile)" in done.stderr
    report = found(folder)
    assert failures(report) == {
        "node1": set(),
        "node2": {"network.bandwidth sending"},
        "node3": {"host.nofile"},
        "node4": {"cluster.report"},
    }
    assert (report["passing"], report["failing"], report["unknown"]) == (["node1"], ["node2", "node3"], ["node4"])
    left = [f"--exclude={(lists(folder) / f'{name}_nodes.txt').read_text().strip()}" for name in ("failing", "unknown")]
    both = f"{left[0]},{left[1].partition('=')[2]}"
    assert cluster.run("srun", "-N", "1", both, "hostname").split() == ["node1"]
    assert cluster.run("srun", "-N", "1", f"--exclude={lists(folder)}/failing_nodes.txt", "-w", "node1", "hostname")


def test_healthy_nodes_pass_and_leave_nothing(primus: Run, on_cluster: dict[str, str], folder: Path) -> None:
    done = primus(
        "slurm", "srun", "-N", "4", "--", "preflight", *CHECKS, "--output", "report.json", cwd=folder, env=on_cluster
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = found(folder)
    assert report["passing"] == ["node1", "node2", "node3", "node4"]
    reached = {
        (host, one["subject"])
        for host, said in report["nodes"].items()
        for one in said
        if one["check"] == "network.peers"
    }
    assert reached == {(a, b) for a in report["nodes"] for b in report["nodes"] if a != b}
    assert os.listdir(lists(folder) / "peers") == []


def test_ctrl_c_while_nodes_wait_for_each_other_ends_all_of_them(
    clean_environ: dict[str, str], on_cluster: dict[str, str], folder: Path, cluster: Cluster
) -> None:
    """There are three nodes of four: they wait for the last."""
    words = [
        "slurm",
        "srun",
        "-N",
        "3",
        "--",
        "direct",
        "--env",
        "NNODES=4",
        "--",
        "preflight",
        *CHECKS,
        "--wait",
        "600",
    ]
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("primus")), *words], cwd=folder, env={**clean_environ, **on_cluster},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_until(lambda: len(list(lists(folder).glob("peers/*.json"))) == 3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    wait_until(lambda: not cluster.jobs())
