"""What the tests of a run need once, such as built packages: the first process that asks makes it, the others wait."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name` of this run of the tests, filled by `make`. Where that fails, the next that asks tries again."""
    base = factory.getbasetemp()
    if base.name.startswith("popen-"):  # each process of xdist has a folder of its own, in that of the run
        base = base.parent
    folder, unfinished = base / name, base / f"{name}.unfinished"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder
