"""Models of the catalogue in MaxText's words: what MaxText builds has the catalogue's number of parameters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.conftest import ROOT, Run
from tests.maxtext.conftest import EXPERIMENT

from primus_core.config.document import Document
from primus_core.errors import RequestError
from primus_machine.packages import version_of
from primus_maxtext.backend import MAXTEXT
from primus_maxtext.schema import Schema, load, shipped
from primus_maxtext.translation import lacks, translate
from primus_train.kit import options
from primus_train.models import catalogue
from primus_train.models.arithmetic import parameters
from primus_train.testing import resolve

MODELS = catalogue.load()
BUILT = {name: model for name, model in MODELS.items() if not lacks(model.facts)}
SCHEMA = load(list(shipped().values())[-1])
SETTINGS = {name: translate(model, SCHEMA) for name, model in BUILT.items()}
STANDS_IN = {"deepseek_v2": "deepseek3-671b", "gemma3_1B": "gemma3-4b"}
"""Models that go by another's name, since MaxText's code looks at it."""
STEP = {"dataset_type": "synthetic", "steps": 1, "max_target_length": 16, "per_device_batch_size": 1}
TRAINING = ("enable_dropout", "logical_axis_rules", "load_balance_loss_weight")
WITHOUT_EFFECT = ("vision_encoder_block", "image_placeholder", "normalize_embedding_logits")
"""On text, and on the logits of a head of its own."""


def kind(settings: dict[str, Any]) -> tuple[object, ...]:
    """What models have in common that differ in sizes only."""
    rest = {name: value for name, value in settings.items() if name not in ("model_name", "tokenizer_path")}
    return tuple((name, bool(value) if isinstance(value, int | float) else str(value)) for name, value in rest.items())


def theirs(name: str, setting: str) -> Any:
    """What MaxText has for a model that it names."""
    return SCHEMA.models[SETTINGS[name]["model_name"]].get(setting, SCHEMA.options[setting].default)


def departures(name: str) -> str:
    """Settings in which MaxText's model of this name is another than the catalogue's; what its code decides is none."""
    of_code = {"model_name", "tokenizer_type", "tokenizer_path", "use_qk_norm", *TRAINING}
    of_code |= {"rope_type"} if SETTINGS[name]["model_name"].startswith("llama3.1") else set()
    ours = {setting: value for setting, value in SETTINGS[name].items() if setting not in of_code}
    return ", ".join(f"{key} {theirs(name, key)}" for key, value in ours.items() if theirs(name, key) != value)


def refused() -> str:
    """The refused models by what MaxText lacks for them, as the page has them."""
    rows: dict[str, list[str]] = {}
    for model in MODELS.values():
        if missing := lacks(model.facts):
            rows.setdefault("; ".join(missing), []).append(model.name)
    head = ["| model | what MaxText lacks for it |", "|---|---|"]
    return "\n".join(head + [f"| {', '.join(names)} | {missing} |" for missing, names in rows.items()])


def departing() -> str:
    """The models of one name that are two, as the page has them."""
    rows: dict[str, list[str]] = {}
    for name in (n for n, settings in SETTINGS.items() if "model_name" in settings and n not in STANDS_IN):
        if text := departures(name):
            rows.setdefault(text, []).append(name)
    head = ["| model | in MaxText's own file |", "|---|---|"]
    return "\n".join(head + [f"| {', '.join(names)} | {text} |" for text, names in rows.items()])


def test_the_page_names_exactly_the_models_that_are_refused() -> None:
    assert refused() in (ROOT / "docs/maxtext.md").read_text()


def test_the_page_names_exactly_the_models_that_maxtext_has_otherwise() -> None:
    assert departing() in (ROOT / "docs/maxtext.md").read_text()


def test_a_refusal_names_the_model_and_all_that_is_lacking() -> None:
    with pytest.raises(RequestError, match="MaxText cannot build grok1") as caught:
        translate(MODELS["grok1"], SCHEMA)
    assert "additional norms after attention and MLP; a GELU in its gated MLPs; experts weighted" in caught.value.why


def test_a_version_that_lacks_a_setting_is_refused_with_it() -> None:
    older = Schema("0.2.0", {k: v for k, v in SCHEMA.options.items() if k != "attention_sink"}, SCHEMA.models)
    with pytest.raises(RequestError, match=r"MaxText 0\.2\.0 cannot build gpt_oss_20B") as caught:
        translate(MODELS["gpt_oss_20B"], older)
    assert "attention_sink" in caught.value.why


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama2_7B", {"decoder_block": "llama2", "model_name": "llama2-7b", "rope_type": "default"}),
        ("llama3.3_70B", {"rope_type": "llama3.1", "base_num_kv_heads": 8, "rope_max_timescale": 500000}),
        ("qwen2.5_1.5B", {"decoder_block": "qwen2", "attention_bias": True, "normalize_embedding_logits": True}),
        ("qwen3_32B", {"decoder_block": "qwen3", "use_qk_norm": True, "head_dim": 128}),
        ("qwen3_30B_A3B", {"decoder_block": "qwen3_moe", "base_mlp_dim": 768, "norm_topk_prob": True}),
        ("mixtral_8x7B", {"decoder_block": "mixtral", "num_experts": 8, "base_mlp_dim": 14336}),
        ("deepseek_v2_lite", {"model_name": "deepseek2-16b", "q_lora_rank": 0, "shared_experts": 2, "mscale": 0.707}),
        ("deepseek_v2", {"n_routing_groups": 8, "topk_routing_group": 3, "routed_score_func": "softmax"}),
        ("deepseek_v3", {"routed_bias": True, "routed_score_func": "sigmoid", "mtp_num_layers": 1, "rope_factor": 40}),
        ("kimi_k2", {"model_name": "kimi-k2-1t", "beta_fast": 1, "first_num_dense_layers": 1}),
        ("gemma2_9B", {"base_num_decoder_layers": 21, "final_logits_soft_cap": 30.0, "normalize_embedding_logits": True}),
        ("gemma3_1B", {"rope_linear_scaling_factor": 1.0, "local_rope_max_timescale": 10000}),
        ("gpt_oss_20B", {"mlp_activations_limit": 7.0, "attention_sink": True, "rope_attention_scaling": True,
                         "inhomogeneous_layer_cycle_interval": 2}),
        ("llama4_maverick_17B128E", {"chunk_attn_window_size": 8192, "nope_layer_interval": 4, "rope_use_scale": False,
                                     "interleave_moe_layer_step": 2}),
    ],
)  # fmt: skip
def test_a_fact_becomes_the_setting_that_means_it(name: str, expected: dict[str, Any]) -> None:
    assert expected.items() <= SETTINGS[name].items()


@pytest.mark.parametrize("name", SETTINGS)
def test_maxtext_takes_the_settings_of_a_model(name: str) -> None:
    assert options.check(Document(SETTINGS[name]), SCHEMA.options, framework="MaxText") == SETTINGS[name]


@pytest.mark.parametrize("name", [name for name, found in SETTINGS.items() if "model_name" in found])
def test_nothing_of_the_model_comes_from_the_file_that_its_name_brings(name: str) -> None:
    brought = set(SCHEMA.models[SETTINGS[name]["model_name"]]) - set(SETTINGS[name])
    assert {setting for setting in brought if not setting.endswith("_for_vit")} <= {*TRAINING, *WITHOUT_EFFECT}


def test_only_these_models_go_by_the_name_of_another() -> None:
    sizes = ("base_num_decoder_layers", "base_emb_dim", "base_num_query_heads")
    named = (name for name, settings in SETTINGS.items() if "model_name" in settings)
    others = {name for name in named if any(theirs(name, size) != SETTINGS[name][size] for size in sizes)}
    assert {name: SETTINGS[name]["model_name"] for name in others} == STANDS_IN


def test_a_model_of_ones_own_has_a_name_only_where_maxtext_looks_at_it() -> None:
    assert "model_name" not in translate(replace(MODELS["llama3.1_8B"], name="mine"), SCHEMA)
    plain = replace(MODELS["deepseek_v3"].facts, rope_scaling=None)
    latent = translate(replace(MODELS["deepseek_v3"], name="mine", facts=plain), SCHEMA)
    assert latent["model_name"] == "deepseek3-671b"
    assert latent["rope_factor"] == 1, "MaxText scales attention by it where nothing is stretched, too"


@pytest.mark.full
@pytest.mark.skipif(not version_of("maxtext"), reason="maxtext is not installed")
def test_maxtext_builds_every_kind_of_model_with_the_catalogues_number_of_parameters() -> None:
    """To the unit, MTP layers apart, of MaxText's own abstract model; the smallest of each kind, whole."""
    by_size = sorted(BUILT, key=lambda name: parameters(BUILT[name].facts).total, reverse=True)
    chosen = {kind(SETTINGS[name]): name for name in by_size}.values()
    told = {name: resolve(MAXTEXT, {**STEP, "model": SETTINGS[name]}).config["settings"] for name in chosen}
    command = [sys.executable, str(Path(__file__).with_name("count_parameters.py"))]
    done = subprocess.run(command, input=json.dumps(told), env={**os.environ, "JAX_PLATFORMS": "cpu"},
                          capture_output=True, text=True, check=False, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    counts = {name: parameters(BUILT[name].facts) for name in chosen}
    expected = {name: {"total": count.total, "mtp": count.mtp} for name, count in counts.items()}
    assert json.loads(done.stdout.splitlines()[-1]) == expected


def test_the_command_line_names_another_model(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        EXPERIMENT.replace("    data: {text: text, vocab_size: 512, document_chars: 500}\n", "")
    )
    words = ("direct", "--dry-run", "--json", "--", "train", "pretrain", "--config", "x.yaml", "dataset_type=synthetic")
    planned = primus(*words, "model=qwen3_0.6B")
    assert planned.returncode == 0, planned.stderr
    files = {file["path"]: file["text"] for file in json.loads(planned.stdout)["files"]}
    assert "base_emb_dim: 1024" in files["config/model_config.yaml"]
    refused = primus(*words, "model=qwen3_0.6")
    assert "command line: model=qwen3_0.6" in refused.stderr
    assert "did you mean 'qwen3_0.6B'?" in refused.stderr
