"""Compares the ranks of a run by the time of their own work in each step."""

from __future__ import annotations

import os
import tomllib
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from primus_watch.ranks.files import RankSteps, of_one_start
from primus_watch.steps.rules import NONE, Report, with_factor

__all__ = ["RankRule", "Ranks", "rules"]

_TWO = 2


@dataclass(frozen=True, slots=True)
class RankRule:
    """When a rank is reported; `data/ranks.toml` says what the numbers mean."""

    name: str
    warm_up: int
    window: int
    least: int
    factor: float
    share: float
    repeats: int
    words: str

    def report(self, rank: RankSteps, step: int, value: float, usual: float, count: int, *, warns: bool) -> Report:
        """What is said of a rank."""
        words = self.words.format(rank=rank.rank, host=rank.host, step=step, value=value, median=usual, count=count)
        return Report(self.name, words, step, warns, {"slow_rank": rank.rank, "value": value, "median": usual})


def rules(factors: Mapping[str, float] = NONE) -> tuple[RankRule, RankRule]:
    """Those of `data/ranks.toml`: `slow_rank` and `rank_pause`; with a person's own factors."""
    with open(f"{os.path.dirname(os.path.dirname(__file__))}/data/ranks.toml", "rb") as file:
        rows = tomllib.load(file)
    names = ("slow_rank", "rank_pause")
    slow, pause = (RankRule(name=name, **with_factor(rows[name], name, factors)) for name in names)
    return slow, pause


class Ranks:
    """The ranks of one run. The console gets one warning for each rank and kind."""

    def __init__(self, factors: Mapping[str, float] = NONE) -> None:
        self._slow, self._pause = rules(factors)
        self._begin(0.0)

    def _begin(self, started: float) -> None:
        self._started, self._first, self._last = started, 0, 0
        self._warned: set[tuple[str, int]] = set()
        self._pauses: dict[int, deque[int]] = {}

    def reports(self, ranks: Iterable[RankSteps]) -> Iterator[Report]:
        """What is odd about ranks, by what all of them have left by now."""
        found = sorted(of_one_start(ranks), key=lambda one: (one.group, one.rank))
        if found and min(one.started for one in found) > self._started:
            self._begin(min(one.started for one in found))
        seen = [self._last]
        for _, group in groupby(found, key=lambda one: one.group):
            peers = list(group)
            steps = self._common(peers)
            if len(peers) >= _TWO and steps:
                yield from self._slow_ranks(peers, steps[-self._slow.window :])
                yield from self._paused(peers, steps)
                seen.append(steps[-1])
        self._last = max(seen)

    def _common(self, peers: list[RankSteps]) -> list[int]:
        """The steps that all have, without the first of the start."""
        steps = sorted(set.intersection(*(set(one.own) for one in peers)))
        if steps and not self._first:
            self._first = steps[0] + self._slow.warm_up
        return [step for step in steps if step >= self._first]

    def _slow_ranks(self, peers: list[RankSteps], steps: list[int]) -> Iterator[Report]:
        if len(steps) < self._slow.least:
            return
        usual = [median(one.own[step] for step in steps) for one in peers]
        ordered = sorted(usual)
        for one, value in zip(peers, usual, strict=True):
            others = _others(ordered, value)
            is_new = (self._slow.name, one.rank) not in self._warned
            if is_new and value > self._slow.factor * others and self._is_steady(one, peers, steps):
                warns = self._warns(self._slow, one.rank, self._slow.repeats)
                yield self._slow.report(one, steps[0], value, others, len(steps), warns=warns)

    def _is_steady(self, one: RankSteps, peers: list[RankSteps], steps: list[int]) -> bool:
        """Whether it is slower in most of the steps."""
        limit = (1 + self._slow.factor) / 2
        rows = ((one.own[step], sorted(peer.own[step] for peer in peers)) for step in steps)
        return sum(value > limit * _others(row, value) for value, row in rows) >= self._slow.share * len(steps)

    def _paused(self, peers: list[RankSteps], steps: list[int]) -> Iterator[Report]:
        if len(steps) < self._pause.least:
            return
        usual = median(median(one.own[step] for step in steps) for one in peers)
        for step in (step for step in steps if step > self._last):
            ordered = sorted(one.own[step] for one in peers)
            for one in (one for one in peers if one.own[step] > self._pause.factor * usual):
                others = max(usual, _others(ordered, one.own[step]))
                if one.own[step] > self._pause.factor * others:
                    yield self._pause_of(one, step, others)

    def _pause_of(self, one: RankSteps, step: int, usual: float) -> Report:
        pauses = self._pauses.setdefault(one.rank, deque())
        pauses.append(step)
        while pauses[0] <= step - self._pause.window:
            pauses.popleft()
        warns = self._warns(self._pause, one.rank, len(pauses))
        return self._pause.report(one, step, one.own[step], usual, len(pauses), warns=warns)

    def _warns(self, rule: RankRule, rank: int, count: int) -> bool:
        if count < rule.repeats or (rule.name, rank) in self._warned:
            return False
        self._warned.add((rule.name, rank))
        return True


def _others(ordered: Sequence[float], value: float) -> float:
    """The median of the others, of which the ordered values are those with `value`."""
    at, rest = bisect_left(ordered, value), len(ordered) - 1
    low, high = ((middle if middle < at else middle + 1) for middle in ((rest - 1) // 2, rest // 2))
    return (ordered[low] + ordered[high]) / 2
