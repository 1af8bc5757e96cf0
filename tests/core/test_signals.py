"""Signals, to each process of a run in turn: the exit code comes back, and nothing is left behind.

The fixture `nothing_is_left_behind` looks for orphans after every test.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import all_gone, wait_until
from tests.core.test_direct import metadata, run_of

from primus_machine.processes import descendants

LISTENS = """
import subprocess
from primus_core import hookimpl

def hear(*words):
    with open("heard", "a") as file:
        print(*words, file=file)

@hookimpl
def before_launch():
    subprocess.Popen(["sleep", "600"], start_new_session=True)

@hookimpl
def on_failure(failure):
    hear("on_failure", failure.what)

@hookimpl
def after_run(result):
    hear("after_run", result.status, result.exit_code)
"""
SAVES = """
import os, signal, time
from primus_core import register_task

@register_task("save")
def save(call):
    def end(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1)
        open("saved", "w").close()
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    print("ready", flush=True)
    time.sleep(600)
"""
IGNORED = """
import signal
from primus_core import register_task

@register_task("ignored")
def ignored(call):
    print(sorted(s.name for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN))
"""
TRAINS = """
import os, signal, time
from primus_core import register_task
from primus_core.journal.events import checkpoint_saved
from primus_core.journal.metrics import Metrics, append

@register_task("trains")
def trains(call):
    run = os.environ["PRIMUS_RUN_DIR"]
    def end(*_):
        if call.words[0] == "saves":
            checkpoint_saved(run, step=7, path=run + "/checkpoints/7")
        if call.words[0] != "slow":
            os._exit(143)
    signal.signal(signal.SIGTERM, end)
    for step in range(1, 8):
        append(os.environ["PRIMUS_METRICS_FILE"], Metrics(step=step, steps=9, loss=1.0))
    checkpoint_saved(run, step=5, path=run + "/checkpoints/5")
    print("ready", flush=True)
    while True:
        time.sleep(1)
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(clean_environ: dict[str, str], project: Path) -> Iterator[Start]:
    """Start `primus direct ... -- behave ...` and wait until its worker says that it is ready."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> subprocess.Popen[str]:
        command = [str(Path(sys.executable).with_name("primus")), "direct", *words]
        process = subprocess.Popen(
            command, env=clean_environ, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=60)  # what it left behind may hold the pipes


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, as a shell would have it, and the rest of stderr."""
    _, stderr = process.communicate(timeout=60)
    return (128 - process.returncode if process.returncode < 0 else process.returncode), stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_primus_reaches_the_worker_and_comes_back(
    start: Start, project: Path, number: int, code: int
) -> None:
    process = start("--", "behave", "wait")
    process.send_signal(number)
    assert ended(process)[0] == code
    assert metadata(run_of(project))["status"] == "interrupted"


def test_a_worker_that_ignores_signals_is_killed_after_the_grace_period(start: Start) -> None:
    process = start("--grace-period", "1", "--", "behave", "stubborn")
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code, stderr = ended(process)
    assert code == 143
    assert time.monotonic() - began >= 1
    assert "SIGKILL in 1 s" in stderr


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("slow", "did not end within 1 s and were killed; give them longer: `direct --grace-period 60`\n"),
        ("fails", "the ranks ended without saving; the end of their logs says why\n"),
        ("saves", ""),
    ],
)
def test_a_training_that_could_not_save_at_its_end_says_why(start: Start, project: Path, how: str, said: str) -> None:
    (project / "my_tasks.py").write_text(TRAINS)
    process = start("--single", "--grace-period", "1", "--", "trains", how)
    process.send_signal(signal.SIGTERM)
    code, stderr = ended(process)
    assert code == 143
    assert ("no checkpoint of step 7 (the newest is of step 5)" in stderr) == bool(said)
    assert said in stderr


def test_a_further_ctrl_c_is_the_reason_for_a_missing_checkpoint(start: Start, project: Path) -> None:
    (project / "my_tasks.py").write_text(TRAINS)
    process = start("--single", "--grace-period", "300", "--", "trains", "slow")
    process.send_signal(signal.SIGTERM)
    assert process.stderr
    assert any("SIGTERM: passed on" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    assert (
        "a further Ctrl-C killed the ranks at once; after the first signal they have 300 s to save" in ended(process)[1]
    )


def test_a_second_ctrl_c_ends_it_at_once(start: Start) -> None:
    process = start("--grace-period", "600", "--", "behave", "stubborn")
    process.send_signal(signal.SIGINT)
    assert process.stderr
    assert any("SIGINT: passed on" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130


def test_killing_primus_leaves_no_orphan_and_no_half_written_file(
    start: Start, clean_environ: dict[str, str], project: Path
) -> None:
    process = start("--", "behave", "family")
    process.kill()
    assert ended(process)[0] == 137
    wait_until(lambda: all_gone(clean_environ))
    assert not list(project.rglob("*.partial"))
    json.loads((run_of(project) / "plan.json").read_text())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGQUIT])
def test_a_worker_has_time_to_save_where_primus_is_killed_or_ended_by_ctrl_backslash(
    start: Start, clean_environ: dict[str, str], project: Path, number: int
) -> None:
    (project / "my_tasks.py").write_text(SAVES)
    process = start("--", "save")
    process.send_signal(number)
    ended(process)
    wait_until(lambda: all_gone(clean_environ))
    assert (project / "saved").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_worker_that_exits_with_0_after_a_signal_was_interrupted(
    start: Start, project: Path, number: int, code: int
) -> None:
    (project / "my_tasks.py").write_text(SAVES)
    process = start("--", "save")
    process.send_signal(number)
    assert ended(process)[0] == code
    assert metadata(project / "output" / "save")["status"] == "interrupted"


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGUSR1, 138), (signal.SIGUSR2, 140), (signal.SIGTERM, 143), (signal.SIGINT, 130)],
)
def test_of_a_signal_to_every_process_of_a_step_the_worker_saves_and_the_hooks_hear_the_end(
    start: Start, project: Path, number: int, code: int
) -> None:
    (project / "primus.yaml").write_text("plugins: [./my_tasks.py, ./listens.py]\n")
    (project / "my_tasks.py").write_text(SAVES)
    (project / "listens.py").write_text(LISTENS)
    process = start("--", "save")
    for pid in (*descendants(process.pid), process.pid):
        os.kill(pid, number)
    ended_with, stderr = ended(process)
    assert ended_with == code
    assert "get no further events" not in stderr
    assert (project / "saved").exists()
    assert (project / "heard").read_text().splitlines()[-1] == f"after_run interrupted {code}"


def test_what_was_ignored_at_the_start_stays_ignored_in_the_worker(
    clean_environ: dict[str, str], project: Path
) -> None:
    (project / "my_tasks.py").write_text(IGNORED)
    primus = Path(sys.executable).with_name("primus")
    for names, more in ((("ALRM", "HUP", "TSTP"), ["SIGALRM", "SIGHUP", "SIGTSTP"]), (("CHLD", "PIPE"), [])):
        command = f"trap '' {' '.join(names)}; exec {primus} direct -- ignored"
        done = subprocess.run(
            ["bash", "-c", command], env=clean_environ, cwd=project, text=True, capture_output=True, check=True
        )
        assert ast.literal_eval(done.stdout) == sorted([*more, "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGXFSZ"]), (
            "those that every Python ignores, and warnings of a scheduler, too"
        )


def test_a_program_that_is_no_python_gets_the_signals_that_python_ignores(
    primus: Callable[..., subprocess.CompletedProcess[str]], project: Path
) -> None:
    script = project / "signals.sh"
    script.write_text("#!/bin/sh\ngrep SigIgn /proc/$$/status\n")
    script.chmod(0o755)
    done = primus("direct", "--patch", str(script), "--", "behave", "ok", cwd=project)
    ignored = int(re.findall(r"SigIgn:\t(\w+)", done.stderr)[0], 16)
    assert not [one for one in (signal.SIGPIPE, signal.SIGXFSZ) if ignored & 1 << one - 1]


def test_a_closed_terminal_ends_no_run_that_was_started_with_nohup(start: Start, project: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start("--", "behave", "wait")
    finally:
        signal.signal(signal.SIGHUP, before)
    [keeper] = filter(children, children(process.pid))  # a plugin's process has none
    [worker] = children(keeper)
    for pid in (process.pid, keeper, worker):
        os.kill(pid, signal.SIGHUP)
    process.send_signal(signal.SIGTERM)  # SIGHUP came first, and would be the run's signal
    assert ended(process)[0] == 143


@pytest.mark.parametrize("ignored", [(), ("SIGHUP",)])
def test_torchrun_handles_no_signal_that_is_ignored(
    primus: Callable[..., subprocess.CompletedProcess[str]], project: Path, ignored: tuple[str, ...]
) -> None:
    before = {name: signal.signal(getattr(signal, name), signal.SIG_IGN) for name in ignored}
    try:
        plan = primus("direct", "--dry-run", "--", "ranks", "wait", "0", cwd=project, env={"GPUS_PER_NODE": "2"})
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
    assert ("TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGQUIT" in plan.stdout) == bool(ignored)


def test_killing_the_keeper_ends_the_run(start: Start) -> None:
    process = start("--", "behave", "family")
    [keeper] = filter(children, children(process.pid))  # a plugin's process has none
    os.kill(keeper, signal.SIGKILL)
    assert ended(process)[0] == 137


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_the_keeper_is_passed_on(start: Start, number: int, code: int) -> None:
    process = start("--", "behave", "wait")
    [keeper] = filter(children, children(process.pid))  # a plugin's process has none
    os.kill(keeper, number)
    assert ended(process)[0] == code


def test_killing_the_keeper_ends_the_run_and_its_python_hooks_hear_of_it(start: Start, project: Path) -> None:
    (project / "primus.yaml").write_text("plugins: [./my_tasks.py, ./listens.py]\n")
    (project / "listens.py").write_text(LISTENS)
    process = start("--", "behave", "family")
    hooks = b"primus_core.hooks.plugin_process"
    [keeper] = [pid for pid in children(process.pid) if hooks not in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(keeper, signal.SIGKILL)
    code, stderr = ended(process)
    assert code == 137
    assert "get no further events" not in stderr
    failed, ended_so = (project / "heard").read_text().splitlines()
    assert failed.startswith("on_failure ended by SIGKILL")
    assert ended_so == "after_run failed 137"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, 137), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_the_worker_is_its_exit_code(start: Start, number: int, code: int) -> None:
    process = start("--", "behave", "family")
    [keeper] = filter(children, children(process.pid))  # a plugin's process has none
    [worker] = children(keeper)
    os.kill(worker, number)
    assert ended(process)[0] == code


def test_daemons_of_a_worker_that_ends_well_are_ended_too(
    primus: Callable[..., subprocess.CompletedProcess[str]], project: Path
) -> None:
    (project / "my_tasks.py").write_text(
        "import subprocess\nfrom primus_core import register_task\n@register_task('leave')\n"
        "def leave(call):\n    subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    )
    assert primus("direct", "--", "leave", cwd=project).returncode == 0


def test_a_daemon_that_ignores_sigterm_is_killed(
    primus: Callable[..., subprocess.CompletedProcess[str]], project: Path
) -> None:
    (project / "my_tasks.py").write_text(
        "import subprocess\nfrom primus_core import register_task\n@register_task('leave')\ndef leave(call):\n"
        "    words = ['sh', '-c', 'trap \"\" TERM; echo ready; sleep 600']\n"
        "    daemon = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE)\n"
        "    assert daemon.stdout.readline() == b'ready\\n'\n"
    )
    assert primus("direct", "--", "leave", cwd=project, timeout=60).returncode == 0


def test_a_process_that_blocks_sigterm_does_not_outlive_its_worker(start: Start, project: Path) -> None:
    (project / "my_tasks.py").write_text(
        "import signal, subprocess, time\nfrom primus_core import register_task\n@register_task('leave')\n"
        "def leave(call):\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "    subprocess.Popen(['sleep', '600'])\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])\n"
        "    print('ready', flush=True)\n    time.sleep(600)\n"
    )
    process = start("--single", "--grace-period", "300", "--", "leave")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 143


def test_a_signal_before_anything_has_started_is_no_traceback(clean_environ: dict[str, str], project: Path) -> None:
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--", "behave", "wait"]
    for delay in (0.0, 0.03, 0.06, 0.1):
        process = subprocess.Popen(
            command, env=clean_environ, cwd=project, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        code, stderr = ended(process)
        assert code == 143
        assert not re.search("Traceback", stderr)


def test_the_folder_of_pipes_goes_with_the_run(start: Start, clean_environ: dict[str, str], tmp_path: Path) -> None:
    clean_environ["TMPDIR"] = str(tmp_path)
    process = start("--", "behave", "family")
    assert list(tmp_path.glob("primus-*"))
    process.kill()
    process.communicate()
    wait_until(lambda: not list(tmp_path.glob("primus-*")))
