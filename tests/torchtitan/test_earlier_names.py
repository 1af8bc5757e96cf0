"""TOML files of TorchTitan 0.1 and 0.2 train on: each setting has a new name, has no effect and says so, or is refused."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_torchtitan import own_settings
from primus_torchtitan.backend import TORCHTITAN
from primus_torchtitan.earlier_names import moved, translate
from primus_torchtitan.schema import load, shipped
from primus_train.backend import BackendPlan

Resolve = Callable[..., BackendPlan]

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples" / "torchtitan" / "configs"
SETTINGS: dict[str, Any] = {
    version: json.loads((HERE / "data" / f"settings_{version}.json").read_text()) for version in ("0_2_2", "2025_02")
}
"""Every setting of TorchTitan with its default, read from `config/job_config.py` of 0.2.2, and from `config_manager.py`
of 2025-02-18 (473674acf), when degrees of parallelism stood in `training` and `experimental`.
"""


def nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def leaves(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def known_today() -> set[str]:
    schema = load(list(shipped().values())[-1])
    return {
        *schema.options,
        *(own.name for own in own_settings.SETTINGS),
        *(f"model.{own.name}" for own in own_settings.MODEL),
    }


@pytest.mark.parametrize(("version", "name"), [(version, name) for version in SETTINGS for name in SETTINGS[version]])
def test_every_earlier_setting_has_a_fate(version: str, name: str) -> None:
    default = SETTINGS[version][name]
    if "gone" in moved().get(name, {}) and default not in moved()[name].get("unless", ()):
        with pytest.raises(ConfigError, match=f"'{name}' was removed from TorchTitan"):
            translate(Document(nested(name, default)))
        return
    document, notes = translate(Document(nested(name, default)))
    names = set(leaves(document.data))
    assert names <= known_today(), f"{name} became {names}, which is not a setting of today"
    assert names or any(name in note for note in notes), f"{name} disappeared without a word"


def test_a_renamed_setting_keeps_its_place_in_errors(resolve: Resolve) -> None:
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[profiling]\nprofile_freq = "often"\n'
    with pytest.raises(ConfigError, match=r"settings\.toml:5: 'profiler\.profile_freq' takes a whole number"):
        resolve(text, suffix=".toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[model]\nconverters = ["float8"]', "'model.converters' was removed from TorchTitan"),
        ("[fault_tolerance]\nenable = true", "continues an interrupted run"),
        ("[optimizer]\nearly_step_in_backward = true", "always steps after"),
        ("[validation]\nseq_len = 4096", "takes training's sequence length"),
    ],
)
def test_a_setting_that_is_gone_is_refused_by_name(resolve: Resolve, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(text, suffix=".toml")
    [place] = [getattr(one, "where", "") for one in caught.value.each() if expected in str(one)]
    assert place.endswith("settings.toml:2")


def test_degrees_of_parallelism_and_the_warm_up_keep_their_values_from_where_they_stood_in_2025(
    resolve: Resolve,
) -> None:
    text = """
[model]
name = "llama3"
flavor = "8B"
norm_type = "rmsnorm"
[training]
warmup_steps = 20
tensor_parallel_degree = 4
[experimental]
context_parallel_degree = 2
"""
    settings = resolve(text, suffix=".toml", ranks=8, gpus=8).config["settings"]
    assert settings["lr_scheduler.warmup_steps"] == 20
    assert settings["parallelism.tensor_parallel_degree"] == 4
    assert settings["parallelism.context_parallel_degree"] == 2


def test_one_setting_under_two_names_must_agree(resolve: Resolve) -> None:
    with pytest.raises(ConfigError, match="the same setting with different values"):
        resolve("model: {family: llama3, flavor: 8B}\ntraining: {dataset: c4}\ndataloader: {dataset: c4_test}")


def test_what_is_typed_under_an_earlier_name_wins_over_a_file() -> None:
    data = {"training": {"dataset": "c4_test"}, "dataloader": {"dataset": "c4"}}
    typed: dict[tuple[str | int, ...], str] = {
        ("training", "dataset"): "command line: training.dataset=c4_test",
        ("dataloader", "dataset"): "x.yaml:3",
    }
    for document in (Document(data, typed), Document(dict(reversed(data.items())), typed)):
        assert translate(document)[0].data["dataloader"] == {"dataset": "c4_test"}


def test_settings_without_effect_are_noted(resolve: Resolve) -> None:
    plan = resolve("model: {family: llama3, flavor: 8B}\nfloat8: {filter_fqns: [output]}\ntraining: {dataset: c4}")
    assert any("'float8.filter_fqns' has no effect" in note for note in plan.notes)


def test_a_whole_file_is_adopted_as_an_experiment() -> None:
    document = tomllib.loads((EXAMPLES / "llama3_8b.toml").read_text())
    experiment = TORCHTITAN.adopt(document)
    assert experiment is not None
    assert experiment["exp_name"] == "Llama_3_8B_training"
    assert experiment["workspace"] == "./outputs"
    del document["job"]["dump_folder"], document["job"]["description"]
    assert experiment["modules"]["pre_trainer"]["overrides"] == {key: value for key, value in document.items() if value}


def test_no_note_denies_the_effect_of_a_folder_and_a_description() -> None:
    def denied(settings: dict[str, Any]) -> int:
        return sum("'job." in note for note in translate(Document(settings))[1])

    document = tomllib.loads((EXAMPLES / "llama3_8b.toml").read_text())
    experiment = TORCHTITAN.adopt(document)
    assert experiment is not None
    assert denied(experiment["modules"]["pre_trainer"]["overrides"]) == 0
    assert denied(document) == 2, "among the overrides of an experiment they have none"


def test_an_experiment_of_primus_is_not_adopted() -> None:
    assert TORCHTITAN.adopt({"exp_name": "x", "modules": {}, "model": {}, "training": {}}) is None


def test_the_shipped_toml_example_resolves(resolve: Resolve) -> None:
    plan = resolve((EXAMPLES / "llama3_8b.toml").read_text(), suffix=".toml", ranks=8, gpus=8)
    settings = plan.config["settings"]
    assert plan.config["model"]["flavor"] == "8B"
    assert settings["dataloader.dataset"] == "c4"
    assert settings["profiler.enable_profiling"] is True


def test_the_table_leads_to_settings_that_exist() -> None:
    targets = {row["to"] for name, row in moved().items() if "to" in row and not row["to"].endswith(".*")}
    assert targets <= known_today()


def test_what_selective_checkpointing_chose_by_layer_is_a_note(resolve: Resolve) -> None:
    chosen = '[model]\nname = "llama3"\nflavor = "8B"\n[activation_checkpoint]\nselective_ac_option = "{}"\n'
    [note] = [note for note in resolve(chosen.format("2"), suffix=".toml").notes if "selective_ac_option" in note]
    assert "chooses by operation" in note
    assert not [note for note in resolve(chosen.format("op"), suffix=".toml").notes if "selective" in note]
