"""The commands that need no runtime: entry points of the group `primus.commands`, of the kernel as of others.

An entry point names a module or an object with `parser()` and `run(words, layer)` (`plugins.contracts.Command`); its
one-line help is the first line of its module's docstring. `primus --help` imports none of them.
"""

from primus_core.installed import packages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from primus_core.plugins.contracts import Command

__all__ = ["entries", "load", "names"]

_GROUP = "primus.commands"
_KERNEL = "primus-core"


def entries() -> list[packages.EntryPoint]:
    """All of them, by name."""
    return sorted(packages.entry_points(_GROUP), key=lambda entry: entry.name)


def names() -> list[str]:
    """What may stand behind `primus`."""
    return [entry.name for entry in entries()]


def load(name: str) -> "Command":
    """The command of that name.

    Raises:
        RequestError: two packages have one.
        MachineError: it cannot be imported.
    """
    from importlib import import_module
    from typing import cast

    found = [entry for entry in entries() if entry.name == name]
    if len(found) > 1:
        raise _taken(name, found)
    (entry,) = found
    try:
        value = import_module(entry.module)
        for part in entry.attribute.split(".") if entry.attribute else ():
            value = getattr(value, part)
    except Exception as error:
        if entry.package == _KERNEL:
            raise
        raise _broken(entry, error) from error
    return cast("Command", value)


def _taken(name: str, found: list[packages.EntryPoint]) -> Exception:
    from primus_core.errors import RequestError

    sources = " and ".join(f"{entry.package} {entry.version}" for entry in found)
    return RequestError(f"two packages have a command '{name}'", why=sources, fix="uninstall one of them")


def _broken(entry: packages.EntryPoint, error: Exception) -> Exception:
    from primus_core.errors import MachineError

    return MachineError(
        f"the command '{entry.name}' of {entry.package} {entry.version} cannot be loaded",
        why=f"{type(error).__name__}: {error}",
        fix="reinstall or remove it; `primus plugins` lists the state of all",
    )
