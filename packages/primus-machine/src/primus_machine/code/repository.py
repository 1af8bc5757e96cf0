"""What code ran: commit and diff of the person's git repository, with untracked and binary files and submodules.

The patch is what `git apply --unidiff-zero` takes on top of the commit, except where secrets were taken out of it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import operator
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Any, NamedTuple

from primus_machine.code.git import Git, GitError, head_of, regular_anywhere, words_of
from primus_machine.secrets.redaction import redact_text

__all__ = ["Code", "read"]

_FILE_LIMIT = 1 << 20
"""An untracked file of more bytes is named and left out."""
_FILES_LIMIT = 1000
"""So many untracked files are taken, code first; of the others their number is said."""
_PATCH_LIMIT = 32 << 20
_AT_ONCE = 50
_TIME_LIMIT_S = 20.0
"""For all questions together."""
# Files and folders that people keep secrets in; the latter kinds of names also code has that deals with secrets.
_SENSITIVE = (
    *(".env", ".env.*", "*.pem", "*.key", ".netrc", "*.kubeconfig", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk"),
    *(".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".pgpass", ".dockercfg", ".vault-token"),
)
_SENSITIVE_UNLESS_CODE = ("id_rsa*", "id_ed25519*", "id_ecdsa*", "id_dsa*", "*credentials*")
_CODE_SUFFIXES = (
    *(".py", ".pyi", ".ipynb", ".sh", ".md", ".rst"),
    *(".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hip", ".hpp"),
)
_CODE_END = re.compile(rf"(?:{'|'.join(map(re.escape, _CODE_SUFFIXES))})(?=\0)", re.I)
_PLAIN = (  # whatever the person's configuration says of patches: `git apply` must take this one
    *("--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--no-renames", "--submodule=short", "--ignore-submodules=dirty"),
)
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name for a tree without files


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


def read(cwd: str, environ: Mapping[str, str], *, leave_out: Sequence[str] = (), secrets: Sequence[str] = ()) -> Code:
    """The repository around `cwd`, less the folders `leave_out`, where runs are kept. It raises nothing, and what was
    answered before git failed is kept.
    """
    root, commit, branch = ("", "", "") if environ.get("GIT_DIR") else head_of(cwd)
    git = Git(cwd, environ, time.monotonic() + _TIME_LIMIT_S)
    summary: dict[str, Any] = {"root": root, "commit": commit, "branch": branch, "dirty": False, "error": ""}
    try:
        patch = _fill(summary, git, leave_out, secrets)
    except (GitError, OSError) as error:
        if not root and "not a git repository" in str(error):
            return Code({"root": ""})
        missing = ["uncommitted changes"] if summary["commit"] else ["commit", "uncommitted changes"]
        return Code({**summary, "error": str(error), "missing": missing})
    return Code(summary, patch)


def _fill(summary: dict[str, Any], git: Git, leave_out: Sequence[str], secrets: Sequence[str]) -> str:
    """Ask git for what `summary` says, one after the other; the patch."""
    git.cwd = summary["root"] = git("rev-parse", "--show-toplevel").decode(errors="surrogateescape").rstrip("\n")
    summary["commit"], summary["branch"] = _head(git)
    changes = _Reader(git, leave_out, secrets).changes(summary["commit"] or _EMPTY_TREE)
    summary |= {
        "dirty": bool(changes.sections or changes.omitted),
        "patch_sha256": changes.checksum(),
        "untracked": changes.untracked,
        "omitted": changes.omitted,
        "redacted": changes.redacted,
    }
    return "".join(changes.sections)


def _head(git: Git) -> tuple[str, str]:
    try:
        commit, branch = git("rev-parse", "HEAD", "--abbrev-ref", "HEAD").decode().split("\n")[:2]
    except GitError as error:
        if error.code is None:
            raise
        return "", ""  # a repository without a commit
    return commit, branch


class _Reader:
    """Reads one repository; `prefix` is where it lies in the one around it, if it is a submodule."""

    def __init__(self, git: Git, leave_out: Sequence[str], secrets: Sequence[str], prefix: str = "") -> None:
        self.git, self.root, self.prefix = git, git.cwd, prefix
        self.secrets, self.leave_out = secrets, leave_out
        self.index: Mapping[str, str] = {}

    def changes(self, base: str) -> _Changes:
        self.git.disable_filters()
        untracked, omitted = self.untracked()
        changes = _Changes([], untracked, omitted, [])
        with self.index_with(untracked, base):
            filtered = self.filtered(base)
            omitted += [self.left(name, "a filter of git changes it") for name in filtered]
            without = [f":(exclude,top,literal){name}" for name in filtered]
            patch = self.diff(base, *self.included(), *without)
            if len(patch) > _PATCH_LIMIT:
                why = f"more than {_PATCH_LIMIT >> 20} MiB"
                omitted.append({"path": "diff.patch", "why": why, "sha256": hashlib.sha256(patch).hexdigest()})
                return changes
            self.sort(patch, changes, base)
        for path in self.submodules():
            self.add_submodule(path, changes)
        return changes

    def filtered(self, base: str) -> list[str]:
        """Changed files whose content would pass through a filter, which is not run: git LFS, mostly."""
        if not self.git.filters:
            return []
        options = ("--name-only", "--ignore-submodules=all", "--no-renames", "-z")
        names = self.git("diff", *options, base, "--", *self.included(), environ=self.index)
        output = self.git("check-attr", "-z", "--stdin", "filter", given=names, environ=self.index)
        fields = output.decode(errors="surrogateescape").split("\0")
        known = set(self.git.filters)
        return [path for path, value in zip(fields[::3], fields[2::3], strict=False) if value in known]

    def submodules(self) -> list[str]:
        """The submodules that are checked out."""
        rows = self.git("ls-files", "--stage", "-z").decode(errors="surrogateescape").split("\0")
        paths = [row.partition("\t")[2] for row in rows if row.startswith("160000 ")]
        return [path for path in paths if os.path.lexists(os.path.join(self.root, path, ".git"))]

    def sort(self, patch: bytes, changes: _Changes, base: str) -> None:
        """Add what a patch holds to `changes`."""
        bare, shown = [], []
        for path, section in self.sections(patch):
            if _is_sensitive(path):
                changes.omitted.append(self.left(path, "may hold secrets"))
            else:
                shown.append((path, section))
        for path, section, redacted in self.redacted(shown):
            if " " in _masked(section, redacted):  # it would not apply
                bare.append(f":(top,literal){path}")
            else:
                changes.add_file(path, section, redacted)
        for path, section in self.sections(self.diff(base, *bare, context=0)) if bare else ():
            changes.add_file(path, section, redact_text(section, self.secrets))

    def redacted(self, sections: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
        """Sections with their redacted form; many at once, as most hold no secret."""
        for start in range(0, len(sections), _AT_ONCE):
            batch = sections[start : start + _AT_ONCE]
            text = "".join(section for _, section in batch)
            clean = len(batch) > 1 and redact_text(text, self.secrets) == text
            for path, section in batch:
                yield path, section, section if clean else redact_text(section, self.secrets)

    def add_submodule(self, path: str, changes: _Changes) -> None:
        """Add what the submodule at `path` has on top of the commit that it is at."""
        own = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
        environ = {name: value for name, value in self.git.environ.items() if name not in own}
        git = Git(os.path.join(self.root, path), environ, self.git.ends)
        inner = _Reader(git, self.leave_out, self.secrets, f"{self.prefix}{path}/")
        try:
            changes.add(path, inner.changes("HEAD"))
        except (GitError, OSError) as error:
            changes.omitted.append({"path": f"{path}/", "why": f"a submodule with uncommitted changes: {error}"})

    def included(self) -> list[str]:
        """Pathspecs of all but the folders to leave out."""
        own = [os.path.relpath(os.path.realpath(path), self.root) for path in self.leave_out]
        inside = [path for path in own if not path.startswith("..") and path != "."]
        return [":(top)", *(f":(exclude,top,literal){path}" for path in inside)]

    def untracked(self) -> tuple[list[str], list[dict[str, str]]]:
        """Untracked files that the patch takes, and those that it does not, with the reason."""
        text = self.git("ls-files", "--others", "--exclude-standard", "-z", "--", *self.included())
        names = text.decode(errors="surrogateescape").split("\0")[:-1]
        if len(names) > _FILES_LIMIT:
            names = _code_first(names)
        taken, omitted, room = [], _others(names[_FILES_LIMIT:]), _PATCH_LIMIT
        for name in names[:_FILES_LIMIT]:
            path = os.path.join(self.root, name)
            size = 0 if name.endswith("/") or os.path.islink(path) else os.path.getsize(path)
            if name.endswith("/"):
                omitted.append({"path": name, "why": "a repository of its own"})
            elif size > _FILE_LIMIT:
                omitted.append({"path": name, "why": f"{size} bytes: more than {_FILE_LIMIT >> 20} MiB"})
            elif _is_sensitive(name):
                omitted.append(self.left(name, "may hold secrets"))
            elif size > room:
                omitted.append(self.left(name, f"more than {_PATCH_LIMIT >> 20} MiB with the files before it"))
            else:
                taken.append(name)
                room -= size
        return sorted(taken), omitted

    def left(self, name: str, why: str) -> dict[str, str]:
        return {"path": name, "why": why, "sha256": _sha256(os.path.join(self.root, name), self.git.ends)}

    def diff(self, base: str, *pathspecs: str, context: int = 3) -> bytes:
        prefixes = (f"--src-prefix=a/{self.prefix}", f"--dst-prefix=b/{self.prefix}")
        options = (*_PLAIN, *prefixes, f"--unified={context}")
        return self.git("diff", *options, base, "--", *pathspecs, environ=self.index)

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
                self.git("read-tree", base, environ=self.index)
            options = ("--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
            literal = {**self.index, "GIT_LITERAL_PATHSPECS": "1"}
            self.git("add", *options, given=words_of(untracked), environ=literal)
            yield
            self.index = {}

    def index_for(self, folder: str) -> dict[str, str]:
        """The environment for a copy of the person's index, if there is one: it knows what is unchanged.

        New objects go to `folder`, too: the person's repository may be one that only others may write.
        """
        index, objects = self.git("rev-parse", "--git-path", "index", "--git-path", "objects").decode().splitlines()
        own = os.path.join(self.root, index)
        known = (os.path.join(self.root, objects), self.git.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES"))
        os.mkdir(f"{folder}/objects")
        if os.path.exists(own):
            shutil.copy2(own, f"{folder}/index")  # by its time git knows which files it must look into
        return {
            "GIT_OBJECT_DIRECTORY": f"{folder}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(filter(None, known)),
            "GIT_INDEX_FILE": f"{folder}/index",
        }


def _path(section: str) -> str:
    """The path in the first line of a section, `diff --git a/<path> b/<path>`; both halves may be in quotes."""
    names = section.partition("\n")[0].removeprefix("diff --git ")
    name = names[: len(names) // 2]
    if name.startswith('"'):
        escaped = name[1:-1].encode(errors="surrogateescape")
        name = escaped.decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
    return name.removeprefix("a/")


def _code_first(names: list[str]) -> list[str]:
    """Code, then the rest; what lies near the top before what lies deep. Of equals, git's order stays: by name."""
    names.sort(key=operator.methodcaller("count", "/"))  # of a hundred thousand: nothing of ours runs for each
    text = "\0".join(("", *names, ""))
    code = [text[text.rindex("\0", 0, end.start()) + 1 : end.end()] for end in _CODE_END.finditer(text)]
    known = frozenset(code)
    return code + list(itertools.filterfalse(known.__contains__, names))


def _is_sensitive(path: str) -> bool:
    return any(map(_sensitive(path.lower().endswith(_CODE_SUFFIXES)), path.lower().split("/")))


@functools.cache
def _sensitive(code: bool) -> Callable[[str], object]:
    """Whether the name of a file or folder is one that people keep secrets in."""
    patterns = _SENSITIVE if code else (*_SENSITIVE, *_SENSITIVE_UNLESS_CODE)
    return re.compile("|".join(map(translate, patterns))).match


def _others(names: Sequence[str]) -> list[dict[str, str]]:
    """Files beyond the limit, by the folder at the top: how many, and whether they are the same ones at a replay."""
    folders: dict[str, list[str]] = {}
    for name in names:
        folders.setdefault(name.partition("/")[0] + "/" if "/" in name else "./", []).append(name)
    why = f"untracked files: more than {_FILES_LIMIT}"
    return [
        {"path": folder, "why": f"{len(those)} {why}", "sha256": hashlib.sha256(words_of(those)).hexdigest()}
        for folder, those in folders.items()
    ]


def _sha256(path: str, ends: float) -> str:
    """Of what cannot be read, is gone, is no file (opening a pipe would wait), or has no end before `ends`, nothing."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", opener=regular_anywhere) as file:
            while data := file.read(1 << 20):
                digest.update(data)
                if time.monotonic() > ends:
                    return ""
    except OSError:
        return ""
    return digest.hexdigest()


def _masked(section: str, redacted: str) -> set[str]:
    """The kinds of lines that secrets were taken out of, by how they begin: `+`, `-`, ` ` (context), `@`."""
    if section == redacted:
        return set()
    lines = zip(section.split("\n"), redacted.split("\n"), strict=False)
    return {line[:1] for line, masked in lines if line != masked}
