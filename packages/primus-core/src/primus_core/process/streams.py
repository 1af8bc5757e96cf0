"""What the ranks print: read from named pipes, cut into lines, secrets masked, sorted to log files and console."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from primus_core.secrets.names import SECRET
from primus_core.secrets.redaction import is_secret_name, redact_bytes
from primus_core.secrets.rules import BEGIN_KEY, END_KEY, rules

__all__ = ["TROUBLE", "Channel", "Mask", "PrivateKeys", "RankPipes", "for_console", "shown"]

_PIPE_SIZE = 1 << 20
_BLOCK = 1 << 18
"""So much is read at a time: what is done once a block costs little a line."""
_LONGEST_LINE = 1 << 16
# What a rank other than 0 must say to be heard on the console.
_LOUD = re.compile(rb"\b(WARN|WARNING|ERROR|CRITICAL|FATAL)\b|^\s*[\w.]*(Error|Exception)\b")
# What a script says by `env.`, as bash shows it where a script has `set -x`: `+ echo env.HF_TOKEN=x`.
_TRACED = re.compile(rb"""\benv\.([A-Z_][A-Z0-9_]*)=([^\s'"$<]+)""")
_METRICS = re.compile(rb"\biteration \d+/\d+ \|")
TROUBLE = (b"WARN", b"ERROR", b"CRITICAL", b"FATAL", b"Error", b"Exception")
"""A line without one of these is not loud. The patterns above cost more than all else that is done with a line."""
_PERHAPS_LOUD = re.compile(b"|".join(TROUBLE))
_PERHAPS_METRICS = re.compile(rb"iteration \d")
_PERHAPS_EITHER = re.compile(b"|".join([*TROUBLE, rb"iteration \d"]))


def shown(rank: int, line: bytes, metrics_rank: int) -> bool:
    """Whether the console shows a rank's line: rank 0's, step metrics of the rank that has them, trouble of any."""
    if _METRICS.search(line):
        return rank == metrics_rank
    return rank == 0 or bool(_LOUD.search(line))


def for_console(rank: int, lines: bytes, metrics_rank: int) -> bytes:
    """What the console shows of a rank's whole lines."""
    if rank == 0:
        if not metrics_rank or not _PERHAPS_METRICS.search(lines):
            return lines
        return b"".join(line for line in lines.splitlines(keepends=True) if shown(rank, line, metrics_rank))
    perhaps = _with(_PERHAPS_EITHER if rank == metrics_rank else _PERHAPS_LOUD, lines)
    return b"".join(b"[rank%d] " % rank + line for line in perhaps if shown(rank, line, metrics_rank))


def _with(pattern: re.Pattern[bytes], lines: bytes) -> Iterator[bytes]:
    """The lines that have `pattern`, and those beside them that a progress bar wrote over."""
    at = 0
    while found := pattern.search(lines, at):
        start = lines.rfind(b"\n", at, found.start()) + 1 or at
        at = lines.find(b"\n", found.end()) + 1 or len(lines)
        yield from lines[start:at].splitlines(keepends=True)


def _untraced(said: re.Match[bytes]) -> bytes:
    return b"env.%b=%b" % (said[1], SECRET.encode()) if is_secret_name(said[1].decode()) else said[0]


class Mask:
    """Hides secret values in what passes by. A script may name further ones while it runs."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self.secrets: tuple[str, ...] = ()
        self.encoded: tuple[bytes, ...] = ()
        self.add(secrets)

    def add(self, secrets: Sequence[str]) -> None:
        """Hide these, too."""
        known = sorted({*self.secrets, *secrets}, key=len, reverse=True)
        self.secrets = tuple(known)
        self.encoded = tuple(secret.encode("utf-8", "surrogateescape") for secret in known)

    def __call__(self, text: bytes) -> bytes:
        if b"env." in text:
            text = _TRACED.sub(_untraced, text)
        return redact_bytes(text, self.encoded)

    def begun(self, text: bytes) -> int:
        """How many bytes at the end of `text` may be the beginning of a secret."""
        known = max((n for s in self.encoded for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
        return max(known, rules().begun(text))


class PrivateKeys:
    """Hides private keys in what one process prints: their lines come one by one."""

    _LONGEST = 400
    """After so many lines, what seemed to be one is none."""

    def __init__(self) -> None:
        self._left = 0

    @property
    def inside(self) -> bool:
        """Whether the next line is one of a key."""
        return bool(self._left)

    def __call__(self, lines: bytes) -> bytes:
        if not self._left and b"PRIVATE KEY" not in lines:
            return lines
        return b"".join(map(self._line, lines.splitlines(keepends=True)))

    def _line(self, line: bytes) -> bytes:
        inside, self._left = self._left, max(self._left - 1, 0)
        if END_KEY.search(line):
            self._left = 0
        elif BEGIN_KEY.search(line):
            self._left = self._LONGEST
        elif inside:
            return SECRET.encode() + line[len(line.rstrip(b"\r\n")) :]
        return line


@dataclass(slots=True)
class Channel:
    """One pipe of one process. `sink(data, whole)` gets masked text; `whole` is False for an unfinished line.

    `tap` gets each whole line before it is masked.
    """

    descriptor: int
    mask: Mask
    sink: Callable[[bytes, bool], None]
    tap: Callable[[bytes], None] | None = None
    keys: PrivateKeys = field(default_factory=PrivateKeys)
    _rest: bytes = field(default=b"")

    def read(self) -> bool:
        """Take what is there. False: there was nothing (or the writers are gone)."""
        try:
            data = os.read(self.descriptor, _BLOCK)
        except BlockingIOError:
            return False
        if not data:
            return False
        if end := data.rfind(b"\n") + 1:
            whole, self._rest = self._rest + data[:end], data[end:]
            self._pass(whole)
        else:
            self._rest += data
        if len(self._rest) > _LONGEST_LINE and self.tap:
            rest, self._rest = self._rest, b""
            self._pass(rest)
        elif len(self._rest) > _LONGEST_LINE:
            self.flush()
        return True

    def _pass(self, lines: bytes) -> None:
        if self.tap:
            for line in lines.splitlines():
                self.tap(line)
        self._give(self.mask(self.keys(lines)), True)

    def _give(self, text: bytes, whole: bool) -> None:
        self.sink(text, whole)

    def flush(self) -> None:
        """Hand on an unfinished line (a progress bar), less an end that may be the beginning of a secret."""
        if self.tap:
            return  # a script's line is read whole, or the secret in it would be told too late
        if self.keys.inside:
            return
        keep = self.mask.begun(self._rest)
        ready, self._rest = self._rest[: len(self._rest) - keep], self._rest[len(self._rest) - keep :]
        if ready:
            self._give(self.mask(ready), False)

    def finish(self) -> None:
        """Read to the end and hand on everything."""
        while self.read():
            pass
        if self._rest:
            self._pass(self._rest)
            self._rest = b""


class RankPipes:
    """A private folder with the named pipes `<rank>.out` and `<rank>.err` that ranks open."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self.folder = tempfile.mkdtemp(prefix="primus-")
        self.descriptors: dict[tuple[int, str], int] = {}
        for rank in ranks:
            for suffix in ("out", "err"):
                self.descriptors[rank, suffix] = _open_pipe(f"{self.folder}/{rank}.{suffix}")

    def __iter__(self) -> Iterator[tuple[int, str, int]]:
        for (rank, suffix), descriptor in self.descriptors.items():
            yield rank, suffix, descriptor

    def close(self) -> None:
        """Close and remove them. Ranks that still write get SIGPIPE."""
        for (rank, suffix), descriptor in self.descriptors.items():
            os.close(descriptor)
            os.unlink(f"{self.folder}/{rank}.{suffix}")
        os.rmdir(self.folder)


def _open_pipe(path: str) -> int:
    os.mkfifo(path, 0o600)
    # Read-write: without a writer of its own, the reader would see end-of-file before and between the ranks' writes.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    except OSError:  # over the user's limit for pipe memory: the default 64 KiB serve too
        pass
    return descriptor
