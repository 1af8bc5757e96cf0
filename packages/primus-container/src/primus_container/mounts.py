"""What of this machine a container sees: what the person names, and what the command needs. Pure, but for looks."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from primus_machine.errors import RequestError

__all__ = ["Mount", "given", "is_below", "mounts", "own_python", "shortest", "volume", "with_targets"]

_SYSTEM_PREFIXES = ("/", "/usr", "/usr/local")
"""Where a Python belongs to the system: the image has its own there."""
_SAME = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}
"""Other names of a mount's fields."""
_OF_ENGINE = re.compile(r"\"?(type|source|src|target|destination|dst)=.*", re.S | re.I)
"""The other form of `--mount`, which podman and docker define."""
_QUOTED = re.compile(r'(?<![^,])"(?:[^"]|"")*"(?![^,])')
"""A field of it in quotes."""


class Mount(NamedTuple):
    """A folder or file of this machine, and where it is inside. Without a source, the engine makes something there."""

    source: str
    target: str
    read_only: bool = False
    words: tuple[str, ...] = ()
    """As the person wrote it for the engine."""

    def option(self) -> tuple[str, ...]:
        """As both engines take it; `--volume` would split at a colon, and docker would make what is missing."""
        if self.words:
            return self.words
        fields = ["type=bind", f"source={self.source}", f"target={self.target}"]
        fields += ["readonly"] if self.read_only else []
        return "--mount", ",".join(_field(field) for field in fields)


def _field(text: str) -> str:
    """One field of a CSV line, which is what the engines read."""
    return '"' + text.replace('"', '""') + '"' if set('",\n') & set(text) else text


def mounts(asked: Sequence[Mount], writable: Iterable[str], readable: Iterable[str]) -> list[Mount]:
    """What the person `asked` for, and what is needed beside: folders to write in, files and folders to read.

    Raises:
        RequestError: the person put something else where a needed path would be.
    """
    found = list(asked)
    wanted = [Mount(path, path) for path in writable] + [Mount(path, path, read_only=True) for path in readable]
    for mount in wanted:
        above = [other for other in found if is_below(mount.target, (other.target,))]
        nearest = max(above, key=lambda other: len(other.target), default=None)
        closed = nearest is not None and nearest.read_only and not mount.read_only
        if nearest is None or (closed and nearest.target != mount.target):
            found.append(mount)
        elif _shown(mount.target, nearest) != mount.source:
            raise _hidden(mount.target, nearest)
    return found


def _shown(path: str, mount: Mount) -> str:
    """What lies at `path` inside, if `mount` is what shows it."""
    if not mount.source:
        return ""
    return os.path.normpath(mount.source + path[len(mount.target.rstrip("/")) :])


def _hidden(path: str, mount: Mount) -> RequestError:
    return RequestError(
        f"'{path}' is needed inside the container, but would be hidden there",
        why=f"{' '.join(mount.words or mount.option())} mounts something else at {mount.target}",
        fix="mount that at another path",
    )


def given(text: str, cwd: str, *, here: bool = True) -> Mount:
    """The mount that `--mount` names: `SRC`, `SRC:DST`, `SRC:ro`, `SRC:DST:ro`, or the engine's own form.

    Raises:
        RequestError: it is none of these, or, if it is used `here`, there is nothing to mount.
    """
    if _OF_ENGINE.fullmatch(text):
        return _of_engine(text)
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if target in ("ro", "rw") and not mode:
        target, mode = "", target
    whole = os.path.normpath(os.path.join(cwd, os.path.expanduser(source)))
    if mode not in ("", "ro", "rw") or not source or (target and not os.path.isabs(target)):
        raise RequestError(
            f"--mount '{text}' is not understood",
            fix="write SRC, SRC:DST or SRC:DST:ro (DST is absolute), or type=bind,source=SRC,target=DST",
        )
    if here:
        _require(whole, f"--mount {text}")
    return Mount(whole, os.path.normpath(target) if target else whole, mode == "ro")


def _of_engine(text: str) -> Mount:
    """Read a line of CSV, as the engines do: a field with a comma stands in quotes.

    Raises:
        RequestError: it is not one line of CSV, or names no target.
    """
    import csv

    try:
        if '"' in _QUOTED.sub("", text):  # Python's reader lets it pass, that of the engines does not
            raise csv.Error("a quote inside a field that is not quoted as a whole")
        [line] = csv.reader(io.StringIO(text, newline=""), strict=True)
    except (csv.Error, ValueError) as error:
        fix = 'put a field with a comma into double quotes: type=bind,"source=/a,b",target=/c'
        raise RequestError(f"--mount '{text}' is not a line of CSV", why=str(error), fix=fix) from None
    for before, field in pairwise(line):
        path = f"{before.partition('=')[2]},{field}"
        if "=" not in field and os.path.exists(path):
            quoted = text.replace(f"{before},{field}", f'"{before},{field}"', 1)
            raise RequestError(f"--mount '{text}' is split within '{path}'", fix=f"put that into quotes: '{quoted}'")
    pairs = (field.partition("=") for field in line)
    fields = {name.strip().lower(): (value, equals) for name, equals, value in pairs}
    found = {_SAME.get(name, name): value for name, value in fields.items()}
    source, target = (found.get(name, ("", ""))[0] for name in ("source", "target"))
    if not target:
        raise RequestError(f"--mount '{text}' has no target", fix="add target=PATH")
    value, equals = found.get("readonly", ("false", "="))
    read_only = not equals or value.lower() in ("true", "1", "t", "yes")
    return Mount(source, os.path.normpath(target), read_only, ("--mount", text))


def volume(text: str, *, here: bool = True) -> Mount:
    """The mount that `--volume` names, as the engine takes it; `/data` alone is `/data:/data`."""
    source, colon, rest = text.partition(":")
    if not colon and os.path.isabs(text):
        if here:
            _require(text, f"--volume {text}")
        return Mount(text, os.path.normpath(text), words=("--volume", f"{text}:{text}"))
    target, _, options = rest.partition(":")
    shown = source if os.path.isabs(source) else ""
    return Mount(shown, os.path.normpath(target or source), "ro" in options.split(","), ("--volume", text))


def _require(path: str, asked: str) -> None:
    if not os.path.exists(path):
        raise RequestError(f"{asked}: there is no file or folder '{path}'", fix="check the path")


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether `path` is one of `folders`, or in one."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def own_python(path: Sequence[str], prefixes: Sequence[str]) -> list[str]:
    """The folders of an interpreter (its `prefixes`) and of all that it can import, less those of the system."""
    folders = [*prefixes, *(os.path.realpath(prefix) for prefix in prefixes)]
    folders += [entry for entry in path if os.path.isdir(entry)]
    inside = [folder for folder in folders if folder not in _SYSTEM_PREFIXES]
    return shortest(folder for folder in inside if not is_below(folder, ("/usr/lib", "/usr/local/lib")))


def with_targets(paths: Iterable[str]) -> list[str]:
    """The paths, and where links in them lead: inside, a link without its target leads nowhere."""
    return list(dict.fromkeys(whole for path in paths for whole in (path, os.path.realpath(path))))


def shortest(paths: Iterable[str]) -> list[str]:
    """Less those that lie below another one."""
    found: list[str] = []
    for path in sorted(set(paths)):
        if not is_below(path, found):
            found.append(path)
    return found
