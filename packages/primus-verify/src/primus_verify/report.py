"""What came of a verification, as data and as text."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tabulate

from primus_core.errors import MachineError
from primus_machine.units import counted, time_span
from primus_verify.comparison import Tolerance
from primus_verify.session import Result

__all__ = ["as_text", "document", "write"]

SCHEMA = 1
_SHOWN = 6
"""Findings of one layout as text; `verify.json` has all."""


def document(request: Mapping[str, Any], results: Sequence[Result], tolerance: Tolerance | None) -> dict[str, Any]:
    """Return the result as `verify.json` has it."""
    return {
        "schema": SCHEMA,
        **{key: request[key] for key in ("experiment", "framework", "framework_version", "steps")},
        "rtol": tolerance.rtol if tolerance else None,
        "verdict": _verdict(results),
        "layouts": [
            {
                "layout": one.layout.name,
                "ranks": one.layout.ranks,
                "status": one.status,
                "why": one.why or None,
                "seconds": round(one.seconds, 1),
                "findings": [finding._asdict() | {"error": _finite(finding.error)} for finding in one.findings],
            }
            for one in results
        ],
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if value < float("inf") else None


def _verdict(results: Sequence[Result]) -> str:
    statuses = {one.status for one in results}
    if "differs" in statuses or "failed" in statuses:
        return "differs" if "differs" in statuses else "failed"
    return "equal" if "equal" in statuses else "not tried"


def as_text(found: Mapping[str, Any]) -> str:
    """Return a table of layouts, what differs, and one closing line."""
    rows = [[one["layout"], one["ranks"], one["status"], time_span(one["seconds"]) if one["seconds"] else "-"]
            for one in found["layouts"]]  # fmt: skip
    table = tabulate.tabulate(rows, headers=["layout", "ranks", "result", "time"], disable_numparse=True)
    of = f"{found['experiment']}, {found['framework']} {found['framework_version']}"
    lines = [f"verify: {of}, {counted(found['steps'], 'step')} in float32", "", table, ""]
    for one in found["layouts"]:
        lines += [f"{one['layout']}: {finding['text']}" for finding in one["findings"][:_SHOWN]]
        more = len(one["findings"]) - _SHOWN
        lines += [f"{one['layout']}: ... and of {counted(more, 'more kind')} of parameters"] if more > 0 else []
        lines += [f"{one['layout']}: {one['status']}: {one['why']}"] if one["why"] else []
    counts = {status: sum(one["status"] == status for one in found["layouts"])
              for status in ("equal", "differs", "failed", "not tried")}  # fmt: skip
    lines += [", ".join(f"{count} {status}" for status, count in counts.items() if count)]
    return "\n".join(lines)


def write(found: Mapping[str, Any], path: str) -> None:
    """Write it as JSON, whole or not at all.

    Raises:
        MachineError: it cannot be written.
    """
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
        os.replace(f"{path}.new", path)
    except OSError as error:
        raise MachineError(f"{path} cannot be written", why=error.strerror or "") from None
