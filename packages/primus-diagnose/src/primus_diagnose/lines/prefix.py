"""Who wrote a line: the prefixes that launchers, schedulers and log collectors put before it."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Writer", "split"]

_MOST_PREFIXES = 5
_PREFIXES = re.compile(
    r"\[(?:rank|Rank )\s?(?P<rank>\d{1,6})\]:?\s?"  # torch, Primus
    r"|\[(?:default|[a-z_]\w{0,30}?)(?P<local>\d{1,4})\]:\s?"  # torchrun --tee: [default3]:
    r"|\s{0,5}(?P<task>\d{1,6}): "  # srun --label
    r"|\[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err|diag)>:\s?"  # mpirun --tag-output
    r"|\((?:[\w.]{1,40} )?(?:pid|rank|actor)=\d{1,9}(?:, ip=(?P<ip>[\d.a-f:]{3,40}))?\)\s?"  # Ray
    r"|\[pod/(?P<pod>[\w.-]{1,253})/[\w.-]{1,253}\]\s"  # kubectl logs --prefix
    r"|(?P<compose>[\w.-]{1,80})\s{1,20}\|\s"  # docker compose, stern
    r"|(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d))\s(?:std(?:out|err) [FP] )?"  # CRI
    r"|(?:slurmstepd-)?(?P<host>[a-z][a-z0-9-]{0,62}\d(?:\.[a-z0-9-]{1,63}){0,6}): "  # pdsh, clush
)
_NCCL = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]{0,252}):\d{1,9}:\d{1,9} (?:\[(?P<gpu>\d{1,4})\] )?(?:N|RC)CCL ")
_INNER_RANK = re.compile(r"\[(?:PG [^\]]{0,80}? )?Rank (?P<rank>\d{1,6})\]")


class Writer(NamedTuple):
    """What the prefixes of a line say of whoever wrote it."""

    rank: int | None = None
    local: int | None = None
    """The rank on its node."""
    task: int | None = None
    """The number of a task of srun: a rank, or where tasks have ranks of their own, a node."""
    node: str = ""
    stamp: str = ""
    """The time that a collector of logs wrote before the line."""


def split(line: str) -> tuple[Writer, str]:
    """Who wrote a line, and the line without its prefixes."""
    found: dict[str, str] = {}
    for _ in range(_MOST_PREFIXES):
        match = _PREFIXES.match(line)
        if not match:
            break
        found |= {name: value for name, value in match.groupdict().items() if value is not None}
        line = line[match.end() :]
    inner = _NCCL.match(line)
    named = _INNER_RANK.search(line, 0, 400)
    return _writer(found, inner, named), line


def _writer(found: dict[str, str], inner: re.Match[str] | None, named: re.Match[str] | None) -> Writer:
    rank = found.get("rank") or found.get("mpi") or (named["rank"] if named else None)
    node = next((found[name] for name in ("pod", "ip", "host", "compose") if name in found), "")
    return Writer(
        rank=_number(rank),
        local=_number(found.get("local")),
        task=_number(found.get("task")),
        node=inner["host"] if inner else node,
        stamp=found.get("stamp", ""),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None
