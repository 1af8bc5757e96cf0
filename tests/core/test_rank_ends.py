"""Ranks that have failed and do not end, that leave while others need them, or that fail after a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.conftest import Run, free_port, wait_until
from tests.core.test_direct import metadata, run_of
from tests.core.test_signals import Start, ended, start

from primus_core.outcome.rank_ends import LeftRank, RankEnds
from primus_core.plan.plan import Distributed
from primus_core.plan.programs import TORCHRUN
from primus_machine.own_process.signals import Signals
from primus_machine.processes import times_of
from primus_machine.secrets.masks import Mask
from primus_machine.supervision.program import Watch

__all__ = ["start"]

STUCK = """
import atexit, ctypes, multiprocessing, signal, threading, time
from primus_core import register_task

@register_task("behave")
def stuck(call):
    signal.signal(signal.SIGTERM, lambda *_: print("told to end", flush=True))
    {how}
    raise ValueError("boom in step 3")
"""
WAYS = {
    "exit handler": "atexit.register(time.sleep, 3600)",
    "thread": "threading.Thread(target=time.sleep, args=[3600]).start()",
    "child process": "multiprocessing.Process(target=time.sleep, args=[3600]).start()",
    "native call": "atexit.register(ctypes.PyDLL(None).sleep, 3600)",
}
IN_BLOCK = """
import contextlib, time
from primus_core import register_task

@contextlib.contextmanager
def service():
    try:
        yield
    finally:
        time.sleep(3600)

class Pool:
    def __enter__(self):
        return self
    def __exit__(self, *_):
        time.sleep(3600)

@register_task("behave")
def behave(call):
    if call.words[0] == "finally":
        try:
            raise ValueError("boom in step 3")
        finally:
            time.sleep(3600)
    if call.words[0] == "with":
        with Pool():
            raise ValueError("boom in step 3")
    if call.words[0] == "service":
        with service():
            raise ValueError("boom in step 3")
    try:
        raise ValueError("the quick way is not here")
    except ValueError:
        print("the slow way", flush=True)
        time.sleep(12)
"""
LATE = """
import os, time
while os.environ["RANK"] == "1" and not os.path.exists("told"):
    time.sleep(0.1)
"""
FAILS_TO_SAVE = """
import signal, time
from primus_core import register_task

@register_task("behave")
def save(call):
    def end(*_):
        raise ValueError("cannot save")
    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    time.sleep(600)
"""
GLOO = """
import atexit, os, signal, sys, time
import torch
import torch.distributed as dist
from primus_core import register_task

@register_task("behave", scope="rank")
def gloo(call):
    dist.init_process_group("gloo")
    dist.barrier()
    what = call.words[0]
    if call.rank == 1:
        if what == "stuck":
            atexit.register(time.sleep, 3600)
            raise ValueError("boom in step 3")
        if what == "exit":
            os._exit(int(call.words[1]))
        if what == "killed":
            os.kill(os.getpid(), 9)
        sys.exit(0)
    if what == "wait":
        time.sleep(3600)
    if what == "killed":  # as a framework that would save, and cannot alone
        signal.signal(signal.SIGTERM, lambda *_: None)
        atexit.register(time.sleep, 3600)
    dist.barrier()
"""


@pytest.mark.parametrize("way", ["thread", *(pytest.param(way, marks=pytest.mark.full) for way in WAYS)])
def test_a_rank_that_has_failed_and_does_not_end_ends_the_run(primus: Run, project: Path, way: str) -> None:
    (project / "my_tasks.py").write_text(STUCK.format(how=WAYS[way]))
    result = primus("direct", "--grace-period", "1", "--", "behave", cwd=project)
    assert result.returncode == 1
    assert "rank 0 has failed and does not end by itself: ending all ranks; SIGKILL in 1 s" in result.stderr
    assert metadata(run_of(project))["first_failure"]["what"] == "ValueError: boom in step 3"


@pytest.mark.full
@pytest.mark.parametrize("block", ["finally", "with", "service"])
def test_an_exception_that_waits_for_a_block_that_hangs_ends_the_run(primus: Run, project: Path, block: str) -> None:
    """As in a process group's clean-up: Python shows it when the block has ended."""
    (project / "my_tasks.py").write_text(IN_BLOCK)
    result = primus("direct", "--grace-period", "1", "--", "behave", block, cwd=project)
    assert result.returncode == 1
    assert "rank 0 has raised an exception and hangs in a `finally:` or `with` block: ending all ranks" in result.stderr
    assert metadata(run_of(project))["first_failure"]["what"] == "ValueError: boom in step 3"
    log = (run_of(project) / "logs/rank_0.log").read_text()
    assert log.count("ValueError: boom in step 3") == log.count("Traceback") == 1, "its log has the reason, and once"


@pytest.mark.full
def test_work_that_goes_on_after_an_exception_was_caught_is_left_alone(primus: Run, project: Path) -> None:
    (project / "my_tasks.py").write_text(IN_BLOCK)
    assert primus("direct", "--grace-period", "1", "--", "behave", "except", cwd=project).returncode == 0


@pytest.mark.full
def test_it_is_started_again_where_restarts_are_wanted(primus: Run, project: Path) -> None:
    (project / "my_tasks.py").write_text(STUCK.format(how=WAYS["exit handler"]))
    result = primus("direct", "--grace-period", "1", "--max-restarts", "1", "--", "behave", cwd=project)
    assert result.returncode == 1
    attempts = metadata(run_of(project))["attempts"]
    assert [one["what"] for one in attempts] == ["ValueError: boom in step 3"] * 2


def test_a_hang_is_reported_with_what_was_recorded_before(primus: Run, project: Path) -> None:
    (project / "my_tasks.py").write_text(STUCK.format(how=WAYS["exit handler"]))
    result = primus("direct", "--grace-period", "1", "--hang-timeout", "1", "--", "behave", cwd=project)
    assert result.returncode == 1
    what = metadata(run_of(project))["first_failure"]["what"]
    assert what == "ValueError: boom in step 3; then hung: no rank printed anything for 1 s"


def test_a_rank_that_fails_while_it_saves_after_a_signal_is_reported(start: Start, project: Path) -> None:
    (project / "my_tasks.py").write_text(FAILS_TO_SAVE)
    process = start("--", "behave")
    process.send_signal(signal.SIGTERM)
    code, stderr = ended(process)
    assert code == 143
    known = metadata(run_of(project))
    assert (known["status"], known["first_failure"]["what"]) == ("interrupted", "ValueError: cannot save")
    assert "failed rank 0: ValueError: cannot save" in stderr


def test_a_rank_that_ends_by_the_signal_has_not_failed(start: Start, project: Path) -> None:
    process = start("--", "behave", "wait")
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    assert metadata(run_of(project))["first_failure"] is None


class Ranks:
    """Two ranks: processes of the test's own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.processes = [subprocess.Popen(words) for _ in range(2)]
        self.marks: dict[int, bool] = {}
        self.said: list[str] = []
        signals = Signals()
        signals.restore()
        self.watch = Watch("", "", Mask(()), signals, grace_s=-3.5, silent_s=time.monotonic)
        self.watch.pids, self.watch.ends = self.pids, self.ends
        place = Distributed(1, 0, 2)
        self.found = RankEnds(lambda: self.watch, str(folder), place, "host", shares=False, say=self.said.append)

    def pids(self) -> Mapping[int, int]:
        return {rank: process.pid for rank, process in enumerate(self.processes)}

    def ends(self) -> Mapping[int, bool]:
        return self.marks

    def end(self, rank: int) -> None:
        self.processes[rank].kill()
        self.processes[rank].wait()


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path, "sleep", "3600")
    yield ranks
    for rank in range(2):
        ranks.end(rank)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path, sys.executable, "-c", "while True: pass")
    yield ranks
    for rank in range(2):
        ranks.end(rank)


def test_ranks_that_wait_for_one_that_left_are_ended(sleepers: Ranks, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 7}) + "\n")
    assert not sleepers.found.cannot_continue()
    sleepers.end(1)
    while not sleepers.found.cannot_continue():
        time.sleep(0.05)
    assert [one.rank for one in sleepers.found.left] == [1]
    assert sleepers.said[0].startswith("primus: rank 1 left with exit code 0 after step 7, and the others waited")


def test_ranks_that_compute_are_left_alone(workers: Ranks) -> None:
    workers.watch.grace_s = -2  # a busy machine lets a process wait for a second
    workers.found.cannot_continue()
    workers.end(1)
    while (times := times_of(workers.processes[0].pid)) and times.used < 3 * os.sysconf("SC_CLK_TCK"):
        assert not workers.found.cannot_continue()
        time.sleep(0.05)


def test_a_rank_that_has_ended_well_and_is_still_in_an_exit_handler_is_left_alone(sleepers: Ranks) -> None:
    sleepers.marks = {0: False, 1: False}
    sleepers.end(1)
    ends = time.monotonic() + 2.5
    while time.monotonic() < ends:
        assert not sleepers.found.cannot_continue()


def test_a_rank_that_the_launcher_ends_after_a_failure_has_not_left(sleepers: Ranks) -> None:
    sleepers.found.cannot_continue()
    sleepers.marks = {0: True}
    sleepers.end(0)
    sleepers.end(1)
    time.sleep(0.2)
    assert not sleepers.found.cannot_continue()
    assert not sleepers.found.left


def test_a_node_hears_of_a_rank_that_left_on_another(tmp_path: Path) -> None:
    def ends_of(node: int) -> RankEnds:
        return RankEnds(lambda: Watch("", "", Mask(()), signals, 1.0), str(tmp_path), Distributed(2, node, 1), "host",
                        shares=True, say=print)  # fmt: skip

    signals = Signals()
    signals.restore()
    ends_of(1).end(0, lone_rank=1)
    other = ends_of(0)
    other.end(1, lone_rank=0)
    assert [(one.rank, one.node_rank) for one in other.left] == [(1, 1)]
    assert isinstance(other.left[0], LeftRank)


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "rank", "what"),
    [
        (("stuck",), 1, "ValueError: boom in step 3"),
        (
            ("killed",),
            1,
            "ended with an unknown exit code (killed by a signal, or `os._exit`) while others were running; rank 0 then",
        ),
        (("exit", "7"), 1, "ended with exit code 7 and recorded no exception"),
        (("exit", "0"), 1, "left with exit code 0 while others were running; rank 0 then failed: RuntimeError"),
        (("leave",), 1, "left with exit code 0 while others were running; rank 0 then failed: RuntimeError"),
        (("wait",), 1, "left with exit code 0 while others were running; the others waited for"),
    ],
)
def test_the_rank_that_was_first_is_named_under_torchrun(
    primus: Run, project: Path, words: tuple[str, ...], rank: int, what: str
) -> None:
    (project / "my_tasks.py").write_text(GLOO)
    environ = {"GPUS_PER_NODE": "2", "OMP_NUM_THREADS": "1"}
    result = primus("direct", "--grace-period", "2", "--", "behave", *words, cwd=project, env=environ)
    assert result.returncode == (7 if "7" in words else 1)
    first = metadata(run_of(project))["first_failure"]
    assert (first["rank"], first["what"][: len(what)]) == (rank, what)


@pytest.mark.torch
@pytest.mark.full
def test_a_node_whose_ranks_have_ended_says_what_the_launcher_waits_for(
    clean_environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "late.py").write_text(LATE)
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--", "run", "late.py"]
    nodes = {"NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GPUS_PER_NODE": "1"}
    started = []
    for rank in (0, 1):
        environ = {**clean_environ, **nodes, "NODE_RANK": str(rank)}
        with (tmp_path / f"console_{rank}").open("wb") as console:
            started.append(subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=console, stderr=console))
    told = "primus: note: this node's ranks have ended; torchrun waits for those of the other nodes, up to 5 min"
    wait_until(lambda: told in (tmp_path / "console_0").read_text(), 120)
    (tmp_path / "told").touch()
    assert [process.wait(120) for process in started] == [0, 0]
    assert told not in (tmp_path / "console_1").read_text()


AGREES = """
import os, signal, time
import torch.distributed as dist
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
print("ready", flush=True)
while not told:
    time.sleep(0.05)
time.sleep(1)
rank = int(os.environ["RANK"])
store.set(f"end/{rank}", "1")
store.get(f"end/{1 - rank}")
print("agreed", flush=True)
"""


@pytest.mark.torch
def test_ranks_that_are_told_to_end_agree_although_torchrun_is_told_twice(
    tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    """Slurm signals all processes of a step, and Primus passes the signal on: torchrun has the ranks' store."""
    (tmp_path / "agrees.py").write_text(AGREES)
    words = [sys.executable, "-m", TORCHRUN, "--standalone", "--nproc-per-node", "2", "agrees.py"]
    with subprocess.Popen(words, cwd=tmp_path, env=clean_environ, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:  # fmt: skip
        assert process.stdout
        printed = ""
        while printed.count("ready") < 2:
            printed += process.stdout.readline() or pytest.fail(printed)
        process.terminate()
        printed += next(line for line in process.stdout if "death signal" in line)
        process.terminate()
        printed += process.stdout.read()
    assert (process.returncode, printed.count("agreed")) == (143, 2), printed
    assert "Traceback" not in printed
