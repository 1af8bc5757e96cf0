"""An error that ends the command line as a message: what happened, why, and the command that was meant."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping

from primus_core import variables
from primus_core.cli import commands
from primus_machine.errors import PrimusError, as_line
from primus_machine.secrets.redaction import redact, secret_values
from primus_machine.text import printable
from primus_machine.variables import OUTER

__all__ = ["explain"]


def explain(error: Exception, words: list[str], environ: Mapping[str, str]) -> int:
    """Write the message of `error`, which ended the command line `words`; the exit code.

    Raises:
        Exception: `error`, where it is a bug of Primus.
    """
    if not isinstance(error, PrimusError):
        from primus_core.installed import faults

        if not (found := faults.of_plugin(error)):
            sys.stderr.write("primus: this is a bug in Primus; please report it with the lines below\n")
            raise error
        error = found
    if environ.get(variables.SUBMITTED):
        from primus_core.runs import refused_job

        error = refused_job.refused(environ, error, dry_run="--dry-run" in words)
    several = error.each()
    if error.exit_code == 2:
        from primus_core.cli import hints, proposed

        for one in several:
            told = one.fix if environ.get(OUTER) else hints.retyped(words, one, several)  # nobody typed these words
            fix = proposed.checked(told, hints.retyped)
            one.fix = "\n".join(proposed.with_variables(line, environ) for line in fix.split("\n"))
            if "--dry-run" in words:  # what was to be shown shall not start once it is pasted
                one.fix = "\n".join(map(_shown, one.fix.split("\n")))
            if "--config" in words[:-1]:
                named = shlex.quote(words[words.index("--config") + 1])
                one.fix = one.fix.replace("config validate FILE", f"config validate {named}")
    text = "".join(map(as_line, several))
    text += f"primus: {len(several)} errors\n" if len(several) > 1 else ""
    if "--debug" in words:
        import traceback

        text = "".join(traceback.format_exception(error)) + text
    sys.stderr.write(printable(redact(text, secret_values(environ)), "\n\t"))
    return error.exit_code


def _shown(line: str) -> str:
    """A line of a fix; the command in it, once it is pasted, does not start what was to be shown."""
    found = re.search(r"\bprimus replay |\bprimus (\S+) .*-- ", line)
    starts = found and found[1] not in commands.names() and "--dry-run" not in line
    return re.sub(r"(?<![`(])\bprimus (?=[a-z])", "primus --dry-run ", line) if starts else line
