"""Reads dumps of PyTorch's flight recorder: what each rank has enqueued, started and completed.

They are pickles, which can run code: here, nothing but the plain values of which a dump consists is built.
"""

from __future__ import annotations

import io
import pickle
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from primus_machine.files import plain_json
from primus_machine.files.atomic import read_regular

__all__ = ["Call", "Dump", "read"]

_MOST = 1 << 26
_MOST_CALLS = 100_000
_LONGEST = 400

# A list that holds itself many times over is small in memory, and endless when it is written out.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxdict = 3, 8
_SHORT.maxlist = _SHORT.maxtuple = 32
_SHORT.maxstring = _SHORT.maxother = _LONGEST


# The one written in Python: the other keeps what it has built in an array, and ten bytes make that 16 GB long.
class _Plain(pickle._Unpickler):  # noqa: SLF001
    """An unpickler for numbers, texts, lists and mappings: whatever needs a name is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it wants to load {module}.{name}, which is not part of a flight recorder's dump")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it refers to something outside")


@dataclass(frozen=True, slots=True)
class Call:
    """One collective operation as a rank recorded it."""

    group: str
    sequence: int
    operation: str
    sizes: str
    state: str
    """`scheduled`, `started` or `completed`."""
    frame: str = ""
    """Where the program called it."""


@dataclass(frozen=True, slots=True)
class Dump:
    """What one rank recorded."""

    path: str
    rank: int
    calls: tuple[Call, ...]
    groups: Mapping[str, tuple[int, ...]]
    """The ranks of each group."""


def read(path: str, rank: int) -> Dump | None:
    """The dump in a file; None: it is none.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or is no plain data.
    """
    data = read_regular(path, _MOST)
    if data[:1] == b"\x80":
        found = _unpickled(data)
    elif data[:1] == b"{":
        found = plain_json.loads(data)
    else:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list) or "version" not in found:
        return None
    calls = [_call(entry) for entry in found["entries"][-_MOST_CALLS:] if isinstance(entry, dict)]
    return Dump(path, rank, tuple(call for call in calls if call), _groups(found.get("pg_config")))


def _unpickled(data: bytes) -> Any:
    try:
        return _Plain(io.BytesIO(data)).load()
    except Exception as error:  # a damaged pickle raises anything
        raise ValueError(str(error) or type(error).__name__) from None


def _call(entry: Mapping[str, Any]) -> Call | None:
    group, sequence = entry.get("process_group"), entry.get("collective_seq_id")
    if not isinstance(sequence, int) or not 0 <= sequence < 1 << 63:
        return None
    if entry.get("is_p2p") or not isinstance(group, list | tuple) or not group:
        return None
    return Call(
        group=_text(group[0]),
        sequence=sequence,
        operation=_text(entry.get("profiling_name")),
        sizes=_text(entry.get("input_sizes")),
        state=_text(entry.get("state")),
        frame=_frame(entry.get("frames")),
    )


def _frame(frames: Any) -> str:
    """The innermost frame of the program: those of torch itself are above it."""
    rows = [one for one in frames if isinstance(one, Mapping)] if isinstance(frames, Sequence) else []
    own = [one for one in rows if "/torch/" not in _text(one.get("filename"))]
    if not (picked := (own or rows)[:1]):
        return ""
    return f"{_text(picked[0].get('filename'))}:{_text(picked[0].get('line'))} in {_text(picked[0].get('name'))}"


def _groups(config: Any) -> dict[str, tuple[int, ...]]:
    found = {}
    for name, row in config.items() if isinstance(config, Mapping) else ():
        ranks = _text(row.get("ranks")) if isinstance(row, Mapping) else ""
        numbers = [part.strip() for part in ranks.strip("[]").split(",")]
        if ranks and all(number.isdecimal() for number in numbers):
            found[_text(name)] = tuple(map(int, numbers))
    return found


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value[:_LONGEST] if isinstance(value, str) else _SHORT.repr(value)[:_LONGEST]
