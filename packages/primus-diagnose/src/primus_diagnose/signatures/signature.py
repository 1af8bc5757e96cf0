"""One failure signature, and the rules that every one keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

__all__ = ["Signature", "mistakes"]

Severity = Literal["fatal", "error", "warn", "info"]
Role = Literal["cause", "symptom", "evidence", "noise"]
_ID = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Signature:
    """What lines match, and what they mean. `docs/signatures.md` describes each field."""

    id: str
    title: str
    category: str
    severity: Severity
    role: Role
    meaning: str
    fix: list[str]
    source: str
    patterns: list[str] = field(default_factory=list)
    """Python regular expressions. None: a rule finds it, no line."""
    samples: list[str] = field(default_factory=list)
    not_samples: list[str] = field(default_factory=list)
    follows: list[str] = field(default_factory=list)
    """Signatures (`oom.*`) that this one is a consequence of, where both are found."""
    remedies: list[str] = field(default_factory=list)
    """Names in `remedies.toml`: fixes that the run's own settings fill in."""
    persists: bool = False
    """Further steps after the line say nothing against it: a loss that is nan, a slow GPU."""
    generic: bool = False
    """It says that something failed, and not what: any other cause is preferred."""
    reported_late: bool = False
    """The line is written when all is over, as those of schedulers: its time says nothing."""

    @cached_property
    def compiled(self) -> tuple[re.Pattern[str], ...]:
        """The patterns."""
        return tuple(map(re.compile, self.patterns))

    def search(self, text: str) -> re.Match[str] | None:
        """The first pattern's match in a line."""
        return next((match for pattern in self.compiled if (match := pattern.search(text))), None)

    def groups(self, match: re.Match[str]) -> dict[str, str]:
        """What the named groups took: `port2`, of another pattern, is the `port` as well."""
        return {name.rstrip("0123456789"): value for name, value in match.groupdict().items() if value is not None}


def mistakes(signature: Signature) -> list[str]:
    """What is wrong with a signature by itself, in words; nothing: it is right."""
    found = [] if _ID.fullmatch(signature.id) else [f"the id '{signature.id}' is not like 'storage.disk_full'"]
    found += [f"'{name}' is empty" for name in ("title", "meaning", "source") if not getattr(signature, name).strip()]
    found += [] if signature.fix or signature.role in ("evidence", "noise") else ["it has no fix"]
    for pattern in signature.patterns:
        found += _of_pattern(pattern)
    if found:
        return found
    known = {name.rstrip("0123456789") for pattern in signature.compiled for name in pattern.groupindex}
    used = {name for text in (signature.title, *signature.fix) for name in _PLACEHOLDER.findall(text)}
    found += [f"'{{{name}}}' is not a group of its patterns" for name in sorted(used - known) if signature.patterns]
    found += [f"no pattern matches its sample {text!r}" for text in signature.samples if not signature.search(text)]
    found += [f"a pattern matches its not_sample {text!r}" for text in signature.not_samples if signature.search(text)]
    return found if signature.samples or not signature.patterns else [*found, "it has no sample"]


def _of_pattern(pattern: str) -> list[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        return [f"the pattern {pattern!r} is not a regular expression: {error}"]
    return [f"the pattern {pattern!r} matches an empty line"] if compiled.search("") else []
