"""Secrets hidden in what passes by, as a program prints it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from primus_machine.secrets.names import SECRET
from primus_machine.secrets.redaction import is_secret_name, redact_bytes
from primus_machine.secrets.rules import BEGIN_KEY, END_KEY, rules

__all__ = ["Mask", "PrivateKeys"]

# What a script says by `env.`, as bash shows it where a script has `set -x`: `+ echo env.HF_TOKEN=x`.
_TRACED = re.compile(rb"""\benv\.([A-Z_][A-Z0-9_]*)=([^\s'"$<]+)""")


def _untraced(match: re.Match[bytes]) -> bytes:
    return b"env.%b=%b" % (match[1], SECRET.encode()) if is_secret_name(match[1].decode()) else match[0]


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
