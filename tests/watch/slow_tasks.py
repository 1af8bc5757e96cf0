"""A task of three ranks that work and meet in each step, as a training does; a test drops this file into a project."""

import os
import time
from typing import Any

from primus_core import register_task

STEP_S = 0.1
SLOW, PAUSES = 1, 2


def seconds(rank: int, step: int, *, is_odd: bool) -> float:
    """How long a rank works in a step: rank 1 takes 20 % longer, rank 2 sleeps in every 50th step."""
    if is_odd and rank == PAUSES and step % 50 == 0:
        return 8 * STEP_S
    return 1.2 * STEP_S if is_odd and rank == SLOW else STEP_S


@register_task("meet", scope="rank")
def meet(call: Any) -> None:
    """meet [odd]"""
    import torch
    import torch.distributed as dist

    from primus_train.kit.waits import Waits

    dist.init_process_group("gloo")
    waits = Waits.of_torch(os.environ["PRIMUS_RUN_DIR"], call.rank, 3)
    assert waits
    for step in range(1, 240):
        waits.step(step - 1 if step > 1 else None, 0.0)
        time.sleep(seconds(call.rank, step, is_odd="odd" in call.words))
        dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
