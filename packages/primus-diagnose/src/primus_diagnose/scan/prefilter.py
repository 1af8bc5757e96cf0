"""Finds the few lines that a signature may match, and says which: RE2 looks for all of them at once.

Its time is linear in the text, whatever that is. Patterns are Python's; what RE2 does not know (looking around) is left
out here, so that it finds too much rather than too little, and the exact pattern has the last word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import re2

from primus_core.errors import ConfigError
from primus_diagnose.scan.stacks import HEAD
from primus_diagnose.scan.tracebacks import BEGINS
from primus_diagnose.signatures.signature import Signature

__all__ = ["DIAGNOSIS", "Prefilter"]

DIAGNOSIS = "diagnosis: "
"""How the text of a diagnosis begins; its other lines are indented."""
_MEMORY = 64 << 20
_NAMED = re.compile(r"\(\?P<\w+>")
_LOOKS = re.compile(r"\(\?<?[!=]")
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.S)


class Prefilter:
    """All patterns of some signatures."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        """Compile them.

        Raises:
            ConfigError: a pattern has something that RE2 does not know.
        """
        self.signatures = [one for one in signatures if one.patterns]
        self.owners: list[Signature] = []
        self._set: Any = re2.Set.SearchSet(_options())
        parts = [*BEGINS, *map(re.escape, (HEAD, DIAGNOSIS))]
        for signature in self.signatures:
            for pattern in signature.patterns:
                parts.append(loosened(pattern))
                self._add(signature, parts[-1])
        if self.owners:
            self._set.Compile()
        self._any: Any = re2.compile("|".join(f"(?:{part})" for part in parts).encode(), _options())

    def _add(self, signature: Signature, pattern: str) -> None:
        try:
            self._set.Add(pattern.encode())
        except re2.error as error:
            raise ConfigError(
                f"the pattern {pattern!r} of '{signature.id}' cannot be searched for",
                why=str(error),
                fix="do without back references and conditions",
            ) from None
        self.owners.append(signature)

    def next_match(self, data: bytes, start: int) -> tuple[int, int] | None:
        """Where the next text is that may be a signature's."""
        match = self._any.search(data, start)
        return match.span() if match else None

    def candidates(self, line: bytes) -> Sequence[Signature]:
        """The signatures that may match a line, each once."""
        if not self.owners:
            return ()
        owners = (self.owners[index] for index in self._set.Match(line) or ())
        return list({one.id: one for one in owners}.values())


def loosened(pattern: str) -> str:
    """The pattern without names of groups, and without what it wants to stand before or behind. Nor does it want the
    line's beginning or end: before a line there may be prefixes.
    """
    pattern = _NAMED.sub("(?:", pattern)
    while match := _LOOKS.search(pattern):
        depth = 0
        for index, part in _parts(pattern, match.start()):
            depth += {"(": 1, ")": -1}.get(part, 0)
            if not depth:
                pattern = pattern[: match.start()] + pattern[index + 1 :]
                break
    return "".join(part for _, part in _parts(pattern) if part not in ("^", "$"))


def _parts(pattern: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """The pattern's characters, of which what is escaped and what stands in `[]` is one."""
    yield from ((match.start(), match[0]) for match in _PART.finditer(pattern, start))


def _options() -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.never_nl = True
    options.never_capture = True
    options.log_errors = False
    return options
