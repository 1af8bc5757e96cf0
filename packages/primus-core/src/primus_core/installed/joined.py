"""One plugin of an entry-point group, found by its name and imported: the same rules for all kinds of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any

from primus_machine.errors import MachineError, PrimusError, RequestError, suggestion
from primus_machine.packages import EntryPoint, entry_points

__all__ = ["KERNEL", "apart", "broken", "imported", "lacking", "load", "of_group", "raised", "twins"]

KERNEL = "primus-core"
_MEMBERS = {
    "backends": "name stages presets adopt resolve",
    "commands": "parser run",
    "config": "EXAMPLES add complete",
    "launchers": "name one_per_node reports families plan signalled",
    "runtimes": "name epilog add_arguments",
    "schedulers": "name title launch logs families variables started refuse numbers nodes hosts port look ask job_of "
    "narrowed waits target version submitted printed without troubles requeue",
    "tasks": "name scope epilog add_arguments plan",
}
"""What the interface of each kind requires. As names: a command need not load the interfaces."""
_TYPES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("EXAMPLES", "epilog", "launch", "logs", "name", "title"), (str, "text")),
    "scope": (("rank", "node", "run"), "rank, node or run"),
    **dict.fromkeys(("one_per_node", "reports"), (bool, "True or False")),
    **dict.fromkeys(("families", "holds", "stages", "variables"), (Iterable, "a collection")),
}
"""Of these members, or the values of one. Every other one is a function."""


def of_group(group: str) -> list[EntryPoint]:
    """All that join `group`, by name. Of two with one name, both."""
    return sorted(entry_points(group), key=lambda entry: entry.name)


def load(group: str, name: str) -> Any:
    """The object of that name.

    Raises:
        RequestError: two packages have one, or it is misspelt.
        MachineError: it is not installed, or importing it failed. What the kernel's own raises is a bug, and stays it.
    """
    found = [entry for entry in of_group(group) if entry.name == name]
    if len(found) > 1:
        raise twins(_kind(group), name, (entry.source for entry in found))
    if not found:
        raise _missing(group, name)
    try:
        return apart(partial(imported, found[0]))
    except MachineError:
        raise
    except Exception as error:  # a plugin's import may raise anything
        if found[0].package == KERNEL:
            raise
        raise _broken(found[0], *raised(error)) from error


def apart(load: Callable[[], Any]) -> Any:
    """What `load` returns, which runs code of others: it prints to stderr, and an exit is an error of that code."""
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        return load()
    except SystemExit as stop:
        raise ImportError(f"it calls sys.exit({stop.code!r})") from stop
    finally:
        sys.stdout = out


def imported(entry: EntryPoint) -> Any:
    """The object that an entry point names; whatever importing it raises.

    Raises:
        MachineError: it is not what its kind requires.
    """
    value: Any = import_module(entry.module)
    for part in entry.attribute.split(".") if entry.attribute else ():
        value = getattr(value, part)
    if isinstance(value, type) and entry.group.removeprefix("primus.") in _MEMBERS:
        raise _broken(entry, f"{entry.attribute} is a class, and must be an instance")
    if missing := lacking(entry.group, value):
        raise _broken(entry, f"it lacks {', '.join(missing)} (docs/plugins.md)")
    for name in _required(entry.group, value):
        if wrong := _wrong(value, name):
            raise _broken(entry, f"{wrong} (docs/plugins.md)")
    return value


def lacking(group: str, value: Any) -> list[str]:
    """The members that its kind requires and it does not have. A property is not computed."""
    return [name for name in _required(group, value) if not (hasattr(type(value), name) or hasattr(value, name))]


def _required(group: str, value: Any) -> list[str]:
    names = _MEMBERS.get(group.removeprefix("primus."), "").split()
    if group == "primus.runtimes":
        names += ("holds", "wrap") if hasattr(value, "wrap") else ("distributed", "plan")
    return names


def _wrong(value: Any, name: str) -> str:
    """How the member differs from its interface; empty: it does not, or only computing it could tell."""
    declared = getattr(type(value), name, None)
    if hasattr(declared, "__get__") and not callable(declared):
        return ""
    kind, words = _TYPES.get(name, (Callable, "a function"))
    member = getattr(value, name)
    fits = member in kind if isinstance(kind, tuple) else isinstance(member, kind)
    return "" if fits else f"`{name}` must be {words}, and is {member!r:.60}"


def _missing(group: str, name: str) -> PrimusError:
    known = [entry.name for entry in of_group(group)]
    why = f"installed: {', '.join(known) or 'none'}"
    if near := suggestion(name, known):
        return RequestError(f"no {_kind(group)} is called '{name}'", why=why, fix=near)
    return MachineError(f"the {_kind(group)} '{name}' is not installed here", why=why, fix="install its package")


def _kind(group: str) -> str:
    return group.removeprefix("primus.").removesuffix("s")


def twins(kind: str, name: str, sources: Iterable[str]) -> RequestError:
    """The error for a name that is given twice."""
    return RequestError(f"two {kind}s are called '{name}'", why=" and ".join(sources), fix="uninstall or rename one")


def broken(kind: str, name: str, source: str, why: str, fix: str = "") -> MachineError:
    """The error for a plugin that cannot be used."""
    what = f"the {kind} '{name}' of {source} cannot be loaded"
    return MachineError(what, why=why, fix=fix or "correct, reinstall or remove it; `primus plugins` shows them")


def raised(error: Exception) -> tuple[str, str]:
    """What importing a plugin raised, and which line to correct; empty: it is one of an installed package."""
    from traceback import walk_tb

    ours = os.path.dirname(os.path.dirname(__file__))  # a function of which may refuse what it is given
    files = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    files = [("", 0), *(one for one in files if not one[0].startswith(ours))]
    file, line = (error.filename or "", error.lineno) if isinstance(error, SyntaxError) else files[-1]
    is_installed = file[:1] in ("", "<") or {"site-packages", "dist-packages"} & {*file.split("/")}
    return f"{type(error).__name__}: {error}", "" if is_installed else f"correct {file}, line {line}"


def _broken(entry: EntryPoint, why: str, fix: str = "") -> MachineError:
    return broken(_kind(entry.group), entry.name, entry.source, why, fix)
