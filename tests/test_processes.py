"""What stands for a launcher in tests of workers keeps ranks apart, and leaves none behind."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests import processes
from tests.conftest import plain_environ, wait_until
from tests.processes import run_ranks


def test_each_rank_has_its_own_environment_output_and_exit_code(tmp_path: Path) -> None:
    program = tmp_path / "show.py"
    program.write_text("import os, sys\nprint(os.environ['RANK'], sys.argv[1:])\nsys.exit(int(os.environ['RANK']) * 3)")
    environs = [{**plain_environ(), "RANK": str(rank)} for rank in range(2)]
    ended = run_ranks(program, environs, cwd=tmp_path, argv=["a b"])
    assert [(one.code, one.out) for one in ended] == [(0, "0 ['a b']\n"), (3, "1 ['a b']\n")]


def test_ranks_that_hang_are_ended_with_what_they_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "hang.py"
    program.write_text(
        "import os, subprocess, sys, time\nchild = subprocess.Popen(['sleep', '1000'])\nprint('here', flush=True)\n"
        "open('new', 'w').write(f'[{os.getpid()}, {child.pid}]')\nos.rename('new', 'pids')\ntime.sleep(1000)"
    )
    clock = SimpleNamespace(monotonic=lambda: 1000 * (tmp_path / "pids").exists(), sleep=time.sleep)
    monkeypatch.setattr(processes, "time", clock)  # the time is over once it hangs
    with pytest.raises(AssertionError, match=r"hang\.py did not end\n--- 0, exit code -9\nhere"):
        run_ranks(program, [plain_environ()], cwd=tmp_path)
    states = [Path(f"/proc/{pid}/stat") for pid in json.loads((tmp_path / "pids").read_text())]
    wait_until(lambda: all(map(is_gone, states)))


def is_gone(state: Path) -> bool:
    """Whether a process has ended; nobody may have asked for its exit code yet."""
    with suppress(OSError):
        return state.read_text().rpartition(")")[2].split()[0] == "Z"
    return True
