"""Settings that a framework refuses one beside the other, as rows: it would say so on every node, after the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from primus_train.kit.settings import Settings

__all__ = ["Contradiction", "refuse"]

S = TypeVar("S", bound=Settings)
L = TypeVar("L")


class Contradiction(NamedTuple, Generic[S, L]):
    """One pair of settings; `{name}` in its sentences is that setting's value."""

    name: str
    """The setting that the error points to."""
    holds: Callable[[S, L], object]
    """By the settings, and by the layout of the ranks."""
    why: str
    fix: str


def refuse(settings: S, layout: L, rows: Iterable[Contradiction[S, L]]) -> None:
    """Look for each of them; those that are there go to the settings' mistakes, with place, why, and what to do."""
    for name, holds, why, fix in rows:
        with settings.mistakes:
            if holds(settings, layout):
                values = _Values(settings)
                what, said = f"'{name}' is {settings[name]!r}", why.format_map(values)
                raise settings.error(name, what, why=said, fix=fix.format_map(values), beside=values.named)


class _Values(dict[str, object]):
    """Settings by name, for sentences, and which of them these name."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.named = settings, list[str]()

    def __missing__(self, name: str) -> object:
        self.named.append(name)
        return self.settings[name]
