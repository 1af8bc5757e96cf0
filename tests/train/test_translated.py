"""A model of the catalogue is known to experiments by its name, in the words of the backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from primus_core.config import files
from primus_core.config.document import Document
from primus_core.errors import ConfigError, RequestError
from primus_train import experiment
from primus_train.backend import Backend
from primus_train.models.architecture import Model
from primus_train.translated import Translated

EXPERIMENT = """exp_name: x
modules:
  pre_trainer:
    framework: wide
    model: {}
    overrides:
      steps: 3
"""
MINE = """family: mine
models:
  mine_1B:
    {source: [me], num_layers: 2, hidden_size: 8, ffn_hidden_size: 8, num_attention_heads: 2, num_kv_heads: 2,
     vocab_size: 16, max_position_embeddings: 8, rope_theta: 1, norm_eps: 1e-5, tie_embeddings: true}
"""


class Wide:
    """What a backend without experts says to the catalogue."""

    def translate(self, model: Model) -> Mapping[str, Any]:
        if model.facts.moe:
            raise RequestError(f"wide cannot build {model.name}", why="it has no experts", fix="take a dense model")
        return {"width": model.facts.hidden_size}


def merged(tmp_path: Path, model: str, backend: object, *files_of_models: str) -> Document:
    (tmp_path / "exp.yaml").write_text(EXPERIMENT.format(model))
    document = files.read(str(tmp_path / "exp.yaml"), {})
    return experiment.merged(
        document, "pre_trainer", folder=str(tmp_path / "presets"), environ={}, beside=str(tmp_path),
        command_line=Document({}), models=Translated(cast("Backend", backend), files_of_models),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["llama3.1_8B", "llama3.1_8B.yaml"])
def test_a_name_of_the_catalogue_is_the_backends_settings_at_the_catalogues_place(tmp_path: Path, name: str) -> None:
    settings = merged(tmp_path, name, Wide())
    assert settings.data["model"] == {"width": 4096}
    assert "llama3.yaml:" in settings.where(("model", "width"))


def test_a_name_of_the_catalogue_may_end_in_its_precision(tmp_path: Path) -> None:
    assert merged(tmp_path, "llama3.1_8b-BF16.yaml", Wide()).data["model"] == {"width": 4096}
    with pytest.raises(ConfigError, match=r"unknown model 'lama3\.1_8B-fp8'") as caught:
        merged(tmp_path, "lama3.1_8B-fp8", Wide())
    assert caught.value.fix == "did you mean 'llama3.1_8B-fp8'?"


def test_an_alias_and_a_model_of_ones_own_are_known_as_well(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    assert merged(tmp_path, "mine_1B", Wide(), str(tmp_path / "mine.yaml")).data["model"] == {"width": 8}
    with pytest.raises(ConfigError, match="wide cannot build mixtral_8x7B"):
        merged(tmp_path, "mixtral_8x7B_v0.1", Wide())


def test_a_file_in_the_catalogues_words_beside_the_experiment_is_translated(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    settings = merged(tmp_path, "./mine.yaml", Wide())
    assert settings.data["model"] == {"width": 8}
    assert settings.where(("model", "width")).endswith("mine.yaml:3")


@pytest.mark.parametrize(
    ("text", "backend", "said"),
    [
        (MINE, object(), "does not support models of the catalogue"),
        (MINE + MINE.partition("models:\n")[2].replace("mine_1B", "other"), Wide(), "has 2 models"),
        (MINE.replace("num_layers", "num_layer"), Wide(), "unknown key 'num_layer'"),
    ],
)
def test_such_a_file_is_refused_with_a_place(tmp_path: Path, text: str, backend: object, said: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        merged(tmp_path, "./mine.yaml", backend)
    assert ".yaml:" in error.value.where


def test_a_preset_of_that_name_wins(tmp_path: Path) -> None:
    (tmp_path / "presets/models").mkdir(parents=True)
    (tmp_path / "presets/models/llama3.1_8B.yaml").write_text("width: 1\n")
    assert merged(tmp_path, "llama3.1_8B", Wide()).data["model"] == {"width": 1}


def test_what_the_framework_lacks_is_said_where_the_experiment_names_the_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        merged(tmp_path, "deepseek_v3", Wide())
    assert caught.value.where.endswith("exp.yaml:5")
    assert (caught.value.why, caught.value.fix) == ("it has no experts", "take a dense model")


def test_a_misspelt_name_is_refused_with_the_catalogues_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'llama3\.1_8b'") as caught:
        merged(tmp_path, "llama3.1_8b", Wide())
    assert caught.value.why == "known: all of `primus models list`"
    assert "did you mean 'llama3.1_8B'?" in caught.value.fix


def test_a_backend_that_translates_nothing_knows_its_presets_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown model") as caught:
        merged(tmp_path, "llama3.1_8B", object())
    assert caught.value.why == "known: none"
