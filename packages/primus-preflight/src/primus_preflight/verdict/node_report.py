"""What one node found, in a file of its own: `<run>/preflight/<host>.json`. It appears whole or not at all."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from primus_core.errors import RequestError
from primus_core.journal import record
from primus_machine.files import plain_json
from primus_machine.files.atomic import write_atomically
from primus_machine.secrets.redaction import redact
from primus_preflight.checks import findings
from primus_preflight.checks.findings import Finding
from primus_preflight.paths import text_of

__all__ = ["FOLDER", "NodeReport", "Unread", "check", "each", "hosts", "read", "read_all", "write"]

FOLDER = "preflight"
Keep = Callable[[Mapping[str, Any]], bool]
_TEXTS = ("host", "gpu_model", "level", "version")
_OWN = frozenset({"host", "findings"})
"""A node's report has these keys. What has none of them is something else."""
_FIX = (
    "name the run directory of a preflight: `primus runs list` shows them\n"
    "for the report of a training: primus report RUN"
)
SCHEMA = 1
"""Version of the file's form. It changes when an old reader would misread a new file."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node's findings."""

    host: str
    """As the scheduler calls it, where there is one."""
    findings: tuple[Finding, ...]
    gpu_model: str = ""
    gpus: int = 0
    node_rank: int = 0
    time: float = 0.0
    """When it was written, by the node's own clock."""
    level: str = ""
    """Up to which level it was checked; empty: an earlier version did not say."""
    version: str = ""
    """Of primus-preflight."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        # What says nothing is left out: thousands of nodes write such files, and one reads them all.
        found = [
            {k: v for k, v in one.to_dict().items() if v not in ("", None) or k == "subject"} for one in self.findings
        ]
        return {
            "schema": SCHEMA,
            "host": self.host,
            "node_rank": self.node_rank,
            "time": self.time,
            "gpu_model": self.gpu_model,
            "gpus": self.gpus,
            "level": self.level,
            "version": self.version,
            "verdict": findings.verdict(self.findings),
            "findings": found,
        }


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that is no report."""

    host: str
    why: str


def write(folder: str, report: NodeReport) -> str:
    """Write the report into `folder`; its path."""
    path = os.path.join(folder, f"{report.host}.json")
    os.makedirs(folder, exist_ok=True)
    write_atomically(path, redact(plain_json.dumps(report.to_dict(), indent=1)) + "\n")
    return path


def read_all(folder: str, keep: Keep = bool) -> tuple[list[NodeReport], list[Unread]]:
    """The reports in a folder, or in its `preflight`, by host; and the files that are none.

    `keep`: which findings are wanted, as JSON has them.
    """
    found = list(each(folder, keep))
    return [one for one in found if isinstance(one, NodeReport)], [one for one in found if isinstance(one, Unread)]


def each(folder: str, keep: Keep = bool) -> Iterator[NodeReport | Unread]:
    """One after the other, as `read_all`.

    Raises:
        RequestError: the folder cannot be read.
    """
    return (_of(path, found) for path in _files(folder) if (found := _read(path, keep)))


def check(folder: str) -> None:
    """Whether reports of nodes may be in a folder.

    Raises:
        RequestError: it cannot be read, or holds none.
    """
    if not os.path.isdir(folder):
        raise RequestError(f"'{folder}' is not a folder", fix=_FIX)
    if not _files(folder):
        raise RequestError(f"'{folder}' has no report of a node", fix=_FIX)


def _files(folder: str) -> Sequence[str]:
    """Those of a run directory are in its `preflight` only: its other files are of the run."""
    inner = os.path.join(folder, FOLDER)
    is_run = os.path.isdir(inner) or os.path.exists(os.path.join(folder, record.FILE))
    place = inner if is_run else folder
    try:
        names = sorted(os.listdir(place) if os.path.isdir(place) or not is_run else ())
    except OSError as error:
        raise RequestError(f"'{folder}' cannot be read", why=str(error.strerror), fix=_FIX) from None
    return [os.path.join(place, name) for name in names if name.endswith(".json")]


def _of(path: str, found: NodeReport | Unread) -> NodeReport | Unread:
    """A report under another's name would stand for that node, and its own node would be missed by nobody."""
    host = _host(path)
    return found if found.host == host else Unread(host, f"its report is of another node: {found.host!r}")


def _host(path: str) -> str:
    return os.path.basename(path).removesuffix(".json")


def hosts(folder: str) -> Sequence[str]:
    """Of the reports that are there, without reading them."""
    try:
        return [name.removesuffix(".json") for name in os.listdir(folder) if name.endswith(".json")]
    except OSError:
        return ()


def read(path: str, keep: Keep = bool) -> NodeReport | Unread:
    """The report in a file."""
    return _read(path, keep) or Unread(_host(path), "it is not a report of a node")


def _read(path: str, keep: Keep) -> NodeReport | Unread | None:
    """The same; None: something else that is whole, as a report on all nodes."""
    host = _host(path)
    try:
        data = plain_json.loads(text_of(path))
        if isinstance(data, dict) and data and not _OWN & data.keys():
            return None
        if data["schema"] != SCHEMA:
            return Unread(host, f"its schema version is {data['schema']}, but this version of Primus reads {SCHEMA}")
        "".join(data.get(name, "") for name in _TEXTS).encode()  # all are text, and can be written
        found = tuple(findings.load(one) for one in data["findings"] if keep(one))
        written = float(data["time"])
        if not math.isfinite(written):
            return Unread(host, f"its report has the time {written}")
        place = data["gpu_model"], int(data["gpus"]), int(data["node_rank"]), written
        return NodeReport(data["host"], found, *place, str(data.get("level", "")), str(data.get("version", "")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        return Unread(host, f"its report cannot be read: {type(error).__name__}: {error}")
