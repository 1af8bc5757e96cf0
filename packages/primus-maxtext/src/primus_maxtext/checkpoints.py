"""Orbax's checkpoints: `checkpoints/<step>/` in the run directory, where the first step is 0."""

from __future__ import annotations

import os
from collections.abc import Callable

from primus_core import variables
from primus_core.backend import BackendCall
from primus_core.errors import MachineError

__all__ = ["COMMITTED", "FOLDER", "CheckpointWatch", "carry_over", "check_shared", "shared", "steps"]

FOLDER = "checkpoints"
"""In the run directory; MaxText names it."""
COMMITTED = "commit_success.txt"
"""Orbax writes it when the parts of all nodes are there."""


def steps(folder: str) -> list[int]:
    """The steps in `folder` whose checkpoints are whole, oldest first."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(n) for n in names if n.isdigit() and os.path.exists(os.path.join(folder, n, COMMITTED)))


def shared(call: BackendCall, *, saves: bool) -> tuple[str, ...]:
    """What to tell of nodes that are started by hand: each would make a run directory, and they save in one."""
    by_hand = call.distributed.nnodes > 1 and "NNODES" in call.facts.environ and not call.place.joined
    if not (saves and by_hand):
        return ()
    return (f"the nodes save into one run directory: start each with the same {variables.RUN_DIR}",)


def check_shared(folder: str) -> None:
    """Look whether all nodes see the `folder` that node 0 has made; Orbax would find out when it saves.

    Raises:
        MachineError: one does not. All nodes raise it: none waits for those that have ended.
    """
    from jax.experimental.multihost_utils import process_allgather

    seen = [bool(it) for it in process_allgather(os.path.isdir(folder)).reshape(-1)]
    if not all(seen):
        raise MachineError(
            f"node 0 saves checkpoints in a folder that node {seen.index(False)} does not see: {folder}",
            why="the nodes write their parts of a checkpoint into one folder",
            fix=f"set `workspace` to a folder that all nodes see, and where you start each node by hand, "
            f"{variables.RUN_DIR} to the same for all; or enable_checkpointing=false",
        )


def carry_over(source: str, target: str) -> None:
    """Make the checkpoint in `source` one of the folder of `target`, whole or not at all.

    Its files are linked where they can be: they never change, and each run may delete its own.
    """
    import shutil

    if os.path.exists(target):
        return
    stage = os.path.join(os.path.dirname(os.path.dirname(target)), f".{os.path.basename(target)}-carried-over")
    shutil.rmtree(stage, ignore_errors=True)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copytree(source, stage, copy_function=_link)
    os.rename(stage, target)


def _link(source: str, target: str) -> str:
    import shutil

    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
    return target


class CheckpointWatch:
    """Tells of checkpoints that have become whole. Where nothing changed, a look is one `stat`."""

    def __init__(self, folder: str, tell: Callable[[int, str], None]) -> None:
        self.folder, self.tell = folder, tell
        self.changed_ns, self.known = 0, set(steps(folder))

    def look(self) -> None:
        """Look now."""
        try:
            changed_ns = os.stat(self.folder).st_mtime_ns
        except OSError:
            return
        if changed_ns == self.changed_ns:
            return
        self.changed_ns = changed_ns
        for step in steps(self.folder):
            if step not in self.known:
                self.known.add(step)
                self.tell(step + 1, os.path.join(self.folder, str(step)))
