"""Settings that contradict each other are refused before the start, and Megatron itself would refuse them, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.megatron.conftest import Python, tiny
from tests.planning import Resolve

from primus_core.errors import ConfigError
from primus_megatron import backend
from primus_megatron.contradictions import CONTRADICTIONS
from primus_megatron.installation import Installation, importable_version

FSDP = {"use_torch_fsdp2": True, "bf16": True}
TENSOR = {"tensor_model_parallel_size": 2}
PIPELINE = {"pipeline_model_parallel_size": 2}
EXPERTS = {
    "num_experts": 4, "moe_router_topk": 2, "expert_model_parallel_size": 2, "bf16": True,
    "moe_token_dispatcher_type": "alltoall",
}  # fmt: skip
OVERLAP = {**EXPERTS, "overlap_moe_expert_parallel_comm": True}
SELECTIVE, FULL = {"recompute_granularity": "selective"}, {"recompute_granularity": "full"}
BLEND = {"data_args_path": "/dev/null", "mock_data": False, "tokenizer_type": "NullTokenizer", "vocab_size": 128}
Case = tuple[str, int, dict[str, Any]]
REFUSED: list[Case] = [
    ("recompute_granularity", 1, FULL),
    ("recompute_method", 1, {**FULL, "recompute_method": "uniform"}),
    ("recompute_method", 1, {**SELECTIVE, "recompute_method": "uniform"}),
    ("recompute_num_layers", 1, {**SELECTIVE, "recompute_num_layers": 1}),
    ("recompute_modules", 1, {**SELECTIVE, "recompute_modules": ["attention"]}),
    ("recompute_modules", 1, {**SELECTIVE, "recompute_modules": ["mla_up_proj"]}),
    ("distribute_saved_activations", 1, {"distribute_saved_activations": True}),
    (
        "distribute_saved_activations",
        2,
        {
            **TENSOR, **FULL, "recompute_method": "uniform", "recompute_num_layers": 1, "sequence_parallel": True,
            "distribute_saved_activations": True,
        },
    ),
    ("tp_comm_overlap", 2, {**TENSOR, "tp_comm_overlap": True}),
    ("overlap_param_gather", 2, {**FSDP, "overlap_param_gather": True, "overlap_grad_reduce": True}),
    ("overlap_param_gather", 2, {"overlap_param_gather": True, "overlap_grad_reduce": True}),
    ("overlap_param_gather", 2, {"overlap_param_gather": True, "use_distributed_optimizer": True}),
    (
        "overlap_param_gather_with_optimizer_step",
        4,
        {
            **PIPELINE, "overlap_param_gather": True, "use_distributed_optimizer": True, "overlap_grad_reduce": True,
            "overlap_param_gather_with_optimizer_step": True, "num_layers_per_virtual_pipeline_stage": 1,
        },
    ),
    ("use_distributed_optimizer", 2, {**FSDP, "use_distributed_optimizer": True}),
    ("pipeline_model_parallel_size", 2, {**FSDP, **PIPELINE}),
    ("expert_model_parallel_size", 2, {**FSDP, **EXPERTS}),
    ("use_torch_fsdp2", 2, {**FSDP, "untie_embeddings_and_output_weights": False}),
    ("use_torch_fsdp2", 2, {**FSDP, "bf16": False, "fp16": True}),
    ("gradient_accumulation_fusion", 2, {**FSDP, "gradient_accumulation_fusion": True}),
    ("ckpt_format", 2, {**FSDP, "ckpt_format": "torch"}),
    ("ckpt_format", 1, {"ckpt_format": "torch_dcp"}),
    ("ckpt_format", 2, {**FSDP, **TENSOR, "ckpt_format": "torch_dcp"}),
    ("ckpt_format", 1, {"ckpt_format": "fsdp_dtensor"}),
    ("use_megatron_fsdp", 2, {"use_megatron_fsdp": True, "use_distributed_optimizer": True}),
    ("optimizer", 2, {"use_megatron_fsdp": True, "ckpt_format": "fsdp_dtensor", "optimizer": "muon"}),
    ("use_precision_aware_optimizer", 2, {"use_precision_aware_optimizer": True}),
    (
        "use_precision_aware_optimizer",
        *(2, {"use_precision_aware_optimizer": True, "use_distributed_optimizer": True, "optimizer": "sgd"}),
    ),
    ("main_grads_dtype", 1, {"main_grads_dtype": "bf16"}),
    ("main_params_dtype", 1, {"main_params_dtype": "fp16"}),
    ("exp_avg_dtype", 1, {"exp_avg_dtype": "bf16"}),
    ("exp_avg_sq_dtype", 1, {"exp_avg_sq_dtype": "fp8"}),
    ("optimizer", 2, {"optimizer": "sgd", "use_distributed_optimizer": True}),
    ("async_save", 1, {"async_save": True, "ckpt_format": "torch", "save": "x", "save_interval": 1}),
    ("data_args_path", 1, BLEND),
    ("data_args_path", 1, {**BLEND, "split": "99,1,0", "per_split_data_args_path": "/dev/null"}),
    ("split", 1, {"split": "98,1,1,0"}),
    ("pipeline_model_parallel_layout", 2, {**PIPELINE, "pipeline_model_parallel_layout": "Ettt|ttL"}),
    ("adam_beta1", 1, {"adam_beta1": 1.0}),
    ("adam_beta2", 1, {"adam_beta2": 1.5}),
    ("hidden_dropout", 1, {"hidden_dropout": 1.2}),
    ("attention_dropout", 1, {"attention_dropout": -0.1}),
    ("optimizer_cpu_offload", 1, {"optimizer_cpu_offload": True}),
    ("fp8_param_gather", 1, {"fp8": "hybrid", "fp8_param_gather": True}),
    ("fp8_param_gather", 2, {"fp8_param_gather": True, "use_distributed_optimizer": True}),
    ("reuse_grad_buf_for_mxfp8_param_ag", 1, {"reuse_grad_buf_for_mxfp8_param_ag": True}),
    ("fp4", 1, {"fp8": "hybrid", "fp4": "e2m1"}),
    ("fp4_param_gather", 1, {"fp4_param_gather": True}),
    ("fp16_lm_cross_entropy", 1, {"fp16_lm_cross_entropy": True}),
    ("fp32_residual_connection", 1, {"fp32_residual_connection": True}),
    ("moe_router_padding_for_fp8", 2, {**EXPERTS, "moe_router_padding_for_fp8": True}),
    ("moe_enable_deepep", 2, {**EXPERTS, "moe_enable_deepep": True}),
    ("moe_router_enable_expert_bias", 2, {**EXPERTS, "moe_router_enable_expert_bias": True}),
    ("moe_router_topk", 2, {**EXPERTS, "moe_router_topk": 1}),
    ("moe_router_group_topk", 2, {**EXPERTS, "moe_router_group_topk": 1}),
    ("moe_ffn_hidden_size", 1, {"moe_ffn_hidden_size": 64}),
    ("moe_latent_size", 1, {"moe_latent_size": 32}),
    ("moe_pad_expert_input_to_capacity", 2, {**EXPERTS, "moe_pad_expert_input_to_capacity": True}),
    ("overlap_moe_expert_parallel_comm", 2, {**OVERLAP, "expert_model_parallel_size": 1}),
    ("overlap_moe_expert_parallel_comm", 2, {**OVERLAP, "bf16": False}),
    (
        "overlap_moe_expert_parallel_comm",
        *(2, {**OVERLAP, **FULL, "recompute_method": "uniform", "recompute_num_layers": 1}),
    ),
    (
        "overlap_moe_expert_parallel_comm",
        *(2, {**OVERLAP, "moe_shared_expert_overlap": True, "moe_shared_expert_intermediate_size": 64}),
    ),
    ("delay_wgrad_compute", 2, {**EXPERTS, "delay_wgrad_compute": True}),
    ("group_query_attention", 1, {"multi_latent_attention": True}),
    ("mla_down_proj_fusion", 1, {"mla_down_proj_fusion": True}),
    ("load_main_params_from_ckpt", 1, {"load_main_params_from_ckpt": True}),
    ("squared_relu", 1, {"squared_relu": True}),
    ("quick_geglu", 1, {"quick_geglu": True}),
    ("position_embedding_type", 1, {"position_embedding_type": "mrope"}),
    ("weight_decay_incr_style", 1, {"weight_decay_incr_style": "linear"}),
    ("start_weight_decay", 1, {"start_weight_decay": 0.1}),
    ("end_weight_decay", 1, {"end_weight_decay": 0.1}),
    ("defer_embedding_wgrad_compute", 1, {"defer_embedding_wgrad_compute": True}),
    ("decoder_first_pipeline_num_layers", 1, {"decoder_first_pipeline_num_layers": 1}),
    ("decoder_last_pipeline_num_layers", 1, {"decoder_last_pipeline_num_layers": 1}),
    ("cpu_offloading_num_layers", 2, {**PIPELINE, "cpu_offloading_num_layers": 1}),
    ("eval_global_batch_size", 2, {"eval_global_batch_size": 6}),
    ("step_batch_size_schedule", 1, {"step_batch_size_schedule": "0:4 10:8"}),
]  # fmt: skip
LATER = {
    "async_save", "split", "adam_beta1", "adam_beta2", "hidden_dropout", "attention_dropout",
    "optimizer", "data_args_path",
}  # fmt: skip
"""What Megatron refuses only when it makes the optimizer, a layer, a data set or a checkpoint, or counts micro-batches."""
NOT_HERE = "requires FusedAdam from TransformerEngine"


@pytest.fixture(autouse=True)
def _on_nodes_of_which_little_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that Transformer Engine, which is not installed here, may be there."""
    monkeypatch.setattr(backend, "installation", lambda _: Installation(importable_version(), known=False))


def refusal(resolve: Resolve, ranks: int, changes: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        resolve(tiny(**changes), ranks=ranks, gpus=8)
    return caught.value


@pytest.mark.parametrize(("name", "ranks", "changes"), REFUSED)
def test_settings_that_contradict_each_other_are_refused(
    resolve: Resolve, name: str, ranks: int, changes: dict[str, Any]
) -> None:
    assert f"'{name}' is " in str(refusal(resolve, ranks, changes))


def test_every_row_of_contradictions_has_a_case_here() -> None:
    assert sorted(row.name for row in CONTRADICTIONS) == sorted(name for name, *_ in REFUSED)


@pytest.mark.full
def test_megatron_refuses_them_too_and_takes_what_is_proposed(
    resolve: Resolve, python: Python, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain: Case = ("", 1, {})
    wrong, mended = REFUSED, list[Case]()
    for name, ranks, changes in wrong:
        said = refusal(resolve, ranks, changes)
        if words := [word for word in said.fix.partition(", ")[0].split() if "=" in word]:
            proposed = {key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in words)}
            mended.append((name, 4, {**changes, **proposed}))
    monkeypatch.setattr(backend, "CONTRADICTIONS", ())
    cases = []
    for _, ranks, changes in [plain, *wrong, *mended]:
        plan = resolve(tiny(**{"apply_rope_fusion": False, **changes}), ranks=ranks, gpus=8)
        environ = {variable.name: variable.value for variable in plan.environment}
        cases.append([plan.config["settings"], ranks, environ, "gpu"])
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    ended = python("tests.megatron.what_megatron_refuses", f"{tmp_path}/cases.json")
    answers = dict(zip(map(str, [plain, *wrong, *mended]), json.loads(ended.out.splitlines()[-1]), strict=True))
    assert not answers[str(plain)], "what is refused here is refused for what was changed"
    assert {one[0] for one in wrong if not answers[str(one)]} == LATER
    assert not [answers[str(one)] for one in mended if answers[str(one)] and NOT_HERE not in answers[str(one)]]


@pytest.mark.parametrize("layout", ["Ett|ttL", "Et*2|t*2L", "Et,t|t,tL", "E(t|)*2t|tL"])
def test_a_layout_of_stages_that_megatron_takes_is_taken(resolve: Resolve, layout: str) -> None:
    stages = {"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": layout}
    assert resolve(tiny(**stages), ranks=2, gpus=8)


def test_a_layout_of_stages_without_the_layers_of_mtp_gets_them_on_the_last_stage(resolve: Resolve) -> None:
    stages = {"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Ett|ttL", "mtp_num_layers": 1}
    plan = resolve(tiny(**stages), ranks=2, gpus=8)
    assert plan.config["settings"]["pipeline_model_parallel_layout"] == "Ett|ttmL"
    assert any("ends with mL" in note for note in plan.notes)


def test_full_recomputation_of_no_layer_is_what_amd_writes_for_none(resolve: Resolve) -> None:
    assert resolve(tiny(**FULL, recompute_method="block", recompute_num_layers=0), gpus=8)
