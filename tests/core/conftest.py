"""Fixtures of the kernel's tests: a project with tasks of its own, and packages of other teams."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from tests.once import once

THIRD_PARTY = Path(__file__).resolve().parent.parent / "third_party"

TASKS = '''
"""Tasks that behave in the ways a worker can."""
import os, signal, subprocess, sys, time
from primus_core import register_task, register_subcommand

@register_task("analyze topology")
def analyze(call):
    "Say where it runs."
    print("rank", call.rank, "of", call.world_size, "words", list(call.words))
    print("to stderr", file=sys.stderr)

@register_task("ranks", scope="rank")
def ranks(call):
    "What each rank does is its first word, the rank it is meant for its second."
    what, whom = call.words[0], int(call.words[1])
    print("rank", call.rank, "is here")
    if call.rank != whom:
        time.sleep(3 if what == "end" else 60)
        raise ConnectionError("the other side closed the connection")
    if what == "raise":
        time.sleep(0.5)
        raise ValueError("the first failure")
    if what == "die":
        open(call.run_dir + "/dying", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

@register_subcommand("behave")
def behave(call):
    "Do what the words say."
    what, *rest = call.words
    if what == "exit":
        return int(rest[0])
    if what == "raise":
        raise ValueError(" ".join(rest))
    if what == "signal":
        os.kill(os.getpid(), int(rest[0]))
    if what == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if what == "family":
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    if what == "environment":
        print(dict(os.environ))
        print("split", end="", flush=True)
    if what == "talk":
        for line in range(int(rest[0])):
            print("line", line, "x" * 80)
    if what in ("stubborn", "family", "wait"):
        print("ready", flush=True)
        time.sleep(600)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a `primus.yaml` that names one file of tasks."""
    (tmp_path / "primus.yaml").write_text("plugins: [./my_tasks.py]\n", encoding="utf-8")
    (tmp_path / "my_tasks.py").write_text(TASKS, encoding="utf-8")
    return tmp_path


def install(folder: Path, names: Sequence[str] = ("acme-primus", "broken-primus")) -> None:
    """Packages of other teams, installed by pip. What builds them is here already; else pip would download it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    packages = (str(THIRD_PARTY / name) for name in names)
    subprocess.run([*command, "--target", str(folder), *packages], check=True, timeout=300)


@pytest.fixture(scope="session")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder into which pip installed the packages of other teams; goes on PYTHONPATH."""
    return str(once(tmp_path_factory, "third-party", install))


@pytest.fixture(scope="session")
def acme_grid(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same with the batch system of another team."""
    return str(once(tmp_path_factory, "acme-grid", partial(install, names=("acme-grid",))))
