"""Weights go from one framework's names to another's and back, whatever the layout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from primus_core.errors import MachineError, PrimusError, RequestError
from primus_torchtitan.verification import VERIFIER as TITAN
from primus_train.kit.neutral import in_halves
from primus_train.models import catalogue
from primus_train.models.architecture import Architecture
from primus_verify.against import Side, small_model
from primus_verify.exchange import as_neutral, with_neutral
from primus_verify.stored import overwrite, read

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
    assert written.keys() == {name for name in raw if "optimizer" not in name}
    assert all(np.array_equal(value, raw[name]) for name, value in written.items())


def test_a_weight_that_the_other_framework_lacks_or_that_has_no_neutral_name_is_named() -> None:
    with pytest.raises(PrimusError, match=r"tok_embeddings.weight is embed_tokens.weight of \[16, 8\]"):
        with_neutral(VERIFIER, drawn(), {}, MODEL)
    with pytest.raises(PrimusError, match=r"layers.0.moe.router.weight has no neutral name"):
        as_neutral(VERIFIER, {"layers.0.moe.router.weight": np.ones(1)}, MODEL)


def test_a_framework_that_does_not_answer_has_a_limit(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    side = Side("megatron", str(python), "model.yaml", str(tmp_path), dict(os.environ), print, 1)
    with pytest.raises(MachineError, match="cannot plan a training") as caught:
        side.refusal()
    assert caught.value.why == "it took longer than 1 s (--timeout)"


@pytest.mark.full
@pytest.mark.torch
def test_numbers_are_written_over_those_of_a_checkpoint_and_all_else_stays(tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp

    stored = {"norm.weight": torch.zeros(3), "optimizer.state.norm.weight.exp_avg": torch.ones(3), "steps": {"a": "b"}}
    dcp.save(stored, storage_writer=dcp.FileSystemWriter(tmp_path), no_dist=True)
    files = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    overwrite(VERIFIER, str(tmp_path), lambda raw: {"norm.weight": raw["norm.weight"] + 2})
    assert {kind: value.tolist() for (kind, _), value in read(VERIFIER, str(tmp_path)).items()} == {
        "weight": [2, 2, 2], "first moment": [1, 1, 1]}  # fmt: skip
    loaded = {"steps": {"a": ""}}
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path), no_dist=True)
    assert loaded == {"steps": {"a": "b"}}
    assert files == {path.name: path.stat().st_size for path in tmp_path.iterdir()}


def test_the_small_model_keeps_the_kind_and_what_has_no_names_is_refused(tmp_path: Any) -> None:
    models = catalogue.load()
    (tmp_path / "small.yaml").write_text(small_model(models["llama3.1_8B"]))
    facts = catalogue.find(str(tmp_path / "small.yaml"), {}).facts
    assert (facts.num_attention_heads, facts.num_kv_heads, facts.rope_scaling) == (
        8, 4, models["llama3.1_8B"].facts.rope_scaling)  # fmt: skip
    with pytest.raises(RequestError, match="cannot compare gemma2_2B") as refused:
        small_model(models["gemma2_2B"])
    assert "an activation other than SwiGLU, additional norms after attention and MLP" in refused.value.why


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen2.5_0.5B", "qwen3_30B_A3B"])
def test_small_models_with_experts_latent_attention_and_biases_are_models_of_the_catalogue(
    name: str, tmp_path: Any
) -> None:
    model = catalogue.load()[name]
    (tmp_path / "small.yaml").write_text(small_model(model))
    small = catalogue.find(str(tmp_path / "small.yaml"), {}).facts
    assert small.hidden_size <= 128
    for trait in ("moe", "mla", "qkv_bias", "qk_norm", "tie_embeddings"):
        assert bool(getattr(small, trait)) == bool(getattr(model.facts, trait)), trait
