"""The document of a benchmark of another package, before anybody reckons with it: whether it has the common form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from primus_bench.report.document import SCHEMA
from primus_core.config.document import dotted
from primus_core.errors import PrimusError
from primus_machine import strict
from primus_machine.files import plain_json
from primus_machine.files.atomic import read_regular

__all__ = ["read", "require_right"]

_MOST_BYTES = 64 << 20
_Figure = Annotated[float, ("allow_inf_nan", False), ("ge", 0), ("lt", 1e100)]
_Seconds = Annotated[float, ("allow_inf_nan", False), ("gt", 0), ("lt", 1e100)]


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    parameters: dict[str, Any]
    samples: list[_Seconds]
    median: _Seconds | None
    unit: str
    value: _Figure | None
    verified: bool
    error: Any
    derived: dict[str, Any]
    rank: int
    node: str


@dataclass(frozen=True, slots=True)
class _Document:
    benchmark: str
    device: dict[str, Any]
    cases: list[_Case]
    notes: list[str]


def read(path: str) -> Mapping[str, Any] | None:
    """The document in a file; None: there is none, or it is not of this schema.

    Raises:
        PrimusError: it lacks something, a figure is none, or a result is wrong.
    """
    try:
        found = plain_json.loads(read_regular(path, _MOST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise PrimusError("the result cannot be read", why=str(error)) from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None
    require_right(found)
    return found


def require_right(found: Mapping[str, Any], *, may_lack: bool = False) -> None:
    """Refuse what is not the document of right results. `may_lack`: a case that failed is right without any figure.

    Raises:
        PrimusError: it lacks something, a figure is none, or a result is wrong.
    """
    try:
        strict.read(_Document, _known(found))
    except strict.ValidationError as error:
        raise _explain(error, found) from None
    for case in found["cases"]:
        has_figures = case["samples"] or case["median"] is not None or case["value"] is not None
        if not case["verified"] and (has_figures or not may_lack):
            why = "" if case["error"] is None else str(case["error"])
            raise PrimusError(f"{case['name']} has a wrong result; its speed is not reported", why=why)


def _known(found: Mapping[str, Any]) -> dict[str, Any]:
    """What is looked at: a document may have more."""
    cases = found.get("cases")
    if isinstance(cases, list):
        cases = [_only(_Case, case) if isinstance(case, dict) else case for case in cases]
    return {**_only(_Document, found), **({"cases": cases} if "cases" in found else {})}


def _only(kind: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: data[field.name] for field in fields(kind) if field.name in data}


def _explain(error: strict.ValidationError, found: Mapping[str, Any]) -> PrimusError:
    """Name the case, the field and its value."""
    first = error.errors(include_url=False)[0]
    path = tuple(first["loc"])
    case = found["cases"][path[1]] if path[:1] == ("cases",) and len(path) > 1 else None
    name = case.get("name") if isinstance(case, dict) else None
    whose, own = (name, path[2:]) if isinstance(name, str) and path[2:] else ("the result", path)
    if first["type"] == "missing":
        return PrimusError(f"{whose} has no '{dotted(own)}'", why=_FORM)
    return PrimusError(f"{whose} has '{dotted(own)}' {first['input']!r:.60}", why=_NEEDED.get(str(own[0]), _FORM))


_FORM = "it does not have the form of all benchmarks (docs/bench-own.md)"
_NEEDED = {
    "samples": "each is a finite number of seconds above 0",
    "median": "it is a finite number of seconds above 0, or None",
    "value": "it is a finite number, 0 or more, or None",
    "verified": "it is True or False",
}
"""What a field of a case takes, for people."""
