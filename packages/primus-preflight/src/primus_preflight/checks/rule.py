"""What is expected of a thing that a check looks at, with unit and source, and the findings that follow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from primus_preflight.checks.findings import Compare, Finding, Severity, Status

__all__ = ["BOUNDS", "Rule"]

BOUNDS = ("floor", "limit", "allowed", "share", "of_speed")
"""What of a rule says what is good."""
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_PORT = re.compile(r"([A-Za-z0-9_.-]+):[0-9]+")
_OF_INTERFACES = ("network.interface", "network.mtu")
"""Checks whose subject is a network interface."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of `thresholds.toml`. A number has a floor or a limit, a word is one of those allowed."""

    check: str
    severity: Severity = "fail"
    floor: float | None = None
    """The least that is good."""
    limit: float | None = None
    """The most that is good."""
    allowed: tuple[str, ...] = ()
    expected: str = ""
    """In words, where no number or word says it."""
    unit: str = ""
    source: str = ""
    fix: str = ""
    compare: Compare = ""
    share: float | None = None
    """Of a pair of nodes: the least share of what other pairs have."""
    of_speed: float | None = None
    """Of a pair of nodes: the least share of what the slower interface says it can do."""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What is different for a GPU model."""
    explicit: Severity | None = None
    """The site or the launch has set what is good: it is never skipped. How much it counts if it cannot be measured."""

    def of(self, model: str) -> Rule:
        """The rule for one GPU model. A check gets that of its node's GPUs, where they are of one model."""
        return replace(self, **self.models.get(model, {}))

    @property
    def takes(self) -> tuple[str, ...]:
        """What a site may say of it: what it has itself, and of a number both bounds."""
        has = {name for name in BOUNDS if getattr(self, name) not in (None, ())}
        has.update(*self.models.values())
        if self.unit or has & {"floor", "limit"}:
            has |= {"floor", "limit"}
        return (*(name for name in BOUNDS if name in has), "severity", "source", "fix", "models")

    @property
    def is_explicit(self) -> bool:
        """Whether somebody has set what is good, for all models or for one."""
        return any((self.explicit, *(own.get("explicit") for own in self.models.values())))

    @property
    def remedy(self) -> str:
        """The fix, with what is expected here: pasted, it brings that about."""
        fix = self.fix.replace("ALLOWED", self.allowed[-1]) if self.allowed else self.fix
        return fix if self.floor is None else fix.replace("FLOOR", f"{self.floor:.12g}")

    @property
    def is_set(self) -> bool:
        """Whether anything is expected. For an unknown model, there may be no expectation."""
        return self.floor is not None or self.limit is not None or bool(self.allowed)

    def number(self, subject: str, value: float | None, *, measured: str = "", why: str = "") -> Finding:
        """The finding for a number; None: it could not be read, `why` says what."""
        if value is None:
            return self.unknown(subject, why)
        status: Status = "pass" if self._holds(value) else self.severity
        return replace(
            self._found(subject, status, measured or f"{value:.12g}", "" if status == "pass" else why), value=value
        )

    def _holds(self, value: float) -> bool:
        above = self.floor is None or value >= self.floor
        return above and (self.limit is None or value <= self.limit)

    def word(self, subject: str, text: str | None, *, why: str = "") -> Finding:
        """The finding for a word; None: it could not be read, `why` says what."""
        if text is None:
            return self.unknown(subject, why)
        return self._found(subject, "pass" if text in self.allowed else self.severity, text, "")

    def good(self, subject: str, measured: str, value: float | None = None) -> Finding:
        """Measured, and as expected."""
        return replace(self._found(subject, "pass", measured, ""), value=value)

    def bad(self, subject: str, measured: str, why: str = "", value: float | None = None) -> Finding:
        """Measured, and not as expected."""
        return replace(self._found(subject, self.severity, measured, why), value=value)

    def unknown(self, subject: str, why: str) -> Finding:
        """It could not be measured. What would mend a breach is no help then."""
        fix = f"make it readable, as root or inside the container, or skip the check: --skip {self.check}"
        found = replace(self._found(subject, "unknown", "", why), compare="", fix=fix)
        return replace(found, severity=self.explicit) if self.explicit else found

    def skip(self, why: str, subject: str = "") -> Finding:
        """It does not apply here. A threshold that somebody has set is not met by that."""
        if not self.explicit:
            return self.moot(why, subject)
        fix = f"remove the threshold ({self.source}), or skip the check: --skip {self.check}"
        found = self.unknown(subject, f"{why}, so the threshold that was set cannot be checked")
        return replace(found, fix=fix, cause="threshold")

    def moot(self, why: str, subject: str = "") -> Finding:
        """There is nothing that a threshold could hold for, such as a link to other nodes where there is one node."""
        return replace(self._found(subject, "skip", "", why), fix="", compare="")

    def none(self, why: str) -> Finding:
        """There are none of what is counted: too few for a floor that was set, and where other nodes have some."""
        if self.explicit:
            return self.number("", 0, why=why)
        return replace(self._found("", "skip", "0", why), value=0.0, fix="")

    def _found(self, subject: str, status: Status, measured: str, why: str) -> Finding:
        return Finding(
            check=self.check,
            subject=subject,
            status=status,
            measured=measured,
            expected=self.expected or self._bounds(),
            unit=self.unit,
            source=self.source,
            why=why,
            # What passes here may yet be worse than on other nodes.
            fix="" if status == "pass" and not self.compare else _filled(self.remedy, self.check, subject),
            compare=self.compare,
            severity=self.severity,
            share=self.share,
        )

    def _bounds(self) -> str:
        bounds = {"≥": self.floor, "≤": self.limit}
        parts = [f"{sign} {bound:.12g}" for sign, bound in bounds.items() if bound is not None]
        return " and ".join(parts) or " or ".join(self.allowed)


def _filled(fix: str, check: str, subject: str) -> str:
    """With the device that was looked at in the place of what stands for it, so that it can be pasted."""
    first = subject.split(" ", maxsplit=1)[0]  # a partition is of the GPU before it
    if _PCI.fullmatch(first):
        return fix.replace("ADDRESS", first).replace("-g GPU", f"-g {first}")
    if port := _PORT.fullmatch(first):
        return fix.replace("DEVICE", port[1])
    return fix.replace("INTERFACE", first) if check in _OF_INTERFACES and first else fix
