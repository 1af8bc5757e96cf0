"""Runs what needs Python 3.12, with the one that is here: `python -m tests.python312 megatron:test`, words for hatch.

Interpreters are asked for on PATH, of pyenv and of uv. Where there is none, it says so, and nothing is run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_IS_IT = "import sys; sys.exit(sys.version_info[:2] != (3, 12))"


def find() -> Path | None:
    """The first that runs: a shim of a version manager may be there and refuse to."""
    return next((path for path in _candidates() if _output([str(path), "-c", _IS_IT]) is not None), None)


def _candidates() -> Iterator[Path]:
    if path := shutil.which("python3.12"):
        yield Path(path)
    if folder := _output(["pyenv", "prefix", "3.12"]):
        yield Path(folder) / "bin/python3.12"
    if path := _output(["uv", "python", "find", "3.12"]):
        yield Path(path)


def _output(command: list[str]) -> str | None:
    try:
        return subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> int:
    """Run hatch; its exit code."""
    python = find()
    if not python:
        words = f"no Python 3.12 (asked PATH, pyenv and uv): hatch run {' '.join(sys.argv[1:])} is left out"
        print(words, file=sys.stderr)
        return 0
    environ = {name: value for name, value in os.environ.items() if name not in ("HATCH_ENV_ACTIVE", "VIRTUAL_ENV")}
    environ["PATH"] = f"{python.parent}:{environ.get('PATH', '')}"
    return subprocess.run(["hatch", "run", *sys.argv[1:]], env=environ, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
