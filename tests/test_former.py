"""Commands of AMD's Primus that are others here: the answer says what to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

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


ANSWERS = {
    # commands for an engine or a launcher of others, whole
    "docker run --gpus all -v /data:/data img python train.py": "container --image img -v /data:/data -- run train.py",
    "container -- docker run img torchrun --nproc-per-node 8 t.py": "GPUS_PER_NODE=8 primus container --image img -- run t.py",
    "container docker run --gpus=all img -- run t.py": "primus container --image img -- run t.py",
    "slurm srun -N 1 --image img -- run t.py": "primus slurm srun -N 1 -- container --image img -- run t.py",
    "slurm srun -N2 torchrun train.py": "primus slurm srun -N2 -- run train.py",
    "direct torchrun --nproc-per-node 8 train.py --lr 1": "GPUS_PER_NODE=8 primus direct -- run train.py --lr 1",
    "direct -- torchrun --nproc-per-node 8 train.py": "GPUS_PER_NODE=8 primus direct -- run train.py",
    # commands that Primus has under another name
    "topo": "primus direct -- analyze topology",
    "analyse topology": "primus direct -- analyze topology",
    "anal topology": "primus direct -- analyze topology",
    "gemm": "primus direct -- bench gemm -M 1024",
    "bech gemm": "primus direct -- bench gemm",
    "rccl-tests": "primus direct -- bench comm",
    "trian pretrain --config x.yaml": "primus direct -- train pretrain --config x.yaml",
    "submit exp.yaml": "primus slurm sbatch -- train pretrain --config exp.yaml",
    "conf list": "did you mean `primus config list`?",
    "lint exp.yaml": "primus config validate exp.yaml",
    "diag": "did you mean `primus diagnose`?",
    "monitor": "primus logs latest --follow",
    "gpus": "primus env show",
    "show llama3.1_8B": "`models show` a model",
    "flops llama3.1_8B": "primus models show MODEL",
    "estimate": "primus models show MODEL",
    "run list --status failed": "primus runs list --status failed",
    "replay latest --env A=1 --check": "primus replay latest --check direct --env A=1",
    "tokenize data.jsonl": "primus data prepare --input data.jsonl --output-prefix tokens --tokenizer-model tokenizer.json",
    "data tokenize a.jsonl --tokenizer gpt2": "primus data prepare --input a.jsonl --tokenizer-model gpt2 --output-prefix",
    "prepare": "primus data prepare",
    "download llama": "primus data fetch",
    "dashboard": "primus report RUN",
    "profile exp.yaml": "--profile 10:13",
    "trace": "--profile 10:13",
    "debug exp.yaml": "primus --debug COMMAND",
    "snapshot": "primus replay RUN",
    "--verbose direct": "primus --debug COMMAND",
    "-q direct": "primus logs RUN",
    # what Primus does not do
    "deps sync": "backends are packages",
    "sweep": "Primus has no sweeps yet",
    "hpo": "Primus has no sweeps yet",
    "convert": "Primus converts no checkpoints yet",
    "export out": "Primus exports no checkpoints yet",
    "merge": "checkpoints are the framework's own",
    "delete latest": "Primus deletes no runs",
    "clean": "primus container --clean",
    "finetune --config exp.yaml": "Primus has no fine-tuning yet",
    "lora exp.yaml": "Primus has no fine-tuning yet",
    "grpo exp.yaml": "Primus has no reinforcement learning yet",
    "eval exp.yaml": "Primus has no evaluation of its own yet",
    "serve": "Primus only trains",
    "k8s -- train pretrain": "Primus has no Kubernetes runtime yet",
    "ray start": "Primus has no Ray runtime",
    "exec ls": "Primus starts no other programs",
    "shell": "It opens no shell",
    "update": "Primus and its backends are Python packages",
    "install megatron": "Primus and its backends are Python packages",
    "megatron pretrain": "the experiment names the framework",
    "frobnicate": "primus has no command 'frobnicate'",
    # engines and schedulers
    "docker run IMG": "primus container --image IMG -- train pretrain",
    "podman run -it --rm IMG bash": "primus container --image IMAGE -- train pretrain",
    "podman run --rm -v /d:/d IMG -- run t.py --lr 1": "primus container --image IMG -v /d:/d -- run t.py --lr 1",
    "container run IMG": "primus container --image IMG -- train pretrain",
    "container --gpus all IMG -- run t.py": "primus container --gpus all --image IMG -- run t.py",
    "container --image A B -- run t.py": "container: 'B' is neither an option nor the value of one",
    "salloc -N 2": "salloc is Slurm's own",
    "squeue": "it is Slurm's own command",
    "sbatch job.sh": "or with a job script of yours, with `primus slurm srun -- ...` in it",
    "slurm squeue": "'squeue' is a command of Slurm itself",
    "slurm salloc -N 2": "salloc is Slurm's own, with the same options; in its shell",
    # behind a command, a runtime or a task
    "runs rm X": "Primus deletes no runs",
    "runs kill X": "primus stop X",
    "config check X": "primus config validate X",
    "data tokenize": "primus data prepare",
    "plugins install X": "pip install NAME",
    "direct -- node_smoke": "primus direct -- preflight --level perf",
    "direct -- projection memory": "primus models show MODEL",
    "direct -- eval": "Primus has no evaluation of its own yet",
    "direct -- train resume": "the same experiment continues its newest run",
    "direct -- train sft": "Primus has no fine-tuning yet",
    "direct --silent -- train pretrain": "primus logs RUN",
    "direct --log_file x -- train pretrain": "did you mean '--log-file'?",
    "replay --run latest": "primus replay latest",
    "env explain --name FOO": "primus env explain FOO",
    "data clean": "primus data filter",
}
"""Wrong and foreign commands, each with what its answer must say."""


@pytest.mark.parametrize(
    "typed",
    [typed if at % 6 == 0 else pytest.param(typed, marks=pytest.mark.full) for at, typed in enumerate(ANSWERS)],
)
def test_a_word_that_has_another_name_here_is_answered_with_it(primus: Run, typed: str) -> None:
    refused = primus(*shlex.split(typed))
    assert refused.returncode == 2, refused.stderr
    assert ANSWERS[typed] in refused.stderr


def test_a_suggested_command_shows_no_secret(primus: Run) -> None:
    refused = primus("slurm", "-N", "2", "--", "--env", "WANDB_API_KEY=0123456789abcdef", "--", "train", "pretrain")
    assert "did you mean: primus slurm -N 2 -- direct --env 'WANDB_API_KEY=<secret>' -- train" in refused.stderr
    assert "0123456789abcdef" not in refused.stderr


@given(st.lists(st.sampled_from(["--", "-x", "--image", "slurm", "container", "direct", "run", "a b"])))
def test_completing_a_command_drops_no_word_and_is_done_once(words: list[str]) -> None:
    def find_task(words: Sequence[str]) -> int:
        return words.index("task") if "task" in words else len(words)

    typed = [*words, "--", "task"]
    made = former.with_runtimes(typed, find_task)
    assert not made or all(made.count(word) >= words.count(word) for word in {*words} - {"--"})
    assert former.with_runtimes(made, find_task) == made
