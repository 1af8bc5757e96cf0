"""Git repositories for tests: made with git itself, whatever the developer's own settings are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_OWN = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": f"ada{at}" for who in ("AUTHOR", "COMMITTER") for what, at in (("NAME", ""), ("EMAIL", "@x"))},
}  # fmt: skip


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    environ = {**os.environ, **_OWN}
    return subprocess.run(
        ["git", *words], cwd=folder, env=environ, text=True, capture_output=True, check=True, timeout=60
    ).stdout


def commit(folder: Path) -> None:
    """Commit all that is there."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "x")


def tree(folder: Path) -> dict[str, tuple[bool, bytes]]:
    """Each file below a folder: whether it can be executed, and its bytes (a link: where it leads)."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = (False, os.fsencode(os.readlink(path)))
        elif path.is_file() and not name.startswith(".git/"):
            found[name] = (os.access(path, os.X_OK), path.read_bytes())
    return found
