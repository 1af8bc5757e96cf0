"""Programs that are forks of a server are like those that start as usual."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import plain_environ

from primus_verify.warm import WarmPython
from primus_verify.warm_client import TORCHRUN

PROGRAM = """
import json, os, signal, sys, time
if "wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print(os.getpid(), flush=True)
    time.sleep(600)
if "die" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
print(json.dumps({"imported": "colorsys" in sys.modules, "argv": sys.argv[1:], "rank": os.environ.get("RANK"),
                  "cwd": os.getcwd(), "name": __name__, "path": sys.path[0], "python": os.environ["PYTHON_EXEC"]}))
sys.exit(3)
"""


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[WarmPython]:
    """For a program in the place of torchrun."""
    place = tmp_path / "fake/primus_core/programs"
    place.mkdir(parents=True)
    (tmp_path / "fake/primus_core/__init__.py").touch()
    (place / "__init__.py").touch()
    (place / "torchrun.py").write_text(PROGRAM)
    with WarmPython({TORCHRUN: ("colorsys", "no_such_package")}) as found:
        yield found


def started(warm: WarmPython, folder: Path, *words: str, rank: str = "0", **variables: str) -> subprocess.Popen[str]:
    environ = {**plain_environ(), "PYTHONPATH": str(folder / "fake"), "RANK": rank, **variables}
    return subprocess.Popen([warm.path, "-m", TORCHRUN, *words], env=environ, cwd=folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def seen(warm: WarmPython, folder: Path, *words: str, **variables: str) -> dict[str, Any]:
    process = started(warm, folder, *words, **variables)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_second_program_in_an_environment_has_its_imports_and_all_else_is_as_in_the_first(
    warm: WarmPython, tmp_path: Path
) -> None:
    first = seen(warm, tmp_path, "a", "-b")
    warm.prepare()
    second = seen(warm, tmp_path, "a", "-b")
    assert not first.pop("imported")
    assert second.pop("imported")
    assert second == first == {"argv": ["a", "-b"], "rank": "0", "cwd": str(tmp_path), "name": "__main__",
                               "path": str(tmp_path), "python": warm.path}  # fmt: skip
    other_rank = seen(warm, tmp_path, rank="1")
    assert (other_rank["imported"], other_rank["rank"]) == (True, "1")


def test_a_variable_that_may_count_for_imports_needs_a_server_of_its_own(warm: WarmPython, tmp_path: Path) -> None:
    seen(warm, tmp_path)
    warm.prepare()
    assert not seen(warm, tmp_path, OMP_NUM_THREADS="3")["imported"]
    warm.prepare()
    assert seen(warm, tmp_path, OMP_NUM_THREADS="3")["imported"]


def test_no_environment_is_written_into_a_file(warm: WarmPython, tmp_path: Path) -> None:
    """It has secrets, and a verification may be killed at any time."""
    for _ in range(2):
        seen(warm, tmp_path, HF_TOKEN="a-secret")
        place = Path(warm.path).parent
        assert not [path for path in place.iterdir() if path.is_file() and b"a-secret" in path.read_bytes()]
        assert {path.name for path in place.iterdir() if path.is_file()} == {"python"}
        warm.prepare()
    assert seen(warm, tmp_path, HF_TOKEN="a-secret")["imported"]


def test_signals_reach_the_program_and_its_end_is_the_clients(warm: WarmPython, tmp_path: Path) -> None:
    seen(warm, tmp_path)
    warm.prepare()
    process = started(warm, tmp_path, "wait")
    assert process.stdout
    assert int(process.stdout.readline()) != process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 7
    killed = started(warm, tmp_path, "die")
    assert killed.wait(120) == -signal.SIGKILL


def test_a_program_ends_with_its_client(warm: WarmPython, tmp_path: Path) -> None:
    seen(warm, tmp_path)
    warm.prepare()
    process = started(warm, tmp_path, "wait")
    assert process.stdout
    child = int(process.stdout.readline())
    process.kill()
    until = time.monotonic() + 120
    while os.path.exists(f"/proc/{child}") and time.monotonic() < until:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{child}")


def test_other_programs_are_pythons_own(warm: WarmPython) -> None:
    done = subprocess.run([warm.path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.stdout.strip() == sys.executable
