"""The commands that need no runtime: entry points of the group `primus.commands`, of the kernel as of others.

An entry point names a module or an object with `parser()` and `run(words, layer)` (`plugins.contracts.Command`); its
one-line help is the first line of its module's docstring. `primus --help` imports none of them.
"""

from primus_machine import packages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from primus_core.plugins.contracts import Command

__all__ = ["entries", "load", "names"]

_GROUP = "primus.commands"


def entries() -> list[packages.EntryPoint]:
    """All of them, by name."""
    return sorted(packages.entry_points(_GROUP), key=lambda entry: entry.name)


def names() -> list[str]:
    """What may stand behind `primus`."""
    return [entry.name for entry in entries()]


def load(name: str) -> "Command":
    """The command of that name.

    Raises:
        RequestError: two packages have one, or another one has a runtime of that name.
        MachineError: it cannot be imported.
    """
    from typing import cast

    from primus_core.installed import joined
    from primus_machine.errors import RequestError

    runtimes = [entry for entry in joined.of_group("primus.runtimes") if entry.name == name]
    if runtimes:
        command = next(entry for entry in entries() if entry.name == name)
        why = f"{command.source} has the command, {runtimes[0].source} the runtime"
        raise RequestError(f"'{name}' is a command and a runtime", why=why, fix="uninstall one of the two")

    return cast("Command", joined.load(_GROUP, name))
