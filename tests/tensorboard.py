"""Reads what a framework itself wrote for TensorBoard: the numbers that those of Primus must equal."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Scalars = dict[str, dict[int, float]]


def scalars(folder: Path) -> Scalars:
    """By name and step, of all event files below `folder`."""
    package = "tensorboard.compat.proto" if find_spec("tensorboard") else "tensorboardX.proto"
    event = importlib.import_module(f"{package}.event_pb2").Event
    found: Scalars = {}
    for file in sorted(folder.rglob("*tfevents*")):
        for record in _records(file.read_bytes()):
            for name, step, value in _values(event.FromString(record)):
                found.setdefault(name, {})[step] = value
    return found


def _records(data: bytes) -> Iterator[bytes]:
    """Each has its length, a checksum, itself, and a checksum."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        yield data[at + 12 : at + 12 + size]
        at += 12 + size + 4


def _values(event: Any) -> Iterator[tuple[str, int, float]]:
    for value in event.summary.value:
        if value.HasField("simple_value"):
            yield value.tag, int(event.step), float(value.simple_value)
        elif value.HasField("tensor") and value.tensor.float_val:
            yield value.tag, int(event.step), float(value.tensor.float_val[0])
