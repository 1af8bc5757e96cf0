"""A batch system of another team, with its runtime, scheduler, launcher, task and command: nothing in the kernel knows it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run, wait_until
from tests.core.test_direct import metadata, run_of
from tests.core.test_lease import OTHER_HOST


class Grid:
    """An Acme Grid that runs, and the command `primus` for it."""

    def __init__(self, primus: Run, site: str, folder: Path, environ: dict[str, str]) -> None:
        self._primus, self.folder, self.place = primus, folder, folder / "grid"
        self.env = {"ACME_GRID": str(self.place), "PYTHONPATH": site, "PATH": f"{site}/bin:{os.environ['PATH']}"}
        self.environ, self.command = {**environ, **self.env}, (sys.executable, "-m", "primus_core")

    def primus(self, *words: str, expect: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        done = self._primus(*words, env=self.env | environ, cwd=self.folder)
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


@pytest.mark.full
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


@pytest.mark.full
def test_a_command_of_a_package_is_helped_completed_and_hinted_at(grid: Grid) -> None:
    assert "--format {text,json}" in grid.primus("acme-report", "--help").stdout
    assert grid.primus("__complete", "1", "primus", "acme").stdout == "acme-report\n"
    assert grid.primus("__complete", "3", "primus", "acme-report", "--format", "").stdout == "json\ntext\n"
    assert "did you mean `primus acme-report latest`?" in grid.primus("acme-reprot", "latest", expect=2).stderr
    assert "--formt" in grid.primus("acme-report", "latest", "--formt", "json", expect=2).stderr
    assert "there is no run 'latest'" in grid.primus("acme-report", "latest", expect=2).stderr


@pytest.mark.full
def test_the_packages_defaults_hold_where_no_file_and_no_word_says_otherwise(grid: Grid) -> None:
    def account(*words: str) -> list[str]:
        planned = grid.primus("grid", "--dry-run", "--json", *words, "--", "toil").stdout
        return [word for word in json.loads(planned)["steps"][-1]["argv"] if word.startswith("--account=")]

    assert account() == ["--account=everybody"]
    assert re.search(r"^grid\.account +everybody +packaged$", grid.primus("config", "system").stdout, re.M)
    (grid.folder / "primus.yaml").write_text("grid: {account: mine}\n")
    assert account() == ["--account=mine"]
    assert account("--account", "ours") == ["--account=ours"]
    shown = grid.primus("config", "system").stdout
    assert re.search(r"^grid\.account +mine +primus\.yaml:1\n +over everybody \(packaged\)$", shown, re.M)


def test_two_packages_with_defaults_for_one_runtime_are_named(grid: Grid, tmp_path: Path) -> None:
    twin = tmp_path / "twin/twin-9.9.dist-info"
    twin.mkdir(parents=True)
    (twin / "entry_points.txt").write_text("[primus.defaults]\ngrid = twin.defaults\n")
    grid.env["PYTHONPATH"] += f":{twin.parent}"
    refused = grid.primus("grid", "--dry-run", "--", "toil", expect=2).stderr
    assert "two packages have defaults for the runtime 'grid'" in refused
    assert "acme-grid 1.4.0 and twin 9.9" in refused
    grid.primus("direct", "--dry-run", "--", "toil")


@pytest.mark.full
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
    checked = grid.primus("replay", "latest", "--check", "grid", "--nodes", "2", "--slots", "2").stdout
    assert ("  warning   " in checked, "  equal     plan, config, environment" in checked) == (False, True), checked
    assert "  note      hardware: nodes: known → not before grid has chosen them\n" in checked
    fewer = grid.primus("replay", "latest", "--check", "grid", "--nodes", "1", "--slots", "2").stdout
    assert re.findall("  warning   .*", fewer) == [
        "  warning   config: nnodes: 2 → 1",
        "  warning   config: gpus_per_node: 2 → 4",
    ]


@pytest.mark.torch
@pytest.mark.full
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


@pytest.mark.torch
@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.torch
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


@pytest.mark.full
@pytest.mark.parametrize(
    ("doing", "code", "what"),
    [("raise", 1, "ValueError: the toil was too hard"), ("crash", 139, "ended by SIGSEGV")],
)
def test_the_rank_that_failed_first_is_named_with_its_node(grid: Grid, doing: str, code: int, what: str) -> None:
    done = grid.primus("grid", "--nodes", "2", "--slots", "2", "--", "toil", doing, expect=code)
    assert f"primus: grid: ended: rank 3 on node 1: {what}" in done.stderr
    known = metadata(grid.run)
    assert (known["status"], known["first_failure"]) == ("failed", {"rank": 3, "node_rank": 1, "what": what})


@pytest.mark.torch
@pytest.mark.full
def test_a_run_goes_on_without_the_node_that_was_lost(grid: Grid) -> None:
    done = grid.primus("grid", "--nodes", "2", "--max-restarts", "1", "--", "toil", "lose")
    assert "primus: grid: attempt 1 ended: node 1: 127.0.0.2 is lost: Acme Grid says down\n" in done.stderr
    first, second = metadata(grid.run)["attempts"]
    assert (first["lost_nodes"], second["exit_code"]) == (["127.0.0.2"], 0)
    assert metadata(grid.run / "nodes/1")["node"] == "127.0.0.3", "the second step got --exclude, behind its first word"
    assert "attempt 1" in grid.primus("runs", "show", "latest").stdout


@pytest.mark.torch
@pytest.mark.full
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


@pytest.mark.full
def test_a_run_that_a_rank_starts_gets_nothing_of_the_launcher_around_it(grid: Grid) -> None:
    done = grid.primus("direct", "--", "toil", "primus")
    assert re.findall("^done.*", done.stdout, re.M) == ["done", "done ACME_FORK_PARENT"]


@pytest.mark.full
def test_a_package_looks_at_a_run_that_failed_once_and_after_all_of_its_nodes(grid: Grid) -> None:
    done = grid.primus("grid", "--nodes", "2", "--", "toil", "raise", expect=1)
    said = "acme: exit code 1; rank_0.log, rank_1.log; token none"
    assert done.stderr.count(said) == 1
    assert done.stderr.rstrip().endswith(said), "it is the last word"
    assert (grid.run / "post_mortem.txt").read_text() == said
    assert said in (grid.run / "logs/grid.log").read_text()
    assert "\n# afterwards " in grid.primus("grid", "--dry-run", "--", "toil").stdout
    assert "acme:" not in grid.primus("direct", "--", "toil").stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("doing", "note"),
    [
        ("", ""),
        ("fail", "ended with exit code 7"),
        ("hang", "took longer than 1 s and was ended"),
    ],
)
def test_what_looks_at_a_failed_run_changes_nothing_of_its_end(grid: Grid, doing: str, note: str) -> None:
    (grid.folder / "primus.yaml").write_text("hooks: {event_timeout_s: 1}\n" if doing == "hang" else "")
    grid.env |= {"ACME_POST_MORTEM": doing, "HF_TOKEN": "hf_" + "x1" * 17}
    done = grid.primus("direct", "--", "toil", "crash", expect=139)
    named = "primus: note: post-mortem of acme-grid 1.4.0"
    assert (f"{named} {note}; the exit code of the run is 139 all the same\n" in done.stderr) == bool(note), done.stderr
    assert ("token <secret>" in done.stderr) == (doing != "hang")
    assert (metadata(grid.run)["status"], metadata(grid.run)["exit_code"]) == ("failed", 139)


WATCHING = """
import json, os, signal
from primus_core import hookimpl

def note(*words):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps(words) + chr(10))

@hookimpl
def on_event(event):
    note("event", event["event"])

@hookimpl
def on_tick(ranks):
    note("tick", *ranks)

@hookimpl
def on_hang(run, hang):
    note("hang", hang.silent_s, [open(f"/proc/{pid}/environ").read().count("NOTES=") for pid in hang.ranks.values()])
    if "HANGS" in os.environ:
        signal.pause()
"""


@pytest.mark.full
@pytest.mark.parametrize("hangs", [False, True])
def test_hooks_watch_a_run_and_look_at_ranks_that_hang_before_these_are_ended(grid: Grid, hangs: bool) -> None:
    (grid.folder / "primus.yaml").write_text("plugins: [watch.py]\nhooks: {event_timeout_s: 3}\n")
    (grid.folder / "watch.py").write_text(WATCHING)
    notes = grid.folder / "notes"
    grid.env |= {"GPUS_PER_NODE": "2", "NOTES": str(notes), **({"HANGS": "1"} if hangs else {})}
    done = grid.primus("direct", "--hang-timeout", "2", "--", "toil", "wait", expect=1)
    found = [json.loads(line) for line in notes.read_text().splitlines()]
    assert ["event", "step_started"] in found
    assert any(words[0] == "tick" for words in found)
    assert [words for words in found if words[0] == "hang"] == [["hang", 2.0, [1, 1]]], "both ranks live when it looks"
    assert "hung: no rank printed anything for 2 s" in done.stderr
    assert ("hook on_hang of watch.py took longer than 3 s" in done.stderr) == hangs


IN_A_JOB = {"ACME_JOB": "g1", "ACME_NODE": "0", "ACME_HOSTS": "n1,n2", "ACME_NODES": "2", "ACME_SLOTS": "1"}
DRY = ("direct", "--dry-run", "--", "toil")
DOORS = {
    "started": (DRY, {}),
    "refuse": (DRY, {}),
    "hosts": (DRY, IN_A_JOB),
    "port": (DRY, IN_A_JOB),
    "ask": (("runs", "list"), {}),
    "look": (("stop", "latest"), {}),
    "target": (("stop", "latest"), {}),
    "version": (("grid", "--submit", "--", "toil"), {}),
    "submitted": (("grid", "--submit", "--", "toil"), {}),
    "printed": (("grid", "--", "toil", "raise"), {}),
}


def break_door(grid: Grid, site: str, door: str) -> Path:
    """Make a function of the scheduler raise; its file."""
    path = grid.folder / f"{door}/acme_grid/scheduler.py"
    shutil.copytree(f"{site}/acme_grid", path.parent)
    raising = r"\1        raise RuntimeError('the grid burns')\n"
    path.write_text(re.sub(rf"(    def {door}\(.*\n)", raising, path.read_text()))
    grid.env["PYTHONPATH"] = f"{path.parent.parent}:{site}"
    return path


@pytest.mark.full
def test_a_scheduler_that_raises_while_ranks_run_ends_none_of_them(grid: Grid) -> None:
    break_door(grid, grid.env["PYTHONPATH"], "look")
    log = grid.folder / "stderr.txt"
    with log.open("w") as stderr:
        words = [*grid.command, "grid", "--nodes", "2", "--", "toil", "wait"]
        running = subprocess.Popen(words, env=grid.environ | grid.env, cwd=grid.folder, stderr=stderr)
    try:
        note = (
            "note: acme-grid 1.4.0 is broken, so no job is watched: `AcmeGrid.look` raised RuntimeError: the grid burns"
        )
        wait_until(lambda: note in log.read_text())
        assert running.poll() is None
        assert "Traceback" not in log.read_text()
    finally:
        running.terminate()
        running.wait(60)


@pytest.mark.torch
@pytest.mark.full
def test_a_scheduler_that_raises_is_an_error_that_names_package_function_and_place(grid: Grid) -> None:
    """At each of its doors: while planning, submitting, listing, stopping, and after the ranks have ended."""
    (grid.place / "hold").touch()
    grid.primus("grid", "--submit", "--", "toil")
    site = grid.env["PYTHONPATH"]
    for door, (words, environ) in DOORS.items():
        path = break_door(grid, site, door)
        done = grid.primus(*words, expect=3, **environ)
        assert "primus: error: acme-grid 1.4.0 is broken\n" in done.stderr, done.stderr
        assert f"why: `AcmeGrid.{door}` raised RuntimeError: the grid burns\n       in {path}, line " in done.stderr
        assert "fix: report this to those who maintain it" in done.stderr
        assert f'File "{path}"' not in done.stderr, "no traceback of Primus"
