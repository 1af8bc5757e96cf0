"""Files of others are not run, loaded or obeyed before `primus trust`; what is one's own never gives a refusal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Run, wait_until
from tests.core.run_directories import make
from tests.core.test_direct import metadata, run_of
from tests.core.test_lease import OTHER_HOST, OTHER_NAMESPACE, PRIMUS, became, running

from primus_core.errors import RequestError
from primus_machine.files import trust
from primus_machine.files.lease import Lease, process_start
from primus_machine.files.trust import Trust
from primus_machine.host import HostRoot

STRANGER = 54321
"""An account that has no name here."""
SHARED = {"shared": 0o777, "sticky": 0o1777, "group-writable": 0o2775}
PERSON = 54322
MARK = "a stranger was here"
PLUGIN = f"""
from primus_core import hookimpl, register_task
print("{MARK}")

@register_task("theirs")
def theirs(call):
    "Do what the stranger wants."
    print("{MARK}")

@hookimpl
def before_launch(run):
    print("{MARK}")
"""
OWN = """
from primus_core import register_task

@register_task("mine")
def mine(call):
    "Do what the person wants."
    print("mine ran")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")


def give(path: Path, uid: int = STRANGER) -> Path:
    """Make all of it another user's."""
    for one in (path, *path.rglob("*")) if path.is_dir() and not path.is_symlink() else (path,):
        os.chown(one, uid, uid, follow_symlinks=False)
    return path


@pytest.fixture
def home(tmp_path: Path, clean_environ: dict[str, str]) -> Path:
    """The person's home, with a task of their own."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / ".primus.yaml").write_text("plugins: [./mine.py]\n")
    (folder / "mine.py").write_text(OWN)
    clean_environ["HOME"] = str(folder)
    clean_environ.pop("XDG_CONFIG_HOME", None)
    return folder


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder in which others may write."""
    folder = tmp_path / "shared"
    folder.mkdir()
    if request.param == "group-writable" and not os.geteuid():
        os.chown(folder, 0, STRANGER)
    folder.chmod(SHARED[request.param])
    return folder


def planted(folder: Path) -> None:
    """A project of the stranger's: settings, a plugin, and scripts."""
    (folder / "hooks").mkdir()
    (folder / "hooks/1.sh").write_text(f"echo '{MARK}' >&2\n")
    (folder / "theirs.py").write_text(PLUGIN)
    (folder / "primus.yaml").write_text("plugins: [./theirs.py]\n")
    for name in ("hooks", "theirs.py", "primus.yaml"):
        give(folder / name)


@pytest.mark.full
@needs_root
def test_a_strangers_project_where_one_stands_is_skipped_and_named_until_it_is_trusted(
    primus: Run, home: Path, shared: Path
) -> None:
    planted(shared)
    for words in (["direct", "--single", "--", "mine"], ["plugins"], ["hooks", "list"], ["--help"]):
        done = primus(*words, cwd=shared)
        assert done.returncode == 0, done.stderr
        assert MARK not in done.stdout + done.stderr
        if words != ["--help"]:
            said = f"primus: skipped ./primus.yaml: it belongs to uid {STRANGER}; to use it: primus trust {shared}\n"
            assert done.stderr.count(said) == 1
    assert primus("direct", "--", "theirs", cwd=shared).returncode == 2
    assert primus("trust", str(shared), cwd=home).stdout == f"trusted: {shared}\n"
    done = primus("direct", "--single", "--", "theirs", cwd=shared)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(MARK) >= 1
    assert MARK in done.stderr, "the hook"
    assert "skipped" not in done.stderr
    assert (home / ".config/primus/trusted").stat().st_mode & 0o777 == 0o600


@needs_root
@pytest.mark.parametrize("words", ["--patch theirs.sh", "--hooks theirs", "--env theirs.env", "--profile theirs.toml"])
def test_what_is_asked_for_by_name_and_is_a_strangers_is_refused(
    primus: Run, home: Path, tmp_path: Path, words: str
) -> None:
    folder = tmp_path / "work"
    (folder / "theirs").mkdir(parents=True)
    for name in ("theirs.sh", "theirs/1.sh"):
        (folder / name).write_text(f"echo '{MARK}'\n")
    (folder / "theirs.env").write_text("LD_PRELOAD=/tmp/evil.so\n")
    (folder / "theirs.toml").write_text('name = "x"\n')
    for path in folder.iterdir():
        give(path)
    done = primus("direct", "--single", *words.split(), "--", "mine", cwd=folder)
    assert done.returncode == 2
    assert f"is not trusted\n  why: it belongs to uid {STRANGER}\n" in done.stderr
    assert f"to trust it: primus trust {folder}" in done.stderr
    assert MARK not in done.stdout + done.stderr
    place = folder / "theirs" if "--hooks" in words else folder
    assert primus("trust", str(place), cwd=home).returncode == 0
    assert primus("direct", "--single", *words.split(), "--", "mine", cwd=folder).returncode == 0


@needs_root
def test_modules_that_lie_where_one_stands_are_not_imported(primus: Run, home: Path, shared: Path) -> None:
    for name in ("json.py", "runpy.py", "torch.py"):
        (shared / name).write_text(f"print('{MARK}')\n")
        give(shared / name)
    done = primus("direct", "--single", "--", "mine", cwd=shared)
    assert (done.returncode, "mine ran" in done.stdout) == (0, True), done.stderr
    assert MARK not in done.stdout + done.stderr


@pytest.fixture
def theirs(primus: Run, home: Path, tmp_path: Path) -> Path:
    """A run of the stranger's."""
    work = tmp_path / "work"
    work.mkdir()
    assert primus("direct", "--single", "--", "mine", cwd=work).returncode == 0
    return give((work / "output/mine").resolve())


@pytest.mark.torch
@pytest.mark.full
@needs_root
def test_a_strangers_run_is_shown_and_replayed_only_where_somebody_says_so(
    primus: Run, theirs: Path, home: Path
) -> None:
    assert str(STRANGER) in primus("runs", "list", str(theirs.parent)).stdout
    assert f"owner      {STRANGER}" in primus("runs", "show", str(theirs)).stdout
    for words in (("--check",), ("--dry-run",)):
        assert primus("replay", str(theirs), *words).returncode == 0
    done = primus("replay", str(theirs))
    assert done.returncode == 2
    assert "add --trust" in done.stderr
    assert f"primus trust {theirs}" in done.stderr
    assert "mine ran" in primus("replay", str(theirs), "--trust").stdout
    assert primus("trust", str(theirs)).returncode == 0
    assert "mine ran" in primus("replay", str(theirs)).stdout


@pytest.mark.full
@needs_root
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2), ("", 2)])
def test_on_a_terminal_one_sees_what_would_run_and_is_asked(
    theirs: Path, clean_environ: dict[str, str], answer: str, code: int
) -> None:
    leader, terminal = pty.openpty()
    process = subprocess.Popen([PRIMUS, "replay", str(theirs)], env=clean_environ, cwd=theirs.parent, text=True,
                               stdin=terminal, stderr=terminal, stdout=subprocess.PIPE)  # fmt: skip
    os.close(terminal)
    shown = ""
    while "[y/N]" not in shown:
        shown += os.read(leader, 65536).decode()
    assert "primus_core.programs.own_task" in shown
    os.write(leader, f"{answer}\n".encode())
    assert process.stdout
    ran = "mine ran" in process.stdout.read()
    assert process.wait(timeout=60) == code
    assert ran == (code == 0)
    os.close(leader)


@needs_root
def test_files_of_a_strangers_run_lead_nowhere_and_hold_nobody_up(primus: Run, home: Path, tmp_path: Path) -> None:
    private = tmp_path / "private.json"
    private.write_text('{"task": "the private text", "commit": "the private text", "root": "/"}')
    run = make(tmp_path / "output")
    for name, kind in {"metadata.json": "link", "code/code.json": "link", "plan.json": "fifo"}.items():
        (run / name).unlink()
        os.symlink(private, run / name) if kind == "link" else os.mkfifo(run / name)
    (run / "logs/rank_0.log").symlink_to(private)
    (run / "metrics.jsonl").unlink(missing_ok=True)
    os.mkfifo(run / "metrics.jsonl")
    give(run)
    for words in ("runs list", f"runs show {run}", f"replay {run} --check", f"logs {run}", f"stop {run}"):
        done = primus(*words.split(), timeout=60)
        assert "private text" not in done.stdout + done.stderr, words
        assert "bug" not in done.stderr, words


@needs_root
@pytest.mark.torch
@pytest.mark.full
def test_stop_signals_no_process_that_a_stranger_names(primus: Run, home: Path, tmp_path: Path) -> None:
    with running_mine(home, tmp_path) as (bystander, run):
        planted = tmp_path / "shared/mine_2030_01_01_000000"
        (planted / "lease").mkdir(parents=True)
        for name in ("metadata.json", "lease/1.json"):
            (planted / name).write_text((run / name).read_text())
        give(planted)
        os.symlink(run.name, tmp_path / "output/theirs")
        give(tmp_path / "output/theirs")
        done = primus("stop", str(planted), "--timeout", "1")
        assert done.returncode in (2, 3)
        assert "is not trusted" in done.stderr
        assert primus("stop", "theirs").returncode == 2, "a stranger's link leads to no run"
        assert bystander.poll() is None
        assert primus("stop", "mine").returncode == 0
        assert bystander.wait(timeout=60) == 143


@pytest.fixture
def public() -> Iterator[Path]:
    """A sticky folder that every account reaches, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="primus-test-") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def as_person(clean_environ: dict[str, str], program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What a program prints that gives up root when all is imported: the interpreter may be readable to root alone."""
    before = f"""
import grp, os, pwd, sys, primus_machine.secrets.redaction
from primus_core.cli import main as cli
from primus_machine.files import trust
from primus_runs import stop
cli.main(["stop", "nothing"])
cli.main(["runs", "show", "nothing"])
os.setgroups([])
os.setgid({PERSON})
os.setuid({PERSON})
"""
    command = [sys.executable, "-c", before + program, *words]
    return subprocess.run(command, env=clean_environ, text=True, capture_output=True, timeout=120, check=False)


@needs_root
@pytest.mark.torch
def test_a_person_believes_their_own_files_and_roots(clean_environ: dict[str, str], public: Path) -> None:
    for name, uid in {"own": PERSON, "root": 0, "theirs": STRANGER}.items():
        (public / name).mkdir()
        (public / name / "a").write_text("")
        give(public / name, uid)
    os.symlink("own/a", public / "link")
    give(public / "link")
    program = "print([bool(trust.of({}).doubt(path)) for path in sys.argv[1:]])"
    done = as_person(clean_environ, program, *(f"{public}/{name}" for name in ("own/a", "root/a", "theirs/a", "link")))
    assert done.stdout.endswith("[False, False, True, True]\n"), done.stderr


@needs_root
@pytest.mark.torch
@pytest.mark.full
def test_a_person_stops_none_of_their_processes_that_a_stranger_names(
    clean_environ: dict[str, str], public: Path
) -> None:
    with subprocess.Popen(["sleep", "100"], user=PERSON, group=PERSON, extra_groups=[]) as bystander:
        planted = make(public, "x_2030_01_01_000000", metadata={"status": "started", "pid": bystander.pid})
        Lease.take(str(planted), HostRoot(), user="x", job={})
        became(planted, 1, pid=bystander.pid, began=process_start(bystander.pid, HostRoot()))
        give(planted)
        stop = "sys.exit(cli.main(['stop', sys.argv[1], '--timeout', '1']))"
        done = as_person(clean_environ, stop, str(planted))
        assert (done.returncode, "is not trusted" in done.stderr) == (2, True), done.stderr
        assert bystander.poll() is None
        give(planted, PERSON)
        done = as_person(clean_environ, stop, str(planted))
        assert bystander.wait(timeout=60) == -signal.SIGTERM, done.stderr


@needs_root
@pytest.mark.torch
def test_stop_signals_no_process_of_a_third_person_that_a_trusted_stranger_names(
    primus: Run, home: Path, tmp_path: Path
) -> None:
    """Root, who may signal everybody, has trusted the stranger's folder."""
    with subprocess.Popen(["sleep", "600"], user=PERSON, group=PERSON, extra_groups=[]) as bystander:
        planted = make(tmp_path / "shared", "x_2030_01_01_000000", metadata={"status": "started", "pid": bystander.pid})
        Lease.take(str(planted), HostRoot(), user="x", job={})
        became(planted, 1, pid=bystander.pid, began=process_start(bystander.pid, HostRoot()))
        give(tmp_path / "shared")
        assert primus("trust", str(tmp_path / "shared")).returncode == 0
        done = primus("stop", str(planted), "--timeout", "1")
        assert done.returncode in (2, 3), done.stderr
        assert "not trusted" not in done.stderr
        assert bystander.poll() is None
        give(planted, PERSON)
        primus("stop", str(planted), "--timeout", "1")
        assert bystander.wait(timeout=60) == -signal.SIGTERM


class running_mine:  # noqa: N801  # it is used as a function
    """A run of the person's own that waits to be stopped."""

    def __init__(self, home: Path, folder: Path) -> None:
        (home / "mine.py").write_text(OWN.replace('    print("mine ran")', "    import time\n    time.sleep(600)"))
        self.environ = {**os.environ, "HOME": str(home)}
        self.folder = folder

    def __enter__(self) -> tuple[subprocess.Popen[bytes], Path]:
        words = [PRIMUS, "direct", "--single", "--", "mine"]
        self.process = subprocess.Popen(words, env=self.environ, cwd=self.folder, stderr=subprocess.DEVNULL)
        link = self.folder / "output/mine"
        wait_until(lambda: link.exists() and metadata(link.resolve()).get("status") == "started")
        return self.process, link.resolve()

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)


@pytest.mark.torch
@pytest.mark.full
def test_stop_signals_no_process_that_has_only_the_number_of_the_runs(primus: Run, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as bystander:
        run = make(tmp_path / "output", "x_2030_01_01_000000", metadata={"status": "started", "pid": bystander.pid})
        Lease.take(str(run), HostRoot(), user="x", job={})
        became(run, 1, pid=bystander.pid, began=1)
        done = primus("stop", str(run), "--timeout", "1")
        assert bystander.poll() is None, done.stderr
        bystander.kill()


@pytest.mark.parametrize("other", [{"host": "elsewhere"}, {"namespace": "pid:[1]"}, {"boot": "x"}])
@pytest.mark.torch
@pytest.mark.full
def test_stop_signals_no_process_that_is_not_provably_the_runs(
    primus: Run, clean_environ: dict[str, str], project: Path, other: dict[str, object]
) -> None:
    with running(clean_environ, project) as process:
        run = run_of(project)
        kept = (run / "lease/1.json").read_text()
        became(run, 1, **other)
        done = primus("stop", str(run), "--timeout", "1", cwd=project)
        assert process.poll() is None
        assert done.returncode in (0, 3), done.stderr
        (run / "lease/1.json").write_text(kept)
        (run / "lease/1.json").chmod(0o666)
        done = primus("stop", str(run), "--timeout", "1", cwd=project)
        assert (done.returncode, process.poll()) in ((2, None), (3, None)), done.stderr
        (run / "lease/1.json").rename(run / "lease-1.json")
        done = primus("stop", str(run), "--timeout", "1", cwd=project)
        assert done.returncode == 3
        assert "no lease that proves which process is its own" in done.stderr
        assert process.poll() is None
        (run / "lease-1.json").rename(run / "lease/1.json")


@pytest.mark.torch
@pytest.mark.parametrize("elsewhere", [OTHER_HOST, OTHER_NAMESPACE], ids=["host", "namespace"])
@pytest.mark.full
def test_a_run_elsewhere_is_running_then_unknown_and_gets_no_signal(
    primus: Run, clean_environ: dict[str, str], project: Path, elsewhere: tuple[str, ...]
) -> None:
    words = [*elsewhere, PRIMUS, "direct", "--", "behave", "wait"]
    process = subprocess.Popen(words, env=clean_environ, cwd=project, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    run = run_of(project)
    [shown] = json.loads(primus("runs", "list", "--json", cwd=project).stdout)
    assert shown["status"] == "running"
    done = primus("stop", "latest", cwd=project)
    assert (done.returncode, process.poll()) == (3, None), done.stderr
    process.kill()
    process.wait(timeout=60)
    lease = run / "lease/1.json"
    os.utime(lease, (lease.stat().st_atime, lease.stat().st_mtime - 60))
    [shown] = json.loads(primus("runs", "list", "--json", cwd=project).stdout)
    assert shown["status"] == "started"
    assert shown["reason"].startswith("unknown from here: it runs on another host or in another container")


@needs_root
def test_a_log_is_not_written_through_a_strangers_link(primus: Run, home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    os.symlink("mine.txt", tmp_path / "log")
    give(tmp_path / "log")
    done = primus("direct", "--single", "--log-file", "log", "--", "mine")
    assert done.returncode == 0
    assert (tmp_path / "mine.txt").read_text() == "precious"


# The ways of every day


@needs_root
def test_root_in_a_container_over_a_persons_files_is_refused_nothing(primus: Run, home: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "run").mkdir(parents=True)
    planted(work)
    give(work)
    outer = {"PRIMUS_RUN_DIR": f"{work}/run", "PRIMUS_OUTER": "container", "PRIMUS_RUN_ID": "run"}
    done = primus("direct", "--single", "--", "theirs", env=outer, cwd=work)
    assert done.returncode == 0, done.stderr
    # the plugin is loaded twice; the hook in hooks/ and the task
    said = done.stdout + done.stderr
    assert (said.count(MARK), "trust" in said) == (4, False), said


@needs_root
def test_root_believes_the_person_who_called_sudo_and_what_an_outer_layer_believed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    give(path)
    assert trust.of({}).doubt(str(path)) == f"it belongs to uid {STRANGER}"
    assert not trust.of({"SUDO_UID": str(STRANGER)}).doubt(str(path))
    (tmp_path / "home").mkdir()
    assert trust.of({"HOME": f"{tmp_path}/home"}).doubt(str(path))
    give(tmp_path / "home")
    assert not Trust({"HOME": f"{tmp_path}/home"}).doubt(str(path)), "root has the person's home"
    assert not trust.of({"PRIMUS_TRUSTED": f"/elsewhere:{tmp_path}"}).doubt(str(path))
    run = tmp_path / "run"
    run.mkdir()
    give(run)
    assert not Trust({"PRIMUS_RUN_DIR": str(run), "PRIMUS_OUTER": "container"}).doubt(str(path))
    assert Trust({"PRIMUS_RUN_DIR": str(run)}).doubt(str(path)), "no outer layer made it"


@needs_root
def test_a_list_of_trusted_folders_is_only_believed_if_it_is_ones_own(tmp_path: Path) -> None:
    listed = tmp_path / "config/primus/trusted"
    listed.parent.mkdir(parents=True)
    listed.write_text("/\n")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert trust.named(environ) == ("/",)
    listed.chmod(0o666)
    assert trust.named(environ) == ()
    listed.chmod(0o600)
    give(listed)
    assert trust.named(environ) == ()


@needs_root
@pytest.mark.parametrize(
    ("mode", "group", "why"),
    [
        (0o664, 0, ""),  # root's private group
        (0o664, STRANGER, f"its group (gid {STRANGER}) can write to it"),
        (0o644, STRANGER, ""),
        (0o646, 0, "everybody can write to it"),
        (0o444, 0, ""),
    ],
)
def test_what_others_can_write_to_is_not_believed(tmp_path: Path, mode: int, group: int, why: str) -> None:
    path = tmp_path / "file"
    path.write_text("")
    os.chown(path, 0, group)
    path.chmod(mode)
    assert trust.of({}).doubt(str(path)) == why


@pytest.mark.torch
@needs_root
def test_a_folder_whose_name_would_move_the_cursor_is_named_all_the_same(
    primus: Run, home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "x\x1b[2K"
    folder.mkdir()
    (folder / "primus.yaml").write_text("workspace: x\n")
    give(folder / "primus.yaml")
    said = primus("runs", "list", cwd=folder).stderr
    assert "skipped ./primus.yaml" in said
    assert "\x1b" not in said


@needs_root
@pytest.mark.parametrize("kind", ["file", "link", "link in the path"])
def test_what_a_strangers_link_leads_to_is_not_believed(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/a").write_text("")
    assert not trust.of({}).doubt(str(tmp_path / "mine/a"))
    os.symlink("mine/a" if kind == "link" else "mine", tmp_path / "link")
    path = tmp_path / ("link" if kind == "link" else "link/a")
    assert not trust.of({}).doubt(str(path)), "a link of one's own"
    give(tmp_path / ("link" if kind != "file" else "mine/a"))
    assert trust.of({}).doubt(str(path))


def test_a_fifo_that_would_be_believed_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.env")
    with pytest.raises(RequestError, match="not a regular file"), open(tmp_path / "x.env", opener=trust.of({}).opener):
        pass


def test_trusted_folders_are_listed_and_removed(primus: Run, home: Path, tmp_path: Path) -> None:
    assert primus("trust", "--list").stdout == "no folder is trusted\n"
    (tmp_path / "team").mkdir()
    assert primus("trust", "team", "home", cwd=tmp_path).returncode == 0
    assert json.loads(primus("trust", "--list", "--json").stdout) == {
        "trusted": [f"{tmp_path}/team", f"{tmp_path}/home"]
    }
    assert primus("trust", "--remove", "team", cwd=tmp_path).stdout == f"no longer trusted: {tmp_path}/team\n"
    assert primus("trust", "--list").stdout == f"{tmp_path}/home\n"
    assert "primus trust team" in primus("trust", "add", "team", cwd=tmp_path).stderr
    wrong = primus("trust", "taem", cwd=tmp_path)
    assert (wrong.returncode, "did you mean 'team'?" in wrong.stderr) == (2, True)
    assert primus("trust").returncode == 2
    assert "--remove" in primus("__complete", "2", "primus", "trust", "").stdout
