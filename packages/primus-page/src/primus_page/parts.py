"""What sections are made of; a page and Markdown each spell it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from primus_page.chart import Chart

__all__ = ["Card", "Cards", "Charts", "Found", "Part", "Rows", "Section", "Table", "Words"]

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Card:
    """One figure."""

    title: str
    value: str
    """With its unit."""
    is_known: bool = True
    source: str = ""
    """Where it is from, or why it is not known."""


@dataclass(frozen=True, slots=True)
class Cards:
    """Figures, beside each other."""

    cards: Sequence[Card]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    folded: str = ""
    """What stands in its place until a reader opens it; empty: it is open."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding, and what to do."""

    title: str
    advice: str
    source: str
    is_first: bool


@dataclass(frozen=True, slots=True)
class Charts:
    """Charts; Markdown has none."""

    charts: Sequence[Chart]


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph."""

    text: str
    is_soft: bool = False


Part = Cards | Table | Found | Charts | Words


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it."""

    name: str
    title: str
    parts: Sequence[Part]
