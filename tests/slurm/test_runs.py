"""`primus runs`, `logs` and `stop` on jobs of a real cluster, seen from a host that is none of its nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.lab.slurm import Cluster, wait_until

Start = Callable[..., subprocess.Popen[str]]

LATER = "--begin=now+1hour"
PRIMUS = str(Path(sys.executable).with_name("primus"))


@pytest.fixture
def start(clean_environ: dict[str, str], plain_ranks: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """`start(*words)`: a command in the background, ended with the test."""
    begun: list[subprocess.Popen[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        begun.append(subprocess.Popen(words, env={**clean_environ, **plain_ranks}, cwd=tmp_path, text=True, **pipes))  # type: ignore[call-overload]  # as the values say
        return begun[-1]

    yield run
    for process in begun:
        process.kill()
        process.communicate(timeout=120)


class Site:
    """A project on the cluster, and what its runs say."""

    def __init__(self, primus: Run, environ: dict[str, str], folder: Path, cluster: Cluster) -> None:
        self.primus, self.environ, self.folder, self.cluster = primus, environ, folder, cluster

    def __call__(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.primus(*words, cwd=self.folder, env={**self.environ, **variables})

    def submit(self, *words: str) -> str:
        """Submit a run; its job's number."""
        done = self("slurm", "sbatch", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def directory(self) -> Path:
        return (self.folder / "output" / "ranks").resolve()

    def metadata(self) -> dict[str, Any]:
        return dict(json.loads((self.directory / "metadata.json").read_text(encoding="utf-8")))

    def are_ready(self, ranks: int) -> bool:
        return sum("ready" in log.read_text() for log in self.directory.glob("logs/rank_*.log")) == ranks

    def saved(self) -> set[str]:
        return {path.name for path in self.directory.glob("saved_*")}

    def shown(self, **variables: str) -> dict[str, Any]:
        """The newest run as `list` and `show` have it, which agree."""
        listed = json.loads(self("runs", "list", "--json", **variables).stdout)[0]
        shown = dict(json.loads(self("runs", "show", "latest", "--json", **variables).stdout))
        assert (listed["status"], listed["job_id"]) == (shown["status"], shown["job_id"])
        return shown


@pytest.fixture
def site(primus: Run, plain_ranks: dict[str, str], tmp_path: Path, cluster: Cluster) -> Site:
    """The project of the test."""
    return Site(primus, plain_ranks, tmp_path, cluster)


def test_a_job_that_waits_is_pending_and_is_withdrawn(site: Site) -> None:
    job = site.submit("-N2", LATER, "--", "ranks", "say")
    shown = site.shown(SQUEUE_PARTITION="other", SQUEUE_STATES="RUNNING")  # what a person set for their own eyes
    assert (shown["status"], shown["reason"], shown["job_id"]) == ("pending", "BeginTime", job)
    assert shown["scheduler"]["version"]
    done = site("stop", "latest")
    assert (done.returncode, done.stderr) == (0, f"primus: {site.directory}: interrupted\n")
    assert site.cluster.job(job)["JobState"] == "CANCELLED"
    assert site.metadata()["status"] == "interrupted"
    again = site("stop", "latest")
    assert (again.returncode, "is not running: its status is interrupted" in again.stderr) == (0, True)


def test_a_job_that_was_cancelled_by_other_means_is_interrupted_too(site: Site) -> None:
    site.cluster.run("scancel", site.submit("-N2", LATER, "--", "ranks", "say"))
    assert site.shown()["status"] == "interrupted"


def test_a_job_is_stopped_from_any_host_with_its_ranks_grace(site: Site) -> None:
    job = site.submit("-N2", "--", "ranks", "save", "3.5")  # who waits for 2 s hears what for
    wait_until(lambda: site.are_ready(2))
    shown = site.shown()
    assert (shown["status"], shown["job_id"]) == ("running", job)
    assert shown["host"].startswith("node")
    done = site("stop", "latest")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(": interrupted\n")
    assert f"primus: waiting for job {job} (" in done.stderr
    assert site.saved() == {"saved_0", "saved_1"}
    wait_until(lambda: not site.cluster.jobs())
    assert site.metadata()["status"] == "interrupted"


def test_a_job_whose_ranks_end_well_when_they_are_stopped_is_stopped_too(site: Site) -> None:
    site.submit("-N2", "--", "ranks", "save", "0", "0")
    wait_until(lambda: site.are_ready(2))
    done = site("stop", "latest")
    assert done.returncode == 0, done.stderr
    assert site.saved() == {"saved_0", "saved_1"}
    wait_until(lambda: not site.cluster.jobs())


def test_an_srun_of_another_host_is_stopped_with_its_ranks_grace(site: Site, start: Start) -> None:
    srun = start(f"{site.cluster.folder}/bin/on-login", PRIMUS, "slurm", "-N2", "--", "ranks", "save")
    wait_until(lambda: site.are_ready(2))
    shown = site.shown()
    assert (shown["status"], shown["host"]) == ("running", "login")
    assert shown["job_id"] == site.cluster.jobs()[0]
    done = site("stop", "latest")
    assert done.returncode == 0, done.stderr
    assert site.saved() == {"saved_0", "saved_1"}
    srun.communicate(timeout=120)
    assert site.metadata()["status"] == "interrupted"
    wait_until(lambda: not site.cluster.jobs())


def test_an_srun_of_another_host_that_waits_is_withdrawn(site: Site, start: Start) -> None:
    srun = start(f"{site.cluster.folder}/bin/on-login", PRIMUS, "slurm", "-N2", LATER, "--", "ranks", "say")
    wait_until(lambda: site.cluster.jobs() and site.shown()["status"] == "pending")
    done = site("stop", "latest")
    assert done.returncode == 0, done.stderr
    srun.communicate(timeout=120)
    assert site.metadata()["status"] == "interrupted"
    wait_until(lambda: not site.cluster.jobs())


def test_a_step_in_somebodys_allocation_is_stopped_and_the_allocation_stays(site: Site, start: Start) -> None:
    stays = '"$@"; while ! test -e done; do sleep 0.1; done'
    words = [f"{site.cluster.folder}/bin/on-login", PRIMUS, "slurm", "srun", "--", "ranks", "save"]
    allocation = start("salloc", "-N2", "sh", "-c", stays, "sh", *words)
    try:
        wait_until(lambda: site.are_ready(2))
        done = site("stop", "latest")
        assert done.returncode == 0, done.stderr
        assert site.saved() == {"saved_0", "saved_1"}
        assert len(site.cluster.jobs()) == 1
        assert site.metadata()["status"] == "interrupted"
    finally:
        (site.folder / "done").touch()
        allocation.communicate(timeout=120)


def test_a_number_that_another_job_has_by_now_ends_nothing(site: Site) -> None:
    site.submit("-N1", LATER, "--", "ranks", "say")
    other = site.cluster.run("sbatch", "--parsable", "-o/dev/null", "--wrap=sleep 600").strip()
    path = site.directory / "metadata.json"
    path.write_text(json.dumps({**site.metadata(), "job_id": other}))
    assert site.shown()["status"] == "lost"
    done = site("stop", "latest")
    assert (done.returncode, "is not running: its status is lost" in done.stderr) == (0, True)
    assert other in site.cluster.jobs()


def test_a_job_that_slurm_has_forgotten_is_lost(site: Site) -> None:
    site.cluster.run("scancel", site.submit("-N1", LATER, "--", "ranks", "say"))
    path = site.directory / "metadata.json"
    path.write_text(json.dumps({**site.metadata(), "job_id": "999999"}))
    assert site.shown()["status"] == "lost"


def test_a_controller_that_is_stopped_hangs_nothing(site: Site) -> None:
    site.submit("-N1", LATER, "--", "ranks", "say")
    controller = site.cluster.daemons["slurmctld"]
    controller.send_signal(signal.SIGSTOP)
    try:
        assert site.shown()["status"] == "submitted"
    finally:
        controller.send_signal(signal.SIGCONT)
    wait_until(lambda: site.shown()["status"] == "pending")


@pytest.mark.parametrize("lacking", [("scontrol",), ("scontrol", "squeue")])
def test_following_a_submission_needs_no_command_that_a_site_may_lack(
    lacking: tuple[str, ...], site: Site, tmp_path: Path
) -> None:
    lame = tmp_path / "lame"
    lame.mkdir()
    for name in lacking:
        (lame / name).write_text("#!/bin/sh\nexit 127\n")
        (lame / name).chmod(0o755)
    path = f"{lame}:{site.environ['PATH']}"
    done = site("slurm", "sbatch", "--follow", "-N2", "--", "ranks", "exit", "7", "1", PATH=path)
    assert done.returncode == 7, done.stderr
    assert "rank 0 of 2 on node" in done.stdout
    assert ("Slurm does not answer" in done.stderr) == (len(lacking) == 2)


def test_logs_wait_for_a_job_and_end_with_it(site: Site, start: Start) -> None:
    job = site.submit("-N2", LATER, "--", "ranks", "exit", "7", "1")
    refused = site("logs", "latest")
    assert refused.returncode == 2
    assert f"job {job}: pending (BeginTime)" in refused.stderr
    ranks, launch = (start(PRIMUS, "logs", "latest", "--follow", *words) for words in (["--rank", "0-1"], ["--launch"]))
    for process in (ranks, launch):
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said == f"primus: waiting for job {job}: pending (BeginTime); Ctrl-C stops this command, not the run\n"
    site.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    said, errors = ranks.communicate(timeout=120)
    assert (ranks.returncode, errors) == (0, "")
    assert "[rank0] rank 0 of 2 on node" in said
    assert "[rank1] rank 1 of 2 on node" in said
    said, _ = launch.communicate(timeout=120)
    assert "primus: slurm: srun" in said
    assert "first failure" in said, "the job's own log, to its end"


def test_logs_go_on_where_the_job_is_put_back_into_the_queue(site: Site, start: Start) -> None:
    job = site.submit("-N1", "--requeue", "--", "ranks", "save")
    wait_until(lambda: site.are_ready(1))
    follower = start(PRIMUS, "logs", "latest", "--follow")
    assert follower.stdout is not None
    first = [follower.stdout.readline() for _ in range(2)]
    site.cluster.run("scontrol", "requeue", job)
    wait_until(lambda: site.cluster.job(job)["JobState"] == "PENDING")
    assert site.shown()["status"] == "pending"

    def begins() -> bool:
        now = ["scontrol", "update", f"JobId={job}", "StartTime=now"]  # Slurm would wait for two minutes
        return start(*now).wait(timeout=120) != 0 or site.cluster.job(job)["JobState"] != "PENDING"

    wait_until(begins)
    second = [follower.stdout.readline() for _ in range(2)]
    assert [line for line in (*first, *second) if line == "ready\n"] == ["ready\n"] * 2
    assert site.shown()["status"] == "running"
    assert site("stop", "latest").returncode == 0
    assert follower.wait(timeout=120) == 0
    wait_until(lambda: not site.cluster.jobs())


def test_ctrl_c_and_a_closed_pipe_end_the_showing_quietly(site: Site, start: Start) -> None:
    site.submit("-N1", "--", "ranks", "wait")
    wait_until(lambda: site.are_ready(1))
    follower = start(PRIMUS, "logs", "latest", "--follow")
    assert follower.stdout is not None
    follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    _, errors = follower.communicate(timeout=120)
    assert (follower.returncode, errors) == (130, "primus: interrupted\n")
    silent = start("bash", "-c", f"{PRIMUS} logs latest --follow | head -1")  # the rank says nothing more
    said, errors = silent.communicate(timeout=120)
    assert said.startswith("rank 0 of 1")
    assert (silent.returncode, errors) == (0, "")


def test_a_job_owns_its_run_directory_and_what_its_hooks_start_are_runs_of_their_own(site: Site) -> None:
    (site.folder / "hooks").mkdir()
    nested = f'NESTED=1 "{sys.executable}" -m primus_core direct -- ranks exit 0 0'
    (site.folder / "hooks/01.sh").write_text(f'[ -n "$NESTED" ] || {nested}\n')
    (site.folder / "primus.yaml").write_text("hooks: {}\n")
    job = site.submit("-N", "2", "--", "ranks", "wait")
    [directory] = [script.parent for script in (site.folder / "output").glob("ranks_*/submit.sh")]
    wait_until(lambda: sum("ready" in log.read_text() for log in directory.glob("logs/rank_*.log")) == 2, 120)
    runs = {run["name"]: run for run in json.loads(site("runs", "list", "--json").stdout)}
    inside = [site.folder / "output" / name for name, run in runs.items() if run["parent"] == directory.name]
    assert len(inside) == len(runs) - 1 == 2, runs
    for run in inside:
        assert "rank 0 of 1 on" in (run / "logs/rank_0.log").read_text()
    before = (directory / "metadata.json").read_bytes()
    second = site("direct", "--", "ranks", "exit", "0", "0", PRIMUS_RUN_DIR=str(directory))
    assert second.returncode == 2, second.stderr
    assert f"the directory {directory} is in use" in second.stderr
    assert (directory / "metadata.json").read_bytes() == before
    owner = json.loads(max((directory / "lease").glob("*.json")).read_text())
    assert owner["job_id"] == job
    assert site("stop", str(directory)).returncode == 0
