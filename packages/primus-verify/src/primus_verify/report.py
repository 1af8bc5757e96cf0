"""What came of a verification, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tabulate

from primus_core.errors import MachineError
from primus_machine.files.atomic import write_atomically
from primus_machine.units import counted, time_span

__all__ = ["as_text", "document", "given_tolerance", "write"]

SCHEMA = 1
_SHOWN = 6
"""Findings of one layout as text; `verify.json` has all."""


def document(
    request: Mapping[str, Any], layouts: Sequence[Mapping[str, Any]], settings: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the result as `verify.json` has it."""
    return {
        "schema": SCHEMA,
        **{key: request[key] for key in ("experiment", "framework", "framework_version", "steps")},
        "rtol": request.get("rtol"),
        "verdict": _verdict({one["status"] for one in layouts}),
        "layouts": list(layouts),
        "settings": list(settings),
    }


def _verdict(statuses: set[str]) -> str:
    """The worst of all; what was not tried proves nothing."""
    return next((one for one in ("differs", "failed", "equal") if one in statuses), "not tried")


def as_text(found: Mapping[str, Any]) -> str:
    """Return a table of layouts, what differs, and one closing line."""
    rows = [[one["layout"], one["ranks"] or "-", one["status"], time_span(one["seconds"]) if one["seconds"] else "-"]
            for one in found["layouts"]]  # fmt: skip
    table = tabulate.tabulate(rows, headers=["layout", "ranks", "result", "time"], disable_numparse=True)
    of = f"{found['experiment']}, {found['framework']} {found['framework_version']}"
    lines = [f"verify: {of}, {counted(found['steps'], 'step')} in float32{given_tolerance(found)}", "", table, ""]
    for one in found["layouts"]:
        lines += [f"{one['layout']}: {finding['text']}" for finding in one["findings"][:_SHOWN]]
        more = len(one["findings"]) - _SHOWN
        lines += [f"{one['layout']}: ... and of {counted(more, 'more kind')} of parameters"] if more > 0 else []
        lines += [f"{one['layout']}: {one['status']}: {one['why']}"] if one["why"] else []
    if not found["layouts"]:
        return "\n".join([lines[0], *_settings(found["settings"])])
    counts = {status: sum(one["status"] == status for one in found["layouts"])
              for status in ("equal", "differs", "failed", "not tried")}  # fmt: skip
    lines += [", ".join(f"{count} {status}" for status, count in counts.items() if count)]
    return "\n".join([*lines, *_settings(found["settings"])])


def given_tolerance(found: Mapping[str, Any]) -> str:
    """Return the tolerance in words, if `--rtol` gave it: a large one hides what differs."""
    return f", gradients to {found['rtol']:g} (--rtol)" if found["rtol"] else ""


def _settings(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of what each setting changes."""
    rows = [[one["name"], one["value"], one["default"], one["effect"] or "nothing: likely dead"] for one in settings]
    heads = ["setting", "value", "default", "its default changes"]
    return ["", tabulate.tabulate(rows, headers=heads, disable_numparse=True)] if rows else []


def write(text: str, path: str) -> None:
    """Write it whole or not at all.

    Raises:
        MachineError: it cannot be written.
    """
    try:
        write_atomically(path, text)
    except OSError as error:
        raise MachineError(f"{path} cannot be written", why=error.strerror or "") from None
