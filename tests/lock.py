"""Pins every package of every environment of hatch.toml: `hatch run lock` writes `locks/ENVIRONMENT.txt` by `uv pip compile`.

pip installs the environments within these pins (`PIP_CONSTRAINT` in hatch.toml), so that no release of others changes
what the tests see. A file that is there is kept as far as it goes: with `--upgrade`, each package becomes its newest.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
OLDEST = "3.11"
"""The Python of an environment that names none: what holds for it and later ones is locked."""


def environments() -> dict[str, Any]:
    """Those of hatch.toml in which packages of this repository are installed."""
    known = tomllib.loads((ROOT / "hatch.toml").read_text(encoding="utf-8"))["envs"]
    return {name: env for name, env in known.items() if "workspace" in env}


def requirements(env: dict[str, Any]) -> Iterator[str]:
    """What an environment and its members need, without the members themselves."""
    projects = {
        path.parent: tomllib.loads(path.read_text(encoding="utf-8")) for path in ROOT.glob("packages/*/pyproject.toml")
    }
    own = {data["project"]["name"] for data in projects.values()}
    members, excluded = env["workspace"]["members"], env["workspace"].get("exclude", ())
    needed = list(env.get("dependencies", ()))
    for folder, data in projects.items():
        name = str(folder.relative_to(ROOT))
        if any(fnmatch(name, m) for m in members) and name not in excluded:
            needed += [*data["project"].get("dependencies", ()), *data["build-system"]["requires"]]
    yield from (line for line in needed if re.split(r"[\s\[<>=!~;]", line)[0] not in own)


def main(words: Sequence[str]) -> int:
    """Write all files; the exit code of the first that cannot be."""
    LOCKS.mkdir(exist_ok=True)
    for name, env in environments().items():
        file = LOCKS / f"{name}.txt"
        command = ["uv", "pip", "compile", "-", "--universal", "--python-version", env.get("python", OLDEST), "--quiet",
                   "--no-annotate", "--custom-compile-command", "hatch run lock", "--output-file", str(file), *words]  # fmt: skip
        done = subprocess.run(command, input="\n".join(requirements(env)), text=True, check=False, cwd=ROOT)
        if done.returncode:
            return done.returncode
        print(file.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
