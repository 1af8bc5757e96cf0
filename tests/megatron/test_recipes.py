"""Every template for Megatron plans on the machine that it is for, and Megatron takes what it becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests import templates
from tests.conftest import ROOT
from tests.megatron.conftest import Python

from primus_core.cli.main import main
from primus_megatron.translation import lacks
from primus_train.models import catalogue
from primus_train.models.arithmetic import parameters
from primus_train.templates.recipe import Template

FAMILIES = ("llama2", "llama3", "llama4", "qwen2.5", "qwen3", "deepseek", "mixtral", "gpt_oss")
FOLDER = ROOT / "examples/megatron/configs/MI300X"
EXAMPLES = sorted(path for path in FOLDER.iterdir() if "extends: template:" in path.read_text(encoding="utf-8"))

# What Megatron checks itself, for as many ranks as there would be. It asks the GPU for its generation.
CHECK = """
import io, json, os, sys, torch
from contextlib import redirect_stdout
from types import SimpleNamespace
torch.cuda.get_device_properties = lambda *_: SimpleNamespace(major=9, minor=4)
torch.cuda.get_device_capability = lambda *_: (9, 4)
plans, sys.argv = json.load(open(sys.argv[1])), sys.argv[:1]
from megatron.training.arguments import parse_args, validate_args
for name, settings, ranks, queues in plans:
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(ranks), "CUDA_DEVICE_MAX_CONNECTIONS": queues}
    try:
        with redirect_stdout(io.StringIO()):
            validate_args(parse_args(lambda parser: parser.set_defaults(**settings) or parser))
    except (AssertionError, ValueError) as error:
        print(name, repr(error))
"""


@pytest.fixture(autouse=True)
def no_other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in templates.HIDING:
        monkeypatch.delenv(name, raising=False)


def test_every_model_of_the_known_families_that_megatron_builds_has_one_for_each_gpu() -> None:
    models = [m.name for m in catalogue.load().values() if m.family in FAMILIES and not lacks(m.facts)]
    found = {(t.model, t.gpu) for t in templates.of("megatron")}
    assert found == {(m, gpu) for m in models for gpu in templates.GPUS}


@pytest.mark.parametrize("template", templates.of("megatron"), ids=lambda template: template.name)
def test_its_machine_can_hold_a_model(template: Template) -> None:
    """Weights and gradients take 6 bytes each, the optimizer 12 more, cut into as many pieces as there are copies."""
    settings, counts = template.settings.data, parameters(catalogue.load()[template.model].facts)
    ranks, experts = 8 * template.nodes, counts.parts.get("experts", 0)
    pipeline, expert = (settings.get(f"{name}_model_parallel_size", 1) for name in ("pipeline", "expert"))
    model = settings.get("tensor_model_parallel_size", 1) * pipeline
    rest = counts.total + counts.mtp - experts
    size = rest / model * (6 + 12 * model / ranks) + experts / pipeline / expert * (6 + 12 * pipeline * expert / ranks)
    assert templates.fits(template, 18 * counts.total / ranks if settings.get("use_torch_fsdp2") else size)


@pytest.mark.full
@pytest.mark.parametrize("gpu", templates.GPUS)
def test_a_template_plans_on_its_machine_and_megatron_takes_it(
    gpu: str, python: Python, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans, tree = [], templates.machine(gpu, tmp_path)
    for template in (t for t in templates.of("megatron") if t.gpu == gpu and t.is_usual):
        plan = templates.planned(template, tree, capsys)
        assert plan["config"]["model"]["num_layers"] == catalogue.load()[template.model].facts.num_layers
        queues = next(v["value"] for v in plan["environment"] if v["name"] == "CUDA_DEVICE_MAX_CONNECTIONS")
        plans.append((template.name, plan["config"]["settings"], 8 * template.nodes, queues))
    (tmp_path / "plans.json").write_text(json.dumps(plans))
    done = python(CHECK, str(tmp_path / "plans.json"))
    assert (done.code, done.out) == (0, ""), done.err[-3000:]


@pytest.mark.full
def test_a_template_in_another_precision_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    others = [template for template in templates.of("megatron") if not template.is_usual]
    assert {template.precision for template in others} == {"FP8"}
    for template in others:
        assert main(["config", "validate", template.name]) == 0, template.name
        assert template.settings.data["fp8"]
    said = capsys.readouterr().out.splitlines()
    assert len([line for line in said if " is valid: " in line]) == len(others)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_on_the_machines_that_it_names(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "validate", str(path)]) == 0
    assert "MI300X each" in capsys.readouterr().out
