"""A secret's value is in no file, on no screen and in no process list, wherever it came from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Run

VALUE = "secret-5f1c9a77e0"


def everything(result: subprocess.CompletedProcess[str], folder: Path) -> str:
    """All text that a run left: screen and files."""
    files = [p.read_text(errors="replace") for p in folder.rglob("*") if p.is_file() and p.name != "my_tasks.py"]
    return "\n".join([result.stdout, result.stderr, *files])


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--dry-run", "--json"), ("--debug",)])
@pytest.mark.parametrize("given", ["environment", "option", "joined option", "file"])
def test_a_token_shows_nowhere(primus: Run, project: Path, options: tuple[str, ...], given: str) -> None:
    words: dict[str, tuple[str, ...]] = {
        "environment": (),
        "option": ("--env", f"HF_TOKEN={VALUE}"),
        "joined option": (f"--env=HF_TOKEN={VALUE}",),
        "file": ("--env", str(project.parent / "s.env")),
    }
    (project.parent / "s.env").write_text(f"HF_TOKEN={VALUE}\n")
    env = {"HF_TOKEN": VALUE} if given == "environment" else {}
    result = primus("direct", *options, *words[given], "--", "behave", "environment", cwd=project, env=env)
    assert result.returncode == 0, result.stderr
    text = everything(result, project)
    assert VALUE not in text
    if "--dry-run" not in options:
        assert "'HF_TOKEN': '<secret>'" in text, "the worker has the variable; only its value is masked"


def test_a_token_given_as_an_option_is_not_in_the_process_list(clean_environ: dict[str, str], project: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("primus")),
        "direct",
        "--env",
        f"HF_TOKEN={VALUE}",
        "--",
        "behave",
        "wait",
    ]
    process = subprocess.Popen(
        command, env=clean_environ, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.readline()
    lines = [
        (p / "cmdline").read_bytes() for p in Path("/proc").iterdir() if p.name.isdigit() and (p / "cmdline").exists()
    ]
    process.terminate()
    process.communicate(timeout=20)
    assert not [line for line in lines if VALUE.encode() in line]


def test_a_failing_worker_does_not_show_it_in_its_traceback(primus: Run, project: Path) -> None:
    result = primus("direct", "--", "behave", "raise", VALUE, cwd=project, env={"API_KEY": VALUE})
    assert result.returncode == 1
    assert VALUE not in everything(result, project)


def test_a_password_in_a_url_is_masked(primus: Run, project: Path) -> None:
    env = {"HTTPS_PROXY": f"http://me:{VALUE}@proxy:3128"}
    assert VALUE not in everything(primus("direct", "--", "behave", "environment", cwd=project, env=env), project)


EXPERIMENT = """\
exp_name: down
env: {WANDB_API_KEY: %s, OTHER: "${HF_TOKEN}"}
modules: {pre_trainer: {framework: countdown}}
"""


@pytest.mark.parametrize("value", [VALUE, 'q"uo\\te-9f'])
def test_a_secret_in_an_experiments_env_is_in_no_file_of_the_run(
    primus: Run, third_party: str, tmp_path: Path, value: str
) -> None:
    (tmp_path / "exp.yaml").write_text(EXPERIMENT % f"'{value}'")
    env = {"PYTHONPATH": third_party, "HF_TOKEN": "hidden-77aa"}
    words = ("direct", "--single", "--", "train", "pretrain", "--config", "exp.yaml")
    result = primus(*words, env=env)
    assert result.returncode == 0, result.stderr
    (tmp_path / "exp.yaml").unlink()
    text = everything(result, tmp_path)
    for secret in (value, "hidden-77aa", value.replace("\\", "\\\\").replace('"', '\\"')):
        assert secret not in text
