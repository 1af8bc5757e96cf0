"""Flags that Primus adds to a scheduler's command by itself. Where a look-alike refuses one, it starts without."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from primus_core.plan.plan import AddedFlag, Step
from primus_machine.supervision.program import Ended

__all__ = ["refused", "started"]

_REFUSES = re.compile(
    r"(?i)unrecogni[sz]ed|unexpected|unknown|invalid|illegal|unsupported|no such|not supported|not defined|"
    r"does(?: not|n't) (?:know|support|exist|have)|bad (?:flag|option)"
)
"""How parsers of options say that they have none of a name."""


def started(step: Step, run: Callable[[Step], Ended], printed: Callable[[], str], note: Callable[[str], None]) -> Ended:
    """Run a step, again without flags of Primus that its program refuses. `printed`: what the last start printed."""
    while True:
        ended = run(step)
        gone = refused(step, printed()) if ended.exit_code and not ended.signal else ()
        if not gone:
            return ended
        if needed := ", ".join(flag.name for flag in gone if not flag.loss):
            what = f"it does not support {needed}, which Primus added and cannot do without"
            return replace(ended, exit_code=3, not_started=what)
        names = ", ".join(flag.name for flag in gone)
        note(f"{step.argv[0]} does not support {names}, which Primus added: starting without it")
        for flag in gone:
            note(f"without {flag.name}: {flag.loss}")
        step = without(step, gone)


def without(step: Step, gone: tuple[AddedFlag, ...]) -> Step:
    """Return the step without some of its added flags."""
    words = {flag.word for flag in gone}
    # Only the first of each: behind the program's own words comes the inner command.
    argv = list(step.argv)
    for word in words & set(argv):
        argv.remove(word)
    return step._replace(argv=tuple(argv), added=tuple(flag for flag in step.added if flag not in gone))


def refused(step: Step, printed: str) -> tuple[AddedFlag, ...]:
    """Return the added flags that a program says it does not know."""
    lines = [line for line in printed.splitlines() if _REFUSES.search(line)]
    return tuple(
        flag
        for flag in step.added
        if any(re.search(rf"(?<![\w-])-{{0,2}}{flag.name[2:].replace('-', '[-_]')}(?![\w-])", line) for line in lines)
    )
