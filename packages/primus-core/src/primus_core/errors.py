"""Every error that Primus shows a person: what happened, why, and what to do about it.

    PrimusError                 exit 1
    ├── RequestError            exit 2: the request was wrong, nothing was started
    │   └── ConfigError         the same, in a file: it names file and line
    ├── MachineError            exit 3: this machine or environment cannot run it
    ├── TrainingError           exit 1: training began, and did not reach its end
    └── RunDirectoryTaken       another run took the directory first: plan again

Anything else that reaches `main` is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "MachineError",
    "PrimusError",
    "RequestError",
    "RunDirectoryTaken",
    "TrainingError",
    "suggestion",
]


class PrimusError(Exception):
    """Something a person can act on. `what` is one line; `why` and `fix` may be longer."""

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what, self.why, self.fix = what, why, fix

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The error as text: `what`, then `why:` and `fix:` where there are any."""
        parts = [("why: ", self.why), ("fix: ", self.fix)]
        hang = "\n       "
        return [self.what] + [f"  {label}{text.replace(chr(10), hang)}" for label, text in parts if text]


class RequestError(PrimusError):
    """The request was wrong. Nothing was started, nothing was written."""

    exit_code = 2


class ConfigError(RequestError):
    """A file of the user is wrong. `where` is `file:line` (or `file`)."""

    def __init__(self, what: str, *, where: str = "", why: str = "", fix: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what, why=why, fix=fix)
        self.where = where


class MachineError(PrimusError):
    """The environment cannot run it: something is missing here that the plan needs."""

    exit_code = 3


class TrainingError(PrimusError):
    """Training began, and did not reach its end."""


class RunDirectoryTaken(PrimusError):  # noqa: N818  # it names what happened; nobody is shown it
    """The planned run directory appeared between planning and executing."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'? ` for the known word nearest to `word`, or an empty string."""
    import difflib  # only an error needs it

    names = sorted(set(known))
    folded = {name.lower().replace("-", "_"): name for name in names}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), list(folded), n=1, cutoff=0.6)
    return f"did you mean '{folded[near[0]]}'?" if near else ""
