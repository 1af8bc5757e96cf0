"""A background save does not make JAX forget at which step training is.

Orbax asks for the notice of a preemption again when it has written a checkpoint, with the step of that checkpoint. JAX
takes this for the step in hand: if SIGTERM comes before the next step ends, all processes agree to end after a step
that is over, and train on until they are killed.
"""

from __future__ import annotations

import threading

from primus_train.kit.patches import Patch

__all__ = ["PATCH"]


def _apply() -> None:
    from jax.experimental import multihost_utils

    theirs, reached = multihost_utils.reached_preemption_sync_point, threading.Event()

    def of_training(step_id: int) -> bool:
        if threading.current_thread() is threading.main_thread() and theirs(step_id):
            reached.set()  # and it stays so: a step whose checkpoint is there already does not look
        return reached.is_set()

    multihost_utils.reached_preemption_sync_point = of_training


PATCH = Patch(
    id="late-preemption-looks",
    reason="SIGTERM during a save in the background would be passed over, and the training killed without a checkpoint",
    needed=lambda: True,
    apply=_apply,
    link="maxtext/common/checkpointing.py, reached_preemption",
    since=(0, 2),
    before=(0, 3),
)
