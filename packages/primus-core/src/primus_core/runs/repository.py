"""What code ran: commit and diff of the person's git repository, untracked and binary files included.

The patch is what `git apply` takes on top of the commit, except where secrets were taken out of it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primus_core.secrets import redact_text

__all__ = ["Code", "read"]

_FILE_LIMIT = 1 << 20
"""An untracked file of more bytes is named and left out."""
_PATCH_LIMIT = 32 << 20
_TIME_LIMIT_S = 20.0
# Files that people keep secrets in; git's own pathspec patterns.
_SENSITIVE = (".env", ".env.*", "*.pem", "*.key", "id_rsa*", "id_ed25519*", ".netrc", "*credentials*", "*.kubeconfig")
_QUIET = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_PLAIN = (  # whatever the person's configuration says of patches: `git apply` must take this one
    *("--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "--submodule=short"),
)
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name for a tree without files


class Code(NamedTuple):
    """`summary` is `code/code.json`; `patch` is empty where nothing was changed."""

    summary: dict[str, Any]
    patch: str = ""


class _GitError(Exception):
    """git did not answer; the text says why."""


def read(cwd: str, environ: Mapping[str, str], *, leave_out: Sequence[str] = (), secrets: Sequence[str] = ()) -> Code:
    """The repository around `cwd`, less the folders `leave_out`, where runs are kept. It raises nothing."""
    try:
        return _Reader(cwd, environ, leave_out, secrets).read()
    except (_GitError, OSError) as error:
        return Code({"root": "", "error": str(error)})


class _Reader:
    def __init__(self, cwd: str, environ: Mapping[str, str], leave_out: Sequence[str], secrets: Sequence[str]) -> None:
        self.environ = {**environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        self.cwd, self.secrets, self.leave_out = cwd, secrets, leave_out

    def read(self) -> Code:
        try:
            self.root = self.git("rev-parse", "--show-toplevel").decode(errors="surrogateescape").strip()
        except _GitError as error:
            if "not a git repository" in str(error):
                return Code({"root": ""})
            raise
        self.cwd = self.root
        commit, branch = self.head()
        untracked, omitted = self.untracked()
        patch = self.patch(commit or _EMPTY_TREE, untracked)
        if len(patch) > _PATCH_LIMIT:
            omitted.append({"path": "diff.patch", "why": f"more than {_PATCH_LIMIT >> 20} MiB"})
            patch = b""
        text = redact_text(patch.decode("utf-8", "surrogateescape"), self.secrets)
        summary = {
            "root": self.root,
            "commit": commit,
            "branch": branch,
            "dirty": bool(text or omitted),
            "patch_sha256": hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest() if text else "",
            "untracked": untracked,
            "omitted": omitted,
            "error": "",
        }
        return Code(summary, text)

    def head(self) -> tuple[str, str]:
        try:
            commit, branch = self.git("rev-parse", "HEAD", "--abbrev-ref", "HEAD").decode().split("\n")[:2]
        except _GitError:  # a repository without a commit
            return "", ""
        return commit, branch

    def excluded(self) -> list[str]:
        own = [os.path.relpath(os.path.realpath(path), self.root) for path in self.leave_out]
        inside = [path for path in own if not path.startswith("..") and path != "."]
        sensitive = [f":(exclude,top,glob)**/{pattern}" for pattern in _SENSITIVE]
        return [":(top)", *(f":(exclude,top,literal){path}" for path in inside), *sensitive]

    def untracked(self) -> tuple[list[str], list[dict[str, str]]]:
        """Untracked files that the patch takes, and those that it does not, with the reason."""
        text = self.git("ls-files", "--others", "--exclude-standard", "-z", "--", *self.excluded())
        taken, omitted = [], []
        for name in filter(None, text.decode(errors="surrogateescape").split("\0")):
            path = os.path.join(self.root, name)
            if name.endswith("/"):
                omitted.append({"path": name, "why": "a repository of its own"})
            elif not os.path.islink(path) and (size := os.path.getsize(path)) > _FILE_LIMIT:
                omitted.append({"path": name, "why": f"{size} bytes: more than {_FILE_LIMIT >> 20} MiB"})
            else:
                taken.append(name)
        return taken, omitted

    def patch(self, base: str, untracked: Sequence[str]) -> bytes:
        diff = ("diff", *_PLAIN, base)
        if not untracked:
            return self.git(*diff, "--", *self.excluded())
        with tempfile.TemporaryDirectory(prefix="primus-") as folder:  # the person's own index stays as it is
            self.index_for(folder, base)
            names = "\0".join(untracked).encode(errors="surrogateescape")
            self.git("add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul", given=names)
            return self.git(*diff, "--", *self.excluded())

    def index_for(self, folder: str, base: str) -> None:
        """A copy of the person's index, which knows what is unchanged; of the commit, where there is none.

        New objects go to `folder`, too: the person's repository may be one that only others may write.
        """
        index, objects = self.git("rev-parse", "--git-path", "index", "--git-path", "objects").decode().splitlines()
        own = os.path.join(self.cwd, index)
        known = (os.path.join(self.cwd, objects), self.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES"))
        os.mkdir(f"{folder}/objects")
        self.environ["GIT_OBJECT_DIRECTORY"] = f"{folder}/objects"
        self.environ["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = os.pathsep.join(filter(None, known))
        self.environ["GIT_INDEX_FILE"] = f"{folder}/index"
        if os.path.exists(own):
            shutil.copyfile(own, f"{folder}/index")
        else:
            self.git("read-tree", base)

    def git(self, *words: str, given: bytes = b"") -> bytes:
        literal = {"GIT_LITERAL_PATHSPECS": "1"} if given else {}
        try:
            done = subprocess.run(
                [*_QUIET, *words],
                cwd=self.cwd,
                env={**self.environ, **literal},
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
