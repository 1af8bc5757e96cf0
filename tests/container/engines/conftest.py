"""One podman and one docker for all tests of this folder, and a project with tasks to run in its containers."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.lab import containers
from tests.lab.containers import IMAGE, Docker, Engine, Podman

TASKS = '''
"""Tasks that behave in the ways a worker can."""
import os, signal, sys, time
from primus_core import register_task

@register_task("behave")
def behave(call):
    "Do what the words say."
    what, *rest = call.words
    if what == "exit":
        return int(rest[0])
    if what == "raise":
        raise ValueError("the first failure")
    if what == "write":
        open(rest[0], "w").close()
    if what == "framework":
        import torch
        print("torch", torch.__version__ + ", in", sys.executable)
    if what == "home":
        import getpass
        open(os.path.expanduser("~/written"), "w").close()
        print(os.getuid(), os.getgid(), getpass.getuser())
    if what == "words":
        print(rest)
    if what == "value":
        print("the value has", len(os.environ[rest[0]]), "letters:", os.environ[rest[0]])
    if what in ("wait", "stubborn"):
        number = signal.SIG_IGN if what == "stubborn" else lambda n, _: sys.exit(f"rank got {signal.Signals(n).name}")
        signal.signal(signal.SIGTERM, number)
        signal.signal(signal.SIGINT, number)
        print("ready in", "container" if os.path.exists("/run/.containerenv") or os.path.exists("/.dockerenv") else "host", flush=True)
        time.sleep(600)
'''
Start = Callable[..., subprocess.Popen[str]]


DOCKER = pytest.mark.full
"""Podman stands for both at each commit."""
both_engines = pytest.mark.parametrize("engine", ["podman", pytest.param("docker", marks=DOCKER)], indirect=True)
"""For what an engine does; what we plan is one for both."""


@pytest.fixture(scope="session")
def engines() -> Iterator[Callable[[str], Engine]]:
    """`engines(name)`: a real engine with an image, one for all tests; where it cannot be had, the test is skipped."""
    kinds = {"podman": Podman, "docker": Docker}
    running: dict[str, Engine] = {}

    def named(name: str) -> Engine:
        if why := containers.missing(name):
            pytest.skip(why)
        if name not in running:
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))  # podman takes no `--runroot` of more than 50 letters
            running[name] = kinds[name](folder)
        return running[name]

    yield named
    for engine in running.values():
        engine.close()


@pytest.fixture
def engine(request: pytest.FixtureRequest, engines: Callable[[str], Engine]) -> Engine:
    """Podman, if the test asks for no other one."""
    return engines(getattr(request, "param", "podman"))


@pytest.fixture
def clean_environ(clean_environ: dict[str, str], engine: Engine) -> dict[str, str]:
    """The environment in which everybody uses this engine."""
    return {**clean_environ, **engine.environ}


@pytest.fixture(autouse=True)
def no_container_is_left(engine: Engine) -> Iterator[None]:
    """Fail a test that leaves a container."""
    yield
    left = engine.containers()
    engine.remove(*left)
    assert not left


@pytest.fixture
def project(tmp_path: Path, engine: Engine) -> Path:
    """A folder with a `primus.yaml` that names a file of tasks, and the image to run them in."""
    settings = f"plugins: [./my_tasks.py]\ncontainer: {{image: '{IMAGE}', engine: {engine.name}}}\n"
    (tmp_path / "primus.yaml").write_text(settings, encoding="utf-8")
    (tmp_path / "my_tasks.py").write_text(TASKS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def start(clean_environ: dict[str, str], project: Path) -> Start:
    """`start(*words)` starts `primus` and returns when its task says that it is ready."""

    def started(*words: str) -> subprocess.Popen[str]:
        command = [str(Path(sys.executable).with_name("primus")), *words]
        process = subprocess.Popen(
            command, env=clean_environ, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout
        line = process.stdout.readline()
        assert line == "ready in container\n", (line, process.stderr and process.stderr.read())
        return process

    return started


def gone(engine: Engine, seconds: float = 60) -> bool:
    """Whether all containers are gone within so many seconds."""
    deadline = time.monotonic() + seconds
    while engine.containers() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not engine.containers()
