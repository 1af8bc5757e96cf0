"""`primus slurm srun` on a real cluster: where ranks run, what comes back, and what a signal does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import rank_report
from tests.conftest import Run
from tests.lab.slurm import Cluster, wait_until

TWO = ("slurm", "srun", "-N", "2")


def run_of(folder: Path, name: str = "ranks") -> Path:
    """The newest run directory."""
    return (folder / "output" / name).resolve()


def metadata(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "metadata.json").read_text(encoding="utf-8")))


@pytest.fixture
def started(
    clean_environ: dict[str, str], on_cluster: dict[str, str], folder: Path
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """`primus slurm` with two nodes whose ranks are at work, and its run directory."""
    command = [str(Path(sys.executable).with_name("primus")), *TWO, "--", "direct", "--", "ranks", "save"]
    environ = {**clean_environ, **on_cluster}
    process = subprocess.Popen(
        command, cwd=folder, env=environ, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    logs = folder / "output" / "ranks" / "logs"
    wait_until(lambda: sum("ready" in log.read_text() for log in logs.glob("rank_*.log")) == 2)
    yield process, run_of(folder)
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.mark.smoke
def test_two_nodes_share_one_run_with_ranks_in_the_order_of_nodes(
    primus: Run, on_cluster: dict[str, str], folder: Path
) -> None:
    words = ["a b", '"q" $(touch x)', "-N9"]
    result = primus(
        *TWO, "--", "direct", "--", "ranks", "say", *words, cwd=folder, env={**on_cluster, "GPUS_PER_NODE": "2"}
    )
    assert result.returncode == 0, result.stderr
    run = run_of(folder)
    assert [path.name for path in run.parent.iterdir() if not path.is_symlink()] == [run.name]
    said = [(run / f"logs/rank_{rank}.log").read_text().splitlines()[0] for rank in range(4)]
    places = [re.sub(r" \[.*", "", line) for line in said]
    first, last = (re.findall(r"\d+$", places[rank])[0] for rank in (0, 3))
    assert int(first) < int(last)
    assert places == [f"rank {rank} of 4 on node{first if rank < 2 else last}" for rank in range(4)]
    assert all(line.endswith(str(words)) for line in said)
    assert not (folder / "x").exists()
    assert {path.name for path in run.iterdir()} >= {"plan.json", "snapshot.json", "layers", "nodes", "env", "code"}
    assert (run / "nodes/1/plan.json").exists()
    assert json.loads((run / "nodes/1/plan.json").read_text())["distributed"]["node_rank"] == 1
    known = metadata(run)
    assert (known["status"], known["runtime"], known["world_size"]) == ("completed", "slurm", 4)
    assert known["job_id"]


def test_one_process_per_node_is_told_of_one_place_to_meet(
    primus: Run, on_cluster: dict[str, str], folder: Path
) -> None:
    env = {**on_cluster, "PYTHONPATH": rank_report.write(folder / "site"), "GPUS_PER_NODE": "4"}
    result = primus(*TWO, "--", "rank_report", cwd=folder, env=env)
    assert result.returncode == 0, result.stderr
    run = run_of(folder, "rank_report")
    rolls = [json.loads((run / f"logs/rank_{rank}.log").read_text().splitlines()[0]) for rank in range(2)]
    assert [(roll["NODE_RANK"], roll["NNODES"], roll["GPUS_PER_NODE"]) for roll in rolls] == [
        ("0", "2", "4"),
        ("1", "2", "4"),
    ]
    [(address, port)] = {(roll["JAX_COORDINATOR_IP"], roll["JAX_COORDINATOR_PORT"]) for roll in rolls}
    assert re.fullmatch(r"node\d+", address)
    assert 20000 <= int(port) < 30000
    assert metadata(run)["world_size"] == 2


def test_a_node_whose_only_process_is_killed_ends_the_others_and_is_named(
    primus: Run, on_cluster: dict[str, str], folder: Path
) -> None:
    env = {**on_cluster, "PYTHONPATH": rank_report.write(folder / "site")}
    result = primus(*TWO, "--", "rank_report", "--do", "desert", "--rank", "1", cwd=folder, env=env)
    assert result.returncode == 137, result.stderr
    assert "first failure rank 1 on node 1" in result.stderr
    assert metadata(run_of(folder, "rank_report"))["first_failure"]["what"].startswith("ended by SIGKILL")


def test_the_tasks_exit_code_comes_back_from_any_node(primus: Run, on_cluster: dict[str, str], folder: Path) -> None:
    for rank in ("0", "1"):
        result = primus(*TWO, "--", "ranks", "exit", "7", rank, cwd=folder, env=on_cluster)
        assert result.returncode == 7, result.stderr
        known = metadata(run_of(folder))
        assert (known["status"], known["exit_code"]) == ("failed", 7)
        assert known["first_failure"]["rank"] == int(rank)


def test_what_slurm_refuses_is_exit_code_3_with_its_words(
    primus: Run, on_cluster: dict[str, str], folder: Path
) -> None:
    result = primus("slurm", "-p", "nowhere", "--", "ranks", "say", cwd=folder, env=on_cluster)
    assert result.returncode == 3
    assert "invalid partition" in result.stderr.lower()
    assert metadata(run_of(folder))["status"] == "failed"


def test_the_nodes_join_the_run_also_where_slurm_passes_no_environment(
    primus: Run, on_cluster: dict[str, str], folder: Path
) -> None:
    result = primus(*TWO, "--export=NONE", "--", "direct", "--single", "--", "ranks", "say", cwd=folder, env=on_cluster)
    assert result.returncode == 0, result.stderr
    assert (run_of(folder) / "nodes/1/plan.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_gives_every_rank_its_grace(
    started: tuple[subprocess.Popen[str], Path], cluster: Cluster, number: signal.Signals
) -> None:
    process, run = started
    process.send_signal(number)
    process.communicate(timeout=120)
    assert {path.name for path in run.glob("saved_*")} == {"saved_0", "saved_1"}
    assert process.returncode in (0, 128 + number)
    wait_until(lambda: not cluster.jobs())


def test_a_closed_terminal_ends_no_job_that_was_started_with_nohup(request: pytest.FixtureRequest) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process, run = request.getfixturevalue("started")
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert "SIGHUP" not in (run / "logs/events.jsonl").read_text()
    assert metadata(run)["exit_code"] == 143, "not 129"


def test_a_killed_primus_leaves_no_job(started: tuple[subprocess.Popen[str], Path], cluster: Cluster) -> None:
    process, _ = started
    process.kill()
    process.wait()
    wait_until(lambda: not cluster.jobs())


def test_a_second_ctrl_c_ends_it_at_once(started: tuple[subprocess.Popen[str], Path], cluster: Cluster) -> None:
    process, _ = started
    process.send_signal(signal.SIGINT)
    assert process.stderr
    assert any("passed on" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    wait_until(lambda: not cluster.jobs())


def test_a_job_that_waits_for_nodes_is_withdrawn_by_ctrl_c(
    clean_environ: dict[str, str], on_cluster: dict[str, str], folder: Path, cluster: Cluster
) -> None:
    command = [str(Path(sys.executable).with_name("primus")), "slurm", "-N2", "--begin=now+1hour", "--", "ranks", "say"]
    environ = {**clean_environ, **on_cluster}
    process = subprocess.Popen(
        command, cwd=folder, env=environ, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    wait_until(lambda: len(cluster.jobs()) == 1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    wait_until(lambda: not cluster.jobs())


def test_a_secret_reaches_the_task_and_nothing_that_others_see(
    clean_environ: dict[str, str], on_cluster: dict[str, str], folder: Path, cluster: Cluster
) -> None:
    token = "hf_" + "abcdefghijklmnopqrstuvwxyz"
    command = [str(Path(sys.executable).with_name("primus")), "slurm", "sbatch", "-N2", "--", "ranks", "token"]
    environ = {**clean_environ, **on_cluster, "HF_TOKEN": token}
    job = subprocess.run(command, cwd=folder, env=environ, text=True, capture_output=True, check=True).stdout.strip()
    run = run_of(folder)
    wait_until(lambda: len(list(run.glob("token_*"))) == 2)
    seen = [_command_line(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    assert any(b"primus_core.programs.rank" in line for line in seen)
    assert not any(token.encode() in line for line in seen)
    assert token not in cluster.run("scontrol", "show", "job", job)
    (run / "seen").touch()
    assert cluster.wait(job)["JobState"] == "COMPLETED"
    assert [(run / f"token_{rank}").read_text()[::-1] for rank in range(2)] == [token, token]
    for path in run.rglob("*"):
        assert not path.is_file() or token.encode() not in path.read_bytes(), path


def _command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_job_script_in_an_allocation_uses_all_of_it_whatever_its_shape(
    primus: Run, on_cluster: dict[str, str], folder: Path, cluster: Cluster
) -> None:
    done = primus(
        "slurm", "sbatch", "-N2", "-n", "8", "-c", "2", "-o", "log_%j", "--", "ranks", "say", cwd=folder, env=on_cluster
    )
    assert done.returncode == 0, done.stderr
    assert cluster.wait(done.stdout.strip())["JobState"] == "COMPLETED", (
        folder / f"log_{done.stdout.strip()}"
    ).read_text()
    assert metadata(run_of(folder))["world_size"] == 2


def test_sbatch_submits_with_name_partition_and_log_as_asked(
    primus: Run, on_cluster: dict[str, str], folder: Path, cluster: Cluster
) -> None:
    flags = ("-N", "2", "-p", "other", "-t", "00:10:00", "--job-name=x y", "-o", "logs/train_%j.log")
    result = primus("slurm", "sbatch", *flags, "--", "ranks", "exit", "7", "1", cwd=folder, env=on_cluster)
    assert result.returncode == 0, result.stderr
    job = result.stdout.strip()
    assert job.isdecimal()
    run = run_of(folder)
    assert metadata(run)["job_id"] == job
    assert metadata(run)["status"] in ("submitted", "preparing", "started", "failed")
    said = cluster.wait(job)
    assert (said["JobState"], said["Partition"], said["ExitCode"]) == ("FAILED", "other", "7:0")
    assert "JobName=x y" in cluster.run("scontrol", "show", "job", job)
    assert "rank 0 of 2" in (folder / f"logs/train_{job}.log").read_text()
    shown = primus("logs", str(run), "--launch", cwd=folder, env=on_cluster).stdout
    assert f"[logs/slurm_{job}_output.log] " in shown
    assert "rank 0 of 2" in shown
    known = metadata(run)
    assert (known["status"], known["exit_code"], known["first_failure"]["rank"]) == ("failed", 7, 1)
    assert known["command"][:3] == ["primus", "slurm", "sbatch"], "what the person typed"
    assert os.access(run / "submit.sh", os.R_OK)
    assert (run / "layers/submit.json").exists()
    assert (run / "nodes/1/plan.json").exists()


def test_scancel_gives_every_rank_its_grace(
    primus: Run, on_cluster: dict[str, str], folder: Path, cluster: Cluster
) -> None:
    job = primus("slurm", "sbatch", "-N2", "--", "ranks", "save", cwd=folder, env=on_cluster).stdout.strip()
    run = run_of(folder)
    wait_until(lambda: sum("ready" in log.read_text() for log in run.glob("logs/rank_*.log")) == 2)
    cluster.run("scancel", job)
    assert cluster.wait(job)["JobState"] == "CANCELLED"
    wait_until(lambda: not cluster.jobs())
    assert {path.name for path in run.glob("saved_*")} == {"saved_0", "saved_1"}


def test_a_submission_that_slurm_refuses_is_exit_code_3(primus: Run, on_cluster: dict[str, str], folder: Path) -> None:
    result = primus("slurm", "sbatch", "-p", "nowhere", "--", "ranks", "say", cwd=folder, env=on_cluster)
    assert result.returncode == 3
    assert metadata(run_of(folder))["status"] == "failed"


@pytest.mark.smoke
def test_following_shows_the_log_and_returns_the_jobs_exit_code(
    primus: Run, on_cluster: dict[str, str], folder: Path
) -> None:
    folder = folder.rename(folder.with_name(f"{folder.name} %j%%x"))  # scontrol does not say where this log is
    result = primus("slurm", "sbatch", "--follow", "-N2", "--", "ranks", "exit", "7", "1", cwd=folder, env=on_cluster)
    assert result.returncode == 7, result.stderr
    assert "rank 0 of 2 on node" in result.stdout
    assert "FAILED, exit code 7" in result.stderr
    assert metadata(run_of(folder))["exit_code"] == 7


def test_who_stops_following_leaves_the_job(
    clean_environ: dict[str, str], on_cluster: dict[str, str], folder: Path, cluster: Cluster
) -> None:
    words = ["slurm", "sbatch", "--follow", "-N2", "--begin=now+1hour", "--", "ranks", "say"]
    command = [str(Path(sys.executable).with_name("primus")), *words]
    environ = {**clean_environ, **on_cluster}
    process = subprocess.Popen(
        command, cwd=folder, env=environ, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    wait_until(lambda: metadata(run_of(folder))["status"] == "submitted" if run_of(folder).exists() else False)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "keeps running" in said
    assert len(cluster.jobs()) == 1
    assert metadata(run_of(folder))["status"] == "submitted"
