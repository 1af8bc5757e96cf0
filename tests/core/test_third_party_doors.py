"""A batch system of another team, with its runtime, scheduler, launcher, task and command: nothing in the kernel knows it."""

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
from tests.conftest import Run, wait_until
from tests.core.conftest import THIRD_PARTY
from tests.core.test_direct import metadata, run_of
from tests.core.test_lease import OTHER_HOST
from tests.once import once


def install(folder: Path) -> None:
    """The team's package, by pip."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(folder), str(THIRD_PARTY / "acme-grid")], check=True, timeout=300)


@pytest.fixture(scope="session")
def acme_grid(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder that it is installed in."""
    return str(once(tmp_path_factory, "acme-grid", install))


class Grid:
    """An Acme Grid that runs, and the command `primus` for it."""

    def __init__(self, primus: Run, site: str, folder: Path, environ: dict[str, str]) -> None:
        self._primus, self.folder, self.place = primus, folder, folder / "grid"
        self.env = {"ACME_GRID": str(self.place), "PYTHONPATH": site, "PATH": f"{site}/bin:{os.environ['PATH']}"}
        self.environ, self.command = {**environ, **self.env}, (sys.executable, "-m", "primus_core")

    def primus(self, *words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        done = self._primus(*words, env=self.env, cwd=self.folder)
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    def stop_from_elsewhere(self) -> str:
        """What `primus stop` says where the run's processes cannot be seen."""
        words = [*OTHER_HOST, *self.command, "stop", "latest"]
        done = subprocess.run(words, env=self.environ, cwd=self.folder, text=True, capture_output=True, timeout=120,
                              check=True)  # fmt: skip
        return done.stderr

    def listed(self) -> dict[str, Any]:
        """The newest run, as the list has it."""
        found: dict[str, Any] = json.loads(self.primus("runs", "list", "--json").stdout)[0]
        return found

    def wait_for(self, *statuses: str) -> None:
        wait_until(lambda: self.listed()["status"] in statuses)

    @property
    def run(self) -> Path:
        return run_of(self.folder, "toil")


@pytest.fixture
def grid(primus: Run, acme_grid: str, tmp_path: Path, clean_environ: dict[str, str]) -> Iterator[Grid]:
    """One that starts what is queued."""
    grid = Grid(primus, acme_grid, tmp_path, clean_environ)
    grid.place.mkdir()
    daemon = subprocess.Popen(["acme-serve"], env=grid.environ)
    yield grid
    daemon.terminate()
    assert daemon.wait(60) == 0


def test_the_package_is_listed_and_helps(grid: Grid) -> None:
    text = grid.primus("--help").stdout
    assert re.search(r"^runtimes:(\n  .*)*\n  grid +Run on the nodes of Acme Grid", text, re.M)
    assert re.search(r"^tasks:(\n  .*)*\n  toil +Toil on each rank", text, re.M)
    assert re.search(r"^commands:(\n  .*)*\n  acme-report +Report on which nodes a run was\.", text, re.M)
    rows = {(row["kind"], row["name"]): row for row in json.loads(grid.primus("plugins", "--json").stdout)}
    for key in (
        ("runtimes", "grid"),
        ("schedulers", "acme-grid"),
        ("launchers", "acme-fork"),
        ("commands", "acme-report"),
    ):
        assert (rows[key]["source"], rows[key]["status"]) == ("acme-grid 1.4.0", "ok")
    assert "--submit" in grid.primus("grid", "--help").stdout


def test_a_command_of_a_package_is_helped_completed_and_hinted_at(grid: Grid) -> None:
    assert "--format {text,json}" in grid.primus("acme-report", "--help").stdout
    assert grid.primus("__complete", "1", "primus", "acme").stdout == "acme-report\n"
    assert grid.primus("__complete", "3", "primus", "acme-report", "--format", "").stdout == "json\ntext\n"
    assert "did you mean `primus acme-report latest`?" in grid.primus("acme-reprot", "latest", expect=2).stderr
    assert "--formt" in grid.primus("acme-report", "latest", "--formt", "json", expect=2).stderr
    assert "there is no run 'latest'" in grid.primus("acme-report", "latest", expect=2).stderr


@pytest.mark.slow
def test_a_run_on_two_nodes_knows_where_its_ranks_stand_and_meet(grid: Grid) -> None:
    done = grid.primus("grid", "--nodes", "2", "--slots", "2", "--", "toil")
    said = [(grid.run / f"logs/rank_{rank}.log").read_text() for rank in range(4)]
    where = re.search("meet at (127.0.0.1:2[0-9]{4})$", said[0], re.M)
    assert where, said[0]
    for rank, text in enumerate(said):
        assert f"rank {rank} of 4 on node {rank // 2} of 2, which meet at {where[1]}\n" in text
    known = metadata(grid.run)
    assert (known["status"], known["runtime"], known["world_size"], known["job_id"]) == ("completed", "grid", 4, "g1")
    assert known["scheduler"] == {"name": "acme-grid", "flavour": "acme-grid", "version": "1.4"}
    nodes = [metadata(grid.run / "nodes" / node) for node in "01"]
    assert [(node["node"], node["job_id"], node["status"]) for node in nodes] == [
        ("127.0.0.1", "g1", "completed"),
        ("127.0.0.2", "g1", "completed"),
    ]
    assert "Acme Grid" in (grid.run / "nodes/1/plan.json").read_text()
    assert grid.primus("acme-report", "latest").stdout == "127.0.0.1       completed\n127.0.0.2       completed\n"
    assert "primus: run output/toil_" in done.stderr
    again = grid.primus("replay", "latest", "grid", "--nodes", "2", "--slots", "2").stderr
    assert ("  warning   " in again, "  equal     plan, config, " in again) == (False, True), again


@pytest.mark.slow
def test_a_submitted_run_is_pending_then_running_then_completed_and_its_job_has_a_log(grid: Grid) -> None:
    (grid.place / "hold").touch()
    done = grid.primus("grid", "--nodes", "2", "--submit", "--", "direct", "--", "toil")
    assert "primus: grid: submitted job g1\n" in done.stderr
    waits = grid.listed()
    assert (waits["status"], waits["job_id"], waits["reason"]) == ("pending", "g1", "the grid is on hold")
    (grid.place / "hold").unlink()
    grid.wait_for("completed")
    assert metadata(grid.run)["status"] == "completed", "the job keeps the run's record"
    log = grid.primus("logs", "latest", "--launch").stdout
    assert "primus: grid: acme-run\n" in log
    assert "rank 0 of 2 on node 0 of 2" in log
    assert "rank 1 of 2 on node 1 of 2" in grid.primus("logs", "latest", "--rank", "1").stdout
    script = (grid.run / "grid.sh").read_text()
    assert f"PRIMUS_RUN_DIR={grid.run}\n" in script
    assert "PRIMUS_OUTER" not in script


@pytest.mark.slow
def test_a_submitted_run_is_stopped_before_it_begins_and_while_it_runs(grid: Grid) -> None:
    (grid.place / "hold").touch()
    grid.primus("grid", "--submit", "--", "toil", "wait")
    assert grid.primus("stop", "latest").stderr.endswith(": interrupted\n")
    assert grid.listed()["status"] == "interrupted"
    (grid.place / "hold").unlink()
    grid.primus("grid", "--submit", "--nodes", "2", "--", "toil", "wait")
    wait_until((grid.run / "ready").exists)
    assert grid.listed()["status"] == "running"
    assert grid.stop_from_elsewhere().endswith(": interrupted\n")
    assert json.loads((grid.place / "jobs/g2/job.json").read_text())["state"] == "CANCELLED"


@pytest.mark.slow
def test_a_run_that_somebody_waits_for_is_stopped_from_another_host(grid: Grid) -> None:
    words = ("grid", "--nodes", "2", "--", "toil", "wait")
    waiting = subprocess.Popen([*grid.command, *words], env=grid.environ, cwd=grid.folder, stderr=subprocess.DEVNULL)
    try:
        wait_until((grid.folder / "output/toil/ready").exists)
        assert grid.stop_from_elsewhere().endswith(": interrupted\n")
        assert waiting.wait(60) == 143
    finally:
        waiting.terminate()
        waiting.wait(60)
    assert metadata(grid.run)["status"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("doing", "code", "what"),
    [("raise", 1, "ValueError: the toil was too hard"), ("crash", 139, "ended by SIGSEGV")],
)
def test_the_rank_that_failed_first_is_named_with_its_node(grid: Grid, doing: str, code: int, what: str) -> None:
    done = grid.primus("grid", "--nodes", "2", "--slots", "2", "--", "toil", doing, expect=code)
    assert f"primus: grid: ended: rank 3 on node 1: {what}" in done.stderr
    known = metadata(grid.run)
    assert (known["status"], known["first_failure"]) == ("failed", {"rank": 3, "node_rank": 1, "what": what})


@pytest.mark.slow
def test_a_run_goes_on_without_the_node_that_was_lost(grid: Grid) -> None:
    done = grid.primus("grid", "--nodes", "2", "--max-restarts", "1", "--", "toil", "lose")
    assert "primus: grid: attempt 1 ended: node 1: 127.0.0.2 is lost: Acme Grid says down\n" in done.stderr
    first, second = metadata(grid.run)["attempts"]
    assert (first["lost_nodes"], second["exit_code"]) == (["127.0.0.2"], 0)
    assert metadata(grid.run / "nodes/1")["node"] == "127.0.0.3"
    assert "attempt 1" in grid.primus("runs", "show", "latest").stdout


@pytest.mark.slow
def test_a_job_whose_time_ends_goes_back_into_the_queue_and_the_run_with_it(grid: Grid) -> None:
    grid.primus("grid", "--submit", "--max-restarts", "1", "--", "toil", "wait")
    wait_until((grid.run / "ready").exists)
    (grid.run / "ready").unlink()
    (grid.place / "hold").touch()
    os.kill(json.loads((grid.place / "jobs/g1/job.json").read_text())["pid"], signal.SIGUSR2)
    grid.wait_for("pending")
    (grid.place / "hold").unlink()
    wait_until((grid.run / "ready").exists)
    assert len(metadata(grid.run)["attempts"]) == 2
    grid.primus("stop", "latest")
    assert grid.listed()["status"] == "interrupted"


@pytest.mark.slow
def test_a_run_that_a_rank_starts_gets_nothing_of_the_launcher_around_it(grid: Grid) -> None:
    done = grid.primus("direct", "--", "toil", "primus")
    assert re.findall("^done.*", done.stdout, re.M) == ["done", "done ACME_FORK_PARENT"]
