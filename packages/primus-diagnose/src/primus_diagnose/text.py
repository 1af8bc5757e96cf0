"""A verdict as text for people: the cause first, then what to do."""

from __future__ import annotations

import re
import shlex
import textwrap
import time
from collections.abc import Iterator

from primus_diagnose.reasoning.missing import spans
from primus_diagnose.scan.prefilter import DIAGNOSIS
from primus_diagnose.verdict import ANSWERS, Advice, Finding, Hit, Verdict
from primus_machine.units import counted

__all__ = ["listed", "render", "where"]

_WIDTH = 110
_MOST_OTHERS = 6
_HEADS = {
    "waiting": "the job has recorded nothing",
    "succeeded": "nothing failed",
    "running": "the run is running",
    "unfinished": "no end is recorded",
    "interrupted": "a signal ended the run",
    "stopped": "a hook ended the run",
}
"""Of answers without a cause."""


def render(verdict: Verdict, *, full: bool = False) -> str:
    """The verdict in some lines; `full`: all other findings, too."""
    return "\n".join([*_answer(verdict), *_others(verdict, full=full), *_missing(verdict), *_read(verdict)]) + "\n"


def _answer(verdict: Verdict) -> Iterator[str]:
    if not (cause := verdict.cause):
        yield f"{DIAGNOSIS}{_HEADS.get(verdict.answer, 'not in these logs')}"
        yield from _row("why", ANSWERS[verdict.answer].replace(" RUN`", f" {shlex.quote(verdict.run)}`"))
        return
    yield f"{DIAGNOSIS}{cause.title}"
    yield from _row("confidence", f"{verdict.confidence} ({cause.signature})")
    yield from _row("where", where(cause.first))
    if len(cause.ranks) > 1:
        yield from _row("ranks", _ranks(cause))
    yield from _row("line", cause.first.text)
    if cause.first.code:
        yield from _row("code", cause.first.code)
    yield from _row("means", cause.meaning)
    for number, step in enumerate((*map(_advice, verdict.advice), *cause.fix)):
        yield from _row("" if number else "do", f"- {step}")


def _row(name: str, text: str) -> list[str]:
    lead = f"  {name:<12}"
    hang = " " * (len(lead) + 2 * text.startswith("- "))
    whole = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\0"), text)  # a command to paste is one line
    lines = textwrap.wrap(whole, _WIDTH, initial_indent=lead, subsequent_indent=hang, break_on_hyphens=False,
                          break_long_words=whole == text)  # fmt: skip
    return [line.replace("\0", " ") for line in lines] or [lead]


def where(hit: Hit) -> str:
    """`rank 3 on node17, logs/rank_3.log:812, at 10:00:03`."""
    who = f"rank {hit.rank}" if hit.rank is not None else ""
    who += f"{' on ' if who else 'node '}{hit.node}" if hit.node else ""
    file = f"{hit.file}:{hit.line}" if hit.line else hit.file
    at = time.strftime("at %H:%M:%S", time.localtime(hit.time)) if hit.time is not None else ""
    return ", ".join(filter(None, (who, file, at)))


def _ranks(finding: Finding) -> str:
    return f"{spans(finding.ranks)} ({counted(len(finding.ranks), 'rank')})"


def _advice(advice: Advice) -> str:
    change = ""
    if advice.setting:
        before = "" if advice.before is None else f" from {_value(advice.before)}"
        after = "" if advice.after is None else f" to {_value(advice.after)}"
        change = f": {advice.setting}{before}{after}"
    cost = f" (cost: {advice.cost})" if advice.cost else ""
    words = f"; add: {advice.words}" if advice.words else ""
    return f"{advice.action}{change}{cost}{words}"


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _others(verdict: Verdict, *, full: bool) -> Iterator[str]:
    shown = [one for one in verdict.others if full or one.role in ("cause", "symptom")]
    most = len(shown) if full else _MOST_OTHERS
    for number, one in enumerate(shown[:most]):
        yield from _row("" if number else "also", f"- {_other(one)}")
    if len(shown) > most:
        yield from _row("", f"- {len(shown) - most} more (`--full`)")


def _other(one: Finding) -> str:
    many = f", {'at least ' if one.at_least else ''}{counted(one.count, 'line')}" if one.count > 1 else ""
    ranks = f", ranks {spans(one.ranks)}" if len(one.ranks) > 1 else ""
    why = f", follows from {one.follows}" if one.follows else ", and the run went on" if one.before_progress else ""
    return f"{one.role} {one.signature}: {one.title} ({where(one.first)}{ranks}{many}{why})"


def _missing(verdict: Verdict) -> Iterator[str]:
    if verdict.missing.ranks:
        yield from _row("missing", f"no log of ranks {spans(verdict.missing.ranks)}")
    for number, one in enumerate(verdict.missing.collect):
        yield from _row("" if number else "collect", f"- {one}")


def _read(verdict: Verdict) -> Iterator[str]:
    inputs = verdict.inputs
    size = f"{inputs.bytes / 1e6:,.1f} MB" if inputs.bytes >= 1e5 else f"{inputs.bytes:,} bytes"
    ranks = f" of {counted(inputs.ranks, 'rank')}" if inputs.ranks else ""
    yield from _row("read", f"{counted(inputs.files, 'file')}{ranks}, {size}")
    for one in inputs.skipped[:5]:
        yield from _row("not read", one)
    for one in inputs.outside[:5]:
        yield from _row("ignored", f"{one} from before the run began or after it ended")


def listed(rows: list[tuple[str, str, str, str]]) -> str:
    """The table of signatures: id, role, title, who brings it."""
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "".join(
        f"{'  '.join(f'{cell:<{width}}' for cell, width in zip(row, widths, strict=False))}  {row[3]}\n" for row in rows
    )
