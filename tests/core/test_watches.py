"""A run in a container ends when nobody outside stays with it any more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from primus_core.multinode.watches import LockWatch, held

HOLD = (
    "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def run(clean_environ: dict[str, str], project: Path) -> subprocess.Popen[str]:
    """A run that goes on until somebody ends it, attended by the lock `lock`."""
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--", "behave", "wait"]
    environ = {**clean_environ, "PRIMUS_ATTENDED": f"{project}/lock"}
    return subprocess.Popen(
        command, env=environ, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


@pytest.fixture
def holder(clean_environ: dict[str, str], project: Path) -> subprocess.Popen[str]:
    """A process that holds the lock."""
    command = [sys.executable, "-c", HOLD, f"{project}/lock"]
    process = subprocess.Popen(command, env=clean_environ, text=True, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def test_a_run_ends_when_the_last_that_held_its_lock_has_died(
    holder: subprocess.Popen[str], run: subprocess.Popen[str]
) -> None:
    assert run.stdout
    assert run.stdout.readline() == "ready\n"
    assert run.poll() is None
    holder.kill()
    holder.communicate()
    run.communicate(timeout=60)
    assert run.returncode == 143


def test_a_lock_is_held_for_as_long_as_its_holder_is_there(tmp_path: Path) -> None:
    path = f"{tmp_path}/logs/lock"
    with held(path):
        assert LockWatch(path).path == path
    assert LockWatch(path).path == ""
    assert LockWatch(f"{tmp_path}/nobody-ever-held-it").path == ""
    with held(""):
        assert LockWatch("").path == ""


@pytest.mark.full
def test_a_lock_that_nobody_held_to_begin_with_means_nothing(run: subprocess.Popen[str], project: Path) -> None:
    assert run.stdout
    assert run.stdout.readline() == "ready\n"
    with pytest.raises(subprocess.TimeoutExpired):
        run.wait(1.5)
    assert not os.path.exists(project / "lock")
    run.terminate()
    run.communicate(timeout=60)
    assert run.returncode == 143


@pytest.mark.full
def test_a_node_ends_once_the_run_has_begun_again_without_it_and_leaves_the_records_alone(
    clean_environ: dict[str, str], project: Path
) -> None:
    shared = project / "shared"
    node = shared / "nodes/0/metadata.json"
    node.parent.mkdir(parents=True)
    (shared / "metadata.json").write_text(json.dumps({"status": "started", "attempts": [{}]}))
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--", "behave", "wait"]
    environ = {**clean_environ, "PRIMUS_RUN_DIR": str(shared), "PRIMUS_OUTER": "slurm"}
    stale = subprocess.Popen(
        command, env=environ, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert stale.stdout
    assert stale.stdout.readline() == "ready\n"
    assert json.loads(node.read_text())["status"] == "started"
    (shared / "metadata.json").write_text(json.dumps({"status": "started", "attempts": [{}, {}]}))
    node.write_text('{"pid": "of the later attempt"}')
    stale.communicate(timeout=60)
    assert stale.returncode == 143
    assert node.read_text() == '{"pid": "of the later attempt"}'
