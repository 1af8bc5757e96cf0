"""Settings that MaxText refuses one beside the other, as rows: it would say so on every node, after the queue."""

from __future__ import annotations

from primus_maxtext.layout import Layout
from primus_maxtext.settings import Settings
from primus_train.kit.contradictions import Contradiction

__all__ = ["CONTRADICTIONS"]

_UNSCALED = ("fp8", "nanoo_fp8", "fp8_gpu", "te_fp8_delayedscaling")
_MUON = (
    "deepseek", "deepseek4", "qwen3", "qwen3_moe", "qwen3_custom_moe", "qwen3_next", "gpt_oss", "gemma3", "llama2",
)  # fmt: skip
_BY_QWIX = ("fp4", "int4", "fp8_e5m2", "fp8_e4m3", "fp8_nanoo", "fp8_gpu", "fp8_full")
_CYCLES = ("llama4", "gpt_oss", "olmo3", "qwen3_5", "envy")
"""Whose layers differ in turn: a cycle of them is built at once, and the rest left out."""


def _is_cut(s: Settings) -> bool:
    cycle = s["inhomogeneous_layer_cycle_interval"]
    return s["scan_layers"] and s["decoder_block"] in _CYCLES and s["base_num_decoder_layers"] % cycle


def _microbatches(s: Settings, layout: Layout) -> int:
    """In a pipeline; MaxText's own number is one for each stage."""
    stages = layout.sizes["pipeline"]
    twice = 2 if s["pipeline_delay_activation_forwarding"] else 1
    return stages * twice if s["num_pipeline_microbatches"] == -1 else int(s["num_pipeline_microbatches"])


def _sequences(s: Settings, layout: Layout) -> int:
    return int(s["per_device_batch_size"] * layout.devices)


def _tokens(s: Settings) -> float:
    """Of a device, in a step. A part of a token is a batch that is refused elsewhere."""
    return float(s["per_device_batch_size"] * s["max_target_length"])


def _piped(layout: Layout) -> bool:
    return layout.sizes["pipeline"] > 1


def _experts_everywhere(s: Settings) -> bool:
    only = s["interleave_moe_layer_step"] == 1 and s["inhomogeneous_layer_cycle_interval"] == 1
    return only and s["num_experts"] > 1 and not s["first_num_dense_layers"]


def _lacks_tokenizer(s: Settings) -> bool:
    words = s["dataset_type"] in ("hf", "tfds") or s["grain_file_type"] in ("arrayrecord", "tfrecord", "parquet")
    return words and s["dataset_type"] != "synthetic" and s["tokenize_train_data"] and not s["tokenizer_path"]


def _needs_plain_attention(s: Settings) -> bool:
    plain = s["attention"] == "dot_product" or (s["attention"] == "flash" and s["use_tokamax_splash"])
    return not plain and (s["decoder_block"] == "deepseek4" or (s["use_indexer"] and s["attention_type"] == "mla"))


CONTRADICTIONS: tuple[Contradiction[Settings, Layout], ...] = (
    Contradiction(
        "max_num_checkpoints_to_keep",
        lambda s, _: s["enable_checkpointing"] and s["max_num_checkpoints_to_keep"] == 0,
        "MaxText would remove each checkpoint at once",
        "max_num_checkpoints_to_keep=1, or enable_checkpointing=false",
    ),
    Contradiction(
        "gradient_accumulation_steps",
        lambda s, _: s["gradient_accumulation_steps"] > 1 and s["quantization"] in _UNSCALED,
        "MaxText accumulates no gradients with 'quantization: {quantization}'",
        "gradient_accumulation_steps=1, or another quantization",
    ),
    Contradiction(
        "max_segments_per_seq",
        lambda s, _: s["packing"] and s["attention"] == "cudnn_flash_te" and s["max_segments_per_seq"] <= 0,
        "Transformer Engine's attention must know how many documents a packed sequence may have",
        "max_segments_per_seq=32, or packing=false",
    ),
    Contradiction(
        "wsd_decay_steps_fraction",
        lambda s, _: s["lr_schedule_type"] == "wsd" and s["warmup_steps_fraction"] + s["wsd_decay_steps_fraction"] > 1,
        "with 'warmup_steps_fraction: {warmup_steps_fraction}' it is more than the whole schedule",
        "lower one of them",
    ),
    Contradiction(
        "eval_interval",
        lambda s, _: (
            s["eval_interval"] > 0
            and s["dataset_type"] == "grain"
            and s["grain_file_type"] not in ("parquet", "tfrecord")
            and not s["grain_eval_files"]
        ),
        "there is no data for the evaluation",
        "set grain_eval_files",
    ),
    Contradiction(
        "eval_interval",
        lambda s, _: (
            s["eval_interval"] > 0 and s["dataset_type"] == "hf" and not (s["hf_eval_files"] or s["hf_eval_split"])
        ),
        "there is no data for the evaluation",
        "set hf_eval_files or hf_eval_split",
    ),
    Contradiction(
        "eval_steps",
        lambda s, _: s["eval_interval"] > 0 and s["dataset_type"] == "synthetic" and s["eval_steps"] <= 0,
        "synthetic data do not end, and nor would the first evaluation",
        "eval_steps=10",
    ),
    Contradiction(
        "dataset_type",
        lambda s, _: s["dataset_type"] == "grain" and not _train_files(s),
        "there is no training data",
        "set grain_train_files",
    ),
    Contradiction(
        "hf_path",
        lambda s, _: s["dataset_type"] == "hf" and not s["hf_path"],
        "`dataset_type: hf` reads a data set of huggingface.co by its name, or local files by their form",
        "hf_path=json and hf_train_files=FILE, for instance",
    ),
    Contradiction(
        "grain_worker_count",
        lambda s, _: s["dataset_type"] == "hf" and s["grain_worker_count"] > 1,
        "with `dataset_type: hf` each further one would read the same data",
        "grain_worker_count=1",
    ),
    Contradiction(
        "tokenizer_path",
        lambda s, _: _lacks_tokenizer(s),
        "'dataset_type: {dataset_type}' reads text",
        "set tokenizer_path and tokenizer_type, or tokenize_train_data=false where tokens are in the files",
    ),
    Contradiction(
        "tokenizer_path",
        lambda s, _: s["tokenizer_type"] == "tiktoken" and "tiktoken" not in (s["tokenizer_path"] or "tiktoken"),
        "MaxText recognizes a tiktoken file by its name",
        "rename it, or set tokenizer_type=sentencepiece or huggingface",
    ),
    Contradiction(
        "base_num_decoder_layers",
        lambda s, _: _is_cut(s),
        "MaxText builds whole cycles of {inhomogeneous_layer_cycle_interval} layers "
        "('inhomogeneous_layer_cycle_interval') and silently drops the rest",
        "take a multiple of {inhomogeneous_layer_cycle_interval}, or scan_layers=false",
    ),
    Contradiction(
        "inhomogeneous_layer_cycle_interval",
        lambda s, _: (
            s["scan_layers"]
            and s["inhomogeneous_layer_cycle_interval"] != 1
            and s["decoder_block"] not in (*_CYCLES, "qwen3_next", "gemma3", "gemma4")
        ),
        "layers of 'decoder_block: {decoder_block}' are all equal, and MaxText would build a single layer",
        "inhomogeneous_layer_cycle_interval=1",
    ),
    Contradiction(
        "quantization",
        lambda s, _: (
            s["quantization"] in _BY_QWIX and not (s["use_qwix_quantization"] or s["use_batch_split_schedule"])
        ),
        "MaxText supports it only with Qwix",
        "use_qwix_quantization=true, or fp8, nanoo_fp8 or int8",
    ),
    Contradiction(
        "base_num_query_heads",
        lambda s, _: s["attention_type"] != "mla" and s["base_num_query_heads"] % s["base_num_kv_heads"],
        "each of 'base_num_kv_heads: {base_num_kv_heads}' serves as many of them as any other",
        "take a multiple of {base_num_kv_heads}, or a divisor of {base_num_query_heads} as base_num_kv_heads",
    ),
    Contradiction(
        "head_dim",
        lambda s, _: s["attention_type"] != "mla" and s["decoder_block"] != "gpt3" and s["head_dim"] % 2,
        "the rotary embedding rotates pairs of numbers",
        "take an even number",
    ),
    Contradiction(
        "attention",
        lambda s, _: _needs_plain_attention(s),
        "MaxText has sparse attention ('decoder_block: {decoder_block}') only with few kernels",
        "attention=dot_product",
    ),
    Contradiction(
        "scan_layers",
        lambda s, _: (
            s["scan_layers"]
            and (s["deepstack_visual_indexes_for_vit"] or s["model_name"] in ("gemma4-e2b", "gemma4-e4b"))
        ),
        "layers of '{model_name}' differ from each other, and scan_layers treats them as equal",
        "scan_layers=false",
    ),
    Contradiction(
        "adam_b1",
        lambda s, _: s["adam_b1"] >= 1,
        "with a decay of 1, the moving average ignores the gradients",
        "take a number below 1, like 0.9",
    ),
    Contradiction(
        "adam_b2",
        lambda s, _: s["adam_b2"] >= 1,
        "with a decay of 1, the moving average ignores the gradients",
        "take a number below 1, like 0.95",
    ),
    Contradiction(
        "num_experts_per_tok",
        lambda s, _: s["num_experts_per_tok"] > s["num_experts"],
        "'num_experts' is {num_experts}",
        "take {num_experts} at most",
    ),
    Contradiction(
        "base_num_kv_heads",
        lambda s, _: s["attention_type"] == "mla" and s["base_num_kv_heads"] != s["base_num_query_heads"],
        "latent attention has as many heads of keys as 'base_num_query_heads', which is {base_num_query_heads}",
        "take {base_num_query_heads}",
    ),
    Contradiction(
        "base_mlp_dim",
        lambda s, _: (
            _experts_everywhere(s)
            and s["decoder_block"] not in ("qwen3_moe", "gemma4")
            and s["base_mlp_dim"] != s["base_moe_mlp_dim"]
        ),
        "where every layer has experts, MaxText wants their width, and 'base_moe_mlp_dim' is {base_moe_mlp_dim}",
        "set both to the width of an expert",
    ),
    Contradiction(
        "opt_type",
        lambda s, _: s["opt_type"] == "muon" and s["decoder_block"] not in _MUON,
        "MaxText does not know which weights of 'decoder_block: {decoder_block}' are matrices to Muon",
        "opt_type=adamw",
    ),
    Contradiction(
        "load_full_state_path",
        lambda s, _: s["load_parameters_path"] and s["load_full_state_path"],
        "'load_parameters_path' is set, too",
        "keep one of them",
    ),
    Contradiction(
        "load_full_state_path",
        lambda s, _: s["load_full_state_path"] and not s["enable_checkpointing"],
        "MaxText loads it only if enable_checkpointing is true",
        "enable_checkpointing=true",
    ),
    Contradiction(
        "sliding_window_size",
        lambda s, _: s["attention_type"] == "local_sliding" and s["sliding_window_size"] <= 0,
        "'attention_type: local_sliding' looks so far back",
        "sliding_window_size=4096, for instance",
    ),
    Contradiction(
        "chunk_attn_window_size",
        lambda s, _: s["attention_type"] == "chunk" and s["chunk_attn_window_size"] < 1,
        "'attention_type: chunk' has chunks of so many tokens",
        "chunk_attn_window_size=4096, for instance",
    ),
    Contradiction(
        "num_vocab_tiling",
        lambda s, _: _tokens(s) % 1 == 0 and _tokens(s) % s["num_vocab_tiling"],
        "it divides the tokens of a device, 'per_device_batch_size' x 'max_target_length'",
        "take a divisor",
    ),
    Contradiction(
        "num_pipeline_microbatches",
        lambda s, layout: _piped(layout) and _microbatches(s, layout) % layout.sizes["pipeline"],
        "each stage of the pipeline has as many",
        "take a multiple of the stages",
    ),
    Contradiction(
        "per_device_batch_size",
        lambda s, layout: _piped(layout) and _sequences(s, layout) % _microbatches(s, layout),
        "the sequences of all devices are cut into equal microbatches, one for each stage of the pipeline at least",
        "take a multiple, or set num_pipeline_microbatches",
    ),
)  # fmt: skip
"""In the order in which they are looked at."""


def _train_files(s: Settings) -> bool:
    by_name = s["grain_file_type"] == "tfrecord" and s["dataset_path"] and s["dataset_name"]
    by_path = s["grain_file_type"] == "parquet" and s["hf_path"]
    return bool(s["grain_train_files"] or s["grain_train_mixture_config_path"] or by_name or by_path)
