"""Finds plugins and loads the one that is asked for; a broken one is a message with its package's name.

Plugins are entry points of installed packages (ours join the same way), the files that a project's `primus.yaml` names
under `plugins:`, and those in a person's own folder (`config.own_plugins`).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from primus_core.config import submission
from primus_core.config.system import SystemConfig, load
from primus_core.errors import MachineError, PrimusError, RequestError
from primus_core.host import HostRoot
from primus_core.installed import packages
from primus_core.plugins.contracts import Runtime, Task

if TYPE_CHECKING:
    from primus_core.hooks.files import Declared
    from primus_core.plan.plan import HookPlugin

__all__ = ["Catalogue", "Plugin", "home_of", "how_to_install", "task_name"]

# What to install for a name that no package here provides. Only a hint: nothing is looked up by it.
_HOMES = {
    "tasks": {
        "analyze": "primus-preflight",
        "bench": "primus-bench",
        "benchmark": "primus-bench",
        "preflight": "primus-preflight",
        "run": "primus",
        "train": "primus-train",
    },
    "commands": {"models": "primus-train"},
    "backends": {name: f"primus-{name}" for name in ("torchtitan", "megatron", "maxtext")},
}
_NEEDS = dict.fromkeys(("primus-bench", *_HOMES["backends"].values()), ("primus-train",))
"""Packages of ours that these need, too: pip finds none of them by itself in a checkout."""
_NEWER_PYTHON = {"primus-maxtext": (3, 12), "primus-megatron": (3, 12)}  # where pip would name no version that fits


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
        """Whether it stands for a file that cannot be read, whose names nobody knows."""
        return self.name.startswith("(")

    def load(self) -> Any:
        """The plugin's object.

        Raises:
            MachineError: importing it failed; the message names the package and the reason.
        """
        try:
            return self.loader()
        except PrimusError:
            raise
        except Exception as error:  # a plugin's import may raise anything, and must not break Primus
            raise MachineError(
                f"the plugin '{self.name}' of {self.source} cannot be loaded",
                why=f"{type(error).__name__}: {error}",
                fix=_FORMER if _is_former(error) else "reinstall or remove it; `primus plugins` lists the state of all",
            ) from error


_FORMER = (
    "`primus.cli.registry` is in the package primus of this repository: pip install packages/primus (PyPI's is another "
    "project); other modules of AMD's Primus are found where PYTHONPATH has its checkout"
)


def _is_former(error: Exception) -> bool:
    """Whether a module of AMD's Primus is missing."""
    return isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "primus"


def _entry_loader(entry: packages.EntryPoint) -> Callable[[], Any]:
    def load() -> Any:
        value: Any = importlib.import_module(entry.module)
        for part in entry.attribute.split(".") if entry.attribute else ():
            value = getattr(value, part)
        return value

    return load


def _installed() -> Iterator[Plugin]:
    for entry in packages.entry_points():
        yield Plugin(
            kind=entry.group.removeprefix("primus."),
            name=entry.name,
            source=f"{entry.package} {entry.version}",
            target=f"{entry.module}:{entry.attribute}",
            summary=lambda module=entry.module: packages.module_summaries([module])[module],  # type: ignore[misc]  # bound now
            loader=_entry_loader(entry),
        )


def _dropped_in(paths: Iterable[str], system: SystemConfig) -> Iterator[Plugin]:
    from primus_core.files import own_code
    from primus_core.hooks import files as hook_files
    from primus_core.plugins import dropped_in  # they read the files as text: only where a project names some

    for path in paths:
        source = os.path.relpath(submission.original(path))
        try:
            tree = own_code.parsed(path)
        except PrimusError as error:  # one broken file must not break the commands of the others
            yield Plugin(_meant(path), f"({source})", source, path, lambda: "", partial(_raise, error))
            continue
        for name, summary in dropped_in.declared(tree):
            yield Plugin("tasks", name, source, path, partial(str, summary), partial(_task_in, path, name))
        if hooks := hook_files.declared(tree):
            name = source.removesuffix(".py")  # whole, as no two files may have one name
            yield Plugin("hooks", name, source, path, lambda: "", partial(_hooks_in, path, hooks))


def _meant(path: str) -> str:
    """The kind of a file that cannot be read as Python: a launch without the hooks in it must not pass in silence."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return "hooks" if "hookimpl" in file.read() else "tasks"
    except OSError:
        return "tasks"


def _raise(error: PrimusError) -> Any:
    raise error


def _task_in(path: str, name: str) -> Any:
    from primus_core.plugins import dropped_in

    return dropped_in.load(path)[name]


def _hooks_in(path: str, hooks: Sequence[Declared]) -> Any:
    from primus_core.files import own_code
    from primus_core.hooks import files as hook_files

    hook_files.check(hooks, os.path.relpath(path))
    return own_code.module(path)


class Catalogue:
    """All plugins that are here, by kind and name."""

    def __init__(self, system: SystemConfig) -> None:
        self.system = system
        files = system.plugin_files
        self.plugins = [*_installed(), *(_dropped_in(files, system) if files else ())]

    @classmethod
    def here(cls, host: HostRoot, extra: str = "") -> Catalogue:
        """The plugins of this environment, of the files that the system config names (`extra`: its last layer), and of
        the person's own folder.
        """
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
            RequestError: there is none, or two packages claim the name.
        """
        found = [plugin for plugin in self.of(kind) if plugin.name == name]
        if len(found) > 1:
            raise RequestError(
                f"two plugins are called '{name}'",
                why=" and ".join(p.source for p in found),
                fix="uninstall one of them, or rename it",
            )
        if not found:
            raise self.missing(kind, name)
        return found[0]

    def missing(self, kind: str, name: str) -> RequestError:
        """The error for a name that nothing here provides."""
        from primus_core.errors import suggestion

        homes, known = _HOMES.get(kind, {}), self.names(kind)
        home = homes.get(name)
        fix = how_to_install(home) if home else suggestion(name, [*known, *homes]) or "see `primus plugins`"
        what = (
            f"the {kind.removesuffix('s')} '{name}' is not installed"
            if home
            else f"no {kind.removesuffix('s')} is called '{name}'"
        )
        return RequestError(what, why=f"installed: {', '.join(known) or 'none'}", fix=fix)

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
        from primus_core.files import own_code
        from primus_core.hooks import files as hook_files
        from primus_core.plan.plan import HookPlugin

        files = {plugin.target for plugin in plugins if os.path.isabs(plugin.target)}
        for path in sorted(files):
            hook_files.check(hook_files.declared(own_code.parsed(path)), os.path.relpath(path))
        return tuple(HookPlugin(p.source, p.target.rstrip(":"), p.target in files) for p in plugins)

    def first_words(self, kind: str) -> set[str]:
        """What a segment of that kind may begin with, the names of packages not installed included."""
        return {p.name.split()[0] for p in self.of(kind) if not p.is_broken} | _HOMES.get(kind, {}).keys()

    def broken(self, kind: str) -> str:
        """The files of that kind that cannot be read: names in them may be missing. Empty: there is none."""
        return ", ".join(p.source for p in self.of(kind) if p.is_broken)


def home_of(kind: str, name: str) -> str:
    """The package of ours that has it, as far as is known here; empty: none."""
    return _HOMES.get(kind, {}).get(name, "")


def how_to_install(package: str) -> str:
    """How to install a package of ours, which may not be possible with this Python."""
    needed, here = _NEWER_PYTHON.get(package, (3, 0)), sys.version_info[:2]
    major, minor = needed
    before = f"with Python {major}.{minor} or later (this is {here[0]}.{here[1]}): " if here < needed else ""
    return f"{before}{_pip_install(package)}"


def _pip_install(package: str) -> str:
    """From the checkout that this package was installed from, where that is known: the names are on no index."""
    import shlex

    missing = [*(name for name in _NEEDS.get(package, ()) if not packages.version_of(name)), package]
    checkout = os.path.dirname(packages.installed_from("primus-core"))
    beside = [os.path.join(checkout, name) for name in missing]
    if checkout.startswith("/") and all(map(os.path.isdir, beside)):
        return f"pip install {shlex.join(beside)}"
    return f"in a checkout of Primus: pip install {' '.join(f'packages/{name}' for name in missing)}"


def task_name(words: Sequence[str], known: Sequence[str]) -> str:
    """The longest known task name that `words` begin with; the first word where none is known."""
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in known:
            return name
    two = [name for name in known if name.split()[0] == words[0]]
    if two:
        raise RequestError(f"'{words[0]}' needs a second word", fix=f"one of: {', '.join(two)}")
    return words[0]
