"""Brings together what all logs say: one finding for each signature, with the ranks and nodes that have it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from primus_diagnose.scan.scanner import EXCEPTION
from primus_diagnose.scan.source import Source
from primus_diagnose.scan.tally import FileResult, Tally
from primus_diagnose.signatures.catalogue import Catalogue
from primus_diagnose.signatures.signature import Signature
from primus_diagnose.verdict import SKEW_S, Finding, Hit

__all__ = ["findings", "made", "read_in"]

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_TRAILING = re.compile(r": \{(\w+)\}")


@dataclass(frozen=True, slots=True)
class _Seen:
    """The lines of one signature that one rank wrote into one log."""

    first: Hit
    last: Hit
    count: int
    is_live: bool
    """The log shows no progress after the last of them."""
    at_least: bool = False


def read_in(sources: Sequence[Source], results: Sequence[FileResult]) -> list[FileResult]:
    """The results of logs, with what records know better: a record has the time and the node of its failure."""
    logs = [result for source, result in zip(sources, results, strict=True) if not source.is_record]
    records = [result for source, result in zip(sources, results, strict=True) if source.is_record]
    for record in records:
        for key, tally in list(record.tallies.items()):
            if _is_in(logs, tally):
                del record.tallies[key]
    return [*logs, *records]


def _is_in(logs: Iterable[FileResult], record: Tally) -> bool:
    """Whether a log has the line of a record, too; then the log's line gets the record's time and node."""
    hit = record.first
    found = False
    for log in logs:
        for tally in log.tallies.values():
            if tally.last.signature == hit.signature and tally.last.rank == hit.rank and hit.rank is not None:
                found = True
                if _same(tally.last, hit):
                    timed = replace(tally.last, time=hit.time or tally.last.time, node=hit.node or tally.last.node)
                    tally.first, tally.last = timed if tally.count == 1 else tally.first, timed
    return found


def _same(line: Hit, record: Hit) -> bool:
    return line.text == record.text or line.groups == record.groups


def findings(catalogue: Catalogue, results: Iterable[FileResult]) -> list[Finding]:
    """What was found, in no order."""
    grouped: dict[tuple[str, str], list[_Seen]] = {}
    for result in results:
        for tally in result.tallies.values():
            seen = _seen(catalogue[tally.first.signature], tally, result)
            grouped.setdefault(_key(tally.first), []).append(seen)
    return [_finding(catalogue[name], seen) for (name, _), seen in grouped.items()]


def _key(hit: Hit) -> tuple[str, str]:
    """Exceptions that no signature knows are one finding for each kind of them."""
    if hit.signature != EXCEPTION:
        return hit.signature, ""
    message = re.sub(r"\d+", "", hit.groups.get("message", ""))
    return hit.signature, f"{hit.groups.get('type')}: {message[:80]}"


def _seen(signature: Signature, tally: Tally, result: FileResult) -> _Seen:
    live = [hit for hit in (tally.first, tally.last) if signature.persists or hit.line >= result.steady_until]
    first = live[0] if live else tally.first
    return _Seen(first, tally.last, tally.count, bool(live), signature.id in result.full)


def _finding(signature: Signature, seen: Sequence[_Seen]) -> Finding:
    live = [one for one in seen if one.is_live]
    first = _representative([one.first for one in live or seen])
    last = max((one.last for one in seen), key=lambda hit: (hit.time or 0, hit.line))
    return made(
        signature,
        first,
        last=last,
        count=sum(one.count for one in seen),
        ranks={hit.rank for one in seen for hit in (one.first, one.last)},
        nodes={hit.node for one in seen for hit in (one.first, one.last)},
        at_least=any(one.at_least for one in seen),
        before_progress=not live,
    )


def _representative(hits: Sequence[Hit]) -> Hit:
    """The earliest line; of those at about that time, one whose rank is known, or that names the node itself."""
    begin = min((hit.time for hit in hits if hit.time is not None), default=0.0)
    early = [hit for hit in hits if hit.time is None or hit.time <= begin + SKEW_S]
    return min(
        early,
        key=lambda hit: (
            hit.rank is None,
            "host" not in hit.groups,
            hit.time is None,
            hit.time or 0.0,
            hit.rank or 0,
            hit.line,
        ),
    )


def made(
    signature: Signature,
    first: Hit,
    *,
    last: Hit | None = None,
    count: int = 1,
    ranks: Iterable[int | None] = (),
    nodes: Iterable[str] = (),
    at_least: bool = False,
    before_progress: bool = False,
) -> Finding:
    """A finding in the words of its signature."""
    return Finding(
        signature=signature.id,
        title=_filled(signature.title, first.groups),
        category=signature.category,
        role=signature.role,
        severity=signature.severity,
        count=count,
        ranks=tuple(sorted(rank for rank in ranks if rank is not None)),
        nodes=tuple(sorted(filter(None, nodes))),
        first=first,
        last=last or first,
        meaning=_filled(signature.meaning, first.groups),
        fix=tuple(_filled(step, first.groups) for step in signature.fix),
        source=signature.source,
        at_least=at_least,
        before_progress=before_progress,
    )


def _filled(text: str, groups: Mapping[str, str]) -> str:
    """`text` with the groups in their places. What the line does not say is left out where it stands behind a colon."""
    known = _TRAILING.sub(lambda match: match[0] if groups.get(match[1]) else "", text)
    return _PLACEHOLDER.sub(lambda match: groups.get(match[1], f"<{match[1]}>"), known)
