"""The scripts of AMD's Primus, as people type them: each says the command that does the same, and runs it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT

from primus.scripts import RUNTIMES, forwarded
from primus_core.errors import RequestError

EXP = {"EXP": "exp.yaml"}
TRAIN = "-- train pretrain --config exp.yaml"


@pytest.mark.parametrize(
    ("script", "environ", "command"),
    [
        ("run_pretrain.sh", {}, f"primus direct {TRAIN}"),
        ("run_pretrain_cli.sh", {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "n0"}, f"primus direct {TRAIN}"),
        (
            "run_pretrain.sh",
            {"ENABLE_NUMA_BINDING": "1", "TRAIN_LOG": "a b.log", "DATA_PATH": "/data"},
            f"primus direct --numa --log-file 'a b.log' --env HF_HOME=/data/huggingface {TRAIN}",
        ),
        ("run_local_pretrain.sh", {}, f"primus container {TRAIN}"),
        (
            "run_local_pretrain.sh",
            {"DOCKER_IMAGE": "img:1", "CONTAINER_NAME": "c", "DATA_PATH": "/data", "HF_HOME": "/hf", "UCCL_A": "1"},
            f"primus container --image img:1 --name c --mount /data --env UCCL_A {TRAIN}",
        ),
        ("run_slurm_pretrain.sh", {}, f"primus slurm srun -N 1 --exclusive -- container {TRAIN}"),
        (
            "run_slurm_pretrain.sh",
            {"NNODES": "4", "SLURM_PARTITION": "mi300", "SLURM_TIME": "1:00:00", "NODE_RANK": "0", "DATA_PATH": "/d"},
            (
                "env -u NNODES -u NODE_RANK primus slurm srun -N 4 --exclusive --time=1:00:00 --partition=mi300 "
                f"-- container --mount /d -- direct --env HF_HOME=/d/huggingface {TRAIN}"
            ),
        ),
        (
            "run_slurm_pretrain_cli.sh",
            {"NODES_LIST": "n[1-2]", "RESERVATION": "r", "CPUS_PER_TASK": "64"},
            (
                "primus slurm srun -N 1 --exclusive '--nodelist=n[1-2]' --reservation=r --cpus-per-task=64 "
                f"-- container {TRAIN}"
            ),
        ),
    ],
)
def test_a_script_is_this_command(script: str, environ: dict[str, str], command: str) -> None:
    assert str(forwarded(script, (), {**EXP, **environ})) == command


def test_words_behind_a_script_are_settings_of_the_training() -> None:
    assert forwarded("run_pretrain.sh", ("--train_iters", "5"), EXP).words[-2:] == ("--train_iters", "5")


def test_a_variable_that_is_not_read_is_said_with_what_does_it_here() -> None:
    environ = {**EXP, "BACKEND": "MaxText", "REBUILD_BNXT": "0", "USING_AINIC": "1", "NCCL_DEBUG": "INFO"}
    notes = forwarded("run_local_pretrain.sh", (), environ).notes
    assert [note.split()[0] for note in notes] == ["BACKEND", "USING_AINIC"]
    assert "docs/hooks.md" in notes[1]


@pytest.mark.parametrize("script", RUNTIMES)
def test_without_an_experiment_nothing_is_guessed(script: str) -> None:
    with pytest.raises(RequestError, match="EXP is not set"):
        forwarded(script, (), {})


def typed(words: list[str], folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command of the checkout, where a `primus` is on the PATH."""
    environ = {**env, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(words, cwd=folder, env=environ, text=True, capture_output=True, check=False, timeout=120)


@pytest.mark.full
@pytest.mark.whole
def test_every_script_that_people_know_is_in_the_checkout(clean_environ: dict[str, str], tmp_path: Path) -> None:
    for script in (*RUNTIMES, "run_k8s_pretrain.sh"):
        done = typed(["bash", str(ROOT / "examples" / script)], tmp_path, clean_environ)
        assert done.returncode == 2, script
        assert "train pretrain --config FILE" in done.stderr


@pytest.mark.full
@pytest.mark.whole
@pytest.mark.torch
def test_a_script_prints_its_command_and_becomes_it(clean_environ: dict[str, str], tmp_path: Path) -> None:
    env = {**clean_environ, "EXP": "exp.yaml", "BACKEND": "torchtitan"}
    done = typed(["bash", str(ROOT / "examples/run_pretrain.sh"), "a b=1"], tmp_path, env)
    said = "primus: run_pretrain.sh is: primus direct -- train pretrain --config exp.yaml 'a b=1'\n"
    assert done.stderr.startswith(said)
    assert "note: BACKEND is not read" in done.stderr
    assert "there is no file 'exp.yaml'" in done.stderr
    assert done.returncode == 2
    again = typed(shlex.split(said.partition(" is: ")[2]), tmp_path, env)
    assert again.stderr in done.stderr


@pytest.mark.whole
@pytest.mark.parametrize("path", ["runner/primus-cli", "primus-cli"])
def test_the_old_launcher_is_the_command(path: str, clean_environ: dict[str, str], tmp_path: Path) -> None:
    done = typed([str(ROOT / path), "direct", "--", "run", "a b.py"], tmp_path, clean_environ)
    assert done.returncode == 2
    assert f"looked for {tmp_path}/a b.py" in done.stderr
    alone = subprocess.run(
        [str(ROOT / path)], env={"PATH": "/bin:/usr/bin"}, capture_output=True, text=True, check=False
    )
    assert (alone.returncode, alone.stderr) == (3, "primus: error: there is no primus on the PATH: see README.md\n")
