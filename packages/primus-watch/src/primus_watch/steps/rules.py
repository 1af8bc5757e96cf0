"""Compares each step with those before it, by median and spread: a few odd steps do not change these."""

from __future__ import annotations

import math
import os
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

__all__ = ["GRADIENT", "NONE", "Report", "Rule", "Watch", "rules", "with_factor"]

GRADIENT = "grad_norm_not_finite"
_NORMAL = 1.4826
NONE: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of odd step; `data/steps.toml` says what the numbers mean."""

    name: str
    field: str
    warm_up: int
    window: int
    least: int
    factor: float
    spreads: float
    repeats: int
    words: str


@dataclass(frozen=True, slots=True)
class Report:
    """A step that is odd."""

    event: str
    message: str
    step: int
    warns: bool
    """Whether people are to see it on the console: once for each kind."""
    figures: Mapping[str, float | str] = field(default_factory=dict)


def rules(factors: Mapping[str, float] = NONE) -> list[Rule]:
    """Those of `data/steps.toml`, with a person's own factors."""
    with open(f"{os.path.dirname(os.path.dirname(__file__))}/data/steps.toml", "rb") as file:
        found = tomllib.load(file)
    return [Rule(name=name, **with_factor(row, name, factors)) for name, row in found.items()]


def with_factor(row: Mapping[str, Any], name: str, factors: Mapping[str, float]) -> dict[str, Any]:
    """A rule's row with the factor that a person has set for it."""
    return {**row, "factor": float(factors.get(name) or row["factor"])}


class _Series:
    """The values of one rule."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.seen = rule, 0
        self.values: deque[float] = deque(maxlen=rule.window)
        self.odd: deque[int] = deque()
        self.has_warned = False

    def report(self, step: int, value: float) -> Report | None:
        """Whether the value is odd. It joins the others all the same: a new level is not odd for ever."""
        rule, self.seen = self.rule, self.seen + 1
        if self.seen <= rule.warm_up:
            return None
        usual, spread = self._usual()
        is_odd = len(self.values) >= rule.least and value > max(rule.factor * usual, usual + rule.spreads * spread)
        self.values.append(value)
        return self._odd(step, value, usual) if is_odd and usual > 0 else None

    def _usual(self) -> tuple[float, float]:
        if not self.values:
            return 0.0, 0.0
        usual = median(self.values)
        return usual, _NORMAL * median(abs(value - usual) for value in self.values)

    def _odd(self, step: int, value: float, usual: float) -> Report:
        self.odd.append(self.seen)
        while self.odd[0] <= self.seen - self.rule.window:
            self.odd.popleft()
        warns = not self.has_warned and len(self.odd) >= self.rule.repeats
        self.has_warned = self.has_warned or warns
        words = self.rule.words.format(step=step, value=value, median=usual, count=len(self.odd))
        return Report(self.rule.name, words, step, warns, {"value": value, "median": usual})


class Watch:
    """The steps of one run, in their order. A step that comes again, after a restart, begins anew."""

    def __init__(self, factors: Mapping[str, float] = NONE) -> None:
        self._rules = rules(factors)
        self._begin()

    def _begin(self) -> None:
        self._series = [_Series(rule) for rule in self._rules]
        self._step, self._had_gradient, self._has_warned = -1, False, False

    def reports(self, metrics: Mapping[str, Any]) -> Iterator[Report]:
        """What is odd about one line of `metrics.jsonl`."""
        step = metrics.get("step")
        if not isinstance(step, int):
            return
        if step <= self._step:
            self._begin()
        self._step = step
        yield from self._gradient(step, metrics)
        for series in self._series:
            value = metrics.get(series.rule.field)
            if isinstance(value, int | float) and math.isfinite(value) and (found := series.report(step, value)):
                yield found

    def _gradient(self, step: int, metrics: Mapping[str, Any]) -> Iterator[Report]:
        """A gradient norm that is null where it was a number: the file has no other word for what is not finite.

        The loss itself is watched by the run (`loss_not_finite`).
        """
        is_number = isinstance(metrics.get("grad_norm"), int | float)
        if self._had_gradient and not is_number and "grad_norm" in metrics and metrics.get("loss") is not None:
            yield Report(GRADIENT, f"the gradient norm of step {step} is not finite", step, not self._has_warned)
            self._has_warned = True
        self._had_gradient = self._had_gradient or is_number
