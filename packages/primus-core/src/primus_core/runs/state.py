"""Whether a folder is a run, and how it stands: by its record, its lease and its process, whole or not."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from primus_core.journal import record
from primus_core.journal.record import RunRecord
from primus_core.runs.names import parse_name
from primus_core.runs.snapshot_form import MANIFEST
from primus_machine.files import lease

if TYPE_CHECKING:
    from primus_machine.host import HostRoot

__all__ = ["ENDED", "GOING", "STATES", "is_alive", "is_run", "process_here", "state", "state_of"]

STATES = (
    *("completed", "failed", "interrupted", "stopped", "skipped", "running", "pending", "lost", "incomplete"),
    *("started", "submitted", "unwatched", "unknown"),
)
"""How a run may stand. `state` says neither `pending`, nor what became of a run that was submitted or is of another
host: who asks the scheduler, too, knows it (`status.status_of`)."""

GOING = ("running", "started", "pending", "submitted")
"""Of them, those of runs that go on or will, as far as one can tell."""

ENDED = ("completed", "failed", "interrupted", "stopped", "skipped")
"""How it may have ended: by itself, by a signal, by a hook, and before it began, as a script wished."""
_CLOCK_SLACK_S = 60
"""A process seems to have started so much after its run only if it is another one, whatever clocks were set."""


def is_run(directory: str) -> bool:
    """Whether a folder is a run's, by its name or by what it holds."""
    if not os.path.isdir(directory):
        return False
    named = parse_name(os.path.basename(os.path.abspath(directory)))
    return bool(named) or any(os.path.exists(f"{directory}/{name}") for name in (record.FILE, MANIFEST))


def state(directory: str, host: HostRoot) -> str:
    """How a run stands, one of `STATES`, as seen from `host`."""
    return state_of(record.read(directory), directory, host)


def state_of(known: RunRecord, directory: str, host: HostRoot) -> str:
    """The same, for a run whose record is at hand.

    A run that says how it ended is believed, also where an earlier Primus made no snapshot of it.
    """
    status = known.status
    if status in (*ENDED, "submitted", "unwatched"):
        return status
    held = lease.look(directory, host) if status in ("preparing", "started") else None
    here = known.host == host.hostname()
    if held.alive if held else here and status in ("preparing", "started") and is_alive(known, host):
        return "running" if held is None or held.is_certain else "started"
    if not os.path.exists(f"{directory}/{MANIFEST}"):
        return "incomplete" if status in ("preparing", "started", "") else "unknown"
    if status not in ("preparing", "started"):
        return "unknown"
    return "lost" if here or held else "started"


def process_here(directory: str, host: HostRoot) -> int:
    """The number of the process that certainly is the run's, where it can be seen and signalled; 0: there is none.

    What `metadata.json` says is no proof: numbers come again, after a reboot and in each namespace.
    """
    held = lease.look(directory, host)
    return held.owner["pid"] if held and held.proves(directory, host) else 0


def is_alive(known: RunRecord, host: HostRoot) -> bool:
    """Whether the run's own process is there: a later one may have got its number."""
    text = (host.text(f"/proc/{known.pid}/stat") or "") if known.pid is not None else ""
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":
        return False
    if known.started is None:
        return True
    # By the clock that the kernel itself counts process starts with: containers fake /proc/uptime.
    booted = host.now() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK") <= known.started + _CLOCK_SLACK_S
