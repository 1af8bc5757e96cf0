"""Nodes of a real job that wait for each other: a wrong address is refused, and a node that does not come is named."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests import rank_report
from tests.conftest import Run, wait_until

TWO = ("slurm", "srun", "-N2")


def test_an_address_outside_of_the_job_is_refused_before_a_rank_starts(
    primus: Run, on_cluster: dict[str, str], folder: Path
) -> None:
    env = {**on_cluster, "PYTHONPATH": rank_report.write(folder / "site"), "MASTER_ADDR": "node9"}
    result = primus(*TWO, "--", "rank_report", cwd=folder, env=env)
    assert result.returncode == 2, result.stderr
    assert re.search(r"MASTER_ADDR is 'node9', but node rank 0 is node\d", result.stderr)
    assert re.search(r"the job runs on node\[[\d,-]+\], not on 'node9'", result.stderr)
    assert '"RANK"' not in result.stdout


def test_a_node_that_does_not_come_is_named_and_the_limit_ends_the_job_with_that_reason(
    primus: Run, on_cluster: dict[str, str], folder: Path
) -> None:
    (folder / "slow.sh").write_text('[ "$SLURM_NODEID" = 0 ] || sleep 300\n')
    env = {**on_cluster, "PYTHONPATH": rank_report.write(folder / "site")}
    direct = ("direct", "--patch", "slow.sh", "--rendezvous-timeout", "20s")
    result = primus(*TWO, "--", *direct, "--", "rank_report", cwd=folder, env=env)
    assert result.returncode == 1, result.stderr
    expected = r"1 of 2 nodes have arrived at node\d:\d+; missing: node rank 1 \(node\d\)"
    assert re.search(rf"primus: rendezvous: {expected}; waiting for 1[5-9] s, gives up after 20 s", result.stderr)
    [run] = (folder / "output").glob("rank_report_*")
    known = json.loads((run / "metadata.json").read_text())
    assert (known["status"], known["exit_code"]) == ("failed", 1)
    assert re.fullmatch(f"rendezvous: {expected}", known["first_failure"]["what"])
    assert '"RANK"' not in result.stdout


def test_who_follows_a_job_that_does_not_begin_hears_what_it_waits_for(
    primus: Run, on_cluster: dict[str, str], folder: Path, clean_environ: dict[str, str]
) -> None:
    env = {**on_cluster, "PYTHONPATH": rank_report.write(folder / "site")}
    command = [
        str(Path(sys.executable).with_name("primus")),
        "slurm",
        "sbatch",
        "--follow",
        "--hold",
        "--",
        "rank_report",
    ]
    console = folder / "console"
    with console.open("wb") as file:
        follower = subprocess.Popen(command, cwd=folder, env={**clean_environ, **env}, stdout=file, stderr=file)
    wait_until(lambda: "Ctrl-C stops the output, not the job" in console.read_text())
    assert re.search(r"primus: job \d+: PENDING \(\w+\), for \d+ s; ", console.read_text())
    logs = subprocess.Popen(
        [command[0], "logs", "latest", "--follow"], cwd=folder, env={**clean_environ, **env}, stderr=subprocess.PIPE
    )
    assert logs.stderr
    said = logs.stderr.readline().decode()
    assert re.search(r"primus: waiting for job \d+: pending \(\w+\); Ctrl-C stops this command, not the run", said), (
        said
    )
    for process in (logs, follower):
        process.send_signal(signal.SIGINT)
        process.wait(60)
        if process.stderr:
            process.stderr.close()
    listed = primus("runs", "list", cwd=folder, env=env).stdout
    assert "pending" in listed, "the job is still running"
