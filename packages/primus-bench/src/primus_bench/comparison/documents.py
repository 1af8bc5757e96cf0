"""Two results of one benchmark, case by case."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from primus_bench.comparison.intervals import FEWEST, Slowdown, slowdown, verdict
from primus_core.errors import RequestError
from primus_machine.files import plain_json
from primus_machine.files.atomic import regular
from primus_machine.text import printable

__all__ = ["Compared", "by_name", "compare", "differences", "read"]

SCHEMA = 3
_MOST_BYTES = 64 << 20
_EVER_OTHERS = {"measured", "gpu_watts", "gpu_celsius"}
"""They differ between any two runs."""
_DESCRIBED = ("device", "clocks", "versions", "machine")


@dataclass(frozen=True, slots=True)
class Compared:
    """One case of both results. `outcome`: slower, faster, equal, uncertain, missing, new, wrong, or not comparable."""

    name: str
    outcome: str
    slowdown: Slowdown | None = None
    a: float | None = None
    """Seconds, the median."""
    b: float | None = None

    @property
    def is_regression(self) -> bool:
        """Slower beyond the tolerance, or no longer right or measured."""
        return self.outcome in ("slower", "wrong", "missing")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "is_regression": self.is_regression}


def read(path: str) -> dict[str, Any]:
    """The result in a JSON file that `bench … --output FILE.json` wrote.

    Raises:
        RequestError: there is none, or it is of another version.
    """
    try:
        with open(path, "rb", opener=regular) as file:  # a FIFO or a device may have no end
            data = plain_json.loads(_whole(file))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        fix = "write one: primus direct -- bench gemm -M 4096 --output gemm.json"
        raise RequestError(f"{path} cannot be read", why=str(why), fix=fix) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not _has_parts(data):
        fix = "measure again with this version of primus-bench"
        raise RequestError(f"{path} is not a result of a benchmark with schema {SCHEMA}", fix=fix)
    try:
        by_name(data)
    except (KeyError, TypeError, ValueError):
        raise RequestError(f"{path} is damaged", why="a case lacks a name, times or parameters") from None
    return data


def _whole(file: BinaryIO) -> bytes:
    found = file.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES >> 20} MiB")
    return found


def _has_parts(data: Mapping[str, Any]) -> bool:
    described = all(isinstance(data.get(part) or {}, dict) for part in _DESCRIBED)
    return described and isinstance(data.get("cases"), list) and isinstance(data.get("benchmark"), str)


def by_name(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The cases; those with equal names are told apart by their parameters."""
    found: dict[str, Mapping[str, Any]] = {}
    for case in data["cases"]:
        if not isinstance(case["name"], str):
            raise TypeError(f"{case['name']} is not a name")
        key = printable(case["name"])
        if key in found:
            key = f"{key} {json.dumps(case['parameters'], sort_keys=True)}"
        median = case["median"] if case["median"] is None else _seconds(case["median"])
        samples = [_seconds(value) for value in case["samples"]]
        needed = {part: case[part] for part in ("parameters", "verified")}
        found[key] = {**needed, "median": median, "samples": samples}
    return found


def _seconds(value: Any) -> float:
    """A time of somebody's file.

    Raises:
        ValueError: it is no number above 0.
    """
    found = plain_json.number(value)
    if found is None or found <= 0:
        raise ValueError(f"'{value}' is not a time")
    return float(found)


def compare(a: Mapping[str, Any], b: Mapping[str, Any], tolerance: float) -> list[Compared]:
    """Each case of `a`, and then those that only `b` has."""
    before, after = by_name(a), by_name(b)
    both = len(before.keys() & after.keys())
    found = [_case(name, case, after.get(name), tolerance, both) for name, case in before.items()]
    return [*found, *(Compared(name, "new", b=after[name]["median"]) for name in after if name not in before)]


def _case(name: str, a: Mapping[str, Any], b: Mapping[str, Any] | None, tolerance: float, comparisons: int) -> Compared:
    if b is None:
        return Compared(name, "missing", a=a["median"])
    if not b["verified"]:
        return Compared(name, "wrong", a=a["median"])
    if a["parameters"] != b["parameters"] or not a["verified"] or min(len(a["samples"]), len(b["samples"])) < FEWEST:
        return Compared(name, "not comparable", a=a["median"], b=b["median"])
    found = slowdown(a["samples"], b["samples"], comparisons)
    return Compared(name, verdict(found, tolerance), found, a["median"], b["median"])


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What else differs between the two: device, versions, clocks, and notes, such as on an unsteady latency."""
    found = []
    for part in _DESCRIBED:
        old, new = a.get(part) or {}, b.get(part) or {}
        changed = (key for key in sorted({*old, *new} - _EVER_OTHERS) if old.get(key) != new.get(key))
        found += [printable(f"{part}.{key}: {old.get(key)} → {new.get(key)}") for key in changed]
    for name, own, other in (("A", _notes(a), _notes(b)), ("B", _notes(b), _notes(a))):
        found += [printable(f"note of {name}: {note}") for note in own if note not in other]
    return found


def _notes(data: Mapping[str, Any]) -> list[Any]:
    notes = data.get("notes")
    return notes if isinstance(notes, list) else []
