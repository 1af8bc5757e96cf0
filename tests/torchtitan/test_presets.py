"""AMD's presets for TorchTitan mean what AMD's own merge makes of them, under the names of today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.amd_merge import merged, released, write_checkout
from tests.planning import Resolve

from primus_core.config import files
from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_torchtitan.backend import TORCHTITAN
from primus_torchtitan.generate_presets import reduced
from primus_train import experiment

FILES = {
    "modules/pre_trainer.yaml": """
        training: {mock_data: true, dataset: c4, steps: 10000, local_batch_size: 8, seq_len: 2048}
        profiling: {profile_freq: 10, enable_profiling: false}
        activation_checkpoint: {mode: none, selective_ac_option: "2"}
        compile: {enable: true}
        primus_turbo: {enable_primus_turbo: true, use_turbo_float8_linear: true, use_moe_fp8: true}
        sink_level: null
        """,
    "models/small.yaml": "job: {dump_folder: x}\nmodel: {name: llama3, flavor: 8b, converters: [primus_turbo]}\n",
    "models/small-fp8.yaml": "model: {name: llama3, flavor: 8B, converters: [primus_turbo, quantize.linear.float8]}\n",
}
OVERRIDES = "{training: {steps: 3, dataset: c4_test}, profiling: {profile_freq: 5}, optimizer: {lr: 2.0e-4}}"


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    """`settings(model, overrides)`: a module with AMD's preset, merged with the presets of a small checkout."""
    checkout = write_checkout(tmp_path / "checkout", "torchtitan", FILES)
    folder = released(tmp_path / "presets", checkout, "torchtitan", reduced)

    def merge(model: str = "small.yaml", overrides: str = OVERRIDES) -> Document:
        path = tmp_path / "exp.yaml"
        module = f"{{framework: torchtitan, config: pre_trainer.yaml, model: {model}, overrides: {overrides}}}"
        path.write_text(f"exp_name: x\nmodules: {{pre_trainer: {module}}}\n")
        document = files.read(str(path), {})
        return experiment.merged(
            document, "pre_trainer", folder=folder, environ={}, beside=str(tmp_path), command_line=Document({})
        )

    return merge


def test_the_preset_gives_what_the_experiment_does_not(settings: Any) -> None:
    from primus_torchtitan import earlier_names

    document, notes = earlier_names.translate(settings())
    assert notes == ()
    assert document.data["training"] == {"mock_data": True, "steps": 3}, "what TorchTitan does anyway is left out"
    assert document.data["profiler"] == {"profile_freq": 5}
    assert document.data["dataloader"] == {"dataset": "c4_test"}, "the experiment's, under whichever name"
    assert document.data["compile"] == {"enable": True}


def test_what_is_kept_and_what_is_the_default_together_are_amds_merge(settings: Any, tmp_path: Path) -> None:
    from primus_core.config.document import at
    from primus_torchtitan import earlier_names
    from primus_torchtitan.schema import load, shipped

    theirs = merged(tmp_path / "checkout", "torchtitan", "pre_trainer.yaml", "small.yaml", {"training": {"steps": 3}})
    document, _ = earlier_names.translate(settings(overrides="{training: {steps: 3}}"))
    options = load(list(shipped().values())[-1]).options
    compared = 0
    for section in ("training", "profiling", "compile"):
        for name, value in theirs[section].items():
            for now in earlier_names.names_now(f"{section}.{name}"):
                ours = at(document.data, tuple(now.split(".")))
                assert (options[now].default if ours is None else ours) == value, now
                compared += 1
    assert compared == 8


def test_a_model_file_with_fp8_adds_the_converter(settings: Any) -> None:
    from primus_torchtitan import earlier_names

    plain, fp8 = (earlier_names.translate(settings(model))[0].data for model in ("small.yaml", "SMALL-FP8.yaml"))
    assert plain["converters"] == ["primus_turbo"]
    assert fp8["converters"] == ["primus_turbo", "quantize.linear.float8"]
    assert plain["model"]["flavor"] == "8b"


TURBO = (
    "model: {family: llama3, flavor: 8b}\nprimus_turbo: {enable_primus_turbo: true, use_turbo_float8_linear: true}\n"
)


def test_fp8_is_planned_only_where_a_converter_asks_for_it(resolve: Resolve) -> None:
    assert resolve(TURBO, ranks=2, gpus=2).config["fp8"] == []
    found = resolve(TURBO + "converters: [quantize.linear.float8]\n", ranks=2, gpus=2)
    assert found.config["fp8"] == ["linear"]
    assert ("module", "primus_turbo") in [(need.kind, need.name) for need in found.requires]
    experts = "primus_turbo: {enable_primus_turbo: true, use_turbo_grouped_mm: true, use_moe_fp8: true}\n"
    assert resolve("model: {family: deepseek_v3, flavor: 16B}\n" + experts).config["fp8"] == ["experts"]
    with pytest.raises(ConfigError, match=r"needs primus_turbo\.enable_primus_turbo"):
        resolve("model: {family: llama3, flavor: 8B}\nconverters: [quantize.linear.float8]\n")


def test_mock_data_needs_neither_data_nor_tokenizer(resolve: Resolve) -> None:
    plan = resolve("model: {family: llama3, flavor: 8B}\ntraining: {mock_data: true}\n")
    assert plan.config["mock"] is True
    assert not [need for need in plan.requires if need.kind == "file"]
    with pytest.raises(ConfigError, match=r"'training\.mock_data' and the section `data` both set the training data"):
        resolve("model: {family: llama3, flavor: 8B}\ntraining: {mock_data: true}\ndata: {text: python-stdlib}\n")


def test_the_shipped_presets_name_models_that_torchtitan_has_or_says_it_has_not(resolve: Resolve) -> None:
    import json

    newest = max((Path(TORCHTITAN.presets()) / "released").glob("*.json"))
    for name, model in json.loads(newest.read_text())["models"].items():
        text = "model: " + json.dumps({k: v for k, v in model.items() if k != "converters"})
        if name.startswith("llama4"):
            with pytest.raises(ConfigError, match=r"TorchTitan [0-9.]+ has no model family 'llama4'"):
                resolve(text)
        else:
            assert resolve(text).config["model"]["flavor"], name
