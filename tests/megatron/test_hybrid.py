"""Hybrid models: AMD's words for their layers are Megatron's pattern, and what Megatron lacks is refused."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.megatron.conftest import Train, tiny
from tests.planning import Resolve

from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_megatron.hybrid import translate

MODULE = "primus.backends.megatron.core.models.hybrid.hybrid_mamba_mla_layer_specs"
SIZES = {"model_type": "mamba", "num_layers": 8, "hidden_size": 128, "is_hybrid_model": True}
ZEBRA = {**SIZES, "spec": [MODULE, "hybrid_stack_spec"], "hybrid_attention_ratio": 0.25}
DELTA = {
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "position_embedding_type": "none",
    "multi_latent_attention": True, "q_lora_rank": 32, "kv_lora_rank": 16, "qk_head_dim": 16,
    "qk_pos_emb_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip


def settings(**asked: Any) -> dict[str, Any]:
    return dict(translate(Document({**SIZES, **asked}, {(): "exp.yaml:3"}))[0].data)


@pytest.mark.parametrize(
    ("name", "ratio", "pattern"),
    [
        ("hybrid_stack_spec", 0.25, "+-M-M-M-"),
        ("hybrid_stack_spec", 0.5, "+-M-+-M-"),
        ("mamba_hybrid_stack_spec_no_te", 0.75, "+-+-+-M-"),
        ("gdn_hybrid_stack_spec", 0.0, "G-G-G-G-"),
        ("gdn_hybrid_stack_spec_no_te", 0.25, "+-G-G-G-"),
        ("mamba_stack_spec", 0.0, "MMMMMMMM"),
    ],
)
def test_a_ratio_of_attention_is_a_pattern_of_layers(name: str, ratio: float, pattern: str) -> None:
    found = settings(spec=[MODULE, name], hybrid_attention_ratio=ratio)
    assert found["hybrid_layer_pattern"] == pattern
    assert found.get("qk_layernorm", False) is ("+" in pattern)
    assert not {"model_type", "spec", "is_hybrid_model", "hybrid_attention_ratio"} & set(found)


def test_a_pattern_of_amds_fork_has_its_mixer_and_latent_attention() -> None:
    found = settings(spec=[MODULE, "gdn_hybrid_stack_spec"], hybrid_override_pattern="*-M-*-M-")
    assert found["hybrid_layer_pattern"] == "+-G-+-G-"


def test_zebras_mamba_layers_are_as_wide_as_the_model() -> None:
    assert settings(**ZEBRA, mamba_head_dim=32)["mamba_num_heads"] == 4
    assert "mamba_num_heads" not in settings(spec=[MODULE, "mamba_hybrid_stack_spec_no_te"])


def test_layers_of_amds_fork_alone_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        settings(spec=[MODULE, "kda_hybrid_stack_spec"])
    assert "'spec: kda_hybrid_stack_spec'" in caught.value.what
    assert caught.value.is_final


def test_a_wrong_number_of_layers_is_the_only_error(resolve: Resolve) -> None:
    model = {**ZEBRA, "num_layers": "many"}
    with pytest.raises(ConfigError) as caught:
        resolve(tiny(model=None, num_attention_heads=4, **model), gpus=1)
    [error] = caught.value.each()
    assert "'num_layers'" in error.what


@pytest.mark.parametrize(
    ("pattern", "layers", "gpus", "what"),
    [
        ("M*Q-", 4, 1, "unknown layers: Q"),
        ("M*M-", 8, 1, "has 4 layers, and num_layers is 8"),
        ("M*M-", 4, 0, "Mamba layers need a GPU"),
    ],
)
def test_a_pattern_is_checked_before_the_start(
    resolve: Resolve, pattern: str, layers: int, gpus: int, what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        resolve(tiny(hybrid_layer_pattern=pattern, num_layers=layers), gpus=gpus)


def test_stages_without_borders_are_equally_long(resolve: Resolve) -> None:
    asked = {"hybrid_layer_pattern": "*-*-", "num_layers": 4, "pipeline_model_parallel_size": 3}
    with pytest.raises(ConfigError, match="does not divide the 4 layers of hybrid_layer_pattern"):
        resolve(tiny(**asked), ranks=3)


def test_a_mamba_model_needs_its_kernels(resolve: Resolve) -> None:
    plan = resolve(tiny(hybrid_layer_pattern="M*M-", num_layers=4), gpus=1)
    assert "mamba_ssm" in {one.name for one in plan.requires}


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.parametrize("pattern", ["+-G-", "*-G-"], ids=["latent attention", "attention"])
def test_a_hybrid_model_trains_on_a_cpu(train: Train, pattern: str) -> None:
    is_latent = "+" in pattern
    latent = dict.fromkeys(("multi_latent_attention", "qk_layernorm"), is_latent)
    latent |= {"group_query_attention": not is_latent}
    rows, _ = train(tiny(**{**DELTA, **latent}, hybrid_layer_pattern=pattern, num_layers=4))
    losses = [row["loss"] for row in rows if "loss" in row]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
