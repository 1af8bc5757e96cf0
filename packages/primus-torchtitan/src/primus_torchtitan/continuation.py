"""Automatic continuation: where an earlier, unfinished run of the experiment left a checkpoint, training goes on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_torchtitan.checkpoints import is_whole, resume_from
from primus_torchtitan.settings import Settings
from primus_train.backend import BackendCall

__all__ = ["changeable_settings", "continue_earlier", "fixed_settings", "loads", "on_replay"]

_LOADER = ("dataloader.num_workers",)
"""What the state of torchdata's loader has the form of."""
FIXED = (
    "data.vocab_size",
    *("model.family", "model.flavor", "model.sizes.dim", "model.sizes.n_layers", "model.sizes.n_heads"),
    *("model.sizes.n_kv_heads", "model.sizes.head_dim", "model.sizes.ffn_hidden_dim", "model.sizes.vocab_size"),
    *("model.sizes.weight_tying", "optimizer.param_groups[[]*].optimizer_name", "optimizer.param_groups[[]*].pattern"),
)
"""With these, the checkpoint has the form of another model or of another optimizer's state."""
_CONSUMED = b"dataloader.consumed"
"""The name of the position of Primus's own loader (`IndexedLoader`) in a checkpoint."""
_OWN = "checkpoints"
"""In the run directory."""

CHANGEABLE = (
    *("checkpoint", "activation_checkpoint", "compile", "comm", "metrics", "profiler", "validator", "debug.*log*"),
    *("dump_folder", "dataloader.persistent_workers", "dataloader.pin_memory"),
    *("dataloader.prefetch_factor", "training.disable_cuda_graphs", "training.gc_freq", "parallelism.*_degree"),
    *("parallelism.*_degree*", "parallelism.pipeline_parallel_*"),
)
"""What a continued run may have otherwise: nothing that training computes. TorchTitan reshards its checkpoints."""


def changeable_settings(settings: Settings, now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a continued run may have otherwise. Primus's own loader has no workers."""
    fixed = fixed_settings(settings, now)
    return (*CHANGEABLE, *(name for name in _LOADER if name not in fixed))


def fixed_settings(settings: Settings, now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what no continued run can have otherwise: with TorchTitan's loader, the number of its workers, too."""
    own_loader = now["samples"] or "dataloader" in settings["checkpoint.exclude_from_loading"]
    return FIXED if own_loader else (*FIXED, *_LOADER)


def continue_earlier(settings: Settings, call: BackendCall, now: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Set the checkpoint to start from where there is one; its run, and what to say of it.

    `now` is this run's resolved config.

    A user's own `checkpoint.initial_load_path` or `load_step` stands.

    Raises:
        ConfigError: as many data-parallel ranks must continue it as there were, or it has no checkpoint before the end.
    """
    if not settings["checkpoint.enable"] or not settings["auto_continue_train"]:
        return "", ()
    if settings["checkpoint.initial_load_path"] or settings["checkpoint.load_step"] != -1:
        return "", ()
    if os.path.isabs(settings["checkpoint.folder"]):
        return "", ()  # all runs share the folder, so TorchTitan finds the newest checkpoint itself
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


def loads(settings: Settings) -> tuple[str, ...]:
    """The checkpoint that training begins with, and the one that TorchTitan finds in a folder that runs share."""
    folder, start = settings["checkpoint.folder"], settings["checkpoint.initial_load_path"]
    if not settings["checkpoint.enable"]:
        return ()
    step = settings["checkpoint.load_step"] if settings["checkpoint.load_step"] != -1 else None
    step = resume_from(folder)[0] if step is None and os.path.isabs(folder) else step
    shared = [os.path.join(folder, f"step-{step}")] if os.path.isabs(folder) and step is not None else []
    return (*shared, *([start] if start and "://" not in start else []))


def _begin_with(checkpoint: str, *, weights_only: bool = False) -> dict[str, Any]:
    """The settings that load all of the training's state, or the weights, from a checkpoint of another folder."""
    return {
        "checkpoint.initial_load_path": checkpoint,
        "checkpoint.initial_load_model_only": weights_only,
        "checkpoint.initial_load_in_hf": False,
    }


def _continue(settings: Settings, call: BackendCall, now: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    folder = settings["checkpoint.folder"]
    runs = _runs(call.previous(os.path.join(folder, "step-*", ".metadata")), folder)
    if not runs:
        return "", ()
    run, steps = next(iter(runs.items()))
    if call.weights_only:
        step, notes = settings.weights_from(run, steps, call.step)
        for setting, value in _begin_with(os.path.join(run, folder, f"step-{step}"), weights_only=True).items():
            settings.set(setting, value)
        return run, notes
    weights = _last_of_weights(run)
    if weights is not None and settings["training.steps"] <= weights:
        weights = None  # it comes too late anyway
    if not (whole := [step for step in steps if step != weights]):
        raise settings.error(
            "auto_continue_train",
            f"cannot continue {os.path.basename(run)}: its only checkpoint, of step {weights}, has weights alone",
            why="checkpoint.last_save_model_only is true there, so the optimizer's state was not saved",
            fix=f"start from its weights: --from {os.path.basename(run)}\n"
            "or start from the first step: --new, without --continue",
        )
    step, notes = settings.start_from(run, whole, "training.steps", at=call.step)
    if weights is not None and weights in steps and step < weights:
        notes += (f"skips the checkpoint of step {weights}: it has weights alone (checkpoint.last_save_model_only)",)
    notes += _untraced(settings, step)
    checkpoint = os.path.join(run, folder, f"step-{step}")
    _check_position(settings, checkpoint, now, f"step {step} of {os.path.basename(run)}")
    if not call.distributed.tentative:
        _check_ranks(settings, run, now, f"step {step} of {os.path.basename(run)}")
    for setting, value in _begin_with(checkpoint).items():
        settings.set(setting, value)
    return run, notes


def _untraced(settings: Settings, start: int) -> tuple[str, ...]:
    """A note on steps that are profiled once, and lie before the ones that are trained now: TorchTitan says nothing."""
    last, is_once = settings["profiler.profile_freq"], settings["profiler.profiler_repeat"] == 1
    first = last - settings["profiler.profiler_active"] + 1
    if not (settings["profiler.enable_profiling"] and is_once and first <= start):
        return ()
    return (f"no whole trace of steps {first} to {last}: training continues behind step {start}",)


def _last_of_weights(run: str) -> int | None:
    """The last step of `run`, if its checkpoint has weights alone."""
    settings = _resolved(run).get("settings") or {}
    return settings.get("training.steps") if settings.get("checkpoint.last_save_model_only", True) else None


def _resolved(run: str) -> dict[str, Any]:
    """The resolved config of an earlier run; empty: it has none."""
    try:
        return dict(json.loads(Path(run, "config", "backend_config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _runs(metadata: tuple[str, ...], folder: str) -> dict[str, list[int]]:
    """Steps with a complete checkpoint per run directory, in the order in which the runs came."""
    pattern = re.compile(rf"(.+)/{re.escape(folder.strip('/'))}/step-(\d+)/\.metadata")
    runs: dict[str, list[int]] = {}
    for path in metadata:
        match = pattern.fullmatch(path)
        if match and is_whole(os.path.dirname(path)):
            runs.setdefault(match[1], []).append(int(match[2]))
    return runs


def _check_position(settings: Settings, checkpoint: str, now: Mapping[str, Any], shown: str) -> None:
    """What Primus's own loader needs of a checkpoint, TorchTitan would miss on every rank, at each start again."""
    if not now["samples"] or "dataloader" in settings["checkpoint.exclude_from_loading"]:
        return
    listed = Path(checkpoint, ".metadata").read_bytes()  # a pickle, in which names are plain text
    if b"dataloader." in listed and _CONSUMED not in listed:
        raise settings.error(
            "auto_continue_train",
            f"cannot continue from {shown}: its checkpoint does not say how many samples were consumed",
            why="an earlier version of Primus, or another data loader, wrote it",
            fix="drop the data position (checkpoint.exclude_from_loading: [dataloader]), "
            "or start from the first step: --new, without --continue",
        )


def _check_ranks(settings: Settings, run: str, now: Mapping[str, Any], shown: str) -> None:
    """With TorchTitan's data sets, each data-parallel rank's place in the data is part of a checkpoint."""
    if now["samples"] or "dataloader" in settings["checkpoint.exclude_from_loading"]:
        return  # Primus's own loader has the number of samples that all ranks consumed
    then = _resolved(run).get("data_parallel", now["data_parallel"])
    if then != now["data_parallel"]:
        raise settings.error(
            "auto_continue_train",
            f"cannot continue from {shown}: data-parallel ranks there: {then}, here: {now['data_parallel']}",
            why="a checkpoint contains the data position of each rank",
            fix="start it on as many ranks, drop the data position (checkpoint.exclude_from_loading: [dataloader]), "
            "or start from the first step: --new, without --continue",
        )
