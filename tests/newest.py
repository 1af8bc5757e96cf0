"""Runs the suite with the newest release of every package: in environments of its own, without the locks.

`hatch run test --newest` tells at its end which packages are of another version than locked, with both versions.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests import lock, python312

NEWEST = "PRIMUS_TEST_NEWEST"
"""The variable with which hatch.toml leaves the locks out."""


def run(words: Sequence[str]) -> int:
    """Run `hatch run test WORDS` in new environments and print the differences; its exit code."""
    folder = lock.ROOT / ".suite/newest"
    environ = {**python312.outside(), NEWEST: "1", "HATCH_DATA_DIR": str(folder)}
    code = subprocess.run(["hatch", "run", "test", *words], env=environ, cwd=lock.ROOT, check=False).returncode
    for name in lock.environments():
        for package, locked, found in differences(name, environ):
            print(f"{name}: {package} {locked} -> {found}")
    return code


def differences(name: str, environ: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Each package of an environment whose version is not a locked one, with both."""
    found = subprocess.run(["hatch", "env", "find", name], env=environ, cwd=lock.ROOT, text=True, capture_output=True,
                           check=True).stdout.strip()  # fmt: skip
    if not os.path.exists(f"{found}/bin/python"):
        return
    listed = subprocess.run(["uv", "pip", "list", "--python", f"{found}/bin/python", "--format", "json"], text=True,
                            capture_output=True, check=True).stdout  # fmt: skip
    pins = versions(lock.LOCKS / f"{name}.txt")
    for row in json.loads(listed):
        package, version = re.sub(r"[-_.]+", "-", row["name"].lower()), row["version"].partition("+")[0]
        if package in pins and version not in pins[package]:
            yield package, " or ".join(pins[package]), version


def versions(file: Path) -> dict[str, list[str]]:
    """The locked versions of each package: one, or one for each kind of machine."""
    found: dict[str, list[str]] = {}
    for package, version in re.findall(r"^([\w.-]+)==(\S+)", file.read_text(encoding="utf-8"), re.M):
        found.setdefault(package, []).append(version)
    return found
