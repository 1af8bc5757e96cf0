"""What checks that measure have in common: only the machine that runs them can be measured, and none twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Generic, TypeVar

from primus_preflight.checks.check import Ask, Node
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule

__all__ = ["NOT_HERE", "Once", "needs_this_machine"]

T = TypeVar("T")

NOT_HERE = "a captured machine cannot be measured"


def needs_this_machine(ask: Ask) -> Ask:
    """A check that asks the running kernel or measures, and so has nothing to look at on a captured machine."""

    @wraps(ask)
    def asked(node: Node, rule: Rule) -> Iterator[Finding]:
        if node.host.is_here:
            yield from ask(node, rule)
        else:
            yield rule.skip(NOT_HERE)

    return asked


class Once(Generic[T]):
    """A measurement that several checks look at: the first of them takes it."""

    def __init__(self, measure: Callable[[Node], T]) -> None:
        self._measure = measure
        self._found: list[tuple[Node, T]] = []

    def of(self, node: Node) -> T:
        """What was measured on this node."""
        for known, found in self._found:
            if known is node:
                return found
        self._found.append((node, self._measure(node)))
        return self._found[-1][1]
