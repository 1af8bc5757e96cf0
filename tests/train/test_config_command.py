"""`primus config`: templates found, written out and extended; experiments shown, checked and compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.conftest import Run
from tests.machine import machines

from primus_machine.gpus.models import load

NAME = "template:countdown/acme_2B/MI300X"
OTHER = "template:countdown/acme_2B/MI355X"
WRITTEN = """\
# acme_2B with countdown, for 2 nodes with 8 MI355X each.
#
#   primus config validate 'my exp.yaml' --gpu MI355X --nodes 2
#   primus slurm srun -N 2 -- train pretrain --config 'my exp.yaml'
#
# From template:countdown/acme_2B/MI355X of acme-primus 2.1.0.
# Derived (neither published nor measured): nobody has one.
exp_name: acme_2B-pretrain

modules:
  pre_trainer:
    framework: countdown
    model: {}

    overrides:
      loss:
        start: 8.0  # derived: where the last one ended
      steps: 10
"""


@pytest.fixture
def acme(third_party: str) -> dict[str, str]:
    """An environment with a backend of another team, and its template."""
    return {"PYTHONPATH": third_party}


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """An experiment that extends that template."""
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"extends: {NAME}\nexp_name: mine\nmodules:\n  pre_trainer:\n    overrides:\n      loss.kind: steep\n"
    )
    return path


# Templates


@pytest.mark.full
@pytest.mark.whole
def test_templates_are_listed_and_words_choose(primus: Run, acme: dict[str, str]) -> None:
    lines = primus("config", "list", "ACME", env=acme).stdout.splitlines()
    assert lines[2].split() == ["acme_2B", "countdown", "acme-primus", "2.1.0", "MI300X,", "MI355X*"]
    assert lines[-1] == "* derived: no published numbers"
    row = json.loads(primus("config", "list", "acme", "mi300x", "--json", env=acme).stdout)[0]
    assert (row["name"], row["nodes"], row["source"]) == (NAME, 1, "https://acme.example/countdown/MI300X")
    assert row["derived"] == {"loss.start": "where the last one ended"}
    none = primus("config", "list", "acme", "H100", env=acme).stdout
    assert none == "no template has 'acme' and 'H100'; templates come with backends: see `primus plugins`\n"


def test_templates_of_a_backend_that_is_not_installed_are_not_just_missing(primus: Run) -> None:
    none = primus("config", "list", "megatron").stdout
    assert none.startswith("no template has 'megatron'; the backend 'megatron' is not installed: ")
    assert "pip install " in none


@pytest.mark.full
def test_new_writes_a_whole_experiment_that_says_where_its_numbers_are_from(
    primus: Run, acme: dict[str, str], tmp_path: Path
) -> None:
    words = ("config", "new", "acme_2B", "--backend", "countdown", "--gpu")
    assert primus(*words, "MI355X", "-o", "my exp.yaml", env=acme).returncode == 0
    assert (tmp_path / "my exp.yaml").read_text() == WRITTEN
    shown = primus(*words, "MI300X", env=acme).stdout
    assert "#   primus direct -- train pretrain --config FILE\n" in shown
    assert "#   primus config validate FILE --gpu MI300X\n" in shown, "nobody knows where it is redirected to"
    assert "#   https://acme.example/countdown/MI300X\n# except settings marked as derived" in shown
    assert primus("config", "diff", "my exp.yaml", OTHER, env=acme).stdout == "no setting differs\n"


@pytest.mark.full
def test_another_precision_is_a_template_of_its_own(primus: Run, acme: dict[str, str]) -> None:
    words = ("config", "new", "acme_2B", "--backend", "countdown", "--gpu", "MI300X", "--precision")
    shown = primus(*words, "fp8", env=acme).stdout
    assert shown.startswith("# acme_2B with countdown in FP8, for 1 node")
    assert "From template:countdown/acme_2B/MI300X-FP8 of" in shown
    assert "\n      steps: 7\n" in shown
    assert "https://acme.example/countdown/MI300X\n" in shown
    refused = primus(*words, "FP4", env=acme)
    assert refused.returncode == 2
    assert "in FP4\n  why: known: FP8\n  fix: did you mean 'FP8'?" in refused.stderr
    in_small = ("config", "new", "ACME_2b", "--backend", "countdown", "--gpu", "mi300x", "--precision", "fp8")
    assert primus(*in_small, env=acme).stdout == shown
    found = json.loads(primus("config", "list", "acme", "fp8", "--json", env=acme).stdout)
    assert [row["name"] for row in found] == [f"{NAME}-FP8"]


def test_new_does_not_overwrite_a_file(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    before = experiment.read_text()
    words = ("config", "new", "acme_2B", "--backend", "countdown", "--gpu", "MI300X", "-o", "mine.yaml")
    refused = primus(*words, env=acme)
    assert (refused.returncode, experiment.read_text()) == (2, before)
    assert "mine.yaml is there already" in refused.stderr


def test_a_model_may_be_spelt_as_for_models_show(primus: Run, acme: dict[str, str]) -> None:
    words = ("--backend", "countdown", "--gpu", "MI300X")
    for name in ("acme-2b", "ACME_2B", "acme-2B"):
        shown = primus("config", "new", name, *words, env=acme).stdout
        assert shown.startswith("# acme_2B with countdown, ")
        assert "#   primus direct -- train pretrain --config FILE\n" in shown, "nobody knows where it is redirected to"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("model", "backend", "gpu", "said"),
    [
        ("acme2B", "countdown", "MI300X", "did you mean 'acme_2B'?"),
        ("acme_2B", "countdwn", "MI300X", "did you mean 'countdown'?"),
        ("acme_2B", "countdown", "MI300", "did you mean 'MI300X'?"),
        ("acme_2B", "maxtext", "MI300X", "packages/primus-maxtext"),
    ],
)
def test_a_template_that_is_not_there_is_refused_with_what_is(
    primus: Run, acme: dict[str, str], model: str, backend: str, gpu: str, said: str
) -> None:
    refused = primus("config", "new", model, "--backend", backend, "--gpu", gpu, env=acme)
    assert (refused.returncode, refused.stdout) == (3 if "packages/" in said else 2, ""), "3: it could be installed"
    assert said in refused.stderr


@pytest.mark.whole
@pytest.mark.full
def test_the_names_of_templates_are_completed(primus: Run, acme: dict[str, str]) -> None:
    assert primus("__complete", "3", "primus", "config", "new", "acme", env=acme).stdout.split() == ["acme_2B"]
    found = primus("__complete", "5", "primus", "config", "new", "acme_2B", "--gpu", "MI35", env=acme)
    assert found.stdout.split() == ["MI355X"]
    assert primus("__complete", "3", "primus", "config", "show", "template:c", env=acme).stdout.split() == [
        NAME,
        f"{NAME}-FP8",
        OTHER,
    ]


# Experiments that extend one


def test_an_experiment_extends_a_template_and_wins_over_it(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    with experiment.open("a") as file:
        file.write("      loss: {start: 5}\n")
    planned = primus("direct", "--dry-run", "--json", "--", "train", "pretrain", "--config", "mine.yaml", env=acme)
    assert json.loads(planned.stdout)["config"] == {"steps": 5, "loss.start": 5.0, "loss.kind": "steep"}


@pytest.mark.full
def test_a_template_trains_as_it_stands(primus: Run, acme: dict[str, str]) -> None:
    done = primus("direct", "--single", "--", "train", "pretrain", "--config", NAME, "steps=2", env=acme)
    assert done.returncode == 0, done.stderr
    assert "iteration 2/2" in done.stdout


def test_a_misspelt_template_is_refused_where_it_is_named(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    experiment.write_text(experiment.read_text().replace("acme_2B", "acme_3B"))
    refused = primus("config", "validate", "mine.yaml", env=acme)
    assert refused.returncode == 2
    assert "mine.yaml:1: there is no template for the model 'acme_3B' with countdown" in refused.stderr
    assert "did you mean 'acme_2B'?" in refused.stderr
    experiment.write_text("extends: template:countdown/acme_2B\n")
    assert "write template:BACKEND/MODEL/GPU" in primus("config", "show", "mine.yaml", env=acme).stderr


@pytest.mark.whole
@pytest.mark.full
def test_where_the_backend_is_missing_the_inside_of_a_container_reads_the_template(
    primus: Run, experiment: Path
) -> None:
    words = ("--dry-run", "--json", "--", "train", "pretrain", "--config", "mine.yaml")
    planned = primus("container", "--image", "IMG", *words)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["place"]["run_id"].startswith("mine_")
    refused = primus("direct", *words)
    assert refused.returncode == 2
    assert "mine.yaml:1: no backend is called 'countdown'" in refused.stderr
    assert primus("config", "show", "mine.yaml").returncode == 2


def test_a_container_gets_no_file_of_a_template(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    words = ("--image", "IMG", "--dry-run", "--json", "--", "train", "pretrain", "--config", "mine.yaml")
    argv = " ".join(json.loads(primus("container", *words, env=acme).stdout)["steps"][0]["argv"])
    assert str(experiment.parent) in argv
    assert "acme_2B.yaml" not in argv


# Shown, checked, compared


def test_show_merges_what_an_experiment_extends(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    shown = yaml.safe_load(primus("config", "show", "mine.yaml", env=acme).stdout)
    assert (shown["exp_name"], shown["modules"]["pre_trainer"]["overrides"]["steps"]) == ("mine", 5)
    assert json.loads(primus("config", "show", "mine.yaml", "--json", env=acme).stdout) == shown


def test_show_writes_paths_absolute_since_its_output_has_no_folder(
    primus: Run, acme: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "exp/sub").mkdir(parents=True)
    data = "data: {text: corpus, train_data_path: [0.7, web, 0.3, books], valid_data_path: ~/web, cache: kept}"
    base = f"exp_name: base\nmodules:\n  pre_trainer:\n    framework: countdown\n    {data}\n"
    (tmp_path / "exp/base.yaml").write_text(base)
    (tmp_path / "exp/sub/child.yaml").write_text("extends: ../base.yaml\nexp_name: child\n")
    shown = yaml.safe_load(primus("config", "show", "exp/sub/child.yaml", env=acme).stdout)
    assert shown["modules"]["pre_trainer"]["data"] == {
        "text": f"{tmp_path}/exp/corpus",
        "train_data_path": [0.7, f"{tmp_path}/exp/web", 0.3, f"{tmp_path}/exp/books"],
        "valid_data_path": "~/web",
        "cache": "kept",  # relative to the current folder, wherever the file is
    }
    typed = yaml.safe_load(primus("config", "show", "exp/base.yaml", "data.text=mine", env=acme).stdout)
    assert typed["modules"]["pre_trainer"]["overrides"]["data"]["text"] == f"{tmp_path}/mine"


def test_resolved_settings_say_where_they_are_from(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    rows = json.loads(primus("config", "show", "mine.yaml", "--resolved", "--json", env=acme).stdout)
    assert rows["exp_name"] == {"value": "mine", "origin": "mine.yaml:2"}
    assert rows["loss.kind"] == {"value": "steep", "origin": "mine.yaml:6"}
    assert rows["steps"] == {"value": 5, "origin": "acme_primus/recipes/acme_2B.yaml:10"}
    assert rows["loss.start"]["origin"] == "acme_primus/recipes/acme_2B.yaml:5"
    text = primus("config", "show", "mine.yaml", "--resolved", env=acme).stdout
    assert "steep                     mine.yaml:6\n" in text


@pytest.mark.full
@pytest.mark.parametrize("output", ["-o my.yaml", "-o=my.yaml", "--output my.yaml"])
def test_a_file_for_the_output_of_show_is_answered_with_a_redirection(
    primus: Run, acme: dict[str, str], experiment: Path, output: str
) -> None:
    before = ("config", "show", "mine.yaml", "--resolved", *output.split(), "loss.start=9")
    refused = primus(*before, env=acme)
    flag = output.split(maxsplit=1)[0].partition("=")[0]
    assert refused.stderr.splitlines() == [
        f"primus: error: unknown option '{flag}'",
        "  fix: redirect its output: primus config show mine.yaml --resolved loss.start=9 > my.yaml",
    ]
    itself = primus("config", "show", "mine.yaml", "-o", "mine.yaml", env=acme)
    assert "> FILE" in itself.stderr, "the shell would empty the experiment first"
    assert "fix: remove it" in primus("config", "validate", "mine.yaml", "-o", "my.yaml", env=acme).stderr
    assert experiment.is_file()


def test_no_secret_is_shown(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    text = experiment.read_text() + "env:\n  WANDB_API_KEY: ${WANDB_API_KEY}\n  LIKE: ${WORD}\n"
    experiment.write_text(text)
    env = {**acme, "WANDB_API_KEY": "0123456789abcdef0123", "WORD": "0123456789abcdef0123"}
    for words in (["show", "mine.yaml"], ["show", "mine.yaml", "--resolved"], ["diff", "mine.yaml", OTHER, "--json"]):
        shown = primus("config", *words, env=env)
        assert shown.returncode == 0, shown.stderr
        assert "0123456789" not in shown.stdout
        assert "WANDB_API_KEY" in shown.stdout


def test_a_secret_written_into_an_experiment_is_not_shown(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    experiment.write_text(experiment.read_text() + "env: {WANDB_API_KEY: sesame}\n")
    shown = primus("config", "show", "mine.yaml", env=acme)
    assert "WANDB_API_KEY" in shown.stdout
    assert "sesame" not in shown.stdout + shown.stderr


@pytest.mark.full
def test_validate_says_what_it_would_be_on_the_templates_machine(
    primus: Run, acme: dict[str, str], experiment: Path
) -> None:
    found = primus("config", "validate", "mine.yaml", env=acme)
    assert (found.returncode, found.stdout) == (
        0,
        "mine.yaml is valid: countdown; 8 ranks (1 node with 8 MI300X each)\n",
    )
    for words, ranks in (
        (["--gpu", "mi355x", "--nodes", "4"], "32 ranks (4 nodes with 8 MI355X each)"),
        (["--gpus-per-node", "2"], "2 ranks (1 node with 2 MI300X each)"),
    ):
        assert ranks in primus("config", "validate", "mine.yaml", *words, env=acme).stdout
    assert "16 ranks (2 nodes with 8 MI355X each)" in primus("config", "validate", OTHER, env=acme).stdout


def test_validate_takes_the_machine_of_a_capture(primus: Run, acme: dict[str, str], tmp_path: Path) -> None:
    machines.write(tmp_path / "node", machines.base(), machines.amd("MI325X", gpus=4))
    found = primus("config", "validate", NAME, "--assume-host", "node", "--nodes", "2", env=acme)
    assert "8 ranks (2 nodes with 4 MI325X each)" in found.stdout


@pytest.mark.full
def test_validate_refuses_what_a_launch_refuses(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    experiment.write_text(experiment.read_text().replace("loss.kind", "loss.knd"))
    refused = primus("config", "validate", "mine.yaml", env=acme)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "mine.yaml:6" in refused.stderr
    assert "did you mean 'loss.kind'?" in refused.stderr
    unknown = primus("config", "validate", NAME, "--gpu", "MI3000", env=acme)
    assert unknown.returncode == 2
    assert all(model.name in unknown.stderr for model in load())
    assert (
        "exclude each other"
        in primus("config", "validate", NAME, "--gpu", "MI300X", "--assume-host", "x", env=acme).stderr
    )


@pytest.mark.full
def test_show_and_validate_take_settings_as_train_does(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    words = ("mine.yaml", "steps=7", "--loss.start", "2.5", "exp_name=other")
    shown = yaml.safe_load(primus("config", "show", *words, env=acme).stdout)
    overrides = shown["modules"]["pre_trainer"]["overrides"]
    assert (shown["exp_name"], overrides["steps"], overrides["loss"]["start"]) == ("other", 7, 2.5)
    rows = json.loads(primus("config", "show", *words, "--resolved", "--json", env=acme).stdout)
    assert rows["steps"] == {"value": 7, "origin": "command line: steps=7"}
    assert primus("config", "validate", *words, "--nodes", "2", env=acme).stdout.startswith("mine.yaml is valid")
    refused = primus("config", "validate", "mine.yaml", "stpes=7", "--gpu", "MI300X", env=acme)
    assert refused.returncode == 2
    assert "command line: stpes=7: countdown has no setting 'stpes'" in refused.stderr


@pytest.mark.parametrize("option", ["--log-file", "--dry-run", "--grace-period=5"])
def test_an_option_of_a_launch_is_refused_in_words_of_this_command(
    primus: Run, acme: dict[str, str], experiment: Path, option: str
) -> None:
    refused = primus("config", "validate", "mine.yaml", option, env=acme)
    assert refused.returncode == 2
    assert f"unknown option '{option.partition('=')[0]}'" in refused.stderr
    assert "segment" not in refused.stderr


@pytest.mark.full
def test_a_secret_among_the_settings_is_refused_and_not_shown(
    primus: Run, acme: dict[str, str], experiment: Path
) -> None:
    with experiment.open("a") as file:
        file.write("      hub_token: 0123456789abcdef\n")
    for command in ("show", "validate"):
        refused = primus("config", command, "mine.yaml", "--resolved", "hf_token=abcdefgh0123", env=acme)
        assert refused.returncode == 2
        assert "abcdefgh0123" not in refused.stderr
    refused = primus("config", "validate", "mine.yaml", env=acme)
    assert "mine.yaml:7: 'hub_token' holds a secret" in refused.stderr
    assert "0123456789abcdef" not in refused.stderr


def test_diff_shows_only_what_differs_with_both_places(primus: Run, acme: dict[str, str], experiment: Path) -> None:
    found = json.loads(primus("config", "diff", "mine.yaml", OTHER, "--json", env=acme).stdout)
    assert list(found) == ["exp_name", "loss.kind", "steps"]
    assert found["steps"] == {
        "first": {"value": 5, "origin": "acme_primus/recipes/acme_2B.yaml:10"},
        "second": {"value": 10, "origin": "acme_primus/recipes/acme_2B.yaml:13"},
    }
    assert found["loss.kind"]["second"] is None
    text = primus("config", "diff", "mine.yaml", OTHER, env=acme).stdout
    assert text.startswith("exp_name\n  mine                      mine.yaml:2\n  acme_2B-pretrain  ")


# What is wrong in a template


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("source:", "sorce:", 1, "did you mean 'source'?"),
        ("steps: 5}", "steps: 5}, node: 2", 6, "did you mean 'nodes'?"),
        ("nodes: 2", "nodes: 0", 7, "'gpus.MI355X.nodes' is 0"),
        ("source: somewhere\n", "", 5, "MI300X: it has no source for its numbers"),
        ("loss.start: why", "loss.strat: why", 4, "did you mean 'loss.start'?"),
        ("gpus:", "gpu:", 5, "did you mean 'gpus'?"),
        ("nodes: 2", "precisions: {FP8: {setings: {}}}", 7, "did you mean 'settings'?"),
    ],
)
def test_a_wrong_template_is_refused_with_file_and_line(
    primus: Run, acme: dict[str, str], tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    text = (
        "source: somewhere\nsettings:\n  loss: {start: 1.0}\nderived: {loss.start: why}\ngpus:\n"
        "  MI300X: {settings: {steps: 5}}\n  MI355X: {nodes: 2, derived: so}\n"
    )
    site = tmp_path / "site"
    (site / "mine/recipes").mkdir(parents=True)
    (site / "mine-1.0.dist-info").mkdir()
    (site / "mine-1.0.dist-info/entry_points.txt").write_text("[primus.recipes]\ncountdown = mine.recipes\n")
    (site / "mine/__init__.py").write_text("")
    (site / "mine/recipes/tiny.yaml").write_text(text.replace(old, new))
    refused = primus("config", "list", env={"PYTHONPATH": f"{acme['PYTHONPATH']}:{site}"})
    assert refused.returncode == 2
    assert f"mine/recipes/tiny.yaml:{line}: " in refused.stderr
    assert said in refused.stderr
