"""Packages that are installed as they were before their entry points changed: hatch keeps an environment that it has
made, and looks at dependencies only.

`python -m tests.outdated` installs them anew in the environment that it runs in.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from primus_machine import packages as installed

PACKAGES = Path(__file__).resolve().parent.parent / "packages"


def outdated(folder: Path) -> list[str]:
    """The packages in `folder` that are installed with other entry points than they have by now."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    for entry in installed.entry_points():
        value = f"{entry.module}:{entry.attribute}".removesuffix(":")
        found.setdefault(entry.package, set()).add((entry.group, entry.name, value))
    old = []
    for path in sorted(folder.glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        groups = project.get("entry-points", {}).items()
        wanted = {(group, name, value) for group, entries in groups for name, value in entries.items()}
        if installed.version_of(project["name"]) and wanted != found.get(project["name"], set()):
            old.append(project["name"])
    return old


def main() -> int:
    """Install them anew; the exit code of pip."""
    names = outdated(PACKAGES)
    print("installed before their entry points changed:", ", ".join(names) or "none")
    folders = (word for name in names for word in ("--editable", str(PACKAGES / name)))
    command = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *folders)
    return subprocess.run(command, check=False).returncode if names else 0


if __name__ == "__main__":
    raise SystemExit(main())
