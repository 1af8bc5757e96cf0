"""A report as Markdown, also for a terminal: what strangers wrote is no markup in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from primus_page.parts import Cards, Charts, Found, Part, Section, Table
from primus_page.text import plain

__all__ = ["GENERATOR", "MARK", "as_markdown"]

GENERATOR = "primus report"
"""By this a page is known as one of ours, which may be overwritten."""
MARK = f"<!-- {GENERATOR} -->"
"""By this line a file is known as one of ours."""
_MARKUP = re.compile(r"([\\`*_\[\]<>|#~])")


def as_markdown(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The report."""
    lines = [MARK, f"# {_text(title)}", "", _text(subtitle)]
    for section in sections:
        if not all(isinstance(part, Charts) for part in section.parts):
            lines += ["", f"## {section.title}"]
            lines += [line for part in section.parts for line in ("", *_part(part))]
    return "\n".join(lines) + "\n"


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, Cards):
        yield from _table(("figure", "value"), [(one.title, one.value) for one in part.cards])
    elif isinstance(part, Table):
        title = part.title or part.folded
        yield from (f"### {_text(title)}", "") if title else ()
        yield from _table(part.heads, part.rows)
    elif isinstance(part, Found):
        yield f"**{_text(part.title)}** {_text(part.advice)} ({_text(part.source)})"
    elif not isinstance(part, Charts):
        yield _text(part.text)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    cells = [[_text(cell) for cell in row] for row in rows]
    yield tabulate(cells, headers=[_text(head) for head in heads], tablefmt="pipe", disable_numparse=True)


def _text(text: str) -> str:
    """One line, in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", " ".join(plain(text).split("\n")))
