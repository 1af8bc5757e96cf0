"""Orbax's checkpoints: `checkpoints/<step>/` in the run directory, where the first step is 0."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Container, Sequence
from typing import Any

from primus_core.errors import MachineError
from primus_machine import variables
from primus_machine.files.atomic import write_atomically
from primus_train.backend import BackendCall
from primus_train.failed_loads import FailedLoads

__all__ = [
    "COMMITTED",
    "FOLDER",
    "CheckpointWatch",
    "carry_over",
    "check_shared",
    "is_whole",
    "set_aside",
    "shared",
    "start_before",
    "steps",
    "watch_loading",
]

FOLDER = "checkpoints"
"""In the run directory; MaxText names it."""
COMMITTED = "commit_success.txt"
"""Orbax writes it when the parts of all nodes are there."""
_SIZES = "checkpoint_sizes"
"""Beside the folder: for each step the size of each of its files, since Orbax would look at them too late."""
_DAMAGED = "checkpoints_damaged"


def steps(folder: str) -> list[int]:
    """The steps in `folder` whose checkpoints are whole, oldest first."""
    return [step for step in _committed(folder) if is_whole(folder, step)]


def is_whole(folder: str, step: int) -> bool:
    """Whether a checkpoint's files are as long as when it was finished, as far as that is known."""
    path = os.path.join(folder, str(step))
    return os.path.exists(os.path.join(path, COMMITTED)) and all(
        os.path.isfile(file := os.path.join(path, name)) and os.path.getsize(file) == size
        for name, size in _known_sizes(folder, step).items()
    )


def set_aside(folder: str, failed: FailedLoads) -> dict[int, str]:
    """Move checkpoints out of the way of MaxText that were cut off since they were finished, or could not be loaded.

    Of those that could not be loaded, all stay where there is no other. Return what happened to each, by step.
    """
    whole = [os.path.join(folder, str(step)) for step in steps(folder)]
    left = failed.left(whole)
    passed = {step: "is incomplete" for step in _committed(folder) if os.path.join(folder, str(step)) not in whole}
    passed |= {int(os.path.basename(path)): failed.fault(path) for path in whole if path not in left}
    for step in passed:
        _move_aside(folder, step)
    return passed


def start_before(folder: str, source: str, failed: FailedLoads) -> tuple[str, dict[int, str]]:
    """Return the checkpoint of an earlier run to start from: `source`, or the one before if that could not be loaded.

    Its copy in `folder` is moved out of the way then. Also returns what happened to those that are passed over.
    """
    if not failed.why(source):
        return source, {}
    planned, theirs = int(os.path.basename(source)), os.path.dirname(source)
    older = [os.path.join(theirs, str(step)) for step in steps(theirs) if step < planned]
    if not older:
        return source, {}
    if os.path.exists(os.path.join(folder, str(planned))):
        _move_aside(folder, planned)
    return failed.left(older)[-1], {planned: failed.fault(source)}


def _move_aside(folder: str, step: int) -> None:
    place = os.path.join(os.path.dirname(folder), _DAMAGED)
    os.makedirs(place, exist_ok=True)
    os.rename(os.path.join(folder, str(step)), os.path.join(place, str(step)))


def _committed(folder: str) -> list[int]:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(n) for n in names if n.isdigit() and os.path.exists(os.path.join(folder, n, COMMITTED)))


def _list(folder: str, step: int) -> str:
    return os.path.join(os.path.dirname(folder), _SIZES, f"{step}.json")


def _known_sizes(folder: str, step: int) -> dict[str, int]:
    try:
        with open(_list(folder, step), encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError):  # it was finished just before the end
        return {}


def _keep_sizes(folder: str, step: int) -> None:
    top = os.path.join(folder, str(step))
    files = (os.path.join(place, name) for place, _, names in os.walk(top) for name in names)
    sizes = {os.path.relpath(file, top): os.path.getsize(file) for file in sorted(files)}
    os.makedirs(os.path.dirname(_list(folder, step)), exist_ok=True)
    write_atomically(_list(folder, step), json.dumps(sizes, indent=1))


def shared(call: BackendCall, *, saves: bool) -> tuple[str, ...]:
    """What to tell of nodes that are started by hand: each would make a run directory, and they save in one."""
    by_hand = call.distributed.nnodes > 1 and "NNODES" in call.facts.environ and not call.place.joined
    if not (saves and by_hand):
        return ()
    return (f"all nodes save to one run directory: start each node with the same {variables.RUN_DIR}",)


def check_shared(folder: str) -> None:
    """Look whether all nodes see the `folder` that node 0 has made; Orbax would find out when it saves.

    Raises:
        MachineError: one does not. All nodes raise it: none waits for those that have ended.
    """
    from jax.experimental.multihost_utils import process_allgather

    seen = [bool(it) for it in process_allgather(os.path.isdir(folder)).reshape(-1)]
    if not all(seen):
        raise MachineError(
            f"node 0 saves checkpoints in a folder that node {seen.index(False)} cannot access: {folder}",
            why="all nodes write their parts of a checkpoint to one folder",
            fix=f"set `workspace` to a folder that all nodes can access; if you start the nodes by hand, set "
            f"{variables.RUN_DIR} to the same value on all nodes; or set enable_checkpointing=false",
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


def watch_loading(paths: Sequence[str], failed: FailedLoads) -> None:
    """Remember in `failed` a checkpoint that cannot be loaded. `paths`: where it is, and where it came from."""
    from maxtext.common import checkpointing

    theirs = checkpointing.load_state_if_possible

    def load(*args: Any, **named: Any) -> Any:
        with failed.watched(*paths):
            return theirs(*args, **named)

    checkpointing.load_state_if_possible = load


class CheckpointWatch:
    """Tells of checkpoints that have become whole. Where nothing changed, a look is one `stat`."""

    def __init__(self, folder: str, tell: Callable[[int, str], None], told: Container[int] | None = None) -> None:
        """`told`: the steps that were told of; None: those of all that is whole by now."""
        self.folder, self.tell = folder, tell
        # One that became whole just before a kill is told of now.
        self.changed_ns, self.known = 0, {step for step in steps(folder) if told is None or step + 1 in told}
        self.lock = threading.Lock()

    def keep_looking(self) -> None:
        """Look each second until the process ends: a save in the background ends at any time, the last step's, too."""

        def look() -> None:
            while True:
                time.sleep(1)
                self.look()

        threading.Thread(target=look, daemon=True).start()

    def look(self) -> None:
        """Look now."""
        with self.lock:
            self._look()

    def _look(self) -> None:
        try:
            if (changed_ns := os.stat(self.folder).st_mtime_ns) == self.changed_ns:
                return
            begun = sum(name.isdigit() for name in os.listdir(self.folder))
        except OSError:
            return
        found = steps(self.folder)
        if len(found) == begun:  # else one of them is committed later, which does not change the folder
            self.changed_ns = changed_ns
        for step in found:
            if step not in self.known:
                self.known.add(step)
                _keep_sizes(self.folder, step)
                self.tell(step + 1, os.path.join(self.folder, str(step)))
