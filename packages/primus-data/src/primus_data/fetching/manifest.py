"""What a finished fetch says of itself: `manifest.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from primus_data.fetching.request import Request
from primus_data.fetching.sources import Listing, Source

__all__ = ["SCHEMA", "of"]

SCHEMA = 1
_OF_SHARD = ("file", "rows", "bytes", "text_bytes", "sha256")


def of(
    request: Request,
    listing: Listing,
    shards: Sequence[Mapping[str, Any]],
    read: Sequence[tuple[Source, Mapping[str, Any]]],
    skipped: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest of these shards. `read`: the files that rows came from, each with what was read of it."""
    return {
        "schema": SCHEMA,
        "primus_data": version("primus-data"),
        "request": request.to_dict(),
        "dataset": listing.hub.name if listing.hub else None,
        "endpoint": listing.hub.site if listing.hub else None,
        "config": listing.config or None,
        "split": request.split,
        "revision": listing.revision or None,
        "licence": listing.licence or None,
        "columns": ["text"] if request.renamed else list(request.columns) or None,
        "rows": sum(one["rows"] for one in shards),
        "text_bytes": sum(one["text_bytes"] for one in shards),
        "skipped": skipped,
        "shards": [{name: one[name] for name in _OF_SHARD} for one in shards],
        "sources": [_source(source, one) for source, one in read],
    }


def _source(source: Source, read: Mapping[str, Any]) -> dict[str, Any]:
    """A file. The Hub's checksum was compared if all of the file was downloaded."""
    checked = bool(source.remote and source.sha256 and read["is_whole"])
    return {"path": source.path, "bytes": source.size, "sha256": source.sha256 or None, "sha256_checked": checked}
