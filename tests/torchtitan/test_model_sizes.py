"""Models with sizes of one's own have as many parameters as the arithmetic says, and a flavor's sizes give the flavor."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.torchtitan.conftest import Program

from primus_train.backend import BackendPlan

pytest.importorskip("torchtitan", reason="torchtitan is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.full]

Resolve = Callable[..., BackendPlan]

COUNT = """
import json, sys, torch
from primus_torchtitan.patches import apply_all
apply_all()
from primus_torchtitan.model_sizes import model_spec
counts = []
for model in json.loads(sys.argv[1]):
    with torch.device("meta"):
        counts.append(sum(p.numel() for p in set(model_spec(model).model.build().parameters())))
print(json.dumps(counts))
"""


def parameters(program: Program, *models: object) -> list[int]:
    ended = program(COUNT, json.dumps(models))
    assert ended.code == 0, ended.err
    return list(json.loads(ended.out.splitlines()[-1]))


def model(resolve: Resolve, text: str) -> object:
    return resolve(f"model: {text}\ndataloader: {{dataset: c4}}").config["model"]


def test_a_small_llama_has_the_expected_parameters(resolve: Resolve, program: Program) -> None:
    dim, layers, heads, kv_heads, ffn, vocab = 64, 3, 4, 2, 96, 300
    sizes = f"dim: {dim}, n_layers: {layers}, n_heads: {heads}, n_kv_heads: {kv_heads}, ffn_hidden_dim: {ffn}"
    attention = dim * dim * 2 + 2 * dim * (dim // heads * kv_heads)
    expected = 2 * vocab * dim + layers * (attention + 3 * dim * ffn + 2 * dim) + dim
    tied = expected - vocab * dim
    untied, shared = parameters(
        program,
        model(resolve, f"{{family: llama3, {sizes}, vocab_size: {vocab}}}"),
        model(resolve, f"{{family: llama3, {sizes}, vocab_size: {vocab}, weight_tying: true}}"),
    )
    assert (untied, shared) == (expected, tied)


def test_a_small_qwen_has_the_expected_parameters(resolve: Resolve, program: Program) -> None:
    dim, heads, kv_heads, head, ffn, vocab = 64, 4, 2, 32, 96, 300
    sizes = (
        f"dim: {dim}, n_layers: 2, n_heads: {heads}, n_kv_heads: {kv_heads}, head_dim: {head}, ffn_hidden_dim: {ffn}"
    )
    layer = 2 * dim * heads * head + 2 * dim * kv_heads * head + 3 * dim * ffn + 2 * dim + 2 * head
    (count,) = parameters(program, model(resolve, f"{{family: qwen3, {sizes}, vocab_size: {vocab}}}"))
    assert count == 2 * vocab * dim + 2 * layer + dim


def test_a_flavors_sizes_written_out_give_the_flavor(resolve: Resolve, program: Program) -> None:
    flavor, written_out = parameters(
        program,
        model(resolve, "{family: llama3, flavor: 8B}"),
        model(resolve, "{family: llama3, flavor: 8B, n_layers: 32}"),
    )
    assert flavor == written_out == 8_030_261_248
