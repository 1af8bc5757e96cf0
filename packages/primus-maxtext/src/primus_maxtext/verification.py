"""How `verify` makes small trainings of a MaxText experiment, which it can compare (`primus.verifiers`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from primus_maxtext.schema import load, shipped
from primus_train.kit.alike import BATCH, alike, batch_of, degrees_of, refuse_remainder
from primus_train.kit.left_out import NO_AXIS, NO_FP8, left_out
from primus_train.kit.neutral import in_halves

if TYPE_CHECKING:
    from primus_train.models.architecture import Architecture

__all__ = ["VERIFIER", "MaxTextVerifier"]

_SEQUENCE, _VOCABULARY = 128, 512
_SEED = 1234
"""Of the order of samples, as the other frameworks have it by default."""
_KEPT = (
    *("decoder_block", "base_", "head_dim", "global_", "local_", "mlp_activations", "mlp_bias", "attention_bias"),
    *("attention_sink", "attention_type", "attn_logits_soft_cap", "final_logits_soft_cap", "num_experts"),
    *("shared_experts", "first_num_dense_layers", "routed_", "n_routing_groups", "topk_routing_group"),
    *("norm_topk_prob", "q_lora_rank", "kv_lora_rank", "qk_", "v_head_dim", "rope_", "mscale", "use_qk_norm"),
    *("use_post_", "logits_via_embedding", "normalize_embedding_logits", "normalization_layer_epsilon"),
    *("nope_layer_interval", "sliding_window_size", "chunk_attn_window_size", "inhomogeneous_layer_cycle_interval"),
    *("interleave_moe", "mtp_num_layers", "load_balance_loss_weight", "adam_", "original_max_position"),
    *("beta_fast", "beta_slow"),
)
"""How settings begin that trials have, too: of the model and of Adam."""
_SMALL = {
    "base_emb_dim": 64, "base_mlp_dim": 128, "base_moe_mlp_dim": 64, "base_num_query_heads": 4, "head_dim": 16,
    "num_experts": 4, "num_experts_per_tok": 2, "first_num_dense_layers": 1, "q_lora_rank": 32,
    "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "mtp_num_layers": 1,
    "n_routing_groups": 2, "topk_routing_group": 1, "sliding_window_size": 32, "chunk_attn_window_size": 32,
}  # fmt: skip
"""The most of each in a small model."""
_LAYERS = {"gemma3": 6, "gemma4": 6}
"""The least of a block that repeats a pattern; elsewhere 4."""
_DECAY = 10.0
"""So much that an update without it differs by more than rounding."""
_TRIAL: dict[str, Any] = {
    "dtype": "float32", "weight_dtype": "float32", "vocab_size": _VOCABULARY, "max_target_length": _SEQUENCE,
    "dataset_type": "synthetic", "enable_dropout": False, "gradient_clipping_threshold": 0.0, "opt_type": "adamw",
    "warmup_steps_fraction": 0.0, "learning_rate_final_fraction": 1.0, "remat_policy": "full",
    "enable_checkpointing": True, "async_checkpointing": False, "save_checkpoint_on_start": True,
    "checkpoint_period": 1, "max_num_checkpoints_to_keep": 100, "eval_interval": -1, "auto_continue_train": False,
    "gradient_accumulation_steps": 1,
}  # fmt: skip
_AXES = {
    "dp": "ici_data_parallelism",
    "fsdp": "ici_fsdp_parallelism",
    "tp": "ici_tensor_parallelism",
    "cp": "ici_context_parallelism",
    "ep": "ici_expert_parallelism",
    "mbs": "gradient_accumulation_steps",
    "repeat": "",
}
_MESH = ("dp", "fsdp", "tp", "cp", "ep")
_LAYOUT = {
    "remat_policy": "trials compute all activations again (full)",
    r"(ici|dcn)_\w+_parallelism|num_slices|shard_\w+|\w*fsdp_\w+|use_2d_fsdp_sharding|use_ring_of_experts": NO_AXIS,
    r"\w*pipeline_\w+|\w+_per_pipeline_stage|scan_layers_per_stage|enable_diloco|use_batch_split_schedule": NO_AXIS,
    r"custom_mesh\w*|mesh_axes|\w*logical_axis_rules|data_sharding|context_parallel_\w+|context_sharding": NO_AXIS,
    r"\w+_memory_host_offload|use_ulysses\w*": NO_AXIS,
    "quantization|use_qwix_quantization": NO_FP8,
}
"""Settings that decide how devices share the work, by patterns, and why trials do not have them."""
_MOMENT = re.compile(r"opt_state(?:\.\d+)*\.(mu|nu)\.(?:params\.)?(.+)")
_WEIGHT = re.compile(r"params\.(?:params\.)?(.+)")
_KINDS = {"mu": "first moment", "nu": "second moment"}
_STACKED = re.compile(r"(.*\b(?:\w*layers(?:_\d+)?|blocks?))\.(?!\d)(.+)")
_EXPERTS = re.compile(r"(.*\b(?:MoeBlock\w*|moe_block))\.(w[io]\w*)")
_LAYER = re.compile(r"decoder\.(layers|dense_layers|moe_layers)\.(\d+)\.")
_HEADS = tuple(f"self_attention.{what}.{kind}" for what in ("query", "key", "value") for kind in ("kernel", "bias"))
_BLOCK = re.compile(r"(?:DeepSeekMoeBlock_0\.)?(?:MoeBlock_0|moe_block)\.|DeepSeekMoeBlock_0\.")
_EXPERT = re.compile(rf"(?:{_BLOCK.pattern})experts\.(\d+)\.(\w+)")
_GATED = {"wi_0": "gate_proj.weight", "wi_1": "up_proj.weight", "wo": "down_proj.weight"}
_NEUTRAL = {
    "token_embedder.embedding": "embed_tokens.weight", "decoder.logits_dense.kernel": "lm_head.weight",
    "decoder.decoder_norm.scale": "norm.weight", "pre_self_attention_layer_norm.scale": "input_layernorm.weight",
    "post_self_attention_layer_norm.scale": "post_attention_layernorm.weight",
    "self_attention.query_norm.scale": "self_attn.q_norm.weight",
    "self_attention.key_norm.scale": "self_attn.k_norm.weight", "mlp.wi_0.kernel": "mlp.gate_proj.weight",
    "mlp.wi_1.kernel": "mlp.up_proj.weight", "mlp.wo.kernel": "mlp.down_proj.weight",
    "gate.kernel": "mlp.gate.weight", "shared_experts.wi_0.kernel": "mlp.shared_experts.gate_proj.weight",
    "shared_experts.wi_1.kernel": "mlp.shared_experts.up_proj.weight",
    "shared_experts.wo.kernel": "mlp.shared_experts.down_proj.weight",
    "self_attention.wq_a.kernel": "self_attn.q_a_proj.weight",
    "self_attention.wq_b.kernel": "self_attn.q_b_proj.weight",
    "self_attention.q_norm.scale": "self_attn.q_a_layernorm.weight",
    "self_attention.wkv_a.kernel": "self_attn.kv_a_proj_with_mqa.weight",
    "self_attention.wkv_b.kernel": "self_attn.kv_b_proj.weight",
    "self_attention.kv_norm.scale": "self_attn.kv_a_layernorm.weight",
}  # fmt: skip
"""Weights of a Llama, Qwen, Mixtral or DeepSeek, in a layer and outside."""
Kind = Literal["weight", "first moment", "second moment"]
Array = TypeVar("Array")


class MaxTextVerifier:
    """See `primus_verify.contract.Verifier`."""

    format = "orbax"
    imports = (
        "jax", "transformers", "tokamax", "flax.nnx", "jax.experimental.pallas.tpu", "grain", "optax",
        "orbax.checkpoint", "sympy",
    )  # fmt: skip
    rank_axes = _MESH
    layouts = (
        "repeat=1", "fsdp=2", "dp=2", "tp=2", "cp=2", "ep=2", "mbs=1", "fsdp=2,tp=2", "dp=2,fsdp=2", "fsdp=2,cp=2",
        "fsdp=2,ep=2", "fsdp=4",
    )  # fmt: skip
    known_differences = ()

    def packages(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return MaxText and this package."""
        del settings
        return ("maxtext", "primus_maxtext")

    def experiment(
        self, settings: Mapping[str, Any], *, shrink: bool, layouts: Sequence[Mapping[str, int]], device: str
    ) -> dict[str, Any]:
        """Return the settings of a trial; a model's settings are among all others."""
        del device
        flat = {**(settings.get("model") or {}), **{k: v for k, v in settings.items() if k not in ("model", "data")}}
        kept = {name: value for name, value in flat.items() if name.startswith(_KEPT) and value is not None}
        whole = {} if shrink or not flat.get("vocab_size") else {"vocab_size": flat["vocab_size"]}
        length = _SEQUENCE * math.lcm(*degrees_of(layouts, "cp"))
        return {**(_small(kept, layouts) if shrink else kept), **_TRIAL, **whole,
                "adam_weight_decay": _DECAY, "max_target_length": length}  # fmt: skip

    def own(self, settings: Mapping[str, Any]) -> dict[str, int]:
        """Return the experiment's degrees, within and between nodes; a rest (-1) counts as two.

        The rest is sharded data parallelism by default.
        """
        found: dict[str, int] = {}
        for axis in _MESH:
            inside = settings.get(_AXES[axis]) or (-1 if axis == "fsdp" else 1)
            across = settings.get(_AXES[axis].replace("ici_", "dcn_")) or 1
            found[axis] = math.prod(2 if degree == -1 else int(degree) for degree in (inside, across))
        if int(settings.get("gradient_accumulation_steps") or 1) > 1:
            found["mbs"] = 2
        return found

    def unexpressed(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Return what no axis stands for."""
        axes = {name for axis in _MESH for name in (_AXES[axis], _AXES[axis].replace("ici_", "dcn_"))}
        flat = {**(settings.get("model") or {}), **settings}
        # -1: what is left of the devices, if any are
        flat = {name: value for name, value in flat.items() if not (name.endswith("_parallelism") and value in (1, -1))}
        return left_out(flat, _LAYOUT, load(list(shipped().values())[-1]).options, axes.__contains__)

    def batch(self, layouts: Sequence[Mapping[str, int]]) -> int:
        """Return the sequences of all devices in a step; the setting is that of one device."""
        return batch_of(layouts, _sequences)

    def settings(self, layout: Mapping[str, int], batch: int = BATCH) -> dict[str, Any]:
        """Return the settings of a layout."""
        if unknown := [axis for axis in layout if axis not in _AXES]:
            raise ValueError(f"verify cannot try {', '.join(unknown)} with MaxText")
        refuse_remainder(batch, _sequences(layout))
        devices = math.prod(layout.get(axis, 1) for axis in _MESH)
        words: dict[str, Any] = {_AXES[axis]: layout.get(axis, 1) for axis in _MESH}
        words["per_device_batch_size"] = batch / devices
        if "mbs" in layout:
            micro_batches = batch // (layout["mbs"] * _data_ranks(layout))
            words |= {_AXES["mbs"]: micro_batches, "per_device_batch_size": batch / devices / micro_batches}
        return words

    def steps(self, count: int, *, rate: float) -> dict[str, Any]:
        """Return the settings for `count` steps."""
        return {"steps": count, "learning_rate": rate}

    def seed(self, number: int) -> dict[str, Any]:
        """Return the settings of another seed."""
        return {"init_weights_seed": number, "data_shuffle_seed": number}

    def start(self, checkpoint: str) -> dict[str, Any]:
        """Return the settings to begin with the weights of a checkpoint."""
        return {"load_parameters_path": checkpoint}

    def checkpoint(self, run: str, step: int) -> str:
        """Return where MaxText saves a step: it counts from 0."""
        return f"{run}/checkpoints/{step - 1}/items"

    def same_tokens(self, length: int) -> dict[str, Any]:
        """Return the settings to train on the section `data`."""
        return {"dataset_type": None, "max_target_length": length, "data_shuffle_seed": _SEED,
                "normalize_embedding_logits": False}  # fmt: skip

    def neutral(self, name: str, weight: Array, model: Architecture) -> Iterator[tuple[str, Array, float]]:
        """Return the weight under Hugging Face's name, with rows for outputs.

        MaxText divides queries by the root of the head's size once, in their weights, if they have no norm and no bias.
        Llama 3.1's rotary embedding has its pairs as neighbours.
        """
        value: Any = weight
        layer = _LAYER.match(name)
        before, rest = (_layer(layer, model), name[layer.end() :]) if layer else ("", name)
        letter = rest.removeprefix("self_attention.")[:1]
        if rest.endswith(_HEADS):
            value = value.reshape(-1) if rest.endswith("bias") else value.reshape(len(value), -1).T
            if letter in "qk" and model.rope_scaling and model.rope_scaling.rope_type == "llama3":
                value = in_halves(value, model.head_dim)
            is_divided = letter == "q" and model.qk_norm == "none" and not (model.mla or model.qkv_bias)
            kind = "bias" if rest.endswith("bias") else "weight"
            yield f"{before}self_attn.{letter}_proj.{kind}", value, math.sqrt(model.head_dim) if is_divided else 1.0
        elif rest == "self_attention.out.kernel":
            yield f"{before}self_attn.o_proj.weight", value.reshape(-1, value.shape[-1]).T, 1.0
        elif expert := _EXPERT.fullmatch(rest):
            yield f"{before}mlp.experts.{expert[1]}.{_GATED[expert[2]]}", value.T, 1.0
        else:
            turned = value.reshape(len(value), -1).T if rest.endswith("kernel") else value
            yield before + (_NEUTRAL.get(rest) or _NEUTRAL[_BLOCK.sub("", rest)]), turned, 1.0

    def tensors(self, stored: Mapping[str, Array]) -> Iterator[tuple[Kind, str, Array]]:
        """Return weights and moments; layers of one kind are stored as one array, whose second axis they are."""
        for name, array in stored.items():
            moment, weight = _MOMENT.fullmatch(name), _WEIGHT.fullmatch(name)
            if moment:
                yield from _taken_apart(_KINDS[moment[1]], moment[2], array)  # type: ignore[arg-type]
            elif weight:
                yield from _taken_apart("weight", weight[1], array)


def _data_ranks(layout: Mapping[str, int]) -> int:
    return math.prod(layout.get(axis, 1) for axis in ("dp", "fsdp", "ep"))


def _sequences(layout: Mapping[str, int]) -> int:
    """Of which a layout needs a multiple in a step; with `mbs`, at least two micro-batches."""
    return math.prod(layout.get(axis, 1) for axis in _MESH) * (2 * layout["mbs"] if "mbs" in layout else 1)


def _layer(found: re.Match[str], model: Architecture) -> str:
    """The neutral name of a layer: those with experts are counted after the dense ones."""
    dense = model.moe.first_k_dense if model.moe and found[1] == "moe_layers" else 0
    return f"layers.{int(found[2]) + dense}."


def _taken_apart(kind: Kind, name: str, array: Any) -> Iterator[tuple[Kind, str, Any]]:
    if (found := _STACKED.fullmatch(name)) and array.ndim > 1:
        for number in range(array.shape[1]):
            yield from _taken_apart(kind, f"{found[1]}.{number}.{found[2]}", array[:, number])
    elif (found := _EXPERTS.fullmatch(name)) and array.ndim > 1:
        for number in range(len(array)):
            yield kind, f"{found[1]}.experts.{number}.{found[2]}", array[number]
    else:
        yield kind, name, array


def _small(kept: Mapping[str, Any], layouts: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """Return the settings with smaller numbers; -1 and 0 mean none, and stay.

    Layouts divide heads and experts as they divide those of the model.
    """
    small = {name: min(value, _SMALL[name]) if name in _SMALL else value for name, value in kept.items()}
    small["base_num_decoder_layers"] = _LAYERS.get(str(kept.get("decoder_block")), 4)
    if kept.get("base_mlp_dim") == kept.get("base_moe_mlp_dim"):
        small["base_mlp_dim"] = _SMALL["base_moe_mlp_dim"]
    tensor, experts = degrees_of(layouts, "tp"), kept.get("num_experts") or 1
    heads, groups = kept.get("base_num_query_heads"), kept.get("base_num_kv_heads")
    shared = alike(groups, 4 if groups == heads else 2, tensor) if groups else 1
    if heads:
        small["base_num_query_heads"] = shared if groups == heads else alike(heads, 4, tensor, shared)
    if groups:
        small["base_num_kv_heads"] = shared
    if experts > 1:
        small["num_experts"] = alike(experts, 4, degrees_of(layouts, "ep"))
    return small


VERIFIER = MaxTextVerifier()
