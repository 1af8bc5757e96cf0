"""The settings of a run, checked: those that were given, over TorchTitan's and Primus's defaults."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from primus_core.config.document import Document, Path
from primus_data.training.section import OTHER_NAMES
from primus_torchtitan.own_settings import SETTINGS
from primus_torchtitan.schema import Schema
from primus_train.kit import settings

__all__ = ["LEAST", "Settings"]

LEAST: dict[str, float] = {
    "training.steps": 1,
    "training.seq_len": 1,
    "training.local_batch_size": 1,
    "training.gc_freq": 1,
    "lr_scheduler.warmup_steps": 0,
    "metrics.log_freq": 1,
    "checkpoint.interval": 1,
    "checkpoint.keep_latest_k": 0,
    "parallelism.data_parallel_replicate_degree": 1,
    "parallelism.tensor_parallel_degree": 1,
    "parallelism.context_parallel_degree": 1,
    "parallelism.pipeline_parallel_degree": 1,
    "parallelism.expert_parallel_degree": 1,
    "parallelism.pipeline_parallel_microbatch_size": 1,
    "loss.num_chunks": 1,
    "validator.freq": 1,
    "dataloader.num_workers": 0,
}
"""TorchTitan says these in assertions, hours of queueing later."""
_BOTH = ("activation_checkpoint.mode", "loss.kind")
"""Primus's, and TorchTitan's as the class of a section."""
_DATASET = ("dataset", "dataset_path")
_OTHERS = (OTHER_NAMES, os.path.join(os.path.dirname(__file__), "other_names.toml"))


class Settings(settings.Settings):
    """TorchTitan's settings and Primus's, by dotted name."""

    def __init__(self, document: Document, schema: Schema, refused: Iterable[Path] = ()) -> None:
        loader = document.data.get("dataloader")
        if isinstance(loader, Mapping):  # `dataloader.dataset=null`: not the one of a template, but that of `data`
            kept = {name: value for name, value in loader.items() if value is not None or name not in _DATASET}
            document = Document({**document.data, "dataloader": kept}, document.marks, document.files)
        if document.data.get("hf_assets_path", "") is None:  # and its tokenizer
            kept = {name: value for name, value in document.data.items() if name != "hf_assets_path"}
            document = Document(kept, document.marks, document.files)
        super().__init__(document, schema.options, SETTINGS, LEAST, "TorchTitan", refused, _OTHERS)

    def framework(self) -> dict[str, Any]:
        """What the worker hands to TorchTitan."""
        both = {name: self.given[name] for name in _BOTH if name in self.given}
        return dict(sorted({**super().framework(), **both}.items()))
