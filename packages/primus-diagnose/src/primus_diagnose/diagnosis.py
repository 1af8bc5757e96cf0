"""A diagnosis from its beginning to its end: gather, scan, judge, advise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from primus_diagnose.advice.advise import advise
from primus_diagnose.advice.figures import of_run
from primus_diagnose.inputs.find import gather
from primus_diagnose.inputs.gathered import Gathered
from primus_diagnose.reasoning.judge import judge
from primus_diagnose.scan.pool import scan_all
from primus_diagnose.signatures.catalogue import Catalogue, load
from primus_diagnose.verdict import Verdict, from_dict
from primus_machine.files import plain_json
from primus_machine.files.atomic import read_below
from primus_machine.host import HostRoot

__all__ = ["FILE", "diagnose", "of_gathered", "read"]

FILE = "diagnosis.json"
"""In the directory of a run that failed."""
_MOST = 1 << 24


def diagnose(paths: Sequence[str], *, host: HostRoot | None = None, signatures: Sequence[str] = ()) -> Verdict:
    """Why what left these logs failed. `paths`: run directories, folders, files. `signatures`: files or folders with
    further signatures.

    Raises:
        RequestError: a path is not there, or a file of signatures is wrong or not trusted.
        MachineError: nothing can be read.
    """
    host = host or HostRoot()
    return of_gathered(load(host, signatures), gather(paths, host), host)


def of_gathered(catalogue: Catalogue, gathered: Gathered, host: HostRoot | None = None) -> Verdict:
    """The same, of what was gathered."""
    verdict = judge(catalogue, gathered, scan_all(tuple(catalogue), gathered.sources))
    if not verdict.cause:
        return verdict
    remedies = catalogue[verdict.cause.signature].remedies
    figures = replace(of_run(gathered.run, gathered.record), is_running=gathered.is_running)
    return replace(verdict, advice=tuple(advise(verdict.cause, remedies, figures, host or HostRoot())))


def read(run_directory: str) -> Verdict | None:
    """The diagnosis that a failed run has left in its directory; None: there is none, or it is damaged."""
    try:
        return from_dict(plain_json.loads(read_below(run_directory, FILE, _MOST)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
