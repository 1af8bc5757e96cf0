"""Wrong command lines and wrong configurations: exit 2, nothing written, the place and a way out, no traceback."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.templates import machine

GOOD = """\
exp_name: down
modules:
  pre_trainer:
    framework: countdown
    overrides:
      steps: 4
      loss: {start: 3.5}
"""
TRAIN = "direct -- train pretrain --config exp.yaml"

COMMANDS = {
    "an unknown runtime": ("dirct -- train", "segment 1", "did you mean 'direct'?"),
    "an unknown task": ("direct -- trian", "segment 2", "did you mean 'train'?"),
    "a task without a runtime": ("train pretrain", "'train' is a task", "primus direct -- train pretrain"),
    "an empty segment": ("direct -- -- train", "segment 2 is empty", "train"),
    "nothing after the dashes": ("direct --", "segment 2 is empty", "train"),
    "an empty first segment": ("-- train", "segment 1 is empty", "begin with a runtime"),
    "a runtime alone": ("direct", "`primus direct` needs a task", "primus direct -- <task>"),
    "an outer runtime alone": ("slurm -N2", "`primus slurm -N2` needs a task", "primus slurm -N2 -- <task>"),
    "runtimes alone": (
        "slurm -- container",
        "`primus slurm -- container` needs",
        "primus slurm -- container -- <task>",
    ),
    "an unknown runtime option": (
        "direct --sinlge -- train",
        "segment 1 (direct): unknown option '--sinlge'",
        "did you mean '--single'?",
    ),
    "an abbreviated option": ("direct --sing -- train", "'--sing'", "did you mean '--single'?"),
    "a runtime option after the task": (
        f"{TRAIN} --numa",
        "segment 2 (train): '--numa'",
        "primus direct --numa -- train pretrain --config exp.yaml",
    ),
    "an unknown option of primus": ("--frob direct -- train", "'--frob' is not an option of primus", "primus --help"),
    "a missing argument": ("direct -- train pretrain", "--config is missing", "--replay RUN"),
    "a misspelt --config": (TRAIN.replace("--config", "--confg"), "--config is missing", "did you mean '--config'?"),
    "a task without dashes": (
        "direct train pretrain",
        "there is no `--` before 'train'",
        "primus direct -- train pretrain",
    ),
    "a misspelt option before a word": (
        "runs --workspcae out list",
        "unknown option '--workspcae'",
        "did you mean '--workspace'?",
    ),
    "no time to hang": ("direct --hang-timeout 0 -- train", "'0' is not a duration above 0", "--help"),
    "a bad number": ("direct --grace-period soon -- train", "segment 1 (direct)", "soon"),
    "--json without --dry-run": ("direct --json -- behave exit 0", "--json requires --dry-run", "add --dry-run"),
    "a bad --env": ("direct --env 9lives=1 -- behave exit 0", "--env: '9lives'", "NCCL_DEBUG=INFO"),
    "an --env that is not set": ("direct --env NOT_SET_HERE -- behave exit 0", "NOT_SET_HERE is not set", "export"),
    "a stage that the backend lacks": (
        TRAIN.replace("pretrain", "pertrain"),
        "no stage 'pertrain'",
        "did you mean 'pretrain'?",
    ),
    "a task behind a replay": ("replay exp direct -- train", "segment 2: no runtime is called 'train'", "known: "),
    "an override without value": (f"{TRAIN} --steps", "'--steps' has no value", "--steps VALUE"),
    "a word that is not a setting": (f"{TRAIN} steps", "'steps' is not a setting", "key=value"),
    "a misspelt override": (f"{TRAIN} stpes=5", "command line: stpes=5", "did you mean 'steps'?"),
    "an override of the wrong type": (f"{TRAIN} steps=many", "'steps' takes a whole number", "'many'"),
    "a secret on the command line": (f"{TRAIN} hf_token=abcdefgh", "contains a secret", "export it"),
    "a missing config": (
        "direct -- train pretrain --config nowhere.yaml",
        "there is no file 'nowhere.yaml'",
        "check the path",
    ),
    "a misspelt task": ("direct -- prefligth", "no task is called 'prefligth'", "did you mean 'preflight'?"),
}

FILES = {
    "a misspelt key at the top": (("exp_name", "expname"), "exp.yaml:1: unknown key 'expname'", "did you mean 'exp_name'?"),
    "a misspelt key of a module": (("    framework", "    framwork"), "exp.yaml:4", "did you mean 'framework'?"),
    "a misspelt setting": (("      steps", "      stpes"), "exp.yaml:6", "did you mean 'steps'?"),
    "a misspelt nested setting": (("{start", "{strat"), "exp.yaml:7", "did you mean 'loss.start'?"),
    "a secret written out": (("steps: 4", "hf_token: abcdefgh"), "exp.yaml:6: 'hf_token' holds a secret", "export HF_TOKEN="),
    "a wrong type": (("steps: 4", "steps: four"), "exp.yaml:6: 'steps' takes a whole number", "default is 3"),
    "a value that is not allowed": (("start: 3.5", "kind: stepe"), "exp.yaml:7: 'loss.kind'", "did you mean 'steep'?"),
    "a missing key": (("exp_name: down\n", ""), "'exp_name' is missing", "exp_name:"),
    "an unset variable": (("4", "${STEPS_OF_MINE}"), "exp.yaml:6: ${STEPS_OF_MINE} is not set", "${STEPS_OF_MINE:value}"),
    "an unclosed variable": (("4", "${STEPS"), "exp.yaml:6", "}"),
    "a duplicate key": (("      loss", "      steps: 5\n      loss"), "exp.yaml:7: duplicate key 'steps'", "exp.yaml:6"),
    "a tab": (("    framework", "\tframework"), "exp.yaml:4: this is not valid YAML", ""),
    "a list at the top": (("exp_name: down\n", "- exp_name\n"), "exp.yaml:2", ""),
    "an unknown model": (("    overrides", "    model: llama9_900B\n    overrides"), "exp.yaml:5: unknown model 'llama9_900B'", "known:"),
    "an escape in a preset name": (("    overrides", "    model: ../../etc/passwd\n    overrides"), "exp.yaml:5", "./file.yaml"),
    "an escape behind a dot": (("    overrides", "    config: ./../x.yaml\n    overrides"), "exp.yaml:5", "not the name of a preset"),
    "an unknown backend": (("countdown", "countdwon"), "exp.yaml:4: no backend is called 'countdwon'", "did you mean 'countdown'?"),
    "a backend not installed": (("countdown", "maxtext"), "exp.yaml:4", "packages/primus-maxtext"),
    "a circle of extends": (("exp_name: down", "extends: exp.yaml\nexp_name: down"), "circle", "exp.yaml → exp.yaml"),
    "an extends of nothing": (("exp_name: down", "extends: gone.yaml\nexp_name: down"), "exp.yaml:1: there is no file 'gone.yaml'", ""),
    "several mistakes": (("steps: 4\n      loss: {start", "stpes: 4\n      loss: {strat"), "exp.yaml:7", "primus: 2 errors"),
    "no trainer": (("pre_trainer", "something"), "no module to pretrain", "pre_trainer"),
    "a name that is no folder's": (("down", "../down"), "'../down' cannot name a run", "letters"),
}  # fmt: skip

WHOLE = ("an unknown task", "a misspelt task", "an unknown backend", "a backend not installed")


def kinds(table: Iterable[str]) -> list[Any]:
    """The rows of a table; those that what is installed would change are run with all packages, too."""
    return [pytest.param(kind, marks=[pytest.mark.whole] if kind in WHOLE else []) for kind in table]


def refused(primus: Run, folder: Path, third_party: str, words: str) -> str:
    """Run it; it must end with 2 (3: a package is missing), write nothing and show no traceback. Its message."""
    before = sorted(folder.rglob("*"))
    result = primus(*words.split(), cwd=folder, env={"PYTHONPATH": third_party})
    code = 3 if "is not installed" in result.stderr else 2
    assert (result.returncode, result.stdout) == (code, ""), result.stderr
    assert result.stderr.startswith("primus: error: ")
    assert "Traceback" not in result.stderr
    assert sorted(folder.rglob("*")) == before
    return result.stderr


@pytest.mark.parametrize("kind", kinds(COMMANDS))
def test_a_wrong_command_line(primus: Run, project: Path, third_party: str, kind: str) -> None:
    words, place, way_out = COMMANDS[kind]
    (project / "exp.yaml").write_text(GOOD)
    message = refused(primus, project, third_party, words)
    assert place in message
    assert way_out in message


@pytest.mark.parametrize("kind", kinds(FILES))
@pytest.mark.full
def test_a_wrong_configuration(primus: Run, tmp_path: Path, third_party: str, kind: str) -> None:
    (old, new), place, way_out = FILES[kind]
    assert old in GOOD
    (tmp_path / "exp.yaml").write_text(GOOD.replace(old, new, 1))
    message = refused(primus, tmp_path, third_party, TRAIN)
    assert place in message
    assert way_out in message


@pytest.mark.parametrize(
    ("name", "value"),
    [("GPUS_PER_NODE", "0"), ("GPUS_PER_NODE", "73"), ("GPUS_PER_NODE", "two"), ("MASTER_PORT", "65536"),
     ("MASTER_ADDR", "a b"), ("NODE_RANK", "1"), ("NNODES", "2")],
)  # fmt: skip
def test_a_wrong_place_in_the_job(primus: Run, project: Path, name: str, value: str) -> None:
    result = primus("direct", "--dry-run", "--", "behave", "exit", "0", cwd=project, env={name: value})
    assert result.returncode == 2
    assert f"{name} is '{value}'" in result.stderr or f"{name} is {value}" in result.stderr
    assert "fix: " in result.stderr


@pytest.mark.parametrize("lists", [{}, {"HIP_VISIBLE_DEVICES": "0"}, {"ROCR_VISIBLE_DEVICES": "4,5"}])
def test_more_ranks_than_gpus_are_refused(primus: Run, third_party: str, tmp_path: Path, lists: dict[str, str]) -> None:
    (tmp_path / "exp.yaml").write_text(GOOD, encoding="utf-8")
    words = ("direct", "--dry-run", "--assume-host", machine("MI300X", tmp_path), *TRAIN.split()[1:])
    environ = {"PYTHONPATH": third_party, **lists, "GPUS_PER_NODE": "9"}
    done = primus(*words, env=environ)
    count = len(next(iter(lists.values())).split(",")) if lists else 8
    assert done.returncode == 2
    assert f"GPUS_PER_NODE is 9, but {count} GPU" in done.stderr
    assert f"set GPUS_PER_NODE={count}" in done.stderr
    assert not lists or f"{'='.join(*lists.items())} leaves {count} of 8" in done.stderr
    assert "to train on the CPU, hide all GPUs: HIP_VISIBLE_DEVICES=-1" in done.stderr
    hidden = {**environ, "HIP_VISIBLE_DEVICES": "-1"}
    assert primus(*words, env=hidden).returncode == 0


@pytest.mark.parametrize("words", [("train", "pretrain", "a=b c"), ("--dry-run", "runs", "list", "--workspace", "a b")])
def test_a_command_that_is_printed_as_a_fix_can_be_pasted(primus: Run, words: tuple[str, ...]) -> None:
    """With its quotes: the shell makes the same words of it."""
    refused = primus(*words)
    assert refused.returncode == 2
    [fix] = [line for line in refused.stderr.splitlines() if line.strip().startswith("fix: ")]
    pasted = shlex.split(fix[fix.index("primus ") :])
    assert [word for word in pasted if word in words or " " in word] == [word for word in words if word != "--dry-run"]


MISSPELT = {
    "overides": "did you mean 'overrides'?",
    "overrids": "did you mean 'overrides'?",
    "settings": "did you mean 'overrides'?",
    "framwork": "did you mean 'framework'?",
}


@pytest.mark.parametrize("key", MISSPELT)
def test_a_misspelt_key_of_a_module_is_one_error_and_what_follows_from_it_is_none(
    primus: Run, third_party: str, tmp_path: Path, key: str
) -> None:
    right = "framework" if key == "framwork" else "overrides"
    (tmp_path / "exp.yaml").write_text(GOOD.replace(f"{right}:", f"{key}:"))
    done = primus(*TRAIN.split(), env={"PYTHONPATH": third_party})
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1, done.stderr
    assert f"unknown key 'modules.pre_trainer.{key}'" in done.stderr
    assert MISSPELT[key] in done.stderr


def test_an_error_below_a_misspelt_key_is_found_too(primus: Run, third_party: str, tmp_path: Path) -> None:
    (tmp_path / "exp.yaml").write_text(GOOD.replace("overrides:", "overides:").replace("steps: 4", "stpes: 4"))
    done = primus(*TRAIN.split(), env={"PYTHONPATH": third_party})
    assert "did you mean 'overrides'?" in done.stderr
    assert "did you mean 'steps'?" in done.stderr


def test_a_file_of_a_framework_that_is_not_installed_is_told_as_one(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "exp.yaml").write_text("base_config: base.yml\nper_device_batch_size: 2\nsteps: 5\n")
    done = primus(*TRAIN.split())
    assert (done.returncode, done.stdout) == (3, "")
    assert "exp.yaml: the file is in the form of maxtext, which is not installed\n  fix: " in done.stderr
