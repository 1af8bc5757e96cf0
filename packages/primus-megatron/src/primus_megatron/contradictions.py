"""Settings that Megatron refuses one beside the other."""

from __future__ import annotations

import re
from functools import partial

from primus_megatron.layout import Layout
from primus_megatron.settings import Settings
from primus_train.kit.contradictions import Contradiction as _Row

__all__ = ["CONTRADICTIONS"]

_STATE = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
_FSDP = "use_torch_fsdp2"
_FLEX = ("flex",)  # a comparison with a text would look like a password: "token" is in the name beside it


def _on(s: Settings, *names: str) -> bool:
    """Whether all of them are set, in a version that has them."""
    return all(s.knows(name) and s[name] for name in names)


def _any(s: Settings, *names: str) -> bool:
    return any(_on(s, name) for name in names)


def _half(s: Settings) -> bool:
    return bool(s["bf16"] or s["fp16"])


def _mixed(s: Settings) -> bool:
    """Layers with experts among others."""
    frequency = s["moe_layer_freq"]
    return isinstance(frequency, list) or frequency not in (None, 1, "1")


def _recomputed(s: Settings, name: str) -> bool:
    return bool(s["recompute_granularity"] == "selective" and name in (s["recompute_modules"] or ()))


def _full(s: Settings, layout: Layout) -> bool:
    return bool(s["recompute_granularity"] == "full")


def _chosen_apart(name: str, s: Settings, layout: Layout) -> bool:
    return bool(s["recompute_granularity"] == "selective" and s[name])


def _narrow(name: str, s: Settings, layout: Layout) -> bool:
    return not s["use_precision_aware_optimizer"] and s[name] not in ("fp32", "auto")


def _is_another_activation(name: str, s: Settings, layout: Layout) -> bool:
    return _on(s, name, "swiglu")


def _of_no_slope(name: str, s: Settings, layout: Layout) -> bool:
    return s["weight_decay_incr_style"] == "constant" and s[name] is not None


_SHARES = {"adam_beta1": 0.9, "adam_beta2": 0.95, "hidden_dropout": 0.0, "attention_dropout": 0.0}


def _is_no_share(name: str, s: Settings, layout: Layout) -> bool:
    return s[name] is not None and not 0 <= s[name] < 1


def _of_no_stage(name: str, s: Settings, layout: Layout) -> bool:
    return s[name] is not None and layout.pipeline == 1


_PIECES = frozenset((
    "core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts", "gdn_norm_out",
))  # fmt: skip


def _layers(layout: str) -> str:
    """The letters of a layout, its stages divided by `|`, as `PipelineParallelLayerLayout.parse_str_to_list` does."""
    text = layout.replace(",", "")
    for pattern in (r"\(([^()]+)\)\*(\d{1,3})", r"(.)\*(\d{1,3})"):
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    return text


def _stages_do_not_fit(s: Settings, at: Layout) -> bool:
    """Whether a layout has other letters or layers, or does not begin and end as Megatron wants it."""
    text = s["pipeline_model_parallel_layout"]
    if not isinstance(text, str):
        return False
    stages, letters = _layers(text).split("|"), _layers(text).replace("|", "")
    in_place = letters[:1] + letters[-1:] == "EL" and letters.count("E") == letters.count("L") == 1
    layers = letters.count("t") == s["num_layers"] and letters.count("m") == (s["mtp_num_layers"] or 0)
    return not (set(letters) <= set("EtmL") and in_place and layers and not len(stages) % at.pipeline)


def _is_no_split(s: Settings, at: Layout) -> bool:
    shares = str(s["split"]).split(",")
    return s["split"] is not None and (len(shares) > 3 or not all(map(_is_share, shares)))


_DATA = ("data_path", "train_data_path", "valid_data_path", "test_data_path", "per_split_data_args_path")


def _is_share(word: str) -> bool:
    try:
        return float(word) >= 0
    except ValueError:
        return False


def _evaluation_is_uneven(s: Settings, layout: Layout) -> bool:
    size = _on(s, "eval_global_batch_size") and s["eval_global_batch_size"]
    return bool(size and size % ((s["eval_micro_batch_size"] or s["micro_batch_size"]) * layout.data))


CONTRADICTIONS: tuple[_Row[Settings, Layout], ...] = (
    _Row("recompute_granularity", lambda s, at: _full(s, at) and not s["recompute_method"],
        "'full' recomputes whole layers, and must be told which",
        "recompute_method=uniform recompute_num_layers=1, or recompute_granularity=selective"),
    _Row("recompute_method", lambda s, at: _full(s, at) and s["recompute_method"] and s["recompute_num_layers"] is None,
        "it has no number of layers", "recompute_num_layers=1"),
    *(
        _Row(name, partial(_chosen_apart, name),
            "with recompute_granularity=selective, recompute_modules alone says what is recomputed",
            f"remove '{name}', or recompute_granularity=full recompute_method=uniform recompute_num_layers=1")
        for name in ("recompute_method", "recompute_num_layers")
    ),
    _Row("recompute_modules",
        lambda s, _: s["recompute_granularity"] == "selective" and {*(s["recompute_modules"] or ())} - _PIECES,
        f"Megatron can recompute {', '.join(sorted(_PIECES))}", "name some of these"),
    _Row("recompute_modules", lambda s, _: _recomputed(s, "mla_up_proj") and not s["multi_latent_attention"],
        "'mla_up_proj' is a part of latent attention", "remove it, or multi_latent_attention=true"),
    _Row("distribute_saved_activations",
        lambda s, at: s["distribute_saved_activations"] and not (at.tensor > 1 and _full(s, at)),
        "it distributes what recompute_granularity=full saves over tensor-parallel ranks",
        "tensor_model_parallel_size=2 recompute_granularity=full recompute_method=uniform recompute_num_layers=1, or"
        " remove it"),
    _Row("distribute_saved_activations",
        lambda s, at: s["distribute_saved_activations"] and s["sequence_parallel"] and at.tensor > 1,
        "sequence_parallel distributes them already", "remove it"),
    _Row("tp_comm_overlap", lambda s, at: s["tp_comm_overlap"] and not (s["sequence_parallel"] and at.tensor > 1),
        "it overlaps the communication of sequence parallelism",
        "sequence_parallel=true, with tensor_model_parallel_size above 1; or remove it"),
    _Row("overlap_param_gather", lambda s, _: _on(s, _FSDP, "overlap_param_gather"),
        f"'{_FSDP}' gathers parameters by itself", "overlap_param_gather=false"),
    _Row("overlap_param_gather",
        lambda s, _: s["overlap_param_gather"] and not _on(s, _FSDP) and not (
            _any(s, "use_distributed_optimizer", "use_megatron_fsdp") or s["optimizer"] == "dist_muon"
        ),
        "the optimizer of each rank has all parameters, and gathers none", "use_distributed_optimizer=true"),
    _Row("overlap_param_gather", lambda s, _: s["overlap_param_gather"] and not s["overlap_grad_reduce"],
        "Megatron overlaps both, or the gradients alone", "overlap_grad_reduce=true"),
    _Row("overlap_param_gather_with_optimizer_step",
        lambda s, _: s["overlap_param_gather_with_optimizer_step"] and s["ckpt_format"] != "torch",
        "it cannot save 'ckpt_format: {ckpt_format}'", "ckpt_format=torch, or remove it"),
    _Row("use_distributed_optimizer", lambda s, _: _on(s, _FSDP, "use_distributed_optimizer"),
        f"with '{_FSDP}' each rank has a part of parameters and optimizer already",
        "use_distributed_optimizer=false"),
    _Row("pipeline_model_parallel_size", lambda s, at: _on(s, _FSDP) and at.pipeline > 1,
        f"Megatron has no pipeline with '{_FSDP}'", f"pipeline_model_parallel_size=1, or {_FSDP}=false"),
    _Row("expert_model_parallel_size", lambda s, _: _on(s, _FSDP) and s["expert_model_parallel_size"] > 1,
        f"Megatron has no expert parallelism with '{_FSDP}'", f"expert_model_parallel_size=1, or {_FSDP}=false"),
    _Row(_FSDP, lambda s, _: _on(s, _FSDP) and not s["untie_embeddings_and_output_weights"],
        "it cannot share the embedding with the output layer", "untie_embeddings_and_output_weights=true"),
    _Row(_FSDP, lambda s, _: _on(s, _FSDP, "fp16"), "it does not support fp16", "bf16=true fp16=false"),
    _Row("gradient_accumulation_fusion", lambda s, _: _on(s, _FSDP) and s["gradient_accumulation_fusion"],
        f"Megatron has no such kernel with '{_FSDP}'", "gradient_accumulation_fusion=false"),
    _Row("ckpt_format", lambda s, _: _on(s, _FSDP) and s["ckpt_format"] not in ("torch_dist", "torch_dcp"),
        f"'{_FSDP}' cannot save it", "ckpt_format=torch_dist"),
    _Row("async_save", lambda s, _: s["async_save"] and s["ckpt_format"] == "torch",
        "'ckpt_format: torch' is saved at once, or not at all", "async_save=false, or ckpt_format=torch_dist"),
    _Row("ckpt_format", lambda s, _: s["ckpt_format"] == "torch_dcp" and not _on(s, _FSDP),
        f"Megatron saves it with '{_FSDP}' alone", "ckpt_format=torch_dist"),
    _Row("ckpt_format", lambda s, at: s["ckpt_format"] == "torch_dcp" and max(at.tensor, at.pipeline) > 1,
        "Megatron saves it without tensor and pipeline parallelism alone", "ckpt_format=torch_dist"),
    _Row("ckpt_format", lambda s, _: s["ckpt_format"] == "fsdp_dtensor" and not _on(s, "use_megatron_fsdp"),
        "Megatron saves it with 'use_megatron_fsdp' alone", "ckpt_format=torch_dist"),
    _Row("use_megatron_fsdp", lambda s, _: _on(s, "use_megatron_fsdp") and s["ckpt_format"] != "fsdp_dtensor",
        "its checkpoints have a form of their own, and 'ckpt_format' is {ckpt_format}", "ckpt_format=fsdp_dtensor"),
    _Row("optimizer", lambda s, _: _on(s, "use_megatron_fsdp") and s["optimizer"] not in ("adam", "sgd"),
        "'use_megatron_fsdp' has adam and sgd alone", "optimizer=adam"),
    _Row("use_precision_aware_optimizer",
        lambda s, _: s["use_precision_aware_optimizer"] and not _any(
            s, "use_distributed_optimizer", "use_megatron_fsdp"
        ),
        "Megatron has it as a distributed optimizer alone", "use_distributed_optimizer=true"),
    _Row("use_precision_aware_optimizer",
        lambda s, _: s["use_precision_aware_optimizer"] and s["optimizer"] != "adam",
        "'optimizer' is {optimizer}", "optimizer=adam"),
    *(
        _Row(name, partial(_narrow, name),
            "an optimizer that is not aware of precision keeps it in fp32",
            f"{name}=fp32, or use_precision_aware_optimizer=true use_distributed_optimizer=true")
        for name in _STATE
    ),
    _Row("optimizer", lambda s, _: s["optimizer"] == "sgd" and _on(s, "use_distributed_optimizer"),
        "Megatron distributes the state of Adam, and SGD has none",
        "optimizer=adam, or use_distributed_optimizer=false"),
    _Row("optimizer_cpu_offload",
        lambda s, _: s["optimizer_cpu_offload"] and not s["use_precision_aware_optimizer"],
        "Megatron offloads the precision-aware optimizer alone",
        "use_precision_aware_optimizer=true use_distributed_optimizer=true"),
    _Row("fp8_param_gather",
        lambda s, _: _on(s, "fp8_param_gather") and not _any(
            s, "use_distributed_optimizer", _FSDP, "use_megatron_fsdp"
        ),
        "the optimizer of each rank has all parameters, and gathers none", "use_distributed_optimizer=true"),
    _Row("fp8_param_gather", lambda s, _: _on(s, "fp8_param_gather") and not s["fp8"], "'fp8' is not set",
        "fp8=hybrid, or remove it"),
    _Row("reuse_grad_buf_for_mxfp8_param_ag",
        lambda s, _: _on(s, "reuse_grad_buf_for_mxfp8_param_ag") and not _on(s, "fp8_param_gather"),
        "it gathers parameters of MXFP8, and 'fp8_param_gather' is not set", "remove it"),
    _Row("fp4", lambda s, _: _on(s, "fp4", "fp8"), "'fp8' is set, too", "keep one of them"),
    _Row("fp4_param_gather", lambda s, _: _on(s, "fp4_param_gather") and not s["fp4"], "'fp4' is not set",
        "fp4=e2m1, or remove it"),
    _Row("fp16_lm_cross_entropy", lambda s, _: s["fp16_lm_cross_entropy"] and not s["fp16"],
        "'fp16' is not set", "fp16=true, or remove it"),
    _Row("fp32_residual_connection", lambda s, _: s["fp32_residual_connection"] and not _half(s),
        "all else is fp32, too: neither bf16 nor fp16 is set", "bf16=true, or remove it"),
    _Row("moe_router_padding_for_fp8", lambda s, _: s["moe_router_padding_for_fp8"] and not _any(s, "fp8", "fp4"),
        "'fp8' is not set", "fp8=hybrid, or remove it"),
    _Row("moe_enable_deepep",
        lambda s, _: _on(s, "moe_enable_deepep") and s["moe_token_dispatcher_type"] not in _FLEX,
        "'moe_token_dispatcher_type' is {moe_token_dispatcher_type}", "moe_token_dispatcher_type=flex"),
    _Row("moe_router_enable_expert_bias",
        lambda s, _: s["moe_router_enable_expert_bias"] and s["moe_router_score_function"] == "softmax",
        "softmax scores depend on one another, so that a bias would not act on one expert alone",
        "moe_router_score_function=sigmoid"),
    _Row("moe_router_topk",
        lambda s, _: (
            s["moe_router_topk"] == 1
            and s["moe_router_score_function"] == "softmax"
            and not s["moe_router_pre_softmax"]
            and s["moe_router_load_balancing_type"] not in ("sinkhorn", ["sinkhorn"])
        ),
        "the softmax of a single score is always 1, and the router would not learn", "moe_router_pre_softmax=true"),
    _Row("moe_router_group_topk", lambda s, _: s["moe_router_group_topk"] and not s["moe_router_num_groups"],
        "'moe_router_num_groups' is not set", "set it to a divisor of num_experts"),
    _Row("moe_ffn_hidden_size",
        lambda s, _: s["moe_ffn_hidden_size"] is not None and not s["num_experts"] and not _mixed(s),
        "the model has no experts", "set num_experts, or remove it"),
    _Row("moe_latent_size", lambda s, _: _on(s, "moe_latent_size") and not s["num_experts"],
        "the model has no experts", "set num_experts, or remove it"),
    _Row("moe_pad_expert_input_to_capacity",
        lambda s, _: s["moe_pad_expert_input_to_capacity"] and s["moe_expert_capacity_factor"] is None,
        "'moe_expert_capacity_factor' is not set", "moe_expert_capacity_factor=1.0"),
    _Row("overlap_moe_expert_parallel_comm",
        lambda s, _: _on(s, "overlap_moe_expert_parallel_comm") and s["expert_model_parallel_size"] == 1,
        "all experts are on each rank, and nothing is sent", "expert_model_parallel_size=2, or remove it"),
    _Row("overlap_moe_expert_parallel_comm",
        lambda s, _: _on(s, "overlap_moe_expert_parallel_comm") and not _half(s),
        "Megatron overlaps it in bf16 and fp16 alone", "bf16=true, or remove it"),
    _Row("overlap_moe_expert_parallel_comm",
        lambda s, at: _on(s, "overlap_moe_expert_parallel_comm") and _full(s, at),
        "whole layers are recomputed", "remove recompute_granularity, recompute_method and recompute_num_layers"),
    _Row("overlap_moe_expert_parallel_comm",
        lambda s, _: _on(s, "overlap_moe_expert_parallel_comm", "moe_shared_expert_overlap"),
        "'moe_shared_expert_overlap' overlaps the same communication", "moe_shared_expert_overlap=false"),
    _Row("delay_wgrad_compute",
        lambda s, _: _on(s, "delay_wgrad_compute") and not _on(s, "overlap_moe_expert_parallel_comm"),
        "the gradients wait for the communication of experts", "overlap_moe_expert_parallel_comm=true, or remove it"),
    _Row("group_query_attention", lambda s, _: s["multi_latent_attention"] and s["group_query_attention"],
        "latent attention ('multi_latent_attention') has no groups", "group_query_attention=false"),
    _Row("mla_down_proj_fusion", lambda s, _: _on(s, "mla_down_proj_fusion") and not s["multi_latent_attention"],
        "it is a part of latent attention", "remove it, or multi_latent_attention=true"),
    _Row("load_main_params_from_ckpt",
        lambda s, _: _on(s, "load_main_params_from_ckpt") and not s["no_load_optim"],
        "the optimizer's state would overwrite them", "no_load_optim=true, or remove it"),
    *(
        _Row(name, partial(_is_another_activation, name), "'swiglu' is true, and is another activation",
            "swiglu=false")
        for name in ("squared_relu", "quick_geglu")
    ),
    _Row("position_embedding_type",
        lambda s, _: s["position_embedding_type"] == "mrope" and not s["mrope_section"],
        "'mrope_section' is not set", "position_embedding_type=rope, or set mrope_section"),
    _Row("weight_decay_incr_style",
        lambda s, _: s["weight_decay_incr_style"] != "constant" and None in (
            s["start_weight_decay"], s["end_weight_decay"]
        ),
        "it changes from 'start_weight_decay' to 'end_weight_decay'",
        "start_weight_decay={weight_decay} end_weight_decay=0.1"),
    *(
        _Row(name, partial(_of_no_slope, name),
            "'weight_decay_incr_style' is constant, and 'weight_decay' alone counts",
            f"remove '{name}', or weight_decay_incr_style=linear")
        for name in ("start_weight_decay", "end_weight_decay")
    ),
    _Row("defer_embedding_wgrad_compute", lambda s, at: s["defer_embedding_wgrad_compute"] and at.pipeline == 1,
        "it is for the last stage of a pipeline", "pipeline_model_parallel_size=2, or remove it"),
    *(
        _Row(name, partial(_of_no_stage, name),
            "it is a stage of a pipeline, and there is none", f"remove '{name}'")
        for name in ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
    ),
    _Row("pipeline_model_parallel_layout", _stages_do_not_fit,
        "it begins with E and ends with L, has t for each of num_layers ({num_layers}) and m for each MTP layer, and"
        " stages divided by |, as many as pipeline_model_parallel_size ({pipeline_model_parallel_size}) or a multiple",
        "such as Etttt|tttL for 7 layers on 2 stages"),
    _Row("cpu_offloading_num_layers", lambda s, at: s["cpu_offloading_num_layers"] and at.pipeline > 1,
        "Megatron offloads no activations in a pipeline", "pipeline_model_parallel_size=1, or remove it"),
    _Row("eval_global_batch_size", _evaluation_is_uneven,
        "each data-parallel rank evaluates whole micro-batches of {micro_batch_size}", "take a multiple for each rank"),
    _Row("data_args_path", lambda s, _: _on(s, "data_args_path") and not s["split"],
        "nothing says how much of the data is for training, validation and test", "split=99,1,0"),
    _Row("data_args_path", lambda s, _: _on(s, "data_args_path") and _any(s, *_DATA), "the data are named twice",
        "remove one of them"),
    _Row("split", _is_no_split, "it has three shares at most, of the documents to train, validate and test on",
        "99,1,0, for instance"),
    *(
        _Row(name, partial(_is_no_share, name), "it is a share: at least 0, and below 1", f"{name}={usual}")
        for name, usual in _SHARES.items()
    ),
    _Row("step_batch_size_schedule", lambda s, _: _on(s, "step_batch_size_schedule", "global_batch_size"),
        "'global_batch_size' is set, too", "keep one of them"),
)  # fmt: skip
"""In the order in which they are looked at."""
