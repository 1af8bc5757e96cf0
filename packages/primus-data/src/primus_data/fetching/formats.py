"""Formats of source files, by their names."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KNOWN", "Format", "of"]

_KINDS = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
}
_COMPRESSIONS = {".gz": "gz", ".zst": "zst"}
KNOWN = "parquet; jsonl, json (a JSON object in each line) and txt (a file is a row), also as .gz and .zst"


class Format(NamedTuple):
    """How a file holds its rows."""

    kind: str
    compression: str = ""


def of(path: str) -> Format | None:
    """The format of a file with this name; None: it holds no rows that can be read."""
    name = path.rpartition("/")[2].lower()
    stem, dot, suffix = name.rpartition(".")
    compression = _COMPRESSIONS.get(dot + suffix, "")
    kind = _KINDS.get("." + (stem if compression else name).rpartition(".")[2], "")
    return Format(kind, compression) if kind and not (kind == "parquet" and compression) else None
