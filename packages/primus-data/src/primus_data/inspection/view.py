"""What `data inspect` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from primus_data.inspection.lengths import Bar, Lengths
from primus_data.inspection.samples import Sample
from primus_data.inspection.summary import Summary
from primus_machine.text import printable

__all__ = ["text"]

_LONGEST_TOKEN = 20
"""Characters of a token in the list of the most frequent ones."""


def text(found: Summary, width: int, *, plain: bool) -> str:
    """All of it, at most `width` columns wide. `plain`: the terminal knows ASCII only."""
    parts = [_head(found), _lengths(found.lengths, width, plain=plain), _frequencies(found, width)]
    parts += [_sample(sample, width) for sample in found.samples]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(found: Summary) -> str:
    rows = [
        ("documents", f"{found.documents:,}{_empty(found)}"),
        ("sequences", f"{found.sequences:,}"),
        ("tokens", f"{found.tokens:,}, {found.type}"),
        ("size", f"{_size(found.data_bytes)} of tokens, {_size(found.index_bytes)} of index"),
    ]
    if found.fault:
        rows.append(("fault", printable(found.fault)))
    return "\n".join([printable(found.prefix), *(f"  {name:<11}{value}" for name, value in rows)])


def _empty(found: Summary) -> str:
    lengths = found.lengths
    if not lengths.is_sample:
        return f", {lengths.empty:,} of them empty" if lengths.empty else ""
    return f", about {lengths.empty / lengths.documents:.2%} of them empty" if lengths.empty else ""


def _lengths(found: Lengths, width: int, *, plain: bool) -> str:
    if not found.documents:
        return ""
    title = "tokens in a document"
    if found.is_sample:
        title += f", estimated from a sample of {found.documents:,} (--exact counts all)"
    figures = [
        ("min", f"{found.shortest:,}"),
        ("median", f"{found.median:,}"),
        ("mean", f"{found.mean:,.1f}"),
        ("p99", f"{found.p99:,}"),
        ("max", f"{found.longest:,}"),
    ]
    line = "  ".join(f"{name} {value}" for name, value in figures)
    return "\n".join([title, f"  {line}", *_bars(found.histogram, found.documents, width, plain=plain)])


def _bars(bars: tuple[Bar, ...], documents: int, width: int, *, plain: bool) -> Iterator[str]:
    labels = [f"{bar.shortest:,} to {bar.longest:,}" if bar.longest > 1 else "1" for bar in bars]
    column = max(map(len, labels), default=0)
    room = max(width - column - 13, 1)
    most = max((bar.documents for bar in bars), default=1)
    for label, bar in zip(labels, bars, strict=True):
        drawn = ("#" if plain else "█") * -(-bar.documents * room // max(most, 1))
        yield f"  {label:>{column}}  {bar.documents / documents:>7.2%}  {drawn}".rstrip()


def _frequencies(found: Summary, width: int) -> str:
    seen = found.frequencies
    if not seen:
        return ""
    title = f"most frequent tokens{f', in a sample of {seen.tokens:,}' * seen.is_sample}; largest id {seen.largest:,}"
    rows = [f"{token}{_quoted(shown)} {often / seen.tokens:.2%}" for token, often, shown in found.top]
    return "\n".join([title, *_wrapped("   ".join(row.replace(" ", "\0") for row in rows), width)]).replace("\0", " ")


def _quoted(shown: str | None) -> str:
    if shown is None:
        return ""
    safe = printable(shown)
    return f" '{safe if len(safe) <= _LONGEST_TOKEN else safe[:_LONGEST_TOKEN] + '...'}'"


def _sample(found: Sample, width: int) -> str:
    title = f"document {found.document:,}, {found.tokens:,} tokens"
    if found.tokens > len(found.ids):
        title += f" (the first {len(found.ids):,})"
    if found.text is None:
        lines = _wrapped(" ".join(map(str, found.ids)), width)
    else:
        lines = [part for line in printable(found.text, "\n").split("\n") for part in _wrapped(line, width) or [""]]
    return "\n".join([title, *lines])


def _wrapped(line: str, width: int) -> list[str]:
    indent = "  "
    return textwrap.wrap(
        line, width, initial_indent=indent, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False
    )


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000  # type: ignore[assignment]
    raise AssertionError
