"""Automatic continuation: where an earlier, unfinished run of the experiment left a checkpoint, training goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_megatron.checkpoints import SIZES, TRACKER, is_whole, iteration_of, newest, newest_whole, unlisted_newest
from primus_megatron.settings import Settings
from primus_train.backend import BackendCall

__all__ = ["CHANGEABLE", "CHECKPOINTS", "FIXED", "as_resumed", "continue_earlier", "on_replay"]

CHECKPOINTS = "checkpoints"
"""In the run directory, where `save` does not say otherwise."""
CHANGEABLE = (
    *("finetune", "no_load_optim", "no_load_rng"),  # of a run that started `--from` another
    *("own.auto_continue_train", "own.backend_path", "own.disable_*", "own.stderr_sink_level", "own.log_avg_*"),
    *("own.use_turbo_gemm", "own.use_turbo_rms_norm", "own.use_turbo_permute_padding", "own.use_turbo_deepep"),
    *("own.turbo_*", "own.moe_use_*", "own.no_fp8_weight_transpose_cache"),
    *("ckpt_*", "*_checkpoint*", "*save*", "override_opt_param_scheduler"),
    *("exit_*", "log_*", "logging_level", "timing_*", "eval_interval", "eval_iters", "data_cache_path"),
    *("profile*", "recompute_*", "distributed_timeout_minutes", "manual_gc*", "tensor_model_parallel_size"),
    *("pipeline_model_parallel_size", "expert_model_parallel_size", "context_parallel_size", "sequence_parallel"),
    *("num_layers_per_virtual_pipeline_stage", "overlap_*", "fixed_layout"),
)
"""What a continued run may have otherwise: nothing that training computes. The layout: see `_check_layout`."""
_SHAPE = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels"),
    *("group_query_attention", "vocab_size", "swiglu", "normalization", "untie_embeddings_and_output_weights"),
    *("position_embedding_type", "add_bias_linear", "add_qkv_bias", "qk_layernorm", "num_experts", "mtp_num_layers"),
    *("moe_ffn_hidden_size", "moe_layer_freq", "multi_latent_attention"),
)
"""What the model's parameters follow from."""
_OF_OPTIMIZER = ("optimizer", "bf16", "fp16", "use_distributed_optimizer", "apply_wd_to_qk_layernorm", "?decoupled_lr")
FIXED = ("data.vocab_size", *_SHAPE, *(f"model.{name}" for name in _SHAPE), *_OF_OPTIMIZER)
"""With these, the checkpoint has the form of another model or of another optimizer's state."""
_SCHEDULE = (
    *("lr", "min_lr", "lr_decay_style", "lr_decay_iters", "lr_warmup_iters", "lr_warmup_fraction", "weight_decay"),
    *("start_weight_decay", "end_weight_decay", "weight_decay_incr_style", "global_batch_size"),
)
"""What `use_checkpoint_opt_param_scheduler` takes from the checkpoint. Megatron compares what nothing overrides."""
_FRESH = ("finetune", "no_load_optim", "no_load_rng", "pretrained_checkpoint")
"""Settings with which a checkpoint is a beginning, and not where this very run was."""


def continue_earlier(settings: Settings, call: BackendCall, now: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Set the checkpoint to start from where there is one; its run, and what to say of it. `now` is this run's
    resolved config.

    A user's own `load` stands.

    Raises:
        ConfigError: it has another layout and cannot be resharded, or it has no checkpoint before the end.
    """
    if not settings["auto_continue_train"] or "load" in settings or not settings["save"]:
        return "", ()
    runs: dict[str, list[int]] = {}
    for path in call.previous(os.path.join(CHECKPOINTS, TRACKER)):
        unlisted = unlisted_newest(os.path.dirname(path))
        is_usable = unlisted is not None and not call.failed(
            os.path.join(os.path.dirname(path), f"iter_{unlisted:07d}")
        )
        runs[str(Path(path).parent.parent)] = [unlisted] if unlisted is not None and is_usable else []
    for path in call.previous(os.path.join(CHECKPOINTS, "iter_*", SIZES)):
        folder = os.path.dirname(path)
        if is_whole(folder):
            runs.setdefault(str(Path(folder).parent.parent), []).append(iteration_of(folder))
    run, iterations = next(((run, found) for run, found in runs.items() if found), ("", []))
    if not run:
        return "", ()
    if call.weights_only:
        iteration, notes = settings.weights_from(run, iterations, call.step)
        fresh = {"load": os.path.join(run, CHECKPOINTS), "ckpt_step": iteration, "finetune": True}
        for name, value in {**fresh, "no_load_optim": True, "no_load_rng": True}.items():
            settings.set(name, value)
        return run, notes
    iteration, notes = settings.start_from(run, iterations, "train_iters", "iteration", call.step)
    _check_schedule(settings, run)
    if not call.distributed.tentative:
        _check_layout(settings, run, now, f"iteration {iteration} of {os.path.basename(run)}")
    settings.set("load", os.path.join(run, CHECKPOINTS))
    settings.set("ckpt_step", iteration)
    if not settings["use_checkpoint_opt_param_scheduler"]:
        settings.default("override_opt_param_scheduler", True)  # a changed train_iters is meant
    return run, notes


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


def _check_schedule(settings: Settings, run: str) -> None:
    """Where Megatron takes the schedule from the checkpoint, or compares it, a change has no effect or ends the run."""
    takes, overrides = "use_checkpoint_opt_param_scheduler", "override_opt_param_scheduler"
    if settings[takes]:
        cause, why = takes, "it takes the schedule from the checkpoint"
    elif overrides in settings and not settings[overrides]:
        cause, why = f"{overrides}: false", "with it, Megatron refuses another schedule than the checkpoint's"
    else:
        return
    then = _resolved(run).get("settings") or {}
    default = {name: option.default for name, option in settings.options.items()}
    for name in _SCHEDULE:
        before = then.get(name, default.get(name))
        if before != settings[name]:
            raise settings.error(
                name,
                f"{name}: {before} in {os.path.basename(run)}, {settings[name]} here, which cannot be used",
                why=f"{cause}: {why}",
                fix=f"remove {cause}, or keep the schedule",
            )


def _resolved(run: str) -> dict[str, Any]:
    """The resolved config of an earlier run; empty: it has none."""
    try:
        return dict(json.loads(Path(run, "config", "backend_config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _check_layout(settings: Settings, run: str, now: Mapping[str, Any], shown: str) -> None:
    """Where Megatron cannot reshard a checkpoint, tensor and pipeline sizes must be the same."""
    known = _resolved(run)
    then = known.get("fixed_layout")
    if known and then != now["fixed_layout"]:
        raise settings.error(
            "auto_continue_train",
            f"cannot continue from {shown}: its tensor or pipeline parallel sizes or its optimizer sharding differ",
            why=f"[tensor, pipeline] of the earlier run: {then}; here: {now['fixed_layout']}",
            fix="use the sizes of that run, or start from the first step: --new, without --continue. A run with "
            "dist_ckpt_optim_fully_reshardable: true can be continued with other sizes",
        )
