"""Settings that are wrong only together, or whose type says too little: checked before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from primus_core.errors import suggestion
from primus_torchtitan.schema import Schema
from primus_torchtitan.settings import Settings

__all__ = ["check_values"]

_GROUP_KEYS = {"pattern": str, "optimizer_name": str, "optimizer_kwargs": dict}
_OPTIMIZERS = ("Adam", "AdamW", "DistMuon")
_PLAIN = tuple(f"optimizer.{name}" for name in ("name", "lr", "beta1", "beta2", "eps", "weight_decay"))
_POLICY_FIELDS = {
    "activation_checkpoint.force_recompute_mm_shapes_by_fqns": "selective",
    "activation_checkpoint.memory_budget": "memory_budget",
    "activation_checkpoint.visualize_memory_budget_pareto": "memory_budget",
}


def check_values(settings: Settings, schema: Schema, cwd: str) -> None:
    """Look for what is wrong; relative paths that TorchTitan wants absolute become so."""
    settings.check(
        _check_folder,
        lambda s: _check_datasets(s, schema),
        _check_param_groups,
        _check_activation_checkpoint,
        _check_compile,
        _check_checkpoint,
        lambda s: _set_loaded(s, cwd),
        _check_hugging_face,
        _check_loaded,
        _check_validator,
    )


def _check_folder(settings: Settings) -> None:
    if "dump_folder" in settings:
        raise settings.error(
            "dump_folder",
            "'dump_folder' is the run directory, which Primus names",
            fix="set `workspace:` to choose where run directories are created",
        )


def _check_datasets(settings: Settings, schema: Schema) -> None:
    for name in ("dataloader.dataset", "validator.dataloader.dataset"):
        dataset = settings[name]
        if name in settings and dataset.lower() not in schema.datasets:
            raise settings.error(
                name,
                f"TorchTitan has no dataset '{dataset}'",
                why=f"known datasets: {', '.join(schema.datasets)}",
                fix=suggestion(dataset, schema.datasets) or "use one of them, or use `data.text`",
            )


def _check_param_groups(settings: Settings) -> None:
    name = "optimizer.param_groups"
    if name not in settings:
        return
    if both := [plain for plain in _PLAIN if plain in settings]:
        raise settings.error(both[0], f"'{both[0]}' and '{name}' both describe the optimizer", fix="keep one of them")
    for index, group in enumerate(settings[name]):
        _check_group(settings, f"{name}[{index}]", group)


def _check_group(settings: Settings, name: str, group: Any) -> None:
    at = "optimizer.param_groups"
    if not isinstance(group, Mapping) or set(group) - set(_GROUP_KEYS) or {"pattern", "optimizer_name"} - set(group):
        raise settings.error(at, f"'{name}' must have the keys {', '.join(_GROUP_KEYS)}, and has {group!r}")
    for key, kind in _GROUP_KEYS.items():
        if not isinstance(group.get(key, kind()), kind):
            raise settings.error(at, f"'{name}.{key}' takes {kind.__name__}: {group[key]!r}")
    try:
        re.compile(group["pattern"])
    except re.error as error:
        raise settings.error(at, f"'{name}.pattern' is not a regular expression: {error}") from None
    if group["optimizer_name"] not in _OPTIMIZERS:
        raise settings.error(
            at,
            f"'{name}.optimizer_name' cannot be {group['optimizer_name']!r}",
            why=f"known: {', '.join(_OPTIMIZERS)}",
            fix=suggestion(group["optimizer_name"], _OPTIMIZERS),
        )


def _check_activation_checkpoint(settings: Settings) -> None:
    """A setting of a policy that was not chosen would be silently without effect."""
    mode = settings["activation_checkpoint.mode"]
    for name, policy in _POLICY_FIELDS.items():
        if name in settings and mode != policy:
            del settings.given[name]
            if "activation_checkpoint.mode" not in settings:
                raise settings.error(name, f"'{name}' needs activation_checkpoint.mode: {policy}")
    if mode == "none":
        for name in [name for name in settings.given if name.startswith("activation_checkpoint.")]:
            if name != "activation_checkpoint.mode":
                del settings.given[name]


def _check_compile(settings: Settings) -> None:
    compiled = settings["compile.enable"] and "model" in settings["compile.components"]
    needs = {
        "activation_checkpoint.mode": settings["activation_checkpoint.mode"] == "memory_budget",
        "compile.enable_async_tensor_parallel": settings["compile.enable_async_tensor_parallel"],
    }
    for name, asked in needs.items():
        if asked and not compiled:
            raise settings.error(
                name,
                f"'{name}: {settings[name]}' works on a compiled model only",
                fix="set compile.enable: true, with 'model' in compile.components",
            )


def _check_checkpoint(settings: Settings) -> None:
    if settings["checkpoint.keep_latest_k"] == 1:
        raise settings.error(
            "checkpoint.keep_latest_k",
            "'checkpoint.keep_latest_k' cannot be 1",
            why="the last checkpoint may not be complete yet",
            fix="use 2, or 0 to keep all",
        )
    if not settings["checkpoint.folder"].strip():
        raise settings.error(
            "checkpoint.folder", "'checkpoint.folder' is empty", fix="name a folder, or remove the setting"
        )


def _set_loaded(settings: Settings, cwd: str) -> None:
    path = settings["checkpoint.initial_load_path"]
    if path and "://" not in path:
        settings.set("checkpoint.initial_load_path", os.path.join(cwd, path))


def _check_loaded(settings: Settings) -> None:
    for name in ("checkpoint.initial_load_path", "checkpoint.initial_load_in_hf"):
        if settings[name] and not settings["checkpoint.enable"]:
            why = "with 'checkpoint.enable: false' TorchTitan loads nothing"
            raise settings.error(
                name, f"'{name}' has no effect", why=why, fix="set checkpoint.enable=true, or remove it"
            )


def _check_hugging_face(settings: Settings) -> None:
    pairs = {
        "checkpoint.initial_load_in_hf": "checkpoint.initial_load_model_only",
        "checkpoint.last_save_in_hf": "checkpoint.last_save_model_only",
    }
    for name, needed in pairs.items():
        if settings[name] and not settings[needed]:
            raise settings.error(name, f"'{name}' needs '{needed}'", why="safetensors hold the model only")


def _check_validator(settings: Settings) -> None:
    steps = settings["validator.steps"]
    if steps != -1 and steps < 1:
        raise settings.error("validator.steps", f"'validator.steps' is {steps}, and must be positive or -1")
