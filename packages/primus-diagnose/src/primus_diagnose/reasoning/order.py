"""Which of several causes is the cause: each rule of `docs/diagnose.md` is one element of a sort key."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from primus_diagnose.lines.level import is_handled
from primus_diagnose.reasoning.collectives import LINES, STACKS
from primus_diagnose.signatures.catalogue import Catalogue
from primus_diagnose.verdict import SKEW_S, Finding

__all__ = ["collapsed", "confidence", "ordered"]

_SEVERITY = {"fatal": 0, "error": 1, "warn": 2, "info": 3}
_LATE = 1e18


def collapsed(catalogue: Catalogue, found: Sequence[Finding]) -> list[Finding]:
    """The same; each finding that is a known consequence of another one names it."""
    return [replace(one, follows=_origin(catalogue, one, found)) for one in found]


def _origin(catalogue: Catalogue, one: Finding, found: Sequence[Finding]) -> str:
    """What `one` follows from. Of two that name each other, the earlier one is the origin."""
    origins = set(catalogue.matching(catalogue[one.signature].follows)) - {one.signature}
    there = [other for other in found if other.signature in origins and _may_be_origin(catalogue, one, other)]
    there = [other for other in there if not _is_mutual(catalogue, one, other) or _is_first(other, one)]
    there.sort(key=lambda other: (other.role != "cause", _time(other)))
    return there[0].signature if there else ""


def _may_be_origin(catalogue: Catalogue, one: Finding, other: Finding) -> bool:
    """What the run survived is the reason of nothing that ended it; nor is what only warns, or came later.

    The end of a step is only told of, and is the reason of what its launcher tells of below.
    """
    if other.role in ("evidence", "noise"):
        return False
    is_told_of = other.role == "symptom" and other.first.file == one.first.file and _is_first(other, one)
    if _SEVERITY[other.severity] > _SEVERITY["error"] and not is_told_of:
        return False
    was_seen_hanging = other.first.groups.get("from") == STACKS  # at the end of the limit; it had hung since long
    is_late = catalogue[other.signature].reported_late or was_seen_hanging
    return (one.before_progress or not other.before_progress) and (is_late or not _is_later(other, one))


def _is_later(other: Finding, one: Finding) -> bool:
    """Whether the clocks say so for certain."""
    return None not in (other.first.time, one.first.time) and _time(other) > _time(one) + SKEW_S


def _is_first(one: Finding, other: Finding) -> bool:
    """Whether it comes before the other; in two logs, at the same time will do."""
    in_one_log = one.first.file == other.first.file
    return one.first.line < other.first.line if in_one_log else _time(one) <= _time(other)


def _is_mutual(catalogue: Catalogue, one: Finding, other: Finding) -> bool:
    return one.signature in catalogue.matching(catalogue[other.signature].follows)


def ordered(
    catalogue: Catalogue, causes: Sequence[Finding], blamed: int | None, victims: Collection[int]
) -> list[Finding]:
    """The causes, the one to name first. `blamed`: the rank that the launcher saw fail first. `victims`: ranks that
    logged symptoms.
    """
    begin = min((_time(one) for one in causes if _counts(catalogue, one)), default=_LATE)

    def key(one: Finding) -> tuple[bool | float | str | int, ...]:
        signature = catalogue[one.signature]
        moment = _time(one)
        is_early = signature.reported_late or one.first.time is None or moment <= begin + SKEW_S
        return (
            one.first.groups.get("from") == LINES,
            one.before_progress,
            _only_warns(one),
            bool(one.follows),
            0.0 if is_early else moment,
            signature.generic,
            _SEVERITY[one.severity],
            blamed is not None and one.first.rank != blamed,
            one.first.rank in victims,
            moment,
            one.first.file,
            one.first.line,
        )

    return sorted(causes, key=key)


def _counts(catalogue: Catalogue, one: Finding) -> bool:
    """Whether its time says when the failure began."""
    is_bad = not _only_warns(one) and not one.before_progress and not one.follows
    return is_bad and not catalogue[one.signature].reported_late


def _only_warns(one: Finding) -> bool:
    """Whether it is a warning, or the program itself says so in each line: it did without an optional module."""
    return one.severity in ("warn", "info") or (is_handled(one.first.text) and is_handled(one.last.text))


def _time(one: Finding) -> float:
    return _LATE if one.first.time is None else one.first.time


def confidence(catalogue: Catalogue, causes: Sequence[Finding]) -> str:
    """How sure the first of the ordered causes is."""
    first, *others = causes
    signature = catalogue[first.signature]
    if first.before_progress or _only_warns(first) or first.first.groups.get("from") == LINES:
        return "possible"
    if signature.generic or not signature.patterns or any(_competes(catalogue, first, one) for one in others):
        return "likely"
    return "certain"


def _competes(catalogue: Catalogue, first: Finding, other: Finding) -> bool:
    """Whether `other` could be the cause as well: as severe, at about the same time, and of another kind."""
    if (
        other.before_progress
        or other.follows
        or _only_warns(other)
        or catalogue[other.signature].generic
        or not catalogue[other.signature].patterns
    ):
        return False
    is_near = None in (first.first.time, other.first.time) or abs(_time(first) - _time(other)) <= SKEW_S
    return is_near and other.category != first.category and _SEVERITY[other.severity] <= _SEVERITY[first.severity]
