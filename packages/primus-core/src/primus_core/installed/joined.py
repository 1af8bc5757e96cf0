"""One plugin of an entry-point group, found by its name and imported: the same rules for all kinds of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from primus_core.errors import MachineError, RequestError, suggestion
from primus_core.installed.packages import EntryPoint, entry_points

__all__ = ["KERNEL", "imported", "load", "of_group"]

KERNEL = "primus-core"


def of_group(group: str) -> list[EntryPoint]:
    """All that join `group`, by name. Of two with one name, both."""
    return sorted(entry_points(group), key=lambda entry: entry.name)


def load(group: str, name: str) -> Any:
    """The object of that name.

    Raises:
        RequestError: two packages have one.
        MachineError: it is not installed, or importing it failed. What the kernel's own raises is a bug, and stays it.
    """
    found = [entry for entry in of_group(group) if entry.name == name]
    kind = group.removeprefix("primus.").removesuffix("s")
    if len(found) > 1:
        sources = " and ".join(f"{entry.package} {entry.version}" for entry in found)
        raise RequestError(f"two packages have a {kind} '{name}'", why=sources, fix="uninstall one of them")
    if not found:
        raise _missing(group, kind, name)
    try:
        return imported(found[0])
    except Exception as error:  # a plugin's import may raise anything
        if found[0].package == KERNEL:
            raise
        raise _broken(kind, found[0], error) from error


def imported(entry: EntryPoint) -> Any:
    """The object that an entry point names; whatever importing it raises."""
    value: Any = import_module(entry.module)
    for part in entry.attribute.split(".") if entry.attribute else ():
        value = getattr(value, part)
    return value


def _missing(group: str, kind: str, name: str) -> MachineError:
    known = [entry.name for entry in of_group(group)]
    return MachineError(
        f"the {kind} '{name}' is not installed here",
        why=f"installed: {', '.join(known) or 'none'}",
        fix=suggestion(name, known) or "install the package that brings it",
    )


def _broken(kind: str, entry: EntryPoint, error: Exception) -> MachineError:
    return MachineError(
        f"the {kind} '{entry.name}' of {entry.package} {entry.version} cannot be loaded",
        why=f"{type(error).__name__}: {error}",
        fix="reinstall or remove it; `primus plugins` lists the state of all",
    )
