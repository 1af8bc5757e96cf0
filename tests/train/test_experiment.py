"""The experiment file: every kind of mistake has its line and a way out, and presets merge in one order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.core.test_command import loaded

from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_train import experiment, overrides

GOOD = """\
exp_name: small
modules:
  pre_trainer:
    framework: torchtitan
    model: llama3_8B
    config: pretrain
    overrides:
      training.steps: 5
env:
  NCCL_DEBUG: INFO
  OMP_NUM_THREADS: 4
"""


@pytest.fixture
def presets(tmp_path: Path) -> Path:
    """A backend's folder of presets."""
    folder = tmp_path / "presets"
    for name, text in {
        "models/llama3_8B.yaml": "dim: 4096\nlayers: 32\n",
        "models/llama3.1_70B.yml": "extends: llama3_8B.yaml\nlayers: 80\n",
        "models/tiny.toml": "dim = 64\n",
        "modules/pretrain.yaml": "training: {steps: 1000, seq_len: 8192}\noptimizer: {lr: 3e-4}\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def document(tmp_path: Path, text: str) -> Document:
    """The text as a file, read."""
    (tmp_path / "exp.yaml").write_text(text)
    return experiment.read(str(tmp_path / "exp.yaml"), {})


def refused(tmp_path: Path, text: str) -> ConfigError:
    """The error that this experiment gives."""
    with pytest.raises(ConfigError) as caught:
        experiment.parse(document(tmp_path, text))
    return caught.value


def merged(tmp_path: Path, presets: Path, text: str, *words: str) -> Document:
    """The settings of the trainer in this experiment."""
    doc = document(tmp_path, text)
    experiment.parse(doc)
    return experiment.merged(
        doc,
        "pre_trainer",
        folder=str(presets),
        environ={},
        beside=str(tmp_path),
        command_line=overrides.parse(words, {}),
    )


def module(lines: str, name: str = "pre_trainer") -> str:
    """An experiment whose one module has these lines, from line 5 on."""
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    return f"exp_name: x\nmodules:\n  {name}:\n    framework: torchtitan\n{body}"


def test_a_good_experiment_is_read(tmp_path: Path) -> None:
    parsed = experiment.parse(document(tmp_path, GOOD))
    assert parsed.exp_name == "small"
    assert (parsed.workspace, parsed.on_non_finite) == ("output", "stop")
    assert parsed.modules["pre_trainer"].model == "llama3_8B"
    assert parsed.env == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": 4}


@pytest.mark.parametrize(
    ("old", "new", "line", "what", "fix"),
    [
        ("exp_name:", "exp_nme:", 1, "unknown key 'exp_nme'", "did you mean 'exp_name'?"),
        ("modules:", "module:", 2, "unknown key 'module'", "did you mean 'modules'?"),
        (
            "framework:",
            "framwork:",
            4,
            "unknown key 'modules.pre_trainer.framwork'",
            "did you mean 'framework'?",
        ),
        (
            "overrides:",
            "override:",
            7,
            "unknown key 'modules.pre_trainer.override'",
            "did you mean 'overrides'?",
        ),
        ("env:", "training:", 9, "unknown key 'training'", "settings of the framework belong below `overrides:`"),
        ("env:", "str:", 9, "unknown key 'str'", "settings of the framework belong below `overrides:`"),
        ("small", "2024", 1, "'exp_name' is 2024", "write text; quote it if it looks like a number"),
        ("small", "[a]", 1, "'exp_name' is ['a']", "write text"),
        ("small", "", 1, "'exp_name' is None", "write text"),
        ("torchtitan", "3", 4, "'modules.pre_trainer.framework' is 3", "write text"),
        ("llama3_8B", "8", 5, "'modules.pre_trainer.model' is 8", "write text"),
        ("INFO", "[1]", 10, "'env.NCCL_DEBUG' is [1]", "write text"),
        ("small", "small\non_non_finite: wran", 2, "'on_non_finite' is 'wran'", "did you mean 'warn'?"),
        ("small", "small\non_non_finite: 3", 2, "'on_non_finite' is 3", "write one of: stop, warn, ignore"),
        ("small", "small\non_nonfinite: warn", 2, "unknown key 'on_nonfinite'", "did you mean 'on_non_finite'?"),
    ],
)
def test_a_wrong_key_or_value_is_refused_with_its_line_and_a_way_out(
    tmp_path: Path, old: str, new: str, line: int, what: str, fix: str
) -> None:
    error = refused(tmp_path, GOOD.replace(old, new, 1))
    assert error.where == f"{tmp_path}/exp.yaml:{line}"
    assert error.what.endswith(what)
    assert error.fix.startswith(fix)
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("exp_name: x\nmodules:\n", 2, "'modules' is None"),
        ("exp_name: x\nmodules: 3\n", 2, "'modules' is 3"),
        ("exp_name: x\nmodules:\n  pre_trainer: torchtitan\n", 3, "'modules.pre_trainer' is 'torchtitan'"),
        (module("overrides: 3"), 5, "'modules.pre_trainer.overrides' is 3"),
        (module("overrides:\n"), 5, "'modules.pre_trainer.overrides' is None"),
        (module("data: 3"), 5, "'modules.pre_trainer.data' is 3"),
    ],
)
def test_a_value_where_keys_belong_is_refused_with_its_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    error = refused(tmp_path, text)
    assert error.where == f"{tmp_path}/exp.yaml:{line}"
    assert error.what.endswith(what)
    assert error.fix == "write keys and values below it, indented"


@pytest.mark.parametrize("name", ["exp.yaml", "exp.toml"])
@pytest.mark.parametrize("text", ["", "# to be written\n", "---\n"])
def test_an_empty_file_is_refused_as_empty(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text if name.endswith(".yaml") else text.replace("---", ""))
    with pytest.raises(ConfigError, match="the file is empty") as caught:
        experiment.parse(experiment.read(str(tmp_path / name), {}))
    assert caught.value.where == str(tmp_path / name)
    assert "primus config new" in caught.value.fix
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", ["exp_name", "modules"])
def test_a_missing_key_is_refused_by_name(tmp_path: Path, key: str) -> None:
    text = "\n".join(line for line in ("exp_name: x", "modules: {}") if not line.startswith(key))
    error = refused(tmp_path, text)
    assert error.what == f"{tmp_path}/exp.yaml: '{key}' is missing"
    assert error.fix == f"add `{key}:`"


def test_a_module_without_a_framework_is_refused_at_the_modules_line(tmp_path: Path) -> None:
    error = refused(tmp_path, "exp_name: x\nmodules:\n  pre_trainer: {model: a}\n")
    assert error.where == f"{tmp_path}/exp.yaml:3"
    assert "'modules.pre_trainer.framework' is missing" in error.what


def test_a_key_of_a_base_file_is_refused_with_the_base_files_line(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("\nworkspce: out\n")
    error = refused(tmp_path, f"extends: base.yaml\n{GOOD}")
    assert error.where == f"{tmp_path}/base.yaml:2"
    assert error.fix == "did you mean 'workspace'?"


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("exp_name: x\npre_trainer: {framework: f}\n", "it is a module: write it below `modules:`"),
        (f"{GOOD}model: llama3.1_8B\n", "it belongs to a module: write it below `modules:` and `pre_trainer:`"),
        (f"{GOOD}run_name: b\n", "did you mean 'exp_name'?"),
        (module("backend: f"), "did you mean 'framework'?"),
        (
            module("data: a.jsonl"),
            "data: {input: a.jsonl, tokenizer_model: FILE}, or train_data_path: of prepared data",
        ),
    ],
)
def test_a_key_of_others_or_in_another_place_is_answered_with_its_own(tmp_path: Path, text: str, fix: str) -> None:
    doc = document(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        experiment.parse(doc)
    assert fix in [error.fix for error in caught.value.each()]


@pytest.mark.parametrize(
    ("name", "stage", "found"),
    [("pre_trainer", "pretrain", "pre_trainer"), ("my_trainer", "pretrain", "my_trainer")],
)
def test_a_stage_runs_its_own_module_or_the_only_trainer(tmp_path: Path, name: str, stage: str, found: str) -> None:
    doc = document(tmp_path, module("", name))
    assert experiment.select(experiment.parse(doc), stage, doc) == found


@pytest.mark.parametrize("name", ["sft_trainer", "post_trainer"])
def test_a_module_of_another_stage_is_not_pretrained(tmp_path: Path, name: str) -> None:
    doc = document(tmp_path, module("", name))
    with pytest.raises(ConfigError, match="no module to pretrain") as caught:
        experiment.select(experiment.parse(doc), "pretrain", doc)
    assert caught.value.fix == "Primus has no fine-tuning yet; to pretrain, call it 'pre_trainer'"


def test_two_trainers_of_which_none_is_the_stages_are_refused(tmp_path: Path) -> None:
    text = "exp_name: x\nmodules:\n  a_trainer: {framework: f}\n  b_trainer: {framework: f}\n"
    doc = document(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        experiment.select(experiment.parse(doc), "pretrain", doc)
    assert caught.value.where == f"{tmp_path}/exp.yaml:2"
    assert caught.value.why == "modules: a_trainer, b_trainer"
    assert caught.value.fix == "to pretrain, call it 'pre_trainer'"
    doc = document(tmp_path, module("", "pretrain"))
    with pytest.raises(ConfigError) as caught:
        experiment.select(experiment.parse(doc), "pretrain", doc)
    assert caught.value.why == "modules: pretrain; a module that trains has `trainer` in its name"
    assert caught.value.fix == "to pretrain, call it 'pre_trainer'"


def test_model_framework_preset_overrides_and_command_line_merge_in_this_order(tmp_path: Path, presets: Path) -> None:
    text = module(
        "model: llama3_8B\nconfig: pretrain\ndata: {path: /d}\noverrides:\n  training: {seq_len: 512}\n"
        "  model: {layers: 2}"
    )
    result = merged(tmp_path, presets, text, "optimizer.lr=1", "model.dim=8")
    assert result.data == {
        "model": {"dim": 8, "layers": 2},
        "data": {"path": "/d"},
        "training": {"steps": 1000, "seq_len": 512},
        "optimizer": {"lr": 1},
    }
    assert result.where(("training", "steps")).endswith("presets/modules/pretrain.yaml:1")
    assert result.where(("training", "seq_len")).endswith("exp.yaml:9")
    assert result.where(("optimizer", "lr")) == "command line: optimizer.lr=1"
    assert result.where(("data", "path")).endswith("exp.yaml:7")


@pytest.mark.parametrize("empty", ["optimizer:", "optimizer: {}", "optimizer: null"])
def test_a_section_left_empty_keeps_what_it_inherits(tmp_path: Path, presets: Path, empty: str) -> None:
    (tmp_path / "base.yaml").write_text(module("config: pretrain\noverrides: {optimizer.kind: adam, note: a, env: {}}"))
    text = f"extends: base.yaml\nmodules: {{pre_trainer: {{overrides: {{note: null, {empty}}}}}}}\n"
    result = merged(tmp_path, presets, text.replace("optimizer:}", "optimizer: }"))
    assert result.data["optimizer"] == {"lr": 3e-4, "kind": "adam"}
    assert result.data["note"] is None


DUPLICATES = ["training.steps: 3\ntraining:\n  steps: 50", "training:\n  steps: 3\ntraining.steps: 50"]


@pytest.mark.parametrize("extends", ["", "extends: base.yaml\n"])
@pytest.mark.parametrize("lines", DUPLICATES)
@pytest.mark.parametrize("part", ["overrides", "config"])
def test_a_setting_that_is_dotted_and_nested_in_one_file_is_a_duplicate(
    tmp_path: Path, extends: str, lines: str, part: str
) -> None:
    (tmp_path / "base.yaml").write_text(module("overrides: {training.steps: 1}"))
    body = "".join(f"  {line}\n" for line in lines.splitlines())
    text = module(f"{part}:\n{body}") + extends
    with pytest.raises(ConfigError, match=r"duplicate key 'training\.steps'") as caught:
        document(tmp_path, text)
    places = [n for n, line in enumerate(text.splitlines(), 1) if "steps:" in line]
    assert caught.value.where == f"{tmp_path}/exp.yaml:{places[1]}"
    assert caught.value.why == f"it is already set at {tmp_path}/exp.yaml:{places[0]}"


@pytest.mark.parametrize("parent", ["training.steps: 1", "training: {steps: 1}"])
@pytest.mark.parametrize("child", ["training.steps: 2", "training: {steps: 2}"])
def test_the_file_that_extends_wins_however_the_two_write_their_keys(
    tmp_path: Path, presets: Path, parent: str, child: str
) -> None:
    (tmp_path / "oldest.yaml").write_text(module("overrides:\n  training: {steps: 0}"))
    (tmp_path / "base.yaml").write_text("extends: oldest.yaml\n" + module(f"overrides:\n  {parent}"))
    text = "extends: base.yaml\n" + module(f"overrides:\n  {child}")
    assert merged(tmp_path, presets, text).data["training"]["steps"] == 2


@pytest.mark.parametrize("lines", ["training.steps: 7\ntraining: {seq_len: 1}", "training: {steps: 7}"])
def test_the_command_line_wins_however_the_file_writes_its_keys(tmp_path: Path, presets: Path, lines: str) -> None:
    text = module("overrides:\n" + "".join(f"  {line}\n" for line in lines.splitlines()))
    assert merged(tmp_path, presets, text).data["training"]["steps"] == 7
    assert merged(tmp_path, presets, text, "training.steps=9").data["training"]["steps"] == 9


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("llama3_8B", {"dim": 4096, "layers": 32}),
        ("llama3_8B.yaml", {"dim": 4096, "layers": 32}),
        ("llama3.1_70B", {"dim": 4096, "layers": 80}),
        ("tiny", {"dim": 64}),
        ("./own.yaml", {"dim": 3}),
        ("{dim: 5}", {"dim": 5}),
    ],
)
def test_a_model_is_a_preset_a_file_beside_or_written_out(
    tmp_path: Path, presets: Path, name: str, settings: dict[str, Any]
) -> None:
    (tmp_path / "own.yaml").write_text("dim: 3\n")
    assert merged(tmp_path, presets, module(f"model: {name}")).data["model"] == settings


def preset_error(tmp_path: Path, presets: Path, line: str) -> ConfigError:
    """The error of a module with this line; it stands at line 5."""
    with pytest.raises(ConfigError) as caught:
        merged(tmp_path, presets, module(line))
    assert caught.value.where == f"{tmp_path}/exp.yaml:5"
    return caught.value


def test_an_unknown_model_is_refused_with_the_known_ones_and_a_suggestion(tmp_path: Path, presets: Path) -> None:
    error = preset_error(tmp_path, presets, "model: llama3_8b_")
    assert error.what.endswith("unknown model 'llama3_8b_'")
    assert error.why == "known: llama3.1_70B, llama3_8B, tiny"
    assert error.fix == "did you mean 'llama3_8B'?"
    assert "unknown framework preset 'x'" in preset_error(tmp_path, presets, "config: x").what


@pytest.mark.parametrize(
    "name",
    ["../secret", "a/b", "/etc/passwd", "..", ".hidden", "./../exp.yaml", "./a/../../x.yaml", "''", '"tiny\\n"'],
)
def test_a_preset_name_that_leads_out_of_its_folder_is_refused(tmp_path: Path, presets: Path, name: str) -> None:
    error = preset_error(tmp_path, presets, f"model: {name}")
    assert "is not the name of a preset" in error.what
    assert error.fix


def test_a_file_beside_that_is_not_there_is_refused(tmp_path: Path, presets: Path) -> None:
    assert "no file './gone.yaml'" in preset_error(tmp_path, presets, "model: ./gone.yaml").what


def test_reading_an_experiment_and_the_catalogue_searches_no_package_metadata(
    clean_environ: dict[str, str], tmp_path: Path
) -> None:
    code = (
        "from primus_train.models import catalogue; catalogue.load()\n"
        "from primus_train import experiment, task\n"
        "from primus_core.config.document import Document\n"
        "experiment.parse(Document({'exp_name': 'x', 'modules': {'pre_trainer': {'framework': 'megatron'}}}, {}))\n"
        "import primus_train.templates.catalogue"
    )
    found = loaded(code, clean_environ, tmp_path)
    assert "pydantic_core" in found
    assert not {"importlib.metadata", "pydantic", "socket", "tabulate"} & found
