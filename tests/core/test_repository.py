"""What a snapshot says of code that may hold secrets and of submodules: nothing is left out in silence."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.conftest import Run
from tests.core.test_direct import run_of
from tests.machine.repositories import commit, git, tree

from primus_machine.code import repository
from primus_machine.code.patch import changed_paths
from primus_machine.code.repository import Code

PATH = st.text(st.sampled_from(["a", "b", " ", "/", '"', "\\", "\n", "é", "-"]), min_size=1, max_size=12).filter(
    lambda path: path == os.path.normpath(path) and not path.startswith(("/", "-"))
)
KINDS = st.sampled_from(["new", "empty", "binary", "changed", "deleted", "mode"])
LITERAL = 'API_KEY = "abcdefgh12345"\n'
CHANGES: dict[str, Callable[[Path], object]] = {
    "new": lambda path: path.write_text("+++ b/other\n"),
    "empty": Path.touch,
    "binary": lambda path: path.write_bytes(b"\0\1"),
    "changed": lambda path: path.write_text("++ b/other\n"),
    "deleted": Path.unlink,
    "mode": lambda path: path.chmod(0o755),
}
FILES = ("-c", "protocol.file.allow=always")
"""git clones no submodule from a folder unless it is told to."""
TASK = """
from primus_core import register_task

@register_task("nothing")
def nothing(call):
    "A run, to be replayed."
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git repository with one commit."""
    return _repository(tmp_path / "project")


@pytest.fixture
def submodule(project: Path) -> Path:
    """The folder of a submodule of that repository."""
    inner = _repository(project.parent / "inner")
    git(project, *FILES, "submodule", "--quiet", "add", str(inner), "parts/one é")
    commit(project)
    return project / "parts/one é"


def _repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "train.py").write_text("".join(f"x{n} = {n}\n" for n in range(20)))
    commit(folder)
    return folder


def read(folder: Path) -> Code:
    """What a snapshot taken in a folder says of the code."""
    return repository.read(str(folder), dict(os.environ))


def changed(code: Code) -> list[str]:
    """The files that the patch changes."""
    return list(changed_paths(code.patch.encode()))


def applied(code: Code, project: Path, *options: str) -> dict[str, tuple[bool, bytes]]:
    """The files of a fresh clone of the commit, with the patch on it."""
    clone, patch = project.parent / "clone", project.parent / "diff.patch"
    patch.write_bytes(code.patch.encode())
    git(project.parent, *FILES, "clone", "--quiet", "--recurse-submodules", str(project), str(clone))
    git(clone, "checkout", "--quiet", code.summary["commit"])
    git(clone, "apply", "--unidiff-zero", *options, str(patch))
    return _files(clone)


def code_rows(primus: Run, project: Path, run: Path) -> list[dict[str, Any]]:
    """What a replay says of the code."""
    said = primus("replay", str(run), "--check", "--json", cwd=project).stdout
    return [row for row in json.loads(said)["differences"] if row["category"] == "code"]


def _files(folder: Path) -> dict[str, tuple[bool, bytes]]:
    return {path: file for path, file in tree(folder).items() if not path.endswith(".git")}


@pytest.mark.parametrize(
    "name", [".env", "srv.key", "conf/credentials.json", "conf/.aws/credentials", "ID_RSA", "é.pem", "a.p12", ".npmrc"]
)
@pytest.mark.parametrize("tracked", [True, False])
def test_a_changed_file_that_may_hold_secrets_is_named_with_its_checksum(
    project: Path, name: str, tracked: bool
) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    if tracked:
        (project / name).write_text("PIN=1\n")
        commit(project)
        assert read(project).summary["dirty"] is False
    (project / name).write_text("PIN=1234-5678\n")
    code = read(project)
    checksum = sha256(b"PIN=1234-5678\n").hexdigest()
    assert code.summary["omitted"] == [{"path": name, "why": "may hold secrets", "sha256": checksum}]
    assert (code.summary["dirty"], code.summary["untracked"], code.patch) == (True, [], "")


@pytest.mark.full
@settings(max_examples=20)
@given(st.dictionaries(PATH, KINDS, min_size=1, max_size=8))
@example({"x b/y": "mode", "x": "new"})
def test_every_path_that_git_can_hold_is_named_whatever_happened_to_it(files: dict[str, str]) -> None:
    files = {path: kind for path, kind in files.items() if not any(other.startswith(f"{path}/") for other in files)}
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        git(project, "init", "--quiet")
        (project / "kept").touch()  # git makes no commit of nothing
        for path in files:
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text("x\n")
        for path in (path for path, kind in files.items() if kind in ("new", "empty", "binary")):
            (project / path).unlink()
        commit(project)
        for path, kind in files.items():
            CHANGES[kind](project / path)
        escaped = (path.translate({ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n"}) for path in files)
        assert sorted(changed(read(project))) == sorted(escaped)


def test_two_states_of_what_is_left_out_are_two(project: Path) -> None:
    seen = set()
    for text in ("PIN=1\n", "PIN=2\n"):
        (project / ".env").write_text(text)
        seen.add(read(project).summary["patch_sha256"])
    assert len(seen) == 2


def test_a_file_with_secrets_that_is_gone_is_named(project: Path) -> None:
    (project / "srv.key").write_text("PIN=1234\n")
    commit(project)
    (project / "srv.key").rename(project / "notes.txt")
    code = read(project)
    assert code.summary["omitted"] == [{"path": "srv.key", "why": "may hold secrets", "sha256": ""}]
    assert changed(code) == ["notes.txt"]


@pytest.mark.parametrize("name", ["aws_credentials_provider.py", "credentials/store.cpp", "id_rsa_test.sh"])
@pytest.mark.parametrize("tracked", [True, False])
def test_code_that_deals_with_secrets_is_code(project: Path, name: str, tracked: bool) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    if tracked:
        (project / name).write_text("one\n")
        commit(project)
    (project / name).write_text("two\n" + LITERAL)
    code = read(project)
    assert (changed(code), code.summary["omitted"], code.summary["redacted"]) == ([name], [], [name])
    assert "+two\n" in code.patch
    assert "abcdefgh12345" not in code.patch


def test_the_patch_applies_where_a_line_beside_a_change_holds_a_secret(project: Path) -> None:
    lines = [f"x{n} = {n}\n" for n in range(20)]
    lines[10] = LITERAL
    (project / "train.py").write_text("".join(lines))
    commit(project)
    lines[0], lines[9], lines[11], lines[19] = "first\n", "", "above\nbelow\n", "last"
    (project / "train.py").write_text("".join(lines))
    (project / "other.py").write_text("new\n")
    code = read(project)
    assert "abcdefgh12345" not in code.patch
    assert code.summary["redacted"] == []  # all that changed is there
    assert applied(code, project) == _files(project)


def test_where_a_removed_line_held_a_secret_all_else_applies(project: Path) -> None:
    (project / "keys.py").write_text(LITERAL + "x = 1\n" * 20)
    commit(project)
    (project / "keys.py").write_text("x = 1\n" * 20)
    (project / "train.py").write_text("x = 3\n")
    code = read(project)
    assert code.summary["redacted"] == ["keys.py"]
    assert "abcdefgh12345" not in code.patch
    assert applied(code, project, "--exclude=keys.py")["train.py"] == (False, b"x = 3\n")


def test_the_changes_of_a_submodule_are_in_the_patch(project: Path, submodule: Path) -> None:
    (submodule / "train.py").write_text("changed\n")
    (submodule / "sub").mkdir()
    (submodule / 'sub/é"x".bin').write_bytes(bytes(range(256)))
    (project / "train.py").write_text("x = 3\n")
    (submodule / ".env").write_text("PIN=1234\n")
    code = read(project)
    assert "-dirty" not in code.patch
    assert code.summary["untracked"] == ['parts/one é/sub/é"x".bin']
    assert [left["path"] for left in code.summary["omitted"]] == ["parts/one é/.env"]
    (submodule / ".env").unlink()
    assert applied(code, project) == _files(project)


def test_untracked_files_alone_change_a_submodule(project: Path, submodule: Path) -> None:
    assert read(project).summary["dirty"] is False
    (submodule / "new.py").write_text(LITERAL)
    code = read(project)
    assert (changed(code), code.summary["redacted"]) == (["parts/one é/new.py"], ["parts/one é/new.py"])


def test_a_secret_beside_a_change_in_a_submodule_does_not_spoil_the_patch(project: Path, submodule: Path) -> None:
    (submodule / "keys.py").write_text(LITERAL + "x = 1\n")
    commit(submodule)
    git(submodule, "push", "--quiet", "origin", "HEAD:kept")
    commit(project)
    (submodule / "keys.py").write_text(LITERAL + "x = 2\n")
    code = read(project)
    assert "abcdefgh12345" not in code.patch
    assert applied(code, project) == _files(project)


def test_a_submodule_at_another_commit_and_changed_is_both(project: Path, submodule: Path) -> None:
    (submodule / "train.py").write_text("committed\n")
    commit(submodule)
    (submodule / "train.py").write_text("changed\n")
    code = read(project)
    assert f"+Subproject commit {git(submodule, 'rev-parse', 'HEAD')}" in code.patch
    assert "-committed\n+changed\n" in code.patch
    assert changed(code) == ["parts/one é", "parts/one é/train.py"]


def test_a_submodule_that_cannot_be_read_is_named(project: Path, submodule: Path) -> None:
    (submodule / "train.py").write_text("changed\n")
    head = project / ".git/modules/parts/one é/refs/heads/main"
    seen = read(project)
    head.unlink()  # as a killed git leaves it
    code = read(project)
    assert changed(seen) == ["parts/one é/train.py"]
    [left] = code.summary["omitted"]
    assert left["path"] == "parts/one é/"
    assert left["why"].startswith("a submodule with uncommitted changes: ")


@pytest.mark.parametrize("change", [".env", "parts/one é/train.py"])
@pytest.mark.full
def test_a_replay_sees_another_change(primus: Run, project: Path, submodule: Path, change: str) -> None:
    (project / "tasks.py").write_text(TASK)
    (project / "primus.yaml").write_text("plugins: [./tasks.py]\n")
    (project / change).write_text("X=1\n")
    assert primus("direct", "--", "nothing", cwd=project).returncode == 0
    run = run_of(project, "nothing")
    assert code_rows(primus, project, run) == []
    (project / change).write_text("X=2\n")
    [row] = code_rows(primus, project, run)
    assert row["name"] == "uncommitted changes"
    assert change in row["after"]


def test_a_change_in_the_second_of_the_commit_is_seen(project: Path) -> None:
    train, then = project / "train.py", (1_700_000_000, 1_700_000_000)
    git(project, "config", "core.trustctime", "false")
    train.write_text("x = 1\n")
    os.utime(train, then)
    commit(project)
    train.write_text("x = 2\n")
    for path in (train, project / ".git/index"):
        os.utime(path, then)
    (project / "new.py").write_text("x\n")
    assert changed(read(project)) == ["new.py", "train.py"]
