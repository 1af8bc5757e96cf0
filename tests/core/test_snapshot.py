"""What a real run leaves behind to be run again: complete before its first rank starts, and true to the machine."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.core.test_direct import metadata, run_of
from tests.machine.repositories import commit, git, tree

from primus_core.runs.saved import Saved, load
from primus_machine import packages as installed

TASKS = '''
"""Tasks that say what they see."""
import json, os
from primus_core import register_task

@register_task("see")
def see(call):
    "What is there when a rank starts."
    from primus_core.runs.saved import load
    saved = load(call.run_dir)
    found = sorted(os.path.relpath(os.path.join(f, n), call.run_dir) for f, _, ns in os.walk(call.run_dir) for n in ns)
    print("SEEN", json.dumps({"files": found, "status": saved.record.status}))

@register_task("each", scope="node")
def each(call):
    "Something once per node."
    print("node", os.environ["NODE_RANK"])
'''
LAYOUT = {
    *("plan.json", "metadata.json", "snapshot.json", "code/code.json", "code/diff.patch"),
    *("env/primus_env_dump.txt", "env/gpu_model.txt", "env/rocm_version.txt"),
    *("env/system_info.json", "env/packages.txt"),
}


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A project with the tasks above, in no repository."""
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n")
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


@pytest.fixture
def repository(workplace: Path) -> Path:
    """The same as a git repository with one commit."""
    (workplace / ".gitignore").write_text("*.ignored\n")
    git(workplace, "init", "--quiet", "--initial-branch", "main")
    commit(workplace)
    return workplace


def taken(primus: Run, folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Saved:
    """The snapshot of a run of `see` in `folder`."""
    result = primus("direct", *words, "--", "see", cwd=folder, env=dict(env or {}))
    assert result.returncode == 0, result.stderr
    return load(str(run_of(folder, "see")))


def applied(saved: Saved, repository: Path, folder: Path) -> Path:
    """A fresh clone of the commit that a snapshot names, with its patch on it."""
    if saved.code["commit"]:
        git(repository.parent, "clone", "--quiet", "--no-checkout", str(repository), str(folder))
        git(folder, "checkout", "--quiet", saved.code["commit"])
    else:
        folder.mkdir()
    git(folder, "apply", "--whitespace=nowarn", f"{saved.directory}/code/diff.patch")
    return folder


def test_the_snapshot_is_whole_before_the_first_rank_starts(primus: Run, workplace: Path) -> None:
    out = primus("direct", "--", "see", cwd=workplace).stdout
    seen = json.loads(out.removeprefix("SEEN "))
    assert seen["status"] == "started"
    assert set(seen["files"]) >= LAYOUT


def test_the_manifest_holds_every_file_with_its_checksum(primus: Run, workplace: Path) -> None:
    saved = taken(primus, workplace)
    manifest = json.loads((Path(saved.directory) / "snapshot.json").read_text())
    assert manifest["schema"] == 1
    assert set(manifest["files"]) == LAYOUT - {"metadata.json", "snapshot.json"}
    for path, entry in manifest["files"].items():
        data = (Path(saved.directory) / path).read_bytes()
        assert entry == {"sha256": sha256(data).hexdigest(), "bytes": len(data)}
    assert not list(Path(saved.directory).rglob("*.partial"))


def test_a_machine_without_gpus_says_none(primus: Run, workplace: Path) -> None:
    from primus_machine import facts

    if facts.read().gpus:
        pytest.skip("this machine has GPUs")
    saved = taken(primus, workplace)
    assert (Path(saved.directory) / "env/gpu_model.txt").read_text() == "none\n"
    assert (Path(saved.directory) / "env/rocm_version.txt").read_text() == f"{facts.read().rocm or 'none'}\n"
    assert saved.system["gpu_model"] == ""
    assert saved.system["host"] == os.uname().nodename


def test_a_machine_with_gpus_is_described(primus: Run, workplace: Path) -> None:
    from tests.machine import machines

    from primus_core.planning import planner
    from primus_core.plugins.catalogue import Catalogue
    from primus_core.request.request import Layer, Request
    from primus_core.runs import snapshot
    from primus_machine import facts

    host = machines.write(workplace / "node", machines.base(), machines.amd("MI300X"))
    asked = Request((Layer("direct", ()),), ("see",))
    catalogue = Catalogue.here(host, str(workplace / "primus.yaml"))
    planned = planner.plan(asked, host, catalogue, ())
    texts = snapshot.environment(planned.plan, planned.facts, planned.plan.environ({}))
    assert texts["env/gpu_model.txt"] == "MI300X\n"
    assert texts["env/rocm_version.txt"] == "6.4.1\n"
    assert len(json.loads(texts["env/system_info.json"])["gpus"]) == len(facts.read(host).gpus) == 8


def test_the_environment_is_what_the_ranks_got(primus: Run, workplace: Path) -> None:
    text = "two\nlines, a \\ and =\t"
    saved = taken(primus, workplace, "--env", "COLOUR=red", env={"STRANGE": text, "MY_TOKEN": "abcdef-123456"})
    assert saved.environment["COLOUR"] == "red"
    assert saved.environment["STRANGE"] == text
    assert saved.environment["MY_TOKEN"] == "<secret>"
    assert saved.environment["PRIMUS_RUN_DIR"] == saved.directory


def test_a_variable_that_is_secret_by_its_name_alone_is_not_saved(primus: Run, workplace: Path) -> None:
    """Nothing in the value says so, no log is searched for eight digits, and no rule knows an assignment to `PG_PWD`."""
    saved = taken(primus, workplace, env={"PG_PWD": "12345678", "PG_PORT": "12345678"})
    assert (saved.environment["PG_PWD"], saved.environment["PG_PORT"]) == ("<secret>", "12345678")


@pytest.mark.whole
@pytest.mark.full
def test_every_installed_package_is_named_with_its_version(primus: Run, workplace: Path) -> None:
    assert taken(primus, workplace).packages == installed.packages()


def test_the_scripts_are_copied_byte_for_byte(primus: Run, workplace: Path) -> None:
    (workplace / "hooks").mkdir()
    texts = {
        "hooks/01_a.sh": b"echo one\n",
        "hooks/b.py": b"# coding: latin-1\r\nprint('\xff')\r\n",
        "fix.sh": b"exit 2\n",
    }
    for path, text in texts.items():
        (workplace / path).write_bytes(text)
    saved = taken(primus, workplace, "--patch", "fix.sh")
    copies = ("config/hooks/01-01_a.sh", "config/hooks/02-b.py", "config/patches/03-fix.sh")
    assert [(Path(saved.directory) / path).read_bytes() for path in copies] == list(texts.values())


def test_commit_and_patch_give_the_same_tree(primus: Run, repository: Path, tmp_path_factory: Any) -> None:
    for name in ("changed.txt", "deleted.txt", "renamed.txt", "mode.sh", "noise.bin"):
        (repository / name).write_bytes(f"{name}\n".encode() * 20)
    commit(repository)
    (repository / "changed.txt").write_text("other\nno newline at the end")
    (repository / "deleted.txt").unlink()
    git(repository, "mv", "renamed.txt", "a new name.txt")
    (repository / "mode.sh").chmod(0o755)
    (repository / "noise.bin").write_bytes(bytes(range(256)) * 40)
    (repository / "staged.txt").write_text("staged\n")
    git(repository, "add", "staged.txt")
    (repository / "staged.txt").write_text("staged, then changed\n")
    (repository / "sub").mkdir()
    (repository / 'sub/é ü\t"quoted".txt').write_text("untracked\r\n")
    (repository / "sub/data.bin").write_bytes(os.urandom(5000))
    (repository / "empty").touch()
    (repository / "run.sh").write_text("#!/bin/sh\n")
    (repository / "run.sh").chmod(0o755)
    (repository / "link").symlink_to("sub/nowhere")
    (repository / "x.ignored").write_text("ignored\n")
    saved = taken(primus, repository)
    assert saved.code["dirty"] is True
    assert saved.code["branch"] == "main"
    assert saved.code["omitted"] == []
    clone = applied(saved, repository, tmp_path_factory.mktemp("clone") / "c")
    assert tree(clone) == {p: t for p, t in tree(repository).items() if not p.startswith(("output", "x.ignored"))}
    assert stat.S_IMODE((clone / "mode.sh").stat().st_mode) & 0o111


@pytest.mark.parametrize(
    "setting",
    [
        "diff.noprefix",
        "diff.mnemonicPrefix",
        "color.ui",
        "diff.context",
        "diff.external",
        "diff.relative",
        "commit.gpgsign",
    ],
)
def test_the_persons_git_settings_do_not_spoil_the_patch(
    primus: Run, repository: Path, tmp_path_factory: Any, setting: str
) -> None:
    values = {"color.ui": "always", "diff.context": "0", "diff.external": "false"}
    (repository / "tasks.py").write_text(TASKS + "\n# changed\n")
    (repository / "new.txt").write_text("new\n")
    git(repository, "config", setting, values.get(setting, "true"))
    saved = taken(primus, repository)
    assert sorted(saved.code["changed"]) == ["new.txt", "tasks.py"]
    clone = applied(saved, repository, tmp_path_factory.mktemp("clone") / "c")
    assert (clone / "tasks.py").read_text().endswith("# changed\n")


def test_a_clean_repository_has_a_commit_and_no_patch(primus: Run, repository: Path) -> None:
    saved = taken(primus, repository)
    assert saved.code["commit"] == git(repository, "rev-parse", "HEAD").strip()
    assert (saved.code["dirty"], saved.code["patch_sha256"]) == (False, "")
    assert (Path(saved.directory) / "code/diff.patch").read_bytes() == b""


def test_the_whole_repository_counts_from_a_folder_in_it(primus: Run, repository: Path) -> None:
    (repository / "sub").mkdir()
    (repository / "sub/primus.yaml").write_text("plugins: [../tasks.py]\n")
    (repository / "above.txt").write_text("x\n")
    saved = taken(primus, repository / "sub")
    assert saved.code["root"] == str(repository)
    assert saved.code["changed"] == ["above.txt", "sub/primus.yaml"]


def test_a_large_untracked_file_is_left_out_and_named(primus: Run, repository: Path) -> None:
    (repository / "weights.bin").write_bytes(b"\0" * ((1 << 20) + 1))
    (repository / "small.bin").write_bytes(b"\0" * (1 << 20))
    code = taken(primus, repository).code
    assert code["omitted"] == [{"path": "weights.bin", "why": "1048577 bytes: more than 1 MiB"}]
    assert code["changed"] == ["small.bin"]
    assert code["dirty"] is True


def test_a_repository_inside_is_left_out_and_named(primus: Run, repository: Path) -> None:
    git(repository, "init", "--quiet", "inner")
    (repository / "inner/a").write_text("x")
    assert taken(primus, repository).code["omitted"] == [{"path": "inner/", "why": "a repository of its own"}]


@pytest.mark.parametrize("name", [".env", "sub/.env.local", "key.pem", "sub/id_rsa", "aws_credentials.txt"])
@pytest.mark.parametrize("tracked", [True, False])
def test_files_that_people_keep_secrets_in_are_left_out(
    primus: Run, repository: Path, name: str, tracked: bool
) -> None:
    (repository / "sub").mkdir()
    (repository / name).write_text("PIN=1\n")
    if tracked:
        commit(repository)
        (repository / name).write_text("PIN=1234-5678\n")
    saved = taken(primus, repository)
    assert "PIN" not in (Path(saved.directory) / "code/diff.patch").read_text()
    assert saved.code["changed"] == []


@pytest.mark.full
def test_what_earlier_runs_wrote_is_no_change_of_the_code(primus: Run, repository: Path) -> None:
    taken(primus, repository)
    assert taken(primus, repository).code["dirty"] is False


def test_outside_a_repository_there_is_no_code_and_nothing_is_said(primus: Run, workplace: Path) -> None:
    result = primus("direct", "--", "see", cwd=workplace, env={"GIT_CEILING_DIRECTORIES": str(workplace.parent)})
    assert "not recorded" not in result.stderr
    saved = load(str(run_of(workplace, "see")))
    assert (saved.code["root"], saved.code["changed"]) == ("", [])


def test_a_repository_without_a_commit_is_its_patch(primus: Run, workplace: Path, tmp_path_factory: Any) -> None:
    git(workplace, "init", "--quiet")
    (workplace / "staged.txt").write_text("x\n")
    git(workplace, "add", "staged.txt")
    saved = taken(primus, workplace)
    assert (saved.code["commit"], saved.code["dirty"]) == ("", True)
    clone = applied(saved, workplace, tmp_path_factory.mktemp("clone") / "c")
    assert tree(clone) == {p: t for p, t in tree(workplace).items() if not p.startswith("output")}


@pytest.mark.full
def test_without_git_the_run_goes_on_and_says_that_its_code_is_not_recorded(primus: Run, repository: Path) -> None:
    folder = repository.parent / f"{repository.name}-bin"
    folder.mkdir()
    result = primus("direct", "--", "see", cwd=repository, env={"PATH": str(folder)})
    assert result.returncode == 0, result.stderr
    assert "primus: note: the code of the run is not recorded: git is not installed" in result.stderr
    assert load(str(run_of(repository, "see"))).code["error"] == "git is not installed"


@pytest.mark.full
def test_a_broken_repository_is_noted_and_the_run_goes_on(primus: Run, repository: Path) -> None:
    (repository / ".git/index").write_bytes(b"nonsense")
    result = primus("direct", "--", "see", cwd=repository)
    assert result.returncode == 0
    assert "the code of the run is not recorded" in result.stderr


def test_the_persons_index_is_not_touched(primus: Run, repository: Path) -> None:
    (repository / "staged.txt").write_text("x\n")
    git(repository, "add", "staged.txt")
    (repository / "untracked.txt").write_text("x\n")
    before = (repository / ".git/index").read_bytes(), git(repository, "status", "--porcelain")
    objects = sorted((repository / ".git/objects").rglob("*"))
    taken(primus, repository)
    after = (
        (repository / ".git/index").read_bytes(),
        git(repository, "status", "--porcelain").replace("?? output/\n", ""),
    )
    assert after == before
    assert sorted((repository / ".git/objects").rglob("*")) == objects


@pytest.mark.full
def test_each_node_keeps_its_own_part(clean_environ: dict[str, str], repository: Path) -> None:
    shared = repository / "shared_2026_11_21_101526"
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--", "each"]
    nodes = [
        subprocess.Popen(
            command,
            cwd=repository,
            text=True,
            env={**clean_environ, "PRIMUS_RUN_DIR": str(shared), "NNODES": "2", "NODE_RANK": rank, "WHOSE": rank,
                 "MASTER_ADDR": "localhost"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in "01"
    ]  # fmt: skip
    ended = [node.communicate(timeout=60) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], ended
    assert [out for out, _ in ended] == ["node 0\n", "node 1\n"]
    for rank, folder in enumerate((shared, shared / "nodes/1")):
        saved = load(str(folder))
        assert saved.environment["WHOSE"] == str(rank)
        assert saved.plan["distributed"]["node_rank"] == rank
        assert saved.record.status == metadata(folder)["status"] == "completed"
        assert {str(p.relative_to(folder)) for p in folder.rglob("*")} >= LAYOUT
        assert (folder / "logs/launch.log").exists() or (shared / "logs/rank_0.log").exists()
    assert not list(shared.rglob("*.partial"))
