"""The files of a preparation that is done: whether they are there, and how they come to be there.

Beside PREFIX.bin and PREFIX.idx lies PREFIX.json, which says what was prepared. It is written first and the index last:
whoever finds an index finds all three.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from primus_core.errors import RequestError
from primus_data.indexed import described
from primus_data.indexed.joined import publish
from primus_machine.files.atomic import write_atomically

__all__ = ["are_done", "put", "refuse_others"]

_ENDS = (".bin", ".idx")


def are_done(prefixes: Sequence[str], fingerprint: str, by: Collection[str] = ()) -> bool:
    """Whether all are there, of the preparation with this fingerprint. `by`: runs and folders, one of which made it."""
    return all(
        all(os.path.exists(f"{prefix}{end}") for end in _ENDS)
        and (known := described.read(prefix)).get("fingerprint") == fingerprint
        and (not by or not {known.get("run"), known.get("work")}.isdisjoint(by))
        for prefix in prefixes
    )


def refuse_others(prefixes: Sequence[str], fingerprint: str) -> None:
    """Refuse to replace what this preparation has not written.

    Raises:
        RequestError: there is something of that name.
    """
    for prefix in prefixes:
        there = [f"{prefix}{end}" for end in _ENDS if os.path.lexists(f"{prefix}{end}")]
        if there and described.read(prefix).get("fingerprint") != fingerprint:
            raise RequestError(
                f"the output '{there[0]}' exists",
                why="it was not prepared from this input with these settings",
                fix="choose another --output-prefix, or replace it: --overwrite",
            )


def put(written: str, prefix: str, known: Mapping[str, Any]) -> None:
    """Give one output that is whole its name.

    Each step takes something from the folder of `written`, or puts something there. A node that was stopped long enough
    to be taken for dead finds this folder gone when it goes on, and leaves alone what others have put meanwhile.

    Raises:
        OSError: it cannot be written, or another node has taken over.
    """
    write_atomically(f"{written}.json", json.dumps(known, indent=2) + "\n")
    with suppress(FileNotFoundError):
        os.rename(f"{prefix}.idx", f"{written}.former")  # it would be of other tokens for a moment
    os.replace(f"{written}.json", f"{prefix}.json")
    publish(written, prefix)
