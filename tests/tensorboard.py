"""Reads what a framework itself wrote for TensorBoard: the numbers that those of Primus must equal.

By hand, since the packages that can do it are not in every environment, and change variables when they are imported.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

_STEP, _SUMMARY, _VALUE, _TAG, _NUMBER = 2, 5, 1, 1, 2
_SESSION = 7
"""Fields of `Event`, `Summary` and `Summary.Value` (tensorboard/compat/proto/event.proto, summary.proto)."""


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """By name and step, of all event files below `folder`."""
    found: dict[str, dict[int, float]] = {}
    for file in sorted(folder.rglob("*tfevents*")):
        for record in _records(file.read_bytes()):
            event = list(_fields(record))
            step = next((value for number, value in event if number == _STEP), 0)
            for name, value in _values(event):
                assert isinstance(step, int)
                found.setdefault(name, {})[step] = value
    return found


def read_steps(file: Path) -> tuple[int | None, set[int]]:
    """The step from which on an event file drops what was written before it (None: it drops nothing), and its steps."""
    purged, steps = None, set[int]()
    for record in _records(file.read_bytes()):
        event = list(_fields(record))
        step = next((value for number, value in event if number == _STEP), 0)
        assert isinstance(step, int)
        if any(number == _SESSION for number, _ in event):
            purged = step
        if any("loss" in name and "valid" not in name and "eval" not in name for name, _ in _values(event)):
            steps.add(step)
    return purged, steps


def _records(data: bytes) -> Iterator[bytes]:
    """Each has its length, a checksum, itself, and a checksum."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        yield data[at + 12 : at + 12 + size]
        at += 12 + size + 4


def _values(event: list[tuple[int, int | bytes]]) -> Iterator[tuple[str, float]]:
    for summary in (value for number, value in event if number == _SUMMARY and isinstance(value, bytes)):
        for one in (value for number, value in _fields(summary) if number == _VALUE and isinstance(value, bytes)):
            known = dict(_fields(one))
            name, number = known.get(_TAG), known.get(_NUMBER)
            if isinstance(name, bytes) and isinstance(number, bytes) and len(number) == 4:
                yield name.decode(), struct.unpack("<f", number)[0]


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Of a message in protobuf's wire format: numbers of the variable kind as such, others as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
