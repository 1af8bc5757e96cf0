"""The person's variables that an experiment reads as `${NAME}`: they decide the plan, as those that a run gets do."""

from __future__ import annotations

from collections.abc import Mapping

from primus_core.environment import resolve
from primus_core.plan.plan import Variable

__all__ = ["ReadVariables"]


class ReadVariables(dict[str, str]):
    """An environment that remembers what was read of it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return super().__getitem__(name)

    def variables(self) -> tuple[Variable, ...]:
        """Return what was read, but what each login has."""
        names = sorted(name for name in self.names if not resolve.belongs_to_session(name))
        return tuple(resolve.of_person(name, self.get(name, "")) for name in names)
