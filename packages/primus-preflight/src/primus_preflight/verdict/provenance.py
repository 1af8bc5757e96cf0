"""Where a report comes from: when it was made, by which command, at which level, by which version."""

from __future__ import annotations

import datetime as dt
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from primus_machine import packages
from primus_preflight.verdict.node_report import NodeReport

__all__ = ["Provenance", "of", "version"]


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the head of a report says."""

    date: str = ""
    """In UTC, as ISO 8601 has it."""
    command: str = ""
    """As it can be typed again; secrets are masked."""
    level: str = ""
    """`quick`; where nodes differ: `perf on 7 nodes, quick on n3`."""
    version: str = ""
    """Of primus-preflight; of the nodes', too, where it is another one."""

    def to_dict(self) -> dict[str, str]:
        """As JSON values."""
        return asdict(self)

    @property
    def lines(self) -> tuple[str, ...]:
        """For people: each with its name; what is not known is left out."""
        return tuple(f"{name}: {value}" for name, value in self.to_dict().items() if value)


def version() -> str:
    """Of primus-preflight, as it is installed here."""
    return packages.version_of("primus-preflight")


def of(reports: Iterable[NodeReport], command: Iterable[str], now: float) -> Provenance:
    """Of a verdict over these reports."""
    found = tuple(reports)
    date = dt.datetime.fromtimestamp(now, dt.UTC).isoformat(timespec="seconds")
    level = _listed({report.host: report.level or "unknown" for report in found})
    versions = {report.host: report.version or "unknown" for report in found}
    own, nodes = version(), _listed(versions)
    shown = f"{own}; on the nodes: {nodes}" if set(versions.values()) - {own} else own
    return Provenance(date, shlex.join(command), level, shown)


def _listed(by_host: Mapping[str, str]) -> str:
    """One word, where all say the same; else how many say what, and the host where one stands alone."""
    times = Counter(by_host.values()).most_common()
    if len(times) < 2:
        return times[0][0] if times else ""
    hosts = {word: [host for host, own in by_host.items() if own == word] for word, _ in times}
    return ", ".join(
        f"{word} on {count} nodes" if count > 1 else f"{word} on {hosts[word][0]}" for word, count in times
    )
