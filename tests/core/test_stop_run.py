"""A hook ends a run gently, and a script may find that there is nothing to launch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run

TASKS = """
import os, signal, sys, time
from primus_core import register_task
from primus_core.journal.metrics import Metrics, append

@register_task("steps")
def steps(call):
    "Make steps until it is ended."
    def save(*_):
        open(call.run_dir + "/saved", "w").close()
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    for step in range(1, 601):
        append(os.environ["PRIMUS_METRICS_FILE"], Metrics(step=step, steps=600, loss=1.0 / step))
        time.sleep(0.05)
"""
HOOK = """
from primus_core import hookimpl
from primus_core.hooks.specs import StopRun

@hookimpl
def {moment}:
    if {condition}:
        raise StopRun({what})

@hookimpl
def after_run(run, result):
    open(run.directory + "/told", "w").write(f"{{result.status}} {{result.exit_code}}")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a task that makes steps."""
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py, ./hook.py]\n", encoding="utf-8")
    (tmp_path / "tasks.py").write_text(TASKS, encoding="utf-8")
    (tmp_path / "hook.py").write_text("from primus_core import hookimpl\n", encoding="utf-8")
    return tmp_path


def hook(folder: Path, moment: str, condition: str, what: str) -> None:
    text = HOOK.format(moment=moment, condition=condition, what=what)
    (folder / "hook.py").write_text(text, encoding="utf-8")


def known(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "output/steps/metadata.json").read_text(encoding="utf-8")))


@pytest.mark.torch
@pytest.mark.parametrize(("more", "code"), [("", 1), (", exit_code=0", 0)])
@pytest.mark.full
def test_a_hook_ends_the_ranks_gently(primus: Run, folder: Path, more: str, code: int) -> None:
    hook(folder, "on_step(run, metrics)", "metrics['step'] >= 3", f"'the loss is low enough'{more}")
    done = primus("direct", "--single", "--max-restarts", "3", "--", "steps", cwd=folder)
    assert done.returncode == code, done.stderr
    assert "primus: stopped by a hook: the loss is low enough (on_step of hook.py)" in done.stderr
    run = folder / "output/steps"
    assert (run / "saved").exists(), "it had its grace"
    assert (run / "told").read_text() == f"stopped {code}"
    found = known(folder)
    assert (found["status"], found["exit_code"]) == ("stopped", code)
    assert found["reason"] == "the loss is low enough (on_step of hook.py)"
    assert len(found["attempts"]) == 1, "a run that a hook has ended is not started again"
    shown = primus("runs", "show", "latest", cwd=folder).stdout
    assert "the loss is low enough" in shown
    assert primus("runs", "list", "--status", "stopped", cwd=folder).stdout.count("stopped") == 1


@pytest.mark.full
def test_a_hook_stops_a_run_before_its_launch(primus: Run, folder: Path) -> None:
    hook(folder, "before_launch(run)", "True", "'no user_name'")
    done = primus("direct", "--single", "--", "steps", cwd=folder)
    assert done.returncode == 1
    assert "stopped by a hook: no user_name (before_launch of hook.py)" in done.stderr
    assert known(folder)["status"] == "stopped"
    assert not (folder / "output/steps/metrics.jsonl").exists()


@pytest.mark.full
def test_a_hook_that_asks_for_the_end_of_a_run_that_is_over_changes_nothing(primus: Run, folder: Path) -> None:
    hook(folder, "on_failure(run, failure)", "True", "'too late'")
    (folder / "tasks.py").write_text(TASKS.replace("call.run_dir", "1 / 0").replace("time.sleep(0.05)", "1 / 0"))
    done = primus("direct", "--single", "--", "steps", cwd=folder)
    assert done.returncode == 1
    assert known(folder)["status"] == "failed"


def test_a_script_may_find_that_there_is_nothing_to_launch(primus: Run, folder: Path) -> None:
    (folder / "hooks").mkdir()
    (folder / "hooks/01_look.sh").write_text("echo launch.skip=the model is trained already\n", encoding="utf-8")
    (folder / "hooks/02_more.sh").write_text("touch ran\n", encoding="utf-8")
    done = primus("direct", "--single", "--", "steps", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "primus: not launched: the model is trained already (hook hooks/01_look.sh)" in done.stderr
    found = known(folder)
    assert (found["status"], found["exit_code"]) == ("skipped", 0)
    assert not (folder / "ran").exists(), "nothing comes after it"
    assert not (folder / "output/steps/metrics.jsonl").exists()


def test_a_secret_in_a_reason_is_masked(primus: Run, folder: Path) -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    (folder / "hooks").mkdir()
    (folder / "hooks/01_look.sh").write_text('echo "launch.skip=key $WANDB_API_KEY"\n', encoding="utf-8")
    done = primus("direct", "--single", "--", "steps", cwd=folder, env={"WANDB_API_KEY": key})
    assert done.returncode == 0
    assert key not in done.stderr + json.dumps(known(folder)) + (folder / "output/steps/logs/events.jsonl").read_text()


@pytest.mark.parametrize("code", ["None", "'x'", "500", "-1"])
@pytest.mark.full
def test_a_wrong_exit_code_of_a_hook_is_named_and_the_run_is_stopped_all_the_same(
    primus: Run, folder: Path, code: str
) -> None:
    hook(folder, "before_launch(run)", "True", f"'no', exit_code={code}")
    done = primus("direct", "--single", "--", "steps", cwd=folder)
    assert done.returncode == 1
    assert f"StopRun(exit_code={code}): it must be a whole number from 0 to 255; using 1" in done.stderr
    assert known(folder)["status"] == "stopped"


@pytest.mark.full
def test_a_hook_that_starts_primus_does_not_start_itself(primus: Run, folder: Path) -> None:
    (folder / "hooks").mkdir()
    text = f"{sys.executable} -m primus_core direct --single -- steps || exit 9\n"
    (folder / "hooks/01_look.sh").write_text(text, encoding="utf-8")
    (folder / "tasks.py").write_text(TASKS.replace("601", "2"), encoding="utf-8")
    done = primus("direct", "--single", "--", "steps", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len([path for path in (folder / "output").iterdir() if not path.is_symlink()]) == 2


@pytest.mark.full
def test_a_script_that_fails_skips_nothing(primus: Run, folder: Path) -> None:
    (folder / "hooks").mkdir()
    (folder / "hooks/01_look.sh").write_text("echo launch.skip=done; exit 5\n", encoding="utf-8")
    assert primus("direct", "--single", "--", "steps", cwd=folder).returncode == 5
    assert known(folder)["status"] == "failed"


@pytest.mark.full
def test_what_a_script_leaves_running_is_ended_and_named(primus: Run, folder: Path) -> None:
    (folder / "hooks").mkdir()
    text = "sleep 678 >/dev/null 2>&1 &\nsetsid sleep 876 >/dev/null 2>&1 &\nsleep 0.01 &\necho launch.skip=enough\n"
    (folder / "hooks/01_own.sh").write_text(text, encoding="utf-8")
    done = primus("direct", "--single", "--", "steps", cwd=folder)
    assert done.returncode == 0, done.stderr
    for seconds in (678, 876):
        assert f"note: hook hooks/01_own.sh left 'sleep {seconds} (pid " in done.stderr
    assert done.stderr.count("it was ended with it") == 2


@pytest.mark.full
def test_what_a_python_hook_leaves_running_is_ended_and_named(primus: Run, folder: Path) -> None:
    text = (
        "import subprocess\nfrom primus_core import hookimpl\n\n\n@hookimpl\ndef before_launch(run):\n"
        "    subprocess.Popen(['sleep', '543'], start_new_session=True)\n"
    )
    (folder / "hook.py").write_text(text, encoding="utf-8")
    (folder / "tasks.py").write_text(TASKS.replace("601", "2"), encoding="utf-8")
    done = primus("direct", "--single", "--", "steps", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "note: the hooks of hook.py left 'sleep 543 (pid " in done.stderr


@pytest.mark.parametrize("moment", ["on_failure", "after_run"])
@pytest.mark.full
def test_a_hook_that_would_end_a_run_which_is_over_is_told_so(primus: Run, tmp_path: Path, moment: str) -> None:
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py, ./hook.py]\n", encoding="utf-8")
    (tmp_path / "tasks.py").write_text(
        "from primus_core import register_task\n\n@register_task('fail')\ndef fail(call):\n    'Fail.'\n    return 4\n",
        encoding="utf-8",
    )
    (tmp_path / "hook.py").write_text(
        "from primus_core import hookimpl\nfrom primus_core.hooks.specs import StopRun\n\n"
        f"@hookimpl\ndef {moment}(run):\n    raise StopRun('too late', exit_code=0)\n",
        encoding="utf-8",
    )
    done = primus("direct", "--single", "--", "fail", cwd=tmp_path)
    assert done.returncode == 4
    assert f"note: StopRun in {moment} of hook.py is ignored because the run has ended: too late" in done.stderr
