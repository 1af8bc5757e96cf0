"""Tests that mostly wait, side by side: each runs in a thread, with a cluster, a folder and an environment of its own.

A test that asks for a `lab` is such a test. The first one of a file starts all; each then waits for its own end.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest
from tests.conftest import MARK, all_gone, plain_environ
from tests.lab.slurm import Cluster, wait_until

__all__ = ["Lab", "SideBySide"]

AT_ONCE = 4
"""More would not end sooner: two cores are busy then, with the starts of ranks."""


class Lab:
    """What such a test has: four nodes, which it may break, and `primus`, started in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = Cluster(4)
        self.environ = {**plain_environ(), MARK: uuid.uuid4().hex, **self.cluster.environ}
        self._begun: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        self.cluster.start()
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._begun:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.cluster.stop()
        wait_until(lambda: all_gone(self.environ), 30)

    def primus(self, *words: str) -> subprocess.Popen[str]:
        """Start `primus` as on the login node; what it says goes to pipes."""
        command = [str(Path(sys.executable).with_name("primus")), *words]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environ, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._begun.append(process)
        return process


class SideBySide:
    """The tests of a file, which have begun."""

    def __init__(self, tests: Iterable[pytest.Function], folder: Callable[[], Path]) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._ends = {test.nodeid: self._pool.submit(_run, test, folder()) for test in tests}

    def end(self, test: pytest.Function) -> None:
        """Wait for a test; what it raised is raised here."""
        self._ends[test.nodeid].result()

    def close(self) -> None:
        """Begin no others."""
        self._pool.shutdown(cancel_futures=True)


def _run(test: pytest.Function, folder: Path) -> None:
    with Lab(folder) as lab:
        test.obj(lab=lab, **(test.callspec.params if hasattr(test, "callspec") else {}))
