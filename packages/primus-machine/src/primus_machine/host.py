"""The one door to the machine: its pseudo file systems, its environment, its clock.

Everything is read below `root`, so that a captured tree of another machine can stand in for this one.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, Self

__all__ = ["ABOUT", "UNREAD", "HostRoot", "integer", "number", "numbered"]

ABOUT = "facts.json"
"""The file of a capture that says what it is, and what no file of the machine says."""

UNREAD = os.devnull
"""The root of a machine that nobody has read yet, as a node that a scheduler will choose: it has no files."""
_UNKNOWN = "unknown"
"""The name of a machine whose tree does not say it."""

_MAX_LINKS = 40  # as the kernel: more is a circle
_MAX_TEXT = 2**24  # no file of the kernel that we read comes near; a file in somebody's folder might
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
"""As the kernel writes one (`str.isdecimal` takes digits of all scripts), and too short to count to for ever."""


def number(text: str | None, base: int = 10) -> int:
    """The number that a file of the kernel holds; 0 where it holds none. No kernel writes more than 64 bits."""
    try:
        return max(int((text or "")[:24], base), 0)
    except ValueError:
        return 0


def numbered(names: Iterable[str], prefix: str = "") -> dict[int, str]:
    """The `names` that are `prefix` and a number, by that number in its order. Others are no folders of a kernel."""
    found = {name: name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    return dict(sorted((int(rest), name) for name, rest in found.items() if _NUMBER.fullmatch(rest)))


class HostRoot:
    """A machine to read: `root` holds its `/sys`, `/proc` and `/dev`."""

    def __init__(self, root: str = "/", environ: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.environ = dict(os.environ) if environ is None else environ

    def with_environ(self, environ: Mapping[str, str]) -> Self:
        """The same machine with another environment."""
        from copy import copy  # with `weakref`, which it needs: a millisecond that most commands do not pay

        other = copy(self)
        other.environ = environ
        return other

    @property
    def is_here(self) -> bool:
        """Whether this is the machine that runs us, and no tree or capture of another."""
        return self.root == "/"

    @property
    def is_known(self) -> bool:
        """Whether anything is known of this machine."""
        return self.root != UNREAD

    def _real(self, path: str) -> str:
        return os.path.join("/", path) if self.is_here else _below(self.root, path)

    def text(self, path: str, limit: int = -1) -> str | None:
        """The text of a file of the machine (its first `limit` characters), stripped; None where it cannot be read."""
        real = self._real(path)
        try:
            if not _is_text(os.stat(real)):
                return None
            with open(real, encoding="utf-8", errors="replace") as file:
                return file.read(limit).strip()
        except OSError:
            return None

    def why_unread(self, path: str) -> str:
        """Return why a file of the machine says nothing (`is empty`, ...); empty: it says something."""
        if (text := self.text(path)) is not None:
            return "" if text else "is empty"
        try:
            os.close(os.open(self._real(path), os.O_RDONLY | os.O_NONBLOCK))
        except OSError as error:
            return f"cannot be read: {(error.strerror or str(error)).lower()}"
        return "cannot be read: it is not a text"

    def names(self, path: str) -> tuple[str, ...]:
        """What a folder of the machine holds, sorted; nothing where there is none."""
        try:
            return tuple(sorted(os.listdir(self._real(path))))
        except OSError:
            return ()

    def paths(self, pattern: str) -> tuple[str, ...]:
        """Paths that match: a part with a `*` is what its folder holds. The last of them need not be there."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            wild = re.compile(re.escape(part).replace(r"\*", ".*")) if "*" in part else None
            found = [f"{path}/{name}" for path in found for name in self._parts(path, part, wild)]
        return tuple(found)

    def _parts(self, folder: str, part: str, wild: re.Pattern[str] | None) -> list[str]:
        return [name for name in self.names(folder) if wild.fullmatch(name)] if wild else [part]

    def data(self, path: str, limit: int) -> bytes:
        """The first bytes of a file of the machine; empty where it cannot be read. Captures hold texts alone."""
        try:
            with open(self._real(path), "rb") as file:
                return file.read(limit)
        except OSError:
            return b""

    def access(self, path: str) -> str:
        """`open`: this process may read and write it; `closed`; `missing`; empty: another machine that does not say."""
        if not self.is_here:
            return str(self._recorded("access").get(path, ""))
        if not os.path.exists(path):
            return "missing"
        return "open" if os.access(path, os.R_OK | os.W_OK) else "closed"

    def space(self, path: str) -> tuple[int, int] | None:
        """Bytes of the file system that holds `path`: in all, and left for this person; None: it cannot be asked."""
        if not self.is_here:
            recorded = self._recorded("space").get(path)
            return (int(recorded[0]), int(recorded[1])) if recorded else None
        try:
            found = os.statvfs(path)
        except OSError:
            return None
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def _recorded(self, what: str) -> Mapping[str, Any]:
        """What a capture knows that no file says."""
        import json

        try:
            return dict(json.loads(self.text(f"/{ABOUT}") or "{}").get(what) or {})
        except (ValueError, AttributeError, RecursionError):
            return {}

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def hostname(self) -> str:
        """The host's name as the kernel has it. Another machine that does not say it never borrows this one's."""
        if self.is_here:
            return os.uname().nodename
        name = self.text("/proc/sys/kernel/hostname") or self.text("/etc/hostname") or ""
        return name if name and name.isprintable() else _UNKNOWN

    def addresses(self, name: str) -> tuple[str, ...]:
        """The IP addresses of a host: `name` itself if it is one, else what `/etc/hosts` or the network says."""
        if _is_address(name):
            return (name,)
        found = _in_hosts(self.text("/etc/hosts") or "", name)
        return found or (_from_network(name) if self.is_here else ())

    def is_own(self, address: str) -> bool:
        """Whether an IP address is one of this machine's."""
        import socket

        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((address, 0))
        except OSError:
            return False
        return True

    def cwd(self) -> str:
        """The folder where the person stands."""
        return os.getcwd()

    def cpu_count(self) -> int:
        """CPUs that this process may run on (an allocation or a container may allow fewer than the machine has).

        Of another machine, those that its tree tells of; 0: it tells of none.
        """
        return len(os.sched_getaffinity(0)) if self.is_here else self.online_cpus()

    def online_cpus(self) -> int:
        """Return how many CPUs the machine has switched on; 0: it does not say."""
        listed = _length(self.text("/sys/devices/system/cpu/online") or "")
        return listed or len(re.findall(r"(?m)^processor\b", self.text("/proc/cpuinfo") or ""))

    def python(self) -> str:
        """The running interpreter."""
        return sys.executable

    def free_port(self) -> int:
        """A TCP port that nobody listens on, below those that the kernel hands out, so that it stays free a while."""
        import _socket as socket  # `socket` itself costs a dry run 2 ms, for enumerations and selectors

        first = time.time_ns() // 1000 + os.getpid()
        for offset in range(100):
            port = 20000 + (first + offset) % 12000
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            finally:
                probe.close()
            return port
        return 0  # a machine with no free port in a hundred: the launcher's error says it best

    def ignored_signals(self) -> frozenset[str]:
        """Names of the signals that this process ignores: it was started so, as by `nohup`."""
        if not self.is_here:
            return frozenset()
        import signal

        return frozenset(number.name for number in signal.Signals if signal.getsignal(number) is signal.SIG_IGN)

    def exists(self, path: str) -> bool:
        """Whether a file or folder of the person is there, a dangling link included."""
        return os.path.lexists(path)


def integer(host: HostRoot, path: str) -> int | None:
    """The number that a file holds; None where it cannot be read, or holds none."""
    text = host.text(path) or ""
    return int(text) if re.fullmatch(r"-?[0-9]{1,20}", text) else None


def _is_text(found: os.stat_result) -> bool:
    """Whether to read a file: a FIFO in somebody's folder would be waited for. Those of the kernel are of size 0."""
    return stat.S_ISREG(found.st_mode) and found.st_size <= _MAX_TEXT


def _below(root: str, path: str) -> str:
    """`path` with its links followed as that machine would: an absolute one starts at `root`, none leads out of it."""
    real: list[str] = []
    parts = path.split("/")[::-1]
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            del real[-1:]
        elif part not in ("", "."):
            target = _link(os.path.join(root, *real, part)) if links < _MAX_LINKS else ""
            links += bool(target)
            real = [] if target.startswith("/") else real
            parts += target.split("/")[::-1]
            real += [] if target else [part]
    return os.path.join(root, *real)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # no link
        return ""


def _length(listed: str) -> int:
    """How many a list of the kernel names: `0-15,32` are 17."""
    parts = [part.strip().partition("-") for part in listed.split(",")]
    pairs = [(first, last or first) for first, _, last in parts]
    ends = [(int(first), int(last)) for first, last in pairs if _NUMBER.fullmatch(first) and _NUMBER.fullmatch(last)]
    return sum(max(last - first + 1, 0) for first, last in ends)


def _is_address(text: str) -> bool:
    import socket

    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text.partition("%")[0])
        except (OSError, ValueError):
            continue
        return True
    return False


def _in_hosts(text: str, name: str) -> tuple[str, ...]:
    lines = [line.partition("#")[0].lower().split() for line in text.splitlines()]
    found = dict.fromkeys(words[0] for words in lines if name.lower() in words[1:])
    return tuple(filter(_is_address, found))


def _from_network(name: str, patience_s: float = 3.0) -> tuple[str, ...]:
    """What the resolver says. It may think for half a minute when no name server answers: it is left behind then."""
    import socket
    import threading

    found: list[str] = []

    def ask() -> None:
        try:
            found.extend(str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):  # no such name, or none that can be asked for
            pass

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    asker.join(patience_s)
    return tuple(dict.fromkeys(found))
