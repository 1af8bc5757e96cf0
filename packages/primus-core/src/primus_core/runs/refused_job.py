"""A submitted job that is refused before it is planned: the run's record says why."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from primus_core import variables
from primus_core.journal import record
from primus_core.journal.record import FirstFailure
from primus_machine.errors import PrimusError
from primus_machine.secrets.redaction import redact, secret_values
from primus_machine.variables import OUTER, RUN_DIR

__all__ = ["refused"]


def refused(environ: Mapping[str, str], error: PrimusError, *, dry_run: bool = False) -> PrimusError:
    """What ends a submitted job before it is planned: the run's record says so, and files have their own names."""
    copies, directory = environ[variables.SUBMITTED], environ.get(RUN_DIR, "")
    error = error.retold(lambda text: redact(text.replace(f"{copies}/files/", "/"), secret_values(environ)))
    known = record.read(directory)
    if dry_run or environ.get(OUTER) or known.status != "submitted":  # of a node, others tell
        return error
    failure = FirstFailure(what=error.each()[0].what)
    with suppress(OSError):
        ended = replace(known, status="failed", exit_code=error.exit_code, ended=time.time(), first_failure=failure)
        record.write(directory, ended)
    return error
