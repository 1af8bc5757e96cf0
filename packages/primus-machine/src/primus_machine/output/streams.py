"""What the ranks print: the named pipes that they write to, and which of their lines the console shows."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence

from primus_machine.files.atomic import read_regular
from primus_machine.pipes import make

__all__ = ["TROUBLE", "RankPipes", "for_console", "shown"]

# What a rank other than 0 must say to be heard on the console.
_LOUD = re.compile(rb"\b(WARN|WARNING|ERROR|CRITICAL|FATAL)\b|^\s*[\w.]*(Error|Exception)\b")
_METRICS = re.compile(rb"\biteration \d+/\d+ \|")
TROUBLE = (b"WARN", b"ERROR", b"CRITICAL", b"FATAL", b"Error", b"Exception")
"""A line without one of these is not loud. The patterns above cost more than all else that is done with a line."""
_PERHAPS_LOUD = re.compile(b"|".join(TROUBLE))
_PERHAPS_METRICS = re.compile(rb"iteration \d")
_PERHAPS_EITHER = re.compile(b"|".join([*TROUBLE, rb"iteration \d"]))


def shown(rank: int, line: bytes, metrics_rank: int) -> bool:
    """Whether the console shows a rank's line: rank 0's, step metrics of the rank that has them, trouble of any."""
    if _METRICS.search(line):
        return rank == metrics_rank
    return rank == 0 or bool(_LOUD.search(line))


def for_console(rank: int, lines: bytes, metrics_rank: int) -> bytes:
    """What the console shows of a rank's whole lines."""
    if rank == 0:
        if not metrics_rank or not _PERHAPS_METRICS.search(lines):
            return lines
        return b"".join(line for line in lines.splitlines(keepends=True) if shown(rank, line, metrics_rank))
    perhaps = _with(_PERHAPS_EITHER if rank == metrics_rank else _PERHAPS_LOUD, lines)
    return b"".join(b"[rank%d] " % rank + line for line in perhaps if shown(rank, line, metrics_rank))


def _with(pattern: re.Pattern[bytes], lines: bytes) -> Iterator[bytes]:
    """The lines that have `pattern`, and those beside them that a progress bar wrote over."""
    at = 0
    while found := pattern.search(lines, at):
        start = lines.rfind(b"\n", at, found.start()) + 1 or at
        at = lines.find(b"\n", found.end()) + 1 or len(lines)
        yield from lines[start:at].splitlines(keepends=True)


class RankPipes:
    """A private folder with the named pipes `<rank>.out` and `<rank>.err`, and with what ranks leave there."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = ranks
        self.folder = tempfile.mkdtemp(prefix="primus-")
        self.descriptors: dict[tuple[int, str], int] = {}
        for rank in ranks:
            for suffix in ("out", "err"):
                self.descriptors[rank, suffix] = make(f"{self.folder}/{rank}.{suffix}")

    def __iter__(self) -> Iterator[tuple[int, str, int]]:
        for (rank, suffix), descriptor in self.descriptors.items():
            yield rank, suffix, descriptor

    def pids(self) -> dict[int, int]:
        """The process of each rank that has started, by its global number."""
        found = {rank: _pid(f"{self.folder}/{rank}.pid") for rank in self.ranks}
        return {rank: pid for rank, pid in found.items() if pid}

    def ends(self) -> dict[int, bool]:
        """The ranks that have said that they end; whether each has failed, or ends with 0."""
        names = frozenset(os.listdir(self.folder))
        left = {rank: False for rank in self.ranks if f"{rank}.left" in names}
        return left | {rank: True for rank in self.ranks if f"rank_{rank}.json" in names}

    def pending(self) -> frozenset[int]:
        """The ranks with an exception that waits for a block to end."""
        names = frozenset(os.listdir(self.folder))
        return frozenset(rank for rank in self.ranks if f"{rank}.pending" in names)

    def records(self) -> tuple[str, ...]:
        """Why ranks failed, as they say themselves."""
        files = ((f"{self.folder}/rank_{rank}.json", f"{self.folder}/{rank}.pending") for rank in self.ranks)
        found = (next(filter(os.path.exists, paths), "") for paths in files)
        return tuple(read_regular(path).decode() for path in found if path)

    def close(self) -> None:
        """Close and remove them. Ranks that still write get SIGPIPE."""
        for descriptor in self.descriptors.values():
            os.close(descriptor)
        shutil.rmtree(self.folder, ignore_errors=True)


def _pid(path: str) -> int:
    """The number in a file; 0: it is not there, or not written yet."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read() or 0)
    except (OSError, ValueError):
        return 0
