"""Where a rank is, as one node tells the others: what the main thread of its program does, and in which line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from primus_watch.hang.stack import NATIVE, PYTHON, Thread

__all__ = ["ENDED", "KERNEL", "STOPPED", "UNKNOWN", "Place", "from_dict", "of"]

STOPPED, KERNEL, ENDED, UNKNOWN = "stopped", "kernel", "ended", "unknown"
_LOADER = "data loader"
_STATES = {"T": STOPPED, "D": KERNEL, "Z": ENDED, "X": ENDED, "": ENDED}
_WORDS = {
    PYTHON: "in the program's own code",
    NATIVE: "in a native call",
    STOPPED: "stopped by a signal",
    KERNEL: "in the kernel, for a disk or a driver",
    ENDED: "ended",
    UNKNOWN: "without a stack",
}
_MOST = 400


@dataclass(frozen=True, slots=True)
class Place:
    """One rank."""

    rank: int
    node: str
    pid: int
    kind: str
    """A kind of `places.toml`, `Python`, `native call`, or what its process is: stopped, kernel, ended, unknown."""
    words: str
    waits: bool
    """For other ranks, or for its GPU."""
    code: str = ""
    """The innermost line of the program: `train.py:12 in main`."""
    operation: str = ""
    """What it waits in, or the native function that has not returned."""
    source: str = ""
    """`py-spy` or `faulthandler`."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def from_dict(row: Mapping[str, Any]) -> Place:
    """What `to_dict` gave.

    Raises:
        TypeError, ValueError, KeyError: it is none.
    """
    texts = {
        name: str(row.get(name) or "")[:_MOST] for name in ("node", "kind", "words", "code", "operation", "source")
    }
    return Place(rank=int(row["rank"]), pid=int(row["pid"]), waits=row["waits"] is True, **texts)


def of(rank: int, node: str, pid: int, state: str, threads: Sequence[Thread], source: str) -> Place:
    """Where a rank is. `state`: that of its process; `threads`: its own and those of its children."""
    main = next((thread for thread in threads if thread.is_main and thread.pid == pid), None)
    code, operation = _code(main) if main else ("", "")
    if (special := _STATES.get(state)) and (special != KERNEL or not main or not main.kind):
        return Place(
            rank, node, pid, special, _WORDS[special], waits=False, code=code, operation=operation, source=source
        )
    if not main:
        return Place(rank, node, pid, UNKNOWN, _WORDS[UNKNOWN], waits=False)
    if not (kind := main.kind):
        name = NATIVE if main.native else PYTHON
        return Place(rank, node, pid, name, _WORDS[name], waits=False, code=code, operation=main.native, source=source)
    if kind.name == _LOADER and (worker := _worker(threads, pid)):
        code, operation = _code(worker)
        operation = worker.native or f"worker process {worker.pid}"
    return Place(rank, node, pid, kind.name, kind.words, kind.waits, code, operation, source)


def _code(thread: Thread) -> tuple[str, str]:
    own = thread.own
    return own.place if own else "", thread.operation


def _worker(threads: Sequence[Thread], pid: int) -> Thread | None:
    """The process of a data loader that does not wait for work."""
    return next((thread for thread in threads if thread.pid != pid and thread.is_main and thread.is_called_back), None)
