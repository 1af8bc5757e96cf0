"""The last collective of each rank, where PyTorch's flight recorder has left a dump of this start."""

from __future__ import annotations

import os
from collections.abc import Mapping

from primus_machine.files import recorder, trust
from primus_machine.files.recorder import Call
from primus_machine.host import HostRoot

__all__ = ["last"]

_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""In a rank's environment: how the paths of the dumps begin; the rank follows."""


def last(host: HostRoot, ranks: Mapping[int, int]) -> dict[int, str]:
    """In words, by rank. Without those that left no dump, or one that is older than their process."""
    believed = trust.of(host.environ)
    found = {rank: _last_of(host, believed, rank, pid) for rank, pid in ranks.items()}
    return {rank: words for rank, words in found.items() if words}


def _last_of(host: HostRoot, believed: trust.Trust, rank: int, pid: int) -> str:
    if not (path := _path(host, rank, pid)):
        return ""
    try:
        if believed.doubt(path) or os.stat(path).st_mtime < _started(host, pid):
            return ""
        dump = recorder.read(path, rank)
    except (OSError, ValueError):  # none, or a damaged one
        return ""
    return _words(dump.calls[-1]) if dump and dump.calls else ""


def _path(host: HostRoot, rank: int, pid: int) -> str:
    pairs = (line.partition("=") for line in (host.text(f"/proc/{pid}/environ") or "").split("\0"))
    environ = {name: value for name, _, value in pairs}
    beginning = next(filter(None, (environ.get(name, "") for name in _VARIABLES)), "")
    return os.path.join(f"/proc/{pid}/cwd", f"{beginning}{rank}") if beginning else ""


def _started(host: HostRoot, pid: int) -> float:
    """Seconds since the epoch; proc(5)."""
    fields = (host.text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    boot = next((line.split()[1] for line in (host.text("/proc/stat") or "").splitlines() if line[:6] == "btime "), "0")
    return int(boot) + int(fields[19]) / os.sysconf("SC_CLK_TCK") - 1 if len(fields) > 19 else float("inf")


def _words(call: Call) -> str:
    """`nccl:all_reduce [[4]], number 17 of its group default_pg: scheduled, at train.py:3 in main`."""
    place = f", at {call.frame}" if call.frame else ""
    return f"{call.operation} {call.sizes}, number {call.sequence} of group {call.group}: {call.state}{place}"
