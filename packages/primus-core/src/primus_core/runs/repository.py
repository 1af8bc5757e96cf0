"""What code ran: commit and diff of the person's git repository, with untracked and binary files and submodules.

The patch is what `git apply --unidiff-zero` takes on top of the commit, except where secrets were taken out of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from primus_core.secrets import redact_text

__all__ = ["Code", "read"]

_FILE_LIMIT = 1 << 20
"""An untracked file of more bytes is named and left out."""
_PATCH_LIMIT = 32 << 20
_TIME_LIMIT_S = 20.0
# Files and folders that people keep secrets in; the latter kinds of names also code has that deals with secrets.
_SENSITIVE = (".env", ".env.*", "*.pem", "*.key", ".netrc", "*.kubeconfig")
_SENSITIVE_UNLESS_CODE = ("id_rsa*", "id_ed25519*", "*credentials*")
_CODE_SUFFIXES = (
    *(".py", ".pyi", ".ipynb", ".sh", ".md", ".rst"),
    *(".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hip", ".hpp"),
)
_QUIET = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_PLAIN = (  # whatever the person's configuration says of patches: `git apply` must take this one
    *("--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--no-renames", "--submodule=short", "--ignore-submodules=none"),
)
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name for a tree without files


# A submodule's section of a patch: its commit before, where it had one, and now; `-dirty`: it is changed itself.
_DIRTY = re.compile(r"^(?:-Subproject commit (\w+)\n)?\+Subproject commit (\w+)-dirty$", re.M)


class Code(NamedTuple):
    """`summary` is `code/code.json`; `patch` is empty where nothing was changed."""

    summary: dict[str, Any]
    patch: str = ""


class _Changes(NamedTuple):
    """What a repository has on top of its commit; paths are relative to its root."""

    sections: list[str]
    """The patch, file by file, without secrets."""
    untracked: list[str]
    omitted: list[dict[str, str]]
    """What the patch leaves out: `path`, `why`, and `sha256` where a replay can tell by it that it changed."""
    redacted: list[str]
    """Files in whose section `<secret>` stands for a secret."""

    def add_file(self, path: str, section: str, redacted: str) -> None:
        """Take in what a patch says of a file, in its redacted form."""
        self.sections.append(redacted)
        if _masked(section, redacted) - {"@"}:  # what a hunk's heading quotes is no change
            self.redacted.append(path)

    def add(self, folder: str, inner: _Changes) -> None:
        """Take in the changes of the submodule in `folder`, whose sections name their files from here already."""
        self.sections.extend(inner.sections)
        self.untracked.extend(f"{folder}/{path}" for path in inner.untracked)
        self.omitted.extend({**left, "path": f"{folder}/{left['path']}"} for left in inner.omitted)
        self.redacted.extend(f"{folder}/{path}" for path in inner.redacted)

    def checksum(self) -> str:
        """By which a replay sees another set of changes: of the patch, and of what it leaves out."""
        left_out = (f"{left['path']} {left['sha256']}" for left in self.omitted if "sha256" in left)
        text = "\n".join(filter(None, ["".join(self.sections), *left_out]))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest() if text else ""


class _GitError(Exception):
    """git did not answer; the text says why."""


def read(cwd: str, environ: Mapping[str, str], *, leave_out: Sequence[str] = (), secrets: Sequence[str] = ()) -> Code:
    """The repository around `cwd`, less the folders `leave_out`, where runs are kept. It raises nothing."""
    try:
        return _Reader(cwd, environ, leave_out, secrets).read()
    except (_GitError, OSError) as error:
        return Code({"root": "", "error": str(error)})


class _Reader:
    """Reads one repository; `prefix` is where it lies in the one around it, if it is a submodule."""

    def __init__(
        self, cwd: str, environ: Mapping[str, str], leave_out: Sequence[str], secrets: Sequence[str], prefix: str = ""
    ) -> None:
        self.environ = {**environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        self.index: Mapping[str, str] = {}
        self.root = self.cwd = cwd
        self.secrets, self.leave_out, self.prefix = secrets, leave_out, prefix

    def read(self) -> Code:
        try:
            self.root = self.git("rev-parse", "--show-toplevel").decode(errors="surrogateescape").strip()
        except _GitError as error:
            if "not a git repository" in str(error):
                return Code({"root": ""})
            raise
        self.cwd = self.root
        commit, branch = self.head()
        changes = self.changes(commit or _EMPTY_TREE)
        summary = {
            "root": self.root,
            "commit": commit,
            "branch": branch,
            "dirty": bool(changes.sections or changes.omitted),
            "patch_sha256": changes.checksum(),
            "untracked": changes.untracked,
            "omitted": changes.omitted,
            "redacted": changes.redacted,
            "error": "",
        }
        return Code(summary, "".join(changes.sections))

    def head(self) -> tuple[str, str]:
        try:
            commit, branch = self.git("rev-parse", "HEAD", "--abbrev-ref", "HEAD").decode().split("\n")[:2]
        except _GitError:  # a repository without a commit
            return "", ""
        return commit, branch

    def changes(self, base: str) -> _Changes:
        untracked, omitted = self.untracked()
        changes = _Changes([], untracked, omitted, [])
        with self.index_with(untracked, base):
            patch = self.diff(base, *self.included())
            if len(patch) > _PATCH_LIMIT:
                why = f"more than {_PATCH_LIMIT >> 20} MiB"
                omitted.append({"path": "diff.patch", "why": why, "sha256": hashlib.sha256(patch).hexdigest()})
                return changes
            submodules = self.sort(patch, changes, base)
        for path in submodules:
            self.add_submodule(path, changes)
        return changes

    def sort(self, patch: bytes, changes: _Changes, base: str) -> list[str]:
        """Add what a patch holds to `changes`. The submodules that are changed themselves remain to be read."""
        bare, submodules = [], []
        for path, section in self.sections(patch):
            folder = os.path.join(self.root, path)
            if _is_sensitive(path):
                changes.omitted.append(_hidden(path, folder))
            elif (dirty := _DIRTY.search(section)) and os.path.isdir(folder):
                submodules.append(path)
                if dirty[1] != dirty[2]:
                    changes.sections.append(section.replace("-dirty\n", "\n"))
            elif " " in _masked(section, redacted := redact_text(section, self.secrets)):  # it would not apply
                bare.append(f":(top,literal){path}")
            else:
                changes.add_file(path, section, redacted)
        for path, section in self.sections(self.diff(base, *bare, context=0)) if bare else ():
            changes.add_file(path, section, redact_text(section, self.secrets))
        return submodules

    def add_submodule(self, path: str, changes: _Changes) -> None:
        """Add what the submodule at `path` has on top of the commit that it is at."""
        environ = {k: v for k, v in self.environ.items() if k not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")}
        folder = os.path.join(self.root, path)
        inner = _Reader(folder, environ, self.leave_out, self.secrets, f"{self.prefix}{path}/")
        try:
            changes.add(path, inner.changes("HEAD"))
        except (_GitError, OSError) as error:
            changes.omitted.append({"path": f"{path}/", "why": f"a submodule with uncommitted changes: {error}"})

    def included(self) -> list[str]:
        """Pathspecs of all but the folders to leave out."""
        own = [os.path.relpath(os.path.realpath(path), self.root) for path in self.leave_out]
        inside = [path for path in own if not path.startswith("..") and path != "."]
        return [":(top)", *(f":(exclude,top,literal){path}" for path in inside)]

    def untracked(self) -> tuple[list[str], list[dict[str, str]]]:
        """Untracked files that the patch takes, and those that it does not, with the reason."""
        text = self.git("ls-files", "--others", "--exclude-standard", "-z", "--", *self.included())
        taken, omitted = [], []
        for name in filter(None, text.decode(errors="surrogateescape").split("\0")):
            path = os.path.join(self.root, name)
            if name.endswith("/"):
                omitted.append({"path": name, "why": "a repository of its own"})
            elif not os.path.islink(path) and (size := os.path.getsize(path)) > _FILE_LIMIT:
                omitted.append({"path": name, "why": f"{size} bytes: more than {_FILE_LIMIT >> 20} MiB"})
            elif _is_sensitive(name):
                omitted.append(_hidden(name, path))
            else:
                taken.append(name)
        return taken, omitted

    def diff(self, base: str, *pathspecs: str, context: int = 3) -> bytes:
        prefixes = (f"--src-prefix=a/{self.prefix}", f"--dst-prefix=b/{self.prefix}")
        return self.git("diff", *_PLAIN, *prefixes, f"--unified={context}", base, "--", *pathspecs)

    def sections(self, patch: bytes) -> Iterator[tuple[str, str]]:
        """The path of each file in a patch, and what the patch says of it."""
        text = patch.decode("utf-8", "surrogateescape")
        for section in filter(None, re.split(r"^(?=diff --git )", text, flags=re.M)):
            yield _path(section).removeprefix(self.prefix), section

    @contextlib.contextmanager
    def index_with(self, untracked: Sequence[str], base: str) -> Iterator[None]:
        """An index that knows of the untracked files, for as long as it lasts; the person's own stays as it is."""
        if not untracked:
            yield
            return
        with tempfile.TemporaryDirectory(prefix="primus-") as folder:
            self.index = self.index_for(folder)
            if not os.path.exists(f"{folder}/index"):
                self.git("read-tree", base)
            names = "\0".join(untracked).encode(errors="surrogateescape")
            self.git("add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul", given=names)
            yield
            self.index = {}

    def index_for(self, folder: str) -> dict[str, str]:
        """The environment for a copy of the person's index, if there is one: it knows what is unchanged.

        New objects go to `folder`, too: the person's repository may be one that only others may write.
        """
        index, objects = self.git("rev-parse", "--git-path", "index", "--git-path", "objects").decode().splitlines()
        own = os.path.join(self.cwd, index)
        known = (os.path.join(self.cwd, objects), self.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES"))
        os.mkdir(f"{folder}/objects")
        if os.path.exists(own):
            shutil.copy2(own, f"{folder}/index")  # by its time git knows which files it must look into
        return {
            "GIT_OBJECT_DIRECTORY": f"{folder}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(filter(None, known)),
            "GIT_INDEX_FILE": f"{folder}/index",
        }

    def git(self, *words: str, given: bytes = b"") -> bytes:
        literal = {"GIT_LITERAL_PATHSPECS": "1"} if given else {}
        try:
            done = subprocess.run(
                [*_QUIET, *words],
                cwd=self.cwd,
                env={**self.environ, **self.index, **literal},
                input=given,
                capture_output=True,
                timeout=_TIME_LIMIT_S,
                check=False,
            )
        except FileNotFoundError:
            raise _GitError("git is not installed") from None
        except subprocess.TimeoutExpired:
            raise _GitError(f"git {words[0]} took more than {_TIME_LIMIT_S:g} s") from None
        if done.returncode:
            raise _GitError(done.stderr.decode(errors="replace").strip() or f"git {words[0]} failed")
        return done.stdout


def _path(section: str) -> str:
    """The path in the first line of a section, `diff --git a/<path> b/<path>`; both halves may be in quotes."""
    names = section.partition("\n")[0].removeprefix("diff --git ")
    name = names[: len(names) // 2]
    if name.startswith('"'):
        escaped = name[1:-1].encode(errors="surrogateescape")
        name = escaped.decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
    return name.removeprefix("a/")


def _is_sensitive(path: str) -> bool:
    patterns = _SENSITIVE if path.lower().endswith(_CODE_SUFFIXES) else (*_SENSITIVE, *_SENSITIVE_UNLESS_CODE)
    return any(fnmatchcase(part, pattern) for part in path.lower().split("/") for pattern in patterns)


def _hidden(name: str, path: str) -> dict[str, str]:
    return {"path": name, "why": "may hold secrets", "sha256": _sha256(path)}


def _sha256(path: str) -> str:
    """Of what cannot be read, is gone, or is no file (opening a pipe would wait), nothing."""
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _masked(section: str, redacted: str) -> set[str]:
    """The kinds of lines that secrets were taken out of, by how they begin: `+`, `-`, ` ` (context), `@`."""
    if section == redacted:
        return set()
    lines = zip(section.split("\n"), redacted.split("\n"), strict=False)
    return {line[:1] for line, masked in lines if line != masked}
