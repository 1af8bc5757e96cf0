"""A run whose earlier attempt failed after its last checkpoint has nothing left to train."""

from __future__ import annotations

from primus_core import get_logger
from primus_core.errors import RequestError, TrainingError
from primus_core.journal import summary
from primus_core.journal.events import TRAINING_ENDED, Events, saved_steps
from primus_train.kit import worker

__all__ = ["made_before"]


def made_before(step: int | None, asked: int, folder: str) -> bool:
    """Return whether earlier attempts of this run have made all the steps, and say so.

    Args:
        step: that of the newest complete checkpoint in `folder`; None: there is none.
        asked: the step at which training is to end; 0: none is asked for.
        folder: where this run saves; other runs may save there, too, if it lies elsewhere.

    Raises:
        RequestError: they have made more.
        TrainingError: this run has no record of saving that checkpoint: training would save over one of another.
    """
    run = str(worker.run_directory())
    if step is None or not asked or step < asked:
        return False
    if not (folder.startswith(f"{run}/") or step in saved_steps(run)):
        raise TrainingError(
            f"no step is left to make: training should end at step {asked}",
            why=f"it continues from the checkpoint of step {step} in {folder}, which it has not recorded as its own",
            fix="ask for more steps, or save in another folder",
        )
    if step > asked:
        raise RequestError(
            f"{run} has a checkpoint of step {step} already, and training should end at step {asked}",
            why="a training continues from the checkpoints in its own run directory",
            fix="ask for more steps, or start it in another run directory: unset PRIMUS_RUN_DIR",
        )
    rows = summary.read(worker.metrics_file())
    if rows and rows[-1]["loss"] is None:
        return False
    if worker.rank() == 0:
        message = f"all {asked} steps were made before, and the checkpoint of step {step} is complete"
        get_logger().info("made_before", message=message, step=step)
        if summary.ended_at(run) is None:
            Events.of_process(run).emit(TRAINING_ENDED, step=step)
    return True
