"""The stacks of processes that do not cooperate, by py-spy. The system may refuse it (ptrace): then there are none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from primus_machine.files import plain_json
from primus_watch.hang.stack import Frame, Thread

__all__ = ["program", "stacks", "state_of"]

_MOST_FRAMES, _MOST_THREADS = 200, 512
_WORDS = 300
_STOPPED = ("T", "t")
_EMPTY = "py-spy found no stack"
"""Seen on a busy machine; a second time, it finds one."""


def program() -> str:
    """Where py-spy is: beside this Python, or on the PATH; empty: nowhere."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy") or ""


def state_of(pid: int) -> str:
    """`S`: it sleeps, `T`: a signal stopped it; empty: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(") ")[2][:1]
    except OSError:
        return ""


def stacks(
    pids: Iterable[int], limit_s: float, *, native: bool = False
) -> tuple[dict[int, list[Thread]], dict[int, str]]:
    """The threads of each process; and of those without, why there are none.

    With `native` frames it takes long: the symbols of a framework's libraries are read each time.
    """
    wanted = sorted(set(pids))
    if not (spy := program()):
        return {}, dict.fromkeys(wanted, "py-spy is not installed")
    deadline = time.monotonic() + limit_s
    found, refused = _asked(spy, wanted, deadline, native=native)
    if again := [pid for pid, why in refused.items() if why == _EMPTY and not native]:
        more, refused_again = _asked(spy, again, deadline, native=False)
        return found | more, {pid: why for pid, why in (refused | refused_again).items() if pid not in more}
    return found, refused


def _asked(
    spy: str, pids: Iterable[int], deadline: float, *, native: bool
) -> tuple[dict[int, list[Thread]], dict[int, str]]:
    started = {pid: _start(spy, pid, native=native) for pid in pids}
    found, refused = {}, {}
    for pid, process in started.items():
        text, why = _answer(process, deadline)
        if threads := list(_threads(text, pid)):
            found[pid] = threads
        else:
            refused[pid] = why or _EMPTY
    return found, refused


def _start(spy: str, pid: int, *, native: bool) -> subprocess.Popen[bytes]:
    """py-spy stops a process while it looks at it. One that is stopped already would never let it."""
    how = "--nonblocking" if state_of(pid) in _STOPPED else "--native" if native else ""
    argv = [spy, "dump", *filter(None, [how]), "--json", "--pid", str(pid)]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _answer(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, str]:
    try:
        text, errors = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return b"", "py-spy did not answer in time"
    lines = errors.decode(errors="replace").strip().splitlines()
    return text, f"py-spy: {lines[0][:_WORDS]}" if lines and process.returncode else ""


def _threads(text: bytes, pid: int) -> Iterable[Thread]:
    for row in _rows(text):
        frames = row.get("frames")
        if isinstance(frames, list) and frames:
            own = tuple(_frame(one) for one in frames[:_MOST_FRAMES] if isinstance(one, dict))
            yield Thread(str(row.get("thread_name") or "")[:_WORDS], own, pid, row.get("os_thread_id") == pid)


def _rows(text: bytes) -> list[dict[str, Any]]:
    try:
        rows = plain_json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [row for row in rows if isinstance(row, dict)][:_MOST_THREADS] if isinstance(rows, list) else []


def _frame(row: Mapping[str, Any]) -> Frame:
    """A native frame has a module: its library. It has a line where that has debug information."""
    line, library = row.get("line"), row.get("module")
    number = line if isinstance(line, int) and line > 0 and not library else 0
    return Frame(str(library or row.get("filename") or "")[:1000], number, str(row.get("name") or "")[:_WORDS])
