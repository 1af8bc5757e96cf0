"""Every template for TorchTitan plans on the machine that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import templates

from primus_core.cli.main import main
from primus_torchtitan.translation import lacks
from primus_train.models import catalogue
from primus_train.models.arithmetic import parameters
from primus_train.templates.recipe import Template


@pytest.mark.parametrize("template", templates.of("torchtitan"), ids=lambda template: template.name)
def test_a_template_plans_on_its_machine(
    template: Template, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in templates.HIDING:
        monkeypatch.delenv(name, raising=False)
    plan = templates.planned(template, templates.machine(template.gpu, tmp_path), capsys)
    assert plan["config"]["data_parallel"] == 8 * template.nodes


@pytest.mark.parametrize("template", templates.of("torchtitan"), ids=lambda template: template.name)
def test_its_machine_can_hold_a_model(template: Template) -> None:
    """Weights, gradients and both moments take 16 bytes for a parameter, and are cut into as many pieces as ranks."""
    counts = parameters(catalogue.load()[template.model].facts)
    assert templates.fits(template, 16 * counts.total / (8 * template.nodes))


def test_every_llama_qwen3_deepseek_and_gpt_oss_that_torchtitan_builds_has_one_for_each_gpu() -> None:
    families = ("llama2", "llama3", "llama4", "qwen3", "deepseek", "gpt_oss")
    models = [m.name for m in catalogue.load().values() if m.family in families and not lacks(m)]
    assert {(t.model, t.gpu) for t in templates.of("torchtitan")} == {
        (m, gpu) for m in models for gpu in templates.GPUS
    }


def test_a_model_that_torchtitan_cannot_build_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "new", "llama4_17Bx16E", "--backend", "torchtitan", "--gpu", "MI300X"]) == 2
    said = capsys.readouterr().err
    assert "no template for the model 'llama4_17Bx16E' with torchtitan" in said
    assert "TorchTitan cannot build llama4_scout_17B16E" in said
    assert "another backend" in said
