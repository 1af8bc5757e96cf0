"""A launch within a step of Slurm has the CPUs of its job, or says which variable narrows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import Run as Primus
from tests.lab.slurm import Cluster
from tests.slurm.test_scheduler import found_in, program

from primus_slurm.steps import cpus_of_node, narrowed, running_instead, step_around, wishes_of_job

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_CPUS_PER_NODE": "8(x2)", "SLURM_CPUS_PER_TASK": "2"}
STEP = {**JOB, "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("environ", "flags"),
    [
        ({}, []),
        (JOB, ["--cpus-per-task=8"]),
        ({**JOB, "SLURM_JOB_CPUS_PER_NODE": "16(x2),4"}, ["--cpus-per-task=4"]),
        ({**JOB, "SLURM_HINT": "nomultithread"}, ["--cpus-per-task=2"]),
        ({**JOB, "SLURM_STEP_ID": "4294967290"}, ["--cpus-per-task=8"]),
        ({"SLURM_CPUS_PER_TASK": "6"}, ["--cpus-per-task=6"]),
        (STEP, ["--cpus-per-task=8", "--overlap"]),
        ({**STEP, "SLURM_CPU_BIND": "quiet,mask_cpu:0x1"}, ["--cpus-per-task=8", "--overlap", "--cpu-bind=none"]),
        ({"SLURM_STEP_ID": "3"}, ["--overlap"]),
    ],
)
def test_a_step_has_the_cpus_of_its_job_and_shares_them_with_the_step_around_it(
    environ: dict[str, str], flags: list[str]
) -> None:
    """In a shell of `salloc`, whose step has a number beyond those of steps, there is none around it."""
    assert wishes_of_job(environ) == flags


@pytest.mark.parametrize(
    ("cpus", "environ", "why"),
    [
        (2, STEP, "share 2 of the 8 CPUs that the job has here: SLURM_CPUS_PER_TASK=2, from --cpus-per-task"),
        (1, {**STEP, "SLURM_CPUS_PER_TASK": "8", "SLURM_CPU_BIND": "rank"}, "SLURM_CPU_BIND=rank, from --cpu-bind"),
        (1, {**STEP, "SLURM_CPUS_PER_TASK": "8", "SLURM_CPU_BIND": "rank"}, "for all of them: srun --cpu-bind=none"),
        (1, {**STEP, "SLURM_CPUS_PER_TASK": "8"}, "as taskset or numactl; for all of them: start Primus without it"),
        (1, {**STEP, "SLURM_CPUS_PER_TASK": ""}, "srun since 22.05 does not take --cpus-per-task from the job"),
        (8, STEP, ""),
        (2, JOB, ""),
        (2, {"SLURM_STEP_ID": "0"}, ""),
    ],
)
def test_the_variable_that_narrows_the_cpus_is_named(cpus: int, environ: dict[str, str], why: str) -> None:
    note = narrowed(cpus, environ)
    assert why in note
    assert bool(note) is bool(why)


def test_numbers_that_are_none_say_nothing() -> None:
    assert cpus_of_node({"SLURM_JOB_CPUS_PER_NODE": "many"}) == 0
    assert step_around({"SLURM_STEP_ID": "batch"}) == ""


STEPS = """\
StepId=7.0 UserId=0 StartTime=2026-11-26T04:45:09 TimeLimit=UNLIMITED State=RUNNING Partition=lab Name=my bash Network=(null)
StepId=7.batch UserId=0 StartTime=2026-11-26T04:45:09 TimeLimit=UNLIMITED State=RUNNING Partition=lab Name=batch Network=(null)
"""
WAITING = "StepId=7.TDB UserId=0 StartTime=Unknown TimeLimit=UNLIMITED State=PENDING Partition=lab Name=(null) Network=(null)\n"


def test_the_steps_for_which_another_one_waits_are_named() -> None:
    assert running_instead(STEPS) == ()
    assert running_instead(STEPS + WAITING) == ("step 7.0 (my bash)",)
    assert running_instead("slurm_load_jobs error") == ()


SRUN = """
case "$1" in --version) echo slurm 23.02.1; exit ;; esac
until [ -e "$0.go" ]; do /bin/sleep 0.1; done
while [ "$1" != /usr/bin/env ]; do shift; done
SLURM_NODEID=0 SLURM_NNODES=1 exec "$@"
"""
"""Creates the step once somebody has asked for whom it waits."""
SCONTROL = """
/bin/touch "${{0%/*}}/srun.go"
echo '{steps}'
"""


@pytest.mark.full
def test_a_step_that_waits_says_for_which_one(primus: Primus, project: Path, tmp_path: Path) -> None:
    """Slurm's own srun says nothing for a minute."""
    alike = tmp_path / "alike"
    program(alike, "srun", SRUN)
    program(alike, "scontrol", SCONTROL.format(steps=STEPS + WAITING))
    words = ("slurm", "srun", "-N1", "--", "behave", "exit", "0")
    done = primus(*words, cwd=project, env={**found_in(alike), "SLURM_JOB_ID": "7"})
    assert done.returncode == 0, done.stderr
    assert "the step waits, so that no node has begun: step 7.0 (my bash) of its job must end first" in done.stderr


def test_a_job_that_waits_in_the_queue_says_why(cluster: Cluster, folder: Path) -> None:
    """srun alone says that it waits, and never why."""
    command = f"cd {folder} && timeout -s INT 45 primus slurm srun -N99 -- ranks exit 0 0 2>&1"
    said = cluster.run("bash", "-c", command, timeout=120, check=False)
    assert "the job waits, so that no node has begun: job " in said
    assert " is in the queue (Partition" in said


def test_a_launch_within_a_step_has_all_nodes_and_cpus_of_the_job(cluster: Cluster, folder: Path) -> None:
    """It does not wait for the step around it."""
    inner = ("primus", "slurm", "srun", "--", "direct", "--single", "--", "ranks", "exit", "0", "0")
    (folder / "job.sh").write_text(f"#!/bin/bash\nsrun -N1 -n1 -c2 {' '.join(inner)}\n", encoding="utf-8")
    cluster.run("sbatch", "-W", "-N2", "--ntasks-per-node=2", "-c3", f"--chdir={folder}", "-o", f"{folder}/out", f"{folder}/job.sh",
                timeout=300)  # fmt: skip
    out = (folder / "out").read_text(encoding="utf-8")
    assert out.count("rank 0 of 1 on ") == 2, out
    [saved] = folder.glob("output/*_*/layers/slurm.json")
    assert "--cpus-per-task=6" in json.loads(saved.read_text())["steps"][-1]["argv"], out
