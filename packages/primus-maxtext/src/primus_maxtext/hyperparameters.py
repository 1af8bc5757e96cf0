"""MaxText's settings as the hyperparameters that all backends have words for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_maxtext.device import dtype
from primus_maxtext.settings import Settings
from primus_train.kit.hyperparameters import Hyperparameters
from primus_train.models.architecture import Architecture

__all__ = ["hyperparameters"]

_OPTIMIZERS = {"adamw": "AdamW", "adam_pax": "AdamW", "sgd": "SGD", "muon": "Muon"}


def hyperparameters(
    settings: Settings, model: Architecture | None, global_batch: int, data: Mapping[str, Any]
) -> Hyperparameters:
    """Those of a run, whose settings are complete; `data` is what prepared text is made from."""
    micro = settings["per_device_batch_size"]
    return Hyperparameters(
        model=model,
        seq_length=settings["max_target_length"],
        global_batch_size=global_batch,
        micro_batch_size=int(micro) if micro == int(micro) else None,
        steps=settings["steps"],
        optimizer=_OPTIMIZERS.get(settings["opt_type"], settings["opt_type"]),
        lr=settings["learning_rate"],
        min_lr=settings["learning_rate"] * settings["learning_rate_final_fraction"],
        beta1=settings["adam_b1"],
        beta2=settings["adam_b2"],
        eps=settings["adam_eps"],
        weight_decay=settings["adam_weight_decay"],
        grad_clip=settings["gradient_clipping_threshold"],
        dtype=dtype(settings),
        seed=settings["init_weights_seed"],
        text=data.get("text"),
        document_chars=data.get("document_chars"),
        **_schedule(settings),
    )


def _schedule(settings: Settings) -> dict[str, Any]:
    """As `maxtext_utils.create_learning_rate_schedule` has it."""
    total = settings["learning_rate_schedule_steps"]
    warmup = int(total * settings["warmup_steps_fraction"])
    falling, decay = total - warmup, settings["lr_schedule_type"]
    if decay == "wsd":
        falling, decay = int(total * settings["wsd_decay_steps_fraction"]), settings["wsd_decay_style"]
    return {
        "warmup_steps": warmup,
        "stable_steps": total - warmup - falling,
        "decay": decay,
        "schedule_steps": total,
    }
