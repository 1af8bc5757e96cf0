"""What came of a verification, as data and as text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tabulate

from primus_core.errors import MachineError
from primus_machine.files.atomic import write_atomically
from primus_machine.units import counted, time_span

__all__ = [
    "SETTING_HEADS",
    "as_text",
    "count_results",
    "describe_settings",
    "describe_training",
    "document",
    "setting_rows",
    "write",
]

SCHEMA = 1
_SHOWN = 6
"""Findings of one layout as text; `verify.json` has all."""
SETTING_HEADS = ("setting", "value", "default", "its default changes")
_VALUE, _EFFECT = 24, 72
"""Characters of a cell: a row is one line."""


def document(
    request: Mapping[str, Any], layouts: Sequence[Mapping[str, Any]], settings: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the result as `verify.json` has it."""
    return {
        "schema": SCHEMA,
        **{key: request[key] for key in ("experiment", "framework", "framework_version", "steps")},
        "rtol": request.get("rtol"),
        "tokens": "sources of Python" if request["against"] and not request["layouts"] else "made-up tokens",
        "verdict": _verdict({one["status"] for one in layouts} or {one["status"] for one in settings}),
        "layouts": list(layouts),
        "settings": list(settings),
    }


def _verdict(statuses: set[str]) -> str:
    """The worst of all; what was not tried proves nothing. Of settings alone: whether one changes nothing."""
    order = ("differs", "failed", "equal", "nothing", "changes")
    found = next((one for one in order if one in statuses), "not tried")
    return {"nothing": "dead settings", "changes": "no dead settings"}.get(found, found)


def describe_training(found: Mapping[str, Any]) -> str:
    """Return what was trained: the framework, how many steps, and on what."""
    of = f"{found['framework']} {found['framework_version']}"
    given = f", gradients to {found['rtol']:g} (--rtol)" if found["rtol"] else ""  # a large one hides what differs
    return f"{of}, {counted(found['steps'], 'step')} in float32 on {found['tokens']}{given}"


def count_results(found: Mapping[str, Any]) -> str:
    """Return `1 equal, 1 differs`; empty: there is no layout."""
    counts = {status: sum(one["status"] == status for one in found["layouts"])
              for status in ("equal", "differs", "failed", "not tried")}  # fmt: skip
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count)


def as_text(found: Mapping[str, Any]) -> str:
    """Return a table of layouts, what differs, and one closing line."""
    title = f"verify: {found['experiment']}, {describe_training(found)}"
    if not found["layouts"]:
        return "\n".join([title, *_settings(found["settings"])])
    rows = [[one["layout"], one["ranks"] or "-", one["status"], time_span(one["seconds"]) if one["seconds"] else "-"]
            for one in found["layouts"]]  # fmt: skip
    table = tabulate.tabulate(rows, headers=["layout", "ranks", "result", "time"], disable_numparse=True)
    lines = [title, "", table, ""]
    for one in found["layouts"]:
        lines += [f"{one['layout']}: {finding['text']}" for finding in one["findings"][:_SHOWN]]
        more = len(one["findings"]) - _SHOWN
        lines += [f"{one['layout']}: ... and of {counted(more, 'more kind')} of parameters"] if more > 0 else []
        lines += [f"{one['layout']}: {one['status']}: {one['why']}"] if one["why"] else []
    return "\n".join([*lines, count_results(found), *_settings(found["settings"])])


def _settings(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of what each setting changes, and how many do."""
    if not settings:
        return []
    table = tabulate.tabulate(setting_rows(settings), headers=SETTING_HEADS, disable_numparse=True)
    return ["", table, "", *describe_settings(settings)]


def setting_rows(settings: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return a line for each setting, with its columns as text."""
    return [(one["name"], *(_cut(str(one[key]), _VALUE) for key in ("value", "default")), _cut(_effect(one), _EFFECT))
            for one in settings]  # fmt: skip


def _effect(one: Mapping[str, Any]) -> str:
    shown = {"nothing": "nothing: likely dead", "not tried": f"not tried: {one['effect']}"}
    return str(shown.get(one["status"], one["effect"]))


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def describe_settings(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how many settings change something, those that change nothing, and where to read why one was not tried."""
    by = {
        status: [one for one in settings if one["status"] == status] for status in ("changes", "nothing", "not tried")
    }
    dead = f": {', '.join(one['name'] for one in by['nothing'])}" if by["nothing"] else ""
    verbs = {status: f"{len(some)} change{'s' * (len(some) == 1)}" for status, some in by.items()}
    of = [f"{verbs['changes']} something", f"{verbs['nothing']} nothing{dead}",
          f"{len(by['not tried'])} not tried"]  # fmt: skip
    return [", ".join(of), *(f"{one['name']}: not tried: read {one['log']}" for one in by["not tried"])]


def write(text: str, path: str) -> None:
    """Write it whole or not at all.

    Raises:
        MachineError: it cannot be written.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise MachineError(f"{path} cannot be written", why=error.strerror or "") from None
