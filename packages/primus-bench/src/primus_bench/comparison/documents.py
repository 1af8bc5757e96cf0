"""Two results of one benchmark, case by case."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from primus_bench.comparison.intervals import FEWEST, Slowdown, slowdown, step_of, verdict
from primus_core.errors import RequestError, nearest
from primus_machine.files import plain_json
from primus_machine.files.atomic import regular
from primus_machine.text import printable

__all__ = ["Compared", "by_name", "compare", "differences", "read", "unsteady_cases"]

SCHEMA = 3
_MOST_BYTES = 64 << 20
_LONGEST, _MOST_NAMED = 60, 3
"""Characters of a value in a message, and parameters."""
_UNSTEADY = "not steady: "
_EVER_OTHERS = {"measured", "gpu_watts", "gpu_celsius"}
"""They differ between any two runs."""
_SUFFIX = ".json"
_MEASURES = {"gemm": "gemm -M 4096", "train": "train --model llama3.1_8B"}
"""Benchmarks that need an option, with one."""
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
    note: str = ""
    """Why it is not comparable, or which of its samples were compared."""

    @property
    def is_regression(self) -> bool:
        """Slower beyond the tolerance, or no longer right or measured."""
        return self.outcome in ("slower", "wrong", "missing")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "is_regression": self.is_regression}


def read(path: str, beside: str = "") -> dict[str, Any]:
    """The result in a JSON file that `bench … --output FILE.json` wrote. `beside` is the one it is compared with.

    Raises:
        RequestError: there is none, or it is of another version.
    """
    if not os.path.lexists(path):
        raise _missing(path, beside)
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
    except (TypeError, ValueError) as error:
        raise RequestError(f"{path} is damaged", why=str(error), fix="measure it again") from None
    return data


def _missing(path: str, beside: str) -> RequestError:
    """The error for a file that does not exist, with one of nearly its name, or the command that writes it."""
    what, why = f"{path} cannot be read", "No such file or directory"
    folder, name = os.path.split(path)
    if near := _near(folder, name.removesuffix(_SUFFIX), beside):
        meant = os.path.join(folder, f"{near}{_SUFFIX}")
        fix = f"did you mean '{meant}'?"
        return RequestError(what, why=why, fix=fix, kind="unknown", options=[path], meant=shlex.quote(meant))
    benchmark = ""
    with suppress(RequestError):
        benchmark = read(beside)["benchmark"] if os.path.exists(beside) else ""
    words = _MEASURES.get(benchmark, benchmark if re.fullmatch(r"\w[\w-]*", benchmark) else _MEASURES["gemm"])
    output = shlex.quote(path if path.endswith(_SUFFIX) else f"{path}{_SUFFIX}")
    return RequestError(what, why=why, fix=f"write it: primus direct -- bench {words} --output {output}")


def _near(folder: str, stem: str, beside: str) -> str:
    """The file in `folder` with nearly that name, both without their suffix; empty: there is none."""
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return ""
    others = {os.path.normpath(os.path.join(folder, name)): name for name in names if name.endswith(_SUFFIX)}
    others.pop(os.path.normpath(beside), None)
    return nearest(stem, (name.removesuffix(_SUFFIX) for name in others.values()))


def _whole(file: BinaryIO) -> bytes:
    found = file.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES >> 20} MiB")
    return found


def _has_parts(data: Mapping[str, Any]) -> bool:
    described = all(isinstance(data.get(part) or {}, dict) for part in _DESCRIBED)
    return described and isinstance(data.get("cases"), list) and isinstance(data.get("benchmark"), str)


def by_name(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The cases; those with equal names are told apart by their parameters.

    Raises:
        TypeError: one lacks something.
        ValueError: a time is none, or a case is there twice.
    """
    found: dict[str, Mapping[str, Any]] = {}
    seen = set[tuple[str, str]]()
    for number, case in enumerate(data["cases"]):
        if not isinstance(case, dict) or not isinstance(case.get("name"), str):
            raise TypeError(f"case {number} has no name: {_shown(case)}")
        name = printable(case["name"])
        read = _read_case(name, case)
        parameters = json.dumps(case["parameters"], sort_keys=True)
        if (name, parameters) in seen:
            raise ValueError(f"the case {name} is there twice")
        seen.add((name, parameters))
        found[f"{name} {parameters}" if name in found else name] = read
    return found


def _read_case(name: str, case: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is compared of it."""
    for part, kind in (("parameters", dict), ("verified", bool), ("samples", list)):
        if not isinstance(case.get(part), kind):
            value = _shown(case[part]) if part in case else "missing"
            raise TypeError(f"'{part}' of the case {name} is {value}")
    times = [*([] if case.get("median") is None else [case["median"]]), *case["samples"]]
    if wrong := [value for value in times if not _is_time(value)]:
        raise ValueError(f"a time of the case {name} is {_shown(wrong[0])}; a time is a number above 0")
    return {part: case.get(part) for part in ("parameters", "verified", "median", "samples")}


def _is_time(value: Any) -> bool:
    found = plain_json.number(value)
    return found is not None and found > 0


def _shown(value: Any) -> str:
    text = plain_json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


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
    if why := _why_not(a, b):
        return Compared(name, "not comparable", a=a["median"], b=b["median"], note=why)
    found = slowdown(a["samples"], b["samples"], comparisons)
    return Compared(name, verdict(found, tolerance), found, a["median"], b["median"], _thinning(a, b))


def _why_not(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Why two cases cannot be compared; empty: they can."""
    old, new = a["parameters"], b["parameters"]
    if changed := [key for key in sorted({*old, *new}) if old.get(key) != new.get(key) or (key in old) != (key in new)]:
        some = [f"{key} {_shown(old.get(key))} → {_shown(new.get(key))}" for key in changed[:_MOST_NAMED]]
        return printable(f"other parameters: {', '.join(some)}" + ", ..." * (len(changed) > _MOST_NAMED))
    if not a["verified"]:
        return "A has a wrong result"
    few = [f"{name} has {len(one['samples'])}" for name, one in (("A", a), ("B", b)) if len(one["samples"]) < FEWEST]
    return f"too few samples: {', '.join(few)}; {FEWEST} are needed" if few else ""


def _thinning(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """How many samples the interval is of, where it is not of all."""
    steps = [(name, step_of(len(one["samples"]))) for name, one in (("A", a), ("B", b))]
    some = [f"one in {step} samples of {name}" for name, step in steps if step > 1]
    return f"compared: {', '.join(some)}" if some else ""


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What else differs between the two: device, versions, clocks, and notes, such as on an unsteady latency."""
    found = []
    for part in _DESCRIBED:
        old, new = a.get(part) or {}, b.get(part) or {}
        changed = (key for key in sorted({*old, *new} - _EVER_OTHERS) if old.get(key) != new.get(key))
        found += [printable(f"{part}.{key}: {old.get(key)} → {new.get(key)}") for key in changed]
    for name, own, other in (("A", _notes(a), _notes(b)), ("B", _notes(b), _notes(a))):
        found += [
            printable(f"note of {name}: {note}") for note in own if note not in other or str(note).startswith(_UNSTEADY)
        ]
    return found


def _notes(data: Mapping[str, Any]) -> list[Any]:
    notes, found = data.get("notes"), data.get("steadiness")
    unsteady = [f"{_UNSTEADY}{found.get('why')}"] if isinstance(found, dict) and found.get("steady") is False else []
    return [*(notes if isinstance(notes, list) else []), *unsteady]


def unsteady_cases(data: Mapping[str, Any]) -> dict[str, str]:
    """Why the times of each case were not steady, or that nobody knows; without those that were, by `by_name`."""
    found = data.get("steadiness")
    if not isinstance(found, dict):
        return {}
    if found.get("steady") is None:
        return dict.fromkeys(by_name(data), f"steady: not known: {printable(str(found.get('why')))}")
    cases = found.get("cases")
    known = cases.items() if isinstance(cases, dict) else ()
    return {printable(name): f"{_UNSTEADY}{printable(str(why))}" for name, why in known}
