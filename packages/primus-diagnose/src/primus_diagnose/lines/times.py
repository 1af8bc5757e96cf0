"""The time that a line of a log says, in the ways in which logs say it."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

from primus_machine.files.plain_json import number

__all__ = ["latest_before", "moment", "of_line", "year_of"]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ISO = (
    r"(?P<y>20\d\d)[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[T _](?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)"
    r"(?:[.,](?P<f>\d{1,9}))?(?P<z>Z|[+-]\d\d:?\d\d)?"
)
_GLOG = r"(?<![\w.])[IWEFVC](?P<gm>\d{1,2})(?P<gd>\d\d) (?P<gh>\d\d):(?P<gmi>\d\d):(?P<gs>\d\d)\.(?P<gf>\d{1,9})"
_SYSLOG = (
    rf"(?P<sm>{'|'.join(_MONTHS)}) {{1,2}}(?P<sd>\d{{1,2}}) (?P<sh>\d\d):(?P<smi>\d\d):(?P<ss>\d\d)(?: (?P<sy>20\d\d))?"
)
_EPOCH = r"\"time\": (?P<epoch>1\d{9}(?:\.\d+)?)"
_ANY = re.compile(f"{_ISO}|{_GLOG}|{_SYSLOG}|{_EPOCH}")
_LATEST = 1e11
"""Seconds since the epoch: the year 5138."""
_HEAD = 240
"""A line's time stands at its beginning."""


def moment(value: Any) -> float | None:
    """A time of a record that anybody may have written; None: it is none that a clock shows."""
    known = number(value)
    return float(known) if known is not None and 0 < known < _LATEST else None


def year_of(seconds: float) -> int:
    """The year of a file's last change: some logs give none."""
    return time.localtime(seconds).tm_year


def of_line(line: str, year: int) -> float | None:
    """Seconds since the epoch; None: the line says no time. `year`: of lines that do not say theirs.

    A time without a zone is this machine's.
    """
    match = _ANY.search(line, 0, _HEAD)
    return _seconds(match, year) if match else None


def latest_before(text: str, year: int) -> float | None:
    """The last time that is said in some lines; None: none is."""
    found = None
    for found in _ANY.finditer(text):  # noqa: B007  # the last one is wanted
        pass
    return _seconds(found, year) if found else None


def _seconds(match: re.Match[str], year: int) -> float | None:
    if match["epoch"]:
        return float(match["epoch"])
    try:
        if match["y"]:
            return _iso(match)
        if match["gm"]:
            return _local(year, *(int(match[name]) for name in ("gm", "gd", "gh", "gmi", "gs"))) + _part(match["gf"])
        month = _MONTHS.index(match["sm"]) + 1
        return _local(int(match["sy"] or year), month, *(int(match[name]) for name in ("sd", "sh", "smi", "ss")))
    except (ValueError, OverflowError):
        return None


def _iso(match: re.Match[str]) -> float:
    numbers = [int(match[name]) for name in ("y", "mo", "d", "h", "mi", "s")]
    if match["z"]:
        zone = match["z"].replace("Z", "+00:00")
        text = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*numbers)
        return datetime.fromisoformat(text + zone).timestamp() + _part(match["f"])
    return _local(*numbers) + _part(match["f"])


def _local(*numbers: int) -> float:
    year, month, day, hour, minute, second = numbers
    datetime(year, month, day, hour, minute, second)  # noqa: DTZ001  # refuses the 31st of February, unlike mktime
    return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))


def _part(digits: str | None) -> float:
    return float(f"0.{digits}") if digits else 0.0
