"""Records in JSON, as lines: torch elastic's error files, Primus's records of failures, the states of pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from primus_diagnose.lines.times import moment
from primus_diagnose.scan.source import Source
from primus_machine.files import plain_json
from primus_machine.files.atomic import read_regular

__all__ = ["of_file"]

_MOST = 1 << 26


def of_file(path: str, shown: str, rank: int | None = None, node: str = "") -> list[Source]:
    """The records in a JSON file; none: it holds nothing that is known here.

    Raises:
        OSError: it cannot be read.
        ValueError, RecursionError: it is damaged.
    """
    data = plain_json.loads(read_regular(path, _MOST))
    if not isinstance(data, Mapping):
        return []
    if "traceback" in data and "exit_code" in data:
        return [_of_primus(data, path, shown)]
    if "message" in data and len(data) < 4:
        return [_of_elastic(data, path, shown, rank, node)]
    items = data.get("items") if isinstance(data.get("items"), list) else [data]
    rows = [row for row in items or [] if isinstance(row, Mapping)]
    return [one for row in rows for one in _of_kubernetes(row, path, shown)]


def _of_primus(data: Mapping[str, Any], path: str, shown: str) -> Source:
    """A `logs/failures/rank_<r>.json`."""
    what = ": ".join(filter(None, (_text(data.get("type")), _text(data.get("message")))))
    text = _text(data.get("traceback")) or what
    rank = data.get("rank")
    node = _text(data.get("host"))
    return Source(
        path, shown, rank if isinstance(rank, int) and rank >= 0 else None, node, text or " ", moment(data.get("time"))
    )


def _of_elastic(data: Mapping[str, Any], path: str, shown: str, rank: int | None, node: str) -> Source:
    """A file of TORCHELASTIC_ERROR_FILE: `{"message": {"message": "Type: text", "extraInfo": {...}}}`, or a text."""
    message = data["message"]
    if not isinstance(message, Mapping):
        return Source(path, shown, rank, node, _text(message) or " ", None)
    extra = message.get("extraInfo")
    extra = extra if isinstance(extra, Mapping) else {}
    text = _text(extra.get("py_callstack")) or _text(message.get("message"))
    seconds = _text(extra.get("timestamp"))
    return Source(path, shown, rank, node, text or " ", moment(float(seconds)) if seconds.isdecimal() else None)


def _of_kubernetes(row: Mapping[str, Any], path: str, shown: str) -> Iterator[Source]:
    """A pod or an event, as `kubectl get ... -o json` gives it."""
    name = _text(_at(row, "metadata", "name"))
    if row.get("kind") == "Event":
        text = f"{_text(row.get('reason'))}: {_text(row.get('message'))}"
        yield Source(path, shown, None, _text(_at(row, "involvedObject", "name")), text, None)
    status = row.get("status")
    if row.get("kind") != "Pod" or not isinstance(status, Mapping):
        return
    if status.get("reason"):
        text = f"Pod {name}: Reason: {_text(status['reason'])}: {_text(status.get('message'))}"
        yield Source(path, shown, None, name, text, None)
    for key in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(key) if isinstance(status.get(key), list) else ():  # type: ignore[union-attr]
            yield from _of_container(one, name, path, shown)


def _of_container(data: Any, pod: str, path: str, shown: str) -> Iterator[Source]:
    for state in (_at(data, "state"), _at(data, "lastState")):
        for kind in ("terminated", "waiting"):
            found = _at(state, kind)
            if isinstance(found, Mapping) and _text(found.get("reason")) not in ("", "Completed"):
                code = f", exit code {found['exitCode']}" if "exitCode" in found else ""
                reason, message = _text(found["reason"]), _text(found.get("message"))
                text = f"Pod {pod}: container {_text(data.get('name'))}: Reason: {reason}{code}: {message}"
                yield Source(path, shown, None, pod, text, _stamp(_text(found.get("finishedAt"))))


def _at(data: Any, *keys: str) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:1000]


def _stamp(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
