"""Before a launch: every node ends as node 0 judges all of them, so that none starts ranks beside one that is not fit.

Node 0 leaves `<run>/preflight/judged/verdict.json`; the others wait for it. A run directory may hold what an earlier
attempt left: a verdict counts for a node whose very report it judged, and a report that it judged for no other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from primus_core.errors import MachineError, PrimusError
from primus_core.files import write_atomically
from primus_preflight.verdict import node_report
from primus_preflight.verdict.node_report import NodeReport

__all__ = ["Verdict", "earlier", "follow", "fresh", "write"]

_FILE = "judged/verdict.json"
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

    @property
    def error(self) -> PrimusError:
        """The same as what the process ends with. What to do stands in the report, which node 0 shows."""
        return MachineError(self.what) if self.exit_code == MachineError.exit_code else PrimusError(self.what)


def write(folder: str, verdict: Verdict) -> None:
    """Tell the others."""
    path = os.path.join(folder, _FILE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomically(path, json.dumps(asdict(verdict), indent=1) + "\n")


def earlier(folder: str) -> Mapping[str, float]:
    """The reports that a verdict was made of already, by host."""
    found = _read(folder)
    return found.judged if found else {}


def fresh(folder: str, earlier: Mapping[str, float]) -> Sequence[str]:
    """Hosts with a report that no `earlier` verdict was made of."""
    return [host for host in node_report.hosts(folder) if host not in earlier or _time(folder, host) != earlier[host]]


def follow(folder: str, own: NodeReport, wait_s: float) -> int:
    """Wait until `own` is judged.

    `wait_s`: how long node 0 waits for the reports; it may have begun so much later.

    Raises:
        PrimusError: a node is not fit (exit 1).
        MachineError: of one nobody knows, or no verdict came (exit 3).
    """
    ends = time.monotonic() + 2 * wait_s + _MARGIN_S
    while not ((verdict := _read(folder)) and verdict.judged.get(own.host) == own.time):
        if time.monotonic() > ends:
            raise MachineError(
                "preflight: incomplete: node 0 did not say whether all nodes are fit",
                why=f"nothing of it came to {folder} in {2 * wait_s + _MARGIN_S:.0f} s",
                fix="see what node 0 prints; all nodes must see one run directory (PRIMUS_RUN_DIR)",
            )
        time.sleep(_LOOK_EVERY_S)
    if verdict.exit_code:
        time.sleep(_BEHIND_S)
        raise verdict.error
    return 0


def _read(folder: str) -> Verdict | None:
    try:
        with open(os.path.join(folder, _FILE), encoding="utf-8") as file:
            data = json.load(file)
        return Verdict(int(data["exit_code"]), str(data["what"]), dict(data["judged"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _time(folder: str, host: str) -> float | None:
    try:
        with open(os.path.join(folder, f"{host}.json"), encoding="utf-8") as file:
            found: float = json.load(file)["time"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found
