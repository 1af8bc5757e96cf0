"""A run on Slurm that was saved when the runtimes were modules of the kernel is shown and started again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import ROOT, Run
from tests.core.test_former_runs import written

from primus_core.replay import saved_plan

RECORDED = json.loads((ROOT / "tests/slurm/golden/run_of_0.1_on_slurm.json").read_text(encoding="utf-8"))
SRUN = """#!/bin/sh
test "$1" = --version && exec echo slurm 23.11.0
while test "$1" != /usr/bin/env; do shift; done
SLURM_JOB_ID=8 SLURM_STEP_ID=0 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_LOCALID=0 SLURM_JOB_NODELIST=localhost exec "$@"
"""


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """The run directory, and a program in the place of srun."""
    (tmp_path / "project/bin").mkdir(parents=True)
    (tmp_path / "project/bin/srun").write_text(SRUN)
    (tmp_path / "project/bin/srun").chmod(0o755)
    return written(RECORDED, tmp_path / "project")


@pytest.mark.parametrize("runtime", [(), ("slurm", "srun", "-N1")])
@pytest.mark.full
def test_it_starts_again_here_and_on_slurm(primus: Run, former: Path, runtime: tuple[str, ...]) -> None:
    project = former.parent.parent
    env = {"GREETING": "other", "PATH": f"{project}/bin:/usr/bin:/bin"}
    assert "slurm" in primus("runs", "show", str(former), cwd=project).stdout
    again = primus("replay", str(former), *runtime, cwd=project, env=env)
    assert again.returncode == 0, again.stderr
    assert "hello 0 1 1 2 hi" in again.stdout
    (new,) = (path for path in former.parent.iterdir() if path.name != former.name and not path.is_symlink())
    known = json.loads((new / "metadata.json").read_text())
    assert (known["runtime"], known.get("job_id")) == (("slurm", "8") if runtime else ("direct", None))


def test_the_programs_that_its_plan_names_are_those_of_today(former: Path) -> None:
    text = (former / "layers/slurm.json").read_text()
    assert '"primus_core.runtimes.slurm.stop"' in text
    (step,) = saved_plan.load(text).steps
    assert [words[1:3] for words in (step.stop, step.cleanup)] == [("-m", "primus_slurm.stop")] * 2
    container = text.replace("primus_core.runtimes.slurm.stop", "primus_core.runtimes.container.leftovers")
    (step,) = saved_plan.load(container).steps
    assert step.cleanup[1:3] == ("-m", "primus_container.leftovers")
