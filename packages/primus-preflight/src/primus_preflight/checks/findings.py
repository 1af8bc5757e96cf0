"""What a check found on one node: one row of the report, plain data, and the verdict of many."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any, Literal, get_args

__all__ = ["OF_ONE_NODE", "Compare", "Finding", "Severity", "Status", "load", "sound", "verdict"]

Status = Literal["pass", "warn", "fail", "skip", "unknown"]
"""`skip`: it does not apply here, `why` says why. `unknown`: it does, and could not be measured. Neither is a pass."""
Severity = Literal["fail", "warn"]
Cause = Literal["", "threshold", "capture"]
Compare = Literal["", "higher", "lower", "same", "pair-higher", "pair-lower", "all"]
OF_ONE_NODE: frozenset[Compare] = frozenset(("higher", "lower", "same"))
"""What a node has alone, and may be held against what it had before. What lies between two is not of one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """`gpu.pcie-speed`."""
    subject: str
    """Which of several: a PCI address, a port; empty: the node itself."""
    status: Status
    measured: str = ""
    expected: str = ""
    unit: str = ""
    source: str = ""
    """Who says what is expected."""
    why: str = ""
    fix: str = ""
    """What to type."""
    value: float | None = None
    """What was measured, as a number."""
    compare: Compare = ""
    """How it is judged beside other nodes: the higher or the lower is better, or all are the same; `pair-…`: it lies
    between this node and the one that `subject` names last, and together they tell which of the two it is; `all`: it
    is of all nodes together, and fails for all where one is at fault."""
    severity: Severity = "fail"
    """What the check says where it does not pass. A check that can only warn makes no node unfit, nor unknown."""
    share: float | None = None
    """The least share of what other pairs have that is good; where the lower is better, of its inverse."""
    cause: Cause = ""
    """Why it is unknown, where that is special: the check does not apply, but somebody has set its threshold; or a
    capture lacks what it reads."""

    @property
    def amount(self) -> str:
        """What was measured, in its unit: `8 lanes`, `1 GPU`; empty: nothing was."""
        one = self.measured == "1" and _THINGS.fullmatch(self.unit)
        return self.measured and f"{self.measured} {one[1] if one else self.unit}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


_THINGS = re.compile(r"((?:[A-Za-z]+ )*[A-Za-z]{2,}?)(?:(?<=ss)es|s)")
"""`lanes`, `uncorrected errors`, `processes`, and which word it is for one; `GB/s` and `µs` count nothing."""
_FIELDS = {field.name for field in fields(Finding)}
_WORDS = tuple(frozenset(get_args(words)) for words in (Status, Severity, Compare, Cause))
_TEXTS = attrgetter("check", "subject", "measured", "expected", "unit", "source", "why", "fix")


def sound(one: Finding) -> Finding:
    """The finding, if all of it is what it must be: it comes from a file, or from anybody's check.

    Raises:
        TypeError, ValueError, AttributeError: it is not, so that nothing is known.
    """
    "".join(_TEXTS(one)).encode()  # all are text, and can be written
    words = (one.status, one.severity, one.compare, one.cause)
    if not all(word in known for word, known in zip(words, _WORDS, strict=True)):
        raise ValueError(f"{', '.join(map(repr, words))} are not all words of a finding")
    for number in (one.value, one.share):
        if number is not None and not abs(number) <= sys.float_info.max:
            raise ValueError(f"{one.check}: its value is not a finite number")
    return one


def load(data: Mapping[str, Any]) -> Finding:
    """`to_dict` backwards, if it is sound. What a later version says besides is left out."""
    try:
        return sound(Finding(**data))  # there may be hundreds of thousands
    except TypeError:
        return sound(Finding(**{key: value for key, value in data.items() if key in _FIELDS}))


def verdict(findings: Iterable[Finding]) -> Literal["pass", "fail", "unknown"]:
    """Of a node. It passes where something was measured, nothing failed, and nothing is unknown that might have."""
    found = tuple(findings)
    if any(one.status == "fail" for one in found):
        return "fail"
    if any(one.status == "unknown" and one.severity == "fail" for one in found):
        return "unknown"
    return "pass" if any(one.status in ("pass", "warn") for one in found) else "unknown"
