"""Weights go from one framework's names to another's and back, whatever the layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from primus_core.errors import PrimusError, RequestError
from primus_torchtitan.verification import VERIFIER as TITAN
from primus_train.kit.neutral import in_halves
from primus_train.models import catalogue
from primus_train.models.architecture import Architecture
from primus_verify.against import small_model
from primus_verify.exchange import as_neutral, with_neutral

VERIFIER: Any = TITAN
MODEL = Architecture(
    num_layers=1, hidden_size=8, ffn_hidden_size=12, num_attention_heads=2, num_kv_heads=1, head_dim=4, vocab_size=16,
    max_position_embeddings=64, rope_theta=1e4, norm_eps=1e-5, tie_embeddings=False,
)  # fmt: skip
STORED = {
    "tok_embeddings.weight": (16, 8), "layers.0.attention.qkv_linear.wq.weight": (8, 8),
    "layers.0.attention.qkv_linear.wk.weight": (4, 8), "layers.0.feed_forward.w2.weight": (8, 12),
    "optimizer.state.layers.0.feed_forward.w2.weight.exp_avg": (8, 12),
}  # fmt: skip


def drawn() -> dict[str, Any]:
    """A checkpoint."""
    generator = np.random.default_rng(3)
    return {name: generator.random(shape, np.float32) for name, shape in STORED.items()}


def test_pairs_of_the_rotary_embedding_that_are_neighbours_come_into_halves() -> None:
    assert in_halves(np.arange(8).reshape(8, 1), 4).ravel().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_weights_that_are_written_are_those_that_are_read_and_moments_stay() -> None:
    raw, other = drawn(), {name: np.zeros(shape, np.float32) for name, shape in STORED.items()}
    weights = {name: value for kind, name, value in VERIFIER.tensors(raw) if kind == "weight"}
    neutral = as_neutral(VERIFIER, weights, MODEL)
    assert {"embed_tokens.weight", "layers.0.self_attn.q_proj.weight"} <= neutral.keys()
    written = with_neutral(VERIFIER, other, neutral, MODEL)
    for name, value in raw.items():
        assert np.array_equal(written[name], value if "optimizer" not in name else 0 * value), name


def test_a_weight_that_the_other_framework_lacks_or_that_has_no_neutral_name_is_named() -> None:
    with pytest.raises(PrimusError, match=r"tok_embeddings.weight is embed_tokens.weight of \[16, 8\]"):
        with_neutral(VERIFIER, drawn(), {}, MODEL)
    with pytest.raises(PrimusError, match=r"layers.0.moe.router.weight has no neutral name"):
        as_neutral(VERIFIER, {"layers.0.moe.router.weight": np.ones(1)}, MODEL)


def test_the_small_model_keeps_the_kind_and_experts_are_refused(tmp_path: Any) -> None:
    models = catalogue.load()
    (tmp_path / "small.yaml").write_text(small_model(models["llama3.1_8B"]))
    facts = catalogue.find(str(tmp_path / "small.yaml"), {}).facts
    assert (facts.num_attention_heads, facts.num_kv_heads, facts.rope_scaling) == (
        8, 4, models["llama3.1_8B"].facts.rope_scaling)  # fmt: skip
    with pytest.raises(RequestError, match="cannot compare mixtral_8x7B"):
        small_model(models["mixtral_8x7B"])
