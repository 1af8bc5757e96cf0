"""Which rank failed first, and how: from the records that ranks leave, and from what their launcher says."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from primus_core.contracts.launcher import Signalled
from primus_core.journal.record import FirstFailure
from primus_core.plan.programs import FAILURES
from primus_machine.errors import printed_in
from primus_machine.files import plain_json
from primus_machine.files.atomic import regular, write_atomically
from primus_machine.files.capped_log import parts

__all__ = [
    "OWN_SIGNALS",
    "Failure",
    "first_failure",
    "last_words",
    "leave_record",
    "of_process",
    "reason_in",
    "recorded",
]

_LINE = 1 << 14
"""More than a last line is long, in bytes."""
# Signals that come from outside or from the rank's own fault. SIGABRT and SIGTERM may follow another rank's end.
OWN_SIGNALS = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}


_WORDLESS = "ended with exit code {} and recorded no exception"
"""As after `os._exit`, or where native code ends the process."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One rank's end. `time` is 0 where only the exit code is known."""

    rank: int
    exit_code: int
    """As a shell gives it: 128+n for signal n."""
    what: str
    traceback: str = ""
    host: str = ""
    node_rank: int = 0
    time: float = 0.0
    is_refusal: bool = False
    """The rank refused what was asked of it: it would again."""
    is_wordless: bool = False
    """It ended with an exit code of its own, and recorded no exception."""
    is_exit: bool = False
    """It called `sys.exit` with a number, or was interrupted: so a program ends that is told to."""
    message: str = ""
    """What the exception says, without its type."""

    @property
    def is_own(self) -> bool:
        """Whether it follows from no other rank's end, as far as can be told."""
        return self.exit_code - 128 in OWN_SIGNALS or self.is_wordless

    def to_record(self) -> FirstFailure:
        """As the run's record has it."""
        return FirstFailure(self.rank, self.what, self.node_rank, self.exit_code, self.time, self.is_refusal)


def recorded(run_dir: str, others: Iterable[str]) -> list[Failure]:
    """Return what ranks have recorded in the run directory, and `others` of this node, the earliest first."""
    found = []
    paths = glob.glob(f"{glob.escape(run_dir)}/{FAILURES}/rank_*.json")
    for text in dict.fromkeys((*map(_text, paths), *others)):
        data: dict[str, Any] = plain_json.loads(text)
        what = f"{data['type']}: {data['message']}" if data["message"] else data["type"]
        known = {name: data[name] for name in ("rank", "exit_code", "traceback", "host", "node_rank", "time")}
        flags = {name: data.get(name, False) for name in ("is_refusal", "is_wordless", "is_exit")}
        found.append(Failure(**known, **flags, what=what, message=data["message"]))
    return sorted(found, key=lambda failure: failure.time)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", opener=regular) as file:
        return file.read()


def _ended_by(number: int, rank: int, host: str, node_rank: int) -> Failure:
    name = _signal_name(number)
    return Failure(rank, 128 + number, f"ended by {name}" + _hint(name), host=host, node_rank=node_rank)


def of_process(exit_code: int, host: str, node_rank: int, rank: int | None, log: str = "") -> Failure | None:
    """The failure of the node's only rank, which left no record and has no launcher to speak for it; without a `rank`,
    of the launcher itself. Native code that ends the process says why in the last line of the `log`.
    """
    if not exit_code:
        return None
    if exit_code - 128 not in set(signal.Signals):
        if rank is None:
            return None
        last = _last_line(log)
        what = last or _WORDLESS.format(exit_code)
        return Failure(rank, exit_code, what, host=host, node_rank=node_rank, is_wordless=not last)
    if rank is not None:
        return _ended_by(exit_code - 128, rank, host, node_rank)
    what = f"the launcher was ended by {_signal_name(exit_code - 128)}"
    return Failure(-1, exit_code, what, host=host, node_rank=node_rank)


def _last_line(log: str) -> str:
    try:
        log = parts(log)[-1]
        with open(log, "rb", opener=regular) as file:
            file.seek(max(os.path.getsize(log) - _LINE, 0))
            return reason_in(file.read().decode(errors="replace"))
    except OSError:
        return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal, or no signal at all
        return f"signal {number}"


def _seen(one: Signalled, here: str, node_rank: int) -> Failure:
    host = here or one.host
    if one.signal:
        return _ended_by(one.signal, one.rank, host, node_rank)
    what = _WORDLESS.format(one.exit_code)
    return Failure(one.rank, one.exit_code, what, host=host, node_rank=node_rank, is_wordless=True)


def _hint(name: str) -> str:
    return " (out of memory? see `dmesg` for the kernel's OOM killer)" if name == "SIGKILL" else ""


def leave_record(run_dir: str, failure: Failure | None) -> None:
    """For a rank that was killed, crashed or exited alone, and left none: the other nodes' ranks fail of it, maybe with
    records that are older than the moment in which its end was seen. A record of its own stands.
    """
    path = f"{run_dir}/{FAILURES}/rank_{failure.rank}.json" if failure else ""
    if failure and failure.is_own and not os.path.exists(path):
        record = {**asdict(failure), "time": time.time(), "type": failure.what, "message": "", "traceback": ""}
        with contextlib.suppress(OSError):  # on a full disk this node still says it
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomically(path, json.dumps(record, indent=1))


def first_failure(
    run_dir: str, killed: Iterable[Signalled] = (), node_rank: int = 0, here: str = "", records: Iterable[str] = ()
) -> Failure | None:
    """The failure that came first, as far as can be known; None: no rank reported one.

    A rank that was killed or crashed comes before all that raised: exceptions such as a closed connection follow
    from its end. Among exceptions the earliest counts. One that exited without an exception comes before them where the
    launcher saw its end first. `killed`: the ranks of this node that a signal ended, or that failed, as the launcher
    says. `here`: the name of this node. `records`: of ranks of this node, which could not write them into the run
    directory.
    """
    seen, found = list(killed), recorded(run_dir, records)
    known = {failure.rank for failure in found}
    silent = [_seen(one, here, node_rank) for one in seen if one.signal or one.rank not in known]
    # An exit that the launcher saw later may follow from another rank's end.
    own = [one for one in silent if one.exit_code - 128 in OWN_SIGNALS or (one.is_own and one.rank == seen[0].rank)]
    own += [one for one in found if one.is_own]
    candidates = own or found or silent
    return candidates[0] if candidates else None


def reason_in(printed: str) -> str:
    """Return the error of Primus that a program printed, without its lines `why` and `fix`; else the last line."""
    errors = printed_in(printed) or [printed.strip().rpartition("\n")[2]]
    return errors[-1].partition("\n")[0]


def last_words(log: str) -> str:
    """The last line of the file `log` that speaks of an error, or the last one; empty: it says nothing."""
    try:
        with open(log, encoding="utf-8", errors="replace", opener=regular) as file:
            lines = file.read().strip().splitlines() or [""]
    except OSError:
        return ""
    last = ([line for line in lines if "error" in line.lower()] or lines)[-1]
    return next(iter(printed_in(last)), last)
