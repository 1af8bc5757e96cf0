"""A report as one page that needs nothing else, no network and no file; what strangers wrote is shown as text."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from primus_machine.files import plain_json
from primus_page.parts import Card, Cards, Charts, Found, Part, Section, Table
from primus_page.text import plain

__all__ = ["as_html"]

_DATA = Path(__file__).parent / "data"


def as_html(title: str, subtitle: str, sections: Sequence[Section], *, generator: str) -> str:
    """The page. By its `generator` a program knows a page as one of its own."""
    charts = [one for section in sections for part in section.parts if isinstance(part, Charts) for one in part.charts]
    scripts = _scripts() if charts else ()
    return str(
        _template().render(
            generator=generator,
            title=title,
            subtitle=subtitle,
            hashes=Markup(" ".join(map(_hash, scripts)) or "'none'"),  # noqa: S704  # of our own scripts
            style=Markup(_text("page.css")),  # noqa: S704  # our own
            sections=[_section(one) for one in sections],
            charts=_embedded([{"name": one.name, "option": _shown(one.option)} for one in charts]),
            scripts=[Markup(script) for script in scripts],  # noqa: S704  # our own, and the library's
        )
    )


@cache
def _template() -> Any:
    loader = FileSystemLoader(_DATA)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_final)
    return environment.get_template("page.html.j2")


def _final(found: Any) -> Any:
    """What a template shows: markup of ours as it is, and text without what a terminal or a browser obeys."""
    return found if isinstance(found, Markup) else plain(found)


@cache
def _text(name: str) -> str:
    return (_DATA / name).read_text(encoding="utf-8")


def _scripts() -> tuple[str, str]:
    return _text("echarts/echarts.common.min.js"), _text("page.js")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _embedded(data: Any) -> Markup:
    """JSON within a script element: no text in it can end that, or begin a comment."""
    text = plain_json.dumps(data, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704  # nothing in it is markup any more


def _shown(data: Any) -> Any:
    if isinstance(data, str):
        return plain(data)
    if isinstance(data, Mapping):
        return {key: _shown(one) for key, one in data.items()}
    return [_shown(one) for one in data] if isinstance(data, list) else data


def _section(section: Section) -> dict[str, Any]:
    return {"name": section.name, "title": section.title, "parts": [_part(part) for part in section.parts]}


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Cards):
        return {"kind": "cards", "cards": [_card(one) for one in part.cards]}
    if isinstance(part, Table):
        return {"kind": "table", "title": part.title, "heads": part.heads, "rows": part.rows, "folded": part.folded}
    if isinstance(part, Found):
        found = {"title": part.title, "advice": part.advice, "source": part.source, "first": part.is_first}
        return {"kind": "findings", "findings": [found]}
    if isinstance(part, Charts):
        return {"kind": "charts", "charts": part.charts}
    return {"kind": "words", "text": part.text, "soft": part.is_soft}


def _card(card: Card) -> dict[str, Any]:
    return {"title": card.title, "value": card.value, "known": card.is_known, "source": card.source}
