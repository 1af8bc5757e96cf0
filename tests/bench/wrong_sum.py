"""Run by test_comm.py under torchrun: `bench comm` with a sum that is wrong in one element of one rank."""

import sys

from torch import distributed

from primus_bench.benchmarks.comm import worker
from primus_bench.benchmarks.comm.operations import COLLECTIVES, Buffers, Group
from primus_core.errors import PrimusError


def wrong(data: Buffers, group: Group) -> None:
    """A sum, but for one element."""
    distributed.all_reduce(data.received, group=group.handle)
    if group.rank == 1:
        data.received[17] += 1


try:
    sys.exit(worker.main(sys.argv[1:], {**COLLECTIVES, "all_reduce": wrong}))
except PrimusError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
