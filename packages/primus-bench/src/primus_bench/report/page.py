"""The report as one HTML page with charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from primus_bench.report.charts import charts
from primus_bench.report.document import Document
from primus_bench.report.sheet import Sheet, cells, heads
from primus_page.page import as_html
from primus_page.parts import Charts, Part, Section, Table, Words

__all__ = ["as_page"]


def as_page(found: Document, sheet: Sheet) -> str:
    """The page."""
    sections = (
        Section("results", "Results", tuple(_results(sheet))),
        Section("charts", "Charts", (Charts(drawn),) if (drawn := charts(found)) else ()),
        Section("about", "How it was measured", tuple(_about(found, sheet))),
    )
    shown = [one for one in sections if one.parts]
    return as_html(sheet.title, found.versions.get("measured", ""), shown, generator="primus bench")


def _results(sheet: Sheet) -> Iterator[Part]:
    yield from (Words(" ".join(line.split()), is_soft=True) for line in sheet.heading)
    for one in (sheet, sheet.below):
        if one:
            yield Table([head.replace("\n", " ") for head in heads(one)], cells(one), "" if one is sheet else one.title)
    yield from (Words(f"Note: {note}") for note in sheet.notes)


def _about(found: Document, sheet: Sheet) -> Iterator[Part]:
    yield Table(("device and versions", ""), [(name, text) for name, text in sheet.about.items() if name != "method"])
    yield Table(("method", ""), [(name, str(value)) for name, value in found.method.items()])
    yield Table(("option", "value"), _rows(found.parameters), folded="Options")
    yield Table(("machine", "value"), _rows(found.machine), folded="Machine")


def _rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _text(value)) for name, value in values.items()]


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)
