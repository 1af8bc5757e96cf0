"""Which processes of this machine are ranks of a run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from primus_machine.processes import ranks_of


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the environment of rank 3 of the run in `run`."""
    (tmp_path / "run").mkdir()
    environ = {"PATH": "/usr/bin:/bin", "RANK": "3", "PRIMUS_RUN_DIR": str(tmp_path / "run")}
    with subprocess.Popen(["sleep", "600"], env=environ) as process:
        yield process
        process.kill()


def test_a_rank_is_known_by_its_environment_whatever_leads_to_its_run(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / "latest").symlink_to("run")
    assert ranks_of(str(tmp_path / "run")) == ranks_of(str(tmp_path / "latest")) == [sleeper.pid]
    assert ranks_of(str(tmp_path)) == []
