"""Parameters and FLOPs: to the unit as known for every model, and as counted one by one for small ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.config import files
from primus_machine import strict
from primus_train.models import catalogue
from primus_train.models.architecture import Architecture
from primus_train.models.arithmetic import expert_layers, flops_per_token, full_attention_layers, parameters

MODELS = catalogue.load()
KNOWN_FLOPS = files.read(str(Path(__file__).parent / "golden" / "model_flops.yaml"), {}).data
SMALL: dict[str, Any] = {
    "num_layers": 3, "hidden_size": 64, "ffn_hidden_size": 96, "num_attention_heads": 4, "num_kv_heads": 2,
    "head_dim": 16, "vocab_size": 300, "max_position_embeddings": 128, "rope_theta": 1e4, "norm_eps": 1e-5,
    "tie_embeddings": False,
}  # fmt: skip
ATTENTION = 64 * 16 * (4 + 2 * 2) + 4 * 16 * 64
MOE = {"num_experts": 8, "topk": 2, "moe_ffn_hidden_size": 32, "shared_expert_ffn": 48}


def small(**facts: Any) -> Architecture:
    return strict.read(Architecture, {**SMALL, **facts})


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_known_number_of_parameters(name: str) -> None:
    facts = MODELS[name].facts
    counts = parameters(facts)
    assert counts.total == facts.parameters
    assert counts.active == (facts.parameters_active or facts.parameters)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_known_flops_per_token(name: str) -> None:
    for seq_length, known in KNOWN_FLOPS[name].items():
        assert sum(flops_per_token(MODELS[name].facts, int(seq_length)).values()) == known


def test_published_numbers_that_no_formula_of_ours_gave() -> None:
    # The tables of the Llama 3, DeepSeek V3, Qwen3 and gpt-oss papers and model cards, in their own digits.
    for name, billions, active in (
        ("llama3.1_405B", 405, None), ("deepseek_v3", 671, 37), ("deepseek_v2", 236, 21), ("qwen3_235B_A22B", 235, 22),
        ("gpt_oss_120B", 116.83, None), ("kimi_k2", 1000, 32), ("mixtral_8x7B", 46.7, 12.9),
    ):  # fmt: skip
        counts = parameters(MODELS[name].facts)
        assert counts.total / 1e9 == pytest.approx(billions, rel=0.03)
        assert active is None or counts.active / 1e9 == pytest.approx(active, rel=0.03)


def test_the_stored_deepseek_v3_has_685b_with_its_mtp_layer() -> None:
    counts = parameters(MODELS["deepseek_v3"].facts)
    stored = counts.total + counts.mtp + counts.parts["embedding"] + counts.parts["head"]  # it stores both again
    assert stored == pytest.approx(685e9, rel=1e-3)


def test_a_dense_model_counted_by_hand() -> None:
    layer = ATTENTION + 3 * 64 * 96 + 2 * 64
    assert parameters(small()).total == 2 * 300 * 64 + 3 * layer + 64
    assert parameters(small(tie_embeddings=True)).total == 300 * 64 + 3 * layer + 64
    assert flops_per_token(small(tie_embeddings=True), 10) == flops_per_token(small(), 10)  # the head multiplies


@pytest.mark.parametrize(
    ("facts", "more"),
    [
        ({"qkv_bias": True}, 3 * 16 * 8),
        ({"out_bias": True}, 3 * 64),
        ({"qk_norm": "rms"}, 3 * 2 * 16),
        ({"qk_norm": "l2"}, 0),
        ({"norms_per_layer": 4}, 3 * 2 * 64),
        ({"attn_sinks": True}, 3 * 4),
    ],
)
def test_what_a_fact_adds(facts: dict[str, Any], more: int) -> None:
    assert parameters(small(**facts)).total - parameters(small()).total == more
    assert flops_per_token(small(**facts), 100) == flops_per_token(small(), 100)


def test_a_mixture_of_experts_counted_by_hand() -> None:
    counts = parameters(small(moe={**MOE, "first_k_dense": 1}))
    expert, shared, router = 3 * 64 * 32, 3 * 64 * 48, 64 * 8
    rest = 2 * 300 * 64 + 3 * (ATTENTION + 2 * 64) + 64 + 3 * 64 * 96
    assert counts.total == rest + 2 * (8 * expert + shared + router)
    assert counts.active == rest + 2 * (2 * expert + shared + router)
    biased = parameters(small(moe={**MOE, "first_k_dense": 1, "router_bias": True, "mlp_bias": True}))
    assert biased.total - counts.total == 2 * (8 + 8 * (2 * 32 + 64))


def test_experts_in_every_second_layer_begin_with_the_second() -> None:
    assert [expert_layers(small(num_layers=n, moe={**MOE, "moe_layer_step": 2})) for n in (1, 2, 3, 4)] == [0, 1, 1, 2]
    assert expert_layers(small(num_layers=4, moe={**MOE, "first_k_dense": 2})) == 2


def test_latent_attention_counted_by_hand() -> None:
    mla = {"q_lora_rank": 24, "kv_lora_rank": 12, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20}
    with_, without = small(head_dim=24, mla=mla), small(head_dim=24, mla={k: v for k, v in mla.items() if k[0] != "q"
                                                                         or "head" in k})  # fmt: skip
    kv = 64 * (12 + 8) + 12 + 12 * 4 * (16 + 20) + 4 * 20 * 64
    assert parameters(with_).parts["attention"] == 3 * (64 * 24 + 24 + 24 * 4 * 24 + kv)
    assert parameters(without).parts["attention"] == 3 * (64 * 4 * 24 + kv)
    assert flops_per_token(with_, 10)["scores"] == 3 * 6 * 4 * (16 + 8 + 20) * 5


def test_an_mtp_layer_is_a_layer_a_projection_and_the_head_again() -> None:
    plain, more = small(moe=MOE), small(moe=MOE, mtp_layers=1)
    assert parameters(more).total == parameters(plain).total
    layer = ATTENTION + 8 * 3 * 64 * 32 + 3 * 64 * 48 + 64 * 8 + 2 * 64
    assert parameters(more).mtp == layer + 2 * 64 * 64 + 3 * 64
    weights = ATTENTION + 2 * 3 * 64 * 32 + 3 * 64 * 48 + 2 * 64 * 64 + 300 * 64
    flops = [sum(flops_per_token(facts, 100).values()) for facts in (plain, more)]
    assert flops[1] - flops[0] == 6 * (weights + 2 * 4 * 16 * 50)


def test_gemma_3_sees_everything_in_every_sixth_layer() -> None:
    facts = MODELS["gemma3_1B"].facts
    assert full_attention_layers(facts) == sum((layer + 1) % 6 == 0 for layer in range(26)) == 4
    seen = 4 * 2048 + 22 * (512 * 3584 + 512**2 / 2) / 4096
    assert flops_per_token(facts, 4096)["scores"] == 6 * 2 * 4 * 256 * seen


def test_gpt_oss_sees_everything_in_every_second_layer() -> None:
    assert full_attention_layers(MODELS["gpt_oss_20B"].facts) == 12


@given(length=st.integers(1, 200), window=st.integers(1, 250))
def test_a_window_counts_the_tokens_that_are_seen(length: int, window: int) -> None:
    """Twice the tokens that each token sees; itself counts half, until the window is full."""
    seen = sum(2 * min(i + 1, window) - (i < window) for i in range(length))
    scores = flops_per_token(small(num_layers=1, sliding_window=window), length)["scores"]
    assert scores == 6 * 2 * 4 * 16 * seen // (2 * length)


@given(length=st.integers(1, 200), chunk=st.integers(1, 250))
def test_chunks_count_the_tokens_that_are_seen(length: int, chunk: int) -> None:
    seen = sum(2 * (i % chunk) + 1 for i in range(length))
    scores = flops_per_token(small(num_layers=1, attention_chunk=chunk), length)["scores"]
    assert scores == 6 * 2 * 4 * 16 * seen // (2 * length)
