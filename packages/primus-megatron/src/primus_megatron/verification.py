"""How `verify` makes small trainings of a Megatron experiment, which it can compare (`primus.verifiers`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from primus_megatron.device import GPU_KERNELS
from primus_megatron.schema import load, shipped
from primus_train.kit.alike import BATCH, alike, batch_of, degrees_of, refuse_remainder
from primus_train.kit.known_difference import KnownDifference
from primus_train.kit.left_out import NO_AXIS, NO_FP8, left_out

if TYPE_CHECKING:
    from primus_train.models.architecture import Architecture

__all__ = ["VERIFIER", "MegatronVerifier"]

_SEQUENCE, _VOCABULARY, _MICRO_BATCH = 128, 512, 2
_KEPT = (
    *("backend_path", "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads"),
    *("group_query_attention", "num_query_groups", "kv_", "q_lora_rank", "qk_", "v_head_dim", "swiglu"),
    *("squared_relu", "quick_geglu", "glu_", "normalization", "norm_epsilon", "layernorm_epsilon"),
    *("apply_layernorm_1p", "position_embedding_type", "untie_", "add_bias_linear", "add_qkv_bias", "num_experts"),
    *("moe_", "multi_latent_attention", "mtp_", "rotary_", "rope_", "use_rope_scaling", "original_max_position"),
    *("beta_fast", "beta_slow", "mscale", "softmax_type", "window_size", "window_attn_skip_freq", "no_rope_freq"),
    *("init_method_std", "final_logit_softcapping", "router_logit_softcapping", "attention_softmax_in_fp32"),
    *("transformer_impl", "scatter_gather", "adam_", "weight_decay", "calculate_per_token_loss", "ddp_average"),
    *("accumulate_allreduce_grads_in_fp32", "apply_residual_connection_post_layernorm", "mamba_", "hybrid_"),
    *("apply_query_key_layer_scaling", "attention_output_gate", "activation_func_clamp_value", "spec", "linear_"),
    *("experimental_attention_variant", "dsa_", "fp32_residual_connection", "layernorm_zero_centered_gamma"),
    *("is_hybrid_model", "apply_wd_to_qk_layernorm"),
)
"""How settings begin that trials have, too: of the model and of Adam."""
_OVERLAPS = ("overlap_grad_reduce", "overlap_param_gather")
"""Those of data parallelism. Trials have them as the experiment has; the second is of the distributed optimizer."""
_SMALL = {
    "num_layers": 4, "hidden_size": 64, "ffn_hidden_size": 128, "num_attention_heads": 4, "kv_channels": 16,
    "q_lora_rank": 32, "kv_lora_rank": 32, "qk_head_dim": 16, "qk_pos_emb_head_dim": 8, "v_head_dim": 16,
    "num_experts": 4, "moe_ffn_hidden_size": 64, "moe_router_topk": 2, "moe_shared_expert_intermediate_size": 64,
    "moe_router_num_groups": 2, "moe_router_group_topk": 1, "mtp_num_layers": 1,
}  # fmt: skip
"""The most of each in a small model."""
_DECAY = 10.0
"""So much that an update without it differs by more than rounding."""
_TRIAL: dict[str, Any] = {
    "mock_data": True, "vocab_size": _VOCABULARY, "make_vocab_size_divisible_by": 128, "seq_length": _SEQUENCE,
    "max_position_embeddings": _SEQUENCE, "micro_batch_size": _MICRO_BATCH, "bf16": False, "fp16": False,
    "hidden_dropout": 0.0, "attention_dropout": 0.0, "optimizer": "adam", "clip_grad": 1e30,
    "lr_decay_style": "constant", "lr_warmup_iters": 0, "save_interval": 1, "use_distributed_optimizer": False,
    "dist_ckpt_optim_fully_reshardable": True, "eval_iters": 0, "log_interval": 1, "auto_continue_train": False,
    "disable_tensorboard": True, "gradient_accumulation_fusion": False,
}  # fmt: skip
_AXES = {
    "tp": "tensor_model_parallel_size",
    "sp": "sequence_parallel",
    "pp": "pipeline_model_parallel_size",
    "vpp": "num_virtual_stages_per_pipeline_rank",
    "cp": "context_parallel_size",
    "dp": "",
    "ep": "expert_model_parallel_size",
    "zero": "use_distributed_optimizer",
    "mbs": "micro_batch_size",
    "recompute": "recompute_granularity",
    "repeat": "",
}
_OWN = ("ep", "tp", "sp", "pp", "vpp", "cp", "zero")
_SWITCHES = ("sp", "zero")
_LAYOUT = {
    "recompute_granularity": "recompute=1 computes all activations again",
    r"recompute_(activations|modules|layer_ids)|cpu_offloading_num_layers|fine_grained_activation_offloading": NO_AXIS,
    r"use_(megatron|torch|custom)_fsdp\w*|use_fsdp2_\w+|(outer_dp|data_parallel)_sharding_strategy": NO_AXIS,
    r"enable_full_sharding_in_hsdp|num_distributed_optimizer_instances|data_parallel_replicate_degree": NO_AXIS,
    r"expert_tensor_parallel_size|decoder_\w*pipeline_\w+|pipeline_model_parallel_layout|account_for_\w+": NO_AXIS,
    r"microbatch_group_size_per_vp_stage|\w+_zero_bubble|zero_bubble_v_schedule|patch_primus_pipeline": NO_AXIS,
    r"encoder_\w+_parallel_size|pipeline_model_parallel_split_rank|hybrid_context_parallel|pp_algorithm": NO_AXIS,
    r"hierarchical_context_parallel_sizes|cp_comm_type|overlap_\w+|tp_comm_overlap|delay_wgrad_compute": NO_AXIS,
    r"defer_embedding_wgrad_compute|optimizer_cpu_offload|use_tp_pp_dp_mapping": NO_AXIS,
    "fp8|fp4": NO_FP8,
}
"""Settings that decide how ranks share the work, by patterns, and why trials do not have them."""
_STATE = "optimizer.state."
_KINDS = {"exp_avg": "first moment", "exp_avg_sq": "second moment"}
_STACKED = re.compile(r"(.*\blayers)\.(?!\d)(.+)")
_EXPERTS = re.compile(r"(.*\bexperts)\.((?:linear|weight).+)")
_BY_MICRO_BATCH = ("aux_loss", "global_aux_loss", "sinkhorn")
"""Ways to balance experts that need all tokens of a micro-batch; `seq_aux_loss` needs those of a sequence."""
_LAYER = re.compile(r"decoder\.layers\.(\d+)\.")
_BY_TOKEN = ("embedding.word_embeddings.weight", "output_layer.weight")
"""Padded to a multiple."""
_NEUTRAL = {
    "embedding.word_embeddings.weight": "embed_tokens.weight", "output_layer.weight": "lm_head.weight",
    "decoder.final_layernorm.weight": "norm.weight", "input_layernorm.weight": "input_layernorm.weight",
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight", "mlp.router.weight": "mlp.gate.weight",
}  # fmt: skip
"""Weights of a Llama, Qwen or Mixtral, in a layer and outside, that are one."""
_LATENT = {
    "self_attention.linear_q_proj.weight": "self_attn.q_proj.weight",
    "self_attention.linear_q_down_proj.weight": "self_attn.q_a_proj.weight",
    "self_attention.linear_q_up_proj.weight": "self_attn.q_b_proj.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_a_layernorm.weight",
    "self_attention.linear_q_up_proj.layer_norm_weight": "self_attn.q_a_layernorm.weight",
    "self_attention.linear_kv_down_proj.weight": "self_attn.kv_a_proj_with_mqa.weight",
    "self_attention.linear_kv_up_proj.weight": "self_attn.kv_b_proj.weight",
    "self_attention.kv_layernorm.weight": "self_attn.kv_a_layernorm.weight",
    "self_attention.linear_kv_up_proj.layer_norm_weight": "self_attn.kv_a_layernorm.weight",
}
"""Weights of DeepSeek's latent attention."""
_MLP = re.compile(r"(mlp|mlp\.shared_experts|mlp\.experts\.experts\.\d+)\.linear_fc([12])\.weight")
_BALANCE = "mlp.router.expert_bias"
"""Zero at the start, in every framework; a rule moves it, and no gradient."""
Kind = Literal["weight", "first moment", "second moment"]
Array = TypeVar("Array")


class MegatronVerifier:
    """See `primus_verify.contract.Verifier`."""

    format = "torch"
    imports = (
        "torch", "torch._inductor.compile_fx", "torch.distributed._tensor", "torch._dynamo.repro.after_dynamo",
        "torch.distributed.checkpoint", "torch.utils.tensorboard", "wandb", "triton",
    )  # fmt: skip
    rank_axes = ("dp", "tp", "pp", "cp")
    layouts = (
        "repeat=1", "dp=2", "dp=2,zero=1", "tp=2", "tp=2,sp=1", "pp=2", "pp=2,vpp=2", "cp=2", "dp=2,ep=2", "mbs=1",
        "recompute=1", "tp=2,pp=2", "tp=2,sp=1,dp=2,zero=1", "tp=2,sp=1,mbs=1", "pp=2,dp=2", "tp=2,sp=1,pp=2",
        "dp=4,zero=1",
    )  # fmt: skip
    known_differences = (
        KnownDifference(
            *("tp", r"\.linear_kv_down_proj\.weight$", r"\.linear_kv_down_proj\."),
            "latent attention with Megatron's own layers: the gradient of the rotary part of the keys is not summed "
            "over tensor ranks (NVIDIA/Megatron-LM#1699)",
        ),
    )

    def packages(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return Megatron, or the folder that `backend_path` names, this package, and that of a layer specification."""
        spec = {**(settings.get("model") or {}), **settings}.get("spec") or ()
        own = (spec if isinstance(spec, str) else str(next(iter(spec), ""))).partition(".")[0]
        backend = str(settings.get("backend_path") or "megatron")
        return (backend, "primus_megatron", *([own] if own not in ("", "megatron") else ()))

    def experiment(
        self, settings: Mapping[str, Any], *, shrink: bool, layouts: Sequence[Mapping[str, int]], device: str
    ) -> dict[str, Any]:
        """Return the settings of a trial; a model's settings are among all others."""
        flat = {**(settings.get("model") or {}), **{k: v for k, v in settings.items() if k not in ("model", "data")}}
        absent = GPU_KERNELS if device == "cpu" else ()
        kept = {name: value for name, value in flat.items()
                if name.startswith(_KEPT) and value is not None and name not in absent}  # fmt: skip
        kept |= {"optimizer": "adam", **{name: bool(flat.get(name)) for name in _OVERLAPS}}
        whole = {} if shrink or not flat.get("vocab_size") else {"vocab_size": flat["vocab_size"]}
        length = math.lcm(_SEQUENCE * math.lcm(*degrees_of(layouts, "cp")), *degrees_of(layouts, "cp", "tp"))
        return {**(_small(kept, layouts) if shrink else kept), **_TRIAL, **whole,
                "global_batch_size": self.batch(layouts), "weight_decay": _DECAY, "seq_length": length,
                "max_position_embeddings": length}  # fmt: skip

    def own(self, settings: Mapping[str, Any]) -> dict[str, int]:
        """Return the experiment's degrees; the rest is replicated data parallelism."""
        flat = {**(settings.get("model") or {}), **settings}
        degrees = {
            axis: int(flat.get(_AXES[axis]) or 1) for axis in _OWN if axis not in _SWITCHES or flat.get(_AXES[axis])
        }
        if degrees["pp"] > 1 and (chunk := flat.get("num_layers_per_virtual_pipeline_stage")):
            degrees["vpp"] = int(flat["num_layers"]) // (degrees["pp"] * int(chunk))
        if flat.get("micro_batch_size") == 1 and not self.by_micro_batch(flat):
            degrees["mbs"] = 1
        if flat.get("recompute_granularity") == "full":
            degrees["recompute"] = 1
        return {**degrees, "dp": 2}

    def unexpressed(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Return what no axis stands for."""
        flat = {**(settings.get("model") or {}), **settings}
        if flat.get("recompute_granularity") == "full":
            del flat["recompute_granularity"]
        if flat.get("expert_tensor_parallel_size") == flat.get("tensor_model_parallel_size", 1):
            flat.pop("expert_tensor_parallel_size", None)  # as it is by default
        tried = _OVERLAPS if flat.get(_AXES["zero"]) else _OVERLAPS[:1]
        options = load(list(shipped().values())[-1]).options
        why = self.by_micro_batch(flat) if flat.get("micro_batch_size") == 1 else ""
        return ({"micro_batch_size=1": why} if why else {}) | left_out(
            flat, _LAYOUT, options, lambda name: name.startswith(_KEPT) or name in tried
        )

    def by_micro_batch(self, experiment: Mapping[str, Any]) -> str:
        """Return the setting of experts whose result is one of each micro-batch (Megatron's `moe_utils.py`)."""
        flat = {**(experiment.get("model") or {}), **experiment}
        kinds = _listed(flat.get("moe_router_load_balancing_type") or "aux_loss")
        weights = dict(zip(kinds, _listed(flat.get("moe_aux_loss_coeff") or 0.0), strict=False)) | {"sinkhorn": 1.0}
        by_batch = {kind for kind in kinds if kind in _BY_MICRO_BATCH and weights.get(kind)}
        found = [f"moe_router_load_balancing_type: {kind}" for kind in sorted(by_batch)]
        found += ["moe_expert_capacity_factor"] if flat.get("moe_expert_capacity_factor") else []
        return f"{found[0]} is computed within each micro-batch" if found and flat.get("num_experts") else ""

    def batch(self, layouts: Sequence[Mapping[str, int]]) -> int:
        """Return the global batch size."""
        return batch_of(layouts, _sequences)

    def settings(self, layout: Mapping[str, int], batch: int = BATCH) -> dict[str, Any]:
        """Return the settings of a layout."""
        if unknown := [axis for axis in layout if axis not in _AXES]:
            raise ValueError(f"Megatron has no setting for {', '.join(unknown)}")
        refuse_remainder(batch, _sequences(layout))
        words: dict[str, Any] = {_AXES[axis]: degree for axis, degree in layout.items() if _AXES[axis]}
        words |= {_AXES[axis]: bool(layout[axis]) for axis in _SWITCHES if axis in layout}
        if not layout.get("zero"):
            words["overlap_param_gather"] = False
        if "recompute" in layout:
            words |= {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        return words

    def steps(self, count: int, *, rate: float) -> dict[str, Any]:
        """Return the settings for `count` steps."""
        return {"train_iters": count, "lr": rate, "min_lr": rate}

    def seed(self, number: int) -> dict[str, Any]:
        """Return the settings of another seed."""
        return {"seed": number}

    def start(self, checkpoint: str) -> dict[str, Any]:
        """Return the settings to begin with the weights of a checkpoint: Megatron names the folder of all of them."""
        return {"load": checkpoint.rpartition("/")[0], "finetune": True, "no_load_optim": True, "no_load_rng": True}

    def checkpoint(self, run: str, step: int) -> str:
        """Return where Megatron saves a step."""
        return f"{run}/checkpoints/iter_{step:07d}"

    def same_tokens(self, length: int) -> dict[str, Any]:
        """Return the settings to train on the section `data`."""
        return {"mock_data": None, "seq_length": length, "max_position_embeddings": length}

    def neutral(self, name: str, weight: Array, model: Architecture) -> Iterator[tuple[str, Array, float]]:
        """Return the weights under Hugging Face's names. Queries, keys and values of a group stand together."""
        value: Any = weight
        layer = _LAYER.match(name)
        before, rest = (f"layers.{layer[1]}.", name[layer.end() :]) if layer else ("", name)
        if rest.startswith("self_attention.linear_qkv.") and "norm" not in rest:
            groups = value.reshape(model.num_kv_heads, -1, *value.shape[1:])
            ends = (groups.shape[1] - 2 * model.head_dim, groups.shape[1] - model.head_dim)
            parts = (groups[:, : ends[0]], groups[:, ends[0] : ends[1]], groups[:, ends[1] :])
            for letter, part in zip("qkv", parts, strict=True):
                yield f"{before}self_attn.{letter}_proj.{rest[26:]}", part.reshape(-1, *value.shape[1:]), 1.0
        elif mlp := _MLP.fullmatch(rest):
            inside = before + mlp[1].replace("experts.experts", "experts")
            half = len(value) // 2
            for what, part in (("gate", value[:half]), ("up", value[half:])) if mlp[2] == "1" else (("down", value),):
                yield f"{inside}.{what}_proj.weight", part, 1.0
        elif rest != _BALANCE:
            neutral = (_LATENT if model.mla else {}).get(rest) or _NEUTRAL[rest]
            yield before + neutral, value[: model.vocab_size] if rest in _BY_TOKEN else value, 1.0

    def tensors(self, stored: Mapping[str, Array]) -> Iterator[tuple[Kind, str, Array]]:
        """Return weights and moments; equal layers, and experts, are stored as one array with an axis of them."""
        for name, array in stored.items():
            kind, _, rest = name.removeprefix(_STATE).partition(".") if name.startswith(_STATE) else ("", "", name)
            if kind in _KINDS or not name.startswith("optimizer."):
                yield from _taken_apart(_KINDS.get(kind, "weight"), rest, array)  # type: ignore[arg-type]


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given]


def _sequences(layout: Mapping[str, int]) -> int:
    """Of which a layout needs a multiple in a step. With virtual stages, micro-batches come in groups of stages."""
    stages = layout.get("pp", 1) if "vpp" in layout else 1
    return layout.get("dp", 1) * layout.get("mbs", _MICRO_BATCH) * stages


def _taken_apart(kind: Kind, name: str, array: Any) -> Iterator[tuple[Kind, str, Any]]:
    for pattern in (_STACKED, _EXPERTS):
        if (found := pattern.fullmatch(name)) and array.ndim > 1:
            for number in range(len(array)):
                yield from _taken_apart(kind, f"{found[1]}.{number}.{found[2]}", array[number])
            return
    yield kind, name, array


def _small(kept: Mapping[str, Any], layouts: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """Return the settings with smaller numbers. Grouped heads, dense first layers and groups of experts stay.

    Layouts divide layers, heads and experts as they divide those of the model.
    """
    small = {name: min(value, _SMALL[name]) if name in _SMALL else value for name, value in kept.items()}
    tensor, stages = degrees_of(layouts, "tp"), degrees_of(layouts, "pp", "vpp")
    heads, groups = kept.get("num_attention_heads") or 4, kept.get("num_query_groups")
    small["num_layers"] = alike(kept.get("num_layers") or 4, max([4, *stages]), stages | degrees_of(layouts, "pp"))
    shared = alike(groups, 4 if groups == heads else 2, tensor) if groups is not None else 1
    # heads that are as many as their groups have one each
    small["num_attention_heads"] = shared if groups == heads else alike(heads, 4, tensor, shared)
    small["hidden_size"] = 16 * small["num_attention_heads"]
    if groups is not None:
        small["num_query_groups"] = shared
    if "ffn_hidden_size" in kept:
        small["ffn_hidden_size"] = alike(kept["ffn_hidden_size"], 128, tensor)
    if kept.get("num_experts"):
        small["num_experts"] = alike(kept["num_experts"], 4, degrees_of(layouts, "ep"))
    if not isinstance(kept.get("moe_layer_freq", 1), int):
        small["moe_layer_freq"] = f"([0]*1+[1]*{small['num_layers'] - 1})"
    if isinstance(kept.get("window_size"), list):
        small["window_size"] = [min(side, _SEQUENCE // 4) for side in kept["window_size"]]
    return small


VERIFIER = MegatronVerifier()
