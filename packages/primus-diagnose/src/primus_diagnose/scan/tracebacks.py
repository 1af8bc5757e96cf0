"""Follows Python's tracebacks through a log, several at once where the lines of several ranks are mixed.

A log may hold them with a logger's head before each line, in a box, indented, without their beginning, or with lines of
others between theirs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from primus_diagnose.verdict import Hit

__all__ = ["BEGINS", "Traceback", "Tracebacks", "exception_of", "is_begin"]

_TRACEBACK = "Traceback (most recent call last)"
_DURING = "During handling of the above exception, another exception occurred"
BEGINS = (re.escape(_TRACEBACK), _DURING, r'File "[^"\n]{1,400}", line \d{1,7}, in ')
"""How RE2 finds one; the last form is that of a line of one whose beginning is missing."""
_BEGIN = re.compile(rf"(?P<head>.*?){re.escape(_TRACEBACK)}:?(?: \(RANK (?P<rank>\d{{1,6}})\))?[ ─╮]*$")
_FRAME = re.compile(r'\s{2,}File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,7})(?:, in (?P<name>\S{1,200}))?')
_BOXED = re.compile(r"[│|]\s{1,4}(?P<file>/[^\s:│]{1,1000}):(?P<line>\d{1,7}) in (?P<name>[^\s│]{1,200})")
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,200}?)(?:: (?P<message>.*))?$", re.S)
_USUAL = re.compile(r"(?:Error|Exception|Exit|Interrupt|Iteration|Expired|Failure|Timeout|Empty)$")
"""How the names of exceptions end: what makes one out where the line before it is not of its traceback."""
_LIKELY = re.compile(r"(?:^|\.)[A-Z]\w*[a-z]\w*$|\w\.\w+$")
"""How a name looks that follows its traceback at once: no word of a sentence, no level of a logger."""
_MOST_LINES = 600
_MOST_OPEN = 4096
_MOST_FOREIGN = 40
_MOST_PATIENCE = 20_000
"""After so many lines of all writers without a new one, none that is open will end."""
_LIBRARY = ("/site-packages/", "/dist-packages/", "/lib/python3", "/src/primus_", "<frozen ", "<string>")
_WITHIN = ("|", "+", "│", "╭", "╰", "❱", "┃")
"""Groups of exceptions, and boxes."""
_CODE = "    "
_ELASTIC = "traceback :"


@dataclass(slots=True)
class Traceback:
    """One that has begun."""

    head: str = ""
    """What a logger writes before each line, with zeros for digits."""
    indent: int = 0
    """What a summary of launchers puts before each line."""
    rank: int | None = None
    """Of which rank it is, where another one prints it, as distributed checkpoints do."""
    is_whole: bool = True
    """Its beginning is there, and no line of others came between."""
    lines: int = 0
    foreign: int = 0
    frames: list[str] = field(default_factory=list)
    last: str = ""
    """The line that ends it."""
    hits: list[Hit] = field(default_factory=list)
    """What that line means."""
    during: Traceback | None = None
    """The exception that was being handled."""

    @property
    def caught(self) -> Traceback | None:
        """An exception before this one that a part of the program handled which this one did not come through: an
        optional import in a context manager, and then a failure within it.
        """
        places = {frame.rpartition(":")[0] + frame.partition(" in ")[2] for frame in self.frames}
        first = self.during.frames[0] if self.during and self.during.frames else ""
        is_elsewhere = first.rpartition(":")[0] + first.partition(" in ")[2] not in places
        return self.during if first and self.is_whole and is_elsewhere else None

    @property
    def code(self) -> str:
        """The innermost line of the user's own program, or of all: `train.py:12 in main`."""
        own = [frame for frame in self.frames if not any(part in frame for part in _LIBRARY)]
        return (own or self.frames or [""])[-1]

    def bare(self, line: str) -> str:
        """A line of it without what others wrote before it."""
        if self.head and _shape(line[: len(self.head)]) == self.head:
            return line[len(self.head) :]
        return line[self.indent :] if line[: self.indent].isspace() else line

    def add(self, line: str) -> bool:
        """One more line; whether it belongs to those before the exception."""
        self.lines += 1
        if frame := _FRAME.match(line) or _BOXED.match(line):
            self.frames = [*self.frames[-200:], f"{frame['file']}:{frame['line']} in {frame['name'] or '?'}"]
            return True
        return line[:1].isspace() or not line or line.startswith(_WITHIN)

    def is_ended_by(self, line: str) -> bool:
        """Whether the line is its exception."""
        if not (named := exception_of(line)):
            return False
        return bool(_USUAL.search(named[0]) or (self.is_whole and _LIKELY.search(named[0])))


class Tracebacks:
    """Those that are open, by whoever writes them."""

    def __init__(self) -> None:
        self._open: dict[object, Traceback] = {}
        self._patience = 0
        self._ended: dict[object, Traceback] = {}
        self._during: dict[object, Traceback] = {}
        self.in_code = False
        """Whether the last line was one of a traceback that quotes the program: what that says did not happen."""

    def __bool__(self) -> bool:
        """Whether one has begun and not ended."""
        return bool(self._open)

    def begin(self, writer: object, line: str) -> None:
        """Its first line; other lines begin none."""
        match = _BEGIN.match(line)
        if not match:
            return
        head = match["head"]
        in_summary = head.strip() == _ELASTIC
        is_head = bool(head.strip(" ─╭")) and not in_summary
        rank = int(match["rank"]) if match["rank"] else None
        self._begin(writer, Traceback(_shape(head) if is_head else "", 2 * in_summary, rank))

    def _begin(self, writer: object, trace: Traceback) -> None:
        self._patience = _MOST_PATIENCE
        trace.during = self._during.pop(writer, None)
        if writer in self._open or len(self._open) < _MOST_OPEN:
            self._open[writer] = trace

    def follow(self, writer: object, line: str) -> Traceback | None:
        """One more line of whoever writes; the traceback where the line is the exception that ends it."""
        self._patience -= 1
        self.in_code = False
        if not self._patience:
            self._open.clear()
        trace = self._open.get(writer)
        if _DURING in line and writer in self._ended:
            self._during[writer] = self._ended.pop(writer)
        if trace is None:
            if (frame := _FRAME.match(line)) and frame["name"]:
                self._begin(writer, Traceback(is_whole=False))
                self._open[writer].add(line)
                self.in_code = True
            return None
        return self._followed(writer, trace, trace.bare(line))

    def _followed(self, writer: object, trace: Traceback, line: str) -> Traceback | None:
        if trace.add(line):
            self.in_code = line.startswith((_CODE, *_WITHIN)) or bool(_FRAME.match(line))
            if trace.lines > _MOST_LINES:
                del self._open[writer]
            return None
        if trace.is_ended_by(line):
            del self._open[writer]
            trace.last = line
            if len(self._ended) < _MOST_OPEN:
                self._ended[writer] = trace
            return trace
        trace.is_whole = False
        trace.foreign += 1
        if trace.foreign > _MOST_FOREIGN:
            del self._open[writer]
        return None


def is_begin(line: str) -> bool:
    """Whether a traceback begins with this line."""
    return bool(_BEGIN.match(line))


def exception_of(line: str) -> tuple[str, str] | None:
    """Type and message of the line that ends a traceback; None: it is none."""
    match = _EXCEPTION.match(line.rstrip())
    if not match or " " in match["type"]:
        return None
    return match["type"], match["message"] or ""


def _shape(text: str) -> str:
    return re.sub(r"\d", "0", text)
