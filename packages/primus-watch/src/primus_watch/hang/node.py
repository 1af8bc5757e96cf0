"""What one node sees of its ranks while they hang: their processes and their stacks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from primus_machine.host import HostRoot
from primus_machine.processes import descendants
from primus_watch.hang import collectives, place, printed, spy
from primus_watch.hang.place import Place
from primus_watch.hang.stack import Thread
from primus_watch.health.node import Health

__all__ = ["NodeReport", "look"]

_PYTHON_S, _NATIVE_S = 6.0, 8.0
_MOST_CHILDREN, _MOST_THREADS, _MOST_NATIVE = 8, 64, 8


@dataclass(frozen=True, slots=True)
class _Seen:
    """One rank."""

    rank: int
    pid: int
    state: str
    threads: tuple[Thread, ...]
    source: str

    def place(self, node: str) -> Place:
        source = self.source or "py-spy"
        return place.of(self.rank, node, self.pid, self.state, self.threads, source if self.threads else "")

    def with_native(self, threads: Sequence[Thread]) -> _Seen:
        """The same with these threads of the rank's own process."""
        return replace(self, threads=(*threads, *(thread for thread in self.threads if thread.pid != self.pid)))


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node's answer."""

    node: int
    host: str
    places: tuple[Place, ...]
    stacks: Mapping[str, Sequence[Mapping[str, Any]]]
    """The threads of each rank and of its children, for people: many a megabyte."""
    notes: tuple[str, ...] = ()
    """Why stacks are missing, and what is wrong with this node's GPUs and network."""
    collectives: Mapping[int, str] = field(default_factory=dict)
    """The last one of each rank, as far as its flight recorder tells."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "places": [one.to_dict() for one in self.places]}


def look(host: HostRoot, node: int, log_dir: str, ranks: Mapping[int, int], health: Health) -> NodeReport:
    """Look at the ranks of this node, of which `ranks` has the processes. Takes some seconds."""
    own = {rank: pid for rank, pid in ranks.items() if _is_own(pid)}
    states = {rank: spy.state_of(pid) for rank, pid in own.items()}  # before a debugger stops them
    children = {rank: list(_programs(host, pid)) for rank, pid in own.items()}
    found, refused = spy.stacks([*own.values(), *(pid for pids in children.values() for pid in pids)], _PYTHON_S)
    seen = {}
    for rank, pid in ranks.items():
        threads = [thread for one in (pid, *children.get(rank, ())) for thread in found.get(one, ())]
        printed_by_it = [] if pid in found else printed.threads(f"{log_dir}/rank_{rank}.log", pid)
        seen[rank] = _Seen(
            rank, pid, states.get(rank, ""), (*printed_by_it, *threads), "" if pid in found else "faulthandler"
        )
    places, native = _refined(host.hostname(), list(seen.values()), set(found))
    stacks = {
        str(rank): [_shown(thread) for thread in native.get(rank, one.threads)[:_MOST_THREADS]]
        for rank, one in seen.items()
    }
    notes = (*health.wrong(list(ranks)), *sorted({why for pid, why in refused.items() if pid in own.values()}))
    return NodeReport(node, host.hostname(), places, stacks, notes, collectives.last(host, own))


def _refined(
    name: str, seen: Sequence[_Seen], spied: set[int]
) -> tuple[tuple[Place, ...], dict[int, tuple[Thread, ...]]]:
    """Where ranks are, native frames considered; and the threads with those of the ranks that were asked for them.

    They take long: of the ranks at one line of Python, one is asked for all. Where all are at one, several are.
    """
    groups: dict[tuple[str, str], list[_Seen]] = {}
    for one in seen:
        at = one.place(name)
        groups.setdefault((at.kind, at.code), []).append(one)
    are_split = len(groups) > 1
    asked = [one for group in groups.values() for one in (group[:1] if are_split else group) if one.pid in spied]
    found, _ = spy.stacks([one.pid for one in asked[:_MOST_NATIVE]], _NATIVE_S, native=True)
    places, native = [], {}
    for group in groups.values():
        new = {one.rank: one.with_native(found[one.pid]) for one in group if one.pid in found}
        native.update({rank: one.threads for rank, one in new.items()})
        first = new.get(group[0].rank, group[0]).place(name)
        places += [
            replace(first, rank=one.rank, pid=one.pid) if are_split else new.get(one.rank, one).place(name)
            for one in group
        ]
    return tuple(sorted(places, key=lambda place: place.rank)), native


def _is_own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def _programs(host: HostRoot, pid: int) -> Iterator[int]:
    """Its children that are Python: the workers of a data loader."""
    found = (child for child in descendants(pid) if _is_own(child))
    python = (
        child
        for child in found
        if "libpython" in (maps := host.text(f"/proc/{child}/maps", 1 << 20) or "") or "/python" in maps
    )
    yield from list(python)[:_MOST_CHILDREN]


def _shown(thread: Thread) -> dict[str, Any]:
    return {"pid": thread.pid, "name": thread.name, "main": thread.is_main, "frames": [f.place for f in thread.frames]}
