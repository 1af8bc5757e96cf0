"""A run of `run FILE` under Slurm is replayed from the copies in its snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run

pytestmark = pytest.mark.slurm


SRUN = ("slurm", "srun", "-N", "1")
HELLO = "hello ['--lr', '1']"


@pytest.mark.parametrize("again", [("direct",), SRUN], ids=["direct", "slurm"])
def test_a_file_that_ran_under_slurm_is_replayed(
    primus: Run, plain_ranks: dict[str, str], folder: Path, again: tuple[str, ...]
) -> None:
    """Also when it is gone by then, from a run directory that was moved, and once more."""
    (folder / "hello.py").write_text("import sys\nprint('hello', sys.argv[1:], flush=True)\n")
    ran = primus(*SRUN, "--", "run", "hello.py", "--lr", "1", env=plain_ranks, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    (folder / "hello.py").unlink()
    (folder / "elsewhere").mkdir()
    run = (folder / "output/hello").resolve().rename(folder / "elsewhere/hello_2026_01_01_000000")
    for _ in range(2):
        replayed = primus("replay", str(run), *again, env=plain_ranks, cwd=folder)
        assert replayed.returncode == 0, replayed.stderr
        assert HELLO in replayed.stdout
        run = (folder / "elsewhere/hello").resolve()


def test_a_file_that_was_submitted_is_replayed(primus: Run, plain_ranks: dict[str, str], folder: Path) -> None:
    (folder / "hello.py").write_text("import sys\nprint('hello', sys.argv[1:], flush=True)\n")
    (folder / "sub").mkdir()
    job = primus(
        "slurm",
        "sbatch",
        "-N",
        "1",
        "--wait",
        "--",
        "run",
        "../hello.py",
        "--lr",
        "1",
        env=plain_ranks,
        cwd=folder / "sub",
    )
    assert job.returncode == 0, job.stderr
    (folder / "hello.py").unlink()
    run = (folder / "sub/output/hello").resolve()
    replayed = primus("replay", str(run), env=plain_ranks, cwd=folder)
    assert replayed.returncode == 0, replayed.stderr
    assert HELLO in replayed.stdout
