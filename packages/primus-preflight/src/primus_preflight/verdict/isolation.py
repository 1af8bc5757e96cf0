"""Which node is at fault for a bad link: a pure function of what all nodes found.

A link is bad below its floor, or below a share of what is usual: the median of what each node has on its best link,
since a bad partner spoils one of a node's links and not all. The node with the largest share of bad links is named and
taken out with them, and the rest is judged again: who was slow only with a bad one passes. It needs three nodes; where
equally many say so of each other, all of them are named. What is sent and what is received are judged apart.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from primus_preflight.checks.findings import Finding
from primus_preflight.verdict.node_report import NodeReport

__all__ = ["End", "Guilty", "Link", "culprits", "isolated"]

_LISTED = 8


class End(NamedTuple):
    """One end of a link."""

    host: str
    direction: str = ""
    """`sending`, `receiving`; empty: both."""


@dataclass(frozen=True, slots=True)
class Link:
    """What was measured between two nodes."""

    ends: tuple[End, End]
    value: float | None
    """None: nothing could be measured."""
    share: float = 0.0
    """The least share of what is usual that is good; 0: this much is good wherever others are."""
    below: bool = False
    """Whether it is below what the nodes themselves expect of it."""


class Guilty(NamedTuple):
    """An end that is at fault, and its links when it was found."""

    end: End
    links: tuple[Link, ...]
    bad: tuple[Link, ...]
    usual: float | None


def culprits(links: Sequence[Link], *, lower: bool = False) -> list[Guilty]:
    """The ends at fault, worst first; `lower`: the lower value is the better one."""
    left = list(links)
    found: list[Guilty] = []
    while True:
        usual = _usual(left, lower=lower)
        bad = [link for link in left if link.below or _is_bad(link, usual, lower=lower)]
        if not bad:
            return found
        named = _worst(left, bad)
        for end in sorted(named):
            own = tuple(link for link in left if end in link.ends)
            found.append(Guilty(end, own, tuple(link for link in bad if end in link.ends), usual))
        left = [link for link in left if not named & set(link.ends)]


def _usual(links: Sequence[Link], *, lower: bool) -> float | None:
    """The median of what each end has on its best link."""
    best: dict[End, float] = {}
    pick = min if lower else max
    for link in links:
        if link.value is not None:
            for end in link.ends:
                best[end] = pick(best.get(end, link.value), link.value)
    return statistics.median(best.values()) if best else None


def _is_bad(link: Link, usual: float | None, *, lower: bool) -> bool:
    if link.value is None or usual is None:
        return link.value is None
    return link.value * link.share > usual if lower else link.value < link.share * usual


def _worst(links: Sequence[Link], bad: Sequence[Link]) -> set[End]:
    """The ends with the largest share of bad links; of those with equal shares, the ones with most."""
    every = Counter(end for link in links for end in link.ends)
    wrong = Counter(end for link in bad for end in link.ends)
    ranks = {end: (count / every[end], count) for end, count in wrong.items()}
    top = max(ranks.values())
    return {end for end, rank in ranks.items() if rank == top}


def isolated(reports: Sequence[NodeReport]) -> Iterator[tuple[str, Finding]]:
    """By host, findings in the place of those of pairs that are not good: of the ends at fault, one each."""
    seats = {f"rank {report.node_rank}": report.host for report in reports}
    blamed = set()
    for seen in _by_check(reports, seats).values():
        for host, finding in _settled(seen, {report.host for report in reports}):
            blamed |= {host} if finding.status == "fail" else set()
            yield host, finding
    yield from _excused(reports, blamed)


def _excused(reports: Sequence[NodeReport], blamed: set[str]) -> Iterator[tuple[str, Finding]]:
    """What failed for all is the fault of those that are bad with their partners, where there are such."""
    for report in reports:
        for one in report.findings:
            if one.compare == "all" and one.status == "fail" and blamed and report.host not in blamed:
                yield report.host, replace(one, status="skip", why=f"it fails because of {_listed(blamed)}", fix="")


class _Seen(NamedTuple):
    """A finding of a pair, and where it lies."""

    host: str
    finding: Finding
    ends: tuple[End, End]


def _by_check(reports: Sequence[NodeReport], seats: Mapping[str, str]) -> Mapping[str, list[_Seen]]:
    groups: dict[str, list[_Seen]] = defaultdict(list)
    for report in reports:
        for one in report.findings:
            if one.compare.startswith("pair-") and one.status != "skip":
                groups[one.check].append(_Seen(report.host, one, _ends(report.host, one.subject, seats)))
    return groups


def _ends(host: str, subject: str, seats: Mapping[str, str]) -> tuple[End, End]:
    """`to node3`: from here to there; `from node3`; `node3`: both ways. `rank 3` is who never said its name."""
    for word, own, others in (("to ", "sending", "receiving"), ("from ", "receiving", "sending")):
        if subject.startswith(word):
            return End(host, own), End(subject.removeprefix(word), others)
    return End(host), End(seats.get(subject, subject))


def _settled(seen: Sequence[_Seen], reported: set[str]) -> Iterator[tuple[str, Finding]]:
    left: list[_Seen] = []
    for one in seen:
        if one.finding.status == "unknown" and one.ends[1].host not in reported:
            # Nobody's fault but its own, and that it did not report is said elsewhere.
            yield one.host, replace(one.finding, status="skip", why=f"{one.ends[1].host} did not take part", fix="")
        else:
            left.append(one)
    if not left:
        return
    guilty = culprits(_links(left), lower=left[0].finding.compare == "pair-lower")
    bad = {frozenset(link.ends): one.end for one in reversed(guilty) for link in one.bad}
    for one in left:
        if end := bad.get(frozenset(one.ends)):
            why = f"judged with the other links of {end.host}"
            yield one.host, replace(one.finding, status="skip", why=why, fix="")
    findings = {frozenset(one.ends): one.finding for one in left}
    for culprit in guilty:
        sample = findings[frozenset(culprit.bad[0].ends)]
        yield culprit.end.host, _verdict(culprit, sample, {other.end for other in guilty})


def _links(seen: Sequence[_Seen]) -> list[Link]:
    """Each link once, whatever either end says of it."""
    links: dict[frozenset[End], Link] = {}
    for one in seen:
        key, below = frozenset(one.ends), one.finding.status != "pass"
        known = links.get(key, Link(one.ends, one.finding.value, one.finding.share or 0.0))
        value = None if None in (known.value, one.finding.value) else known.value
        links[key] = replace(known, value=value, below=known.below or below)
    return list(links.values())


def _verdict(one: Guilty, sample: Finding, named: set[End]) -> Finding:
    others = [_other(link, one.end) for link in one.bad]
    why = f"with {len(one.bad)} of {len(one.links)} peers: {_listed(end.host for end in others)}"
    if named.issuperset(others):
        why += "; the peers may be at fault: no other node can tell"
    measured = [link.value for link in one.bad if link.value is not None]
    return replace(
        sample,
        subject=one.end.direction,
        status=sample.severity,
        measured=f"{statistics.median(measured):.3g}" if measured else "not reached",
        value=None,
        expected=_expected(sample, one.usual) if measured else sample.expected,
        source="the other nodes",
        why=why,
    )


def _expected(sample: Finding, usual: float | None) -> str:
    if usual is None or not sample.share:
        return sample.expected
    bound = f"≤ {usual / sample.share:.3g}" if sample.compare == "pair-lower" else f"≥ {usual * sample.share:.3g}"
    return f"{bound}, as others have about {usual:.3g}"


def _other(link: Link, end: End) -> End:
    return link.ends[1] if link.ends[0] == end else link.ends[0]


def _listed(names: Iterable[str]) -> str:
    hosts = sorted(names)
    return ", ".join(hosts[:_LISTED]) + (f" and {len(hosts) - _LISTED} more" if len(hosts) > _LISTED else "")
