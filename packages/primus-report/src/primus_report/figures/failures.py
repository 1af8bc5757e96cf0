"""The failures of a run: one for each attempt that failed, with its cause and the node that it is of.

The cause of the attempt that failed last is that of `diagnosis.json`, if the run has one (`primus diagnose`), without
paths. Any other is what the run recorded, without numbers and paths. So the same failure of two runs has one name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from primus_report.figures import documents
from primus_report.figures.attempts import Attempt
from primus_report.figures.documents import items, mapping, number, text, whole
from primus_report.figures.records import Records

__all__ = ["UNKNOWN_NODE", "Failure", "of_run"]

UNKNOWN_NODE = "not recorded"
_FAILED = ("failed", "lost")
_NO_RECORD = "lost: its end was not recorded"
_WHERE = re.compile(r"^(?:(?:rank|node) \d+(?: on node \d+)?(?: \([^)]*\))?[:,] *)+")
_PATH = re.compile(r"(?<![\w.<])/[^\s:,'\"]+")
_LONGEST = 120


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed."""

    run: str
    time: float | None
    cause: str
    what: str
    """In the run's own words."""
    nodes: tuple[str, ...]
    rank: int | None
    source: str


def of_run(records: Records, name: str, status: str, attempts: tuple[Attempt, ...]) -> tuple[Failure, ...]:
    """All failures, in their order. An attempt that somebody ended (`interrupted`) is none."""
    earlier = [_of_attempt(records, name, one) for one in attempts[:-1] if not one.is_good]
    return (*earlier, *_last(records, name, status, attempts[-1:]))


def _of_attempt(records: Records, name: str, attempt: Attempt) -> Failure:
    nodes = attempt.lost_nodes or _nodes(records, _rank_of(attempt.what, "node"))
    rank = _rank_of(attempt.what, "rank")
    return Failure(name, attempt.ended, _cause(attempt.what), attempt.what, nodes, rank, "metadata.json: attempts")


def _last(records: Records, name: str, status: str, attempts: tuple[Attempt, ...]) -> Iterator[Failure]:
    """That of the run itself: its last attempt, or what kept it from having one."""
    if status not in _FAILED:
        return
    known, diagnosed = (
        mapping(records.metadata.get("first_failure")),
        documents.read(f"{records.directory}/diagnosis.json"),
    )
    reason = text(known.get("what")) or next((one.what for one in attempts if one.what), "")
    rank, lost = whole(known.get("rank")), next((one.lost_nodes for one in attempts), ())
    nodes = lost or _nodes(records, whole(known.get("node_rank")))
    cause, source = _cause(reason) if reason else _NO_RECORD if status == "lost" else "not recorded", "metadata.json"
    if of_diagnosis := _diagnosis(diagnosed):
        cause, source = of_diagnosis, "diagnosis.json"
        nodes = _diagnosed_nodes(mapping(diagnosed["cause"])) or nodes
    ended = number(records.metadata.get("ended")) or records.events.last
    yield Failure(name, ended, cause, reason, nodes, rank if rank is not None and rank >= 0 else None, source)


def _diagnosis(found: Mapping[str, Any]) -> str:
    return _PATH.sub("<path>", text(mapping(found.get("cause")).get("title")))


def _diagnosed_nodes(cause: Mapping[str, Any]) -> tuple[str, ...]:
    first = text(mapping(cause.get("first")).get("node")) or text(cause.get("node"))
    return tuple(dict.fromkeys(filter(None, (first, *map(text, items(cause.get("nodes")))))))


def _cause(what: str) -> str:
    """What happened, without what is of one run only: ranks, numbers, addresses, paths."""
    plain = _WHERE.sub("", what.split("\n", 1)[0]).strip()
    plain = _PATH.sub("<path>", plain)
    plain = re.sub(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)*", "N", plain)
    plain = re.sub(r"N(?:, N)+", "N", plain)
    return plain[:_LONGEST] or "not recorded"


def _rank_of(what: str, kind: str) -> int | None:
    found = re.search(rf"\b{kind} (\d{{1,9}})\b", what)
    return int(found[1]) if found else None


def _nodes(records: Records, rank: int | None) -> tuple[str, ...]:
    """The host of a node by its rank. A run of one node fails there, whatever it recorded."""
    place = mapping(records.plan.get("distributed"))
    lone = (whole(place.get("nnodes")) or 1) == 1
    path = f"{records.directory}/nodes/{rank}/metadata.json"
    of_node = documents.read(path) if rank is not None and rank >= 0 else {}
    host = text(of_node.get("host")) or (text(records.metadata.get("host")) if lone or rank == 0 else "")
    return (host,) if host else ()
