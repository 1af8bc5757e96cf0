"""The answer: the cause and how sure it is, what else was found, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from primus_diagnose.inputs.gathered import Gathered
from primus_diagnose.lines.level import is_warning
from primus_diagnose.reasoning import collectives, hangs, missing
from primus_diagnose.reasoning.findings import findings, made, read_in
from primus_diagnose.reasoning.order import collapsed, confidence, ordered
from primus_diagnose.scan.tally import FileResult
from primus_diagnose.signatures.catalogue import Catalogue
from primus_diagnose.verdict import Finding, Hit, Inputs, Verdict
from primus_machine.units import counted

__all__ = ["judge"]

_ROLES = ("cause", "symptom", "evidence", "noise")
_OPEN = ("symptoms", "nothing", "unfinished")
"""Answers that more logs may change."""
_ROOT, _ROW = "elastic.root_cause", "elastic.rank"


def judge(catalogue: Catalogue, gathered: Gathered, results: Sequence[FileResult]) -> Verdict:
    """The verdict on what was found in the sources of `gathered`."""
    read = read_in(gathered.sources, results)
    found = findings(catalogue, read)
    known = gathered.known_ranks()
    seen = hangs.inferred(gathered.hang) or collectives.inferred(read, gathered.dumps, known)
    found += _inferred(catalogue, seen)
    found = collapsed(catalogue, found)
    symptoms = [one for one in found if one.role == "symptom"]
    victims = {rank for one in symptoms for rank in one.ranks}
    blamed = _blamed(gathered, read)
    has_succeeded = bool(gathered.run) and gathered.record.exit_code == 0
    possible = [] if has_succeeded else [one for one in found if _may_be_cause(one, has_symptoms=bool(symptoms))]
    possible = [one for one in possible if not _ends_a_victim(catalogue, one, symptoms)]
    causes = ordered(catalogue, possible, blamed, victims)
    causes = [_with_rank(causes[0], causes[1:], blamed), *causes[1:]] if causes else []
    others = causes[1:] + sorted((one for one in found if one not in possible), key=_importance)
    others = [one for one in others if not (causes and _is_line_of(catalogue, one, causes[0]))]
    answer = _answer(gathered, causes, symptoms)
    return Verdict(
        answer=answer,
        confidence=confidence(catalogue, causes) if causes else "",
        cause=causes[0] if causes else None,
        others=tuple(others),
        missing=missing.of(gathered, known, found, is_answered=answer not in _OPEN),
        inputs=_inputs(gathered, results),
        run=gathered.run,
    )


def _answer(gathered: Gathered, causes: Sequence[Finding], symptoms: Sequence[Finding]) -> str:
    """One of `ANSWERS`."""
    if gathered.run and gathered.record.exit_code == 0:
        return "succeeded"
    if causes:
        return "cause"
    if gathered.run and gathered.record.status in ("interrupted", "stopped"):
        return gathered.record.status
    if gathered.run and gathered.record.status == "submitted":
        return "waiting"
    if gathered.run and gathered.record.ended is None:
        return "running" if gathered.is_running else "unfinished"
    return "symptoms" if symptoms else "nothing"


def _may_be_cause(one: Finding, *, has_symptoms: bool) -> bool:
    """Whether it can be the reason of a failure. A warning that the run survived is none where nothing failed."""
    is_only_warned = one.severity in ("warn", "info") or is_warning(one.first.text)
    return one.role == "cause" and (has_symptoms or not (one.before_progress and is_only_warned))


def _ends_a_victim(catalogue: Catalogue, one: Finding, symptoms: Iterable[Finding]) -> bool:
    """Whether it only ends ranks that had symptoms before: one aborts after the timeout of its collective."""
    before = [other for other in symptoms if other.signature == one.follows and {*one.ranks} <= {*other.ranks}]
    return catalogue[one.signature].generic and bool(before)


def _is_line_of(catalogue: Catalogue, one: Finding, cause: Finding) -> bool:
    """Whether it is the very line of the cause, and knows less of it."""
    lines = [(found.first.file, found.first.line, found.first.text) for found in (one, cause)]
    return catalogue[one.signature].generic and lines[0] == lines[1]


def _inferred(catalogue: Catalogue, hits: Iterable[Hit]) -> list[Finding]:
    by_signature: dict[str, list[Hit]] = {}
    for hit in hits:
        by_signature.setdefault(hit.signature, []).append(hit)
    return [
        made(catalogue[name], one[0], count=len(one), ranks=(hit.rank for hit in one), nodes=(hit.node for hit in one))
        for name, one in by_signature.items()
        if name in catalogue.by_id
    ]


def _with_rank(cause: Finding, others: Sequence[Finding], blamed: int | None) -> Finding:
    """The cause; where its line names no rank, with that of a consequence of it: a kernel knows no ranks."""
    if cause.first.rank is not None:
        return cause
    consequences = [one.first.rank for one in others if one.follows == cause.signature and one.first.rank is not None]
    rank = next(iter(consequences), blamed)
    if rank is None:
        return cause
    return replace(cause, first=replace(cause.first, rank=rank), ranks=tuple({*cause.ranks, rank}))


def _importance(one: Finding) -> tuple[int, float, str, int]:
    return _ROLES.index(one.role), one.first.time or 0.0, one.first.file, one.first.line


def _blamed(gathered: Gathered, results: Iterable[FileResult]) -> int | None:
    """The rank that the launcher saw fail first; None: it does not say."""
    first = gathered.record.first_failure
    if first and first.rank >= 0:
        return first.rank
    for result in results:
        hits = [tally.last for tally in result.tallies.values()]
        heads = [hit.line for hit in hits if hit.signature == _ROOT]
        rows = [hit for hit in hits if hit.signature == _ROW and heads and hit.line > max(heads)]
        if rows:
            return min(rows, key=lambda hit: hit.line).rank
    return None


def _inputs(gathered: Gathered, results: Sequence[FileResult]) -> Inputs:
    unread = [f"{one.path}: {one.skipped}" for one in results if one.skipped]
    ranks = {key[1] for one in results for key in one.tallies if key[1] is not None} | gathered.known_ranks()
    return Inputs(
        files=len({one.path for one in results}) + len(gathered.dumps),
        bytes=sum(one.size for one in results),
        ranks=len(ranks),
        skipped=(*gathered.skipped, *unread),
        outside=tuple(f"{one.path}: {counted(one.outside, 'line')}" for one in results if one.outside),
    )
