"""What a run of Primus left in its directory: the logs of ranks, of the launcher and the job; records of failures."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import replace

from primus_core.contracts import schedulers
from primus_core.journal import record
from primus_core.journal.record import RunRecord
from primus_core.plan.programs import FAILURES
from primus_core.runs.state import state_of
from primus_diagnose.inputs import hangs, names, records, steps
from primus_diagnose.inputs.gathered import Gathered
from primus_diagnose.lines.times import moment
from primus_diagnose.scan.source import Source
from primus_machine.files.capped_log import parts
from primus_machine.host import HostRoot

__all__ = ["add"]

_OTHER_LOGS = ("logs/launch.log", "logs/container.log", "logs/slurm.log", "nodes/*/logs/*.log", "logs/*.dmesg")
_HOOKS = "logs/hooks.log"
"""What plugins of hooks printed: where one ended the run. Else they end nothing."""


def add(found: Gathered, directory: str, host: HostRoot) -> None:
    """Add what the run in `directory` left."""
    known = record.read(directory)
    found.run, found.record, found.world_size = directory, known, known.world_size or 0
    is_alone = not os.path.isdir(f"{directory}/nodes")
    found.sources += _logs(directory, known.host if is_alone else "")
    for path in sorted(glob.glob(f"{glob.escape(directory)}/{FAILURES}/rank_*.json")):
        try:
            found.sources += _named(records.of_file(path, os.path.relpath(path, directory)), known)
        except (OSError, ValueError, RecursionError) as error:
            found.skipped.append(f"{os.path.relpath(path, directory)}: {error}")
    found.sources += (*_of_record(known), *steps.failed(directory, known.host))
    if _is_refused(known):
        path = f"{directory}/{_HOOKS}"
        found.sources += [Source(path, _HOOKS, None, known.host)] if os.path.isfile(path) else []
    found.hang = hangs.last(directory)
    found.is_running = state_of(known, directory, host) == "running"


def _named(sources: list[Source], known: RunRecord) -> list[Source]:
    """The same; where no rank failed first, the record is of what ran before ranks, and has the number of none."""
    first = known.first_failure
    before_ranks = first is not None and first.rank == -1 and len(sources) == 1
    return [replace(one, rank=None) for one in sources] if before_ranks else sources


def _logs(directory: str, host: str) -> Iterator[Source]:
    """The logs; `host`: the only node's name, where there is only one."""
    base = glob.escape(directory)
    for path in sorted(glob.glob(f"{base}/logs/rank_*.log"), key=lambda path: names.rank_of(path) or 0):
        for part in parts(path):
            yield Source(part, os.path.relpath(part, directory), names.rank_of(path), host)
    of_jobs = (scheduler.logs for scheduler in schedulers.all_of_them())
    for pattern in dict.fromkeys((*_OTHER_LOGS, *of_jobs)):
        for path in sorted(glob.glob(f"{base}/{pattern}")):
            shown = os.path.relpath(path, directory)
            if not os.path.basename(path).startswith("rank_") or "nodes/" in shown:
                is_late = path.endswith(".dmesg")
                yield Source(path, shown, names.rank_of(path), names.node_of(shown), is_late=is_late)


def _is_refused(known: RunRecord) -> bool:
    """Whether an error of Primus's own ended the run before any step did, such as a plugin that cannot be loaded."""
    first = known.first_failure
    return first is not None and first.rank < 0 and first.exit_code is None and known.exit_code in (2, 3)


def _of_record(known: RunRecord) -> Iterator[Source]:
    """What Primus saw of the run's end: a rank that was killed leaves no word of its own."""
    first = known.first_failure
    if first is None:
        if known.attempts:
            yield Source(record.FILE, record.FILE, None, "", known.attempts[-1].what or " ", None)
        return
    rank = first.rank if first.rank >= 0 else None
    node = known.host if first.node_rank == 0 else ""
    what = f"primus: error: {first.what}" if _is_refused(known) else first.what
    yield Source(record.FILE, record.FILE, rank, node, what or " ", moment(first.time))
