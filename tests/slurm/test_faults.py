"""Faults on a real cluster: the job ends everywhere, with the reason that was injected, or goes on when asked to.

They wait for Slurm's clock, so they run side by side; the longest begin first.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lab import plain
from tests.lab.side_by_side import Lab
from tests.lab.slurm import Cluster, wait_until

STEPS = '''
"""Trains on paper: rank 0 writes a step at a time, and each start goes on from the last one."""
import os, pathlib, time
from primus_core import register_task
from primus_core.errors import RequestError
from primus_core.journal.metrics import Metrics, append

@register_task("steps", scope="rank")
def steps(call):
    "steps TOTAL SECONDS [FAIL_AT]: as many steps, each so long, or until a file `last` says which is the last one; each start fails behind FAIL_AT."
    run = pathlib.Path(call.run_dir)
    total, seconds = int(call.words[0]), float(call.words[1])
    fail = int(call.words[2]) if len(call.words) > 2 else 0
    if "refused" in call.words:
        raise RequestError("this layout cannot be")
    if "always" in call.words and call.rank == 1 and (run / "saved").exists():
        raise ValueError("fails at once")
    saved = run / "saved"
    first = int(saved.read_text() or 0) + 1 if saved.exists() else 1
    start = os.environ.get("TORCHELASTIC_RUN_ID", "") + os.environ["MASTER_PORT"]
    print("begins with", first, flush=True)
    for step in range(first, total + 1):
        if (run / "last").exists() and step > int((run / "last").read_text()):
            break
        time.sleep(seconds)
        (run / f"at-{start}-{step}-{call.rank}").touch()
        while len(list(run.glob(f"at-{start}-{step}-*"))) < call.world_size:  # a collective: it waits for all
            time.sleep(0.02)
        if call.rank == 0:
            append(os.environ["PRIMUS_METRICS_FILE"], Metrics(step=step, steps=total, loss=1.0 / step))
            saved.with_name("saving").write_text(str(step))
            saved.with_name("saving").rename(saved)
        print("did", step, flush=True)
        if step == fail and call.rank == 1:
            while int(saved.read_text()) < step:
                time.sleep(0.02)
            raise ValueError(f"fails behind step {step}")
'''


class Job:
    """`primus slurm` at work, and its run."""

    def __init__(self, lab: Lab, *words: str, torchrun: bool = True, task: str = STEPS) -> None:
        self.folder = lab.folder
        if torchrun:
            (lab.folder / "primus.yaml").write_text("plugins: [./steps.py]\n")
            (lab.folder / "steps.py").write_text(task)
        else:
            lab.environ["PYTHONPATH"] = plain.write(lab.folder / "packages", "steps", task)
        self.process = lab.primus("slurm", *words)

    @property
    def run(self) -> Path:
        return (self.folder / "output" / "steps").resolve()

    @property
    def known(self) -> dict[str, Any]:
        return dict(json.loads((self.run / "metadata.json").read_text()))

    def node(self, rank: int) -> dict[str, Any]:
        return dict(json.loads((self.run / f"nodes/{rank}/metadata.json").read_text()))

    def step(self) -> int:
        """The newest."""
        try:
            return int((self.run / "saved").read_text() or 0)
        except OSError:
            return 0

    def ready(self, step: int = 2) -> Job:
        """It has begun to train."""
        wait_until(lambda: self.step() >= step or self.process.poll() not in (None, 0))
        assert self.step() >= step, self.process.communicate()
        return self

    def end(self) -> tuple[int, str]:
        said = self.process.communicate(timeout=300)[1]
        return self.process.returncode, said


def ranks_of(run: Path) -> list[int]:
    """Processes of a run's ranks and of its Primus on the nodes."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _belongs(pid, run)]


def _belongs(pid: int, run: Path) -> bool:
    try:
        return f"PRIMUS_RUN_DIR={run}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def host_pid(node: str, module: str, run: Path) -> int:
    """The process on a node that runs `module` for a run."""
    for pid in ranks_of(run):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if module in words[1:4] and _host(pid) == node:
            return pid
    raise AssertionError(f"no {module} on {node}")


def _host(pid: int) -> str:
    words = ["nsenter", f"--uts=/proc/{pid}/ns/uts", "hostname"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def number_of(node: str) -> int:
    return int(node.removeprefix("node"))


def test_a_lost_node_is_named_and_the_run_ends(lab: Lab) -> None:
    job = Job(lab, "srun", "-N2", "--", "steps", "6000", "0.3").ready()
    lost = job.node(1)["host"]
    lab.cluster.crash(number_of(lost))
    code, said = job.end()
    assert code == 1, said
    assert f"{lost} is lost" in said
    assert job.known["status"] == "failed"
    assert lost in job.known["first_failure"]["what"]
    wait_until(lambda: not ranks_of(job.run))


def test_a_spare_node_stands_in_for_a_lost_one(lab: Lab) -> None:
    words = ("--max-restarts", "1", "--spare-nodes", "1", "sbatch", "--follow", "-N3")
    job = Job(lab, *words, "--", "steps", "60", "0.2").ready()
    lost = job.node(1)["host"]
    lab.cluster.crash(number_of(lost))
    code, said = job.end()
    assert code == 0, said
    first, second = job.known["attempts"]
    assert first["lost_nodes"] == [lost]
    assert lost in first["what"]
    assert (second["exit_code"], second["last_step"]) == (0, 60)
    assert {job.node(rank)["host"] for rank in (0, 1)} == {"node1", "node2", "node3", "node4"} - {lost, "node4"}
    assert [json.loads(line)["step"] for line in (job.run / "metrics.jsonl").open()] == list(range(1, 61))


@pytest.mark.parametrize("fault", ["slurmd", "link"])
def test_a_node_that_slurm_loses_sight_of_ends_its_ranks_itself(lab: Lab, fault: str) -> None:
    job = Job(lab, "srun", "-N2", "--", "steps", "6000", "0.3").ready()
    lost = job.node(1)["host"]
    if fault == "slurmd":
        lab.cluster.kill_slurmd(number_of(lost))
    else:
        lab.cluster.link(number_of(lost), up=False)
    code, said = job.end()
    assert code == 1, said
    assert f"{lost} is lost" in job.known["first_failure"]["what"], said
    wait_until(lambda: not ranks_of(job.run))


def test_a_frozen_node_ends_the_run_where_hanging_is_noticed(lab: Lab) -> None:
    job = Job(
        lab, "srun", "-N2", "--", "direct", "--hang-timeout", "40", "--grace-period", "30", "--", "steps", "6000", "0.3"
    )
    lost = job.ready().node(1)["host"]
    frozen = [pid for pid in ranks_of(job.run) if _host(pid) == lost]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        code, said = job.end()
    finally:
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert code == 1, said
    assert job.known["first_failure"]["what"] == "hung: no rank printed anything for 40 s", said
    wait_until(lambda: not ranks_of(job.run) and not lab.cluster.jobs())


def completes(cluster: Cluster, known: Callable[[], dict[str, Any]], number: str) -> bool:
    """Whether it has. Slurm would let a job that it put back into the queue wait for two minutes: here, for some seconds,
    in which the nodes forget that it was there (it is held where it begins too soon).
    """
    job = cluster.job(number)
    if job["JobState"] == "PENDING":
        time.sleep(8)
        cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now", check=False)
        cluster.run("scontrol", "release", number, check=False)
        wait_until(lambda: cluster.job(number)["JobState"] != "PENDING", 60)
    return bool(known()["status"] == "completed")


def steps_of(job: Job) -> list[int]:
    return [json.loads(line)["step"] for line in (job.run / "metrics.jsonl").open()]


def go_on_to_the_end(job: Job, cluster: Cluster) -> int:
    """The job, which was put back into the queue, shall do twenty steps more; its last one."""
    wait_until(lambda: job.known["status"] == "submitted")
    last = job.step() + 20
    (job.run / "last").write_text(str(last))
    number = job.known["job_id"]
    cluster.run("scontrol", "update", f"JobId={number}", "TimeLimit=10")
    wait_until(lambda: completes(cluster, lambda: job.known, number))
    return last


def test_a_preempted_job_goes_on_where_it_was(lab: Lab) -> None:
    words = ("sbatch", "--requeue", "--open-mode=append", "-N2", "--", "steps", "6000", "0.3")
    job = Job(lab, *words, torchrun=False).ready()  # with torchrun: test_training_faults
    assert job.end()[0] == 0
    number = job.known["job_id"]
    urgent = lab.cluster.run(
        "sbatch", "--parsable", "-N4", "-purgent", "--exclusive", "-o/dev/null", "--wrap=sleep 1"
    ).strip()
    wait_until(lambda: lab.cluster.job(number)["JobState"] == "PENDING")
    wait_until(lambda: job.known["status"] == "submitted")
    assert lab.cluster.wait(urgent)["JobState"] == "COMPLETED"
    last = go_on_to_the_end(job, lab.cluster)
    first, second = job.known["attempts"]
    assert first["what"] == "the job was preempted"
    assert 2 <= first["last_step"] < second["last_step"] == last
    assert steps_of(job) == list(range(1, last + 1))
    assert job.known["status"] == "completed"


def test_a_job_that_runs_out_of_time_is_queued_again_where_restarts_are_wanted(lab: Lab) -> None:
    words = ("--max-restarts", "1", "sbatch", "-t10", "--signal=B:USR2@20", "-N2", "--", "steps", "6000", "0.3")
    job = Job(lab, *words, torchrun=False).ready()
    # Slurm looks at the clock every half minute, and warns by so much earlier: here, 15 to 45 s before the end.
    lab.cluster.run("scontrol", "update", f"JobId={job.known['job_id']}", "EndTime=now+45")
    last = go_on_to_the_end(job, lab.cluster)
    first, *_ = job.known["attempts"]
    assert (first["what"], first["exit_code"]) == ("received SIGUSR2: close to the job's time limit", 140)
    assert steps_of(job) == list(range(1, last + 1))


def test_the_time_limit_of_a_job_is_the_reason_of_its_end(lab: Lab) -> None:
    job = Job(lab, "srun", "-t10", "-N2", "--", "steps", "6000", "0.3", torchrun=False).ready()
    lab.cluster.run("scontrol", "update", f"JobId={lab.cluster.jobs()[0]}", "EndTime=now+1")
    code, said = job.end()
    assert code == 143, said
    assert job.known["status"] == "interrupted"
    assert "time limit" in str(job.known["attempts"][0]["what"])
    assert "diagnosis: The job reached its time limit" in said, "by itself, where the person waits"


def test_a_failed_rank_is_started_again_on_all_nodes_until_that_is_in_vain(lab: Lab) -> None:
    job = Job(lab, "--max-restarts", "2", "srun", "-N2", "--", "steps", "4", "0.1", "2")
    code, said = job.end()
    assert code == 0, said
    first, second = job.known["attempts"]
    assert (first["exit_code"], first["last_step"], first["what"]) == (1, 2, "ValueError: fails behind step 2")
    assert (second["exit_code"], second["last_step"]) == (0, 4)
    assert job.known["status"] == "completed"
    assert "attempt 1 ended" in said


def test_a_crash_loop_on_two_nodes_stops_itself(lab: Lab) -> None:
    job = Job(lab, "--max-restarts", "2", "srun", "-N2", "--", "direct", "--", "steps", "4", "0.1", "1", "always")
    code, said = job.end()
    assert code == 1, said
    assert "not started again: 2 restarts in a row brought no new step" in said
    assert [attempt["last_step"] for attempt in job.known["attempts"]] == [1, None, None]
    assert job.known["first_failure"] == {"rank": 1, "node_rank": 1, "what": "ValueError: fails at once"}


def test_a_request_that_a_rank_refuses_is_not_started_again(lab: Lab) -> None:
    job = Job(lab, "--max-restarts", "3", "srun", "-N2", "--", "steps", "4", "0.1", "0", "refused")
    code, said = job.end()
    assert (code, len(job.known["attempts"])) == (2, 1), said
    assert "not started again: the request is refused, and would be again" in said


@pytest.mark.parametrize(
    ("module", "reason", "codes"),
    [("primus_core.programs.rank", "ended by SIGKILL", {137}), ("primus_core", "was killed", {1})],
    ids=["rank", "supervisor"],
)
def test_what_is_killed_on_a_node_is_named(lab: Lab, module: str, reason: str, codes: set[int]) -> None:
    job = Job(lab, "srun", "-N2", "--", "steps", "6000", "0.3").ready()
    os.kill(host_pid(job.node(1)["host"], module, job.run), signal.SIGKILL)
    code, said = job.end()
    assert code in codes, said
    assert reason in job.known["first_failure"]["what"], said
    assert job.known["first_failure"]["node_rank"] == 1
    wait_until(lambda: not ranks_of(job.run) and not lab.cluster.jobs())
