"""TorchTitan's settings as the hyperparameters that all backends have words for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_torchtitan.settings import Settings
from primus_train.kit.hyperparameters import Hyperparameters
from primus_train.models.architecture import Architecture

__all__ = ["data_type", "hyperparameters"]

_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


def data_type(settings: Settings) -> str:
    """In which most is multiplied."""
    return _DTYPES.get(settings["training.mixed_precision_param"], "fp32")


def hyperparameters(
    settings: Settings, model: Architecture | None, global_batch: int, data: Mapping[str, Any]
) -> Hyperparameters:
    """Those of a run, whose settings are complete; `data` is what prepared text is made from."""
    return Hyperparameters(
        model=model,
        seq_length=settings["training.seq_len"],
        global_batch_size=global_batch,
        micro_batch_size=settings["training.local_batch_size"],
        steps=settings["training.steps"],
        grad_clip=settings["training.max_norm"],
        dtype=data_type(settings),
        seed=settings["debug.seed"],
        text=data.get("text"),
        document_chars=data.get("document_chars"),
        **_optimizer(settings),
        **_schedule(settings),
    )


def _optimizer(settings: Settings) -> dict[str, Any]:
    """Of all parameters; those of groups with settings of their own have no common name."""
    groups = settings["optimizer.param_groups"]
    if len(groups) != 1:
        return {}
    kwargs: Mapping[str, Any] = groups[0].get("optimizer_kwargs") or {}
    beta1, beta2 = kwargs.get("betas") or (None, None)
    rest = {name: kwargs.get(name) for name in ("lr", "eps", "weight_decay")}
    factor = settings["lr_scheduler.min_lr_factor"]
    least = None if rest["lr"] is None else rest["lr"] * factor
    return {**rest, "optimizer": groups[0].get("optimizer_name"), "beta1": beta1, "beta2": beta2, "min_lr": least}


def _schedule(settings: Settings) -> dict[str, Any]:
    total = settings["lr_scheduler.total_steps"] or settings["training.steps"]
    warmup = min(settings["lr_scheduler.warmup_steps"], total)
    share = settings["lr_scheduler.decay_ratio"]
    falling = total - warmup if share is None else min(round(total * share), total - warmup)
    return {
        "warmup_steps": warmup,
        "stable_steps": total - warmup - falling,
        "decay": settings["lr_scheduler.decay_type"],
        "schedule_steps": total,
    }
