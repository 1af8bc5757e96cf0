"""The lines that end a launch on the console: what it came to, and what to type next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from primus_core.environment.resolve import OWNED, USER
from primus_core.journal import record, summary
from primus_core.journal.summary import Row
from primus_core.plan.plan import METRICS, Plan, Variable
from primus_core.runs.rundir import COMPLETED, short
from primus_machine.secrets.names import SECRET

if TYPE_CHECKING:
    from primus_core.outcome.failure import Failure

__all__ = ["last_step", "next_lines", "not_failed", "own_variables", "render", "without_once"]

_ONCE = {"--new": r"(?!)", "--continue": r"(?!-)(?!pretrain$)[^=]+", "--from": r".*"}
"""Options of the typed command that are not meant a second time, and what their values look like."""

_ANEW = "    # the same under another name"


def not_failed(plan: Plan, status: str, seconds: float, first: Failure | None = None) -> str:
    """The lines of a run that did not fail. `first`: what failed while it was interrupted."""
    directory = plan.place.directory
    rows = summary.read(f"{directory}/{METRICS}")
    after = next_lines(plan, status)
    failed = f"  failed rank {first.rank}: {first.what.splitlines()[0]}\n" if first else ""
    return render(rows, status=status, run_dir=short(directory), seconds=seconds, next_steps=after) + failed


def without_once(words: Sequence[str]) -> list[str]:
    """Return the words of a command without the options that are not meant a second time."""
    kept: list[str] = []
    option = ""
    for word in words:
        is_value = option and re.fullmatch(_ONCE[option], word)
        option = word if word in _ONCE else ""
        if not (is_value or word.partition("=")[0] in _ONCE):
            kept.append(word)
    return kept


def next_lines(plan: Plan, status: str, *, is_refusal: bool = False) -> tuple[str, ...]:
    """Commands worth typing next, made from the one that was typed. A secret in it cannot be typed again."""
    typed, own, directory = _typed(plan), own_variables(plan.environment), plan.place.directory
    if own is None or is_refusal:
        return ()
    rows = summary.read(f"{directory}/{METRICS}")
    if status == COMPLETED and not (rows and rows[-1]["loss"] is None):
        again = without_once(typed)
        more = plan.next_steps if again and SECRET not in " ".join(again) else ()
        anew = f"{_ANEW}, from the first step" if plan.continues else _ANEW
        return tuple(f"{own}{shlex.join([*again, *shlex.split(words)])}{anew}" for words in more)
    from primus_core.outcome.continuing import continuing_line  # not after a run that ended well

    line = continuing_line(typed, directory, plan.continues)
    return (f"{own}{line}",) if line else ()


def own_variables(environment: Iterable[Variable]) -> str | None:
    """Return the person's own variables of a plan, as one types them before a command; None: one is a secret."""
    own = [variable for variable in environment if variable.origin == USER and variable.name not in OWNED]
    if any(variable.secret for variable in own):
        return None
    return "".join(f"{variable.name}={shlex.quote(variable.value)} " for variable in own)


def _typed(plan: Plan) -> Sequence[str]:
    """What the person typed: a layer inside got its own words, and the run's record has theirs."""
    typed = record.read(plan.place.directory).command if plan.place.joined else ()
    return (typed or plan.command) if plan.framework else ()


def last_step(rows: Sequence[Row]) -> str:
    """`40/120, loss 4.21` of the newest step, or an empty string."""
    return f"{rows[-1]['step']}/{rows[-1]['steps']}, loss {_loss(rows[-1])}" if rows else ""


def _loss(row: Row) -> str:
    return "not finite" if row["loss"] is None else f"{row['loss']:.4f}"


def render(rows: Sequence[Row], *, status: str, run_dir: str, seconds: float, next_steps: Sequence[str]) -> str:
    """The closing lines of a run that completed or was interrupted."""
    lines = [f"primus: {status} in {_duration(seconds)}", f"  run    {run_dir}"]
    if rows:
        first, last = (f"{_loss(row)} at step {row['step']}" for row in (rows[0], rows[-1]))
        lines.append(f"  loss   {first}" + f" → {last}" * (first != last))
        latest = {row["step"]: row for row in rows}  # a step that was done again counts once
        speeds = [row["tokens_per_second"] for row in latest.values() if row.get("tokens_per_second")]
        if speeds:
            from statistics import median  # with it, fractions, decimals and random numbers: not before a launch

            lines.append(f"  speed  {median(speeds):,.0f} tokens/s (median over {len(speeds)} logged steps)")
    lines += [f"  {'next' if not index else '':<6} {step}" for index, step in enumerate(next_steps)]
    return "\n".join(lines) + "\n"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
