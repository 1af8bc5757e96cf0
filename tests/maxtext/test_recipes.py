"""Every template for MaxText plans on the machine that it is for, and MaxText takes what it becomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests import templates
from tests.conftest import ROOT

from primus_core.cli.main import main
from primus_machine.packages import version_of
from primus_maxtext.translation import lacks
from primus_train.models import catalogue
from primus_train.models.arithmetic import parameters
from primus_train.templates.recipe import Template

FAMILIES = ("llama2", "llama3", "llama4", "qwen3", "mixtral")
ALSO = ("deepseek_v2_lite", "llama4_scout_17B16E", "gemma4_26B", "gemma4_31B")
GEMMA4 = {"gemma4_26B": 26e9, "gemma4_31B": 31e9}
"""Parameters as their names say: the catalogue has no words for these layers, and MaxText builds them by its own names."""
EXAMPLES = sorted((ROOT / "examples/maxtext/configs").glob("*/*.yaml"))

# What MaxText checks itself when it reads its configuration, on as many devices as a node has. Batches are left out.
CHECK = """
import io, json, sys
from contextlib import redirect_stdout
from maxtext.configs import pyconfig
from maxtext.utils.globals import MAXTEXT_CONFIGS_DIR
plans = {}
for settings in json.load(sys.stdin):
    rest = {key: value for key, value in settings.items() if key not in ("per_device_batch_size", "run_name")}
    plans[json.dumps(rest)] = settings
for settings in plans.values():
    settings |= {"jax_cache_dir": "", "skip_jax_distributed_system": True}
    words = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    try:
        with redirect_stdout(io.StringIO()):
            pyconfig.initialize(["check", f"{MAXTEXT_CONFIGS_DIR}/base.yml", *words])
    except Exception as error:
        print("refused:", settings["run_name"], repr(error))
"""


@pytest.fixture(autouse=True)
def no_other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in templates.HIDING:
        monkeypatch.delenv(name, raising=False)


def test_every_model_of_the_known_families_that_maxtext_builds_has_one_for_each_gpu() -> None:
    models = [m.name for m in catalogue.load().values() if m.family in FAMILIES and not lacks(m.facts)]
    found = {(t.model, t.gpu) for t in templates.of("maxtext")}
    assert found == {(m, gpu) for m in (*models, *ALSO) for gpu in templates.GPUS}


@pytest.mark.parametrize("template", templates.of("maxtext"), ids=lambda template: template.name)
def test_its_machine_can_hold_a_model(template: Template) -> None:
    """Weights, gradients and both moments take two bytes each, and are cut over the devices of a node, or of all."""
    settings = template.settings.data
    assert settings["weight_dtype"] == "bfloat16"
    nodes = template.nodes if settings.get("dcn_fsdp_parallelism") == -1 else 1
    count = GEMMA4.get(template.model) or parameters(catalogue.load()[template.model].facts).total
    assert templates.fits(template, 8 * count / (8 * nodes))


@pytest.mark.full
@pytest.mark.skipif(not version_of("maxtext"), reason="maxtext is not installed")
def test_a_template_plans_on_its_machine_and_maxtext_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = []
    for gpu in templates.GPUS:
        tree = templates.machine(gpu, tmp_path)
        for template in (t for t in templates.of("maxtext") if t.gpu == gpu and t.is_usual):
            plan = templates.planned(template, tree, capsys)
            assert plan["config"]["data_parallel"] == 8 * template.nodes
            assert bool(plan["config"]["flops_per_token"]) == (template.model not in GEMMA4)
            plans.append({**plan["config"]["settings"], "run_name": template.name})
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, "-c", CHECK], input=json.dumps(plans), env=environ, capture_output=True,
                          text=True, check=False, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "refused:" not in done.stdout


def test_a_template_in_another_precision_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    others = [template for template in templates.of("maxtext") if not template.is_usual]
    eight_bits = {"MI300X": "nanoo_fp8", "MI355X": "fp8"}
    for template in others:
        assert main(["config", "validate", template.name]) == 0, template.name
        assert template.settings.data["quantization"] == eight_bits[template.gpu]
    assert capsys.readouterr().out.count(" is valid: ") == len(others) > 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_example_is_valid_on_the_machines_that_it_names(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "validate", str(path)]) == 0
    assert f"{path.parent.name} each" in capsys.readouterr().out


def test_data_of_ones_own_take_the_place_of_made_up_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--assume-host", templates.machine("MI300X", tmp_path)]
    words = ["--config", str(EXAMPLES[0]), "data.text=python-stdlib", "data.vocab_size=4096"]
    assert main(["direct", "--dry-run", "--json", *where, "--", "train", "pretrain", *words]) == 0
    settings = json.loads(capsys.readouterr().out)["config"]["settings"]
    assert (settings["dataset_type"], settings["vocab_size"]) == ("grain", 4096)
