"""Primus is killed (SIGKILL) at moments spread over a launch: what it leaves is whole or says that it is not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.machine.repositories import commit, git

from primus_core.runs.saved import Damaged, load
from primus_runs.listing import find

pytestmark = pytest.mark.full

MOMENTS = 20


@pytest.fixture
def repository(project: Path) -> Path:
    """The project in a repository with untracked files, and a hook that changes the plan."""
    (project / "hooks").mkdir()
    (project / "hooks/01.sh").write_text("echo env.FROM_HOOK=yes\n")
    git(project, "init", "--quiet")
    commit(project)
    (project / "notes").mkdir()
    for number in range(50):
        (project / f"notes/{number}.txt").write_text(f"{number}\n" * 1000)
    return project


def launch(environ: dict[str, str], folder: Path) -> subprocess.Popen[str]:
    """A run that goes on until somebody ends it."""
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--", "behave", "wait"]
    return subprocess.Popen(
        command, env=environ, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def seconds_of_a_launch(environ: dict[str, str], folder: Path) -> float:
    """From the command to the first line of its rank."""
    began = time.monotonic()
    process = launch(environ, folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    seconds = time.monotonic() - began
    process.kill()
    process.communicate(timeout=60)
    return seconds


@pytest.fixture
def killed(clean_environ: dict[str, str], repository: Path) -> Path:
    """The workspace after that many launches, each killed at another moment; the last had begun its rank."""
    launch_s = seconds_of_a_launch(clean_environ, repository)
    for number in range(MOMENTS):
        process = launch(clean_environ, repository)
        if number < MOMENTS - 1:
            time.sleep(launch_s * number / (MOMENTS - 1))
        else:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        process.kill()
        process.communicate(timeout=60)  # its rank has the same stdout: so nothing of the run is left after this
    return repository / "output"


def test_a_killed_launch_is_whole_or_known_to_be_incomplete(primus: Run, killed: Path) -> None:
    runs = list(find(str(killed)))
    assert len(runs) > 1, "some were killed late enough to leave a directory"
    listed = primus("runs", "list", "--json", cwd=killed.parent)
    assert listed.returncode == 0, listed.stderr
    states = {row["name"]: row["status"] for row in json.loads(listed.stdout)}
    assert set(states) == {run.name for run in runs}
    assert not [name for name in states if "partial" in name]
    for name, state in states.items():
        checked = primus("replay", name, "--check", cwd=killed.parent)
        if state == "incomplete":
            assert (checked.returncode, "has no complete snapshot" in checked.stderr) == (3, True), checked.stderr
            with pytest.raises(Damaged, match="has no complete snapshot"):
                load(str(killed / name))
        else:
            assert (state, checked.returncode) == ("lost", 0), checked.stderr
            load(str(killed / name))
        shown = primus("runs", "show", name, "--json", cwd=killed.parent)
        assert shown.returncode == 0, shown.stderr
        assert ".partial" not in json.dumps(json.loads(shown.stdout)["configs"])
    assert Counter(states.values())["lost"], "the one that had begun is whole"


def test_the_next_run_goes_on_as_if_nothing_were(primus: Run, killed: Path) -> None:
    assert primus("direct", "--", "behave", "exit", "0", cwd=killed.parent).returncode == 0
    assert json.loads((killed / "behave/code/code.json").read_text())["error"] == ""
    assert primus("replay", "behave", cwd=killed.parent).returncode == 0
