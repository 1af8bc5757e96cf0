"""The stacks that ranks print when they hang (faulthandler, py-spy): where each thread of a rank is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["HEAD", "SIGNATURE", "Stack", "Stacks"]

SIGNATURE = "stack.thread"
HEAD = "(most recent call first):"
_FRAME = re.compile(r'\s{1,8}File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,7}),? in (?P<name>\S{1,200})')
_WAITS = re.compile(r"/torch/distributed/|/torch/_C|multihost_utils|/mpi4py/")
_LIBRARY = ("/site-packages/", "/dist-packages/", "/lib/python3", "/programs/", "<frozen ")
_MACHINERY = re.compile(
    r"/programs/|<frozen |/primus_|-packages/(?:torch|jax|jaxlib|flax|torchdata)/|/lib/python3[^/]*/(?!.*-packages/)"
)
"""What every training calls, and so says nothing of it."""
_MOST_FRAMES = 200
_NEAR = 3
"""A collective is among so many innermost frames."""


@dataclass(slots=True)
class Stack:
    """One thread, innermost frame first."""

    frames: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def collective(self) -> str:
        """The collective that the thread waits in; empty: it is elsewhere."""
        near = self.frames[:_NEAR]
        return next((name for file, _, name in near if _WAITS.search(file)), "")

    @property
    def code(self) -> str:
        """The innermost line of the user's own program, of the framework, or of all: `train.py:12 in main`."""
        own = [frame for frame in self.frames if not any(part in frame[0] for part in _LIBRARY)]
        framework = [frame for frame in self.frames if not _MACHINERY.search(frame[0])]
        return next((f"{file}:{line} in {name}" for file, line, name in own or framework or self.frames), "")


class Stacks:
    """Those that are open, by whoever writes them."""

    def __init__(self) -> None:
        self._open: dict[object, Stack] = {}

    def __bool__(self) -> bool:
        """Whether one has begun and not ended."""
        return bool(self._open)

    def begin(self, writer: object) -> None:
        """Its first line."""
        self._open[writer] = Stack()

    def follow(self, writer: object, line: str) -> Stack | None:
        """One more line of whoever writes; the stack where the line is behind its end."""
        if (stack := self._open.get(writer)) is None:
            return None
        frame = _FRAME.match(line)
        if frame and len(stack.frames) < _MOST_FRAMES:
            stack.frames.append((frame["file"], frame["line"], frame["name"]))
            return None
        del self._open[writer]
        return stack if stack.frames else None

    def close(self) -> dict[object, Stack]:
        """Those that the end of the log ends."""
        rest, self._open = {writer: stack for writer, stack in self._open.items() if stack.frames}, {}
        return rest
