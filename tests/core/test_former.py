"""Commands of AMD's Primus that are others here: the answer says what to type."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run

from primus_core.cli import former

HERE = "-- train pretrain --config exp.yaml"
WHOLE = {
    f"slurm -N 2 -- --image I -- --env A=1 --log_file=a_b {HERE}": f"primus slurm -N 2 -- container --image I -- direct --env A=1 --log-file=a_b {HERE}",
    f"slurm srun -N 2 -- --env A=1 {HERE}": f"primus slurm srun -N 2 -- direct --env A=1 {HERE}",
    f"container --image I -- --log_file /d/run.log {HERE}": f"primus container --image I -- direct --log-file /d/run.log {HERE}",
    "direct --numa --script train.py -- --lr 1": "primus direct --numa -- run train.py --lr 1",
}


@pytest.mark.parametrize("typed", WHOLE)
def test_segments_that_amds_launcher_completes_are_answered_with_the_whole_command(primus: Run, typed: str) -> None:
    refused = primus(*shlex.split(typed))
    assert refused.returncode == 2
    assert WHOLE[typed] in refused.stderr


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("deps sync", "backends are packages"),
        ("topo", "primus direct -- analyze topology"),
        ("estimate", "primus models show MODEL"),
        ("sweep", "Primus has no sweeps yet"),
        ("convert", "Primus converts no checkpoints yet"),
        ("export out", "Primus exports no checkpoints yet"),
        ("delete latest", "Primus deletes no runs"),
        ("finetune --config exp.yaml", "Primus has no fine-tuning yet"),
        ("eval exp.yaml", "Primus has no evaluation of its own yet"),
        ("k8s -- train pretrain", "Primus has no Kubernetes runtime yet"),
        ("direct -- node_smoke", "primus direct -- preflight --level perf"),
        ("direct -- projection memory", "primus models show MODEL"),
        ("direct --silent -- train pretrain", "primus logs RUN"),
        ("direct --log_file x -- train pretrain", "did you mean '--log-file'?"),
    ],
)
def test_a_word_that_has_another_name_here_is_answered_with_it(primus: Run, typed: str, said: str) -> None:
    refused = primus(*shlex.split(typed))
    assert refused.returncode == 2
    assert said in refused.stderr


def test_a_suggested_command_shows_no_secret(primus: Run) -> None:
    refused = primus("slurm", "-N", "2", "--", "--env", "WANDB_API_KEY=0123456789abcdef", "--", "train", "pretrain")
    assert "did you mean: primus slurm -N 2 -- direct --env 'WANDB_API_KEY=<secret>' -- train" in refused.stderr
    assert "0123456789abcdef" not in refused.stderr


@given(st.lists(st.sampled_from(["--", "-x", "--image", "slurm", "container", "direct", "run", "a b"])))
def test_completing_a_command_drops_no_word_and_is_done_once(words: list[str]) -> None:
    made = shlex.split(former.with_runtimes(words))[1:]
    rest = iter(made)
    assert all(word in rest for word in words if word != "--")
    assert shlex.split(former.with_runtimes(made))[1:] == made
