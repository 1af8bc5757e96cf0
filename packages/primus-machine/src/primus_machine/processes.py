"""The processes below this one: who they are, what they run, and how they end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from primus_machine.variables import RUN_DIR

__all__ = [
    "ProcessTimes",
    "become_subreaper",
    "blocks_signal",
    "command_of",
    "descendants",
    "end_all",
    "end_with_parent",
    "ignored_signals",
    "leftovers",
    "parent_of",
    "ranks_of",
    "reap",
    "send",
    "signals_to_reset",
    "subreaper",
    "times_of",
]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h
_ABOUT_TO_END_S = 0.2
# Python ignores the first two for itself. A program that ignores the third cannot wait for its children.
_NEVER_INHERITED = frozenset((signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD))


def ignored_signals() -> frozenset[int]:
    """Return the signals that were ignored when this process started, as `nohup` ignores SIGHUP."""
    found = (number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN)
    return frozenset(found) - _NEVER_INHERITED


def signals_to_reset() -> frozenset[int]:
    """Return the signals of which a new program gets the default. What the parent ignores stays ignored."""
    return frozenset(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP} - ignored_signals()


def become_subreaper() -> None:
    """Orphans among this process's descendants become its children, not init's (Linux)."""
    import ctypes  # the standard library has no prctl

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """In a new process: get SIGTERM when the one that started it ends, even by SIGKILL."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def subreaper() -> Iterator[None]:
    """The same for a while. What was adopted until then stays this process's child."""
    import ctypes

    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def descendants(root: int, spared: Collection[int] = ()) -> list[int]:
    """Every living process below `root`, by the parent that /proc names; not the `spared` and what is below them."""
    if root == os.getpid() and not _has_children():  # the usual case; a big node has thousands of processes to ask
        return []
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := parent_of(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    found, queue = [], [root]
    while queue:
        below = [pid for pid in children.get(queue.pop(), []) if pid not in spared]
        found += below
        queue += below
    return found


def _has_children() -> bool:
    """Whether this process has any, dead ones included. Without, nothing is below a subreaper: orphans fall to it."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def parent_of(pid: int | str) -> int | None:
    """Return the parent of a process; None: it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # four calls; a buffer makes it ten
            state, parent = file.read(512).rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state == b"Z" else int(parent)


def blocks_signal(pid: int, number: int) -> bool:
    """Return whether a process blocks a signal, which then does not reach it."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            blocked = next((line.split()[1] for line in file if line.startswith("SigBlk:")), "0")
    except OSError:
        return False
    return bool(int(blocked, 16) >> (number - 1) & 1)


class ProcessTimes(NamedTuple):
    """When a process began, and what it has used since, in ticks of the kernel's clock."""

    began: int
    used: int
    """CPU time, that of its ended children included."""
    waits_for_disk: bool


def times_of(pid: int) -> ProcessTimes | None:
    """Return the times of a process; None: it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            state, *fields = file.read(1024).rpartition(b")")[2].split()
    except OSError:
        return None
    if state in (b"Z", b"X"):
        return None
    return ProcessTimes(int(fields[18]), sum(map(int, fields[10:14])), state == b"D")


def leftovers() -> list[int]:
    """The processes below this one that go on although what started them has ended; those about to end do so first."""
    deadline = time.monotonic() + _ABOUT_TO_END_S
    while (found := descendants(os.getpid())) and time.monotonic() < deadline:
        reap()
        time.sleep(0.01)
    return found


def ranks_of(directory: str) -> list[int]:
    """The processes on this machine that are ranks of the run in `directory`, as far as their environments show."""
    there, found = os.path.realpath(directory), []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            words = dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)
            if b"RANK" in words and os.path.realpath(os.fsdecode(words.get(RUN_DIR.encode(), b""))) == there:
                found.append(int(name))
    return found


def command_of(pid: int) -> str:
    """What a process runs, as far as one line shows it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            text = file.read(4096).decode("utf-8", "replace")
    except OSError:
        return f"process {pid}"
    text = " ".join(text.replace("\0", " ").split())
    return f"{text[:80]}{'...' if len(text) > 80 else ''} (pid {pid})"


def end_all(grace_s: float, spared: Collection[int] = ()) -> dict[int, int]:
    """End all `descendants` of this process: SIGTERM, `grace_s` seconds, SIGKILL. Their wait status, as `reap`."""
    ended: dict[int, int] = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace_s
        for pid in descendants(os.getpid(), spared):
            send(pid, number)
        while descendants(os.getpid(), spared) and time.monotonic() < deadline:
            ended |= reap()
            time.sleep(0.01)
        ended |= reap()
    return ended


def send(pid: int, number: int) -> None:
    """Send a signal to a process, which may have ended; to its group, where `pid` is negative."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def reap() -> dict[int, int]:
    """Wait status by pid of the children that have ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = status
