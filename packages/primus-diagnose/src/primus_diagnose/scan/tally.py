"""What was found in a file: of each signature and rank the first line, the last one, and how many there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from primus_diagnose.verdict import Hit

__all__ = ["MOST", "FileResult", "Tally"]

MOST = 2000
"""After so many lines of a signature in a file it is no longer looked for there: a log may consist of them."""


@dataclass(slots=True)
class Tally:
    """The lines of one signature and one rank."""

    first: Hit
    last: Hit
    count: int = 1

    def add(self, hit: Hit) -> None:
        """One more line, further down than those before."""
        self.last = hit
        self.count += 1


@dataclass(slots=True)
class FileResult:
    """What a file, or a part of one, holds."""

    path: str
    size: int = 0
    tallies: dict[tuple[str, int | None, str], Tally] = field(default_factory=dict)
    """By signature, rank and node."""
    full: set[str] = field(default_factory=set)
    """Signatures of which there are more lines than were counted."""
    counts: Counter[str] = field(default_factory=Counter)
    """Lines of each signature."""
    lines: int = 0
    steady_until: int = 0
    """The run made progress after the lines before this one; 0: the end of the log shows no progress."""
    outside: int = 0
    """Lines of signatures from before or after the run."""
    skipped: str = ""
    """Why it could not be read."""
    has_tasks: bool = False
    """Lines with a task's number name a rank as well: tasks are nodes there."""

    def add(self, hit: Hit) -> int:
        """One more line; how many of its signature there are by now."""
        key = (hit.signature, hit.rank, hit.node)
        if key in self.tallies:
            self.tallies[key].add(hit)
        else:
            self.tallies[key] = Tally(hit, hit)
        self.counts[hit.signature] += 1
        return self.counts[hit.signature]

    def remove(self, hit: Hit) -> None:
        """Forget a line that was added: the program has handled what it says."""
        key = (hit.signature, hit.rank, hit.node)
        tally = self.tallies.get(key)
        if tally is None or hit not in (tally.first, tally.last):
            return
        tally.count -= 1
        if not tally.count:
            del self.tallies[key]
        elif tally.last == hit:
            tally.last = tally.first
        else:
            tally.first = tally.last

    def join(self, later: FileResult) -> None:
        """Add what the next part of the same file holds, whose lines are numbered from its beginning."""
        for key, tally in later.tallies.items():
            first, last = (replace(hit, line=hit.line + self.lines) for hit in (tally.first, tally.last))
            if key in self.tallies:
                self.tallies[key].last = last
                self.tallies[key].count += tally.count
            else:
                self.tallies[key] = Tally(first, last, tally.count)
        self.counts += later.counts
        self.full |= later.full
        self.steady_until = later.steady_until + self.lines if later.steady_until else 0
        self.lines += later.lines
        self.size += later.size
        self.outside += later.outside
        self.skipped = self.skipped or later.skipped
        self.has_tasks = self.has_tasks or later.has_tasks
