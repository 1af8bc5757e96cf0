"""How a training ends, and what its last lines say."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_endings import TRAIN, environ, folder, known

__all__ = ["environ", "folder"]


@pytest.mark.full
def test_a_run_that_has_ended_keeps_no_space(primus: Run, folder: Path, environ: dict[str, str]) -> None:
    assert primus("direct", "--single", "--", *TRAIN, cwd=folder, env=environ).returncode == 0
    assert list((folder / "output/count").glob(".reserved")) == []


@pytest.mark.full
def test_a_run_of_a_pasted_dry_run_is_recorded_as_unwatched(
    primus: Run, folder: Path, environ: dict[str, str], clean_environ: dict[str, str]
) -> None:
    script = primus("direct", "--single", "--dry-run", "--", *TRAIN, cwd=folder, env=environ).stdout
    done = subprocess.run(["bash", "-e"], input=script, text=True, cwd=folder, env={**clean_environ, **environ},
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    [run] = json.loads(primus("runs", "list", "--json", cwd=folder).stdout)
    assert (run["status"], run["last_step"], run["framework"]) == ("unwatched", 2, "countdown")
    shown = primus("runs", "show", run["directory"], cwd=folder).stdout
    assert "started from the script of a dry run" in shown
    assert shlex.join(["primus", "direct", "--single", "--dry-run", "--", *TRAIN]) in shown


@pytest.mark.full
def test_the_next_line_is_the_typed_command_with_more(primus: Run, folder: Path, environ: dict[str, str]) -> None:
    words = ("direct", "--single", "--", *TRAIN, "steps=3")
    done = primus(*words, cwd=folder, env=environ)
    assert f"  next   {shlex.join(['primus', *words])} exp_name=mine    # the same under another name\n" in done.stderr
    anew = primus(*words, "--new", cwd=folder, env=environ)
    assert anew.stderr.count(f"  next   {shlex.join(['primus', *words])} exp_name=mine    #") == 1, "--new was for once"
    text = (folder / "exp.yaml").read_text(encoding="utf-8")
    (folder / "exp.yaml").write_text(text.replace("exp_name: count", "exp_name: mine"), encoding="utf-8")
    assert " exp_name=mine-2    # the same under another name" in primus(*words, cwd=folder, env=environ).stderr
    (folder / "exp.yaml").write_text(text, encoding="utf-8")
    typed = primus(*words, cwd=folder, env={**environ, "PRIMUS_GPU_MODEL": "none"})
    assert f"  next   PRIMUS_GPU_MODEL=none {shlex.join(['primus', *words])} exp_name=" in typed.stderr
    named = primus(*words, "exp_name=mine", cwd=folder, env=environ)
    assert named.returncode == 0
    assert "  next" not in named.stderr


@pytest.mark.full
def test_the_next_line_keeps_the_variables_that_the_experiment_reads(
    primus: Run, folder: Path, environ: dict[str, str]
) -> None:
    text = (folder / "exp.yaml").read_text(encoding="utf-8")
    (folder / "exp.yaml").write_text(
        text.replace("count", '"${TEAM:nobody}-x"', 1).replace("name: any", 'name: "${WHAT}"'), encoding="utf-8"
    )
    done = primus("direct", "--single", "--", *TRAIN, cwd=folder, env={**environ, "WHAT": "a b", "TEAM": "we"})
    assert done.returncode == 0, done.stderr
    assert (
        f"  next   TEAM=we WHAT='a b' {shlex.join(['primus', 'direct', '--single', '--', *TRAIN])} exp_name"
        in done.stderr
    )
    assert (folder / "output/we-x").is_dir()


@pytest.mark.parametrize(("code", "word"), [(9, "failed"), (15, "interrupted")])
@pytest.mark.full
def test_a_run_with_a_checkpoint_that_did_not_end_well_says_how_to_continue_it(
    primus: Run, folder: Path, environ: dict[str, str], code: int, word: str
) -> None:
    (folder / "hook.py").write_text(
        "import os, signal\nfrom primus_core import hookimpl\nfrom primus_core.journal.events import checkpoint_saved\n\n\n"
        "@hookimpl\ndef after_launch(run):\n    checkpoint_saved(run.directory, step=40, path='x')\n"
        "    checkpoint_saved(run.directory, step=90, path='y')\n"
        "    with open(run.directory + '/metrics.jsonl', 'a') as file:\n"
        '        file.write(\'{"step": 90, "steps": 120, "loss": 1.0}\\n\')\n'
        f"    os.kill(os.getppid(), {code}) if {code} == 15 else None\n",
        encoding="utf-8",
    )
    (folder / "primus.yaml").write_text("plugins: [./hook.py]\n", encoding="utf-8")
    slow = folder / "site/plain_countdown.py"
    text = slow.read_text(encoding="utf-8").replace(
        'return replace(planned, worker=planned.worker._replace(launcher="one-per-node"))',
        'return replace(planned, worker=planned.worker._replace(module="slow", launcher="one-per-node"))',
    )
    slow.write_text(text, encoding="utf-8")
    (folder / "site/slow.py").write_text("import sys, time\ntime.sleep(1.5)\nsys.exit(9)\n", encoding="utf-8")
    done = primus("direct", "--", *TRAIN, "--new", cwd=folder, env={**environ, "GPUS_PER_NODE": "2"})
    assert done.returncode == (9 if code == 9 else 143), done.stderr
    again = shlex.join(["primus", "direct", "--", *TRAIN])
    assert f" GPUS_PER_NODE=2 {again}    # continues from step 90\n" in done.stderr
    assert known(folder / "output", "count")["status"] == word
