"""Which Python 3.12 is here: PATH, pyenv and uv are searched.

`python -m tests.python312 beside COMMAND` runs a command in this environment, which is told where those of Python 3.12
are, as far as they are made: `PRIMUS_TEST_MEGATRON` and `PRIMUS_TEST_MAXTEXT` name their `bin` folders, or are empty.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.outcomes import COMPLETE


def find(version: str = "3.12") -> Path | None:
    """The first Python of that version that runs: a shim of a version manager may be there and refuse to."""
    test = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    return next((path for path in _candidates(version) if _output([str(path), "-c", test]) is not None), None)


def _candidates(version: str) -> Iterator[Path]:
    if path := shutil.which(f"python{version}"):
        yield Path(path)
    if folder := _output(["pyenv", "prefix", version]):
        yield Path(folder, f"bin/python{version}")
    if path := _output(["uv", "python", "find", version]):
        yield Path(path)


def _output(command: list[str], environ: dict[str, str] | None = None) -> str | None:
    try:
        return subprocess.run(command, env=environ, text=True, capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def main() -> int:
    """Run a command beside those environments, in place of this process; or the exit code where that cannot be."""
    assert sys.argv[1] == "beside"
    made = dict(_environments())
    missing = [name for name, folder in made.items() if not folder]
    if not missing or os.environ.get(COMPLETE, "") in ("", "0"):
        os.execvpe(sys.argv[2], sys.argv[2:], {**os.environ, **made})
    print(f"no environment for {', '.join(missing)}: hatch env create NAME", file=sys.stderr)
    return 3


def _environments() -> Iterator[tuple[str, str]]:
    """The `bin` folders of those that hatch has made."""
    for name in ("megatron", "maxtext"):
        folder = Path(_output(["hatch", "env", "find", name], outside()) or "/nowhere", "bin")
        yield f"PRIMUS_TEST_{name.upper()}", str(folder) if (folder / "primus").exists() else ""


def outside() -> dict[str, str]:
    """The variables without those of the environment that this runs in. Bytecode is kept: without, pytest compiles all
    tests again in each process, which costs as much as to run a tenth of them.
    """
    without = ("HATCH_ENV_ACTIVE", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in without}


if __name__ == "__main__":
    raise SystemExit(main())
