"""The settings of a run, checked: those that were given, over Megatron's and Primus's defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from primus_core.config.document import Document, Path
from primus_core.errors import ConfigError
from primus_megatron.own_settings import CONFIG_FIELDS, SETTINGS
from primus_megatron.schema import Schema
from primus_train.kit import settings

__all__ = ["LEAST", "Settings", "require"]

_ONE_OR_MORE = (
    "num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "ffn_hidden_size", "kv_channels",
    "num_experts", "train_iters", "seq_length", "max_position_embeddings", "micro_batch_size", "global_batch_size",
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "save_interval", "eval_interval", "log_interval",
    "make_vocab_size_divisible_by", "vocab_size", "moe_router_topk", "moe_latent_size", "eval_micro_batch_size",
    "moe_shared_expert_intermediate_size", "num_layers_per_virtual_pipeline_stage", "decoder_last_pipeline_num_layers",
    "decoder_first_pipeline_num_layers", "num_dataset_builder_threads", "ddp_num_buckets",
)  # fmt: skip
_ZERO_OR_MORE = ("lr", "min_lr", "lr_warmup_iters", "weight_decay", "clip_grad", "eval_iters", "num_workers", "seed")
LEAST: dict[str, float] = {**dict.fromkeys(_ONE_OR_MORE, 1), **dict.fromkeys(_ZERO_OR_MORE, 0)}
"""Megatron says these in assertions on every rank, hours of queueing later, or divides by zero."""
_ASKED_OTHERWISE = {
    **dict.fromkeys(("rank", "local_rank"), ("it is each process's own", "remove it")),
    "world_size": ("it follows from the nodes and GPUs", "remove it"),
    **dict.fromkeys(("config_file", "yaml_cfg"), ("write settings in the experiment", "remove it")),
    "encoder_num_layers": ("Megatron takes it from another setting", "set num_layers instead"),
    "encoder_seq_length": ("Megatron takes it from another setting", "set seq_length instead"),
    "batch_size": ("Megatron removed it", "set micro_batch_size instead"),
    "warmup": ("Megatron removed it", "set lr_warmup_fraction instead"),
    "model_parallel_size": ("Megatron removed it", "set tensor_model_parallel_size instead"),
    "checkpoint_activations": ("Megatron removed it", "set recompute_granularity instead"),
}
"""Why, and what to do."""
_ITEM: dict[str, Callable[[Any], Any]] = {"int": int, "float": float}
_OTHERS = (os.path.join(os.path.dirname(__file__), "other_names.toml"),)


class Settings(settings.Settings):
    """Megatron's settings and Primus's, by name."""

    def __init__(self, document: Document, schema: Schema, refused: Iterable[Path] = ()) -> None:
        with_lists, wrong = _with_lists(document, schema)
        for name, (why, fix) in _ASKED_OTHERWISE.items():
            if document.data.get(name) is not None:
                what = f"'{name}' cannot be set in an experiment"
                wrong[name] = ConfigError(what, where=document.where((name,)), why=why, fix=fix)
        self.texts = {name for name, value in document.data.items() if isinstance(value, str)}
        """Settings that were one text; where Megatron takes a list, it was split at blanks."""
        right = Document({name: value for name, value in with_lists.items() if name not in wrong}, document.marks)
        paths = [*refused, *((name,) for name in wrong)]
        super().__init__(right, schema.options, SETTINGS, LEAST, "Megatron", paths, _OTHERS)
        self.mistakes.add(*wrong.values())

    def has(self, name: str) -> bool:
        """Whether it was given. Nothing (`null`) is what every setting that takes it has by default."""
        return self.given.get(name) is not None

    def framework(self) -> dict[str, Any]:
        """What the worker hands to Megatron: its arguments, and fields of its configuration that have no argument."""
        fields = {name: self.given[name] for name in CONFIG_FIELDS if self.has(name)}
        return dict(sorted({**super().framework(), **fields}.items()))

    def knows(self, name: str) -> bool:
        """Whether this version of Megatron has it."""
        return name in self.options

    def default(self, name: str, value: Any) -> bool:
        """Set it unless it was given, or this version does not know it; whether it was set."""
        return self.knows(name) and super().default(name, value)


def require(settings: Settings, name: str) -> None:
    """Refuse a missing setting that Megatron has no default for."""
    if settings[name] is None:
        settings.refused.add(name)
        why = "Megatron has no default for it"
        raise settings.error(name, f"'{name}' is not set", why=why, fix="set it below `model:` or `overrides:`")


def _with_lists(document: Document, schema: Schema) -> tuple[dict[str, Any], dict[str, ConfigError]]:
    """Lists may be written as on Megatron's command line: `train_data_path: 3 web 1 books`. The wrong ones apart."""
    data, wrong = {}, {}
    for name, value in document.data.items():
        option = schema.options.get(name)
        if value is None and option and not option.optional:
            continue  # Megatron has no such nothing: it is its default
        data[name] = value
        if option and option.type == "list" and value is not None:
            words = value.split() if isinstance(value, str) else value if isinstance(value, list) else [value]
            kind = schema.items.get(name, "")
            try:
                data[name] = [_ITEM.get(kind, str)(word) for word in words]
            except (TypeError, ValueError):
                what = f"'{name}' takes a list of {kind}: {words!r}"
                wrong[name] = ConfigError(what, where=document.where((name,)))
    return data, wrong
