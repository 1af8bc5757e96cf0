"""Real failures, each made here: the diagnosis that follows by itself names the cause."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import ROOT, Run, free_port

from primus_diagnose import Finding, Verdict, read

pytestmark = [pytest.mark.torch, pytest.mark.full]
TASKS = ROOT / "tests/diagnose/failing_tasks.py"
Failing = Callable[..., tuple[Verdict, str]]


@pytest.fixture
def failing(primus: Run, tmp_path: Path) -> Failing:
    """Runs a command that fails on two ranks; the verdict in its run directory, and what the console shows of it."""
    return _failing(lambda *words, **how: primus("direct", *words, **how), tmp_path)


def _failing(direct: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Failing:
    shutil.copy(TASKS, tmp_path / "tasks.py")
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n", encoding="utf-8")
    (tmp_path / "data").mkdir()

    def run(*words: str, code: int = 1, **environ: str) -> tuple[Verdict, str]:
        result = direct(*words, cwd=tmp_path, env={"GPUS_PER_NODE": "2", **environ})
        assert result.returncode == code, result.stderr
        [directory] = [path.parent for path in tmp_path.glob("output/*_2*/diagnosis.json")]
        verdict = read(str(directory))
        assert verdict
        console = result.stdout + result.stderr
        assert console.count("diagnosis: ") == 1
        shutil.rmtree(tmp_path / "output")
        return verdict, console

    return run


def line_of(text: str) -> int:
    """The number of the line of a task."""
    lines = TASKS.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def cause(verdict: Verdict) -> Finding:
    assert verdict.cause
    return verdict.cause


@pytest.mark.parametrize(
    ("task", "signature", "ranks", "told"),
    [
        ("exception", "python.exception", {1}, "tasks.py:{line} in exception"),
        ("module", "py.module_missing", {0, 1}, "find which package has no_such_turbo, and install it"),
        ("file", "fs.not_found", {0, 1}, "has no 'dat'; did you mean"),
        ("port", "c10d.port_in_use", {0, 1}, "A port is in use"),
        ("collective", "python.exception", {1}, "ValueError: bad sample 17"),
        ("checkpoint", "ckpt.truncated", {0, 1}, "A checkpoint is incomplete or damaged"),
        ("vocabulary", "config.vocabulary", {0, 1}, "A token id is outside the vocabulary"),
    ],
)
def test_the_cause_is_named_with_its_rank(
    task: str, signature: str, ranks: set[int], told: str, failing: Failing
) -> None:
    verdict, console = failing("--", "fail", task)
    found = cause(verdict)
    assert found.signature == signature
    assert found.first.rank in ranks
    assert found.first.node == os.uname().nodename
    assert told.format(line=line_of('missing["text"]')) in " ".join(console.split())


def test_a_rank_that_is_killed_is_named(failing: Failing) -> None:
    verdict, _ = failing("--", "fail", "killed", code=137)
    assert (cause(verdict).signature, cause(verdict).first.rank, verdict.confidence) == ("proc.sigkill", 1, "likely")


def test_a_rank_that_does_not_come_to_a_collective_is_named_with_the_line_it_is_at(failing: Failing) -> None:
    verdict, console = failing("--hang-timeout", "6", "--", "fail", "stuck")
    found = cause(verdict)
    assert (found.signature, found.first.rank) == ("collective.rank_behind", 1)
    assert f"tasks.py:{line_of('time.sleep(600)')} in stuck" in found.first.code
    assert "wait in all_reduce" in console


def test_nodes_that_do_not_come_are_counted(failing: Failing) -> None:
    port = str(free_port())
    environ = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    verdict, _ = failing("--rendezvous-timeout", "5s", "--", "fail", "exception", **environ)
    assert (cause(verdict).signature, cause(verdict).title) == (
        "c10d.clients_missing",
        "Only 1 of 2 processes came to the rendezvous",
    )
    assert f"127.0.0.1:{port}" in verdict.advice[0].action


def test_a_master_that_does_not_answer_is_named(primus: Run, tmp_path: Path) -> None:
    shutil.copy(TASKS, tmp_path / "tasks.py")
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n", encoding="utf-8")
    environ = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    words = ("direct", "--rendezvous-timeout", "5s", "--", "fail", "exception")
    assert primus(*words, cwd=tmp_path, env={"GPUS_PER_NODE": "2", **environ}).returncode == 1
    found = json.loads(primus("diagnose", "latest", "--json", cwd=tmp_path).stdout)[
        "cause"
    ]  # node 0 would do it by itself
    assert (found["signature"], found["first"]["rank"]) == ("c10d.client_timeout", None)


def test_a_rendezvous_port_in_use_is_named_and_the_port_that_is_advised_works(
    failing: Failing, primus: Run, tmp_path: Path
) -> None:
    with socket.create_server(("", 0)) as taken:
        number = str(taken.getsockname()[1])
        verdict, _ = failing("--", "fail", "exception", MASTER_PORT=number)
        [advice] = verdict.advice
        assert cause(verdict).signature == "c10d.port_in_use"
        assert (str(advice.before), advice.setting) == (number, "MASTER_PORT")
        other, _ = failing("--", "fail", "exception", MASTER_PORT=str(advice.after))
        assert cause(other).signature == "python.exception"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs root, to mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_named(failing: Failing, small_disk: Path) -> None:
    verdict, _ = failing("--", "fail", "disk", SMALL=str(small_disk))
    assert (cause(verdict).signature, verdict.confidence) == ("fs.no_space", "certain")


def test_a_rank_that_exceeds_the_memory_of_its_group_is_named(clean_environ: dict[str, str], tmp_path: Path) -> None:
    group, again = Path("/sys/fs/cgroup/memory") / f"primus-test-{os.getpid()}", list[str]()
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text("600M")
    except OSError:
        pytest.skip("needs root, and control groups that can be made")

    def direct(*words: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        inside = ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs"))
        primus = Path(sys.executable).with_name("primus")
        done = subprocess.run([*inside, primus, "direct", *words], check=False,
                              cwd=cwd, env={**clean_environ, **env}, text=True, capture_output=True)  # fmt: skip
        words = (str(primus), "diagnose", "latest", "--json")
        again.append(subprocess.check_output(words, cwd=cwd, env=clean_environ, text=True))
        return done

    try:
        verdict, console = _failing(direct, tmp_path)("--", "fail", "memory", code=137)
    finally:
        group.rmdir()
    assert (cause(verdict).signature, cause(verdict).first.rank) == ("oom.host_kernel", 1)
    assert "600.0 MiB" in console
    assert json.loads(again[0])["cause"]["signature"] == "oom.host_kernel", "the kernel still has its lines"


def test_a_learning_rate_that_is_too_high_is_named_and_the_rate_that_is_advised_works(
    primus: Run, tmp_path: Path
) -> None:
    small = ("model.dim=64", "model.n_layers=2", "model.n_heads=4", "model.n_kv_heads=2", "model.ffn_hidden_dim=128",
             "data.vocab_size=512", "training.seq_len=64", "lr_scheduler.warmup_steps=2", "training.steps=8", "--new")  # fmt: skip
    command = ("direct", "--", "train", "pretrain", "--config", str(ROOT / "examples/quickstart.yaml"), *small)
    failed = primus(*command, "optimizer.lr=1e6", cwd=tmp_path, env={"GPUS_PER_NODE": "1"})
    assert failed.returncode == 1, failed.stderr
    verdict = read(str(tmp_path / "output/quickstart"))
    assert verdict
    assert (cause(verdict).signature, cause(verdict).first.rank) == ("num.nan_log", 0)
    [advice, *_] = verdict.advice
    assert (advice.before, advice.after, advice.words) == (1e6, 1e-3, "optimizer.lr=0.001")
    assert primus(*command, *advice.words.split(), cwd=tmp_path, env={"GPUS_PER_NODE": "1"}).returncode == 0
    assert read(str(tmp_path / "output/quickstart")) is None  # a run that is well is not diagnosed


def test_what_a_diagnosis_needs_is_in_the_run_directory(failing: Failing, primus: Run, tmp_path: Path) -> None:
    assert primus("direct", "--", "fail", "module", cwd=tmp_path, env={"GPUS_PER_NODE": "2"}).returncode == 1
    stored = json.loads((tmp_path / "output/fail-module/diagnosis.json").read_text(encoding="utf-8"))
    asked = json.loads(primus("diagnose", "latest", "--json", cwd=tmp_path).stdout)
    assert (stored["cause"], stored["advice"]) == (asked["cause"], asked["advice"])


def test_an_error_of_primus_itself_is_told_once(primus: Run, tmp_path: Path) -> None:
    shutil.copy(TASKS, tmp_path / "tasks.py")
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n", encoding="utf-8")
    done = primus("direct", "--single", "--", "fail", "check", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("primus: error: this node is unfit")) == (3, 1)
    assert "diagnosis" not in done.stdout + done.stderr
    stored = read(str((tmp_path / "output/fail-check").resolve()))
    assert stored
    assert cause(stored).signature == "primus.error"
