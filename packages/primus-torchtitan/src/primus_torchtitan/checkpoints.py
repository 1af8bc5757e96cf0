"""Tells of each checkpoint once it is whole. TorchTitan may write them in the background, and does not say when."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

__all__ = ["CheckpointWatch"]

_STEP = re.compile(r"step-(\d+)")
_LAST_FILES = (".metadata", "model.safetensors.index.json")
"""Written last: by torch.distributed.checkpoint, and for Hugging Face."""


class CheckpointWatch:
    """Stands around a checkpointer's `save`, which the trainer calls at every step, and looks at its folder."""

    def __init__(self, checkpointer: Any, tell: Callable[[int, str], None]) -> None:
        self.folder, self.tell = str(getattr(checkpointer, "folder", "")), tell
        self.changed_ns, self.known, self.pending = 0, set(self._steps()), set[str]()
        save = checkpointer.save

        def watched(*args: Any, **kwargs: Any) -> Any:
            result = save(*args, **kwargs)
            self.look()
            return result

        checkpointer.save = watched

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
        for name in sorted(self.pending, key=lambda name: int(name.removeprefix("step-"))):
            path = os.path.join(self.folder, name)
            if any(_has_text(os.path.join(path, last)) for last in _LAST_FILES):
                self.pending.discard(name)
                self.known.add(name)
                self.tell(int(name.removeprefix("step-")), path)


def _has_text(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False
