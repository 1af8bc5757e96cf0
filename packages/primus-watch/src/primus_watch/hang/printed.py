"""The stacks that a rank printed into its own log when Primus asked it to (faulthandler): Python's frames alone."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from primus_machine.files.atomic import regular
from primus_watch.hang.stack import Frame, Thread

__all__ = ["parsed", "threads"]

_TAIL = 1 << 18
_HEAD = re.compile(
    r"(?:Current t|T)hread (?P<id>0x[0-9a-f]{1,16})(?: \[(?P<name>[^\]]{0,100})\])? \(most recent call first\):"
)
_FRAME = re.compile(r'\s{1,8}File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,7}) in (?P<name>\S{1,200})')

_BESIDE = ("Garbage-collecting", "<no Python frame>", "...")


def threads(log: str, pid: int) -> list[Thread]:
    """Those at the end of a log; the last one is the main thread."""
    try:
        with open(log, "rb", opener=regular) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            text = file.read(_TAIL).decode(errors="replace")
    except OSError:
        return []
    found = parsed(text, pid)
    return [*found[:-1], replace(found[-1], is_main=True)] if found else []


def parsed(text: str, pid: int = 0) -> list[Thread]:
    """The threads of the last dump in a text: in it, none comes twice."""
    found: dict[str, tuple[str, list[Frame]]] = {}
    frames: list[Frame] | None = None
    for line in text.splitlines():
        if head := _HEAD.search(line):
            found.pop(head["id"], None)
            frames = []
            found[head["id"]] = head["name"] or "", frames
        elif frames is not None and (frame := _FRAME.match(line)):
            frames.append(Frame(frame["file"], int(frame["line"]), frame["name"]))
        elif line.strip() not in _BESIDE:
            frames = None
    return [Thread(name, tuple(own), pid) for name, own in found.values() if own]
