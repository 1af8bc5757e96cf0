"""What becomes of a log line, as structlog's processors: place and step are added, secrets are masked, then it is
written twice: as JSON into the run's `logs/events.jsonl`, and as text to stderr, where the supervisor reads it.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

import structlog
from structlog.contextvars import merge_contextvars
from structlog.processors import add_log_level, format_exc_info
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from primus_core import variables
from primus_core.files import plain_json
from primus_core.host import HostRoot
from primus_core.journal.events import FILE, append, known_secrets, place
from primus_core.journal.log import STEP
from primus_core.secrets.fields import masked

__all__ = ["PROCESSORS", "bound"]

_LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error", "critical")}
_OF_JSON = frozenset({"time", "level", "event", "run", "node", "rank", "host", "message", "exception"})
"""Fields that the text leaves out, or has in a place of their own."""
_FIRST = ("time", "level", "event")


class _Console:
    """Writes each line at once: `print` could make two writes of it, and another's may come between."""

    def write(self, text: str) -> None:
        """Print `text`."""
        try:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        except OSError:  # nobody reads any more; the run goes on
            pass

    debug = info = warning = error = critical = write


def bound(fields: Mapping[str, Any]) -> FilteringBoundLogger:
    """A logger with these fields and the level that `PRIMUS_LOG_LEVEL` says."""
    level = HostRoot().environ.get(variables.LOG_LEVEL, "").lower() or "info"
    wrapper = structlog.make_filtering_bound_logger(_LEVELS.get(level, logging.INFO))
    made: FilteringBoundLogger = structlog.wrap_logger(_Console(), PROCESSORS, wrapper, dict, **fields).bind()
    if level not in _LEVELS:
        made.warning(f"{variables.LOG_LEVEL} is '{level}', which is no level: one of {', '.join(_LEVELS)}")
    return made


def _add_place(_: Any, __: str, event: EventDict) -> EventDict:
    step = STEP.get()
    if step and (number := step()) is not None:
        event.setdefault("step", number)
    return {"time": round(time.time(), 3), **place(HostRoot().environ), **event}


def _mask_secrets(_: Any, __: str, event: EventDict) -> EventDict:
    return masked(event, known_secrets(tuple(HostRoot().environ.items())))


def _write_json(_: Any, __: str, event: EventDict) -> EventDict:
    """A process that no run started has no file."""
    if directory := HostRoot().environ.get(variables.RUN_DIR):
        append(f"{directory}/{FILE}", {**{name: event[name] for name in _FIRST}, **event})
    return event


def _as_text(_: Any, __: str, event: EventDict) -> str:
    """`WARNING: loss spike step=7 loss=9.1`. A `message` is a sentence for people, in place of event and fields."""
    level = event["level"]
    prefix = "" if level == "info" else f"{level.upper()}: "
    fields = "".join(f" {key}={_value(value)}" for key, value in event.items() if key not in _OF_JSON)
    text = event["message"] if "message" in event else f"{event['event']}{fields}"
    return f"{prefix}{text}" + (f"\n{event['exception']}" if "exception" in event else "")


def _value(value: Any) -> str:
    """In quotes where a reader could not see its end."""
    is_word = isinstance(value, str) and value and value.isprintable() and not {*' "='} & {*value}
    return value if is_word else plain_json.dumps(value, ensure_ascii=False)


PROCESSORS: list[Processor] = [
    merge_contextvars,
    add_log_level,
    _add_place,
    format_exc_info,
    _mask_secrets,
    _write_json,
    _as_text,
]
"""Of every logger, which hold this very list: `primus_core.testing.capture_logs` puts another one in its place."""
