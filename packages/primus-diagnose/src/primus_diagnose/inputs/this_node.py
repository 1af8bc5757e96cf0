"""What this machine knows of a run that ended here: kills for memory, and the kernel's log."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator

from primus_core.journal.record import RunRecord
from primus_diagnose.scan.source import Source
from primus_machine.host import HostRoot, number

__all__ = ["evidence", "kernel_log"]

_KMSG = "/dev/kmsg"
_RECORD = 8192
_MOST_RECORDS = 200_000
_GROUPS = "/sys/fs/cgroup"
_SLACK_S = 1.0
_KILLED = 137
_FOR_MEMORY = re.compile(r"\boom\b|oom_|oom-|out of memory", re.I)


def evidence(host: HostRoot, known: RunRecord) -> Iterator[Source]:
    """What happened here during the run with that record, which has just ended."""
    if _was_killed(known) and known.host == host.hostname():
        yield from _kills(host)
    yield from kernel_log(host, known)


def kernel_log(host: HostRoot, known: RunRecord) -> Iterator[Source]:
    """What the kernel said here during the run with that record. What killed others is not what failed here."""
    if not host.is_here or known.host != host.hostname() or known.started is None:
        return
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    began, ended = known.started - _SLACK_S, (known.ended or math.inf) + _SLACK_S
    lines = [text for seconds, text in _records() if began <= booted + seconds <= ended]
    if lines := [line for line in lines if _was_killed(known) or not _FOR_MEMORY.search(line)]:
        yield Source(_KMSG, _KMSG, None, host.hostname(), "\n".join(lines), None)


def _was_killed(known: RunRecord) -> bool:
    return _KILLED in (known.exit_code, known.first_failure.exit_code if known.first_failure else None)


def _kills(host: HostRoot) -> Iterator[Source]:
    """Of the control groups that this process is in, the innermost in which the kernel killed for memory."""
    for group in _groups(host):
        events = dict(line.split() for line in (host.text(f"{group}/memory.events") or "").splitlines() if " " in line)
        limit = number(host.text(f"{group}/memory.max")) or number(host.text(f"{group}/memory.limit_in_bytes"))
        control = dict(line.split() for line in (host.text(f"{group}/memory.oom_control") or "").splitlines())
        count = number(events.get("oom_kill") or control.get("oom_kill"))
        if count and 0 < limit < 1 << 50:
            size = f"{limit / 2**20:,.1f} MiB"
            text = f"the memory limit of {size} was reached: the kernel killed {count} process{'es' * (count > 1)}"
            yield Source(group, group, None, host.hostname(), text, None)
            return


def _groups(host: HostRoot) -> Iterator[str]:
    """The folders of them, innermost first; in a container, its own is the root of what it sees."""
    for line in (host.text("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        base = f"{_GROUPS}/memory" if controllers else _GROUPS
        while path.strip("/"):
            yield f"{base}{path}"
            path = os.path.dirname(path)
        yield base


def _records() -> Iterator[tuple[float, str]]:
    """What the kernel still has, with seconds since it started. Reading it takes nothing away from others."""
    try:
        descriptor = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(_MOST_RECORDS):
            yield _parsed(os.read(descriptor, _RECORD))
    except OSError:  # that was the last, or one was overwritten meanwhile
        return
    finally:
        os.close(descriptor)


def _parsed(record: bytes) -> tuple[float, str]:
    """`6,1234,5678901,-;text`: priority, number, microseconds."""
    head, _, text = record.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    return number(fields[2] if len(fields) > 2 else "") / 1e6, text.partition("\n")[0]
