"""An experiment that is not there, or was not named: the answer has the command that was probably meant."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.conftest import Run

EXPERIMENT = "exp_name: down\nmodules: {pre_trainer: {framework: countdown, overrides: {steps: 1}}}\n"


@pytest.fixture
def experiments(tmp_path: Path) -> Path:
    """A folder with an experiment, and files that are none."""
    folder = tmp_path / "examples"
    folder.mkdir()
    (folder / "countdown.yaml").write_text(EXPERIMENT)
    (folder / "cluster.yaml").write_text("nodes: 4\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden/a.yaml").write_text(EXPERIMENT)
    return tmp_path


def meant(stderr: str) -> list[str]:
    """The commands that an error suggests."""
    lines = (line.strip().removeprefix("fix: ").partition(": ") for line in stderr.splitlines())
    return [rest for start, _, rest in lines if start in ("did you mean", "or")]


@pytest.mark.parametrize("words", [("--config", "exampels/countdown.yaml"), ("--config=examples/countdwn.yml",)])
@pytest.mark.full
def test_a_misspelt_experiment_is_answered_with_the_whole_command_which_works(
    primus: Run, experiments: Path, third_party: str, words: tuple[str, ...]
) -> None:
    env = {"PYTHONPATH": third_party}
    typed = ("direct", "--single", "--env", "A=b c", "--", "train", "pretrain", *words, "steps=2")
    refused = primus(*typed, env=env)
    assert refused.returncode == 2
    assert "there is no file" in refused.stderr
    [command] = meant(refused.stderr)
    assert shlex.split(command) == ["primus", "direct", "--single", "--env", "A=b c", "--", "train", "pretrain",
                                    "--config", "examples/countdown.yaml", "steps=2"]  # fmt: skip
    assert primus(*shlex.split(command)[1:], env=env).returncode == 0


@pytest.mark.full
def test_an_experiment_in_another_folder_is_found_by_its_name_and_a_folder_is_called_one(
    primus: Run, experiments: Path, third_party: str
) -> None:
    env = {"PYTHONPATH": third_party}
    refused = primus("direct", "--", "train", "pretrain", "--config", "countdown.yaml", env=env)
    assert meant(refused.stderr)[0] == "primus direct -- train pretrain --config examples/countdown.yaml"
    refused = primus("direct", "--", "train", "pretrain", "--config", "examples", env=env)
    assert "examples: it is a folder\n  fix: name a file in it" in refused.stderr


def test_an_experiment_in_the_place_of_a_system_config_is_one_error(primus: Run, experiments: Path) -> None:
    refused = primus("--config", "examples/countdown.yaml", "direct", "--", "train", "pretrain")
    assert refused.returncode == 2
    assert refused.stderr.count("error") == 1
    assert "fix: primus direct -- train pretrain --config examples/countdown.yaml" in refused.stderr


@pytest.mark.full
def test_a_forgotten_option_is_answered_with_the_experiment_that_is_there(
    primus: Run, experiments: Path, third_party: str
) -> None:
    env = {"PYTHONPATH": third_party}
    whole = "primus direct -- train pretrain --config examples/countdown.yaml"
    path = "examples/countdown.yaml"
    for words in ((), (path,), ("--exp", path), (f"--exp={path}",)):
        refused = primus("direct", "--", "train", "pretrain", *words, env=env)
        assert refused.returncode == 2
        assert "--config is missing" in refused.stderr
        assert meant(refused.stderr)[0] == whole
        assert "primus config list" in refused.stderr


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        ("pretrain --model acme_2B steps=2", " steps=2"),
        (
            "pretrain acme_2B --seed 3",
            " --seed 3    # then: command line: --seed 3: countdown has no setting 'seed'",
        ),
        ("--model ACME_2b --backend countdown", ""),
        ("acme_2B", ""),
    ],
)
def test_a_model_without_an_experiment_is_answered_with_its_template(
    primus: Run, tmp_path: Path, third_party: str, words: str, rest: str
) -> None:
    refused = primus("direct", "--", "train", *words.split(), env={"PYTHONPATH": third_party})
    whole = "primus direct -- train pretrain --config template:countdown/acme_2B/MI300X"
    assert meant(refused.stderr) == [f"{whole}{rest}"]


@pytest.mark.full
def test_of_several_experiments_none_is_chosen(primus: Run, experiments: Path, third_party: str) -> None:
    for name in "abc":
        (experiments / f"{name}.yaml").write_text(EXPERIMENT)
    refused = primus("direct", "--", "train", "pretrain", "steps=2", env={"PYTHONPATH": third_party})
    assert refused.returncode == 2
    assert not meant(refused.stderr)
    assert "fix: primus direct -- train pretrain --config FILE steps=2\n" in refused.stderr
    assert "FILE is one of 4 experiments here: a.yaml, b.yaml, c.yaml, ...\n" in refused.stderr


@pytest.mark.full
def test_variables_of_the_old_scripts_are_said_in_one_line_and_never_read(
    primus: Run, experiments: Path, third_party: str
) -> None:
    env = {"PYTHONPATH": third_party, "EXP": "examples/countdown.yaml", "BACKEND": "MaxText", "NNODES": "1"}
    refused = primus("direct", "--", "train", "pretrain", env=env)
    [line] = [line for line in refused.stderr.splitlines() if "EXP" in line]
    assert line.startswith("  why: Primus does not read EXP, BACKEND: name the experiment with --config;")
    assert meant(refused.stderr)[0].endswith("--config examples/countdown.yaml")
    planned = primus("direct", "--dry-run", "--", "train", "pretrain", "--config", "examples/countdown.yaml", env=env)
    assert planned.returncode == 0, planned.stderr
    assert "countdown" in planned.stdout


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("examples/countdown/configs/MI355X/acme_2B-BF16-pretrain.yaml", "countdown/acme_2B/MI355X"),
        ("examples/countdown/configs/MI300X/acme_2B-FP8-pretrain.yaml", "countdown/acme_2B/MI300X-FP8"),
        ("acme_2B", "countdown/acme_2B/MI300X"),
        ("acme2b-pretrain.yml", "countdown/acme_2B/MI300X"),
    ],
)
def test_a_path_that_names_a_model_is_answered_with_its_template(
    primus: Run, tmp_path: Path, third_party: str, path: str, template: str
) -> None:
    refused = primus("direct", "--", "train", "pretrain", "--config", path, env={"PYTHONPATH": third_party})
    assert meant(refused.stderr) == [f"primus direct -- train pretrain --config template:{template}"]


def test_nothing_is_suggested_where_nothing_is_near(primus: Run, tmp_path: Path, third_party: str) -> None:
    for words in (("--config", "somewhere/else.yaml"), ()):
        refused = primus("direct", "--", "train", "pretrain", *words, env={"PYTHONPATH": third_party})
        assert refused.returncode == 2
        assert not meant(refused.stderr)
        assert "primus config list" in refused.stderr
