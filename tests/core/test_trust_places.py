"""Places where others can put something in the way of what is the person's own: lists of access, links, swapped folders."""

from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.run_directories import make
from tests.core.test_direct import run_of
from tests.core.test_lease import running
from tests.core.test_trust import MARK, OWN, STRANGER, give, home, needs_root, public

from primus_core import requirements
from primus_core.config import files
from primus_core.errors import RequestError
from primus_core.plan.plan import Requirement
from primus_core.runs.state import process_here
from primus_machine.files import trust
from primus_machine.host import HostRoot

__all__ = ["home", "public"]

LIST = [(1, 7, -1), (2, 7, STRANGER), (4, 0, -1), (16, 7, -1), (32, 0, -1)]
"""Owner, a stranger, group, mask, everybody: as `setfacl -d -m u:STRANGER:rwx` writes it."""


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A folder in which a list of access lets a stranger write to all new files, whatever the umask."""
    folder = tmp_path / "team"
    folder.mkdir()
    rows = b"".join(struct.pack("<HHI", tag, mode, number & 0xFFFFFFFF) for tag, mode, number in LIST)
    try:
        os.setxattr(folder, "system.posix_acl_default", struct.pack("<I", 2) + rows)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EPERM):
            raise
        pytest.skip("this file system has no access control lists")
    return folder


def test_a_file_that_an_access_list_lets_others_write_to_is_not_believed(primus: Run, home: Path, team: Path) -> None:
    (team / "mine.py").write_text(OWN.replace('"mine"', '"listed"'))
    (team / "primus.yaml").write_text("plugins: [./mine.py]\n")
    assert (team / "mine.py").stat().st_mode & 0o777 == 0o660, "the mask of the list, despite the umask"
    done = primus("direct", "--single", "--", "listed", cwd=team)
    assert done.returncode == 2
    assert f"skipped ./primus.yaml: uid {STRANGER} can write to it" in done.stderr
    (team / "primus.yaml").chmod(0o600)
    done = primus("direct", "--single", "--", "listed", cwd=team)
    assert (done.returncode, f"uid {STRANGER} can write to it" in done.stderr) == (2, True), done.stderr
    (team / "mine.py").chmod(0o644)
    assert primus("direct", "--single", "--", "listed", cwd=team).returncode == 0


def test_what_a_run_writes_is_for_nobody_else_to_write_to_despite_an_access_list(
    primus: Run, home: Path, team: Path
) -> None:
    assert primus("direct", "--single", "--", "mine", cwd=team).returncode == 0
    run = (team / "output/mine").resolve()
    found = [run, *run.rglob("*")]
    assert len(found) > 10
    assert [path for path in found if path.stat().st_mode & 0o022] == []
    assert not any(trust.of({}).doubt(str(path)) for path in found)


@pytest.mark.torch
@needs_root
@pytest.mark.full
def test_a_program_of_a_strangers_is_not_run_and_modules_beside_ones_own_are_not_taken(
    primus: Run, home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "sticky"
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "theirs.py").write_text(f"print('{MARK}')\n")
    (folder / "own.py").write_text("import sys\ntry:\n    import theirs\nexcept ImportError:\n    print('not there')\n")
    give(folder / "theirs.py")
    done = primus("direct", "--single", "--", "run", "sticky/theirs.py")
    assert (done.returncode, MARK in done.stdout) == (2, False)
    assert f"sticky/theirs.py is not trusted\n  why: it belongs to uid {STRANGER}" in done.stderr
    done = primus("direct", "--single", "--", "run", "sticky/own.py")
    assert (done.returncode, done.stdout) == (0, "not there\n"), done.stderr
    assert f"Python imports no modules from {folder}" in done.stderr
    assert primus("trust", str(folder)).returncode == 0
    assert MARK in primus("direct", "--single", "--", "run", "sticky/own.py").stdout


@pytest.mark.torch
@needs_root
def test_a_program_that_was_replaced_since_it_was_planned_is_not_run(
    tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    (tmp_path / "own.py").write_text(f"print('{MARK}', __name__, __file__)\n")
    words = [sys.executable, "-m", "primus.run_worker", "own.py"]
    done = subprocess.run(words, cwd=tmp_path, env=clean_environ, text=True, capture_output=True, check=False)
    assert done.stdout == f"{MARK} __main__ own.py\n", done.stderr
    give(tmp_path / "own.py")
    done = subprocess.run(words, cwd=tmp_path, env=clean_environ, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"it belongs to uid {STRANGER}" in done.stderr


@pytest.mark.torch
@needs_root
def test_what_a_strangers_run_says_moves_no_cursor_and_widens_no_list(primus: Run, home: Path, tmp_path: Path) -> None:
    run = make(tmp_path / "output", metadata={"task": "\x1b[2J" + "x" * 100_000})
    (run / "logs").mkdir(exist_ok=True)
    text = "\x1b[31mred\x1b[0m\tä\n\x1b]0;title\x07\x1b[2J\x9b2J\n"
    (run / "logs/rank_0.log").write_text(text, encoding="utf-8", newline="")
    assert primus("logs", str(run)).stdout == text, "one's own is shown as it is"
    give(run)
    said = primus("logs", str(run)).stdout
    assert said == "\x1b[31mred\x1b[0m\tä\n\\x1b]0;title\\x07\\x1b[2J\\xc2\\x9b2J\n"
    listed = primus("runs", "list", str(run.parent)).stdout
    assert len(max(listed.split("\n"), key=len)) < 1000
    assert "\x1b" not in listed


def test_whether_a_module_is_here_is_asked_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names may come from a stranger's run, which is only looked at."""
    (tmp_path / "loud/inner").mkdir(parents=True)
    for name in ("loud/__init__.py", "loud/inner/__init__.py", "loud/inner/leaf.py"):
        (tmp_path / name).write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = {
        name: requirements.is_here(Requirement("module", name, ""), {})
        for name in (
            "loud",
            "loud.inner",
            "loud.inner.leaf",
            "loud.other",
            "os.path",
            "",
            ".",
            "..a",
            "__main__",
            "a.b",
        )
    }
    assert [name for name, here in found.items() if here] == ["loud", "loud.inner", "loud.inner.leaf"]


@needs_root
def test_a_file_that_was_replaced_after_it_was_looked_at_is_not_read(
    tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    path = give(tmp_path)
    (tmp_path / "primus.yaml").write_text("direct: {env: [LD_PRELOAD=/evil.so]}\n")
    path = give(tmp_path / "primus.yaml")
    with pytest.raises(RequestError, match="is not trusted"):
        files.read(str(path), {}, opener=trust.of({}).opener)
    (tmp_path / "exp.yaml").write_text("extends: ./primus.yaml\n")
    with pytest.raises(RequestError, match="is not trusted"):
        files.read_extended(str(tmp_path / "exp.yaml"), {})


@pytest.mark.torch
@needs_root
@pytest.mark.full
def test_root_stops_no_process_to_which_a_strangers_link_leads(
    primus: Run, clean_environ: dict[str, str], project: Path, tmp_path: Path
) -> None:
    with running(clean_environ, project) as process:
        run = run_of(project)
        planted = tmp_path / "planted" / run.name
        planted.mkdir(parents=True)
        (planted / "metadata.json").write_text((run / "metadata.json").read_text())
        (planted / "lease").symlink_to(run / "lease")
        assert process_here(str(planted), HostRoot()), "one's own link may lead there"
        give(planted)
        done = primus("stop", str(planted), "--timeout", "1", cwd=project)
        assert (done.returncode, process.poll()) == (2, None), done.stderr


@pytest.mark.torch
@pytest.mark.full
def test_a_run_that_was_put_in_the_place_of_another_is_not_stopped(
    primus: Run, clean_environ: dict[str, str], project: Path
) -> None:
    with running(clean_environ, project) as process:
        run = run_of(project)
        assert json.loads((run / "lease/1.json").read_text())["run"] == run.name
        other = run.rename(run.with_name("other_2030_01_01_000000"))
        done = primus("stop", str(other), "--timeout", "1", cwd=project)
        assert (done.returncode, process.poll()) == (3, None), done.stderr
        assert "no lease that proves which process is its own" in done.stderr
        other.rename(run)
