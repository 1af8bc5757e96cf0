"""Wrong experiments, options and environments: `config validate`, a dry run and a launch refuse the same, in the same
words and with the same exit code, and all mistakes at once. Nothing is started.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mistakes import Asker, Mistake, refused_alike

GOOD = """\
exp_name: down
modules:
  pre_trainer:
    framework: countdown
    overrides:
      steps: 4
      loss: {start: 3.5}
"""

STEPS, LOSS = "steps: 4", "{start: 3.5}"

MISTAKES = {
    # The form of the file
    "not YAML": Mistake("exp.yaml:4: this is not valid YAML", ("    framework", "\tframework")),
    "a list": Mistake("exp.yaml:1: the file must hold keys and values", (GOOD, "- exp_name\n")),
    "a duplicate key": Mistake("exp.yaml:7: duplicate key 'steps'", ("      loss", "      steps: 5\n      loss")),
    "an unknown tag": Mistake("exp.yaml:6: unknown tag 'tag:yaml.org,2002:set'", (STEPS, "steps: !!set 4")),
    "an unknown key": Mistake("exp.yaml:1: unknown key 'wrkspace'", ("exp_name", "wrkspace: x\nexp_name")),
    "a misspelt key": Mistake(("unknown key 'expname'", "did you mean 'exp_name'?"), ("exp_name", "expname")),
    "a missing name": Mistake("'exp_name' is missing", ("exp_name: down\n", "")),
    "no modules": Mistake("'modules' is missing", (GOOD[GOOD.index("modules") :], "")),
    "no framework": Mistake("'modules.pre_trainer.framework' is missing", ("    framework: countdown\n", "")),
    "a name of the wrong type": Mistake("'exp_name' is 5", ("down", "5")),
    "no name for a folder": Mistake("'../down' cannot name a run", ("down", "../down")),
    "no trainer": Mistake("no module to pretrain", ("pre_trainer", "something")),
    "an unset variable": Mistake("exp.yaml:6: ${UNSET_OF_MINE} is not set", (STEPS, "steps: ${UNSET_OF_MINE}")),
    "an open variable": Mistake("exp.yaml:6: '${UNSET' is not closed", (STEPS, "steps: ${UNSET")),
    "extends nothing": Mistake(
        "exp.yaml:1: there is no file 'gone.yaml'", ("exp_name", "extends: gone.yaml\nexp_name")
    ),
    "a misspelt extends": Mistake(
        ("exp.yaml:2: unknown key 'extend'", "did you mean 'extends'?"),
        (GOOD, "exp_name: down\nextend: base.yaml\n"),
        files={"base.yaml": GOOD},
    ),
    "extends itself": Mistake("in a circle", ("exp_name", "extends: exp.yaml\nexp_name")),
    "extends no template": Mistake(
        "there is no template for the model 'acme_3B'",
        ("exp_name", "extends: template:countdown/acme_3B/MI300X\nexp_name"),
    ),
    "a mistake in what it extends": Mistake(
        "base.yaml:1: ${UNSET_OF_MINE} is not set",
        ("exp_name", "extends: base.yaml\nexp_name"),
        files={"base.yaml": "workspace: ${UNSET_OF_MINE}\n"},
    ),
    # Frameworks, models, presets
    "an unknown framework": Mistake(
        ("exp.yaml:4: no backend is called 'countdwon'", "'countdown'?"), ("countdown", "countdwon")
    ),
    "an unknown model": Mistake(
        "exp.yaml:5: unknown model 'llama9_900B'", ("    overrides", "    model: llama9_900B\n    overrides")
    ),
    "an unknown model on the command line": Mistake("model=llama9_900B: unknown model", words="model=llama9_900B"),
    "an unknown preset": Mistake(
        "exp.yaml:5: unknown framework preset 'fast'", ("    overrides", "    config: fast\n    overrides")
    ),
    "no file of a model": Mistake(
        "there is no file './gone.yaml'", ("    overrides", "    model: ./gone.yaml\n    overrides")
    ),
    "a mistake in the file of a model": Mistake(
        "m.yaml:1: ${UNSET_OF_MINE} is not set",
        ("    overrides", "    model: ./m.yaml\n    overrides"),
        files={"m.yaml": "layers: ${UNSET_OF_MINE}\n"},
    ),
    # Settings
    "a misspelt setting": Mistake(("exp.yaml:6: countdown has no setting 'stpes'", "'steps'?"), ("steps", "stpes")),
    "a setting of the wrong type": Mistake("'steps' takes a whole number: 'four'", (STEPS, "steps: four")),
    "no value of the setting": Mistake("'loss.kind' cannot be 'stepe'", (LOSS, "{kind: stepe}")),
    "an empty setting": Mistake("'steps' cannot be empty", (STEPS, "steps: null")),
    "a value for a section": Mistake("'loss' is 3", (LOSS, "3")),
    "not a number": Mistake("'loss.start' is nan, which is not a finite number", (LOSS, "{start: .nan}")),
    "an infinite number": Mistake("'loss.start' is -inf, which is not a finite number", (LOSS, "{start: -.inf}")),
    "a number too large": Mistake("'loss.start' is inf, which is not a finite number", words="loss.start=1e999"),
    "an infinite whole number": Mistake("'steps' takes a whole number: inf", words="steps=.inf"),
    "a value with settings below it": Mistake(
        ("exp.yaml:8: 'loss' has a value, and settings below it", "exp.yaml:7"),
        ("loss: {start: 3.5}", "loss: linear\n      loss.start: 3"),
    ),
    "a secret in a setting": Mistake("exp.yaml:6: 'hf_token' holds a secret", (STEPS, "hf_token: abcdefgh")),
    # The command line
    "None for a number": Mistake("'steps' cannot be empty", words="steps=None"),
    "null for a number": Mistake("'steps' cannot be empty", words="--steps null"),
    "null for a name": Mistake("'exp_name' is None", words="exp_name=null"),
    "no setting": Mistake("'steps' is not a setting", words="steps"),
    "a word without value": Mistake(("'--steps' has no value", "true or false"), words="--steps"),
    "a name without value": Mistake("'--exp_name' has no value", words="--exp_name"),
    "a value and settings": Mistake(
        ("'loss' has a value, and settings below it", "loss=1 and loss.start=2"), words="loss=1 loss.start=2"
    ),
    "settings and a value": Mistake(
        ("'loss' has a value, and settings below it", "loss.start=2 and loss=1"), words="loss.start=2 loss=1"
    ),
    "a misspelt override": Mistake("command line: stpes=5", words="stpes=5"),
    "an unset variable in an override": Mistake("${UNSET_OF_MINE} is not set", words="steps=${UNSET_OF_MINE}"),
    "a secret on the command line": Mistake("contains a secret", words="hf_token=abcdefgh"),
    # Options
    "a folder of hooks that is not there": Mistake("--hooks: there is no folder", options="--hooks nowhere"),
    "a patch that is not there": Mistake("--patch: there is no file 'fix.sh'", options="--patch fix.sh"),
    "a patch of no kind": Mistake("it is neither a bash nor a Python file", options="--patch exp.yaml"),
    "an --env of no form": Mistake("--env: '9lives'", options="--env 9lives=1"),
    "an --env that is not set": Mistake("UNSET_OF_MINE is not set, so", options="--env UNSET_OF_MINE"),
    "a profile that is not there": Mistake("nowhere.toml", options="--profile nowhere.toml"),
    "a log in no folder": Mistake("--log-file no/where.log", options="--log-file no/where.log"),
    "a number that is none": Mistake("soon", options="--grace-period soon"),
    # env: and the environment
    "a name of no variable": Mistake(
        "exp.yaml:1: '9LIVES' cannot be set in `env:`", ("exp_name", "env: {9LIVES: 1}\nexp_name")
    ),
    "a variable of Primus": Mistake("'RANK' cannot be set in `env:`", ("exp_name", "env: {RANK: 1}\nexp_name")),
    "a value of no variable": Mistake("'env.X' is [1]", ("exp_name", "env: {X: [1]}\nexp_name")),
    "no GPUs on a node": Mistake("GPUS_PER_NODE is '0'", environ={"GPUS_PER_NODE": "0"}),
    "a node without an address": Mistake("NNODES is 2", environ={"NNODES": "2"}),
    "a rank beyond the nodes": Mistake("NODE_RANK is 1", environ={"NODE_RANK": "1"}),
    "a port beyond all": Mistake("MASTER_PORT is '65536'", environ={"MASTER_PORT": "65536"}),
    "a GPU that nobody knows": Mistake("PRIMUS_GPU_MODEL", environ={"PRIMUS_GPU_MODEL": "MI3000"}),
    # The project's files
    "an unknown key of primus.yaml": Mistake("primus.yaml:1: unknown key 'hoks'", files={"primus.yaml": "hoks: {}\n"}),
    "a patch of primus.yaml that is not there": Mistake(
        "primus.yaml:1: there is no file 'fix.sh'", files={"primus.yaml": "hooks: {patches: [fix.sh]}\n"}
    ),
    "a workspace in a file": Mistake("cannot be written", ("exp_name", "workspace: exp.yaml/out\nexp_name"), code=3),
}


@pytest.fixture
def asker(
    third_party: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Asker:
    """With the backend of another team."""
    monkeypatch.syspath_prepend(third_party)
    return Asker(GOOD, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("kind", MISTAKES)
def test_validate_a_dry_run_and_a_launch_refuse_alike(asker: Asker, kind: str) -> None:
    refused_alike(asker, MISTAKES[kind])


def test_all_mistakes_are_said_at_once_by_file_and_line(asker: Asker) -> None:
    text = """\
exp_nme: down
env: {9LIVES: 1, HOST: "${UNSET_OF_MINE}"}
modules:
  pre_trainer:
    framework: countdown
    model: ./gone.yaml
    overrides:
      stpes: 4
      loss: {start: .nan, kind: stepe}
"""
    said = refused_alike(asker, Mistake("9 errors", (GOOD, text), words="steps=many a=1 a.b=2"))
    errors = [line.removeprefix("primus: error: ") for line in said.splitlines() if line.startswith("primus: error: ")]
    assert [error.split(": ")[0] for error in errors] == [
        *(f"exp.yaml:{line}" for line in (1, 2, 2, 6, 8, 9, 9)),
        *("command line",) * 2,
    ]
    assert "'exp_name' is missing" not in said, "it is misspelt"
    assert "<refused>" not in said
