"""Asks git about a repository without running anybody's program, with one deadline for all questions.

A repository's own configuration names programs: hooks, filters, a file monitor, transports. Whoever can write it could
run them as the person who starts a run.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from primus_machine.processes import descendants, subreaper

__all__ = ["Git", "GitError", "head_of", "regular_anywhere", "words_of"]

_SILENT = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.quotePath=false", "core.pager=cat"),
    *("core.sshCommand=false", "core.gitProxy=", "credential.helper=", "protocol.allow=never"),
    *("submodule.recurse=false", "diff.external=", "gpg.program=false"),
)
_NO_TRANSPORT = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
_OF_FILTERS = ("clean=", "smudge=", "process=", "required=false")
_REFS_LIMIT = 1 << 26
_KILLED_S = 2.0
"""So long the end of what was killed is waited for."""


class GitError(Exception):
    """git did not answer; the text says why. `code`: its exit code; None: it did not run to its end."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class Git:
    """git in the folder `cwd`, until `ends` by the monotonic clock."""

    def __init__(self, cwd: str, environ: Mapping[str, str], ends: float) -> None:
        self.cwd, self.ends = cwd, ends
        self.environ = {**environ, **_NO_TRANSPORT}
        self._options: tuple[str, ...] = tuple(word for setting in _SILENT for word in ("-c", setting))
        self.filters: tuple[str, ...] = ()
        """The filters that the configuration knows. None of them is run."""

    def disable_filters(self) -> None:
        """Find the filters, whose names are the repository's own, and turn each off, before git looks at a file."""
        try:
            text = self("config", "-z", "--name-only", "--get-regexp", r"^filter\.").decode(errors="surrogateescape")
        except GitError as error:
            if error.code != 1:  # by which it says that there are none
                raise
            return
        names = {name.removeprefix("filter.").rpartition(".")[0] for name in text.split("\0") if name.count(".") > 1}
        self.filters = tuple(sorted(names))  # one may have no name at all: `[filter ""]`
        for name in self.filters:
            if "=" in name:
                raise GitError(f"the filter '{name}' in git's configuration cannot be disabled")
            self._options += tuple(word for key in _OF_FILTERS for word in ("-c", f"filter.{name}.{key}"))

    @cached_property
    def _others(self) -> frozenset[int]:
        """Processes that this one had before: of hooks, for example."""
        return frozenset(descendants(os.getpid()))

    def __call__(self, *words: str, given: bytes = b"", environ: Mapping[str, str] | None = None) -> bytes:
        """What git answers.

        Raises:
            GitError: it says no, or nothing before the deadline.
        """
        others = self._others
        with subreaper():  # what git starts cannot get away, whichever session it moves to
            return self._answer(words, given, {**self.environ, **(environ or {})}, others)

    def _answer(self, words: Sequence[str], given: bytes, environ: Mapping[str, str], others: frozenset[int]) -> bytes:
        try:
            process = subprocess.Popen(
                ["git", "--no-optional-locks", "--no-pager", *self._options, *words],
                cwd=self.cwd,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise GitError("git is not installed") from None
        try:
            answer, error_output = process.communicate(given, timeout=max(self.ends - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            raise GitError(f"git {words[0]} did not answer in time") from None
        finally:
            _end(process, others)
        if process.returncode:
            text = error_output.decode(errors="replace").strip() or f"git {words[0]} failed"
            raise GitError(text, process.returncode)
        return answer


def _end(process: subprocess.Popen[bytes], others: Collection[int]) -> None:
    """If git has not answered, nothing of it is left: neither git, nor what it started."""
    if process.returncode is None:
        deadline = time.monotonic() + _KILLED_S
        killed: set[int] = set()
        while (left := descendants(os.getpid(), others)) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(left)
            time.sleep(0.002)
        with suppress(subprocess.TimeoutExpired):  # what nobody may kill: it waits for a disk
            process.wait(timeout=max(deadline - time.monotonic(), 0.01))
        for pid in killed - {process.pid}:
            with suppress(ChildProcessError):  # its own parent has waited for it
                os.waitpid(pid, os.WNOHANG)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()


def head_of(folder: str) -> tuple[str, str, str]:
    """Root, commit and branch of the repository around `folder`, as its files say: git may hang. Empty: unknown."""
    root = os.path.realpath(folder)
    while not os.path.lexists(f"{root}/.git"):
        if root == os.path.dirname(root):
            return "", "", ""
        root = os.path.dirname(root)
    try:
        place = _place(root)
        return root, *_commit(place)
    except (OSError, ValueError):
        return root, "", ""


def _place(root: str) -> str:
    """The folder with HEAD: of a worktree or a submodule, `.git` is a file that names it."""
    place = f"{root}/.git"
    if os.path.isdir(place):
        return place
    return os.path.join(root, _line(place).removeprefix("gitdir:").strip())


def _commit(place: str) -> tuple[str, str]:
    head = _line(f"{place}/HEAD")
    if not head.startswith("ref:"):
        return (head, "HEAD") if _is_commit(head) else ("", "")
    name = head.removeprefix("ref:").strip()
    shared = os.path.join(place, _line(f"{place}/commondir")) if os.path.exists(f"{place}/commondir") else place
    branch = name.removeprefix("refs/heads/")
    for folder in (place, shared):
        with suppress(OSError):
            if _is_commit(commit := _line(f"{folder}/{name}")):
                return commit, branch
    with suppress(OSError), open(f"{shared}/packed-refs", "rb", opener=regular_anywhere) as file:
        for line in file.read(_REFS_LIMIT).decode(errors="replace").split("\n"):
            commit, _, packed = line.partition(" ")
            if packed == name and _is_commit(commit):
                return commit, branch
    return "", branch


def _line(path: str) -> str:
    """A file's first line."""
    with open(path, "rb", opener=regular_anywhere) as file:
        return file.read(4096).decode(errors="surrogateescape").partition("\n")[0].strip()


def regular_anywhere(path: str, flags: int) -> int:
    """For `open(..., opener=regular_anywhere)`: a file, also behind a link. A pipe would wait, and a device has no end.

    Raises:
        OSError: it is neither.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return descriptor


def _is_commit(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text))


def words_of(names: Sequence[str]) -> bytes:
    """Paths as git reads them with `-z`."""
    return "\0".join(names).encode(errors="surrogateescape")
