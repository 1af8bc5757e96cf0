"""The figures of a benchmark as a table for people, as Markdown and as CSV; each with how they were measured."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tabulate import tabulate

from primus_machine.text import printable

__all__ = ["Sheet", "as_cell", "as_csv", "as_markdown", "as_table", "cells", "heads"]

_WIDTH = 110
_LONGEST = 300
"""Characters of a name in a table."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take the text of a cell for a formula."""
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", "|": "\\|", "\n": " "})


@dataclass(frozen=True, slots=True)
class Sheet:
    """What was found, as flat records; None stands for a figure that nobody knows. At least one record."""

    title: str
    heading: tuple[str, ...]
    """What was measured, where and how: `on:   NAME`."""
    columns: Mapping[str, tuple[str, str]]
    """What the table shows of a record: key, heading and format."""
    records: Sequence[Mapping[str, Any]]
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    below: Sheet | None = None
    """A second table: only its columns and records count."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Device, clocks, power, versions and method (`primus_bench.report.about`)."""


def heads(sheet: Sheet) -> list[str]:
    """The headings of the columns; some have two lines."""
    return [name for name, _ in sheet.columns.values()]


def cells(sheet: Sheet) -> list[list[str]]:
    """The records as text, column by column; names of others without what a terminal obeys."""
    return [[_cell(row[key], figure) for key, (_, figure) in sheet.columns.items()] for row in sheet.records]


def _table(sheet: Sheet, form: str, line: str = "\n") -> str:
    """The figures in one of tabulate's forms; `line` parts the lines of a heading."""
    headers = [name.replace("\n", line) for name in heads(sheet)]
    aligned = ["left" if figure == "s" else "right" for _, figure in sheet.columns.values()]
    # tabulate would else take the numbers apart and line up their points
    shown = [[as_cell(cell) for cell in row] for row in cells(sheet)] if form == "github" else cells(sheet)
    return str(tabulate(shown, headers=headers, tablefmt=form, disable_numparse=True, colalign=aligned))


def _cell(value: Any, form: str) -> str:
    if value is None or _is_endless(value):
        return "-"
    # .4g turns to 1.234e+04 above 9999; such numbers read better plain
    return f"{value:.0f}" if form == ".4g" and abs(value) >= 1000 else printable(f"{value:{form}}")[:_LONGEST]


def _is_endless(value: Any) -> bool:
    """Whether a figure is infinite or NaN: nobody knows it."""
    return isinstance(value, float) and not math.isfinite(value)


def as_table(sheet: Sheet) -> str:
    """The report for a terminal."""
    tables = [_table(one, "simple_outline") for one in (sheet, sheet.below) if one]
    about = [line for name, text in sheet.about.items() for line in _wrapped(name, text)]
    return printable("\n".join([*sheet.heading, *tables, *(f"note: {note}" for note in sheet.notes), *about]), "\n")


def _wrapped(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"{name + ':':<10}{text}", _WIDTH, subsequent_indent=" " * 10, break_on_hyphens=False)


def as_markdown(sheet: Sheet) -> str:
    """The report as Markdown."""
    about = [f"{name}: {text}" for name, text in sheet.about.items()]
    head = [f"- {as_cell(' '.join(line.split()))}" for line in (*sheet.heading, *about)]
    lines = [f"# {sheet.title}", "", *head]
    lines += [line for one in (sheet, sheet.below) if one for line in ("", _table(one, "github", " "))]
    return "\n".join(lines + [""] * bool(sheet.notes) + [f"> {as_cell(note)}" for note in sheet.notes]) + "\n"


def as_cell(text: str) -> str:
    """A text of others within Markdown: no markup of theirs, no cell and no line more."""
    return printable(text, "\n").translate(_MARKUP)


def as_csv(sheet: Sheet) -> str:
    """One line per record of the first table, after a line of names. An unknown figure is empty.

    What is the same for all of them is in each line: a CSV file has no other place for it.
    """
    about = {f"about_{name}": value for name, value in sheet.about.items()}
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=[*sheet.records[0], *about], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _quoted(value) for key, value in {**record, **about}.items()} for record in sheet.records)
    return text.getvalue()


def _quoted(value: Any) -> Any:
    """A name of others that a spreadsheet takes for text, and a terminal obeys as little."""
    if not isinstance(value, str):
        return None if _is_endless(value) else value
    return f"'{printable(value)}" if value.startswith(_FORMULA) and len(value) > 1 else printable(value)
