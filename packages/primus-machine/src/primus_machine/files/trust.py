"""Whose a file is, and whether it is believed: the one place that answers this for all that is run, loaded or obeyed.

A file is believed if it belongs to the person or to root, nobody else can write to it, and no stranger's link leads to
it; or if it lies below a folder that the person trusts by name: `primus trust DIR`. What an outer layer believed, it
hands inward in `PRIMUS_TRUSTED`: inside a container, the same file may seem to have another owner.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property

from primus_machine import variables
from primus_machine.errors import RequestError
from primus_machine.text import printable

__all__ = [
    "Trust",
    "account",
    "command",
    "fix",
    "links",
    "named",
    "named_file",
    "of",
    "owner",
    "refused",
    "say",
    "say_once",
    "with_name",
    "writers",
]

_MAX_LINKS = 40  # as the kernel: more is a circle
_MAX_NAMES = 1 << 20
"""The file with the trusted folders is no longer."""


class Trust:
    """What the person with this environment believes."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ

    @cached_property
    def uids(self) -> frozenset[int]:
        """The person's and root's; as root, those of whoever became root; in an inner layer, the run owner's."""
        own = os.geteuid()
        return frozenset({0, own, *(self._behind_root() if own == 0 else ()), *self._of_run()})

    def _behind_root(self) -> Iterator[int]:
        """Who called sudo, or whose home root has: in a container, root is often a person over their own files."""
        if (caller := self.environ.get("SUDO_UID", "")).isdecimal():
            yield int(caller)
        if home := self.environ.get("HOME"):
            yield from _owner_of(home)

    def _of_run(self) -> Iterator[int]:
        """The owner of the run directory that an outer layer made, as the person outside is called in here."""
        directory = self.environ.get(variables.RUN_DIR)
        if directory and variables.OUTER in self.environ:
            yield from _owner_of(directory)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The folders and files that are trusted by name, read where a file is not the person's own."""
        handed = filter(os.path.isabs, self.environ.get(variables.TRUSTED, "").split(os.pathsep))
        return tuple(map(os.path.realpath, (*named(self.environ), *handed)))

    def is_named(self, path: str) -> bool:
        """Whether a path lies in a folder that is trusted by name."""
        real = os.path.realpath(path)
        return any(real == name or real.startswith(f"{name.rstrip('/')}/") for name in self.names)

    def doubt(self, path: str) -> str:
        """Why what lies at `path` is not believed; empty: it is, or it is not there."""
        try:
            why = self._of_links(path) or self._of_file(os.stat(path), path)
        except OSError:
            return ""
        return "" if why and self.is_named(path) else why

    def _of_links(self, path: str) -> str:
        strangers = ((link, self._stranger(os.lstat(link), f"the link {link}")) for link in links(path))
        return next((why for link, why in strangers if why and not self.is_named(os.path.dirname(link))), "")

    def doubt_place(self, path: str) -> str:
        """The same for a file that a program opens by its path, later: nobody else may put another in its place."""
        whole = os.path.abspath(path)
        folders = dict.fromkeys((os.path.dirname(whole), os.path.dirname(os.path.realpath(whole))))
        why = self.doubt(path) or next(filter(None, map(self._replaced, folders)), "")
        return "" if why and self.is_named(path) else why

    def may_be_replaced(self, path: str) -> bool:
        """Whether somebody else can put another in its place, in any of the folders that lead to it."""
        folders = {folder for way in (os.path.abspath(path), os.path.realpath(path)) for folder in _above(way)}
        return not self.is_named(path) and any(map(self._replaced, folders))

    def _replaced(self, folder: str) -> str:
        """Who else can replace what lies in a folder; in a sticky one, only its owner can."""
        try:
            found = os.stat(folder)
        except OSError:
            return ""
        sticky = found.st_mode & stat.S_ISVTX
        return self._stranger(found, folder) or ("" if sticky else writers(found, folder, folder))

    def doubt_tree(self, path: str) -> str:
        """The same for a folder that is loaded as a whole: the first thing in it that is not believed."""
        if (why := self.doubt(path)) or not os.path.isdir(path) or self.is_named(path):
            return why
        waiting = [path]
        while waiting:
            for entry in _entries(waiting.pop()):
                is_link = entry.is_symlink()
                if why := self.doubt(entry.path) if is_link else self._of_entry(entry):
                    return f"{entry.path}: {why}"
                if not is_link and entry.is_dir():
                    waiting.append(entry.path)
        return ""

    def _of_entry(self, entry: os.DirEntry[str]) -> str:
        try:
            return self._of_file(entry.stat(follow_symlinks=False), entry.path)
        except FileNotFoundError:  # a run that goes on removes its old checkpoints
            return ""

    def _of_file(self, found: os.stat_result, file: str | int) -> str:
        return self._stranger(found, "it") or writers(found, file)

    def _stranger(self, found: os.stat_result, what: str) -> str:
        return "" if found.st_uid in self.uids else f"{what} belongs to {owner(found.st_uid)}"

    def require(self, path: str, what: str = "") -> None:
        """Refuse what a person asked for, and what is not believed. `what`: what it is to them.

        Raises:
            RequestError: it is not believed.
        """
        if why := self.doubt(path):
            raise refused(path, why, what)

    def require_loadable(self, path: str) -> None:
        """Refuse a checkpoint or code that is not believed as a whole, or in whose place others may put another.

        Raises:
            RequestError: it is not.
        """
        if why := self.doubt_tree(path) or self.doubt_place(path):
            raise refused(path, why, "what would be loaded,")

    def opener(self, path: str, flags: int) -> int:
        """For `open(..., opener=...)`: what is opened is what was looked at, and a FIFO is not waited for.

        Raises:
            RequestError: it is not believed.
        """
        self.require(path)
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
        found = os.fstat(descriptor)
        why = self._of_file(found, descriptor)
        if why and not self.is_named(path):
            os.close(descriptor)
            raise refused(path, why)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise RequestError(f"{path} is not a regular file", fix="name a file")
        return descriptor


@cache
def _trust(items: frozenset[tuple[str, str]]) -> Trust:
    return Trust(dict(items))


_ASKED = ("SUDO_UID", "HOME", "XDG_CONFIG_HOME", variables.HOME, variables.RUN_DIR, variables.OUTER, variables.TRUSTED)


def of(environ: Mapping[str, str]) -> Trust:
    """What the person with this environment believes; the same answer for the same person, read once."""
    return _trust(frozenset((name, environ[name]) for name in _ASKED if name in environ))


def with_name(environ: Mapping[str, str], path: str) -> dict[str, str]:
    """The environment of somebody who trusts `path`, too."""
    return {**environ, variables.TRUSTED: os.pathsep.join(filter(None, (environ.get(variables.TRUSTED), path)))}


def refused(path: str, why: str, what: str = "") -> RequestError:
    """The error for what was asked for, and is not believed."""
    shown = f"{what} {path}" if what else path
    return RequestError(f"{shown} is not trusted", why=why, fix=fix(path))


def fix(path: str) -> str:
    """What to do about it."""
    return f"look at it; to trust it: {command(path)}"


def command(path: str) -> str:
    """The command that settles it."""
    import shlex

    whole = os.path.realpath(path)
    return f"primus trust {shlex.quote(whole if os.path.isdir(whole) else os.path.dirname(whole))}"


def say(path: str, why: str, shown: str = "") -> None:
    """Say, once, that something was skipped, and the command that settles it."""
    say_once(f"primus: skipped {shown or path}: {why}; to use it: {command(path)}\n")


@cache
def say_once(line: str) -> None:
    """Write a line to stderr; it is not said again."""
    try:
        sys.stderr.write(printable(line, "\n"))
    except OSError:  # nobody reads
        pass


def owner(uid: int) -> str:
    """The name of an account, with its number."""
    name = account(uid)
    return f"{name} (uid {uid})" if name != str(uid) else f"uid {uid}"


@cache
def account(uid: int) -> str:
    """The name of an account; its number, where it has none here."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def writers(found: os.stat_result, file: str | int, what: str = "it") -> str:
    """Who else can write to a file, in words; a person's private group is the person."""
    if found.st_mode & stat.S_IWOTH:
        return f"everybody can write to {what}"
    if not found.st_mode & stat.S_IWGRP:
        return ""
    if not _is_private(found.st_gid, found.st_uid):
        return f"its group ({_group(found.st_gid)}) can write to {what}"
    return next((f"{who} can write to {what}" for who in _listed(found, file)), "")


def _listed(found: os.stat_result, file: str | int) -> Iterator[str]:
    """The others that the file's access control list lets write, in words."""
    from primus_machine.files import access_lists  # few files have a group that may write

    for entry in access_lists.writers(file):
        if entry.tag == access_lists.USER and entry.number not in (0, os.geteuid(), found.st_uid):
            yield owner(entry.number)
        if entry.tag == access_lists.GROUP and not _is_private(entry.number, found.st_uid):
            yield f"the group {_group(entry.number)}"


@cache
def _is_private(gid: int, uid: int) -> bool:
    """Whether a group is its one member's own. Without accounts, as in many containers, by the same number."""
    import grp
    import pwd

    try:
        group, person = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return gid == uid
    return group.gr_name == person.pw_name and person.pw_gid == gid and set(group.gr_mem) <= {person.pw_name}


def _group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"gid {gid}"


def _owner_of(folder: str) -> Iterator[int]:
    """The owner of a folder; nobody, where it is not there or its owner has no number here."""
    try:
        uid = os.stat(folder).st_uid
    except OSError:
        return
    if uid != _overflow_uid():
        yield uid


def _overflow_uid() -> int:
    """Whoever has no number here is shown as this one: it is nobody in particular."""
    try:
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            return int(file.read(16))
    except (OSError, ValueError):
        return 65534


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What a folder holds; nothing where it cannot be read, from which nothing can be loaded."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _above(path: str) -> Iterator[str]:
    """The folders that lead to a whole path."""
    while (folder := os.path.dirname(path)) != path:
        yield (path := folder)


def links(path: str) -> Iterator[str]:
    """The symbolic links that lead to what lies at `path`, in their order."""
    rest = os.path.abspath(path).split("/")[:0:-1]
    folder, count = "/", 0
    while rest and count < _MAX_LINKS:
        part = rest.pop()
        here = os.path.join(folder, part) if part != ".." else os.path.dirname(folder)
        if part in ("", ".") or not os.path.islink(here):
            folder = folder if part in ("", ".") else here
            continue
        yield here
        count += 1
        target = os.readlink(here)
        folder = "/" if target.startswith("/") else folder
        rest += target.split("/")[::-1]


def named_file(environ: Mapping[str, str]) -> str:
    """Where a person's trusted folders are written down; empty: nobody knows their home."""
    home = environ.get(variables.HOME) or environ.get("HOME", "")
    folder = environ.get("XDG_CONFIG_HOME") or (home and os.path.join(home, ".config"))
    return os.path.join(folder, "primus", "trusted") if folder and os.path.isabs(folder) else ""


def named(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The folders that the person trusts by name. Only a file of their own is believed."""
    path = named_file(environ)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ()
    with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        found = os.fstat(descriptor)
        is_own = found.st_uid in of(environ).uids
        others = writers(found, descriptor)
        if not (is_own and stat.S_ISREG(found.st_mode)) or others:
            say(path, others or "it is not yours")
            return ()
        lines = file.read(_MAX_NAMES).split("\n")
    return tuple(line for line in lines if line.startswith("/"))
