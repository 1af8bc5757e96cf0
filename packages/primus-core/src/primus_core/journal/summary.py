"""What a run came to, from its `metrics.jsonl`, in the few lines that a person reads at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from primus_core.files import plain_json
from primus_core.files.atomic import regular
from primus_core.journal.events import FILE, TRAINING_ENDED

__all__ = ["ended_at", "last_step", "read", "render", "stream"]

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
        if event.get("event") == TRAINING_ENDED and isinstance(event.get("step"), int):
            return int(event["step"])
    return None


def _row(line: str) -> Row:
    """A step with all that the closing lines show; a line that is none (by some worker of one's own) is empty.

    A loss that is not finite is null.
    """
    try:
        row = plain_json.loads(line)
        return row if {"step", "steps", "loss"} <= row.keys() and isinstance(row["loss"], int | float | None) else {}
    except (ValueError, AttributeError):
        return {}


def last_step(rows: Sequence[Row]) -> str:
    """`40/120, loss 4.21` of the newest step, or an empty string."""
    return f"{rows[-1]['step']}/{rows[-1]['steps']}, loss {_loss(rows[-1])}" if rows else ""


def _loss(row: Row) -> str:
    return "not finite" if row["loss"] is None else f"{row['loss']:.4f}"


def render(rows: Sequence[Row], *, status: str, run_dir: str, seconds: float, next_steps: Sequence[str]) -> str:
    """The closing lines of a run that completed or was interrupted."""
    lines = [f"primus: {status} in {_duration(seconds)}", f"  run    {run_dir}"]
    if rows:
        lines.append(
            f"  loss   {_loss(rows[0])} at step {rows[0]['step']} → {_loss(rows[-1])} at step {rows[-1]['step']}"
        )
        latest = {row["step"]: row for row in rows}  # a step that was done again counts once
        speeds = [row["tokens_per_second"] for row in latest.values() if row.get("tokens_per_second")]
        if speeds:
            from statistics import median  # with it, fractions, decimals and random numbers: not before a launch

            lines.append(f"  speed  {median(speeds):,.0f} tokens/s (median over {len(speeds)} logged steps)")
    lines += [f"  {'next' if not index else '':<6} {step}" for index, step in enumerate(next_steps)]
    return "\n".join(lines) + "\n"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
