"""Automatic continuation: where an earlier, unfinished run of the experiment left a checkpoint, training goes on."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from primus_maxtext.checkpoints import COMMITTED, FOLDER, is_whole
from primus_maxtext.settings import Settings
from primus_train.backend import BackendCall

__all__ = ["CHANGEABLE", "changeable", "continue_earlier", "fixed"]

CHANGEABLE = (
    "grain_worker_count_eval",
    "load_parameters_path",  # of a run that started `--from` another
    *("continue_from", "checkpoint*", "enable_checkpoint*", "async_checkpointing", "*_checkpoint*", "eval_*"),
    *("base_output_directory", "run_name", "jax_cache_dir", "hardware", "enable_tensorboard"),
    *("log_*", "*profil*", "gcs_metrics", "remat_policy", "ici_*", "dcn_*", "max_num_checkpoints_to_keep"),
)
"""What a continued run may have otherwise: nothing that training computes. Orbax reshards its checkpoints."""
FIXED = (
    "data.vocab_size",
    *("base_emb_dim", "base_num_query_heads", "base_num_kv_heads", "base_mlp_dim", "base_num_decoder_layers"),
    *("base_moe_mlp_dim", "head_dim", "vocab_size", "decoder_block", "num_experts", "mtp_num_layers", "scan_layers"),
    *("param_scan_axis", "logits_via_embedding", "attention_type", "use_qk_norm", "mlp_activations", "opt_type"),
)
"""With these, also below `model`, the checkpoint has the form of another model or of another optimizer's state."""
_WORKERS = ("grain_worker_count",)
_OWN_START = ("load_parameters_path", "load_full_state_path")


def continue_earlier(settings: Settings, call: BackendCall) -> tuple[str, tuple[str, ...]]:
    """The checkpoint to continue from (empty: none), and what to say of it.

    A start that the user names stands.

    Raises:
        ConfigError: as many nodes must go on as there were, or it has no checkpoint before the end.
    """
    if not (settings["auto_continue_train"] and settings["enable_checkpointing"]):
        return "", ()
    if any(settings[name] for name in _OWN_START):
        return "", ()
    runs: dict[str, list[int]] = {}
    for path in call.previous(os.path.join(FOLDER, "*", COMMITTED)):
        step = Path(path).parent
        if step.name.isdigit() and is_whole(str(step.parent), int(step.name)):
            runs.setdefault(str(step.parent.parent), []).append(int(step.name))
    if not runs:
        return "", ()
    run, found = next(iter(runs.items()))
    if call.weights_only:
        made, notes = settings.weights_from(run, [step + 1 for step in found], call.step)
        settings.set("load_parameters_path", os.path.join(run, FOLDER, str(made - 1), "items"))
        return os.path.join(run, FOLDER, str(made - 1)), notes
    made, notes = settings.start_from(run, [step + 1 for step in found], "steps", at=call.step)
    checkpoint = os.path.join(run, FOLDER, str(made - 1))
    _check_processes(settings, call, checkpoint, f"step {made} of {os.path.basename(run)}")
    return checkpoint, notes


def _check_processes(settings: Settings, call: BackendCall, checkpoint: str, shown: str) -> None:
    """MaxText would end over it on every node, at each start again."""
    then = len(glob.glob(os.path.join(glob.escape(checkpoint), "iter", "process_*-of-*.json")))
    now = call.distributed.nnodes
    if then and call.config.get("data"):
        raise settings.error(
            "auto_continue_train",
            f"cannot continue from {shown}: an earlier version of Primus started the run",
            why="its checkpoint contains the data position of each node, and now there is one for all",
            fix="start from the first step: --new, without --continue",
        )
    if then in (0, now) or settings["dataset_type"] != "grain" or call.distributed.tentative:
        return
    raise settings.error(
        "auto_continue_train",
        f"cannot continue from {shown}: nodes that saved it: {then}, now: {now}",
        why="a checkpoint contains the data position of each node",
        fix=f"start it on {then} nodes, or start from the first step: --new, without --continue",
    )


def changeable(settings: Settings, *, own_reader: bool) -> tuple[str, ...]:
    """The same for a run with these `settings`: a schedule as long as the training changes with it.

    `own_reader`: Primus reads the data, and has no workers.
    """
    follows = settings["learning_rate_schedule_steps"] == settings["steps"]
    workers = () if _keeps_workers(settings, own_reader=own_reader) else _WORKERS
    return (*CHANGEABLE, *workers, *(("learning_rate_schedule_steps",) if follows else ()))


def fixed(settings: Settings, *, own_reader: bool) -> tuple[str, ...]:
    """Return what no continued run can have otherwise, also where it stands below `model`."""
    workers = _WORKERS if _keeps_workers(settings, own_reader=own_reader) else ()
    return (*FIXED, *(f"model.{name}" for name in FIXED), *workers)


def _keeps_workers(settings: Settings, *, own_reader: bool) -> bool:
    """Whether a checkpoint has the position of each worker of grain."""
    return settings["dataset_type"] == "grain" and not own_reader
