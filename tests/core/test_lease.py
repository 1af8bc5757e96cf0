"""One run directory has one owner process, whichever host looks at it; another one is refused, or takes over the dead."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_direct import metadata, run_of

from primus_core.errors import RequestError
from primus_machine.files import lease
from primus_machine.files.lease import Lease
from primus_machine.host import HostRoot

PRIMUS = str(Path(sys.executable).with_name("primus"))
OTHER_HOST = ("unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname elsewhere; exec "$0" "$@"')
OTHER_NAMESPACE = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
OLD_S = lease.DEAD_AFTER_S + 60


def take(folder: Path, *, job: str = "", restart: str = "0") -> Lease:
    return Lease.take(str(folder), HostRoot(), user="ada", job={"restart": restart, **({"job_id": job} if job else {})})


def became(folder: Path, number: int, **known: object) -> Path:
    """Write other things about the owner into its lease."""
    path = folder / "lease" / f"{number}.json"
    renewed = path.stat().st_mtime
    path.write_text(json.dumps({**json.loads(path.read_text()), **known}))
    os.utime(path, (renewed, renewed))
    return path


def grow_old(path: Path, seconds: float = OLD_S) -> None:
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


@contextmanager
def running(environ: dict[str, str], project: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that waits until it is ended."""
    process = subprocess.Popen([PRIMUS, "direct", "--", "behave", "wait"], env=environ, cwd=project, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def elsewhere(around: tuple[str, ...], environ: dict[str, str], folder: Path, *words: str) -> tuple[int, str, str]:
    """What `primus` says there."""
    done = subprocess.run([*around, PRIMUS, *words], env=environ, cwd=folder, text=True, capture_output=True,
                          timeout=300, check=False)  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.parametrize("around", [(), OTHER_HOST, OTHER_NAMESPACE], ids=["here", "other host", "other namespace"])
def test_a_second_start_into_the_same_directory_is_refused_wherever_it_comes_from(
    clean_environ: dict[str, str], project: Path, around: tuple[str, ...]
) -> None:
    with running(clean_environ, project) as process:
        run = run_of(project)
        before = (run / "metadata.json").read_bytes(), (run / "plan.json").read_bytes()
        environ = {**clean_environ, "PRIMUS_RUN_DIR": str(run)}
        code, _, said = elsewhere(around, environ, project, "direct", "--", "behave", "exit", "0")
        assert code == 2, said
        assert f"the directory {run} is in use" in said
        assert f"process {process.pid} of " in said
        assert before == ((run / "metadata.json").read_bytes(), (run / "plan.json").read_bytes())
        code, listed, _ = elsewhere(around, clean_environ, project, "runs", "list", "--json")
        assert (code, [one["status"] for one in json.loads(listed)]) == (0, ["running"])
    assert metadata(run)["status"] == "interrupted"


@pytest.mark.parametrize("around", [OTHER_HOST, OTHER_NAMESPACE], ids=["other host", "other namespace"])
@pytest.mark.torch
@pytest.mark.full
def test_stop_names_the_place_of_a_process_that_it_cannot_reach(
    clean_environ: dict[str, str], project: Path, around: tuple[str, ...]
) -> None:
    with running(clean_environ, project) as process:
        code, _, said = elsewhere(around, clean_environ, project, "stop", "behave")
        assert code == 3, said
        assert os.uname().nodename in said
        assert process.poll() is None


@pytest.mark.full
def test_a_killed_owner_is_followed_at_once_where_its_process_can_be_seen(
    primus: Run, clean_environ: dict[str, str], project: Path
) -> None:
    with running(clean_environ, project) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        run = run_of(project)
        again = primus("direct", "--", "behave", "exit", "0", env={"PRIMUS_RUN_DIR": str(run)}, cwd=project)
    assert again.returncode == 0, again.stderr
    assert metadata(run)["status"] == "completed"
    assert sorted(path.name for path in (run / "lease").iterdir()) == ["1.json", "2.json"]


def test_an_owner_on_another_host_is_dead_when_it_gave_no_sign_of_life_for_long(tmp_path: Path) -> None:
    take(tmp_path)
    path = became(tmp_path, 1, host="gpu-17", pid=4711)
    with pytest.raises(RequestError, match="is in use") as caught:
        take(tmp_path)
    assert "process 4711 of ada on gpu-17, since 20" in caught.value.why
    assert "its latest sign of life was" in caught.value.why
    grow_old(path)
    assert take(tmp_path).number == 2


def test_a_boot_later_a_process_of_the_same_number_is_another_one(tmp_path: Path) -> None:
    take(tmp_path)
    grow_old(became(tmp_path, 1, boot="an earlier one"))
    assert take(tmp_path).number == 2


def test_a_later_process_of_the_same_number_is_another_one(tmp_path: Path) -> None:
    take(tmp_path)
    became(tmp_path, 1, began=1)
    assert take(tmp_path).number == 2


def test_a_lease_that_was_given_back_is_free(tmp_path: Path) -> None:
    first = take(tmp_path)
    first.release()
    assert lease.look(str(tmp_path), HostRoot()) is None
    assert take(tmp_path).number == 2


def test_who_was_taken_for_dead_and_lives_sees_that_it_owns_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = take(tmp_path)
    grow_old(became(tmp_path, 1, host="gpu-17"))
    second = take(tmp_path)
    assert (first.is_lost(), second.is_lost()) == (True, False)
    told = list[int]()
    monkeypatch.setattr(os, "kill", lambda _, number: told.append(number))
    first.renewed -= 2 * lease.EVERY_S
    first.look()
    first.look()
    assert told == [signal.SIGTERM], "once"


def test_a_sign_of_life_is_given_now_and_then(tmp_path: Path) -> None:
    own = take(tmp_path)
    path = tmp_path / "lease/1.json"
    grow_old(path)
    own.look()
    assert path.stat().st_mtime < (tmp_path / "lease").stat().st_mtime - lease.DEAD_AFTER_S, "not so soon again"
    own.renewed -= 2 * lease.EVERY_S
    own.look()
    assert path.stat().st_mtime > (tmp_path / "lease").stat().st_mtime - lease.DEAD_AFTER_S


def test_a_job_that_its_scheduler_starts_again_takes_the_lease_of_its_earlier_start(tmp_path: Path) -> None:
    take(tmp_path, job="12")
    became(tmp_path, 1, host="gpu-17")
    with pytest.raises(RequestError, match="is in use"):
        take(tmp_path, job="12")
    with pytest.raises(RequestError, match="is in use"):
        take(tmp_path, job="13", restart="1")
    assert take(tmp_path, job="12", restart="1").number == 2


def test_of_many_that_come_at_once_one_takes_over(tmp_path: Path) -> None:
    take(tmp_path)
    grow_old(became(tmp_path, 1, host="gpu-17"))
    program = """
import sys, time
from primus_core.errors import RequestError
from primus_machine.host import HostRoot
from primus_machine.files.lease import Lease
try:
    print(Lease.take(sys.argv[1], HostRoot(), user="ada", job={}).number, flush=True)
    sys.stdin.read()
except RequestError:
    print("refused", flush=True)
"""
    many = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(6)
    ]
    try:
        said = sorted(process.stdout.readline().strip() for process in many if process.stdout)
    finally:
        for process in many:
            process.communicate(timeout=60)
    assert said == ["2", *["refused"] * 5]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_lease_counts_as_long_as_it_is_fresh(tmp_path: Path, text: str) -> None:
    take(tmp_path)
    path = tmp_path / "lease/1.json"
    path.write_text(text)
    with pytest.raises(RequestError, match="is in use"):
        take(tmp_path)
    grow_old(path)
    assert take(tmp_path).number == 2


def test_a_lease_that_was_removed_comes_back_unless_another_has_taken_the_place(tmp_path: Path) -> None:
    owner = take(tmp_path)
    shutil.rmtree(tmp_path / "lease")
    assert not owner.is_lost()
    with pytest.raises(RequestError, match="is in use"):
        take(tmp_path)
    shutil.rmtree(tmp_path / "lease")
    other = take(tmp_path)
    assert (owner.is_lost(), other.is_lost()) == (True, False)


@pytest.mark.torch
@pytest.mark.full
def test_a_run_on_another_host_is_listed_by_its_owners_signs_of_life(primus: Run, project: Path) -> None:
    assert primus("direct", "--", "behave", "exit", "0", cwd=project).returncode == 0
    run = run_of(project)
    (run / "metadata.json").write_text(json.dumps({**metadata(run), "status": "started", "host": "gpu-17"}))
    path = became(run, 1, host="gpu-17")
    states = []
    for age in (0.0, OLD_S):
        os.utime(path)
        grow_old(path, age)
        states += [one["status"] for one in json.loads(primus("runs", "list", "--json", cwd=project).stdout)]
    assert states == ["running", "lost"]


@pytest.mark.full
def test_each_node_that_joins_a_directory_owns_its_part(primus: Run, project: Path) -> None:
    run = project / "output/both"
    environ = {"PRIMUS_RUN_DIR": str(run), "NNODES": "2", "MASTER_ADDR": "localhost"}
    for rank in ("0", "1"):
        done = primus("direct", "--", "behave", "exit", "0", env={**environ, "NODE_RANK": rank}, cwd=project)
        assert done.returncode == 0, done.stderr
    assert (run / "lease/1.json").exists()
    assert (run / "nodes/1/lease/1.json").exists()


def test_a_pipe_in_place_of_a_lease_makes_nobody_wait(tmp_path: Path) -> None:
    first = take(tmp_path)
    os.mkfifo(tmp_path / "lease/2.json")
    assert first.is_lost()
    with pytest.raises(RequestError, match="is in use"):
        take(tmp_path)
    (tmp_path / "lease/1.json").unlink()
    os.mkfifo(tmp_path / "lease/1.json")
    (tmp_path / "lease/2.json").unlink()
    assert first.is_lost(), "somebody put something else in its place"
