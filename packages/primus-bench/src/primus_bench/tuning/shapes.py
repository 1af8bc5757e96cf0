"""The multiplications of a log, each once, with the number of its calls. Their file has one JSON object a line."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from primus_bench.tuning import calls
from primus_bench.tuning.calls import CHOICE, Call
from primus_core.errors import ConfigError, RequestError
from primus_machine.files import plain_json
from primus_machine.text import printable
from primus_machine.units import counted

__all__ = ["Dump", "Shape", "as_text", "collect", "read"]

_LONGEST = 1 << 20
"""Characters of a line that are read at once: a file without line breaks may be larger than the memory."""
_MOST_NAMED = 3
_HOW = "write a log with HIPBLASLT_LOG_MASK=32 and HIPBLASLT_LOG_FILE=gemm_%i.txt"


class Shape(NamedTuple):
    """One multiplication, without the kernel that was chosen for it."""

    call: Call
    times: int
    """How often it was called."""
    solutions: Mapping[int | None, int]
    """How often each solution was chosen; None: the line names none."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        chosen = [[index, count] for index, count in self.solutions.items()]
        return {"count": self.times, "command": self.call.text, "solutions": chosen}


class Dump(NamedTuple):
    """What some files have."""

    shapes: tuple[Shape, ...]
    """In the order in which they were first called."""
    other: int = 0
    """Lines without a call, or with letters that no call has."""
    torn: tuple[str, ...] = ()
    """Where lines are, `file:line`, that a process that was killed did not finish."""

    @property
    def calls(self) -> int:
        """All of them together."""
        return sum(shape.times for shape in self.shapes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of what was left out."""
        other = f"ignored {counted(self.other, 'line')} without a call of {calls.COMMAND}"
        more = f" and {len(self.torn) - _MOST_NAMED} more" * (len(self.torn) > _MOST_NAMED)
        torn = f"ignored lines that were cut off: {', '.join(map(printable, self.torn[:_MOST_NAMED]))}{more}"
        return (*[other] * bool(self.other), *[torn] * bool(self.torn))


def read(paths: Sequence[str]) -> Dump:
    """The shapes in logs, in files that `as_text` wrote, and in all files of folders.

    Raises:
        RequestError: one cannot be read, or there is no call in any of them.
    """
    lines, found, torn = Counter[str](), list[Shape](), list[str]()
    try:
        for path in _files(paths):
            with open(path, encoding="ascii", errors="replace", newline="\n") as file:
                torn += _read(path, iter(partial(file.readline, _LONGEST), ""), lines, found)
    except OSError as error:
        what = f"{error.filename} cannot be read"
        raise RequestError(what, why=str(error.strerror), fix="name logs or folders") from None
    result = collect(lines, found)._replace(torn=tuple(torn))
    if not result.shapes:
        raise RequestError(f"no call of {calls.COMMAND} in {', '.join(paths)}", why="; ".join(result.notes), fix=_HOW)
    return result


def _files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if os.path.isdir(path):
            inside = (os.path.join(path, name) for name in sorted(os.listdir(path)))
            yield from (one for one in inside if os.path.isfile(one))
        elif os.path.exists(path) and not os.path.isfile(path):
            raise RequestError(f"{path} is not a regular file", why="it may have no end", fix="name logs or folders")
        else:
            yield path


def _read(path: str, file: Iterable[str], lines: Counter[str], found: list[Shape]) -> list[str]:
    """Add what a file has; where its torn lines are."""
    torn = []
    for number, line in enumerate(file, 1):
        text = line.rstrip()
        if line.startswith("{"):
            found.append(_parsed(line, f"{path}:{number}"))
        elif line.endswith("\n") and (text in lines or not _is_torn(text)):
            lines[text] += 1
        else:
            torn.append(f"{path}:{number}")
    return torn


def _is_torn(line: str) -> bool:
    """Whether it begins a call and lacks what each has: sizes and types. Nobody could tune it."""
    call = None if "\ufffd" in line else calls.parse(line)
    return call is not None and call.key is None


def _parsed(line: str, where: str) -> Shape:
    try:
        data = plain_json.loads(line)
        call, count, solutions = calls.parse(data["command"]), data["count"], dict(data["solutions"])
    except (ValueError, KeyError, TypeError):
        call, count, solutions = None, None, {}
    if call is None or not all((plain_json.whole(one) or 0) > 0 for one in (count, *solutions.values())):
        raise ConfigError("the line is not a shape", where=where, fix="make the file again: gemm-tune dump")
    return Shape(call, count, solutions)


def collect(lines: Mapping[str, int], more: Iterable[Shape] = ()) -> Dump:
    """The shapes of lines of a log, each with how often it stands there, and `more` of them."""
    chosen, other = dict[Call, Counter[int | None]](), 0
    for line, count in lines.items():
        call = None if "\ufffd" in line else calls.parse(line)
        if call is None:
            other += count * bool(line)
        else:
            chosen.setdefault(call.without({CHOICE}), Counter())[call.solution] += count
    for shape in more:
        chosen.setdefault(shape.call.without({CHOICE}), Counter()).update(shape.solutions)
    return Dump(tuple(Shape(call, found.total(), dict(found)) for call, found in chosen.items()), other)


def as_text(shapes: Iterable[Shape]) -> str:
    """The shapes as JSON lines, which `read` reads."""
    return "".join(json.dumps(shape.to_dict()) + "\n" for shape in shapes)
