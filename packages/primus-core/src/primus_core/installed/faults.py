"""An exception that another package's code raised, as an error that names the package, the function and the line."""

from __future__ import annotations

from traceback import walk_tb

from primus_core.installed import homes
from primus_machine.errors import MachineError
from primus_machine.packages import entry_points

__all__ = ["of_plugin"]


def of_plugin(error: Exception) -> MachineError | None:
    """The error to show in place of `error`; None: no code of another's was called, so it is a bug of ours.

    Whoever calls a function of ours wrongly sees it raise: the code of the plugin that called it counts.
    """
    ours = {"primus-core", *homes.ours()}
    sources = {entry.module.partition(".")[0]: entry.source for entry in entry_points() if entry.package not in ours}
    calls = [(source, frame.f_code, line) for frame, line in walk_tb(error.__traceback__)
             if (source := sources.get(str(frame.f_globals.get("__name__")).partition(".")[0]))]  # fmt: skip
    if not calls:
        return None
    source, code, line = calls[-1]
    called = next(code for name, code, _ in calls if name == source)
    found = MachineError(
        f"{source} is broken",
        why=f"`{called.co_qualname}` raised {type(error).__name__}: {error}\nin {code.co_filename}, line {line}",
        fix="report this to those who maintain it; `primus --debug ...` shows the traceback",
    )
    found.__cause__ = error
    return found
