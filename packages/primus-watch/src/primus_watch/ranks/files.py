"""What ranks of a training leave of their steps: `waiting/rank_N.json`, written by `primus_train.kit.waits`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from primus_machine.errors import PrimusError
from primus_machine.files import plain_json, trust

__all__ = ["FOLDER", "RankSteps", "Reader", "of_one_start"]

FOLDER = "waiting"
_MOST_BYTES, _MOST_TEXT, _MOST_STEPS = 1 << 18, 200, 4096


@dataclass(frozen=True, slots=True)
class RankSteps:
    """One rank's newest steps."""

    rank: int
    host: str
    group: str
    started: float
    time: float
    own: Mapping[int, float]
    """The seconds of its own work, by step."""


class Reader:
    """Reads the files that have changed since it last looked."""

    def __init__(self, directory: str, environ: Mapping[str, str]) -> None:
        self._folder, self._trust = f"{directory}/{FOLDER}", trust.of(environ)
        self._seen: dict[str, tuple[int, RankSteps | None]] = {}

    def changed(self) -> list[RankSteps]:
        """Those of all ranks where one has written since; else none."""
        has_changed = False
        for name, at in self._files():
            if self._seen.get(name, (0, None))[0] != at:
                has_changed, self._seen[name] = True, (at, self._read(name))
        return [found for _, found in self._seen.values() if found] if has_changed else []

    def _files(self) -> Iterator[tuple[str, int]]:
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.startswith("rank_") and entry.name.endswith(".json"):
                        yield entry.name, entry.stat(follow_symlinks=False).st_mtime_ns
        except OSError:  # none has written yet
            return

    def _read(self, name: str) -> RankSteps | None:
        try:
            with open(f"{self._folder}/{name}", "rb", opener=self._trust.opener) as file:
                return _rank_steps(plain_json.loads(file.read(_MOST_BYTES)))
        except (OSError, PrimusError, ValueError, TypeError, KeyError, RecursionError):
            return None


def _rank_steps(row: Mapping[str, Any]) -> RankSteps:
    own = {int(step): float(seconds) for step, seconds, _ in row["steps"][:_MOST_STEPS]}
    return RankSteps(
        rank=int(row["rank"]),
        host=_text(row["host"]),
        group=_text(row["group"]),
        started=float(row["started"]),
        time=float(row["time"]),
        own={step: seconds for step, seconds in own.items() if math.isfinite(seconds) and seconds > 0},
    )


def _text(value: object) -> str:
    return "".join(char for char in str(value)[:_MOST_TEXT] if char.isprintable())


def of_one_start(ranks: Iterable[RankSteps]) -> list[RankSteps]:
    """Without those of a start before the last: they have written nothing since another rank began."""
    found = list(ranks)
    began = max((one.started for one in found), default=0.0)
    return [one for one in found if one.time > began]
