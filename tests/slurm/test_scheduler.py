"""What Slurm's commands say, and what look-alikes and controllers that are down say in their place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run as Primus
from tests.core.run_directories import STARTED, make
from tests.core.test_direct import metadata, run_of
from tests.core.test_joined_plugins import joining

from primus_core.contracts.scheduler import Job
from primus_core.journal.record import RunRecord
from primus_slurm.queries import job_in, version

BANNER = """
-----------------------------------------------------------------
          Welcome to the Lonestar 5 Supercomputer
-----------------------------------------------------------------

No reservation for this job
--> Verifying valid submit host (login1)...OK
--> Enforcing max jobs per user...OK
--> Checking available allocation (Analysis_1234)...OK
"""
SUBMISSIONS = {
    "123\n": ("123", ""),
    "123;west\n": ("123", "west"),
    "Submitted batch job 123\n": ("123", ""),
    "Submitted batch job 123 on cluster slaking\n": ("123", "slaking"),
    f"{BANNER}Submitted batch job 55473\n": ("55473", ""),
    f"{BANNER}55473\n": ("55473", ""),
    "123;west\nYour project has 17 hours left.\n": ("123", "west"),
    "17\nSubmitted batch job 123\nthank you\n": ("123", ""),
    "Job <123> is submitted to queue <normal>.\n": ("123", ""),
    "Job id allocated: 123.\n": ("123", ""),
    BANNER: ("", ""),
    "": ("", ""),
}


@pytest.mark.parametrize("said", SUBMISSIONS)
def test_the_number_of_a_job_is_found_in_what_a_site_prints(said: str) -> None:
    assert job_in(said.splitlines()) == SUBMISSIONS[said]


@given(st.lists(st.text(max_size=40), max_size=5), st.integers(1, 10**9))
@pytest.mark.full
def test_no_greeting_hides_sbatchs_own_sentence(lines: list[str], number: int) -> None:
    others = [line for line in lines if "Submitted batch job" not in line]
    assert job_in([*others, f"Submitted batch job {number}", *others]) == (str(number), "")


def program(folder: Path, name: str, script: str) -> None:
    """A shell script in the place of one of Slurm's commands."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def found_in(folder: Path) -> dict[str, str]:
    """The environment in which those are found before all others."""
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


VERSIONS = {
    "echo slurm 23.11.4": {"flavour": "slurm", "version": "23.11.4"},
    "echo slurm-wlm 22.05.8": {"flavour": "slurm-wlm", "version": "22.05.8"},
    "echo slurm 20.11.9-1 >&2": {"flavour": "slurm", "version": "20.11.9-1"},
    "echo welcome; echo slurm 25.05.0-0rc1": {"flavour": "slurm", "version": "25.05.0-0rc1"},
    "echo srun for the cloud": {"flavour": "srun for the cloud", "version": ""},
    "echo srun: error: no controller >&2; exit 1": {"flavour": "unknown", "version": ""},
    "exit 2": {"flavour": "unknown", "version": ""},
}


@pytest.mark.parametrize("script", VERSIONS)
def test_flavour_and_version_are_what_the_program_says(script: str, tmp_path: Path) -> None:
    program(tmp_path, "srun", script)
    assert version(f"{tmp_path}/srun", os.environ) == VERSIONS[script]


ALIKE = """
case "$*" in
  *--version*) echo cloudbatch 1.2.0; exit ;;
  *--parsable*) echo "sbatch: unrecognized option '--parsable'" >&2; echo "Try 'sbatch --help'" >&2; exit 1 ;;
esac
echo "$@" >> "$0.asked"
echo "Welcome"; echo "Submitted batch job 4711 on cluster west"; echo "Have a nice day"
"""


def test_a_look_alike_that_knows_no_parsable_is_submitted_to_once(
    primus: Primus, project: Path, tmp_path: Path
) -> None:
    alike = tmp_path / "alike"
    program(alike, "sbatch", ALIKE)
    done = primus("slurm", "sbatch", "-N2", "--", "behave", "exit", "0", cwd=project, env=found_in(alike))
    assert done.returncode == 0, done.stderr
    assert "note: sbatch does not support --parsable, which Primus added: starting without it" in done.stderr
    known = metadata(run_of(project))
    assert (known["status"], known["job_id"], known["cluster"]) == ("submitted", "4711", "west")
    assert known["scheduler"] == {"name": "slurm", "flavour": "cloudbatch", "version": "1.2.0"}
    assert len((alike / "sbatch.asked").read_text().splitlines()) == 1
    events = (run_of(project) / "logs/events.jsonl").read_text()
    assert '"scheduler": {"name": "slurm", "flavour": "cloudbatch", "version": "1.2.0"}' in events


SPUR = """
case "$1" in --version) echo spur 0.3; exit ;; esac
for word in "$@"; do case $word in
  {refused}*) echo "{message} '${{word%%=*}}'" >&2; exit 2 ;;
  /*|--) break ;;
esac; done
echo "$@" >> "$0.asked"
{then}
"""
"""Refuses flags as another scheduler does, each with its parser's words."""


@pytest.mark.parametrize(
    "message",
    [
        "error: unexpected argument",
        "spur: unrecognized option",
        "Error: unknown flag:",
        "Error: No such option:",
        "invalid option --",
        "no_such_thing: option not supported here:",
    ],
)
def test_a_look_alike_that_lacks_flags_of_primus_gets_the_job_without_them_and_the_loss_is_named(
    primus: Primus, project: Path, tmp_path: Path, message: str
) -> None:
    alike = tmp_path / "alike"
    program(
        alike, "sbatch", SPUR.format(refused="--signal*|--requeue", message=message, then="echo Submitted batch job 12")
    )
    done = primus(
        "slurm", "--max-restarts", "2", "sbatch", "--", "behave", "exit", "0", cwd=project, env=found_in(alike)
    )
    assert done.returncode == 0, done.stderr
    for name, loss in (("--signal", "gets no signal before its time limit"), ("--requeue", "does not start again")):
        assert f"sbatch does not support {name}, which Primus added: starting without it" in done.stderr
        assert f"without {name}: " in done.stderr
        assert loss in done.stderr
    [asked] = (alike / "sbatch.asked").read_text().splitlines()
    assert "--signal" not in asked
    assert "--parsable" in asked


def test_a_refused_flag_that_the_person_gave_is_the_persons(primus: Primus, project: Path, tmp_path: Path) -> None:
    alike = tmp_path / "alike"
    program(alike, "sbatch", SPUR.format(refused="--signal", message="error: unexpected argument", then=":"))
    words = ("slurm", "--max-restarts", "2", "sbatch", "--signal=TERM@5", "--", "behave", "exit", "0")
    done = primus(*words, cwd=project, env=found_in(alike))
    assert done.returncode == 3, done.stderr
    assert "which Primus added" not in done.stderr
    assert not (alike / "sbatch.asked").exists()


def test_a_misspelt_flag_is_the_first_fix_where_slurm_refuses_it(primus: Primus, project: Path, tmp_path: Path) -> None:
    alike = tmp_path / "alike"
    program(alike, "sbatch", SPUR.format(refused="--partion", message="sbatch: unrecognized option", then=":"))
    words = ("slurm", "sbatch", "--partion", "lab", "--", "behave", "exit", "0")
    done = primus(*words, cwd=project, env=found_in(alike))
    assert done.returncode == 3, done.stderr
    assert "fix: '--partion': did you mean '--partition'?\n" in done.stderr


def test_srun_without_kill_on_bad_exit_starts_the_nodes(primus: Primus, project: Path, tmp_path: Path) -> None:
    alike = tmp_path / "alike"
    then = 'while [ "$1" != /usr/bin/env ]; do shift; done; SLURM_JOB_ID=7 SLURM_NODEID=0 SLURM_NNODES=1 exec "$@"'
    program(alike, "srun", SPUR.format(refused="--kill-on-bad-exit", message="error: unexpected argument", then=then))
    done = primus("slurm", "srun", "-N1", "--", "behave", "exit", "0", cwd=project, env=found_in(alike))
    assert done.returncode == 0, done.stderr
    assert "srun does not support --kill-on-bad-exit, which Primus added" in done.stderr


@pytest.mark.parametrize("printed", ["usage: srun [options] command", "Option not supported here.", ""])
def test_a_look_alike_that_names_no_flag_is_told_with_what_primus_added(
    primus: Primus, project: Path, tmp_path: Path, printed: str
) -> None:
    alike = tmp_path / "alike"
    says = f'case "$1" in --version) echo spur 0.3; exit ;; esac; printf "{printed}" >&2; exit 2'
    program(alike, "srun", says)
    done = primus("slurm", "srun", "-N1", "--", "behave", "exit", "0", cwd=project, env=found_in(alike))
    assert done.returncode == 3, done.stderr
    assert "primus: error: slurm: srun could not start the command (exit code 2)\n" in done.stderr
    assert ("why: it printed nothing\n" in done.stderr) == (not printed)
    assert "Primus added --job-name, --ntasks-per-node, --kill-on-bad-exit: if one of them is refused" in done.stderr


def test_a_refused_flag_that_primus_needs_is_named_as_its_own(primus: Primus, project: Path, tmp_path: Path) -> None:
    alike = tmp_path / "alike"
    program(alike, "srun", SPUR.format(refused="--ntasks=", message="error: unexpected argument", then=":"))
    environ = {**found_in(alike), "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}
    done = primus("slurm", "srun", "--", "behave", "exit", "0", cwd=project, env=environ)
    assert done.returncode == 3, done.stderr
    assert "it does not support --ntasks, which Primus added and cannot do without" in done.stderr
    assert not (alike / "srun.asked").exists()


def test_flags_of_primus_are_switched_off_in_primus_yaml(primus: Primus, project: Path) -> None:
    with (project / "primus.yaml").open("a") as file:
        file.write("\nslurm: {signal: null, parsable: false, job-name: null, requeue: null, ntasks-per-node: null}\n")
    done = primus("slurm", "--dry-run", "--max-restarts", "2", "sbatch", "--", "behave", "exit", "0", cwd=project)
    assert done.returncode == 0, done.stderr
    assert not [name for name in ("--signal", "--parsable", "--job-name", "--requeue") if name in done.stdout]
    assert "--open-mode=append" in done.stdout
    step = primus("slurm", "--dry-run", "srun", "-N2", "--", "behave", "exit", "0", cwd=project)
    assert "--ntasks-per-node" not in step.stdout


def test_a_submission_whose_number_nobody_tells_is_left_to_the_scheduler(
    primus: Primus, project: Path, tmp_path: Path
) -> None:
    alike = tmp_path / "alike"
    program(alike, "sbatch", "echo thank you")
    done = primus("slurm", "sbatch", "--", "behave", "exit", "0", cwd=project, env=found_in(alike))
    assert done.returncode == 0, done.stderr
    assert "sbatch did not print the job's number" in done.stderr
    assert metadata(run_of(project))["status"] == "submitted"


def submitted(output: Path, name: str, number: str, **changes: Any) -> Path:
    """A run that a scheduler has."""
    told = {"status": "submitted", "submitted": STARTED, "job_id": number, "ended": None, "exit_code": None}
    directory = make(output, name, metadata={**told, "runtime": "slurm", **changes})
    (directory / "snapshot.json").unlink()
    return directory


def squeue(folder: Path, *rows: str) -> None:
    """One that says these, whatever it is asked, and keeps the questions. `|` is the mark between two values."""
    lines = "\n".join(row.replace("|", "\x1f") for row in rows)
    program(folder, "squeue", f'echo "$@" >> "$0.asked"\ncat <<"END"\n{lines}\nEND')
    program(folder, "scontrol", "exit 127")


def asked(folder: Path) -> list[str]:
    path = folder / "squeue.asked"
    return path.read_text().splitlines() if path.exists() else []


def states(primus: Primus, folder: Path, *words: str) -> dict[str, str]:
    """How the runs of a list stand, by the letter that their names begin with."""
    done = primus("runs", "list", "--json", *words, env=found_in(folder))
    assert done.returncode == 0, done.stderr
    return {run["name"][0]: run["status"] for run in json.loads(done.stdout)}


@pytest.mark.torch
def test_many_runs_are_asked_about_with_one_question(primus: Primus, tmp_path: Path) -> None:
    output, fake = tmp_path / "output", tmp_path / "fake"
    runs = {letter: submitted(output, f"{letter}_2026_01_0{n}_000000", str(n)) for n, letter in enumerate("abcdef", 1)}
    make(output, "z_2026_01_09_000000")
    told = ("PENDING|Priority", "RUNNING|None", "CANCELLED|None", "TIMEOUT|TimeLimit", "COMPLETED|None")
    squeue(fake, *(f"{n}|{said}|1795272570|{runs[x]}/submit.sh" for n, (x, said) in enumerate(zip(runs, told), 1)))  # noqa: B905  # the last one is forgotten
    assert states(primus, fake) == {
        "z": "completed", "a": "pending", "b": "running", "c": "interrupted", "d": "failed", "e": "completed",
        "f": "lost",
    }  # fmt: skip
    [question] = asked(fake)
    assert "--jobs=6,5,4,3,2,1 " in question
    shown = primus("runs", "show", "a", env=found_in(fake)).stdout
    assert "pending, Priority" in shown
    assert "its first node will write it" in shown
    assert states(primus, fake, "--status", "pending") == {"a": "pending"}


@pytest.mark.torch
def test_nobody_is_asked_where_the_runs_themselves_have_said_it_all(primus: Primus, tmp_path: Path) -> None:
    make(tmp_path / "output", "a_2026_01_01_000000")
    make(tmp_path / "output", "b_2026_01_01_000000", metadata={"status": "failed"})
    squeue(tmp_path / "fake")
    assert states(primus, tmp_path / "fake") == {"a": "completed", "b": "failed"}
    assert asked(tmp_path / "fake") == []


@pytest.mark.torch
def test_a_run_of_another_cluster_is_asked_about_there(primus: Primus, tmp_path: Path) -> None:
    output, fake = tmp_path / "output", tmp_path / "fake"
    west = submitted(output, "a_2026_01_01_000000", "7", cluster="west")
    submitted(output, "b_2026_01_01_000000", "7")
    squeue(fake, "CLUSTER: west", f"7|RUNNING|None|1795272570|{west}/submit.sh")
    assert states(primus, fake) == {"a": "running", "b": "lost"}, "b's number is another run's by now"
    assert sorted("--clusters=west" in question for question in asked(fake)) == [False, True]


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.parametrize("script", ["sleep 100\nexit 0", "echo 'Unable to contact slurm controller' >&2; exit 1"])
def test_a_controller_that_is_down_leaves_what_the_runs_say(script: str, primus: Primus, tmp_path: Path) -> None:
    for n in range(3):
        submitted(tmp_path / "output", f"{'abc'[n]}_2026_01_01_000000", str(n + 1), cluster="west" if n else "")
    make(tmp_path / "output", "d_2026_01_01_000000", metadata={"status": "started", "job_id": "4"})
    for name in ("squeue", "scontrol", "scancel"):
        program(tmp_path / "fake", name, script)
    assert states(primus, tmp_path / "fake") == dict.fromkeys("abc", "submitted") | {"d": "started"}
    shown = primus("runs", "show", "a", env=found_in(tmp_path / "fake"))
    assert "its scheduler does not report its status here" in shown.stdout
    log = primus("logs", "a", env=found_in(tmp_path / "fake"))
    assert log.returncode == 2
    assert "job 1: it was submitted; Slurm does not report its status here" in log.stderr
    stop = primus("stop", "a", env=found_in(tmp_path / "fake"))
    assert stop.returncode == 1
    assert "was submitted as job 1, and Slurm does not answer here" in stop.stderr


def test_a_job_that_is_another_by_now_is_not_ended(primus: Primus, tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    submitted(tmp_path / "output", "a_2026_01_01_000000", "7")
    node = make(tmp_path / "output", "b_2026_01_02_000000", metadata={"status": "started", "job_id": "8"})
    (node / "nodes/0").mkdir(parents=True)
    (node / "nodes/0/metadata.json").write_text(json.dumps({"job_id": "8", "step_id": "0"}))
    later = int(STARTED) + 86400
    squeue(fake, f"7|RUNNING|None|{later}|/home/eve/work.sh", f"8|RUNNING|None|{later}|bash")
    program(fake, "scancel", 'echo "$@" >> "$0.asked"')
    for run in ("a", "b"):
        done = primus("stop", run, env=found_in(fake))
        assert (done.returncode, "is not running: its status is lost" in done.stderr) == (0, True), done.stderr
    assert not (fake / "scancel.asked").exists()


def test_a_job_that_cannot_be_told_from_another_is_not_ended(primus: Primus, tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    submitted(tmp_path / "output", "a_2026_01_01_000000", "7")
    squeue(fake, "7|RUNNING|||")
    program(fake, "scancel", 'echo "$@" >> "$0.asked"')
    done = primus("stop", "a", env=found_in(fake))
    assert done.returncode == 1
    assert "is uncertain" in done.stderr
    assert "scancel 7" in done.stderr
    assert not (fake / "scancel.asked").exists()


def test_an_answer_that_is_not_slurms_does_not_make_a_run_lost(primus: Primus, tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    run = submitted(tmp_path / "output", "a_2026_01_01_000000", "7")
    for answer in ("7 lab train me R 0:10 1 node1", f"7|PARKED|None|1795272570|{run}/submit.sh"):
        squeue(fake, answer)
        done = primus("stop", "a", env=found_in(fake))
        assert (done.returncode, "Slurm does not answer here" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("status", ["unwatched", "started"])
def test_stop_fails_where_nobody_knows_whether_the_run_goes_on(status: str, primus: Primus, tmp_path: Path) -> None:
    make(tmp_path / "output", "a_2026_01_01_000000", metadata={"status": status, "host": "elsewhere", "ended": None})
    (tmp_path / "output/a_2026_01_01_000000/snapshot.json").unlink()
    done = primus("stop", "a")
    assert done.returncode == 1
    assert "is not known: its status is" in done.stderr


@pytest.mark.torch
@pytest.mark.parametrize("number", ["--user=root", "7.west", "7,8", "7 8", "", "1;2", 7, None])
def test_nothing_but_a_number_reaches_slurm(number: Any, primus: Primus, tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    submitted(tmp_path / "output", "a_2026_01_01_000000", number)
    squeue(fake)
    program(fake, "scancel", 'echo "$@" >> "$0.asked"')
    assert states(primus, fake) == {"a": "submitted"}
    assert primus("stop", "a", env=found_in(fake)).returncode == 1
    assert asked(fake) == []
    assert not (fake / "scancel.asked").exists()


def test_a_job_is_of_its_run_by_its_script_and_without_one_by_its_time() -> None:
    script = RunRecord(submitted=100.0, run_id="a_2026_01_01_000000")
    assert Job("7", "RUNNING", command="/moved/a_2026_01_01_000000/submit.sh", submitted=9e9).is_of(script)
    assert Job("7", "RUNNING", command="/b/b_2026_01_01_000000/submit.sh", submitted=100.0).is_of(script) is False
    assert Job("7", "RUNNING", submitted=100.0).is_of(script)
    assert Job("7", "RUNNING", submitted=90.0, command="/usr/bin/env").is_of(RunRecord(started=100.0))
    assert Job("7", "RUNNING", submitted=9000.0, command="/usr/bin/env").is_of(RunRecord(started=100.0)) is False
    assert Job("7", "RUNNING").is_of(script) is None


def test_commands_are_suggested_for_the_scheduler_that_a_site_brings(primus: Primus, project: Path) -> None:
    text = "from primus_slurm.scheduler import Slurm\nclass Zebra(Slurm):\n    name, launch = 'zebra', 'herd {nodes}'\n"
    site = joining(project / "site", "zebra", "primus.schedulers zebra = zebra:ZEBRA", f"{text}ZEBRA = Zebra()\n")
    env = {"PYTHONPATH": site, "NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "localhost"}
    result = primus("direct", "--max-restarts", "1", "--", "behave", "exit", "0", cwd=project, env=env)
    assert "fix: start all nodes by one command: primus herd 2 -- direct --max-restarts 1 -- ..." in result.stderr
