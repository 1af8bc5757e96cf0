"""The bottleneck of a run: rules as data (`data/bottlenecks.toml`: bound, advice, source), applied to its figures."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Finding", "Rule", "apply", "rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A bound for a figure, and what to do beyond it."""

    figure: str
    title: str
    advice: str
    source: str
    above: float | None = None
    below: float | None = None

    def is_met(self, value: float) -> bool:
        """Whether the figure is beyond the bound."""
        return (self.above is not None and value > self.above) or (self.below is not None and value < self.below)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a run meets."""

    title: str
    figure: str
    value: float
    bound: float
    advice: str
    source: str
    is_bottleneck: bool = False


@cache
def rules() -> tuple[Rule, ...]:
    """All of them."""
    text = (Path(__file__).parent.parent / "data" / "bottlenecks.toml").read_text(encoding="utf-8")
    return tuple(Rule(**row) for row in tomllib.loads(text)["rule"])


def apply(values: Mapping[str, float | None], known: Iterable[Rule] | None = None) -> tuple[Finding, ...]:
    """The findings, the bottleneck first: the rule that has the greatest part of the time. A figure that is not
    known meets no rule.
    """
    met = [(rule, value) for rule in known or rules() if (value := values.get(rule.figure)) is not None]
    parts = [(rule, value) for rule, value in met if rule.above is not None and rule.is_met(value)]
    parts.sort(key=lambda one: one[1], reverse=True)
    low = [(rule, value) for rule, value in met if rule.below is not None and rule.is_met(value)]
    return tuple(_finding(rule, value, is_bottleneck=index == 0) for index, (rule, value) in enumerate([*parts, *low]))


def _finding(rule: Rule, value: float, *, is_bottleneck: bool) -> Finding:
    bound = rule.above if rule.above is not None else rule.below
    return Finding(rule.title, rule.figure, value, bound or 0.0, rule.advice, rule.source, is_bottleneck)
