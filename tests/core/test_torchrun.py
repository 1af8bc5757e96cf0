"""Several ranks through torchrun: logs by rank, the first failure, exit codes, signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conftest import Run, all_gone, free_port, wait_until
from tests.core.test_direct import metadata, run_of
from tests.core.test_signals import children, ended

from primus_machine.processes import descendants

pytestmark = [pytest.mark.torch, pytest.mark.full]
TWO = {"GPUS_PER_NODE": "2"}
SAVES = """
import os, signal, time
from primus_core import register_task

@register_task("save", scope="rank")
def save(call):
    def sign(name):
        open(f"{call.run_dir}/{name}_{call.rank}", "w").close()
    def end(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sign("saving")
        while not os.path.exists(call.run_dir + "/disk_is_back"):
            time.sleep(0.02)
        sign("saved")
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
    sign("ready")
    time.sleep(600)
"""


def _follow(project: Path, sign: str) -> None:
    """Let the other rank fail as soon as the file `sign` (Python, in the task) is there, and not before."""
    source = (project / "my_tasks.py").read_text()
    wait = f"while not os.path.exists({sign}): time.sleep(0.001)"
    (project / "my_tasks.py").write_text(source.replace('time.sleep(3 if what == "end" else 60)', wait))


@pytest.mark.parametrize("words", [("--log", "3"), ("--lo=3", "-m", "--", "--log"), ("--n", "1", "--m", "--r", "x")])
def test_words_of_a_task_are_no_beginnings_of_torchruns_options(
    primus: Run, project: Path, words: tuple[str, ...]
) -> None:
    (project / "t.py").write_text("import sys\nprint('words', sys.argv[1:])\n")
    done = primus("direct", "--", "run", "t.py", *words, cwd=project)
    assert done.returncode == 0, done.stderr
    assert f"words {list(words)}" in done.stdout


def test_each_rank_has_its_log_and_the_console_shows_rank_0(primus: Run, project: Path) -> None:
    (project / "my_tasks.py").write_text(
        "from primus_core import register_task\n@register_task('ranks', scope='rank')\ndef ranks(call):\n"
        "    print('rank', call.rank, 'of', call.world_size)\n    print('WARNING: rank', call.rank, 'is warm')\n"
    )
    result = primus("direct", "--", "ranks", cwd=project, env=TWO)
    assert result.returncode == 0
    assert result.stdout == "rank 0 of 2\nWARNING: rank 0 is warm\n"
    assert "[rank1] WARNING: rank 1 is warm" in result.stderr
    assert (run_of(project, "ranks") / "logs/rank_1.log").read_text().startswith("rank 1 of 2\n")


def test_the_logs_of_a_second_node_have_the_numbers_of_its_ranks(primus: Run, project: Path) -> None:
    (project / "my_tasks.py").write_text(
        "from primus_core import register_task\n@register_task('ranks', scope='rank')\ndef ranks(call):\n"
        "    print('rank', call.rank, 'of', call.world_size)\n"
    )
    shared = {**TWO, "NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "PRIMUS_RUN_DIR": str(project / "shared")}  # fmt: skip
    with ThreadPoolExecutor(2) as pool:
        nodes = pool.map(
            lambda node: primus("direct", "--", "ranks", cwd=project, env={**shared, "NODE_RANK": node}, timeout=100),
            "01",
        )
        assert [(node.returncode, node.stdout) for node in nodes] == [(0, "rank 0 of 4\n"), (0, "")]
    logs = (project / "shared/logs").glob("rank_*.log")
    assert {path.name: path.read_text() for path in logs} == {f"rank_{n}.log": f"rank {n} of 4\n" for n in range(4)}


def test_the_first_failure_is_named_and_collateral_noise_is_not(primus: Run, project: Path) -> None:
    result = primus("direct", "--", "ranks", "raise", "1", cwd=project, env=TWO)
    assert result.returncode == 1
    last_traceback = result.stderr[result.stderr.rindex("Traceback") :]
    assert "ValueError: the first failure" in last_traceback
    assert "first failure rank 1 on node 0" in last_traceback
    assert last_traceback.count("first failure rank") == 1
    assert "logs/rank_1.log" in last_traceback


def test_the_later_failure_of_another_rank_is_collateral(primus: Run, project: Path) -> None:
    _follow(project, "call.run_dir + '/logs/failures/rank_1.json'")
    result = primus("direct", "--", "ranks", "raise", "1", cwd=project, env=TWO)
    assert "first failure rank 1" in result.stderr
    assert metadata(run_of(project, "ranks"))["first_failure"]["rank"] == 1


def test_a_killed_rank_is_the_first_failure_and_gives_137(primus: Run, project: Path) -> None:
    _follow(project, "call.run_dir + '/dying'")
    result = primus("direct", "--", "ranks", "die", "1", cwd=project, env=TWO)
    assert result.returncode == 137
    assert f"first failure rank 1 on node 0 ({metadata(run_of(project, 'ranks'))['host']})" in result.stderr
    assert "ended by SIGKILL" in result.stderr


def test_a_given_port_and_an_ipv6_master_work(primus: Run, project: Path) -> None:
    env = {"MASTER_ADDR": "::1", "MASTER_PORT": str(free_port("::1"))}
    result = primus("direct", "--", "ranks", "end", "0", cwd=project, env=env)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("victim", ["primus", "keeper", "torchrun", "rank"])
@pytest.mark.parametrize(("number", "codes"), [pytest.param(signal.SIGKILL, {137, 1}, marks=pytest.mark.smoke), (signal.SIGTERM, {143, 1}),
                                               (signal.SIGINT, {130, 1})])  # fmt: skip
def test_a_signal_to_any_process_of_a_run_ends_all(
    clean_environ: dict[str, str], project: Path, victim: str, number: int, codes: set[int]
) -> None:
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--", "ranks", "wait", "9"]
    process = subprocess.Popen(command, env={**clean_environ, **TWO}, cwd=project, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "rank 0 is here\n"
    [keeper] = filter(children, children(process.pid))  # a plugin's process has none
    [torchrun] = children(keeper)
    pid = {"primus": process.pid, "keeper": keeper, "torchrun": torchrun, "rank": children(torchrun)[-1]}[victim]
    os.kill(pid, number)
    assert ended(process)[0] in codes
    wait_until(lambda: all_gone(clean_environ))
    assert not list(project.rglob("*.partial"))
    assert json.loads((run_of(project, "ranks") / "plan.json").read_text())["steps"][0]["ranks"] == 2


def test_ranks_that_save_finish_it_where_every_process_is_told_to_end_again_and_again(
    clean_environ: dict[str, str], project: Path
) -> None:
    """As a scheduler does it: torchrun ends at the second SIGTERM, before its ranks have."""
    (project / "my_tasks.py").write_text(SAVES)
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--grace-period", "300", "--", "save"]
    process = subprocess.Popen(command, env={**clean_environ, **TWO}, cwd=project, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    run = project / "output/save"
    wait_until(lambda: len(list(run.glob("ready_*"))) == 2)
    [keeper] = filter(children, children(process.pid))  # a plugin's process has none
    [torchrun] = children(keeper)
    everybody = [process.pid, *descendants(process.pid)]
    _tell(everybody)
    wait_until(lambda: len(list(run.glob("saving_*"))) == 2)
    while torchrun in descendants(process.pid):
        _tell(everybody)
        time.sleep(0.5)
    time.sleep(2)  # longer than processes get that a launcher leaves behind
    (run / "disk_is_back").touch()
    assert ended(process)[0] == 143
    assert {path.name for path in run.resolve().glob("saved_*")} == {"saved_0", "saved_1"}


def _tell(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
