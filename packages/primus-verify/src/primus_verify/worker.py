"""The worker of `verify`: trains the reference and each layout, and compares them.

It runs in a run directory that the task `verify` planned: python -m primus_verify.worker
"""

from __future__ import annotations

import json
import os
import sys

from primus_core.errors import MachineError, PrimusError
from primus_machine import variables
from primus_machine.host import HostRoot
from primus_machine.units import counted
from primus_verify import report
from primus_verify.layouts import parse
from primus_verify.session import Session
from primus_verify.task import EXPERIMENT, REQUEST, find_verifier
from primus_verify.trials import Trials

__all__ = ["main"]


def main() -> int:
    """Verify; the exit code.

    Raises:
        PrimusError: the reference cannot be trained, no layout can be tried, or one differs or fails.
    """
    environ = HostRoot().environ
    run = environ.get(variables.RUN_DIR, "")
    try:
        with open(f"{run}/{REQUEST}", encoding="utf-8") as file:
            request = json.load(file)
    except OSError as error:
        raise MachineError(f"{REQUEST} cannot be read", why=error.strerror or "",
                           fix="start it as `primus direct -- verify --config FILE`") from None  # fmt: skip
    folder = os.path.join(run, "trials")
    os.makedirs(folder, exist_ok=True)
    verifier = find_verifier(request["framework"])
    trials = Trials(verifier, folder, f"{run}/{EXPERIMENT}", environ, request["steps"], request["timeout_s"])
    console = sys.stderr if request["json"] else sys.stdout
    session = Session(trials, request["rtol"], lambda text: print(text, file=console, flush=True))
    results = session.verify([parse(text, verifier.rank_axes) for text in request["layouts"]])
    found = report.document(request, results, session.tolerance)
    report.write(found, f"{run}/verify.json")
    print(json.dumps(found, indent=1) if request["json"] else report.as_text(found), flush=True)
    if not any(one.is_tried for one in results):
        raise PrimusError("no layout could be tried", why="; ".join(f"{r.layout.name}: {r.why}" for r in results[:3]),
                          fix="choose others: --layouts dp=2")  # fmt: skip
    if wrong := [one for one in results if one.status in ("differs", "failed")]:
        first = wrong[0]
        why = f"{first.layout.name} {first.status}: {first.why or first.findings[0].text}"
        what = f"{len(wrong)} of {counted(len(results), 'layout')} cannot be trusted"
        raise PrimusError(what, why=why, fix=f"read {run}/verify.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
