"""Intervals of time: their union, what two of them share, and what each event of a thread does itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Interval", "length", "own_parts", "shared", "union"]

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments, as intervals in their order that do not touch."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        elif end > begin:
            found.append((begin, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    """How long they are together; of a union."""
    return sum(end - begin for begin, end in intervals)


def shared(some: Sequence[Interval], others: Sequence[Interval]) -> float:
    """How long both are; of two unions."""
    total, here, there = 0.0, 0, 0
    while here < len(some) and there < len(others):
        begin, end = max(some[here][0], others[there][0]), min(some[here][1], others[there][1])
        total += max(end - begin, 0.0)
        if some[here][1] < others[there][1]:
            here += 1
        else:
            there += 1
    return total


def own_parts(events: Iterable[tuple[float, float, int]]) -> Iterator[tuple[float, float, int]]:
    """The events (begin, end, name) of one thread, each without those inside it: what is called, not who calls."""
    open_: list[tuple[float, int]] = []
    at = 0.0
    for begin, end, name in sorted(events, key=lambda one: (one[0], -one[1])):
        while open_ and open_[-1][0] <= begin:
            yield from _part(at, *open_[-1])
            at = max(at, open_.pop()[0])
        if open_:
            yield from _part(at, begin, open_[-1][1])
        at = max(at, begin)
        open_.append((min(end, open_[-1][0]) if open_ else end, name))
    while open_:
        yield from _part(at, *open_[-1])
        at = max(at, open_.pop()[0])


def _part(begin: float, end: float, name: int) -> Iterator[tuple[float, float, int]]:
    if end > begin:
        yield begin, end, name
