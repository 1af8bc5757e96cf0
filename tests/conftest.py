"""What all tests share: the real `primus` command in a real process, and a watch for what a test leaves behind."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.outcomes import Outcomes
from tests.outdated import PACKAGES, outdated

Run = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parent.parent
MARK = "PRIMUS_TEST_MARK"
TOGETHER = (
    "slurm",
    "container",
    *(f"maxtext/test_{name}.py" for name in ("continuation", "runs", "slurm")),
)
"""Where much is set up for a file (a cluster, an image, trainings): one process runs all tests of it."""
OTHERS = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR")
"""Variables that pytest and torch set in their own process."""
PATIENCE_S = 60
"""For what ends by itself, such as a keeper whose supervisor was killed: it gives the ranks their grace period."""
INSIST_S = 12
"""A run that was told to end is interrupted again after so long."""
# Variables that a developer or a CI machine may have, and that would change what a test sees.
AMBIENT = (
    *("NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "HF_TOKEN", "RANK", "WORLD_SIZE"),
    *("PRIMUS_LOG_LEVEL", "XDG_CACHE_HOME", "PYTHONDONTWRITEBYTECODE"),  # without bytecode, commands take twice as long
)

# A busy machine may take its time, and the same examples come each time: what fails, fails again.
settings.register_profile(
    "primus", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("primus")


def pytest_configure(config: pytest.Config) -> None:
    """What became of each test is noted in every run."""
    config.pluginmanager.register(Outcomes(ROOT / "tests/skips.toml"))
    if old := outdated(PACKAGES):
        names = ", ".join(old)
        pytest.exit(f"installed before their entry points changed: {names}; run here: python -m tests.outdated", 3)
    for number in (signal.SIGINT, signal.SIGQUIT):  # a shell without job control starts what is behind `&` without them
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    finalize_on_signals()


def finalize_on_signals() -> None:
    """SIGTERM and SIGHUP end a run, and each process of xdist, as Ctrl-C does: by the finalizers of the fixtures."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # under nohup, SIGHUP is ignored
            signal.signal(number, _interrupted)


def _interrupted(*_: object) -> None:
    """As Ctrl-C does, and again while that has not ended it: one may come where it is passed over."""
    for again in range(1, 4):
        later = threading.Timer(again * INSIST_S, os.kill, (os.getpid(), signal.SIGINT))
        later.daemon = True
        later.start()
    raise KeyboardInterrupt


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: many tests wait."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A case of megabytes is named by its length: xdist compares the names of all tests."""
    return f"{argname} of {len(val)}" if isinstance(val, str | bytes) and len(val) > 200 else None


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In several processes: the tests of such a file together, and what takes long first, so that all end at one time."""
    for item in items:
        path = item.path.relative_to(ROOT / "tests")
        if path.parts[0] in ("core", "machine", "runs", "train"):
            item.add_marker("kernel")
        if not hasattr(config, "workerinput"):
            continue
        if path.parts[0] in TOGETHER or str(path) in TOGETHER:
            item.add_marker(pytest.mark.xdist_group(str(path)))
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: [item.get_closest_marker(name) is None for name in ("xdist_group", "smoke", "full")]
        )


def _marked(mark: str) -> list[int]:
    """Processes that inherited the test's mark and still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if f"{MARK}={mark}".encode() in environ and state != "Z":
                found.append(int(entry.name))
    return found


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody has now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port


def plain_environ() -> dict[str, str]:
    """The environment without what would change a plan."""
    return {k: v for k, v in os.environ.items() if k not in AMBIENT and not k.startswith(("PRIMUS_", "SLURM_"))}


@pytest.fixture
def clean_environ() -> dict[str, str]:
    """The same, with a mark that every child inherits."""
    return {**plain_environ(), MARK: uuid.uuid4().hex}


@pytest.fixture(autouse=True)
def nothing_is_left_behind(clean_environ: dict[str, str]) -> Iterator[None]:
    """Fail a test that leaks environment variables or processes."""
    before = dict(os.environ)
    yield
    changed = {k for k, v in os.environ.items() ^ before.items() if k not in OTHERS}
    assert not changed, f"the test changed the environment: {changed}"
    deadline = time.monotonic() + PATIENCE_S
    while (left := _marked(clean_environ[MARK])) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, f"the test left processes behind: {left}"


def checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file below `folder`."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    assert files, f"there is nothing in {folder}"
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def wait_until(is_so: Callable[[], object], seconds: float = 60) -> None:
    """Fail where it does not become so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(0.02)


def all_gone(environ: dict[str, str]) -> bool:
    """Whether nothing runs any more that was started with this `clean_environ`."""
    return not _marked(environ[MARK])


@pytest.fixture
def primus(clean_environ: dict[str, str], tmp_path: Path) -> Run:
    """`primus(*words, env=..., cwd=...)` runs the installed command and returns the finished process."""
    command = Path(sys.executable).with_name("primus")

    def run(
        *words: str, env: dict[str, str] | None = None, cwd: Path | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(command), *words],
            env={**clean_environ, **(env or {})},
            cwd=cwd or tmp_path,
            text=True,
            capture_output=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run
