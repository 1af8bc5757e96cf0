"""A snapshot of the code runs no program that a repository names, waits for git only so long, and keeps what it knows."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.machine.repositories import commit, git

from primus_machine.code import repository
from primus_machine.code.git import head_of

FILES = ("-c", "protocol.file.allow=always")
HOOKS = ("post-index-change", "pre-commit", "reference-transaction", "fsmonitor-watchman", "query-watchman")
# Each setting of git that names a program, or leads to one.
SETTINGS = (
    *("core.fsmonitor", "core.pager", "pager.diff", "core.sshCommand", "core.gitProxy", "core.editor", "core.askPass"),
    *("credential.helper", "diff.external", "diff.planted.command", "diff.planted.textconv", "gpg.program"),
    *("filter.planted.clean", "filter.planted.smudge", "filter.planted.process", "filter.odd name.clean"),
    "filter..clean",  # a filter without a name
    *("merge.planted.driver", "uploadpack.packObjectsHook", "core.alternateRefsCommand", "sequence.editor"),
    *("interactive.diffFilter", "remote.origin.uploadpack", "trailer.planted.command", "gc.recentObjectsHook"),
)
ATTRIBUTES = (
    '*.py filter=planted diff=planted merge=planted\n*.txt filter="odd name"\n*.md filter=included\n*.rst filter=\n'
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves a file where it ran."""
    path = tmp_path / "program"
    path.write_text(f'#!/bin/sh\necho "$0 $@" >> {tmp_path}/ran\ncat\n')
    path.chmod(0o755)
    return path


def planted(folder: Path, program: Path) -> Path:
    """A repository with one commit and changes, whose configuration names the program wherever it can."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for name in ("train.py", "notes.txt", "read.md", "nameless.rst", "plain.c"):
        (folder / name).write_text("x = 1\n")
    commit(folder)
    plant(folder, Path(git(folder, "rev-parse", "--absolute-git-dir").strip()), program)
    for name in ("train.py", "notes.txt", "read.md", "nameless.rst", "plain.c", "new.py", "new.c"):
        (folder / name).write_text("x = 2\n")
    return folder


def plant(folder: Path, place: Path, program: Path) -> None:
    """Name the program in every setting of the repository whose `.git` is `place`, and in its hooks."""
    (folder / ".gitattributes").write_text(ATTRIBUTES)
    (place / "info").mkdir(exist_ok=True)
    (place / "info/attributes").write_text(ATTRIBUTES)
    (place / "included").write_text(f'[filter "included"]\n\tclean = {program}\n\trequired = true\n')
    git(folder, "config", "include.path", "included")
    git(folder, "config", "alias.diff", f"!{program}")
    git(folder, "config", "protocol.ext.allow", "always")
    git(folder, "config", "extensions.partialClone", "origin")
    git(folder, "config", "remote.origin.url", f"ext::{program}")
    git(folder, "config", "remote.origin.promisor", "true")
    for setting in SETTINGS:
        git(folder, "config", setting, str(program))
    for hook in HOOKS:
        (place / "hooks").mkdir(exist_ok=True)
        (place / f"hooks/{hook}").write_text(program.read_text())
        (place / f"hooks/{hook}").chmod(0o755)


def test_the_planted_programs_would_run(tmp_path: Path, program: Path) -> None:
    folder = planted(tmp_path / "project", program)
    git(folder, "config", "--unset", "core.fsmonitor")
    with suppress(subprocess.CalledProcessError):  # the program speaks no filter's protocol
        git(folder, "-c", "core.hooksPath=/dev/null", "diff", "HEAD")
    assert (tmp_path / "ran").exists()


def test_no_program_of_a_repository_or_its_submodules_runs(tmp_path: Path, program: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "train.py").write_text("x\n")
    commit(inner)
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "plain.c").write_text("x = 1\n")
    git(folder, *FILES, "submodule", "--quiet", "add", str(inner), "parts/one")
    commit(folder)
    known = git(folder, "rev-parse", "HEAD").strip()
    plant(folder / "parts/one", folder / ".git/modules/parts/one", program)
    plant(folder, folder / ".git", program)
    for path in ("plain.c", "new.c", "new.py", "new.rst", "parts/one/train.py", "parts/one/new.c"):
        (folder / path).write_text("x = 2\n")
    (tmp_path / "ran").unlink(missing_ok=True)

    code = repository.read(str(folder), dict(os.environ))

    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert (code.summary["error"], code.summary["commit"]) == ("", known)
    assert "+x = 2" in code.patch
    assert {"new.c", "parts/one/new.c"} <= set(code.summary["untracked"])
    left = {row["path"]: row["why"] for row in code.summary["omitted"]}
    assert left["new.py"] == left["parts/one/train.py"] == "a filter of git changes it"


def test_a_missing_object_is_not_fetched_by_a_program(tmp_path: Path, program: Path) -> None:
    folder = planted(tmp_path / "project", program)
    blob = git(folder, "rev-parse", "HEAD:plain.c").strip()
    (folder / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    (tmp_path / "ran").unlink(missing_ok=True)
    code = repository.read(str(folder), dict(os.environ))
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert code.summary["root"] == str(folder)
    assert len(code.summary["commit"]) == 40
    assert code.summary["error"]


@pytest.mark.full
def test_a_hundred_thousand_untracked_files_are_listed_up_to_a_limit_and_code_comes_first(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "kept").touch()
    commit(tmp_path)
    for number in range(100):
        (tmp_path / f"data/{number}").mkdir(parents=True)
        for other in range(1000):
            (tmp_path / f"data/{number}/{other}").touch()
    (tmp_path / "data/99/train.py").write_text("x = 1\n")
    code = repository.read(str(tmp_path), dict(os.environ))
    assert code.summary["error"] == ""
    assert "data/99/train.py" in code.summary["untracked"]
    assert len(code.summary["untracked"]) == 1000
    [left] = code.summary["omitted"]
    assert left["path"] == "data/"
    assert left["why"] == "99001 untracked files: more than 1000"
    assert len(left["sha256"]) == 64


# Below it, one that left its session and its parents, hears no SIGTERM and holds no pipe; one that holds git's output.
AWAY = """
(setsid bash -c 'trap "" TERM HUP INT; echo $$ >> {0}/pids; while :; do sleep 1000; done' </dev/null >/dev/null 2>&1 &)
(setsid bash -c 'trap "" TERM HUP INT; echo $$ >> {0}/pids; while :; do sleep 1000; done' &)
until [ "$(wc -l < {0}/pids)" = 2 ]; do sleep 0.01; done
"""


@pytest.mark.parametrize("hangs_at", ["", "ls-files", "diff"])
@pytest.mark.full
def test_a_git_that_hangs_is_left_with_the_commit_known_and_no_process_behind(
    tmp_path: Path, clean_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, hangs_at: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "train.py").write_text("x = 1\n")
    commit(folder)
    known = git(folder, "rev-parse", "HEAD").strip()
    (folder / "train.py").write_text("x = 2\n")
    real = next(path for part in os.environ["PATH"].split(":") if os.access(path := f"{part}/git", os.X_OK))
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin/git"
    fake.write_text(f'#!/bin/bash\n[[ " $* " != *" {hangs_at} "* && -n "{hangs_at}" ]] && exec {real} "$@"\n'
                    f"{AWAY.format(tmp_path)}echo $$ >> {tmp_path}/pids\nsleep 1000 & sleep 1000\n")  # fmt: skip
    fake.chmod(0o755)
    ours = subprocess.Popen(["sleep", "1000"])
    monkeypatch.setattr(repository, "_TIME_LIMIT_S", 2.5)
    environ = {**clean_environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    code = repository.read(str(folder), environ)
    assert (code.summary["root"], code.summary["commit"], code.summary["branch"]) == (str(folder), known, "main")
    assert "did not answer in time" in code.summary["error"]
    assert code.summary["missing"] == ["uncommitted changes"]
    if (tmp_path / "pids").exists():  # on a busy machine the deadline may come before the script's first line
        assert not [pid for pid in (tmp_path / "pids").read_text().split() if os.path.exists(f"/proc/{pid}")]
    assert ours.poll() is None, "a process of a hook, for example"
    ours.kill()
    ours.wait()


def test_commit_and_branch_are_known_without_git(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "some/branch")
    assert head_of(str(folder)) == (str(folder), "", "some/branch")
    (folder / "sub").mkdir()
    (folder / "sub/train.py").write_text("x\n")
    commit(folder)
    known = git(folder, "rev-parse", "HEAD").strip()
    assert head_of(str(folder / "sub")) == (str(folder), known, "some/branch")
    git(folder, "pack-refs", "--all")
    assert head_of(str(folder)) == (str(folder), known, "some/branch")
    git(folder, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "tree"))
    assert head_of(str(tmp_path / "tree")) == (str(tmp_path / "tree"), known, "other")
    git(folder, "checkout", "--quiet", "--detach")
    assert head_of(str(folder)) == (str(folder), known, "HEAD")
    assert head_of("/") == ("", "", "")


@pytest.mark.parametrize("name", ["HEAD", "packed-refs", "commondir", "refs/heads/main"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_in_the_place_of_a_file_of_git_is_not_read(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / ".git" / name
    path.parent.mkdir(parents=True)
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    path.unlink(missing_ok=True)
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    assert head_of(str(tmp_path))[:2] == (str(tmp_path), "")


def test_a_file_without_an_end_has_no_checksum(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"")
    assert len(repository._sha256(str(tmp_path / "model.bin"), time.monotonic() + 60)) == 64
    os.truncate(tmp_path / "model.bin", 1 << 40)
    assert repository._sha256(str(tmp_path / "model.bin"), time.monotonic() + 0.1) == ""


def test_a_filter_whose_name_cannot_be_disabled_is_named(tmp_path: Path, program: Path) -> None:
    folder = planted(tmp_path / "project", program)
    git(folder, "config", "filter.a=b.clean", str(program))
    (tmp_path / "ran").unlink(missing_ok=True)
    code = repository.read(str(folder), dict(os.environ))
    assert "the filter 'a=b'" in code.summary["error"]
    assert code.summary["commit"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.torch
@pytest.mark.full
def test_a_run_whose_changes_are_unknown_says_so(primus: Run, tmp_path: Path, program: Path) -> None:
    folder = planted(tmp_path / "project", program)
    git(folder, "config", "filter.a=b.clean", str(program))
    (folder / "tasks.py").write_text("from primus_core import register_task\n@register_task('x')\ndef x(call): pass\n")
    (folder / "primus.yaml").write_text("plugins: [./tasks.py]\n")
    done = primus("direct", "--single", "--", "x", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "the code of the run is not recorded: the filter 'a=b'" in done.stderr
    shown = primus("runs", "show", "x", cwd=folder).stdout
    assert git(folder, "rev-parse", "HEAD")[:12] in shown
    assert "not recorded: the filter 'a=b'" in " ".join(shown.split())
