"""Automatic continuation: where an earlier, unfinished run of the experiment left a checkpoint, training goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_core.backend import BackendCall
from primus_megatron.checkpoints import SIZES, is_whole, iteration_of, newest, newest_whole
from primus_megatron.settings import Settings

__all__ = ["CHECKPOINTS", "as_resumed", "continue_earlier", "on_replay"]

CHECKPOINTS = "checkpoints"
"""In the run directory, where `save` does not say otherwise."""
_FRESH = ("finetune", "no_load_optim", "no_load_rng", "pretrained_checkpoint")
"""Settings with which a checkpoint is a beginning, and not where this very run was."""
_COMPARED = {
    "model": "its model is another",
    "data": "its text is another",
    "fixed_layout": "tensor or pipeline sizes differ, for which it needs dist_ckpt_optim_fully_reshardable: true",
}


def continue_earlier(settings: Settings, call: BackendCall, now: Mapping[str, Any]) -> tuple[str, ...]:
    """Set the checkpoint to start from where there is one, and say so. `now` is this run's resolved config.

    A user's own `load` stands.
    """
    if not settings["auto_continue_train"] or "load" in settings or not settings["save"]:
        return ()
    runs: dict[str, list[int]] = {}
    for path in call.previous(os.path.join(CHECKPOINTS, "iter_*", SIZES)):
        folder = os.path.dirname(path)
        if is_whole(folder):
            runs.setdefault(str(Path(folder).parent.parent), []).append(iteration_of(folder))
    for run, iterations in runs.items():
        iteration = max((n for n in iterations if n < (settings["train_iters"] or 0)), default=None)
        if iteration is None:
            continue
        name = os.path.basename(run)
        if reason := _difference(run, now):
            return (f"does not continue from iteration {iteration} of {name}: {reason}",)
        settings.set("load", os.path.join(run, CHECKPOINTS))
        settings.set("ckpt_step", iteration)
        if not settings["use_checkpoint_opt_param_scheduler"]:
            settings.default("override_opt_param_scheduler", True)  # a changed train_iters is meant
        return (f"continues from iteration {iteration} of {name}",)
    return ()


def on_replay(settings: Settings, call: BackendCall) -> dict[str, Any]:
    """What a replay gets instead (`BackendPlan.config`): it begins where this run begins, and saves beside nobody."""
    if earlier := call.earlier():
        return dict(earlier.get("on_replay") or {})
    save, own = settings["save"], os.path.join(call.place.directory, CHECKPOINTS)
    found: dict[str, Any] = {}
    start = newest_whole(save)[0] if save and settings["auto_continue_train"] else None  # as the worker finds it
    folder, iteration = settings["load"], settings["ckpt_step"]
    if start is not None:
        folder, iteration = save, start
        found |= as_resumed(settings.framework())
    elif folder:
        iteration = iteration or newest(folder)
    if save and save != own:
        found["save"] = own
    if folder and iteration:
        found |= {"load": folder, "ckpt_step": iteration}
    elif folder:
        found["load"] = None  # nothing was there to begin with
    if not found:
        return {}
    files = [os.path.join(folder, f"iter_{iteration:07d}")] if folder and iteration else []
    return {"settings": found, "folders": [save] if save and save != own else [], "files": files}


def as_resumed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with which a checkpoint is where this very run was, and not a beginning (None: none of them)."""
    changed: dict[str, Any] = dict.fromkeys(_FRESH)
    if not settings.get("use_checkpoint_opt_param_scheduler"):
        # another run may have saved here, of another length
        changed["override_opt_param_scheduler"] = settings.get("override_opt_param_scheduler", True)
    return changed


def _difference(run: str, now: Mapping[str, Any]) -> str:
    """Why a checkpoint of `run` does not fit this run; empty if it does."""
    try:
        then = json.loads(Path(run, "config", "backend_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "its settings cannot be read"
    return next((text for key, text in _COMPARED.items() if then.get(key) != now[key]), "")
