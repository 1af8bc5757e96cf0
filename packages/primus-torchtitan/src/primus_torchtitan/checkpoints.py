"""Which checkpoints are whole. TorchTitan may write them in the background, and does not say when one is."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Container
from typing import Any

from primus_train.failed_loads import FailedLoads
from primus_train.kit.end_request import EndRequest, ToldToEnd

__all__ = ["CheckpointWatch", "end_when_told", "is_whole", "resume_from", "stale_checkpoints"]

_STEP = re.compile(r"step-(\d+)")
_ZIP_END_BYTES = 22
"""Of an archive's end record without a comment (PKWARE's APPNOTE, 4.3.16)."""
_LAST_FILES = (".metadata", "model.safetensors.index.json")
"""Written last: by torch.distributed.checkpoint, and for Hugging Face."""


def is_whole(path: str) -> bool:
    """Whether nothing of a distributed checkpoint was cut off: its list, which comes last, and every part of it."""
    parts = [name for name in os.listdir(path) if name.endswith(".distcp")] if os.path.isdir(path) else []
    return bool(parts) and all(_is_whole_file(os.path.join(path, name)) for name in (".metadata", *parts))


def _is_whole_file(path: str) -> bool:
    """Whether it was not cut off, as far as its end tells: torch saves each tensor as a zip archive."""
    try:
        with open(path, "rb") as file:
            begins = file.read(4)
            file.seek(-min(_ZIP_END_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
            ends = file.read()
    except OSError:
        return False
    return bool(begins) and (not begins.startswith(b"PK") or ends.startswith(b"PK\5\6"))


def resume_from(
    folder: str, failed: FailedLoads | None = None, before: float = math.inf
) -> tuple[int | None, tuple[int, ...]]:
    """The newest step in `folder` whose checkpoint is whole (None: there is none), and the newer ones that are not.

    One that could not be loaded (`failed`) counts as not whole, unless there is no other.
    """
    found = [_STEP.fullmatch(name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
    steps = sorted((step for match in found if match and (step := int(match[1])) < before), reverse=True)
    paths = [path for step in steps if is_whole(path := os.path.join(folder, f"step-{step}"))]
    left = failed.left(paths) if failed else paths
    whole = _step_of(os.path.basename(left[0])) if left else None
    return whole, tuple(step for step in steps if whole is None or step > whole)


def stale_checkpoints(folder: str, keep: int, step: int) -> list[str]:
    """Return what to delete in `folder`, so that `keep` checkpoints stay. That of `step` is one; it may be unfinished.

    Only checkpoints of this training count: folders that are named `step-N`, of `step` or before. A whole one always
    stays, once there was one. Older ones that were cut off go, if they hold files of a checkpoint only.
    """
    found = (_STEP.fullmatch(name) for name in os.listdir(folder))
    steps = sorted((int(match[1]) for match in found if match and int(match[1]) <= step), reverse=True)
    paths = {one: os.path.join(folder, f"step-{one}") for one in steps}
    whole = [one for one in steps if is_whole(paths[one])]
    if not whole:
        return []
    old = whole[keep if whole[0] == step else max(keep - 1, 1) :]
    cut = [one for one in steps if one < whole[0] and one not in whole and _is_cut_off(paths[one])]
    return [paths[one] for one in sorted([*old, *cut])]


def _is_cut_off(path: str) -> bool:
    names = os.listdir(path) if os.path.isdir(path) and not os.path.islink(path) else []
    return bool(names) and all(name == ".metadata" or name.endswith(".distcp") for name in names)


def end_when_told(checkpointer: Any, request: EndRequest) -> None:
    """Have the trainer end once it is told to, with a checkpoint of the step that it has made.

    TorchTitan has no such end: it calls `save` after each step, and goes on to evaluate.
    """
    save: Callable[..., Any] = checkpointer.save

    def save_and_end(curr_step: int, last_step: bool = False) -> Any:  # as TorchTitan has it
        saved = save(curr_step, last_step)
        if last_step or not request.is_due(curr_step):
            return saved
        if not saved and checkpointer.enable:
            checkpointer.interval = 1  # every step's turn: with `last_step` it may save the weights alone
            save(curr_step)
        checkpointer.maybe_wait_for_staging()
        checkpointer.maybe_wait_for_saving()
        raise ToldToEnd

    checkpointer.save = save_and_end


class CheckpointWatch:
    """Stands around a checkpointer's `save`, which the trainer calls at every step, and looks at its folder.

    It also decides which checkpoints `keep_latest_k` deletes: TorchTitan counts folders by their names, so that two
    strays with higher numbers make it delete every checkpoint as soon as it is written.
    """

    def __init__(self, checkpointer: Any, tell: Callable[[int, str], None], told: Container[int] | None = None) -> None:
        """`told`: the steps that were told of; None: those of all that is whole by now."""
        self.folder, self.tell = str(getattr(checkpointer, "folder", "")), tell
        whole = {name for name in self._steps() if is_whole(os.path.join(self.folder, name))}
        # One whose first try was cut off is told of once it is written anew.
        self.cut = {name: self._written_ns(name) for name in self._steps() if name not in whole}
        # One that became whole just before a kill is told of now.
        self.known = {name for name in whole if told is None or _step_of(name) in told}
        self.changed_ns, self.pending = 0, set[str]()
        self.step = 0
        save: Callable[..., Any] = checkpointer.save
        purge: Any = getattr(checkpointer, "_purge_stale_checkpoints", None)

        def watched(curr_step: int, *args: Any, **kwargs: Any) -> Any:  # as TorchTitan names it
            self.step = curr_step
            result = save(curr_step, *args, **kwargs)
            self.look()
            return result

        def purge_stale() -> None:
            if not os.path.isdir(self.folder):  # in an object store
                purge()
            elif checkpointer._should_purge():  # noqa: SLF001  # of the method that this stands for
                for path in stale_checkpoints(self.folder, checkpointer.keep_latest_k, self.step):
                    checkpointer.purge_queue.put(path)

        checkpointer.save = watched
        if purge:
            checkpointer._purge_stale_checkpoints = purge_stale  # noqa: SLF001

    def _steps(self) -> list[str]:
        try:
            return [name for name in os.listdir(self.folder) if _STEP.fullmatch(name)]
        except OSError:
            return []

    def look(self) -> None:
        """Tell of what has become whole. Where nothing changed, this is one look at the file system."""
        try:
            changed_ns = os.stat(self.folder).st_mtime_ns
        except OSError:
            return
        if changed_ns != self.changed_ns:
            self.changed_ns = changed_ns
            self.pending |= set(self._steps()) - self.known
        for name in sorted(self.pending, key=_step_of):
            if (written := self._written_ns(name)) and written != self.cut.get(name):
                self.pending.discard(name)
                self.known.add(name)
                self.tell(_step_of(name), os.path.join(self.folder, name))

    def _written_ns(self, name: str) -> int:
        """When the last file of a checkpoint was written; 0: it has none yet."""
        files = (os.path.join(self.folder, name, last) for last in _LAST_FILES)
        return next(filter(None, map(_time_of_text, files)), 0)


def _step_of(name: str) -> int:
    return int(name.removeprefix("step-"))


def _time_of_text(path: str) -> int:
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_mtime_ns if found.st_size else 0
