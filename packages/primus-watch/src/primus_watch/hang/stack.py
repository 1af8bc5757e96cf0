"""The stack of one thread: does the thread wait for others, and in which line of the program is it?"""

from __future__ import annotations

import functools
import itertools
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["NATIVE", "PYTHON", "Frame", "Kind", "Thread", "kinds"]

PYTHON, NATIVE = "Python", "native call"
_BELOW_PYTHON = re.compile(r"/libpython|/python[\d.]*$|/lib-dynload/(?!_ctypes)|/libc[.-]|/libpthread|/ld-|vdso|^$")
"""Libraries that Python's own functions call: `time.sleep` is no native call of the program."""
_DOORS = re.compile(r"/lib-dynload/_ctypes|/libffi")


@dataclass(frozen=True, slots=True)
class Frame:
    """One call. `line` 0: of native code."""

    file: str
    line: int
    name: str

    @property
    def is_native(self) -> bool:
        """Whether it is no frame of Python."""
        return not self.line

    @property
    def place(self) -> str:
        """`train.py:12 in main`, or `ncclSend (librccl.so.1)`."""
        return (
            f"{self.name} ({os.path.basename(self.file)})"
            if self.is_native
            else f"{self.file}:{self.line} in {self.name}"
        )


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of place, as `places.toml` describes it."""

    name: str
    words: str
    within: int
    python: tuple[str, ...]
    native: tuple[str, ...]
    waits: bool

    def fits(self, frame: Frame) -> bool:
        """Whether a frame is of this kind."""
        if frame.is_native:
            return any(frame.name.startswith(part) or part in frame.file for part in self.native)
        return any(part in frame.file for part in self.python)


@functools.cache
def _table() -> tuple[tuple[str, ...], tuple[str, ...], tuple[Kind, ...]]:
    with open(f"{os.path.dirname(os.path.dirname(__file__))}/data/places.toml", "rb") as file:
        table = tomllib.load(file)
    rows = [{**row, "python": tuple(row["python"]), "native": tuple(row["native"])} for row in table["kind"]]
    return tuple(table["library"]), tuple(table["machinery"]), tuple(Kind(**row) for row in rows)


def _is_library(frame: Frame) -> bool:
    return any(part in frame.file for part in _table()[0])


def _is_machinery(frame: Frame) -> bool:
    """Whether it is of what every training is made of, not of the training framework."""
    file = frame.file[max(frame.file.rfind("-packages/"), 0) :]  # what is installed is below the library of Python
    return any(part in file for part in _table()[1])


def kinds() -> tuple[Kind, ...]:
    """The kinds of places, the first to look for first."""
    return _table()[2]


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of a rank or of one of its children, innermost frame first."""

    name: str
    frames: tuple[Frame, ...]
    pid: int = 0
    is_main: bool = False

    @property
    def kind(self) -> Kind | None:
        """The kind of place; None: it is in the program's own code."""
        return next((kind for kind in kinds() if any(map(kind.fits, self._near(kind.within)))), None)

    def _near(self, count: int) -> Iterable[Frame]:
        """The native frames above Python's innermost, and so many of Python."""
        python = 0
        for frame in self.frames:
            if (python := python + (not frame.is_native)) > count:
                return
            yield frame

    @property
    def native(self) -> str:
        """The native function that Python called and that has not returned; empty: there is none."""
        above = list(itertools.takewhile(lambda frame: frame.is_native, self.frames))[::-1]
        if all(_BELOW_PYTHON.search(frame.file) for frame in above):
            return ""
        called = itertools.dropwhile(lambda frame: _BELOW_PYTHON.search(frame.file), above)
        inside = [frame for frame in called if not _DOORS.search(frame.file) and not frame.name.startswith("0x")]
        return (inside or above)[0].place

    @property
    def own(self) -> Frame | None:
        """The innermost frame of the user's own code; of the framework; of Python outside Primus."""
        python = [frame for frame in self.frames if not frame.is_native]
        mine = [frame for frame in python if not _is_library(frame)]
        outside = [frame for frame in python if "/primus_" not in frame.file]
        framework = [frame for frame in outside if not _is_machinery(frame)]
        return next(iter(mine or framework or outside or python), None)

    @property
    def is_called_back(self) -> bool:
        """Whether a library has called the program's own code, which has not returned."""
        kind = self.kind
        inside = itertools.takewhile(lambda frame: not (kind and kind.fits(frame)), self.frames)
        return any(not frame.is_native and not _is_library(frame) for frame in inside)

    @property
    def operation(self) -> str:
        """What of a library it waits in: `all_reduce`."""
        kind = self.kind
        frames: Sequence[Frame] = [frame for frame in self._near(kind.within) if kind.fits(frame)] if kind else ()
        python = [frame.name for frame in frames if not frame.is_native]
        return python[0] if python else frames[0].name if frames else ""
