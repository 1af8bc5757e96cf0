"""Scans many logs in several processes; one large log in parts."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from primus_diagnose.scan.scanner import Scanner
from primus_diagnose.scan.source import Source, size_of
from primus_diagnose.scan.tally import FileResult
from primus_diagnose.signatures.signature import Signature

__all__ = ["scan_all"]

_PART = 64 << 20
_ALONE = 48 << 20
"""Less than this takes one process less time than starting others."""
_MOST_PROCESSES = 8
_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a source."""

    index: int
    source: Source
    start: int = 0
    end: int | None = None


def scan_all(signatures: Sequence[Signature], sources: Sequence[Source]) -> list[FileResult]:
    """What each of the sources holds, in their order."""
    scanner = Scanner(signatures)
    parts = [part for index, source in enumerate(sources) for part in _parts(index, source)]
    results: dict[int, FileResult] = {}
    for index, result in _scanned(scanner, parts):
        if index in results:
            results[index].join(result)
        else:
            results[index] = result
    return [results[index] for index in range(len(sources))]


def _parts(index: int, source: Source) -> Iterator[_Part]:
    size = 0 if source.is_record or source.path.endswith(".gz") else size_of(source.path)
    for start in range(0, max(size - _PART // 2, 1), _PART):
        last = start + _PART >= max(size - _PART // 2, 1)
        yield _Part(index, source, start, None if last else start + _PART)


def _scanned(scanner: Scanner, parts: Sequence[_Part]) -> Iterable[tuple[int, FileResult]]:
    size = sum(0 if part.source.is_record else size_of(part.source.path) for part in parts)
    processes = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES, len(parts))
    if processes < 2 or size < _ALONE or _has_threads():
        yield from map(partial(_scan, scanner), parts)
        return
    scanner.prefilter(frozenset())  # compiled once, before the others are made
    with multiprocessing.get_context("fork").Pool(processes, _begin, (scanner,)) as pool:
        yield from pool.imap(_scan_here, parts, chunksize=max(min(len(parts) // processes // 4, _TOGETHER), 1))
        pool.close()  # SIGTERM ends them otherwise, for which they may have inherited a handler
        pool.join()


def _has_threads() -> bool:
    """Whether this process has several threads: a fork of it could wait forever for a lock that one of them held."""
    return len(os.listdir("/proc/self/task")) > 1


def _scan(scanner: Scanner, part: _Part) -> tuple[int, FileResult]:
    return part.index, scanner.scan(part.source, part.start, part.end)


_SCANNER: list[Scanner] = []
"""Of a process of the pool: it inherits the compiled signatures, which cannot be sent."""


def _begin(scanner: Scanner) -> None:
    _SCANNER[:] = [scanner]


def _scan_here(part: _Part) -> tuple[int, FileResult]:
    return _scan(_SCANNER[0], part)
