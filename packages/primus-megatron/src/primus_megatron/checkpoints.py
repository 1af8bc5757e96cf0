"""Which checkpoints are whole: once Megatron has named one its newest, the sizes of its files are kept beside them.

A kill may come between the two, so the one that Megatron names is whole without a list, too.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable

from primus_machine.files.atomic import write_atomically
from primus_train.failed_loads import FailedLoads

__all__ = [
    "SIZES",
    "TRACKER",
    "CheckpointWatch",
    "fault",
    "is_whole",
    "loaded",
    "newest",
    "newest_whole",
    "unlisted_newest",
]

SIZES = "primus_sizes.json"
"""In a checkpoint's folder: the size of each of its files, by path. What has no such list was never whole."""
TRACKER = "latest_checkpointed_iteration.txt"
_ITERATION = re.compile(r"iter_(\d{7,})")


def is_whole(folder: str) -> bool:
    """Whether every file is as long as when the checkpoint was finished."""
    try:
        with open(os.path.join(folder, SIZES), encoding="utf-8") as file:
            sizes = json.load(file)
        return bool(sizes) and all(os.path.getsize(os.path.join(folder, name)) == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def newest_whole(
    folder: str, failed: FailedLoads | None = None, before: float = math.inf
) -> tuple[int | None, tuple[int, ...]]:
    """The newest iteration in `folder` whose checkpoint is whole (None: there is none), and the newer ones.

    One that could not be loaded (`failed`) counts as not whole, unless there is no other.
    """
    found = [_ITERATION.fullmatch(name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
    names = [match[0] for match in found if match and iteration_of(match[0]) < before]
    names.sort(key=iteration_of, reverse=True)
    unlisted = unlisted_newest(folder)
    paths = [os.path.join(folder, name) for name in names]
    paths = [path for path in paths if iteration_of(path) == unlisted or is_whole(path)]
    left = failed.left(paths) if failed else paths
    whole = iteration_of(left[0]) if left else None
    return whole, tuple(n for n in map(iteration_of, names) if whole is None or n > whole)


def unlisted_newest(folder: str) -> int | None:
    """Return the iteration that Megatron calls its newest, if the run was killed before its files were listed."""
    name = _newest(folder)
    path = os.path.join(folder, name)
    if not _ITERATION.fullmatch(name) or not os.path.isdir(path):
        return None
    return iteration_of(name) if (names := os.listdir(path)) and SIZES not in names else None


def iteration_of(name: str) -> int:
    """`iter_0000020` as 20."""
    return int(name.rpartition("_")[2])


def fault(folder: str, step: int | None = None) -> str:
    """Why the checkpoint of `step` (None: the newest) cannot be loaded from `folder`; empty if nothing is known."""
    if not os.path.isdir(folder):
        return "it is not a folder"
    if not os.access(folder, os.R_OK | os.X_OK):
        return "it is not readable"
    name = f"iter_{step:07d}" if step else _newest(folder)
    if not name:
        return f"it has no {TRACKER}, which names the newest checkpoint"
    path = os.path.join(folder, name)
    if not os.path.isdir(path):
        return f"it has no {name}"
    return f"{name} was cut off" if os.path.exists(os.path.join(path, SIZES)) and not is_whole(path) else ""


def _newest(folder: str) -> str:
    """The checkpoint that Megatron would load; empty: none."""
    try:
        with open(os.path.join(folder, TRACKER), encoding="utf-8") as file:
            text = file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return f"iter_{int(text):07d}" if text.isdigit() else text


def newest(folder: str) -> int | None:
    """The iteration that Megatron would load from `folder`; None: none."""
    name = _newest(folder)
    return iteration_of(name) if _ITERATION.fullmatch(name) else None


def loaded(folder: str, step: int | None) -> tuple[str, ...]:
    """What Megatron reads to load the checkpoint of `step` (None: the newest) from `folder`."""
    name = f"iter_{step:07d}" if step else _newest(folder)
    return tuple(os.path.join(folder, part) for part in (TRACKER, name) if part)


class CheckpointWatch:
    """Looks at what Megatron calls its newest checkpoint, which it does when all ranks have written their parts."""

    def __init__(self, folder: str, tell: Callable[[int, str], None], *, is_own: bool = False) -> None:
        """`is_own`: no other run saves there, so that the newest one without a list has not been told of."""
        self.folder, self.tell = folder, tell
        self.changed_ns = 0 if is_own and unlisted_newest(folder) else self._changed_ns()

    def _changed_ns(self) -> int:
        try:
            return os.stat(os.path.join(self.folder, TRACKER)).st_mtime_ns
        except OSError:
            return 0

    def look(self) -> None:
        """List the sizes of a checkpoint that is new, and tell of it. Where nothing changed this is one `stat`."""
        changed_ns = self._changed_ns()
        if changed_ns == self.changed_ns:
            return
        self.changed_ns = changed_ns
        name = _newest(self.folder)
        path = os.path.join(self.folder, name)
        if _ITERATION.fullmatch(name) and os.path.isdir(path):
            write_atomically(os.path.join(path, SIZES), json.dumps(_sizes(path), indent=1))
            self.tell(iteration_of(name), path)


def _sizes(folder: str) -> dict[str, int]:
    paths = (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names if name != SIZES)
    return {os.path.relpath(path, folder): os.path.getsize(path) for path in sorted(paths)}
