"""Who keeps the others waiting: the ranks that are elsewhere than the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from primus_watch.hang.place import ENDED, STOPPED, UNKNOWN, Place

__all__ = ["Answer", "Group", "judge"]


NOTHING: Mapping[str, tuple[str, ...]] = {}
Group = tuple[Place, tuple[int, ...]]
"""One rank's place, and all ranks that are there."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a hang looks like over all nodes."""

    odd: tuple[Place, ...]
    """The ranks that keep the others waiting; empty: all are alike, or no place has more than half of them."""
    groups: tuple[Group, ...]
    """Where ranks are, the place of the most first."""
    silent: tuple[int, ...] = ()
    """Nodes that did not answer."""
    facts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What nodes found wrong with GPUs and the network, by node."""
    collectives: Mapping[int, str] = field(default_factory=dict)
    """The last one of each rank, as far as its flight recorder tells."""

    @property
    def usual(self) -> Place | None:
        """Where most of the others are."""
        odd = {place.rank for place in self.odd}
        return next((place for place, ranks in self.groups if not odd & set(ranks)), None)


def judge(
    places: Sequence[Place], silent: Sequence[int] = (), facts: Mapping[str, tuple[str, ...]] = NOTHING
) -> Answer:
    """Compare all ranks."""
    groups = _groups(places)
    seen = [place for place in places if place.kind != UNKNOWN]
    for candidates in (_not_running(seen), _not_waiting(seen), _few(groups, seen)):
        if candidates and len(candidates) < len(seen):
            return Answer(tuple(candidates), groups, tuple(silent), facts)
    return Answer((), groups, tuple(silent), facts)


def _key(place: Place) -> tuple[str, str]:
    return place.kind, place.code or place.operation


def _groups(places: Sequence[Place]) -> tuple[Group, ...]:
    found: dict[tuple[str, str], list[Place]] = {}
    for place in sorted(places, key=lambda place: place.rank):
        found.setdefault(_key(place), []).append(place)
    ordered = sorted(found.values(), key=lambda group: (-len(group), group[0].rank))
    return tuple((group[0], tuple(place.rank for place in group)) for group in ordered)


def _not_running(places: Sequence[Place]) -> list[Place]:
    return [place for place in places if place.kind in (STOPPED, ENDED)]


def _not_waiting(places: Sequence[Place]) -> list[Place]:
    """Some wait for others; these do not."""
    return [place for place in places if not place.waits]


def _few(groups: Sequence[Group], places: Sequence[Place]) -> list[Place]:
    """Those outside the largest group, where that is more than half."""
    usual = groups[0][1] if groups else ()
    return [place for place in places if place.rank not in usual] if 2 * len(usual) > len(places) else []
