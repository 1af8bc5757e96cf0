"""What a rank needs to save outlives the signal that tells it to end; nothing outlives the rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_RANK = """
import multiprocessing, signal, sys, time

def wait(pipe):
    pipe.recv()
    pipe.send("worked")

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    manager = context.Manager()
    queue = manager.Queue()
    here, there = context.Pipe()
    worker = context.Process(target=wait, args=(there,), daemon=True)
    worker.start()
    idle = context.Process(target=wait, args=(context.Pipe()[1],), daemon=True)
    idle.start()
    print("ready", flush=True)
    while not told:
        time.sleep(0.01)
    here.send("save")
    queue.put(here.recv())
    print(queue.get(), flush=True)
    idle.terminate()
    idle.join()
    print("ended", flush=True)
"""


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_a_signal_to_the_whole_group_reaches_the_rank_and_not_the_processes_that_it_saves_with(
    method: str, tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    (tmp_path / "saves.py").write_text(_RANK)
    command = [sys.executable, "-m", "primus_core.programs.rank", "saves", method]
    environ = {**clean_environ, "PYTHONPATH": str(tmp_path), "RANK": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, start_new_session=True, text=True) as rank:
        assert rank.stdout
        assert rank.stdout.readline() == "ready\n"
        os.killpg(rank.pid, signal.SIGTERM)
        assert rank.stdout.read() == "worked\nended\n"
    assert rank.returncode == 0
