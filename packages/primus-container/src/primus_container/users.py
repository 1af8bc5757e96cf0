"""The user in a container. A number that is not yours gets the run directory, and a home folder with the caches."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from primus_container.mounts import is_below
from primus_machine.errors import RequestError
from primus_machine.files.trust import account

__all__ = ["User", "chosen"]

_USER = re.compile(r"\w[\w.@$-]*(:\w[\w.@$-]*)?")
_ROOT = ("", "0", "root")
"""Who can write in each folder, however the person names them."""


class User(NamedTuple):
    """As whom the container runs, and what this user needs outside."""

    options: tuple[tuple[str, str], ...]
    """For podman and docker."""
    owner: str = ""
    """Who must own what the run writes, as `chown` takes it; empty: you do."""
    home: str = ""
    """A home folder for that owner, kept for later runs."""

    def steps(self, directory: str, made: Sequence[str] = ()) -> tuple[tuple[str, ...], ...]:
        """The commands that prepare the run `directory`, the home folder and the folders that were `made` for the run.

        The lease stays with its owner.

        Links are not followed: what the owner of these folders put there may lead to files of others.
        """
        if not self.owner:
            return ()
        workspace = os.path.dirname(directory)
        way = () if os.path.isdir(workspace) else (("chmod", "o+x", "--", workspace),)  # whatever the umask
        run = ("find", directory, "-name", "lease", "-prune", "-o", "-exec", "chown", "-h", self.owner, "{}", "+")
        own = ("chown", "-h", self.owner, "--", self.home, *made)
        return *way, run, ("mkdir", "-p", "-m", "700", "--", self.home), own

    def require_way(self, cwd: str, workspace: str) -> None:
        """Refuse a folder that this user cannot enter. Above what is mounted, the folders are the image's own.

        Raises:
            RequestError: the current folder, or a part of the way to the workspace, is closed.
        """
        below = [folder for folder in (workspace, *_above(workspace)) if is_below(folder, (cwd,))]
        for part in (below[::-1] or (cwd, workspace)) if self.owner else ():
            if not self._may(part, 0o1):
                raise RequestError(
                    f"the user {self.owner} of the container cannot enter {part}",
                    why=f"it belongs to {account(os.stat(part).st_uid)} and has the mode {_mode(part):04o}",
                    fix=f"chmod o+x {part}, use another folder, or remove --user",
                )

    def closed(self, folders: Iterable[str]) -> list[str]:
        """Those of the folders that this user cannot write in."""
        return [folder for folder in folders if self.owner and not self._may(folder, 0o7)]

    def advice(self, engine: str, image: str) -> str:
        """Return what to do where the image has no group of the name that was given; empty: none was."""
        group = dict(self.options).get("user", "").partition(":")[2]
        if group in _ROOT or group.isdecimal():
            return ""
        command = f"{engine} run --rm --entrypoint cat {shlex.quote(image)} /etc/group"
        return f"if the image has no group '{group}', name it by number; this prints the groups of the image: {command}"

    def _may(self, path: str, wanted: int) -> bool:
        """Whether the mode of `path` has these bits for the user; of what is missing, the run makes its own."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return True
        uid, _, gid = self.owner.partition(":")
        shift = 6 if found.st_uid == int(uid) else 3 if str(found.st_gid) == (gid or "0") else 0
        return (found.st_mode >> shift) & wanted == wanted


def _above(path: str) -> Iterator[str]:
    while (folder := os.path.dirname(path)) != path:
        yield (path := folder)


def _mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def chosen(wanted: str, engine: str, workspace: str) -> User:
    """The user that `--user` names; without it, you. Files that the container writes belong to the person or to it.

    Raises:
        RequestError: another user, for whom nothing can be prepared.
    """
    uid, _, gid = wanted.partition(":")
    me, numbers = os.getuid(), (int(uid) if uid.isdecimal() else -1, gid if gid.isdecimal() else "")
    if not wanted:
        return User(_yourself(engine))
    if uid in _ROOT or numbers[0] == 0:
        return User((("user", wanted),))
    if not _USER.fullmatch(wanted):
        raise RequestError(f"--user {wanted}: not a user", fix="--user UID[:GID], such as --user 4242:4242")
    if numbers[0] < 0:
        raise RequestError(
            f"--user {wanted}: only the image knows the number of '{uid}'",
            why="Primus prepares the run directory for the user of the container, by number",
            fix=f"--user UID:GID; `{engine} run --rm --entrypoint id IMAGE {uid}` prints both",
        )
    own = (("user", wanted), *_variables(numbers[0], "/tmp"))  # noqa: S108  # the image's
    if me and engine == "podman":  # maps you to that number inside; outside, files are yours
        group = f",gid={numbers[1]}" if numbers[1] else ""
        mapped = "keep-id" if numbers[0] == me else f"keep-id:uid={uid}{group}"
        return User((("userns", mapped), *own))
    if numbers[0] == me:
        return User(own)
    if me:
        raise RequestError(
            f"--user {wanted}: the run directory belongs to you (uid {me}), and only root can give it to another user",
            fix="remove --user: the container then runs as you",
        )
    home = f"{workspace}/.home-{uid}"
    owner = f"{uid}:{numbers[1]}" if numbers[1] else uid
    return User((("user", wanted), *_variables(numbers[0], home)), owner, home)


def _yourself(engine: str) -> tuple[tuple[str, str], ...]:
    """So that files written belong to the person, whatever user the image names."""
    me, group = os.getuid(), os.getgid()
    if me == 0:
        return (("user", "0:0"),)
    if engine == "podman":
        return (("userns", "keep-id"), ("env", "HOME=/tmp"))
    return (("user", f"{me}:{group}"), *_variables(me, "/tmp"))  # noqa: S108  # the image's


def _variables(uid: int, home: str) -> tuple[tuple[str, str], ...]:
    """A user by number has no entry in the image's passwd: docker gives it the home folder / and no name."""
    return (("env", f"HOME={home}"), ("env", f"USER={account(uid)}"))
