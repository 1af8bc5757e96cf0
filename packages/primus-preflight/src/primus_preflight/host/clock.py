"""This node's clock: whether the kernel holds it to others, and how far it is from the file server's.

No network is needed: adjtimex(2) says the first, and a file that the server stamps the second.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator

from primus_machine.host import HostRoot
from primus_preflight.checks.check import Node
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule

__all__ = ["file_system", "is_synchronised", "offset", "server", "synchronised"]

_STA_UNSYNC = 0x0040
"""Linux, include/uapi/linux/timex.h; NTP, PTP and chrony clear it once they steer the clock."""
_TIMEX_BYTES = 208
_STATUS_AT = 40
"""Of `struct timex` on machines of 64 bits: modes, with padding, and four longs stand before it."""


def is_synchronised() -> bool | None:
    """Whether something holds the kernel's clock to others; None: the kernel does not say."""
    import ctypes  # the standard library has no adjtimex

    state = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zero: modes 0 asks, and changes nothing
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None or ctypes.sizeof(ctypes.c_long) != 8 or adjtimex(state) < 0:
        return None
    return not ctypes.c_int.from_buffer(state, _STATUS_AT).value & _STA_UNSYNC


def synchronised(_: Node, rule: Rule) -> Iterator[Finding]:
    """Of the kernel's clock."""
    found = is_synchronised()
    word = None if found is None else "synchronised" if found else "not synchronised"
    yield rule.word("", word, why="adjtimex(2) is not allowed here")


def server(node: Node, rule: Rule) -> Iterator[Finding]:
    """Against the file server of the run directory, which all nodes share.

    Only NFS says by its protocol that the server stamps a file (RFC 8881, SET_TO_SERVER_TIME4). On others a node may do
    it itself, and would always agree.
    """
    kind = file_system(node.host, node.run_dir) if node.run_dir else ""
    if not kind.startswith("nfs"):
        yield rule.skip(
            f"the run directory is on {kind or 'no file system that is known'}: its files have the time of this machine"
        )
        return
    try:
        found = offset(node.run_dir, time.time)
    except OSError as error:
        yield rule.unknown("", f"{node.run_dir}: {error.strerror}")
        return
    yield rule.number("", abs(found), measured=f"{found:+.1f}", why="from the file server's")


def offset(folder: str, now: Callable[[], float]) -> float:
    """Seconds by which this node's clock is ahead of the one that stamps files in `folder`."""
    with tempfile.TemporaryFile(dir=folder) as file:
        before = now()
        os.utime(file.fileno())  # without a time: the server takes its own
        after = now()
        return (before + after) / 2 - os.fstat(file.fileno()).st_mtime


def file_system(host: HostRoot, path: str) -> str:
    """The type of the file system that holds `path`, as `nfs4`; empty: the kernel does not say."""
    found = ("", "")
    for line in (host.text("/proc/self/mountinfo") or "").splitlines():
        mount, _, kind = line.partition(" - ")
        place = (mount.split() + [""] * 5)[4].replace("\\040", " ")
        if f"{path}/".startswith(f"{place.rstrip('/')}/") and len(place) >= len(found[0]):  # the last mount counts
            found = (place, kind.split(" ")[0])
    return found[1]
