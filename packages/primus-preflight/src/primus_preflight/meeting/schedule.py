"""Who talks to whom, and when: each node to one other at a time, and to each other node once (the circle method).

Nodes stand in a circle and one beside it; in each round they turn by one place, and opposite ones are partners.
https://en.wikipedia.org/wiki/Round-robin_tournament#Circle_method
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MOST_ROUNDS", "partner", "rounds"]

MOST_ROUNDS = 8
"""Of more nodes each talks to so many, chosen by the schedule: enough to tell a bad node from a bad partner."""


def _circle(nodes: int) -> int:
    """How many stand in the circle; with an odd number of nodes nobody beside it: opposite to oneself is a rest."""
    return nodes - 1 if nodes % 2 == 0 else nodes


def rounds(nodes: int, most: int = MOST_ROUNDS) -> Sequence[int]:
    """The rounds that are played: all, or `most` of them, evenly spread."""
    every = _circle(nodes) if nodes > 1 else 0
    return range(every) if every <= most else tuple(number * every // most for number in range(most))


def partner(rank: int, number: int, nodes: int) -> int | None:
    """With whom `rank` talks in round `number`; None: it rests."""
    circle = _circle(nodes)
    if rank == circle:  # beside the circle
        return number % circle
    opposite = (2 * number - rank) % circle
    if opposite != rank:
        return opposite
    return circle if circle < nodes else None
