"""The result as one HTML page: a matrix of layouts and quantities, and what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from primus_machine.units import time_span
from primus_page.page import as_html
from primus_page.parts import Found, Part, Section, Table, Words
from primus_verify.comparison import QUANTITIES
from primus_verify.layouts import AXES
from primus_verify.report import (
    SETTING_HEADS,
    count_results,
    describe_settings,
    describe_training,
    setting_rows,
)

__all__ = ["as_page"]


def as_page(found: Mapping[str, Any]) -> str:
    """Return the page of a result (`report.document`)."""
    title = f"verify: {found['experiment']}"
    subtitle = describe_training(found)
    sections = (
        Section("layouts", "Layouts", tuple(_matrix(found))),
        Section("differences", "What differs", tuple(_differences(found))),
        Section("settings", "Settings", tuple(_settings(found))),
        Section("axes", "Axes", (Table(("axis", "meaning"), list(AXES.items()), folded="Axes of a layout"),)),
    )
    return as_html(title, subtitle, [one for one in sections if one.parts], generator="primus verify")


def _matrix(found: Mapping[str, Any]) -> Iterator[Part]:
    if not found["layouts"]:
        return
    heads = ("layout", "ranks", "result", "time", *QUANTITIES)
    rows = [
        (one["layout"], str(one["ranks"] or "-"), one["status"], time_span(one["seconds"]) if one["seconds"] else "-",
         *(_cell(one["worst"].get(quantity)) for quantity in QUANTITIES))
        for one in found["layouts"]
    ]  # fmt: skip
    yield Table(heads, rows)
    yield Words(count_results(found))
    limit = "what --rtol allows" if found["rtol"] else "what rounding explains"
    yield Words(f"Each cell has the largest relative error, and in parentheses {limit}.", is_soft=True)


def _cell(worst: Mapping[str, Any] | None) -> str:
    if not worst:
        return "-"
    error, limit = worst["error"], worst["limit"]
    shown = "not finite" if error is None else f"{error:.1e}"
    mark = "✗ " if error is None or (limit is not None and error > limit) else "✓ "
    return mark + shown + (f" ({limit:.0e})" if limit else "")


def _settings(found: Mapping[str, Any]) -> Iterator[Part]:
    if found["settings"]:
        yield Table(SETTING_HEADS, setting_rows(found["settings"]))
        yield from (Words(line) for line in describe_settings(found["settings"]))


def _differences(found: Mapping[str, Any]) -> Iterator[Part]:
    for one in found["layouts"]:
        for number, finding in enumerate(one["findings"]):
            yield Found(f"{one['layout']}: {finding['text']}", ", ".join(finding["names"][:20]), "", number == 0)
        if one["why"]:
            yield Words(f"{one['layout']}: {one['status']}: {one['why']}")
