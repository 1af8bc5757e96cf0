"""Trains: Megatron's own loop, with the resolved settings in the run directory.

Started on every rank as `python -m primus_core.programs.rank primus_megatron.worker`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from primus_core import get_logger
from primus_core.errors import MachineError
from primus_core.journal.events import checkpoint_saved
from primus_megatron.checkpoints import CheckpointWatch, loaded, newest_whole
from primus_megatron.continuation import as_resumed
from primus_train.failed_loads import FailedLoads
from primus_train.kit import replicas, worker
from primus_train.kit.end_request import interrupt_as_terminate
from primus_train.kit.leaving import Leaving
from primus_train.kit.made_before import made_before
from primus_train.kit.outside_writers import OutsideWriters
from primus_train.kit.recorder import Recorder
from primus_train.kit.step_clock import StepClock

__all__ = ["main"]


def main() -> None:
    """Read the settings, adapt Megatron to this machine, train."""
    leaving = Leaving()
    resolved = worker.resolved()
    interrupt_as_terminate()
    if resolved["checkout"]:
        sys.path.insert(0, resolved["checkout"])
    resumed = _resume(resolved, FailedLoads.of_run(worker.run_directory()))
    if made_before(resumed, _asked(resolved["settings"]), resolved["settings"].get("save") or ""):
        leaving.code = 0
        return
    _adapt(resolved["device"])
    writers = OutsideWriters("torch.utils.tensorboard" if resolved["settings"].get("tensorboard_dir") else "", resumed)
    try:
        _train(resolved)
    finally:
        writers.flush()
    _leave()
    leaving.code = 0


def _resume(resolved: dict[str, Any], failed: FailedLoads) -> int | None:
    """An earlier attempt of this run may have left checkpoints; the last one may have been cut off with it.

    The iteration to resume after; None: there is none.
    """
    settings = resolved["settings"]
    if not resolved["own"]["auto_continue_train"] or not settings.get("save"):
        return None
    iteration, passed = newest_whole(settings["save"], failed)
    if iteration is None:
        _tell(settings["save"], None, passed, failed)
        _start_before(settings, failed)
        return None
    worker.require_trusted(*loaded(settings["save"], iteration))
    settings |= {"load": settings["save"], "ckpt_step": iteration}
    for name, value in as_resumed(settings).items():
        settings[name] = value
        if value is None:
            del settings[name]
    _tell(settings["save"], iteration, passed, failed)
    return iteration


def _start_before(settings: dict[str, Any], failed: FailedLoads) -> None:
    """Where the checkpoint of the run that is continued could not be loaded, start from the one before."""
    folder, planned = settings.get("load") or "", settings.get("ckpt_step") or 0
    start = os.path.join(folder, f"iter_{planned:07d}")
    if not (failed.why(start) and worker.continues_from(start)):
        return
    iteration, passed = newest_whole(folder, failed, planned)
    if iteration is not None:
        worker.require_trusted(*loaded(folder, iteration))
        settings["ckpt_step"] = iteration
        _tell(folder, iteration, (planned, *passed), failed)


def _tell(folder: str, iteration: int | None, passed: Sequence[int], failed: FailedLoads) -> None:
    if worker.rank():
        return
    log = get_logger()
    if iteration is not None:
        log.info("continues", message=f"continues from iteration {iteration} in {folder}", step=iteration, path=folder)
    for number in passed:
        what = failed.fault(os.path.join(folder, f"iter_{number:07d}"))
        resumes = "it is skipped" if iteration is None else f"resuming from {iteration}"
        message = f"the checkpoint of iteration {number} {what}; {resumes}"
        log.warning("checkpoint_passed_over", message=message, step=number, resumes_from=iteration)


def _adapt(planned: str) -> None:
    """Patches first, since Megatron's modules keep copies of what the patches change."""
    from primus_megatron.patches import apply_all
    from primus_megatron.patches._patch import no_accelerator
    from primus_train.kit import patches

    if planned == "gpu" and no_accelerator():
        import torch

        raise MachineError(
            "the plan uses GPUs, but torch finds none",
            why=f"torch {torch.__version__} is built for another device, or the driver does not answer",
            fix="install the torch build for this machine, or set CUDA_VISIBLE_DEVICES= to train on the CPU",
        )
    line = patches.summary(apply_all(), "primus_megatron.patches")
    if line and worker.rank() == 0:
        get_logger().info("patched", message=line)


def _train(resolved: dict[str, Any]) -> None:
    from primus_megatron.first_step import check_first_step
    from primus_megatron.installation import importable_version
    from primus_megatron.loop import pretrain
    from primus_megatron.model import model_provider
    from primus_megatron.step_metrics import found_by_check, install
    from primus_train.kit import versions

    settings = resolved["settings"]
    look = _watch(settings.get("save") or "") if worker.rank() == 0 else lambda: None
    recorder = Recorder.of(resolved)
    recorder.saves = bool(settings.get("save"))
    install(recorder, look)
    check_first_step(FailedLoads.of_run(worker.run_directory()))
    _around_saving(recorder.clock, look, settings if resolved["own"]["disable_last_saving"] else {})
    asked = _asked(settings)
    try:
        model = partial(model_provider, own=resolved["own"])
        pretrain(versions.release(importable_version())[:2], settings, model)
    except SystemExit as stop:  # Megatron ends like this after SIGTERM, a duration or an exit_interval
        if stop.code:
            raise found_by_check(recorder, stop.code) or stop from None
        asked = 0
    look()
    recorder.close(asked)


def _asked(settings: Mapping[str, Any]) -> int:
    """The iteration at which training is to end; 0: none is asked for."""
    return 0 if settings.get("skip_train") else int(settings["train_iters"] or 0)


def _leave() -> None:
    """End the groups together: rank 0 serves the store that the others may still ask."""
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def _watch(folder: str) -> Callable[[], None]:
    """One rank tells of the checkpoints of all."""
    run = str(worker.run_directory())
    own = folder.startswith(f"{run}/")
    return CheckpointWatch(folder, lambda step, path: checkpoint_saved(run, step=step, path=path), is_own=own).look


def _around_saving(clock: StepClock, look: Callable[[], None], skips_last: dict[str, Any]) -> None:
    """Look after each save. Megatron saves when all is done, too, and has no argument against it."""
    from megatron.training import training

    from primus_megatron.replicas import copies, ungathered_after

    save, last = training.save_checkpoint_and_time, skips_last.get("train_iters")

    def saved(iteration: int, *args: Any, **kwargs: Any) -> None:
        if iteration == last and iteration % skips_last["save_interval"]:
            return
        with clock.saving(), ungathered_after(args[0]):
            save(iteration, *args, **kwargs)
            look()
            replicas.record(lambda: copies(args[0]))

    training.save_checkpoint_and_time = saved


if __name__ == "__main__":
    main()
