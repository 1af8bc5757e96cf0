"""Presets of AMD's Primus as data: which release a module asks for, and what it is given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.amd_merge import merged, released, write_checkout

from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_train import experiment
from primus_train.released import Released, is_released

FILES = {
    "modules/trainer_base.yaml": "lr: 1.0e-3\nbf16: true\nlog: {level: 1, where: here}\n",
    "modules/pre_trainer.yaml": "extends: [trainer_base.yaml]\nlr: 2.0e-5\nlog: {level: 2}\n",
    "modules/notes.yaml": "lr: 7\n",
    "models/base.yaml": "layers: 1_000\nbf16: false\n",
    "models/Tiny_1B.yaml": "extends: [base.yaml]\nwidth: 8\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A backend's presets, with two releases of AMD's."""
    checkout = write_checkout(tmp_path / "checkout", "acme", FILES)
    folder = released(tmp_path / "presets", checkout, "acme", lambda _, preset: preset)
    newer = json.loads((tmp_path / "presets" / "released" / "1-v1.json").read_text())
    newer["modules"]["pre_trainer"]["lr"] = 5
    (tmp_path / "presets" / "released" / "2-v2.json").write_text(json.dumps(newer))
    return folder


def test_a_preset_with_its_suffix_is_amds_and_the_newest(folder: str) -> None:
    found = Released.asked(folder, "pre_trainer.yaml", "exp.yaml:5")
    assert found is not None
    assert found.release == "v2"
    preset = found.read("modules", "pre_trainer.yaml")
    assert preset is not None
    assert preset.data == {"lr": 5, "bf16": True, "log": {"level": 2, "where": "here"}}
    assert preset.where(("log", "level")) == "pre_trainer.yaml of AMD's Primus v2"
    assert is_released(preset.where(("lr",)))


def test_a_release_is_asked_for_by_name(folder: str) -> None:
    found = Released.asked(folder, "pre_trainer.yaml@v1", "")
    assert found is not None
    preset = found.read("modules", "pre_trainer.yaml@v1")
    assert preset is not None
    assert preset.data["lr"] == 2e-5
    with pytest.raises(ConfigError, match=r"'pre_trainer\.yaml' has no release 'v3'") as caught:
        Released.asked(folder, "pre_trainer.yaml@v3", "exp.yaml:5")
    assert caught.value.why == "releases: v2, v1"


@pytest.mark.parametrize("preset", ["pre_trainer", "./pre_trainer.yaml", "notes.yaml", {"lr": 1}, None])
def test_other_presets_are_not_amds(folder: str, preset: object) -> None:
    assert Released.asked(folder, preset, "") is None


@pytest.mark.parametrize("name", ["Tiny_1B.yaml", "tiny_1b.yaml", "TINY_1B"])
def test_a_model_file_is_found_in_upper_and_lower_case(folder: str, name: str) -> None:
    found = Released.asked(folder, "pre_trainer.yaml", "")
    assert found is not None
    model = found.read("models", name)
    assert model is not None
    assert model.data == {"layers": 1000, "width": 8}, "the module wins with what both say"
    assert found.read("models", "huge.yaml") is None


def test_amds_own_merge_lets_the_module_win_over_the_model(tmp_path: Path) -> None:
    checkout = write_checkout(tmp_path, "acme", FILES)
    found = merged(checkout, "acme", "pre_trainer.yaml", "Tiny_1B.yaml", {"log": {"level": 3}})
    log = {"level": 3, "where": "here"}
    assert found == {"layers": 1000, "bf16": True, "width": 8, "lr": 2e-5, "log": log}


@pytest.fixture
def module(tmp_path: Path) -> Callable[..., Document]:
    """`module(model, fp8=...)`: a module with AMD's preset, of which the release has models in FP8 or not."""

    def merge(model: str, *, fp8: bool) -> Document:
        more = {"models/Wide.yaml": "parts: [a]\n", "models/Wide-fp8.yaml": "parts: [a, eight]\n"} if fp8 else {}
        checkout = write_checkout(tmp_path / "checkout", "acme", FILES | more)
        presets = released(tmp_path / "presets", checkout, "acme", lambda _, preset: preset)
        settings = {"framework": "acme", "config": "pre_trainer.yaml", "model": model}
        document = Document({"exp_name": "x", "modules": {"pre_trainer": settings}}, {(): "exp.yaml"})
        return experiment.merged(
            document, "pre_trainer", folder=presets, environ={}, beside=".", command_line=Document({})
        )

    return merge


@pytest.mark.parametrize("end", ["-bf16", "-BF16.yaml", "-fp8", "-FP8.yml"])
def test_a_models_name_may_end_in_its_precision(module: Callable[..., Document], end: str) -> None:
    added = {"parts": ["eight"]} if "8" in end else {}
    assert module(f"tiny_1B{end}", fp8=True).data["model"] == {"layers": 1000, "width": 8, **added}


def test_fp8_adds_to_what_the_plain_model_has(module: Callable[..., Document]) -> None:
    assert module("wide-FP8", fp8=True).data["model"]["parts"] == ["a", "eight"]


def test_fp8_is_refused_where_no_model_is_in_fp8_and_never_dropped(module: Callable[..., Document]) -> None:
    with pytest.raises(ConfigError, match="unknown model 'tiny_1B-FP8'") as caught:
        module("tiny_1B-FP8.yaml", fp8=False)
    assert "no FP8 of their own" in caught.value.why
    assert "below `overrides:`" in caught.value.fix


def test_the_name_of_an_unknown_model_keeps_its_precision(module: Callable[..., Document]) -> None:
    with pytest.raises(ConfigError, match="unknown model 'tinier-fp8'"):
        module("tinier-fp8", fp8=True)
