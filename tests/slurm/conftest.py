"""A real cluster for the tests of the runtime `slurm` that ask for one: one for the session, of four nodes.

A test that breaks nodes or waits for Slurm's clock asks for a `lab` instead (`tests.lab.side_by_side`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.conftest import project
from tests.lab import containers, plain, slurm
from tests.lab.side_by_side import SideBySide
from tests.lab.slurm import Cluster, wait_until

__all__ = ["project"]

TASKS = '''
"""Tasks that say where they run."""
import os, signal, socket, sys, time
from primus_core import register_task

@register_task("ranks", scope="rank")
def ranks(call):
    "Say which rank is where; then do what the words say."
    print("rank", call.rank, "of", call.world_size, "on", socket.gethostname(), list(call.words[1:]), flush=True)
    what = call.words[0]
    if what == "exit":
        open(call.run_dir + "/said_%d" % call.rank, "w").close()
        while not all(os.path.exists(call.run_dir + "/said_%d" % rank) for rank in range(call.world_size)):
            time.sleep(0.05)  # the rank that fails ends the others, which have a line to say
        return int(call.words[1]) if call.rank == int(call.words[2]) else 0
    if what == "token":
        with open(call.run_dir + "/token_%d" % call.rank, "w") as file:
            file.write(os.environ.get("HF_TOKEN", "")[::-1])
        while not os.path.exists(call.run_dir + "/seen"):
            time.sleep(0.1)
    if what == "save":
        def save(number, frame):
            time.sleep(float((*call.words, 1.5)[1]))
            open(call.run_dir + "/saved_%d" % call.rank, "w").close()
            os._exit(int(call.words[2]) if len(call.words) > 2 else 128 + number)
        signal.signal(signal.SIGTERM, save)
        signal.signal(signal.SIGINT, save)
    if what in ("save", "wait"):
        print("ready", flush=True)
        time.sleep(600)
'''


CLUSTERS = frozenset({"cluster", "side_by_side"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those with a cluster need torchrun, too, to start ranks."""
    for item in items:
        if Path(__file__).parent in item.path.parents and CLUSTERS & set(getattr(item, "fixturenames", ())):
            for mark in (pytest.mark.slurm, pytest.mark.torch, pytest.mark.full):
                item.add_marker(mark)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four nodes; skipped with the reason where there can be none."""
    if why := slurm.missing():
        pytest.skip(why)
    running = Cluster(4).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def side_by_side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    """Those tests of the file that ask for a lab, all of which begin now."""
    if why := slurm.missing():
        pytest.skip(why)
    functions = [item for item in request.session.items if isinstance(item, pytest.Function)]
    tests = [item for item in functions if item.path == request.path and "lab" in item.fixturenames]
    running = SideBySide(tests, lambda: tmp_path_factory.mktemp("lab"))
    yield running
    running.close()


@pytest.fixture
def lab(side_by_side: SideBySide) -> None:
    """A cluster of the test's own, in a thread: `pytest_pyfunc_call`."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test with a lab has begun already: its end is the test's."""
    if "lab" not in pyfuncitem.fixturenames:
        return None
    running = pyfuncitem.funcargs["side_by_side"]
    assert isinstance(running, SideBySide)
    running.end(pyfuncitem)
    return True


@pytest.fixture(scope="session")
def podman() -> Iterator[containers.Podman]:
    """An engine that the nodes share, with an image."""
    if why := containers.missing():
        pytest.skip(why)
    running = containers.Podman(Path(tempfile.mkdtemp(prefix="podman-")))  # as in tests/container
    yield running
    running.close()


@pytest.fixture
def on_cluster(cluster: Cluster) -> Iterator[dict[str, str]]:
    """The environment with which `primus` finds the cluster. A test leaves no job behind."""
    yield cluster.environ
    if left := cluster.jobs():
        cluster.run("scancel", *left)
        wait_until(lambda: not cluster.jobs())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the tasks."""
    (tmp_path / "primus.yaml").write_text("plugins: [./my_tasks.py]\n", encoding="utf-8")
    (tmp_path / "my_tasks.py").write_text(TASKS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def plain_ranks(on_cluster: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """With this environment, `ranks` starts without torchrun."""
    return {**on_cluster, "PYTHONPATH": plain.write(tmp_path / "packages", "ranks", TASKS)}
