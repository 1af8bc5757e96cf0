"""A training on Slurm, as it is planned."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import Run
from tests.core.test_slurm import ENV, GOLDEN, NASTY, flags, plan_of


def test_srun_starts_one_primus_on_each_node(primus: Run, project: Path) -> None:
    inner = ("direct", "--single", "--", "analyze", "topology", "a b")
    plan = plan_of(primus, project, "-N2", "-p", "gpu", "--", *inner)
    argv = plan["steps"][-1]["argv"]
    assert argv[:6] == [
        "srun",
        "--job-name=primus-analyze-topology",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
        "-N2",
        "-p",
    ]
    behind = argv[argv.index(ENV) + 1 :]
    joined = {word.partition("=")[0]: word.partition("=")[2] for word in behind if word.startswith("PRIMUS_")}
    assert joined["PRIMUS_RUN_DIR"] == plan["place"]["directory"]
    assert joined["PRIMUS_RUN_ID"] == plan["place"]["run_id"]
    assert joined["PRIMUS_OUTER"] == "slurm"
    assert behind[len(joined) :] == [sys.executable, "-m", "primus_core", *inner]
    assert "time" not in " ".join(flags(plan)), "nobody asked for a time limit"


def test_the_job_script_run_by_bash_gives_primus_the_same_words(primus: Run, project: Path, tmp_path: Path) -> None:
    words = ["direct", "--single", "--", "analyze", "topology", *NASTY]
    script = plan_of(primus, project, "sbatch", "--", *words)["files"][0]["text"]
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    fake.chmod(0o755)
    script = script.replace(f"exec {shlex.quote(sys.executable)} ", f"exec {fake} ")
    said = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-m", "primus_core", "slurm", "srun", "--", *words]
    assert not (project / "x").exists()


def test_the_dry_run_of_sbatch_is_as_recorded(primus: Run, project: Path) -> None:
    words = ("-N", "4096", "-p", "gpu", "-t", "1:00:00", "-o", "logs/train_%j.log")
    shown = primus("slurm", "--dry-run", "sbatch", *words, "--", "analyze", "topology", "a b", cwd=project).stdout
    outer = shown.partition("# --- inside")[0]
    for found, stands in (
        (str(project), "PROJECT"), (sys.executable, "PYTHON"), (os.path.expanduser("~"), "HOME"),
    ):  # fmt: skip
        outer = outer.replace(found, stands)
    outer = re.sub(r"_\d{4}_\d\d_\d\d_\d{6}", "_TIME", outer)
    outer = re.sub(r"\b[0-9a-f]{64}\b", "SHA256", outer)
    assert outer == GOLDEN.read_text(encoding="utf-8")
