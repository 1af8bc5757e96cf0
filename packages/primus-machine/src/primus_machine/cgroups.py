"""The limits of the cgroups that this process is in, of both versions of cgroups: checks and captures ask alike."""

from __future__ import annotations

import os

from primus_machine.host import HostRoot

__all__ = ["LIMITS", "ROOT", "files", "limits"]

ROOT = "/sys/fs/cgroup"
LIMITS = {"memory.max": "memory/memory.limit_in_bytes", "cpu.max": "cpu/cpu.cfs_quota_us"}
"""Files of version 2, and what version 1 has instead."""


def files(host: HostRoot, name: str) -> list[str]:
    """Return where a limit may be set, from this process's own cgroup up to the root; nothing: no cgroup is known."""
    lines = [line.split(":", 2) for line in (host.text("/proc/self/cgroup") or "").splitlines()]
    ways = {one[1]: one[2].strip("/") for one in lines if len(one) == 3}
    controller, _, older = LIMITS[name].partition("/")
    old = next((way for names, way in ways.items() if controller in names.split(",")), None)
    if old is not None:
        return _upwards(f"{ROOT}/{controller}", old, older)
    return _upwards(ROOT, ways[""], name) if "" in ways else []


def _upwards(root: str, way: str, file: str) -> list[str]:
    parts = way.split("/") if way else []
    return ["/".join([root, *parts[:length], file]) for length in range(len(parts), -1, -1)]


def limits(host: HostRoot, name: str) -> list[str] | None:
    """Return what these files say; None: they cannot be found.

    A cgroup whose folder is seen and holds no such file sets no limit; of one that is not seen nobody knows.
    """
    paths = files(host, name)
    texts = [host.text(path) for path in paths if os.path.basename(path) in host.names(os.path.dirname(path))]
    seen = bool(paths and host.names(os.path.dirname(paths[0]))) and None not in texts
    return [text for text in texts if text] if seen else None
