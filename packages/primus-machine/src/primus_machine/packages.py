"""The entry points of installed packages, read from their metadata folders without importing anything.

`importlib.metadata` does this too, for 40 ms; `primus --help` must answer in half of that.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import TypeVar

    T = TypeVar("T")

__all__ = [
    "EntryPoint",
    "entry_points",
    "installed_from",
    "module_summaries",
    "once",
    "packages",
    "places",
    "version_of",
]


_OURS = "primus."


class EntryPoint:
    """One line of an `entry_points.txt`: `name = module:attribute` in a `[group]`, and the package that has it."""

    __slots__ = ("attribute", "folder", "group", "module", "name", "package", "source")

    def __init__(self, group: str, name: str, value: str, folder: str) -> None:
        self.group, self.name, self.folder = group, name, folder
        target = value.partition("[")[0].replace(" ", "")  # `module:attribute [extra]`, an old form
        self.module, _, self.attribute = target.partition(":")
        self.package, version = _package_of(folder)
        self.source = f"{self.package} {version}"  # as messages call it


def _package_of(folder: str) -> tuple[str, str]:
    """Name and version from a folder called `primus_core-0.1.0.dist-info`."""
    name, _, version = os.path.basename(folder).removesuffix(".dist-info").rpartition("-")
    return name.replace("_", "-").lower(), version


def once(read: "Callable[[], T]") -> "Callable[[], T]":
    """`read` that a process does once for its `sys.path`. (`functools.cache` would load ten modules for `--help`.)"""
    known: dict[tuple[str, ...], T] = {}

    def known_or_read() -> "T":
        path = tuple(sys.path)
        if path not in known:
            known[path] = read()
        return known[path]

    return known_or_read


def places() -> list[str]:
    """The folders on `sys.path` that packages may be in: all but the standard library's."""
    library = os.path.dirname(os.__file__)
    return [place or "." for place in sys.path if place not in (library, f"{library}/lib-dynload")]


@once
def _listed() -> dict[str, list[str]]:
    """What is in each of them, sorted."""
    return {place: _names(place) for place in places()}


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _folders() -> "Iterator[str]":
    """Metadata folders of the packages on `sys.path`. Of a package installed twice, the first counts."""
    seen = set()
    for place, names in _listed().items():
        for name in names:
            if name.endswith(".dist-info") and (package := _package_of(name)[0]) not in seen:
                seen.add(package)
                yield f"{place}/{name}"


def _read(path: str, size: int = 1 << 16) -> str:
    """A file's beginning, with as few system calls as there are: login nodes sit on NFS."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(descriptor, size).decode("utf-8", "replace")
    except OSError:  # a folder, a FIFO
        return ""
    finally:
        os.close(descriptor)


@once
def _texts() -> list[tuple[str, str]]:
    """Each package's folder and `entry_points.txt`: a launch asks for plugins, then for folders of data."""
    return [(folder, _read(f"{folder}/entry_points.txt")) for folder in _folders()]


def entry_points(prefix: str = _OURS) -> list[EntryPoint]:
    """Every entry point in a group that begins with `prefix`, as this process found them when it first looked."""
    if not prefix.startswith(_OURS):
        return list(_parsed(prefix))
    return [entry for entry in _ours() if entry.group.startswith(prefix)]


@once
def _ours() -> list[EntryPoint]:
    """A launch asks for a dozen groups of these."""
    return list(_parsed(_OURS))


def _parsed(prefix: str) -> "Iterator[EntryPoint]":
    for folder, text in _texts():
        if f"[{prefix}" not in text:
            continue
        group = ""
        for line in map(str.strip, text.splitlines()):
            if line.startswith("["):
                group = line.strip("[]").strip()
            elif group.startswith(prefix) and "=" in line and not line.startswith(("#", ";")):
                name, _, value = line.partition("=")
                yield EntryPoint(group, name.strip() or "(no name)", value.strip(), folder)


def version_of(package: str) -> str:
    """The installed version of `package` (any spelling), or an empty string."""
    wanted = package.replace("_", "-").lower()
    return next((version for name, version in map(_package_of, _folders()) if name == wanted), "")


def installed_from(package: str) -> str:
    """The folder from which pip installed `package` (any spelling); empty: it came from an index or a file."""
    import json
    from urllib.parse import unquote, urlsplit

    wanted = package.replace("_", "-").lower()
    folder = next((folder for folder in _folders() if _package_of(folder)[0] == wanted), "")
    try:
        url = urlsplit(str(json.loads(_read(f"{folder}/direct_url.json"))["url"]))
    except (ValueError, TypeError, KeyError):  # there is none, or it is not what pip writes (PEP 610)
        return ""
    path = os.path.normpath(unquote(url.path))
    return path if url.scheme == "file" and os.path.isdir(path) else ""


def packages() -> "dict[str, str]":
    """Every installed package with its version."""
    return {name: version for name, version in map(_package_of, _folders()) if version}


def module_summaries(modules: "Collection[str]") -> "dict[str, str]":
    """The first line of each module's docstring, read from its source as text: a plugin's one-line help."""
    homes = {top: _home(top) for top in {module.partition(".")[0] for module in modules}}
    stems = {module: f"{homes[module.partition('.')[0]]}/{module.replace('.', '/')}" for module in modules}
    return {
        module: docstring_line(_read(f"{stem}.py", 4096) or _read(f"{stem}/__init__.py", 4096))
        for module, stem in stems.items()
    }


def _home(top: str) -> str:
    """The folder that `top`, a package or module, is in: installed ones stand behind a person's own on the path."""
    for name in (top, f"{top}.py"):
        for place, names in reversed(_listed().items()):
            if name in names:
                return place
    return os.devnull  # a folder without files


def docstring_line(source: str) -> str:
    """The first line of the docstring that `source` opens with."""
    for quotes in ('"""', "'''"):
        start = source.find(quotes)
        if start >= 0 and all(line.startswith("#") or not line.strip() for line in source[:start].splitlines()):
            first, *_ = source[start + 3 :].lstrip().splitlines() or [""]
            return first.replace(quotes, "").strip()
    return ""
