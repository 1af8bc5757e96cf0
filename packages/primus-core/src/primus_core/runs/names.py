"""A run's name: `<exp_name>_<YYYY_MM_DD_HHMMSS>`, with `_<number>` behind it where several began in one second."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

__all__ = ["EXPERIMENT", "Name", "parse_name", "stamp"]

EXPERIMENT = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
"""What may name an experiment: it becomes a folder's name."""
_NAME = rf"({EXPERIMENT})_(\d{{4}}_\d{{2}}_\d{{2}}_\d{{6}})(?:_(\d+))?"


class Name(NamedTuple):
    """A run's name, taken apart."""

    exp_name: str
    stamp: str
    number: int = 1

    @property
    def order(self) -> tuple[str, int]:
        """By time, then by the number that tells runs of one second apart."""
        return self.stamp, self.number


def parse_name(name: str) -> Name | None:
    """The parts of a run directory's name; None for another folder's."""
    match = re.fullmatch(_NAME, name)
    return Name(match[1], match[2], int(match[3] or 1)) if match else None


def stamp(seconds: float) -> str:
    """A moment as names have it, in local time. Raises what `time.localtime` does for one that no calendar has."""
    return time.strftime("%Y_%m_%d_%H%M%S", time.localtime(seconds))
