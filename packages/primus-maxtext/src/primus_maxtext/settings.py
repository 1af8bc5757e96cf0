"""The settings of a run, checked: those given, over the named model's, over the defaults of MaxText and Primus."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from primus_core.config.document import Document, Path
from primus_core.errors import ConfigError, Mistakes, suggestion
from primus_data.training.section import OTHER_NAMES
from primus_maxtext.own_settings import SETTINGS
from primus_maxtext.schema import Schema
from primus_train.kit import settings
from primus_train.kit.options import Option

__all__ = ["LEAST", "TAKEN", "Settings"]

_ONE_OR_MORE = (
    "base_emb_dim", "base_num_query_heads", "base_num_kv_heads", "base_mlp_dim", "base_num_decoder_layers", "head_dim",
    "vocab_size", "max_target_length", "gradient_accumulation_steps", "checkpoint_period", "num_experts",
    "num_experts_per_tok", "num_epoch", "log_period",
)  # fmt: skip
_ZERO_OR_MORE = (
    "learning_rate", "gradient_clipping_threshold", "adam_weight_decay", "grain_worker_count_eval", "mmap_eod_id",
    "warmup_steps_fraction", "adam_b1", "adam_b2", "adam_eps",
)  # fmt: skip
LEAST: dict[str, float] = {**dict.fromkeys(_ONE_OR_MORE, 1), **dict.fromkeys(_ZERO_OR_MORE, 0)}
"""MaxText says these in assertions on every node, divides by zero, or trains on nonsense."""
_CHOICES = {
    "attention": ("autoselected", "dot_product", "flash", "cudnn_flash_te", "cudnn_flash_jax"),
    "context_parallel_strategy": ("all_gather", "ring"),
    "mlp_activations": (
        "silu", "gelu", "relu", "sigmoid", "linear", "swish", "tanh", "elu", "celu", "selu", "leaky_relu", "relu6",
        "mish", "softplus", "sqrtsoftplus", "squareplus", "soft_sign", "log_sigmoid", "identity", "hard_silu",
        "hard_swish", "hard_sigmoid", "hard_tanh",
    ),
    "grain_file_type": ("arrayrecord", "tfrecord", "parquet", "mmap", "mmap_npy"),
    "remat_policy": (
        "none", "full", "custom", "minimal", "minimal_flash", "minimal_with_context", "minimal_with_quantization",
        "minimal_with_context_and_quantization", "minimal_offloaded", "qkv_proj_offloaded", "save_qkv_proj",
        "save_out_proj", "save_dot_except_mlp", "save_dot_except_mlpwi", "save_dot_with_context_except_mlp",
    ),
}  # fmt: skip
"""What may be trained with on GPUs and CPUs, where MaxText says only that it is text."""
_ASKED_OTHERWISE = {
    "base_config": ("write settings in the experiment", "put it below `extends:`, or remove it"),
    "metrics_file": ("step metrics are in metrics.jsonl of the run directory", "remove it"),
    "enable_single_controller": ("it is for Pathways on TPUs", "remove it"),
    "compile_topology": ("it compiles for another machine, and trains nothing", "remove it"),
}
WITHOUT_EFFECT = (
    "run_name", "base_output_directory", "hardware", "override_model_config", "skip_jax_distributed_system",
    "hf_access_token",
)  # fmt: skip
"""What Primus says itself: the run directory, the machine, that an experiment wins over a named model, HF_TOKEN."""
TAKEN = (
    "dataset_type", "grain_file_type", "grain_train_files", "grain_eval_files", "grain_train_mixture_config_path",
    "mmap_eod_id", "hf_path", "hf_train_files", "dataset_path",
)  # fmt: skip
"""What the `data` section says in MaxText's words."""
_LATER = {"pure_nnx_decoder": False}
"""Settings of a later MaxText, with the value that stands for what an earlier one does."""
_OTHERS = (OTHER_NAMES, os.path.join(os.path.dirname(__file__), "other_names.toml"))


class Settings(settings.Settings):
    """MaxText's settings and Primus's, by name."""

    def __init__(self, document: Document, schema: Schema, refused: Iterable[Path] = ()) -> None:
        mistakes = Mistakes()
        for name, (why, fix) in _ASKED_OTHERWISE.items():
            if name in document.data:
                what = f"'{name}' cannot be set in an experiment"
                mistakes.add(ConfigError(what, where=document.where((name,)), why=why, fix=fix))
        with mistakes:
            _refuse_token(document)
        self.without_effect = [name for name in WITHOUT_EFFECT if name in document.data]
        later = {name for name in _LATER if name in document.data and name not in schema.options}
        for name in later:
            with mistakes:
                _refuse_later(document, name, schema.version)
        # `grain_train_files=null`: MaxText's own word for nothing is an empty text
        nothing = (name for name, value in document.data.items() if value is None and name in schema.options)
        empty = {name for name in nothing if schema.options[name].default == "" or name in TAKEN}
        gone = {*WITHOUT_EFFECT, *later, *empty}
        document = Document({k: v for k, v in document.data.items() if k not in gone}, document.marks)
        named: dict[str, Any] | None = None
        with mistakes:
            named = _named_model(document, schema)
        if named is None:  # the model would say what is not given
            document = Document({k: v for k, v in document.data.items() if k != "model_name"}, document.marks)
            refused = [*refused, ()]
        super().__init__(document, _over(schema.options, named or {}), SETTINGS, LEAST, "MaxText", refused, _OTHERS)
        self.mistakes.add(*mistakes.found)

    def has(self, name: str) -> bool:
        """Whether it was given. Nothing (`null`) is what every setting that takes it has by default."""
        return self.given.get(name) is not None


def _refuse_later(document: Document, name: str, version: str) -> None:
    """Refuse a setting of a later MaxText, unless it asks for what this one does."""
    if document.data[name] != _LATER[name]:
        what = f"MaxText {version} has no setting '{name}'"
        fix = f"set {name}: {str(_LATER[name]).lower()}, or install a later MaxText"
        raise ConfigError(what, where=document.where((name,)), why="it is of a later MaxText", fix=fix)


def _refuse_token(document: Document) -> None:
    token = document.data.get("hf_access_token") or ""
    if str(token).strip("'\"") and not str(token).startswith("${"):
        what, why = (
            "'hf_access_token' cannot be set in an experiment",
            "every copy of the experiment would contain the token",
        )
        raise ConfigError(what, where=document.where(("hf_access_token",)), why=why, fix="export HF_TOKEN")


def _named_model(document: Document, schema: Schema) -> dict[str, Any]:
    """What `model_name` stands for. MaxText trains a model of its defaults where it has no such file."""
    name = document.data.get("model_name", "default")
    if name == "default" or not isinstance(name, str):
        return {}
    found = schema.models.get(name.replace("-Instruct", ""))
    if found is None:
        raise ConfigError(
            f"MaxText has no model '{name}'",
            where=document.where(("model_name",)),
            why=f"models: {', '.join(schema.models)}",
            fix=suggestion(name, schema.models) or "name a model of the catalogue with `model:` (primus models list)",
        )
    return dict(found)


def _over(options: Mapping[str, Option], named: dict[str, Any]) -> dict[str, Option]:
    """The options with all that is known of their values, and the named model's settings as their defaults."""
    known = {**options, **{name: replace(options[name], choices=_CHOICES[name]) for name in _CHOICES}}
    return {**known, **{name: replace(known[name], default=named[name]) for name in named if name in known}}
