"""What a run came to, from its `metrics.jsonl`, in the few lines that a person reads at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from primus_core.journal.events import FILE, TRAINING_ENDED
from primus_machine.files import plain_json
from primus_machine.files.atomic import regular
from primus_machine.files.plain_json import number, whole

__all__ = ["Row", "ended_at", "read", "stream"]

Row = dict[str, Any]


def read(path: str) -> list[Row]:
    """The steps in a `metrics.jsonl`; none where there is no file. A last line cut short is left out."""
    return list(stream(path))


def stream(path: str) -> Iterator[Row]:
    """The same, one after the other: a long run has more of them than one would keep."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=regular) as file:
            yield from filter(None, (_row(line) for line in file if line.endswith("\n")))
    except OSError:
        return


def ended_at(directory: str) -> int | None:
    """The step with which the latest training of a run ended well; its lines may end before. None: none ended well."""
    found = None
    try:
        with open(f"{directory}/{FILE}", encoding="utf-8", errors="replace", opener=regular) as file:
            for line in file:
                if TRAINING_ENDED in line:
                    found = _step(line) or found
    except OSError:
        return None
    return found


def _step(line: str) -> int | None:
    with contextlib.suppress(ValueError, AttributeError):
        event = plain_json.loads(line)
        if event.get("event") == TRAINING_ENDED:
            return whole(event.get("step"))
    return None


def _row(line: str) -> Row:
    """A step with all that the closing lines show; a line that is none (by some worker of one's own) is empty.

    A loss that is not finite is null.
    """
    try:
        row = plain_json.loads(line)
    except ValueError:
        return {}
    if not (isinstance(row, dict) and {"step", "steps", "loss"} <= row.keys() and whole(row["step"]) is not None):
        return {}
    if number(row.get("tokens_per_second")) is None:
        row.pop("tokens_per_second", None)
    loss = row["loss"]
    if isinstance(loss, float):  # some other tool has written NaN
        row["loss"] = number(loss)
    return row if loss is None or isinstance(loss, float) or number(loss) is not None else {}
