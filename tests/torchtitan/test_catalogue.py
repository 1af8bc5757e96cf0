"""What TorchTitan builds for a model of the catalogue is that model, and those that it cannot build are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import ROOT
from tests.planning import Resolve
from tests.torchtitan.conftest import Program

from primus_core.errors import RequestError
from primus_core.testing import document_of
from primus_machine.packages import version_of
from primus_torchtitan.architecture import architecture
from primus_torchtitan.backend import TORCHTITAN
from primus_torchtitan.model import resolve_model
from primus_torchtitan.schema import load, shipped
from primus_torchtitan.translation import FLAVORS, lacks, translate
from primus_train.models import catalogue
from primus_train.models.architecture import Architecture, Model
from primus_train.models.arithmetic import flops_per_token, parameters
from primus_train.testing import resolve as resolve_on

MODELS = catalogue.load()
BUILT = {name: model for name, model in MODELS.items() if not lacks(model)}
SCHEMA = load(list(shipped().values())[-1])
FAMILIES = SCHEMA.families

# The bias that balances experts is a buffer there; checkpoints and the catalogue have it among the weights.
BUILD = """
import json, sys, torch
from primus_torchtitan.patches import apply_all
apply_all()
from primus_torchtitan.model_sizes import model_spec
found = {}
for name, model in json.loads(sys.argv[1]).items():
    config = model_spec(model).model
    with torch.device("meta"):
        built = config.build()
    biases = [b for key, b in built.named_buffers() if key.endswith("expert_bias_E")]
    rope = config.first_attention.rope
    found[name] = {
        "parameters": sum(p.numel() for p in set(built.parameters())), "biases": sum(b.numel() for b in biases),
        "theta": rope.theta, "factor": {"none": 1.0, "llama": rope.scaling_factor, "yarn": rope.rope_factor}[rope.scaling],
        "truncate": rope.truncate, "norm_eps": config.norm.eps,
    }
print(json.dumps(found))
"""
SIZES = {
    "dim": "hidden_size", "n_layers": "num_layers", "n_heads": "num_attention_heads", "n_kv_heads": "num_kv_heads",
    "vocab_size": "vocab_size", "ffn_hidden_dim": "ffn_hidden_size", "weight_tying": "tie_embeddings",
}  # fmt: skip
DEPARTURES = {
    ("qwen3_235B_A22B", "theta"): 5e6,
    **{(name, "norm_eps"): 1e-5 for name in ("deepseek_v2_lite", "deepseek_v2", "deepseek_v3")},
}
"""What the page says of TorchTitan's flavors."""


def section(model: Model) -> dict[str, Any]:
    return translate(model, FAMILIES)


def table(rows: Mapping[str, str], *head: str) -> str:
    lines = [f"| {name} | {text} |" for name, text in rows.items()]
    return "\n".join([f"| {' | '.join(head)} |", "|---|---|", *lines])


def test_the_page_names_exactly_the_models_that_are_refused() -> None:
    refused: dict[str, list[str]] = {}
    for model in MODELS.values():
        if missing := lacks(model):
            refused.setdefault("; ".join(missing), []).append(model.name)
    rows = {", ".join(names): missing for missing, names in refused.items()}
    assert (
        table(rows, "model", "what it has, and TorchTitan's layers lack") in (ROOT / "docs/torchtitan.md").read_text()
    )


def test_the_page_names_the_flavors_that_depart_from_the_catalogue() -> None:
    rows = {name: flavor.differs for name, flavor in FLAVORS.items() if flavor.differs}
    assert table(rows, "model", "in TorchTitan's flavor") in (ROOT / "docs/torchtitan.md").read_text()


def test_a_refusal_names_the_model_and_what_is_lacking() -> None:
    with pytest.raises(RequestError, match=r"TorchTitan cannot build qwen2\.5_14B") as caught:
        section(MODELS["qwen2.5_14B"])
    assert caught.value.why == "the model has biases"


def test_a_flavor_is_taken_where_it_is_the_model_and_sizes_where_none_is() -> None:
    assert section(MODELS["llama3.1_8B"])["flavor"] == "8B"
    assert "flavor" not in section(MODELS["llama3_8B"]), "its rotary embedding is not stretched"
    assert section(MODELS["llama3.2_1B"])["rope_scaling_factor"] == 32, "the flavor 1B has 8"


@pytest.mark.parametrize("name", FLAVORS)
def test_the_sizes_of_a_flavor_with_experts_are_the_catalogues_facts(name: str) -> None:
    sizes = FAMILIES[FLAVORS[name].family][FLAVORS[name].flavor]
    facts = MODELS[name].facts
    assert all(sizes[theirs] in (getattr(facts, ours), None) for theirs, ours in SIZES.items())


@pytest.mark.parametrize("model", BUILT.values(), ids=BUILT)
def test_there_and_back_a_model_has_the_same_parameters_and_flops(resolve: Resolve, model: Model) -> None:
    plan = resolve(
        json.dumps({"model": section(model), "dataloader": {"dataset": "c4"}, "training": {"seq_len": 4096}})
    )
    without_mtp = replace(model.facts, mtp_layers=0)
    assert plan.config["flops_per_token"] == sum(flops_per_token(without_mtp, 4096).values())
    found = architecture(resolve_model(document_of(section(model)), SCHEMA, None))
    assert isinstance(found, Architecture)
    assert parameters(found) == parameters(without_mtp)


def test_fewer_layers_are_less_work_and_a_gpu_has_a_peak() -> None:
    small = replace(MODELS["llama3.1_8B"].facts, num_layers=4)
    settings = {"model": {**section(MODELS["llama3.1_8B"]), "n_layers": 4}, "dataloader": {"dataset": "c4"}}
    plan = resolve_on(TORCHTITAN, settings, gpus=8)
    length = SCHEMA.options["training.seq_len"].default
    assert plan.config["flops_per_token"] == sum(flops_per_token(small, length).values())
    assert plan.config["peak_tflops"] == 1307, "of an MI300X in bfloat16, TorchTitan's default on a GPU"


def test_a_model_without_facts_is_counted_by_torchtitan_and_said(resolve: Resolve) -> None:
    plan = resolve("model: {family: kimi_k2_7, flavor: Kimi-K2.5}\ndataloader: {dataset: c4}")
    assert plan.config["flops_per_token"] is None
    assert "FLOPs are counted by TorchTitan: the catalogue does not have kimi_k2_7 Kimi-K2.5" in plan.notes


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.skipif(not version_of("torchtitan"), reason="torchtitan is not installed")
def test_torchtitan_builds_every_model_as_the_catalogue_has_it(resolve: Resolve, program: Program) -> None:
    """Parameters to the unit, rotary embedding and norms; on a device without memory."""
    rest = {"dataloader": {"dataset": "c4"}}
    asked = {name: resolve(json.dumps({"model": section(m), **rest})).config["model"] for name, m in BUILT.items()}
    ended = program(BUILD, json.dumps(asked))
    assert ended.code == 0, ended.err
    built = json.loads(ended.out.splitlines()[-1])
    assert {name: _of(name, found) for name, found in built.items()} == {name: _facts(m) for name, m in BUILT.items()}


def _of(name: str, found: dict[str, Any]) -> dict[str, Any]:
    moe = MODELS[name].facts.moe
    biases = found.pop("biases")
    return {**found, "parameters": found["parameters"] + (biases if moe and moe.correction_bias else 0)}


def _facts(model: Model) -> dict[str, Any]:
    facts = model.facts
    wanted = {
        "parameters": parameters(facts).total, "theta": facts.rope_theta, "norm_eps": facts.norm_eps,
        "factor": facts.rope_scaling.factor if facts.rope_scaling else 1.0,
        "truncate": facts.rope_scaling.truncate if facts.rope_scaling else True,
    }  # fmt: skip
    return wanted | {key: value for (name, key), value in DEPARTURES.items() if name == model.name}
