"""What a verification found, what it checked, and what it did not."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Finding", "Report"]


class Finding(NamedTuple):
    """One kind of fault."""

    check: str
    """index: it contradicts itself; data: it contradicts the index; format: Megatron does not write this;
    tokens, eod or duplicates."""
    what: str
    times: int = 1
    """How often."""
    examples: tuple[str, ...] = ()


class Report(NamedTuple):
    """The outcome."""

    prefix: str
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]
    findings: tuple[Finding, ...]
    documents: int = 0
    sequences: int = 0
    tokens: int = 0
    largest_token: int | None = None
    """None: the tokens were not read."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"valid": not self.findings} | self._asdict() | {"findings": [one._asdict() for one in self.findings]}
