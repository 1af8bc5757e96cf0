"""A person's own folder of plugin files: found without a `primus.yaml`, and run only where it is theirs alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.conftest import Run

TASK = """
from primus_core import register_task

@register_task("mine")
def mine(call):
    "Say where it is from."
    print("mine:", __file__)
"""
HOOK = "from primus_core import hookimpl\n\n@hookimpl\ndef primus_before_launch(run):\n    print('hooked')\n"
WORDS = ("direct", "--", "mine")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The folder, with one file in it, in a home of its own."""
    folder = tmp_path / "home/.config/primus/plugins"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(TASK)
    (folder / "mine.py").chmod(0o644)
    return folder


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


@pytest.mark.full
def test_a_file_in_it_is_a_command_in_every_folder(primus: Run, own: Path, env: dict[str, str]) -> None:
    assert re.search(r"^  mine +Say where it is from", primus("--help", env=env).stdout, re.M)
    done = primus(*WORDS, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"mine: {own}/mine.py\n"
    assert primus(*WORDS).returncode == 2, "another home has none"


def test_where_configuration_is_kept_elsewhere_it_is_there(
    primus: Run, own: Path, env: dict[str, str], tmp_path: Path
) -> None:
    own.parent.rename(tmp_path / "primus")
    done = primus(*WORDS, env={**env, "XDG_CONFIG_HOME": str(tmp_path)})
    assert done.stdout == f"mine: {tmp_path}/primus/plugins/mine.py\n"


def test_a_function_of_ours_that_refuses_what_it_gets_is_not_the_line_to_correct(
    primus: Run, own: Path, env: dict[str, str]
) -> None:
    (own / "mine.py").write_text(TASK.replace('("mine")', '("mine", scope="process")'))
    refused = primus(*WORDS, env=env)
    assert "a task's scope is one of rank, node, run, not 'process'" in refused.stderr
    assert f"fix: correct {own}/mine.py, line 4\n" in refused.stderr


def test_an_action_that_a_task_does_not_have_is_named(primus: Run, own: Path, env: dict[str, str]) -> None:
    (own / "mine.py").write_text(TASK.replace('("mine")', '("mine all")'))
    refused = primus("direct", "--", "mine", "al", env=env)
    assert "'mine' has no action 'al'\n  fix: one of: mine all\n" in refused.stderr


def test_what_is_no_plugin_file_is_left_alone(primus: Run, own: Path, env: dict[str, str]) -> None:
    for name in ("notes.txt", "_draft.py", ".mine.py.swp", ".hidden.py"):
        (own / name).write_text("this is no Python(")
    assert "broken" not in primus("plugins", env=env).stdout


@pytest.mark.parametrize("mode", ["file", "owner"])
@pytest.mark.full
def test_a_file_that_others_could_have_written_is_named_and_not_run(
    primus: Run, own: Path, env: dict[str, str], mode: str
) -> None:
    (own / "trap.py").write_text(f"open({str(own / 'ran')!r}, 'w')\n{TASK.replace('mine', 'trap')}")
    (own / "trap.py").chmod(0o644)
    if mode == "owner":
        if os.getuid():
            pytest.skip("only root gives files away")
        os.chown(own / "trap.py", 12345, 12345)
    else:
        (own / "trap.py").chmod(0o777)
    refused = primus("direct", "--", "trap", env=env)
    assert refused.returncode == 2
    assert not (own / "ran").exists()
    assert "tasks may be missing" in refused.stderr
    assert "trap.py" in refused.stderr
    why = {"file": "everybody can write to it", "owner": "belongs to uid 12345"}
    [line] = [line for line in primus("plugins", env=env).stdout.splitlines() if "trap.py" in line]
    assert re.search(rf"broken: .*{why[mode]}", line)
    assert primus(*WORDS, env=env).returncode == 0, "the others are as they were"
    (own / "trap.py").chmod(0o644)


def test_a_launch_does_not_pass_over_hooks_that_are_not_run(primus: Run, own: Path, env: dict[str, str]) -> None:
    (own / "hooks.py").write_text(HOOK)
    (own / "hooks.py").chmod(0o646)
    refused = primus(*WORDS, env=env)
    assert refused.returncode == 2
    assert "hooks.py is not trusted" in refused.stderr
    assert f"primus trust {own}" in refused.stderr


def test_a_pipe_in_the_folder_of_plugins_makes_no_command_wait(primus: Run, tmp_path: Path) -> None:
    folder = tmp_path / "settings/primus/plugins"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "waits.py")
    shown = primus("--help", env={"XDG_CONFIG_HOME": str(tmp_path / "settings")}, timeout=60)
    assert shown.returncode == 0, shown.stderr
