"""Finds plugins and loads the one that is asked for; a broken one is a message with its package's name.

Plugins are entry points of installed packages (ours join the same way), the files that a project's `primus.yaml` names
under `plugins:`, and those in a person's own folder (`config.own_plugins`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from primus_core.config.system import SystemConfig, load
from primus_core.installed import data_folders, homes, joined
from primus_core.plugins.contracts import Runtime, Task
from primus_machine import packages
from primus_machine.errors import MachineError, PrimusError, RequestError
from primus_machine.host import HostRoot

if TYPE_CHECKING:
    from primus_core.plan.plan import HookPlugin

__all__ = ["Catalogue", "Plugin", "task_name"]


class Plugin(NamedTuple):
    """One plugin: what it is, where it comes from, how to load it. Nothing is imported until `load`."""

    kind: str
    """`tasks`, `runtimes`, `backends`, ...: the group without `primus.`."""
    name: str
    source: str
    """`primus-bench 0.1.0`, or the path of a dropped-in file."""
    target: str
    """`module:attribute`."""
    summary: Callable[[], str]
    loader: Callable[[], Any]

    @property
    def is_broken(self) -> bool:
        """Whether its name is not known: it stands for a file that cannot be read, or has none."""
        return self.name.startswith("(")

    def load(self) -> Any:
        """The plugin's object.

        Raises:
            MachineError: importing it failed; the message names the package and the reason.
        """
        try:
            return joined.apart(self.loader)
        except PrimusError:
            raise
        except Exception as error:  # a plugin's import may raise anything, and must not break Primus
            why, fix = joined.raised(error)
            raise joined.broken(self.kind[:-1], self.name, self.source, why, _fix_of(error) or fix) from error


def _fix_of(error: Exception) -> str:
    """What to do where a module of AMD's Primus is missing; empty: the usual."""
    if not isinstance(error, ModuleNotFoundError) or (error.name or "").partition(".")[0] != "primus":
        return ""
    return (
        f"`primus.cli.registry` is in the package primus of this repository: {homes.how_to_install('primus')} (PyPI's "
        "is another project); other modules of AMD's Primus are found where PYTHONPATH has its checkout"
    )


def _installed() -> Iterator[Plugin]:
    for entry in packages.entry_points():
        kind = entry.group.removeprefix("primus.")
        yield Plugin(
            kind=kind,
            name=entry.name,
            source=entry.source,
            target=f"{entry.module}:{entry.attribute}",
            summary=lambda module=entry.module: packages.module_summaries([module])[module],  # type: ignore[misc]  # bound now
            loader=partial(data_folders.require if kind in data_folders.KINDS else joined.imported, entry),
        )


def _dropped_in(paths: Sequence[str]) -> Iterator[Plugin]:
    """Those of a person's own files, which are read as text: only where a project names some."""
    if not paths:
        return iter(())
    from primus_core.plugins import own_files

    return own_files.plugins(paths)


class Catalogue:
    """All plugins that are here, by kind and name."""

    def __init__(self, system: SystemConfig) -> None:
        self.system = system
        self.plugins = [*_installed(), *_dropped_in(system.plugin_files)]

    @classmethod
    def here(cls, host: HostRoot, extra: str = "") -> Catalogue:
        """Those of this environment, of the system config (`extra`: its last layer), and of a person's own folder."""
        return cls(load(host, extra))

    def of(self, kind: str) -> list[Plugin]:
        """The plugins of one kind, by name."""
        return sorted((p for p in self.plugins if p.kind == kind), key=lambda p: p.name)

    def names(self, kind: str) -> list[str]:
        """Their names."""
        return [plugin.name for plugin in self.of(kind)]

    def find(self, kind: str, name: str) -> Plugin:
        """The one plugin of that name.

        Raises:
            RequestError: none is known by that name, or two packages claim it.
            MachineError: its package is not installed.
        """
        found = [plugin for plugin in self.of(kind) if plugin.name == name]
        if len(found) > 1:
            raise joined.twins(kind.removesuffix("s"), name, (p.source for p in found))
        if not found:
            raise self.missing(kind, name)
        return found[0]

    def missing(self, kind: str, name: str) -> RequestError | MachineError:
        """The error for a name that nothing here provides."""
        from primus_machine.errors import nearest, suggestion

        known, kind_of = self.names(kind), kind.removesuffix("s")
        why = f"installed: {', '.join(known) or 'none'}"
        if home := homes.home_of(kind, name):
            return MachineError(f"the {kind_of} '{name}' is not installed", why=why, fix=homes.how_to_install(home))
        near = nearest(name, [*known, *homes.names(kind)])
        fix = suggestion(name, [near]) if near else "see `primus plugins`"
        what = f"no {kind_of} is called '{name}'"
        return RequestError(what, why=why, fix=fix, kind="unknown", options=[name], meant=near or None)

    def task(self, words: Sequence[str]) -> tuple[Task, str, tuple[str, ...]]:
        """The task that `words` begin with (two-word names first), its name, and the words left over."""
        name = task_name(words, self.names("tasks"))
        return cast("Task", self.find("tasks", name).load()), name, tuple(words[len(name.split()) :])

    def runtime(self, name: str) -> Runtime:
        """The runtime of that name, loaded."""
        return cast("Runtime", self.find("runtimes", name).load())

    def hook_plugins(self) -> tuple[HookPlugin, ...]:
        """The plugins with Python hooks, as data. Those of a person's own files are checked, without running them.

        Raises:
            ConfigError: a hook in a file has a name or an argument that no hook has.
        """
        if not (plugins := self.of("hooks")):
            return ()
        for plugin in plugins:
            if plugin.is_broken:
                plugin.load()  # says why
        from primus_core.plan.plan import HookPlugin

        files = {plugin.target for plugin in plugins if os.path.isabs(plugin.target)}
        if files:
            from primus_core.plugins import own_files

            own_files.check_hooks(sorted(files))
        return tuple(HookPlugin(p.source, p.target.rstrip(":"), p.target in files) for p in plugins)

    def first_words(self, kind: str) -> set[str]:
        """What a segment of that kind may begin with, the names of packages not installed included."""
        return {p.name.split()[0] for p in self.of(kind) if not p.is_broken} | homes.names(kind)

    def broken(self, kind: str) -> str:
        """The files of that kind that cannot be read: names in them may be missing. Empty: there is none."""
        return ", ".join(p.source for p in self.of(kind) if p.is_broken)


def task_name(words: Sequence[str], known: Sequence[str]) -> str:
    """The longest known task name that `words` begin with; the first word where none is known."""
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in known:
            return name
    two = [name for name in known if name.split()[0] == words[0]]
    if two:
        what = f"'{words[0]}' has no action '{words[1]}'" if words[1:] else f"'{words[0]}' needs an action"
        raise RequestError(what, fix=f"one of: {', '.join(two)}")
    return words[0]
