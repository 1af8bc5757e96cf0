"""The logger of everything that runs after the launch: tasks, workers, hooks, preflight, and other packages.

It is a structlog logger (docs/logging.md). structlog loads with the first line: a file that only asks for a logger
costs a dry run nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

__all__ = ["STEP", "get_logger"]

STEP: ContextVar[Callable[[], int | None] | None] = ContextVar("primus_step", default=None)
"""Says the step in hand, for lines that name none. Set by the recorder of a training."""


def get_logger(**fields: Any) -> FilteringBoundLogger:
    """A logger whose lines all have these fields, besides run, node, rank, host, and step."""
    return cast("FilteringBoundLogger", _Lazy(fields))


class _Lazy:
    """Becomes a logger when it is used."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self._logger: FilteringBoundLogger | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copying and pickling ask for
            raise AttributeError(name)
        if self._logger is None:
            from primus_core.logger import processors

            self._logger = processors.bound(self._fields)
        return getattr(self._logger, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Lazy, (self._fields,)
