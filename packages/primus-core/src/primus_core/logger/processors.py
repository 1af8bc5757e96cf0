"""What becomes of a log line, as structlog's processors: place and step are added, secrets are masked, then it is
written twice: as JSON into the run's `logs/events.jsonl`, and as text to stderr, where the supervisor reads it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import structlog
from structlog.contextvars import merge_contextvars
from structlog.processors import StackInfoRenderer, add_log_level, format_exc_info
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from primus_core import variables
from primus_core.journal.events import FILE, append, known_secrets, place
from primus_core.logger.logger import STEP
from primus_core.output.console import write
from primus_machine.files import plain_json
from primus_machine.host import HostRoot
from primus_machine.secrets.fields import as_text, masked
from primus_machine.variables import RUN_DIR

__all__ = ["PROCESSORS", "bound"]

_LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error", "critical")}
RESERVED = frozenset({"time", "level", "run", "node", "rank", "host"})
"""Fields that say when and where a line was logged. A field of the caller with such a name gets a `_`."""
_OF_CALL = ("event", "self", "method_name")  # of structlog's own methods
_OF_JSON = frozenset({*RESERVED, "event", "message", "exception", "stack"})
"""Fields that the text leaves out, or has in a place of their own."""
_FIRST = ("time", "level", "event")
_METHODS = (*_LEVELS, "exception", "fatal", "warn", "msg")


class _Console:
    """Writes each line at once: `print` could make two writes of it, and another's may come between."""

    def write(self, text: str) -> None:
        """Print `text`."""
        write(f"{text}\n")

    debug = info = warning = error = critical = write


def bound(fields: Mapping[str, Any]) -> FilteringBoundLogger:
    """A logger with these fields and the level that `PRIMUS_LOG_LEVEL` says."""
    level = HostRoot().environ.get(variables.LOG_LEVEL, "").lower() or "info"
    base = structlog.make_filtering_bound_logger(_LEVELS.get(level, logging.INFO))
    methods: dict[str, Any] = {name: _without_raising(getattr(base, name)) for name in _METHODS}
    methods["log"] = _log
    methods |= {f"a{name}": _awaited(method) for name, method in methods.items()}
    methods["__reduce__"] = lambda self: (bound, (structlog.get_context(self),))
    made = cast("FilteringBoundLogger", type("Logger", (base,), methods)(_Console(), PROCESSORS, dict(fields)))
    if level not in _LEVELS:
        made.warning(f"{variables.LOG_LEVEL} is '{level}', which is not a log level; known: {', '.join(_LEVELS)}")
    return made


def _without_raising(method: Callable[..., Any]) -> Callable[..., None]:
    """The method of a level, which logs whatever it is given: a wrong log line must not end a training."""

    def say(self: Any, /, *args: Any, **fields: Any) -> None:
        first, *others = args or (fields.pop("event", ""),)
        text = as_text(first)
        named = {f"{name}_" if name in _OF_CALL else name: value for name, value in fields.items()}
        try:
            method(self, text, *others, **named)
        except Exception as error:  # of a format, or of an object that is logged
            with suppress(Exception):
                method(self, text, log_error=f"{type(error).__name__}: {as_text(error)}")

    return say


def _awaited(method: Callable[..., None]) -> Callable[..., Any]:
    async def say(self: Any, /, *args: Any, **fields: Any) -> None:
        method(self, *args, **fields)

    return say


def _log(self: Any, /, level: Any = logging.INFO, *args: Any, **fields: Any) -> None:
    """A level between two, such as 25, is the lower one."""
    number = _LEVELS.get(level.lower()) if isinstance(level, str) else level
    known = [name for name, least in _LEVELS.items() if isinstance(number, int) and least <= number]
    getattr(self, (known or ["debug" if isinstance(number, int) else "info"])[-1])(*args, **fields)


def _rename(_: Any, __: str, event: EventDict) -> EventDict:
    """Primus's fields are Primus's: a `rank` of the caller's is `rank_`."""
    for name in sorted(RESERVED & event.keys()):
        value, free = event.pop(name), f"{name}_"
        event[f"{free}_" if free in event else free] = value
    return event


def _add_place(_: Any, __: str, event: EventDict) -> EventDict:
    step = STEP.get()
    if step and (number := step()) is not None:
        event.setdefault("step", number)
    return {"time": round(time.time(), 3), **place(HostRoot().environ), **event}


def _mask_secrets(_: Any, __: str, event: EventDict) -> EventDict:
    return masked(event, known_secrets(tuple(HostRoot().environ.items())))


def _write_json(_: Any, __: str, event: EventDict) -> EventDict:
    """A process that no run started has no file."""
    if directory := HostRoot().environ.get(RUN_DIR):
        append(f"{directory}/{FILE}", {**{name: event[name] for name in _FIRST}, **event})
    return event


def _as_text(_: Any, __: str, event: EventDict) -> str:
    """`WARNING: loss spike step=7 loss=9.1`. A `message` is a sentence for people, in place of event and fields."""
    level = event["level"]
    prefix = "" if level == "info" else f"{level.upper()}: "
    fields = "".join(f" {key}={_value(value)}" for key, value in event.items() if key not in _OF_JSON)
    text = event["message"] if "message" in event else f"{event['event']}{fields}"
    return "\n".join([f"{prefix}{text}", *(str(event[name]) for name in ("stack", "exception") if name in event)])


def _value(value: Any) -> str:
    """In quotes where a reader could not see its end."""
    is_word = isinstance(value, str) and value and value.isprintable() and not {*' "='} & {*value}
    return value if is_word else plain_json.dumps(value, ensure_ascii=False)


PROCESSORS: list[Processor] = [
    merge_contextvars,
    _rename,
    add_log_level,
    _add_place,
    StackInfoRenderer(["primus_core.logger"]),
    format_exc_info,
    _mask_secrets,
    _write_json,
    _as_text,
]
"""Of every logger, which hold this very list: `primus_core.testing.capture_logs` puts another one in its place."""
