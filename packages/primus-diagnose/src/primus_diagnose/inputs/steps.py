"""The step that ended a run before any rank started: a preparation step, a hook or a patch."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from primus_core.hooks.script_output import parse_line
from primus_core.journal import events, record
from primus_core.outcome.failure import reason_in
from primus_diagnose.lines.times import moment
from primus_diagnose.scan.prefilter import DIAGNOSIS
from primus_diagnose.scan.source import Source
from primus_machine.files import plain_json
from primus_machine.files.atomic import regular

__all__ = ["failed"]

_LOG = "logs/launch.log"
_MOST = 1 << 22
"""Characters of a log that are read: a step before the ranks prints less."""


def failed(directory: str, host: str) -> Iterator[Source]:
    """Its last line, if it was the first to print one, or its exit code; nothing: ranks started, or no step failed."""
    if glob.glob(f"{glob.escape(directory)}/logs/rank_*.log"):
        return
    steps = [row for row in _events(directory) if row.get("event") == "step_ended"]
    ended = [row for row in steps if row.get("exit_code")]
    if not ended:
        return
    name, code = ended[-1].get("name"), f"exit code {ended[-1]['exit_code']}"
    first = record.read(directory).first_failure
    seen = first.what.removeprefix(f"{name}: ").removeprefix(f"{code}: ") if first else code
    seen = code if parse_line(seen, "") else seen  # `env.NAME=VALUE` is no reason
    words = _last_words(directory)
    is_of_step = seen not in (code, first and first.what)
    if is_of_step and not words.startswith(seen):  # it was killed, or took too long
        words = seen
    elif first and seen == code and (not words or parse_line(words, "")):
        words = code
    elif words and len(steps) > 1 and not is_of_step:  # it may be of another: the log has no mark between them
        words = f"{code}; the last line of the launch log, from this step or one before it: {words}"
    if words:
        text = f"primus: step '{name}' failed before any rank started: {words}"
        yield Source(_LOG, _LOG, None, host, text, moment(ended[-1].get("time")))


def _events(directory: str) -> Iterator[Mapping[str, Any]]:
    for line in _text(f"{directory}/{events.FILE}").splitlines():
        try:
            row = plain_json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _last_words(directory: str) -> str:
    """The reason, and what an error of Primus says to do. An earlier diagnosis is in the log, too."""
    lines = takewhile(lambda line: not line.startswith(DIAGNOSIS), _text(f"{directory}/{_LOG}").splitlines())
    text = "\n".join(lines)
    if not (reason := reason_in(text).strip()):
        return ""
    fix = re.match(r"\n(?:  why: .*\n)?  (fix: .+)", text.rpartition(reason)[2])
    return f"{reason}; {fix[1]}" if fix else reason


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace", opener=regular) as file:
            return file.read(_MOST)
    except OSError:
        return ""
