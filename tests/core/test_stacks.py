from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from primus_machine.own_process.stacks import SIGNAL, Stacks

SLEEPS = "import time\ndef waits_for_data():\n    print('ready', flush=True)\n    time.sleep(60)\nwaits_for_data()\n"


def test_a_rank_that_hangs_prints_where_it_is(tmp_path: Path, clean_environ: dict[str, str]) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS, encoding="utf-8")
    command = [sys.executable, "-m", "primus_core.programs.rank", "sleeps"]
    environ = {**clean_environ, "PYTHONPATH": str(tmp_path), "RANK": "0"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as rank:
        assert rank.stdout
        assert rank.stdout.readline() == "ready\n"
        stacks = Stacks()
        assert not stacks.are_printed([rank.pid])
        while not stacks.are_printed([rank.pid]):
            time.sleep(0.05)
        assert rank.poll() is None
        rank.kill()
        assert "in waits_for_data" in rank.communicate()[1]


def test_a_process_that_does_not_expect_it_is_left_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(60)"],
                          stdout=subprocess.PIPE) as other:  # fmt: skip
        assert other.stdout
        other.stdout.readline()
        Stacks().are_printed([other.pid, 2**22 + 1])
        time.sleep(0.2)
        assert other.poll() is None
        other.kill()


def test_the_signal_is_a_real_time_one_that_nothing_else_uses() -> None:
    assert signal.SIGRTMIN < SIGNAL < signal.SIGRTMAX
    assert SIGNAL not in {one.value for one in signal.Signals}
    assert os.uname().sysname == "Linux"
