"""Automatic continuation: where an earlier, unfinished run of the experiment left a checkpoint, training goes on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_core.backend import BackendCall
from primus_torchtitan.checkpoints import is_whole, resume_from
from primus_torchtitan.settings import Settings

__all__ = ["continue_earlier", "on_replay"]

_OWN = "checkpoints"
"""In the run directory."""
_COMPARED = {
    "model": "its model is another",
    "data": "its text is another",
    "data_parallel": "it had {} data-parallel ranks",
}


def continue_earlier(settings: Settings, call: BackendCall, now: Mapping[str, Any]) -> tuple[str, ...]:
    """Set the checkpoint to start from where there is one, and say so. `now` is this run's resolved config.

    A user's own `checkpoint.initial_load_path` or `load_step` stands.
    """
    if not settings["checkpoint.enable"] or not settings["auto_continue_train"]:
        return ()
    if settings["checkpoint.initial_load_path"] or settings["checkpoint.load_step"] != -1:
        return ()
    if os.path.isabs(settings["checkpoint.folder"]):
        return ()  # all runs share the folder, so TorchTitan finds the newest checkpoint itself
    return _continue(settings, call, now)


def on_replay(settings: Settings, call: BackendCall) -> dict[str, Any]:
    """What a replay gets instead (`BackendPlan.config`): it begins where this run begins, and saves beside nobody."""
    if earlier := call.earlier():
        return dict(earlier.get("on_replay") or {})
    folder = settings["checkpoint.folder"]
    if not settings["checkpoint.enable"] or not os.path.isabs(folder):
        return {}
    found: dict[str, Any] = {"checkpoint.folder": _OWN, "checkpoint.load_step": -1}
    step = settings["checkpoint.load_step"] if settings["checkpoint.load_step"] != -1 else resume_from(folder)[0]
    if step is None:
        return {"settings": found, "folders": [folder], "files": []}
    start = os.path.join(folder, f"step-{step}")
    return {"settings": {**found, **_begin_with(start)}, "folders": [folder], "files": [start]}


def _begin_with(checkpoint: str) -> dict[str, Any]:
    """The settings that load all of the training's state from a checkpoint of another folder."""
    return {
        "checkpoint.initial_load_path": checkpoint,
        "checkpoint.initial_load_model_only": False,
        "checkpoint.initial_load_in_hf": False,
    }


def _continue(settings: Settings, call: BackendCall, now: Mapping[str, Any]) -> tuple[str, ...]:
    notes: list[str] = []
    folder = settings["checkpoint.folder"]
    for run, steps in _runs(call.previous(os.path.join(folder, "step-*", ".metadata")), folder).items():
        step = max((n for n in steps if n < settings["training.steps"]), default=None)
        if step is None:
            continue
        name = os.path.basename(run)
        if reason := _difference(run, now, settings):
            notes.append(f"does not continue from step {step} of {name}: {reason}")
            break
        for setting, value in _begin_with(os.path.join(run, folder, f"step-{step}")).items():
            settings.set(setting, value)
        notes.append(f"continues from step {step} of {name}")
        break
    return tuple(notes)


def _runs(metadata: tuple[str, ...], folder: str) -> dict[str, list[int]]:
    """Steps with a complete checkpoint per run directory, in the order in which the runs came."""
    pattern = re.compile(rf"(.+)/{re.escape(folder.strip('/'))}/step-(\d+)/\.metadata")
    runs: dict[str, list[int]] = {}
    for path in metadata:
        match = pattern.fullmatch(path)
        if match and is_whole(os.path.dirname(path)):
            runs.setdefault(match[1], []).append(int(match[2]))
    return runs


def _difference(run: str, now: Mapping[str, Any], settings: Settings) -> str:
    """Why a checkpoint of `run` does not fit this run; empty if it does."""
    try:
        then = json.loads(Path(run, "config", "backend_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "its settings cannot be read"
    for key, text in _COMPARED.items():
        if key == "data_parallel" and "dataloader" in settings["checkpoint.exclude_from_loading"]:
            continue  # only the position in the data depends on it
        if then.get(key) != now[key]:
            return text.format(then.get(key))
    return ""
