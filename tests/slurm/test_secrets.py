"""Secrets in the folder and the environment of a command that would submit a job."""

from pathlib import Path

from tests.conftest import Run
from tests.core.test_secret_roads import leaky, shows_no_kind

__all__ = ["leaky"]


def test_no_kind_is_in_what_is_only_shown(primus: Run, leaky: Path) -> None:
    shows_no_kind(primus, leaky, "slurm", "sbatch", "--dry-run", "-N", "1", "--comment", "LABEL", "--", "leak")
