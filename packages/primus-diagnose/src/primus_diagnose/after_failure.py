"""Diagnoses a run that has failed: Primus runs this once, when all of it has ended.

python -m primus_diagnose.after_failure RUN_DIRECTORY EXIT_CODE

What it finds is on the console, unless it has been said there, and in `diagnosis.json` of the run directory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from primus_core.config import system
from primus_core.errors import PrimusError
from primus_diagnose.diagnosis import FILE, of_gathered
from primus_diagnose.inputs import this_node
from primus_diagnose.inputs.find import gather
from primus_diagnose.signatures.catalogue import Catalogue, built_in, load
from primus_diagnose.text import render
from primus_diagnose.verdict import Verdict
from primus_machine.files import plain_json
from primus_machine.files.atomic import write_atomically
from primus_machine.host import HostRoot

__all__ = ["main"]

_OWN = "primus.error"


def main(argv: Sequence[str]) -> int:
    """Diagnose the run in `argv[0]`."""
    directory, host = argv[0], HostRoot()
    verdict = _verdict(directory, host)
    try:
        write_atomically(f"{directory}/{FILE}", plain_json.dumps(verdict.to_dict(), indent=1))
    except OSError as error:  # the disk may be what failed
        sys.stderr.write(f"primus: {FILE} could not be written: {error.strerror}\n")
    if not _is_on_console(verdict):
        sys.stdout.write(f"\n{render(verdict)}")
    return 0


def _is_on_console(verdict: Verdict) -> bool:
    """Whether rank 0 has just said all of it: an error of Primus's own, with its reason and what to do."""
    cause = verdict.cause
    return cause is not None and cause.signature == _OWN and not cause.first.rank


def _verdict(directory: str, host: HostRoot) -> Verdict:
    gathered = gather([directory], host)
    gathered.sources += this_node.evidence(host, gathered.record)
    return of_gathered(_signatures(host), gathered, host)


def _signatures(host: HostRoot) -> Catalogue:
    """All signatures; where somebody's are wrong, those of this package: the run shall be diagnosed all the same."""
    try:
        return load(host, system.load(host).signature_files)
    except PrimusError as error:
        sys.stderr.write(f"primus: diagnosed with the signatures of Primus alone: {error.each()[0].what}\n")
        return built_in()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
