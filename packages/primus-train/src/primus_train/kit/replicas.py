"""Digests of what each rank holds of the model, for `verify`: a checkpoint has one of several copies only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from primus_machine.files.atomic import write_atomically
from primus_train.kit import worker

__all__ = ["FOLDER", "WANTED", "Copy", "record"]

WANTED = "PRIMUS_RECORD_REPLICAS"
"""The variable with which `verify` asks for them."""
FOLDER = "replicas"
"""In the run directory: a file of each process."""


class Copy(NamedTuple):
    """A piece of a parameter that a rank holds."""

    name: str
    """Of the parameter."""
    piece: str
    """Which part of it: all copies of one piece are equal."""
    holder: int
    """The rank, or the device."""
    data: Any
    """Its bytes, as a buffer."""
    is_random: bool = False
    """It is the state of a generator of random numbers: no two pieces may be equal."""


def record(copies: Callable[[], Iterable[Copy]]) -> None:
    """Write digests of this process's copies, in place of those of an earlier step. Does nothing unless asked to."""
    if not worker.variable(WANTED):
        return
    found = [(one.name, one.piece, one.holder, hashlib.sha256(one.data).hexdigest(), one.is_random) for one in copies()]
    folder = worker.run_directory() / FOLDER
    folder.mkdir(exist_ok=True)
    write_atomically(str(folder / f"{worker.rank()}.json"), json.dumps(found))
