"""Brings the nodes of a run that hangs to one answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from primus_core.hooks.data import RunInfo
from primus_core.runs.rundir import short
from primus_machine.host import HostRoot
from primus_watch.hang import answer, place
from primus_watch.hang.folder import Folder, current, new
from primus_watch.hang.judge import Answer, judge
from primus_watch.hang.node import look
from primus_watch.hang.place import Place
from primus_watch.health.node import Health

__all__ = ["join", "open_hang"]

_WAIT_S = 15.0
"""Others look for a hang at each tick (5 s), and need some seconds for the stacks."""


def open_hang(run: RunInfo, ranks: Mapping[int, int], silent_s: float, host: HostRoot, health: Health) -> str:
    """This node's ranks hang: look at them, wait for the other nodes, judge. What to tell people; empty: another node
    tells them.
    """
    folder = current(run.directory, host.environ, silent_s) or new(run.directory, host.environ)
    _leave(folder, run, ranks, host, health)
    missing = folder.wait(run.nnodes, _WAIT_S)
    found = _judged(folder, run, missing)
    if not folder.answer(answer.to_dict(found, silent_s, time.time())):
        return ""
    return answer.render(found, short(folder.path))


def join(run: RunInfo, ranks: Mapping[int, int], host: HostRoot, health: Health) -> None:
    """Look at this node's ranks where another node has found that the run hangs."""
    folder = current(run.directory, host.environ, 0.0)
    if folder and ranks:
        _leave(folder, run, ranks, host, health)


def _leave(folder: Folder, run: RunInfo, ranks: Mapping[int, int], host: HostRoot, health: Health) -> None:
    if not folder.has(run.node_rank):
        folder.write(run.node_rank, look(host, run.node_rank, f"{run.directory}/logs", ranks, health).to_dict())


def _judged(folder: Folder, run: RunInfo, missing: list[int]) -> Answer:
    places: list[Place] = []
    facts: dict[str, tuple[str, ...]] = {}
    calls: dict[int, str] = {}
    silent = list(missing)
    for node in range(run.nnodes):
        if node in missing:
            continue
        report = folder.read(node)
        try:
            rows = report["places"] if report else None
            places += [place.from_dict(row) for row in rows or ()]
            calls |= {int(rank): str(words) for rank, words in (report or {}).get("collectives", {}).items()}
        except (TypeError, ValueError, KeyError, AttributeError):
            rows = None
        if rows is None:
            silent.append(node)
        elif report and (notes := [str(note) for note in report.get("notes") or ()]):
            facts[str(report.get("host") or node)] = tuple(notes)
    return replace(judge(places, sorted(silent), facts), collectives=calls)
