"""A `primus` command that a hook or a rank of a run types: it starts a run of its own, whose parent is that run.

Ranks and hooks have two variables that name their run: `PRIMUS_RUN_DIR`, where it keeps its files, and
`PRIMUS_PARENT`. For a layer that an outer layer started the two differ, or the second is missing: it joins the run.
"""

from __future__ import annotations

from collections.abc import Mapping

from primus_core import variables
from primus_core.contracts import launchers
from primus_machine.host import HostRoot
from primus_machine.variables import OUTER, RUN_DIR, STREAMS

__all__ = ["is_alone", "outside", "parent_of"]

_OF_RUN = (
    *(RUN_DIR, variables.RUN_ID, OUTER, variables.RESTARTED, variables.ATTENDED),
    *(variables.METRICS_FILE, STREAMS, variables.NUMA_CPUS, variables.SUBMITTED),
)
_OF_PLACE = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
)
"""Where the ranks of the run around stand, and where they meet: a further run would disturb them there."""


def outside(host: HostRoot) -> HostRoot:
    """The machine as a new run finds it: without what the run around this process says to its own processes."""
    if not _is_inside(host.environ):
        return host
    dropped, families = {*_OF_RUN, *_OF_PLACE}, launchers.families()
    return host.with_environ({k: v for k, v in host.environ.items() if k not in dropped and not k.startswith(families)})


def _is_inside(environ: Mapping[str, str]) -> bool:
    parent = environ.get(variables.PARENT)
    return bool(parent) and parent == environ.get(RUN_DIR)


def parent_of(environ: Mapping[str, str]) -> str:
    """The run directory of the run that starts this one, by a hook or a rank; empty: a person does."""
    return environ.get(variables.PARENT, "")


def is_alone(environ: Mapping[str, str]) -> bool:
    """Whether a run that starts now has this node alone, whatever the job around it has: it is one process's own."""
    return bool(parent_of(environ)) and RUN_DIR not in environ
