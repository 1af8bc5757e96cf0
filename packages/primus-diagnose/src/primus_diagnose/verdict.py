"""What a diagnosis answers, as plain data: `to_dict` is what `primus diagnose --json` and `diagnosis.json` hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = [
    "ANSWERS",
    "CONFIDENCES",
    "SCHEMA",
    "SKEW_S",
    "Advice",
    "Finding",
    "Hit",
    "Inputs",
    "Missing",
    "Verdict",
    "from_dict",
]

SCHEMA = 1
SKEW_S = 5.0
"""Clocks of nodes differ by seconds: what is nearer together counts as at one time."""
ANSWERS = {
    "cause": "a cause was found",
    "symptoms": "only consequences of the cause were found: the cause is not in these logs",
    "nothing": "nothing known was found: the cause is not in these logs",
    "waiting": "the run was submitted, and its job has recorded nothing: it waits in the queue, or ended before Primus "
    "began (`primus runs show RUN` tells which; then the scheduler's own log of the job says more)",
    "running": "the run is running: it has not failed. If its ranks hang, nobody ends them unless it was started with "
    "`direct --hang-timeout 10m`, which also says where each rank is; `primus stop RUN` ends it",
    "unfinished": "the run has recorded no end: it is still running elsewhere, it was killed together with Primus, or "
    "nobody watched it (`primus runs show RUN` tells which)",
    "interrupted": "a signal ended the run (Ctrl-C, `primus stop`, its scheduler), and nothing failed before",
    "stopped": "a hook ended the run (`StopRun`; `primus runs show RUN` has its reason), and nothing failed before",
    "succeeded": "the run ended with exit code 0",
}
CONFIDENCES = {
    "certain": "this line names the cause by itself, and nothing else in the logs competes with it",
    "likely": "another cause was logged at about the same time, only the exception is known but not its reason, or no "
    "line names the cause and it follows from what the ranks were doing",
    "possible": "the run logged further steps after this line, the line is only a warning, or the cause follows only "
    "from the last lines of the ranks",
}


@dataclass(frozen=True, slots=True)
class Hit:
    """One line that a signature matches."""

    signature: str
    text: str
    """The line without its prefix and colours, cut to a length that can be shown."""
    file: str = ""
    line: int = 0
    """Its number in the file, from 1; 0: it is of no text file."""
    offset: int = 0
    """In bytes, from the file's beginning."""
    rank: int | None = None
    node: str = ""
    time: float | None = None
    """Seconds since the epoch: of the line, or of the nearest one above that has a time."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """What the pattern's named groups took."""
    code: str = ""
    """`train.py:12 in main`: where the program raised it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """All lines of one signature, and what they mean."""

    signature: str
    title: str
    category: str
    role: str
    """`cause`, `symptom`, `evidence` or `noise`."""
    severity: str
    count: int
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    first: Hit
    last: Hit
    meaning: str
    fix: tuple[str, ...]
    source: str = ""
    at_least: bool = False
    """There are more lines than `count`: the search for them ended."""
    before_progress: bool = False
    """The run logged further steps after the last of them."""
    follows: str = ""
    """The signature of the finding that this one is a consequence of."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do, with the run's own numbers."""

    action: str
    setting: str = ""
    before: Any = None
    after: Any = None
    cost: str = ""
    words: str = ""
    """What to add to the typed command."""


@dataclass(frozen=True, slots=True)
class Missing:
    """What the logs do not have, and what to collect."""

    ranks: tuple[int, ...] = ()
    """Ranks of the run without a log."""
    collect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was read."""

    files: int = 0
    bytes: int = 0
    ranks: int = 0
    """How many ranks the logs are of."""
    skipped: tuple[str, ...] = ()
    """Files that could not be read, each with the reason."""
    outside: tuple[str, ...] = ()
    """Logs with lines from before or after the run, which are not its cause, and how many."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer."""

    answer: str
    """One of `ANSWERS`."""
    confidence: str = ""
    """One of `CONFIDENCES`; empty: no cause was found."""
    cause: Finding | None = None
    advice: tuple[Advice, ...] = ()
    others: tuple[Finding, ...] = ()
    """The other findings, the most important first."""
    missing: Missing = Missing()
    inputs: Inputs = Inputs()
    run: str = ""
    """The run directory; empty: the logs are of no run of Primus."""

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON has it."""
        return {"schema": SCHEMA, **asdict(self)}


def from_dict(data: Mapping[str, Any]) -> Verdict:
    """The verdict that `to_dict` gave.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']!r}, and not {SCHEMA}")
    lists = {name: tuple(data["inputs"].get(name, ())) for name in ("skipped", "outside")}
    return Verdict(
        answer=data["answer"],
        confidence=data["confidence"],
        cause=_finding(data["cause"]) if data["cause"] else None,
        advice=tuple(Advice(**one) for one in data["advice"]),
        others=tuple(map(_finding, data["others"])),
        missing=Missing(**{name: tuple(value) for name, value in data["missing"].items()}),
        inputs=Inputs(**{**data["inputs"], **lists}),
        run=data["run"],
    )


def _finding(data: Mapping[str, Any]) -> Finding:
    lists = {name: tuple(data[name]) for name in ("ranks", "nodes", "fix")}
    return Finding(**{**data, **lists, "first": Hit(**data["first"]), "last": Hit(**data["last"])})
