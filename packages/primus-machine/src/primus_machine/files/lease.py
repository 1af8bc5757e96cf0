"""The lease on a directory: which process owns it. It works between hosts that share the file system.

    lease/<n>.json    host, process and user of the owner; the file's time is its latest sign of life

The highest number counts. Whoever takes over from a dead owner creates the next number, which only one process can: no
file is ever replaced or removed while somebody may decide by it. A file of the time 0 is a lease that was given back.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from primus_machine.errors import RequestError
from primus_machine.files import plain_json, trust
from primus_machine.files.atomic import create, create_whole, regular, staged
from primus_machine.host import HostRoot

__all__ = [
    "DEAD_AFTER_S",
    "EVERY_S",
    "FOLDER",
    "FRESH_S",
    "Held",
    "Lease",
    "identity",
    "lives",
    "look",
    "parsed",
    "process_start",
    "process_uid",
]

FOLDER = "lease"
EVERY_S = 10.0
"""So often an owner gives a sign of life."""
FRESH_S = 45.0
"""Where its process cannot be seen, an owner certainly lives that has given a sign since."""
DEAD_AFTER_S = 180.0
"""An owner on another host is considered dead after so long without one."""
_SUFFIX = ".json"
_FIELDS = ("host", "boot", "namespace", "pid", "began")
"""What tells one process from all others."""

_NO_FILE = (errno.EINVAL, errno.ELOOP, errno.EISDIR, errno.ENXIO)
"""What opening says where something else stands in a lease's place."""


class Held(NamedTuple):
    """A lease that somebody holds or held."""

    owner: Mapping[str, Any]
    """What its file says; empty where it cannot be read."""
    alive: bool
    here: bool
    """The owner's process can be seen from here, so that `alive` is certain."""
    silent_s: float
    """Seconds since the owner's latest sign of life, by the clock of the file system."""
    uid: int = -1
    """Whose file it is: whoever wrote it says all the rest."""
    writers: str = ""
    """Who else could have written it, in words."""

    @property
    def is_certain(self) -> bool:
        """Whether nothing else can be the case: the process is seen, or has just given a sign of life."""
        return self.here or (self.alive and abs(self.silent_s) < FRESH_S)

    def proves(self, directory: str, host: HostRoot) -> bool:
        """Whether the process that it names is certainly the owner's: seen here, alive, and of whoever wrote the lease.

        A stranger could write down any process. A file system that maps users may show the person as somebody else;
        that lease then counts for the person's own processes, where they trust the folder by name.
        """
        if not (self.here and self.alive) or self.writers or self._is_of_another(directory):
            return False
        uid = process_uid(self.owner["pid"], host)
        return uid == self.uid or (uid == os.geteuid() and trust.of(host.environ).is_named(directory))

    def _is_of_another(self, directory: str) -> bool:
        """Whether the lease is another run's: a stranger's link leads to it, or its directory was put in this place."""
        try:
            makers = {os.lstat(link).st_uid for link in trust.links(f"{directory}/{FOLDER}")}
        except OSError:
            return True
        return bool(makers - {0, self.uid, os.geteuid()}) or self.owner.get("run", _name(directory)) != _name(directory)

    def whose(self) -> str:
        """Who the owner is, in words."""
        pid, host, user = (self.owner.get(name) or "?" for name in ("pid", "host", "user"))
        since = self.owner.get("since")
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since)) if isinstance(since, int | float) else "?"
        return f"process {pid} of {user} on {host}, since {began}"

    def sign_of_life(self) -> str:
        """What is known of the owner's life, in words."""
        if not self.owner:
            return f"its lease cannot be read, and was written {max(self.silent_s, 0):.0f} s ago"
        if self.here:
            return "its process is running" if self.alive else "its process has ended"
        where = "it runs on another host or in another container"
        return f"{where}, and its latest sign of life was {max(self.silent_s, 0):.0f} s ago"


def look(directory: str, host: HostRoot) -> Held | None:
    """Who owns what `directory` holds; None: nobody, or a Primus that wrote no lease."""
    number = _highest(directory)
    return _held(directory, number, host) if number else None


def _name(directory: str) -> str:
    return os.path.basename(os.path.realpath(directory))


def _highest(directory: str) -> int:
    try:
        names = os.listdir(f"{directory}/{FOLDER}")
    except OSError:
        return 0
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return max((int(stem) for stem in stems if stem.isascii() and stem.isdecimal()), default=0)


def _path(directory: str, number: int) -> str:
    return f"{directory}/{FOLDER}/{number}{_SUFFIX}"


def _held(directory: str, number: int, host: HostRoot) -> Held | None:
    path = _path(directory, number)
    try:
        with open(path, "rb", opener=regular) as file:  # opening it makes a client of NFS ask for the file's time
            text, found = file.read(1 << 16), os.fstat(file.fileno())
            others = trust.writers(found, file.fileno())
    except FileNotFoundError:
        return None
    except OSError:  # somebody put it there; whose run it is, nobody can say
        text, found, others = b"", os.lstat(path), ""
    renewed = found.st_mtime
    if renewed < 1:
        return None
    owner = parsed(text)
    if (alive := lives(owner, host)) is not None:
        return Held(owner, alive, here=True, silent_s=0.0, uid=found.st_uid, writers=others)
    silent = _now(f"{directory}/{FOLDER}") - renewed
    alive = abs(silent) < DEAD_AFTER_S  # no life is in the future
    return Held(owner, alive, here=False, silent_s=silent, uid=found.st_uid)


def parsed(text: bytes) -> Mapping[str, Any]:
    """The owner that a lease names; empty: it names none."""
    try:
        data = plain_json.loads(text)
    except (ValueError, RecursionError):
        return {}
    whole = isinstance(data, dict) and all(name in data for name in _FIELDS)
    return data if whole and isinstance(data["pid"], int) and isinstance(data["began"], int) else {}


def lives(owner: Mapping[str, Any], host: HostRoot) -> bool | None:
    """Whether the process lives whose `identity` this is; None: it cannot be seen from here."""
    if not owner or not _same_machine(owner, identity(host)):
        return None
    return bool(owner["began"] == process_start(owner["pid"], host))


def _same_machine(owner: Mapping[str, Any], me: Mapping[str, Any]) -> bool:
    """Whether the owner's process number means the same process here."""
    return owner["began"] >= 0 and all(owner[name] == me[name] for name in ("host", "boot", "namespace"))


def identity(host: HostRoot) -> dict[str, Any]:
    """This process, so that no other is taken for it: numbers come again, after a reboot and in each namespace."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    boot = host.text("/proc/sys/kernel/random/boot_id") or ""
    return {
        "host": host.hostname(),
        "boot": boot,
        "namespace": namespace,
        "pid": os.getpid(),
        "began": process_start(os.getpid(), host),
    }


def process_start(pid: object, host: HostRoot) -> int:
    """When a process began, in clock ticks since the machine's start; -1: it has ended, or there is none."""
    text = (host.text(f"/proc/{pid}/stat") or "") if isinstance(pid, int) else ""
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) >= 20 and fields[0] not in "ZX" else -1


def process_uid(pid: object, host: HostRoot) -> int:
    """The real user of a process; -1: there is none."""
    text = (host.text(f"/proc/{pid}/status") or "") if isinstance(pid, int) else ""
    line = next((line for line in text.split("\n") if line.startswith("Uid:")), "")
    return int(line.split()[1]) if line else -1


def _now(folder: str) -> float:
    """The time by the clock that stamps the files in `folder`; by this host's own where nothing can be written."""
    path = staged(f"{folder}/.now")
    try:
        descriptor = create(path, mode=0o600)
        try:
            os.utime(path)  # the server's time, where a server keeps the files
            return os.stat(path).st_mtime
        finally:
            os.close(descriptor)
            os.unlink(path)
    except OSError:
        return time.time()


class Lease:
    """The lease on `directory`, as its owner holds it."""

    def __init__(self, directory: str, number: int, text: str) -> None:
        self.directory, self.number, self.text = directory, number, text
        self.renewed = time.monotonic()
        self.held = True

    @classmethod
    def take(cls, directory: str, host: HostRoot, *, user: str, job: Mapping[str, str]) -> Lease:
        """Take the lease; that of a dead owner is taken over. `job`: the scheduler's numbers for this process.

        Raises:
            RequestError: another process owns the directory, and is alive.
            OSError: it cannot be written.
        """
        os.makedirs(f"{directory}/{FOLDER}", exist_ok=True)
        text = json.dumps({**identity(host), "run": _name(directory), "user": user, "since": time.time(), **job})
        while True:
            number = _highest(directory)
            held = _held(directory, number, host) if number else None
            if held and held.alive and not _is_earlier_start(held.owner, job):
                raise in_use(directory, held)
            if create_whole(_path(directory, number + 1), text):
                return cls(directory, number + 1, text)

    def is_lost(self) -> bool:
        """Whether another process has taken the lease: this one was taken for dead, or has given it back."""
        if _highest(self.directory) > self.number:
            return True
        try:
            path = _path(self.directory, self.number)
            with open(path, encoding="utf-8", errors="surrogateescape", opener=regular) as file:
                return file.read() != self.text
        except FileNotFoundError:  # somebody removed it; whoever starts next shall find it
            return not self._restored()
        except OSError as error:
            return error.errno in _NO_FILE  # or the file system is away: the run goes on

    def _restored(self) -> bool:
        try:
            os.makedirs(f"{self.directory}/{FOLDER}", exist_ok=True)
            return create_whole(_path(self.directory, self.number), self.text)
        except OSError:  # the file system is away or full: the run goes on
            return True

    def look(self) -> None:
        """Give a sign of life, and end this process by SIGTERM if its lease is lost. Often called, it acts seldom."""
        now = time.monotonic()
        if not self.held or now - self.renewed < EVERY_S:
            return
        self.renewed = now
        if self.is_lost():
            self.held = False
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self._stamp()

    def release(self) -> None:
        """Give it back: whoever comes next need not wait."""
        if self.held:
            self.held = False
            self._stamp((0, 0))

    def _stamp(self, times: tuple[int, int] | None = None) -> None:
        try:
            os.utime(_path(self.directory, self.number), times)
        except OSError:  # the file system is away or full: the run goes on
            pass


def _is_earlier_start(owner: Mapping[str, Any], job: Mapping[str, str]) -> bool:
    """Whether the owner belongs to an earlier start of this very job: its scheduler starts it again after its end."""
    number, starts = job.get("job_id"), (owner.get("restart"), job.get("restart"))
    return bool(number and number == owner.get("job_id") and starts[0] != starts[1])


def in_use(directory: str, held: Held) -> RequestError:
    """The error for a directory that a live process owns."""
    return RequestError(
        f"the directory {directory} is in use",
        why=f"it is owned by {held.whose()}: {held.sign_of_life()}",
        fix=f"wait until it ends, stop it (primus stop {directory}), or start a run with another directory"
        + ("" if held.here else f"; an owner without a sign of life for {DEAD_AFTER_S:.0f} s is considered dead"),
    )
