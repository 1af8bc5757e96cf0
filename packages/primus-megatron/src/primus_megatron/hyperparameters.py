"""Megatron's settings as the hyperparameters that all backends have words for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_megatron.settings import Settings
from primus_train.kit.hyperparameters import Hyperparameters
from primus_train.models.architecture import Architecture

__all__ = ["data_type", "hyperparameters"]

_PRECISIONS = ("fp4", "fp8", "bf16", "fp16")
_OPTIMIZERS = {"adam": "AdamW", "sgd": "SGD", "muon": "Muon", "dist_muon": "Muon", "lion": "Lion", "soap": "SOAP"}


def data_type(settings: Settings) -> str:
    """In which most is multiplied."""
    return next((name for name in _PRECISIONS if settings.knows(name) and settings[name]), "fp32")


def hyperparameters(
    settings: Settings, model: Architecture | None, global_batch: int, data: Mapping[str, Any]
) -> Hyperparameters:
    """Those of a run, whose settings are complete; `data` is what prepared text is made from."""
    return Hyperparameters(
        model=model,
        seq_length=settings["seq_length"],
        global_batch_size=global_batch,
        micro_batch_size=settings["micro_batch_size"],
        steps=settings["train_iters"],
        optimizer=_OPTIMIZERS.get(settings["optimizer"], settings["optimizer"]),
        lr=settings["lr"],
        min_lr=settings["min_lr"],
        beta1=settings["adam_beta1"],
        beta2=settings["adam_beta2"],
        eps=settings["adam_eps"],
        weight_decay=settings["weight_decay"],
        grad_clip=settings["clip_grad"],
        dtype=data_type(settings),
        seed=settings["seed"],
        text=data.get("text"),
        document_chars=data.get("document_chars"),
        **_schedule(settings),
    )


def _schedule(settings: Settings) -> dict[str, Any]:
    total = settings["lr_decay_iters"] or settings["train_iters"]
    share = settings["lr_warmup_fraction"]
    warmup = settings["lr_warmup_iters"] if share is None else round(share * total)
    falling, decay = total - warmup, settings["lr_decay_style"]
    if decay == "WSD":
        falling, decay = settings["lr_wsd_decay_iters"] or falling, settings["lr_wsd_decay_style"]
    return {
        "warmup_steps": warmup,
        "stable_steps": total - warmup - falling,
        "decay": decay.removeprefix("minus_"),
        "schedule_steps": total,
    }
