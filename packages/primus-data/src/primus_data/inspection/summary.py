"""All that `data inspect` finds about a prefix, as data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from primus_data.indexed import layout
from primus_data.indexed.reader import Indexed
from primus_data.indexed.streams import Streams
from primus_data.inspection import frequencies, lengths, samples
from primus_data.progress import Progress
from primus_machine.errors import RequestError

__all__ = ["Summary", "Wanted", "summarize"]

_BYTES_EACH = 16
"""Of a document in the index: a bound, and an offset."""


class Wanted(NamedTuple):
    """What to look at."""

    exact: bool = False
    samples: int = 0
    documents: Sequence[int] = ()
    most_tokens: int = 128
    """Of each sample."""
    top: int = 10
    """Most frequent tokens."""
    decode: samples.Decode | None = None


class Summary(NamedTuple):
    """One prefix."""

    prefix: str
    type: str
    """Of a token, such as uint16."""
    documents: int
    sequences: int
    tokens: int
    data_bytes: int
    index_bytes: int
    fault: str
    """Why nothing can be trained on it, as far as sizes and ends tell."""
    lengths: lengths.Lengths
    frequencies: frequencies.Frequencies | None
    top: tuple[tuple[int, int, str | None], ...]
    """Most frequent tokens: id, how often it was seen, text."""
    samples: tuple[samples.Sample, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = self.lengths._asdict() | {"histogram": [bar._asdict() for bar in self.lengths.histogram]}
        seen = self.frequencies and {name: value for name, value in self.frequencies._asdict().items() if name != "top"}
        top = [{"id": token, "count": count, "text": text} for token, count, text in self.top]
        shown = [one._asdict() for one in self.samples]
        return self._asdict() | {"lengths": found, "frequencies": seen, "top": top, "samples": shown}


def summarize(prefix: str, wanted: Wanted) -> Summary:
    """Look at it.

    Raises:
        RequestError: there is no such prefix or document.
        MachineError: it cannot be read, or its index contradicts itself.
    """
    data = Indexed(prefix)
    documents = data.documents
    streams = Streams(prefix, data.layout)
    numbers = [*wanted.documents, *samples.spread(documents, wanted.samples)]
    if wrong := [number for number in wanted.documents if number >= documents]:
        last = f", numbered from 0 to {documents - 1}" * bool(documents)
        raise RequestError(
            f"there is no document {wrong[0]} in '{prefix}'", why=f"it has {documents:,} documents{last}"
        )
    name = os.path.basename(prefix)
    with Progress(f"counting documents of {name}", _BYTES_EACH * documents) as progress:
        found = lengths.measure(streams, exact=wanted.exact, advance=lambda n: progress.add(_BYTES_EACH * n, n))
    with Progress(f"counting tokens of {name}", streams.total * data.layout.width, unit="tokens") as progress:
        tokens = Streams(prefix, data.layout, lambda size: progress.add(size, size // data.layout.width))
        seen = frequencies.count(tokens, exact=wanted.exact, most=wanted.top)
    return Summary(
        prefix=prefix,
        type=data.tokens.dtype.name,
        documents=documents,
        sequences=data.layout.sequences,
        tokens=streams.total,
        data_bytes=os.path.getsize(f"{prefix}.bin"),
        index_bytes=os.path.getsize(f"{prefix}.idx"),
        fault=layout.fault(prefix),
        lengths=found,
        frequencies=seen,
        top=tuple((token, often, _text(token, wanted.decode)) for token, often in (seen.top if seen else ())),
        samples=tuple(samples.read(streams, numbers, wanted.most_tokens, wanted.decode)),
    )


def _text(token: int, decode: samples.Decode | None) -> str | None:
    """As it reads within a text: where a text begins, SentencePiece leaves out a space."""
    if not decode:
        return None
    once, twice = decode([token]), decode([token, token])
    return twice.removeprefix(once) if twice.startswith(once) else once
