"""Launcher `torchrun`: PyTorch's own elastic agent starts one rank for each device of a node."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from primus_core.contracts.launcher import LaunchCall, Launcher, LaunchPlan, Signalled
from primus_core.plan import programs
from primus_core.plan.plan import Requirement, Step, Variable

__all__ = ["TORCHRUN"]

_TORCH = Requirement("module", "torch", "install PyTorch: it includes torchrun, which starts the ranks")
# Its table (torch.distributed.elastic.multiprocessing.errors.ChildFailedError), with exit codes by rank.
_ROW = r"host\s*:\s*(\S+)\s*\n\s*rank\s*:\s*(\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*:\s*(-?\d+) \(pid: (\d+)\)"
_FORCED = r"Unable to shutdown process (\d+) via \S+ forcefully exiting"
"""Of a rank that outlives the SIGTERM with which it ends the others: what follows is its own SIGKILL."""
_HANDLED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
_SIGNALS = ("TORCHELASTIC_SIGNALS_TO_HANDLE", "PET_SIGNALS_TO_HANDLE")
"""The second is the option `--signals-to-handle`, which newer versions have and which wins there."""
_SHUTDOWN, _SHUTDOWN_S = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", 30.0
"""So long torchrun waits for ranks that were told to end before it kills them, unless it is told otherwise."""
_ROOT_CAUSE = "Root Cause (first observed failure):"


class Torchrun:
    """One of them."""

    name = "torchrun"
    one_per_node = False
    reports = True
    families = ("TORCHELASTIC_", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME")

    def plan(self, call: LaunchCall) -> LaunchPlan:
        """`torchrun`, by the program that has it told to end once."""
        place = call.place
        ranks = ("--nproc-per-node", str(place.gpus_per_node))
        nodes = ("--nnodes", str(place.nnodes), "--node-rank", str(place.node_rank))
        # The static rendezvous also on one node: `--standalone` takes another way to meet, a tenth of a second longer.
        meeting = ("--master-addr", place.master_addr, "--master-port", str(place.master_port))
        module, *words = call.rank
        # Behind `--`, torchrun's parser takes no word of the task for the beginning of an option of its own.
        argv = (call.facts.python, "-m", programs.TORCHRUN, *ranks, *nodes, *meeting, module, "--", *words)
        first = place.node_rank * place.gpus_per_node
        step = Step("worker", argv, call.facts.cwd, ranks=place.gpus_per_node, first_rank=first, kind="worker")
        return LaunchPlan(step, (*_signals(call), *_patience(call)), requires=(_TORCH,))

    def signalled(self, output: str) -> Iterator[Signalled]:
        """Its table names the host by the name that goes with its address, which may be localhost."""
        others, _, root = output.partition(_ROOT_CAUSE)
        forced = set(re.findall(_FORCED, output))
        for host, rank, code, pid in re.findall(_ROW, root) + re.findall(_ROW, others):
            if int(code) > 0:
                yield Signalled(int(rank), 0, host, int(code))
            elif pid not in forced:
                yield Signalled(int(rank), -int(code), host)


def _signals(call: LaunchCall) -> tuple[Variable, ...]:
    """Have it leave those signals alone that were ignored when Primus started: it would end the ranks by them."""
    ignored = call.facts.host.ignored_signals()
    if not ignored.intersection(_HANDLED) or not call.environ.keys().isdisjoint(_SIGNALS):
        return ()
    handled = ",".join(name for name in _HANDLED if name not in ignored)
    why = f"ignored when Primus started: {', '.join(name for name in _HANDLED if name in ignored)}"
    return tuple(Variable(name, handled, "direct", why) for name in _SIGNALS)


def _patience(call: LaunchCall) -> tuple[Variable, ...]:
    """Have it wait as long for ranks that save as the supervisor does: it would kill them after half a minute."""
    if call.grace_s <= _SHUTDOWN_S or _SHUTDOWN in call.environ:
        return ()
    return (Variable(_SHUTDOWN, str(math.ceil(call.grace_s)), "direct", "--grace-period"),)


TORCHRUN: Launcher = Torchrun()
