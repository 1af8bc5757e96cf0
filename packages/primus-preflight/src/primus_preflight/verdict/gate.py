"""Before a launch: every node ends as node 0 judges all of them, so that none starts ranks beside one that is not fit.

Node 0 leaves `<run>/preflight/judged/verdict.json`; the others wait for it. A run directory may hold what an earlier
attempt left, even one whose node 0 was killed before it judged. So node 0 calls a word that nobody has heard before and
whoever waits answers: the report of one that does not is old. A verdict counts for a node whose very report it judged.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from primus_core.errors import MachineError, PrimusError
from primus_machine.files import plain_json
from primus_machine.files.atomic import write_atomically
from primus_preflight.paths import text_of
from primus_preflight.verdict import node_report
from primus_preflight.verdict.node_report import NodeReport

__all__ = ["Verdict", "answer", "answers", "call", "earlier", "follow", "fresh", "write"]

_FILE, _CALLS = "judged/verdict.json", "judged/calls"
_LOOK_EVERY_S, _MARGIN_S = 0.2, 10.0
_BEHIND_S = 1.0
"""Node 0 has the report on its console: a scheduler, which ends all nodes where one fails, shall not cut it off."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What node 0 says of all."""

    exit_code: int
    what: str
    """Which node, and which check; empty: all are fit."""
    judged: Mapping[str, float]
    """The time of each report, by host."""

    @classmethod
    def of(cls, error: PrimusError | None, judged: Mapping[str, float]) -> Verdict:
        """What node 0 ends with; None: all are fit."""
        return cls(error.exit_code, error.what, judged) if error else cls(0, "", judged)

    @property
    def error(self) -> PrimusError:
        """The same as what the process ends with. What to do stands in the report, which node 0 shows."""
        return MachineError(self.what) if self.exit_code == MachineError.exit_code else PrimusError(self.what)


def call(folder: str) -> str:
    """Node 0 begins; the word by which its launch is known."""
    _end_calls(folder)  # of launches whose node 0 was killed
    word = secrets.token_hex(8)
    os.makedirs(os.path.join(folder, _CALLS, word))
    return word


def _end_calls(folder: str) -> None:
    shutil.rmtree(os.path.join(folder, _CALLS), ignore_errors=True)  # somebody may just answer


def answer(folder: str, host: str) -> None:
    """Whose report lies in `folder`, and who lives, says so to every node 0 that calls."""
    calls = os.path.join(folder, _CALLS)
    with suppress(OSError):  # nobody calls yet, or just ends it; the next look tells
        for word in os.listdir(calls):
            with open(os.path.join(calls, word, host), "ab"):
                pass


def answers(folder: str, word: str) -> Sequence[str]:
    """Hosts that have answered."""
    return os.listdir(os.path.join(folder, _CALLS, word))


def write(folder: str, verdict: Verdict) -> None:
    """Tell the others."""
    path = os.path.join(folder, _FILE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomically(path, json.dumps(asdict(verdict), indent=1) + "\n")
    _end_calls(folder)


def earlier(folder: str) -> Mapping[str, float]:
    """The reports that a verdict was made of already, by host."""
    found = _read(folder)
    return found.judged if found else {}


def fresh(folder: str, earlier: Mapping[str, float]) -> Sequence[str]:
    """Hosts with a report that no `earlier` verdict was made of. Of nodes that launch nothing, none stays to answer."""
    return [host for host in node_report.hosts(folder) if host not in earlier or _time(folder, host) != earlier[host]]


def follow(folder: str, own: NodeReport, wait_s: float) -> int:
    """Wait until `own` is judged.

    `wait_s`: how long node 0 waits for the reports; it may have begun so much later.

    Raises:
        PrimusError: a node is not fit (exit 1).
        MachineError: the state of a node could not be determined, or no verdict came (exit 3).
    """
    ends = time.monotonic() + 2 * wait_s + _MARGIN_S
    while not ((verdict := _read(folder)) and verdict.judged.get(own.host) == own.time):
        if time.monotonic() > ends:
            raise MachineError(
                "preflight: incomplete: node 0 did not report a verdict",
                why=f"no verdict appeared in {folder} within {2 * wait_s + _MARGIN_S:.0f} s",
                fix="check the output of node 0; all nodes must share one run directory (PRIMUS_RUN_DIR)",
            )
        answer(folder, own.host)
        time.sleep(_LOOK_EVERY_S)
    if verdict.exit_code:
        time.sleep(_BEHIND_S)
        raise verdict.error
    return 0


def _read(folder: str) -> Verdict | None:
    try:
        data = plain_json.loads(text_of(os.path.join(folder, _FILE)))
        return Verdict(int(data["exit_code"]), str(data["what"]), dict(data["judged"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _time(folder: str, host: str) -> float | None:
    try:
        found: float = plain_json.loads(text_of(os.path.join(folder, f"{host}.json")))["time"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found
