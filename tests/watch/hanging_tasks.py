"""Tasks of which one rank hangs; a test drops this file into a project."""

import ctypes
import os
import time
from typing import Any

from primus_core import register_task

ODD = 2


def begin(call: Any) -> None:
    """Meet the others, and log a step."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()
    if call.rank == 0:
        with open(os.environ["PRIMUS_METRICS_FILE"], "a", encoding="utf-8") as file:
            file.write('{"step": 1, "loss": 7.0}\n')
    dist.barrier()


@register_task("hang collective", scope="rank")
def collective(call: Any) -> None:
    import torch
    import torch.distributed as dist

    begin(call)
    if call.rank == ODD:
        dist.barrier()  # the odd rank is here
    dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(4))


@register_task("hang python", scope="rank")
def python(call: Any) -> None:
    import torch
    import torch.distributed as dist

    begin(call)
    while call.rank == ODD:
        time.sleep(0.01)  # the odd rank is here
    dist.all_reduce(torch.ones(4))


@register_task("hang native", scope="rank")
def native(call: Any) -> None:
    import torch
    import torch.distributed as dist

    begin(call)
    lock, library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    library.pthread_mutex_lock(lock)
    if call.rank == ODD:
        library.pthread_mutex_lock(lock)  # the odd rank is here, with the interpreter's lock
    dist.all_reduce(torch.ones(4))


@register_task("hang loader", scope="rank")
def loader(call: Any) -> None:
    import torch
    import torch.distributed as dist

    class Samples(torch.utils.data.Dataset[int]):  # type: ignore[misc]  # torch has no types here
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> int:
            if call.rank == ODD and index > 5:
                time.sleep(600)  # the odd rank is here
            return index

    begin(call)
    for batch in torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=1):
        dist.all_reduce(batch)


@register_task("hang stopped", scope="rank")
def stopped(call: Any) -> None:
    import signal

    import torch
    import torch.distributed as dist

    begin(call)
    if call.rank == ODD:
        os.kill(os.getpid(), signal.SIGSTOP)  # the odd rank is here
    dist.all_reduce(torch.ones(4))
