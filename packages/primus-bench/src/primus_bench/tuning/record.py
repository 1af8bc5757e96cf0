"""What a search has found, on disk: a line for each finished shape, and beside the tuning file all that led to it.

DIR/finished.jsonl                        the machine, then one line for each shape: a search resumes behind it
DIR/tune_hipblas_gemm_results.txt         the tuning file
DIR/tune_hipblas_gemm_results.json        the machine, the counts, and the times before and after
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from primus_bench.tuning.results import Entry
from primus_bench.tuning.shapes import Shape
from primus_bench.tuning.stack import Stack
from primus_core.errors import MachineError, RequestError
from primus_machine.files import plain_json
from primus_machine.files.atomic import append_line, read_regular, write_atomically

__all__ = [
    "FINISHED",
    "RESULT",
    "Finished",
    "Record",
    "add",
    "begin",
    "counts",
    "finished",
    "path_of",
    "read",
    "save",
    "stack_of",
    "write",
]

FINISHED = "finished.jsonl"
RESULT = "tune_hipblas_gemm_results.txt"
"""As AMD's Primus calls it."""
_SCHEMA = 1


class Finished(NamedTuple):
    """What became of one shape."""

    command: str
    """`Call.text` of the shape."""
    method: str
    gpu: int
    default_us: float | None = None
    """Microseconds with the kernel that hipBLASLt chooses by itself; None: that call failed."""
    entry: Entry | None = None
    failed: str = ""
    """Why there is no entry."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**self._asdict(), "entry": self.entry and self.entry._asdict()}


class Record(NamedTuple):
    """A tuning file's own story."""

    stack: Stack
    shapes: tuple[tuple[Finished, int], ...]
    """Each with the number of its calls."""
    host: str = ""
    measured: str = ""
    """When the search ended."""
    logs: tuple[str, ...] = ()
    """What it tuned."""


def begin(directory: str, stack: Stack) -> None:
    """Say first for what machine the results are."""
    _append(directory, {"schema": _SCHEMA, "stack": stack._asdict()})


def add(directory: str, one: Finished) -> None:
    """Keep what became of a shape, whatever happens next."""
    _append(directory, one.to_dict())


def _append(directory: str, row: Mapping[str, Any]) -> None:
    path = os.path.join(directory, FINISHED)
    try:
        append_line(path, json.dumps(row))
    except OSError as error:
        fix = "free space there or choose another --dir, and run it again: what is finished is kept"
        raise MachineError(f"{path} cannot be written", why=str(error.strerror), fix=fix) from None


def finished(directory: str) -> tuple[Stack | None, list[Finished]]:
    """For what machine a folder has results, and those; None: for none yet."""
    rows = _rows(os.path.join(directory, FINISHED))
    stack = next(filter(None, map(_stack, rows)), None)
    return stack, [one for one in map(_finished, rows) if one]


def _rows(path: str) -> list[Any]:
    """The whole lines of a file. One that a full disk cut short is left out: its shape is done again."""
    try:
        lines = read_regular(path).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RequestError(f"{path} cannot be read", why=str(error.strerror), fix="name another --dir") from None
    found = []
    for line in filter(None, lines):
        try:
            found.append(plain_json.loads(line))
        except ValueError:
            continue
    return found


def _stack(data: Any) -> Stack | None:
    try:
        return Stack(**{name: str(value) for name, value in data["stack"].items()})
    except (KeyError, TypeError, AttributeError):
        return None


def _finished(data: Any) -> Finished | None:
    try:
        entry = data["entry"]
        made = Entry(entry["git_version"], tuple(entry["columns"]), tuple(entry["values"])) if entry else None
        us = plain_json.number(data["default_us"])
        return Finished(str(data["command"]), str(data["method"]), int(data["gpu"]), us, made, str(data["failed"]))
    except (KeyError, TypeError, ValueError):
        return None


def path_of(result: str) -> str:
    """The record that belongs to a tuning file."""
    return f"{os.path.splitext(result)[0]}.json"


def write(result: str, found: Record) -> None:
    """Write the record of a tuning file."""
    shapes = [{"count": count, **one.to_dict()} for one, count in found.shapes]
    about = {"stack": found.stack._asdict(), "host": found.host, "measured": found.measured, "logs": found.logs}
    save(path_of(result), json.dumps({"schema": _SCHEMA, **about, "shapes": shapes}, indent=1))


def save(path: str, text: str) -> None:
    """Write a file as a whole, and each letter as it is: names of kernels look like secrets.

    Raises:
        MachineError: it cannot be written.
    """
    try:
        write_atomically(path, text)
    except OSError as error:
        raise MachineError(f"{path} cannot be written", why=str(error.strerror), fix="choose another folder") from None


def read(result: str) -> Record | None:
    """The record of a tuning file; None: it has none, so nobody knows for what machine it is."""
    try:
        data = plain_json.loads(read_regular(os.path.realpath(path_of(result))))
    except (OSError, ValueError):
        return None
    stack = _stack(data)
    rows: Sequence[Mapping[str, Any]] = data.get("shapes", []) if stack else []
    found = ((_finished(row), plain_json.whole(row.get("count")) or 0) for row in rows if isinstance(row, dict))
    if not stack:
        return None
    host, measured = (str(data.get(name) or "") for name in ("host", "measured"))
    logs = data.get("logs")
    named = tuple(map(str, logs)) if isinstance(logs, list) else ()
    return Record(stack, tuple((one, count) for one, count in found if one), host, measured, named)


def stack_of(result: str) -> Stack:
    """For what machine a tuning file is; an empty one: it does not say."""
    found = read(result)
    return found.stack if found else Stack()


def counts(shapes: Iterable[Shape]) -> dict[str, int]:
    """The number of calls of each shape, by its command."""
    return {shape.call.text: shape.times for shape in shapes}
