"""The verdict of a cluster: a pure function of what its nodes found. It needs no network and no node that still lives.

A node fails by what it found itself, by differing where all should agree, or as an outlier: further from the median
than the others scatter (3.5 times the scaled median deviation), and worse than it by 5 %, as good silicon may differ.
"""

from __future__ import annotations

import os
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from primus_core.errors import RequestError
from primus_machine import nodelist
from primus_machine.files.atomic import write_atomically
from primus_machine.units import counted
from primus_preflight.checks.findings import Finding, verdict
from primus_preflight.checks.thresholds import fix_of
from primus_preflight.paths import text_of
from primus_preflight.verdict.isolation import isolated
from primus_preflight.verdict.node_report import NodeReport, Unread
from primus_preflight.verdict.provenance import Provenance

__all__ = ["SCALED", "SHARE", "Cluster", "Expected", "expected", "judge", "write_lists"]

SCALED = 3.5 * 1.4826
"""3.5 standard deviations, were the values normal: 1.4826 makes one of a median deviation (Iglewicz and Hoaglin)."""
SHARE = 0.05
"""Good silicon of one kind differs by so much (stas00/ml-engineering)."""
_FEWEST = 5
"""Of fewer values, nobody can say which one lies outside."""
_MOST = 100_000
"""Nobody has more nodes: a range that is longer is mistyped, and would fill the memory."""
_COUNTED_BY = {"network.active-ports": "network.ports"}
"""By check of a count: the check of each thing that is counted."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Expected:
    """Which nodes shall report: by name, or at least how many."""

    names: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The verdict. Each node is in one of the three, and `nodes` says why."""

    passing: tuple[str, ...]
    failing: tuple[str, ...]
    unknown: tuple[str, ...]
    nodes: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    """All findings by host, those of the comparison among them."""
    absent: int = 0
    """Nodes that did not report, and whose names nobody has said."""
    provenance: Provenance = field(default_factory=Provenance)

    @property
    def exit_code(self) -> int:
        """1: a node is unfit; 3: the state of some could not be determined; 0: all are fit."""
        return 1 if self.failing else 3 if self.unknown or self.absent or not self.passing else 0


def expected(text: str) -> Expected:
    """`64`, `node[01-64]`, or a file with names: a line each, or separated by blanks or commas.

    Raises:
        RequestError: it is none of them.
    """
    fix = "write a number (64), a list (node[01-64]), or the name of a file"
    if text.isdecimal() and text.isascii():
        if (count := int(text[:9])) > _MOST:
            raise RequestError(f"--expected-nodes: more than {_MOST} nodes", fix=fix)
        return Expected(count=count)
    if "/" in text or os.path.isfile(text):
        try:
            lines = text_of(text).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"--expected-nodes {text}: it cannot be read", why=str(error)) from None
        text = ",".join(line.partition("#")[0].strip().replace(" ", ",") for line in lines)
    try:
        names = tuple(dict.fromkeys(filter(None, islice(nodelist.hosts(text), _MOST + 1))))
    except RequestError as error:
        raise RequestError(f"--expected-nodes: {error.what}", why=error.why, fix=fix) from None
    _check_names(names, fix)
    return Expected(names, len(names))


def _check_names(names: Sequence[str], fix: str) -> None:
    if not names:
        raise RequestError("--expected-nodes names no node", fix=fix)
    if len(names) > _MOST:
        raise RequestError(f"--expected-nodes: more than {_MOST} nodes", fix=fix)
    if wrong := next((name for name in names if not _NAME.fullmatch(name)), ""):
        raise RequestError(f"--expected-nodes: '{wrong[:80]}' is not the name of a node", fix=fix)


def judge(reports: Sequence[NodeReport], unread: Sequence[Unread] = (), wanted: Expected | None = None) -> Cluster:
    """The verdict over all reports."""
    wanted = wanted or Expected()
    nodes = {report.host: {(one.check, one.subject): one for one in report.findings} for report in reports}
    reported = set(nodes)
    for host, finding in [*_differing(reports), *_without(reports), *_outliers(reports), *isolated(reports)]:
        # A node that its peers met may have ended without a report.
        fix = finding.fix or (fix_of(finding.check) if finding.status in ("fail", "warn") else "")
        nodes.setdefault(host, {})[finding.check, finding.subject] = replace(finding, fix=fix)
    silent = dict.fromkeys((*wanted.names, *nodes), "it did not report: it is down, unreachable, or slower than --wait")
    lacking = {host: why for host, why in silent.items() if host not in reported}
    lacking |= {one.host: one.why for one in unread}
    for host, why in lacking.items():
        nodes.setdefault(host, {})["cluster.report", ""] = _no_report(host, why)
    found = {host: tuple(nodes[host].values()) for host in sorted(nodes)}
    found = {host: (*own, *_nothing_measured(own)) for host, own in found.items()}
    return _sorted(found, absent=0 if wanted.names else max(0, wanted.count - len(nodes)))


def _sorted(nodes: Mapping[str, tuple[Finding, ...]], absent: int) -> Cluster:
    verdicts = {host: verdict(found) for host, found in nodes.items()}
    passing, failing, unknown = (
        tuple(h for h, own in verdicts.items() if own == one) for one in ("pass", "fail", "unknown")
    )
    return Cluster(passing, failing, unknown, nodes, absent)


def _nothing_measured(found: Sequence[Finding]) -> Iterable[Finding]:
    """Why a node is unknown on which each check was skipped."""
    if all(one.status == "skip" for one in found):
        why = "; ".join(dict.fromkeys(one.why for one in found)) or "no check ran"
        fix = "choose checks that apply here: primus direct -- preflight list"
        yield Finding("cluster.report", "", "unknown", expected="a measurement", why=f"all skipped: {why}", fix=fix)


def _no_report(host: str, why: str) -> Finding:
    fix = f"log in and run `primus direct -- preflight`; exclude it from the next job: `srun --exclude={host}`"
    return Finding("cluster.report", "", "unknown", expected="a report", why=why, fix=fix)


def _differing(reports: Sequence[NodeReport]) -> Iterable[tuple[str, Finding]]:
    """Nodes that are not as most others of their GPU model. Without a majority, all are told, and nobody is right."""
    doubtful = _doubtful(reports)
    for group in _grouped(reports, lambda finding: finding.compare == "same" and (finding.check, finding.subject)):
        # What failed on its own node says nothing about what is normal, and has its own fix.
        sound = [(host, one) for host, one in group if one.status == "pass" and (host, one.check) not in doubtful]
        counts = Counter(finding.measured for _, finding in sound)
        if len(counts) < 2:
            continue
        usual = _usual(counts, is_count=all(one.value is not None for _, one in sound))
        listed = ", ".join(f"{value} on {count}" for value, count in counts.most_common(4))
        for host, finding in sound:
            if finding.measured != usual:
                why = f"nodes differ: {listed}"
                worse = _worse(finding, expected=usual or "one value", why=why)
                yield host, replace(worse, fix=_fix_of_other(finding, usual))


def _usual(counts: Counter[str], *, is_count: bool) -> str:
    """Return what most have; of counts with equal support the highest, as things get lost. Empty: nobody can tell."""
    (usual, times), *others = counts.most_common()
    equal = [usual, *(value for value, count in others if count == times)]
    if is_count:
        return max(equal, key=float)
    return usual if len(equal) == 1 else ""


def _fix_of_other(finding: Finding, usual: str) -> str:
    if finding.value is None:
        return f"set it to {usual}, as on the other nodes" if usual else "make all nodes equal"
    if finding.value > float(usual):
        return f"it has more than the other nodes ({usual}): train with nodes of one kind, or leave it out"
    return fix_of(finding.check)


def _doubtful(reports: Sequence[NodeReport]) -> set[tuple[str, str]]:
    """Return counts that are low for a known reason, as active ports where a port has failed: by host and check."""
    return {
        (report.host, one.check)
        for report in reports
        for one in report.findings
        if one.compare == "same" and one.value is not None and one.check in _COUNTED_BY
        for other in report.findings
        if other.check == _COUNTED_BY[one.check] and other.status == "fail"
    }


def _without(reports: Sequence[NodeReport]) -> Iterable[tuple[str, Finding]]:
    """Nodes that have none of what others have, such as GPUs: nothing that was skipped there makes them fit."""
    counts: dict[str, list[tuple[str, Finding, float]]] = defaultdict(list)
    for report in reports:
        for one in report.findings:
            if one.compare == "same" and one.value is not None:
                counts[one.check].append((report.host, one, one.value))
    for found in counts.values():
        having = [one for _, one, value in found if value > 0]
        whole = [one for one in having if one.status == "pass"]
        usual = Counter(one.amount for one in whole or having).most_common(1)
        for host, one, value in found:
            if usual and value == 0 and one.status in ("skip", "unknown"):
                common, times = usual[0]
                why = f"{one.why}; {counted(times, 'node')} of this run {'has' if times == 1 else 'have'} {common}"
                expected = common.partition(" ")[0] if whole else having[0].expected
                yield host, replace(_worse(one, expected=expected, why=why), fix=fix_of(one.check))


def _outliers(reports: Sequence[NodeReport]) -> Iterable[tuple[str, Finding]]:
    """Values that are far worse than those of their like, over all nodes and all devices on them."""
    for group in _grouped(reports, lambda finding: finding.compare in ("higher", "lower") and finding.check):
        # What failed already does not vote.
        sound = [(host, finding) for host, finding in group if finding.status == "pass"]
        measured = [(host, finding, finding.value) for host, finding in sound if finding.value is not None]
        values = [value for _, _, value in measured]
        if len(values) < _FEWEST:
            continue
        middle = statistics.median(values)
        scatter = SCALED * statistics.median(abs(value - middle) for value in values)
        for host, finding, value in measured:
            loss = middle - value if finding.compare == "higher" else value - middle
            if loss > scatter and loss > SHARE * abs(middle):
                share = f" ({100 * loss / abs(middle):.0f} % worse)" if middle else ""
                yield (
                    host,
                    _worse(finding, expected=f"about {middle:.4g}", why=f"an outlier among {len(values)}{share}"),
                )


def _worse(finding: Finding, *, expected: str, why: str) -> Finding:
    return replace(finding, status=finding.severity, expected=expected, why=why, source="the other nodes")


def _grouped(reports: Sequence[NodeReport], key: Callable[[Finding], object]) -> Iterable[list[tuple[str, Finding]]]:
    """Findings that were measured, by what `key` says (false: left out), nodes of one GPU model together."""
    groups: dict[object, list[tuple[str, Finding]]] = defaultdict(list)
    for report in reports:
        for finding in report.findings:
            if finding.status not in ("skip", "unknown") and (named := key(finding)):
                groups[report.gpu_model, named].append((report.host, finding))
    return groups.values()


def write_lists(folder: str, cluster: Cluster) -> None:
    """`passing_nodes.txt` and its like: one line with commas, as `srun --exclude` takes it, by value or by path."""
    os.makedirs(folder, exist_ok=True)
    for name, hosts in (("passing", cluster.passing), ("failing", cluster.failing), ("unknown", cluster.unknown)):
        write_atomically(os.path.join(folder, f"{name}_nodes.txt"), ",".join(hosts) + "\n" * bool(hosts))
