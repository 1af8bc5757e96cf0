"""Verify a prefix: all checks, each in one pass, with memory that does not grow with the data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from primus_data.indexed import layout
from primus_data.indexed.layout import Layout
from primus_data.indexed.streams import Streams, pieces
from primus_data.progress import Progress
from primus_data.verification.duplicates import Duplicates
from primus_data.verification.findings import Finding, Report
from primus_data.verification.index import check_columns, check_ends
from primus_data.verification.tokens import EndOfDocument, TokenCheck, VocabularyRange
from primus_machine.errors import MachineError

__all__ = ["Wanted", "verify"]

_DAMAGING = ("index", "data")
"""With such a finding, nobody knows which tokens belong to which document."""


class Wanted(NamedTuple):
    """What to check."""

    fast: bool = False
    """Sizes and ends alone."""
    vocab_size: int | None = None
    eod: int | None = None
    duplicates: bool = True
    allowed_duplicates: float = 0.0
    memory: int = 1 << 30
    """Bytes for the hashes of documents."""


def verify(prefix: str, wanted: Wanted) -> Report:
    """Check it.

    Raises:
        MachineError: it cannot be read.
    """
    try:
        with open(f"{prefix}.bin", "rb", opener=layout.regular):
            found = layout.read(prefix)
        if isinstance(found, str):
            return Report(prefix, (), ("everything behind the head of the index",), (Finding("index", found),))
        return _verify(prefix, found, wanted)
    except OSError as error:
        raise MachineError(f"'{error.filename or prefix}' cannot be read", why=str(error.strerror)) from None


def _verify(prefix: str, head: Layout, wanted: Wanted) -> Report:
    findings = [*check_ends(prefix, head)]
    total = 0 if wanted.fast else os.path.getsize(f"{prefix}.idx") + os.path.getsize(f"{prefix}.bin")
    with Progress(f"verifying {os.path.basename(prefix)}", total) as progress:
        streams = Streams(prefix, head, lambda size: progress.add(size, 0))
        if not wanted.fast:
            findings += check_columns(streams)
        is_whole = not any(one.check in _DAMAGING for one in findings)
        checks = [] if wanted.fast or not is_whole else _token_checks(streams, wanted)
        if checks:
            _read(streams, checks, progress)
        for check in checks:
            findings += check.findings()
    checked, unchecked = _scope(head, wanted, checks, is_whole=is_whole)
    largest = next((one.largest for one in checks if isinstance(one, VocabularyRange)), None)
    counts = max(head.bounds - 1, 0), head.sequences, streams.total
    return Report(prefix, checked, unchecked, tuple(findings), *counts, largest)


def _token_checks(streams: Streams, wanted: Wanted) -> list[TokenCheck]:
    found: list[TokenCheck] = []
    if not _is_float(streams.layout):
        found.append(VocabularyRange(wanted.vocab_size))
        if wanted.eod is not None:
            found.append(EndOfDocument(wanted.eod))
    if wanted.duplicates:
        found.append(Duplicates(wanted.memory, wanted.allowed_duplicates))
    return found


def _read(streams: Streams, checks: list[TokenCheck], progress: Progress) -> None:
    for piece in pieces(streams.prefix, streams.tokens(), streams.token_ends()):
        for check in checks:
            check.see(piece)
        progress.add(0, len(piece.ends) - (not piece.is_closed))


def _is_float(head: Layout) -> bool:
    return "f" in head.type


def _scope(
    head: Layout, wanted: Wanted, checks: list[TokenCheck], *, is_whole: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was checked, and what was not, and why."""
    checked, unchecked = ["sizes of both files, first and last numbers of the index"], list[str]()
    if wanted.fast:
        return tuple(checked), ("what lies between the ends of the index, tokens, duplicates: --fast",)
    checked.append("every length, offset and document bound of the index")
    if not is_whole:
        return tuple(checked), ("tokens and duplicates: the index does not fit the data",)
    for name, done, why in _token_scope(head, wanted, checks):
        (unchecked if why else checked).append(f"{name}: {why}" if why else done)
    return tuple(checked), tuple(unchecked)


def _token_scope(head: Layout, wanted: Wanted, checks: list[TokenCheck]) -> Iterator[tuple[str, str, str]]:
    """Each check of the tokens: its name, what it did, and why it was not done."""
    floats = f"they are numbers of type {head.type[1:]}, no ids" if _is_float(head) else ""
    lacks = "" if wanted.vocab_size is not None else "add --vocab-size or --tokenizer-model"
    yield "tokens against a vocabulary", f"every token: from 0 to {(wanted.vocab_size or 0) - 1:,}", floats or lacks
    lacks = "" if wanted.eod is not None else "add --eod, or the --tokenizer-model of one that has it"
    yield "ends of documents", f"last token of each document that is not empty: {wanted.eod}", floats or lacks
    share = next((one.share for one in checks if isinstance(one, Duplicates)), 1)
    some = f"among one in {share:,} documents, by hash; the count is an estimate (more --memory: more documents)"
    every = "among all documents that are not empty, by a 64-bit hash of their tokens"
    yield "duplicates", f"duplicates {some if share > 1 else every}", "" if wanted.duplicates else "--skip-duplicates"
