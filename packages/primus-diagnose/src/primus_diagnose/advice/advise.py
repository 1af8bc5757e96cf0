"""The advice for a cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from primus_diagnose.advice import settings
from primus_diagnose.advice.figures import Figures
from primus_diagnose.advice.situation import RULES
from primus_diagnose.verdict import Advice, Finding
from primus_machine.host import HostRoot

__all__ = ["advise", "known"]


def known() -> set[str]:
    """The names that a signature may have among its `remedies`."""
    return {*RULES, *settings.rows()}


def advise(cause: Finding, remedies: Iterable[str], figures: Figures, host: HostRoot) -> Iterator[Advice]:
    """What to do about `cause`, as far as the run's figures say it."""
    for name in remedies:
        if name in RULES:
            yield from RULES[name](cause, figures, host)
        elif name in settings.rows():
            yield from settings.of(name, figures)
