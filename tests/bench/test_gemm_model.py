"""The shapes of a model's training step: their FLOPs are those of the catalogue, however the model is divided."""

from __future__ import annotations

import pytest

from primus_bench.benchmarks.gemm.model import Step, problems
from primus_bench.benchmarks.gemm.requested import PASSES
from primus_core.errors import RequestError
from primus_train.models import catalogue
from primus_train.models.architecture import Entry
from primus_train.models.arithmetic import flops_per_token

MODELS = (
    "llama3.1_8B", "llama3.1_405B", "qwen2.5_0.5B", "gemma3_27B", "phi4_14B", "mixtral_8x7B", "qwen3_30B_A3B",
    "gpt_oss_120B", "llama4_maverick_17B128E", "deepseek_v2_lite", "deepseek_v3", "kimi_k2",
)  # fmt: skip


def facts(name: str) -> Entry:
    """Of the catalogue."""
    return catalogue.find(name, catalogue.load()).facts


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("step", [Step(4096), Step(8192, 2, tp=2), Step(4096, 1, tp=2, ep=4)], ids=str)
def test_the_flops_of_the_shapes_are_those_of_the_catalogue(name: str, step: Step) -> None:
    """All but attention's own products, QKᵀ and PV, which are no GEMMs here. A rank has 1/tp of them."""
    model = facts(name)
    if not model.moe:
        step = step._replace(ep=1)
    found = problems(model, (), PASSES, step, "bf16")
    parts = flops_per_token(model, step.seq_len)
    expected = (sum(parts.values()) - parts["scores"]) * step.tokens
    assert sum(one.repeats * one.flops for one in found) * step.tp == pytest.approx(expected, rel=0.005)


def test_the_three_passes_of_a_matrix_are_those_by_hand() -> None:
    """Llama 3.1 8B: Q, K and V are 4096 x (4096 + 2·1024) in 32 layers. Weights are stored as outputs x inputs."""
    forward, dgrad, wgrad = problems(facts("llama3.1_8B"), ("qkv",), PASSES, Step(8192), "bf16")
    assert (forward.m, forward.n, forward.k, forward.layout, forward.repeats) == (8192, 6144, 4096, "NT", 32)
    assert (dgrad.m, dgrad.n, dgrad.k, dgrad.layout, dgrad.repeats) == (8192, 4096, 6144, "NN", 32)
    assert (wgrad.m, wgrad.n, wgrad.k, wgrad.layout, wgrad.repeats) == (6144, 4096, 8192, "TN", 32)
    assert [one.name for one in (forward, dgrad, wgrad)] == ["qkv/fwd", "qkv/dgrad", "qkv/wgrad"]


def test_tensor_parallelism_divides_outputs_or_inputs_and_mla_s_latents_by_tokens() -> None:
    found = {one.name: one for one in problems(facts("deepseek_v3"), (), ("fwd",), Step(4096, tp=4), "bf16")}
    sizes = {name: (found[f"{name}/fwd"].m, found[f"{name}/fwd"].n, found[f"{name}/fwd"].k)
             for name in ("q-down", "q-up", "attention-out", "shared-expert-down")}  # fmt: skip
    assert sizes == {"q-down": (1024, 1536, 7168), "q-up": (4096, 24576 // 4, 1536),
                     "attention-out": (4096, 7168, 16384 // 4), "shared-expert-down": (4096, 7168, 512)}  # fmt: skip


def test_experts_are_one_grouped_gemm_in_each_layer_and_expert_parallelism_leaves_fewer_and_larger_groups() -> None:
    for ep, groups in ((1, 256), (8, 32)):
        step = Step(4096, ep=ep)
        forward, _, wgrad = problems(facts("deepseek_v3"), ("experts-down",), PASSES, step, "bf16")
        assert (forward.m, forward.n, forward.k, forward.groups, forward.split) == (8 * 4096, 7168, 2048, groups, "m")
        assert (wgrad.m, wgrad.n, wgrad.k, wgrad.groups, wgrad.split) == (7168, 2048, 8 * 4096, groups, "k")
        assert forward.repeats == 58 + 1, "the layer of MTP has experts too"
        assert forward.group_sizes == (8 * 4096 // groups,) * groups


def test_a_router_is_measured_only_where_it_is_named() -> None:
    model = facts("mixtral_8x7B")
    assert "router/fwd" not in [one.name for one in problems(model, (), PASSES, Step(4096), "bf16")]
    [router] = problems(model, ("router",), ("fwd",), Step(4096), "bf16")
    assert (router.m, router.n, router.k) == (4096, 8, 4096)


def test_fp8_has_the_one_layout_that_libraries_multiply() -> None:
    found = problems(facts("llama3.1_70B"), (), PASSES, Step(4096, tp=8), "fp8")
    assert {one.layout for one in found} == {"NT"}


def test_a_degree_that_divides_nothing_is_one_error_with_the_degrees_that_divide_all() -> None:
    with pytest.raises(RequestError) as refused:
        problems(facts("llama3.1_8B"), (), PASSES, Step(4096, tp=7), "bf16")
    assert refused.value.what == "--tp 7 cannot divide 8 heads of keys and values; 4096 tokens"
    assert refused.value.fix == "known: 1, 2, 4, 8"
