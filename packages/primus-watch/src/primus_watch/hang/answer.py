"""What people read of a hang, and what `hang/N/answer.json` holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from primus_watch.hang.judge import Answer, Group
from primus_watch.hang.place import Place

__all__ = ["SCHEMA", "render", "to_dict"]

SCHEMA = 1
_MOST_ROWS = 8
_MOST = 300


def to_dict(answer: Answer, silent_s: float, at: float) -> dict[str, Any]:
    """As JSON has it; `primus diagnose` reads it."""
    usual = answer.usual
    return {
        "schema": SCHEMA,
        "time": at,
        "silent_s": silent_s,
        "odd": [place.to_dict() for place in answer.odd],
        "usual": usual.to_dict() if usual else None,
        "groups": [{"ranks": list(ranks), "place": place.to_dict()} for place, ranks in answer.groups],
        "silent_nodes": list(answer.silent),
        "collectives": {str(rank): words for rank, words in sorted(answer.collectives.items())},
        "facts": {node: list(lines) for node, lines in answer.facts.items()},
    }


def render(answer: Answer, folder: str) -> str:
    """Some lines for the console."""
    return "\n".join([_head(answer), *(f"  {name:<8} {_clean(text)}" for name, text in _rows(answer, folder))])


def _head(answer: Answer) -> str:
    if not answer.groups:
        return "ranks hang: none has started yet"
    if not answer.odd:
        where = "the same place" if len(answer.groups) == 1 else "places of which none has more than half of them"
        return f"ranks hang: all {sum(len(ranks) for _, ranks in answer.groups)} are at {where}"
    ranks = tuple(place.rank for place in answer.odd)
    nodes = sorted({_clean(place.node) for place in answer.odd})
    many = len(ranks) > 1
    return f"ranks hang: {_named(ranks)} on {', '.join(nodes[:4])} {'keep' if many else 'keeps'} the others waiting"


def _rows(answer: Answer, folder: str) -> Iterator[tuple[str, str]]:
    odd = {place.rank for place in answer.odd}
    yield from _listed("at", [group for group in _split(answer) if odd & set(group[1])])
    yield from _listed("others" if odd else "at", [group for group in _split(answer) if not odd & set(group[1])])
    yield from _collectives(answer)
    if answer.silent:
        yield "missing", f"{_named(answer.silent, 'node')} did not answer"
    for node, lines in answer.facts.items():
        for line in lines[:_MOST_ROWS]:
            yield "note", f"{node}: {line}"
    yield "stacks", folder


def _collectives(answer: Answer) -> Iterator[tuple[str, str]]:
    """The last one of the ranks, the fewest ranks first."""
    groups: dict[str, list[int]] = {}
    for rank, words in answer.collectives.items():
        groups.setdefault(words, []).append(rank)
    ordered = sorted(groups.items(), key=lambda group: (len(group[1]), group[1]))
    for number, (words, ranks) in enumerate(ordered[:_MOST_ROWS]):
        yield "" if number else "last", f"{_named(ranks)}: {words}"


def _split(answer: Answer) -> Iterator[Group]:
    """The groups, each either odd or not."""
    odd = {place.rank: place for place in answer.odd}
    for place, ranks in answer.groups:
        for part in (tuple(rank for rank in ranks if rank in odd), tuple(rank for rank in ranks if rank not in odd)):
            if part:
                yield odd.get(part[0], place), part


def _listed(name: str, groups: Iterable[Group]) -> Iterator[tuple[str, str]]:
    groups = list(groups)
    for number, (place, ranks) in enumerate(groups[:_MOST_ROWS]):
        yield "" if number else name, f"{_named(ranks)}: {_place(place)}"
    if len(groups) > _MOST_ROWS:
        yield "", f"{len(groups) - _MOST_ROWS} more places: answer.json"


def _place(place: Place) -> str:
    """`waits in a collective: all_reduce, at train.py:12 in main`."""
    details = [place.operation, f"at {place.code}" if place.code else ""]
    return ": ".join(filter(None, (place.words, ", ".join(filter(None, details)))))


def _named(numbers: Iterable[int], noun: str = "rank") -> str:
    """`rank 3`, `ranks 0-3, 7`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
    return f"{noun}{'s' if '-' in text or ',' in text else ''} {text}"


def _clean(text: str) -> str:
    """Text of a program as a terminal may show it."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text[:_MOST])
