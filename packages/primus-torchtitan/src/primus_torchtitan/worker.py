"""Trains: TorchTitan's own trainer, built from the resolved settings in the run directory.

Started on every rank as `python -m primus_core.programs.rank primus_torchtitan.worker`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from primus_core import get_logger
from primus_core.errors import MachineError
from primus_core.journal.events import checkpoint_saved, saved_steps
from primus_torchtitan.checkpoints import CheckpointWatch, end_when_told, resume_from
from primus_train.failed_loads import FailedLoads
from primus_train.kit import replicas, worker
from primus_train.kit.end_request import TERMINATED, EndRequest, ToldToEnd
from primus_train.kit.leaving import Leaving
from primus_train.kit.made_before import made_before
from primus_train.kit.outside_writers import OutsideWriters

__all__ = ["main"]


def main() -> None:
    """Read the settings, adapt TorchTitan to this machine, train."""
    leaving = Leaving()
    resolved = worker.resolved()
    settings = resolved["settings"]
    resumed = _resume(settings, FailedLoads.of_run(worker.run_directory()))
    if made_before(resumed, settings["training.steps"], _folder(settings)):
        leaving.code = 0
        return
    _adapt(resolved)
    told = settings.get("metrics.enable_tensorboard")
    writers = OutsideWriters("torch.utils.tensorboard" if told else "", resumed)
    try:
        told_to_end = _train(resolved)
    finally:
        writers.flush()
    leaving.code = TERMINATED if told_to_end else 0
    sys.exit(leaving.code)


def _resume(settings: dict[str, Any], failed: FailedLoads) -> int | None:
    """An earlier attempt of this very run may have left checkpoints; the last one may have been cut off with it."""
    if not settings.get("checkpoint.enable") or settings.get("checkpoint.load_step", -1) != -1:
        return None
    folder = _folder(settings)
    step, passed = resume_from(folder, failed)
    _tell(folder, passed, step, failed)
    if step is not None:
        settings["checkpoint.load_step"] = step
    else:
        _start_before(settings, failed)
    return step


def _folder(settings: dict[str, Any]) -> str:
    return str(worker.run_directory() / settings["checkpoint.folder"])


def _start_before(settings: dict[str, Any], failed: FailedLoads) -> None:
    """Where the checkpoint of the run that is continued could not be loaded, start from the one before."""
    start = settings.get("checkpoint.initial_load_path") or ""
    if not (failed.why(start) and worker.continues_from(start)):
        return
    folder, planned = os.path.dirname(start), int(start.rpartition("-")[2])
    step, passed = resume_from(folder, failed, planned)
    if step is not None:
        settings["checkpoint.initial_load_path"] = path = os.path.join(folder, f"step-{step}")
        worker.require_trusted(path)
        _tell(folder, (planned, *passed), step, failed)


def _tell(folder: str, passed: Sequence[int], step: int | None, failed: FailedLoads) -> None:
    if worker.rank() == 0:
        for number in passed:
            what = failed.fault(os.path.join(folder, f"step-{number}"))
            resumes = "it is skipped" if step is None else f"resuming from step {step}"
            message = f"the checkpoint of step {number} {what}; {resumes}"
            get_logger().warning("checkpoint_passed_over", message=message, step=number, resumes_from=step)


def _adapt(resolved: dict[str, Any]) -> None:
    """Patches first, since TorchTitan's modules keep copies of what the patches change."""
    from primus_torchtitan.patches import apply_all
    from primus_train.kit import patches

    applied = apply_all()
    _check_device(resolved["device"])

    from torchtitan.tools.logging import init_logger

    init_logger()
    line = patches.summary(applied, "primus_torchtitan.patches")
    if line and worker.rank() == 0:
        get_logger().info("patched", message=line)

    from primus_torchtitan import text_dataset

    text_dataset.register(resolved["data_parallel"])


def _check_device(planned: str) -> None:
    """A torch built for the CPU on a GPU machine would train, a hundred times slower than meant."""
    import torch

    if planned == "gpu" and not torch.accelerator.is_available():
        raise MachineError(
            "the plan uses GPUs, but torch finds none",
            why=f"torch {torch.__version__} is built for another device, or the driver does not answer",
            fix="install the torch build for this machine, or set CUDA_VISIBLE_DEVICES= to train on the CPU",
        )


def _train(resolved: dict[str, Any]) -> bool:
    """Do what `torchtitan.train.main` does once it has its configuration. Return whether training was told to end."""
    import torch
    from torchtitan.observability import structured_logger
    from torchtitan.tools.logging import logger

    import torchtitan
    from primus_torchtitan.trainer_config import build

    logger.info("torchtitan version: %s", torchtitan.__version__)
    config = build(resolved)
    structured_logger.init_structured_logger(
        source="training", output_dir=config.dump_folder, enable=config.debug.enable_structured_logging
    )
    structured_logger.log_trace_instant("structured_logger_started")
    told_to_end = _run(config)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    logger.info("Process group destroyed")
    return told_to_end


def _run(config: Any) -> bool:
    """Train. Return whether it ended since it was told to."""
    from primus_torchtitan.optimizer_settings import check_first_step, keep_settings
    from primus_torchtitan.replicas import copies
    from primus_torchtitan.step_metrics import install

    trainer = config.build()
    check_first_step(trainer)
    keep_settings(trainer, FailedLoads.of_run(worker.run_directory()))
    recorder = install(trainer)
    recorder.saves = config.checkpoint.enable and not config.checkpoint.load_only
    watch = _watch_checkpoints(trainer)
    told_to_end = False
    try:
        if config.checkpoint.create_seed_checkpoint:
            trainer.checkpointer.save(curr_step=0, last_step=True)
        else:
            request = EndRequest.of_torch()
            end_when_told(trainer.checkpointer, request)
            trainer.train()
            request.close()
            replicas.record(lambda: copies(trainer.model_parts))
    except ToldToEnd:
        told_to_end = True
    finally:
        trainer.close()
    if watch:
        watch.look()
    asked = 0 if config.checkpoint.create_seed_checkpoint or told_to_end else config.training.steps
    recorder.close(asked)
    return told_to_end


def _watch_checkpoints(trainer: Any) -> CheckpointWatch | None:
    """One rank tells of the checkpoints of all."""
    if worker.rank():
        return None
    run = str(worker.run_directory())
    own = str(getattr(trainer.checkpointer, "folder", "")).startswith(f"{run}/")
    told = saved_steps(run) if own else None  # other runs may have saved in a folder of their own
    return CheckpointWatch(trainer.checkpointer, lambda step, path: checkpoint_saved(run, step=step, path=path), told)


if __name__ == "__main__":
    main()
