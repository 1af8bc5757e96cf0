"""Writes HTML and SVG, which is XML, by hand: every text and every attribute is escaped here and nowhere else."""

from __future__ import annotations

import html

__all__ = ["TEXT_COLOURS", "page", "tag", "text"]

_EMPTY = frozenset({"meta", "br"})
TEXT_COLOURS = "body,svg{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif}"


def text(content: object) -> str:
    """What was said, safe between tags. Characters that no XML may hold become a mark."""
    kept = "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in str(content))
    return html.escape(kept)


def tag(name: str, /, *inside: str, **attributes: object) -> str:
    """An element around markup. `class_` and `for_` stand for Python's words, `data_from` for `data-from`."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items())
    if not inside:
        return f"<{name}{written}>" if name in _EMPTY else f"<{name}{written}/>"
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def page(title: str, style: str, *body: str) -> str:
    """A page that needs nothing else: no script, no link, and no request to anybody."""
    policy = tag("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'")
    head = (
        tag("meta", charset="utf-8"),
        policy,
        tag("meta", name="viewport", content="width=device-width"),
        tag("title", text(title)),
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"
