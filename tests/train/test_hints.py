"""What to type instead, where a training was meant."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.core.test_hints import ANSWERS, KNOWN, told, understood, with_packages

from primus_core.cli.hints import hints, instead
from primus_core.cli.main import main
from primus_core.installed.homes import meant
from primus_machine.errors import RequestError


@pytest.mark.parametrize("words", [with_packages(words, ANSWERS[words]) for words in ANSWERS])
def test_the_answer_is_the_command_to_type(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(shlex.split(words), capsys) == ANSWERS[words]


def test_every_command_that_is_told_is_one() -> None:
    """It is understood: by the runtimes and tasks that there are, or by the parser of that command."""
    runtimes = ("run", "launch", "start", "local", "localhost", "srun", "sbatch", "submit", "docker", "podman")
    words = [word for hint in hints() for word in hint.words] + [word for word in runtimes if meant(word)]
    assert words[-len(runtimes) :] == [*runtimes]
    assert len(words) == len(set(words))
    assert not set(words) & {*KNOWN.runtimes, *KNOWN.tasks, *KNOWN.commands}
    for word in words:
        for typed in ([word], [word, "a", "b"], [word, "exp.yaml", "b"]):
            error = instead(typed, KNOWN, RequestError(""))
            assert error
            if "the engine's own command" in error.fix:
                continue
            assert understood(error.fix.partition("\n")[0]), error.fix


@pytest.mark.parametrize(
    ("words", "way_out"),
    [("logs", "primus logs latest"), ("runs", "primus runs list"), ("config", "primus config list")],
)  # fmt: skip
def test_a_missing_word_is_named_with_what_it_may_be(
    words: str, way_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert way_out in told(words.split(), capsys)


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("direct --log_file=r.log -- bench gemm -M 8", "primus direct --log-file=r.log -- bench gemm -M 8"),
        pytest.param(
            "direct -- preflight --perf-test", "primus direct -- preflight --level perf", marks=pytest.mark.torch
        ),
        ("diret -- bench gemm -M 8", "primus direct -- bench gemm -M 8"),
        ("direct -- bnech gemm -M 8", "primus direct -- bench gemm -M 8"),
        pytest.param("direct -- bench gem -M 8", "primus direct -- bench gemm -M 8", marks=pytest.mark.torch),
        pytest.param(
            "direct -- bench gemm -M 8 --dry-run",
            "fix: primus direct --dry-run -- bench gemm -M 8",
            marks=pytest.mark.torch,
        ),
        ("direct --env-file a.env -- bench gemm -M 8", "primus direct --env a.env -- bench gemm -M 8"),
        ("direct --silent -- bench gemm -M 8", "primus direct -- bench gemm -M 8"),
        ("direct --script a.py --lr 1", "fix: primus direct -- run a.py --lr 1"),
        pytest.param("gemm --warmup 10", "fix: primus direct -- bench gemm -M 1024", marks=pytest.mark.torch),
        pytest.param("direct -- gemm -M 8", "fix: primus direct -- bench gemm -M 8", marks=pytest.mark.torch),
        pytest.param(
            "direct -- bench gemm -M 8 --warmup 10", "primus direct -- bench gemm -M 8", marks=pytest.mark.torch
        ),
        pytest.param(
            "data merge a b --output c", "primus data merge --input a b --output-prefix c", marks=pytest.mark.torch
        ),
        pytest.param(
            "data preprocess --input c.jsonl",
            "primus data prepare --input c.jsonl --output-prefix tokens --tokenizer-model tokenizer.json",
            marks=pytest.mark.torch,
        ),
        ("direct -- runs list", "fix: primus runs list"),
        ("runs info latest", "primus runs show latest"),
        ("runs stop latest", "primus stop latest"),
        ("config check exp.yaml", "primus config validate exp.yaml"),
        ("direct -- train pretrain --confg x.yaml", "primus direct -- train pretrain --config x.yaml"),
        ("config validate exp.yaml --gpus 4", "primus config validate exp.yaml --gpus-per-node 4"),
        ("config validate exp.yaml --gpus MI300X", "primus config validate exp.yaml --gpu MI300X"),
        ("config convert exp.yaml", "primus config migrate exp.yaml --to ..."),
        ("runs diff --jsn", "primus runs diff --json A B"),
        ("hook", "fix: did you mean `primus hooks`?"),
        ("show config x.yaml --resolved", "fix: did you mean `primus config show x.yaml --resolved`?"),
        ("show latest --json", "fix: primus runs show latest --json"),
        ("validate x.yaml --gpu MI300X --nodes 2", "fix: primus config validate x.yaml --gpu MI300X --nodes 2"),
        ("compare x.yaml y.yaml", "fix: primus config diff x.yaml y.yaml"),
        pytest.param(
            "new --backend torchtitan --model llama3_8B",
            "then: primus config new llama3_8B --backend torchtitan --gpu MI300X -o exp.yaml",
            marks=pytest.mark.torch,
        ),
        ("config validate x.yaml -nodes 2", "primus config validate x.yaml --nodes 2"),
        pytest.param("report latest -output x.html", "primus report latest --output x.html", marks=pytest.mark.torch),
        ("logs latest -r 1", "primus logs latest --rank 1"),
        ("slurm -dry-run srun -N 2 -- run x.py", "primus slurm --dry-run srun -N 2 -- run x.py"),
        ("slurm srun -nodes 2 -- run x.py", "primus slurm srun --nodes 2 -- run x.py"),
        ("container --image I -user 1:1 -- run x.py", "primus container --image I --user 1:1 -- run x.py"),
        ("replay latest containre --dry-run --image I", "primus replay latest container --dry-run --image I"),
        ("replay latest --image I container", "primus replay latest container --image I"),
        pytest.param(
            "container run --image I -- run x.py",
            "fix: primus container --image I -- run x.py",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "container --image I -- slurm srun -N 2 -- run x.py",
            "fix: primus slurm srun -N 2 -- container --image I -- run x.py",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "direct --numa -- slurm srun -- run x.py",
            "fix: primus slurm srun -- direct --numa -- run x.py",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "slurm srun -- slurm srun -- run x.py", "fix: primus slurm srun -- run x.py", marks=pytest.mark.torch
        ),
        ("config validate x.yaml -f y", "fix: remove it: FILE is x.yaml"),
        ("env -json", "primus env show --json"),
        pytest.param(
            "slurm srun -N 2 torchrun --nproc-per-node 2 x.py",
            "fix: GPUS_PER_NODE=2 primus slurm srun -N 2 -- run x.py",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "slurm srun -N 2 -- torchrun --nnodes 2 --nproc-per-node 2 x.py",
            "fix: GPUS_PER_NODE=2 primus slurm srun -N 2 -- run x.py",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "srun -N 2 -n 16 python x.py",
            "fix: GPUS_PER_NODE=8 primus slurm srun -N 2 -- run x.py",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "srun -n 4 python x.py", "fix: GPUS_PER_NODE=4 primus slurm srun -- run x.py", marks=pytest.mark.torch
        ),
        pytest.param(
            "srun -N2 --tasks-per-node 4 x.py",
            "fix: GPUS_PER_NODE=4 primus slurm srun -N2 -- run x.py",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "srun -N 2 -n 4 torchrun --nproc_per_node 3 x.py",
            "fix: GPUS_PER_NODE=3 primus slurm srun -N 2 -- run x.py",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "sbatch --array=1-3 x.py",
            "fix: primus slurm sbatch --array=1-3 -- run x.py    # then: --array is not supported",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "docker run --rm -v a:b I primus direct -- run x.py",
            "fix: primus container --image I -v a:b -- direct -- run x.py",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "report latest --output-dir x",
            "fix: name the file: -o report.html; .md and .json are known, too",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "data inspect pyproject.toml", "fix: name a prefix: the path without .bin and .idx", marks=pytest.mark.torch
        ),
        pytest.param(
            "direct -- preflight --threshold x.toml",
            "primus direct -- preflight --thresholds x.toml",
            marks=pytest.mark.torch,
        ),
        ("direct -- train -config x.yaml", "primus direct -- train --config x.yaml pretrain"),
        ("log latest", "fix: primus logs latest"),
        ("direct run -- x.py", "fix: primus direct -- run x.py"),
        ("direct -- pretrain train --config x.yaml", "fix: primus direct -- train pretrain --config x.yaml"),
        ("direct train --numa pretrain --config x.yaml", "fix: primus direct --numa -- train pretrain --config x.yaml"),
        pytest.param(
            "data split x --shares 98,1,1",
            "fix: primus data split x --shares 98,1,1 --output-prefix tokens",
            marks=pytest.mark.torch,
        ),
        pytest.param("model", "fix: did you mean `primus models list`?", marks=pytest.mark.torch),
        ("slurm --max-restart 2 sbatch -- bench gemm -M 8", "primus slurm --max-restarts 2 sbatch -- bench gemm -M 8"),
        ("slurm --folow sbatch -- bench gemm -M 8", "primus slurm --follow sbatch -- bench gemm -M 8"),
        ("direct -- train pretrain --config-name x --config-path y", "fix: --config FOLDER/NAME.yaml"),
        pytest.param(
            "run job.sh",
            "fix: primus direct -- run job.sh    # then: 'job.sh' is not a Python file",
            marks=pytest.mark.torch,
        ),
        ("slurm -N 2 srun -- bench gemm -M 8", "fix: primus slurm srun -N 2 -- bench gemm -M 8"),
        ("runs list --statsu running", "primus runs list --status running"),
        ("config show --config exp.yaml --resolved", "primus config show exp.yaml --resolved"),
        ("config validate -f exp.yaml a=1", "primus config validate exp.yaml a=1"),
        ("config diff --config a.yaml --config=b.yaml", "primus config diff a.yaml b.yaml"),
        ("config migrate --file a.yaml --to maxtext==0.2.5", "primus config migrate a.yaml --to maxtext==0.2.5"),
        ("config list --gpu MI300X", "primus config list MI300X"),
        pytest.param(
            "config new torchtitan/qwen3_8B/MI355X -o x.yaml",
            "primus config new qwen3_8B --backend torchtitan --gpu MI355X -o x.yaml",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "data prepare --input a --output-prefix b --tokenizer-model t --tokenizer-type Llama3Tokenizer",
            "primus data prepare --input a --output-prefix b --tokenizer-model t --tokenizer-type HuggingFaceTokenizer",
            marks=pytest.mark.torch,
        ),
        ("models show --model grok1", "primus models show grok1"),
        ("runs latest", "primus runs show latest"),
        ("runs list --limit 5", "primus runs list -n 5"),
        ("runs list --status done", "primus runs list --status completed"),
        ("logs --run=latest --follow", "primus logs latest --follow"),
        pytest.param("bench compare --before a --after b", "primus bench compare a b", marks=pytest.mark.torch),
        pytest.param("data inspect --input x", "primus data inspect x", marks=pytest.mark.torch),
        (
            "direct --env A 1 -- train pretrain --config e.yaml",
            "primus direct --env A=1 -- train pretrain --config e.yaml",
        ),
        (
            "direct --env A = 1 -- train pretrain --config e.yaml",
            "primus direct --env A=1 -- train pretrain --config e.yaml",
        ),
        (
            "direct --env A=1 B=2 -- train pretrain --config e.yaml",
            "primus direct --env A=1 --env B=2 -- train pretrain --config e.yaml",
        ),
        (
            "slurm srun --env A 1 -- train pretrain --config e.yaml",
            "primus slurm srun -- direct --env A=1 -- train pretrain --config e.yaml",
        ),
        (
            "slurm srun --numa -- train pretrain --config e.yaml",
            "fix: primus slurm srun -- direct --numa -- train pretrain --config e.yaml",
        ),
        pytest.param(
            "slurm srun -- bench gemm -M 8 -p gpu",
            "fix: primus slurm srun -p gpu -- bench gemm -M 8",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "container --image I -- bench gemm -M 8 --numa",
            "fix: primus container --image I -- direct --numa -- bench gemm -M 8",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "container -- bench gemm -M 8 --image I",
            "fix: primus container --image I -- bench gemm -M 8",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "container --dry-run I bench gemm -M 8",
            "fix: primus container --dry-run --image I -- bench gemm -M 8",
            marks=pytest.mark.torch,
        ),
        (
            "container --image I --env A 1 -- train pretrain --config e.yaml",
            "primus container --image I --env A=1 -- train pretrain --config e.yaml",
        ),
        pytest.param(
            "direct -- train pretrain --config examples/quickstart.yaml --gpu MI300X",
            "fix: a launch uses the GPUs that it finds; for another model: "
            "primus config validate examples/quickstart.yaml --gpu MI300X",
            marks=pytest.mark.torch,
        ),
        pytest.param("direct -- preflight --gpus", "primus direct -- preflight --gpu", marks=pytest.mark.torch),
        ("direct train -- pretrain --config x.yaml", "fix: primus direct -- train pretrain --config x.yaml"),
        ("direct -- train pretrain -- --config x.yaml", "fix: primus direct -- train pretrain --config x.yaml"),
        ("direct – train pretrain --config x.yaml", "fix: primus direct -- train pretrain --config x.yaml"),
        ("slurm srun -N 2 - train pretrain --config x", "fix: primus slurm srun -N 2 -- train pretrain --config x"),
        pytest.param("direct data inspect -- x", "fix: primus direct -- data inspect x", marks=pytest.mark.torch),
        pytest.param(
            "direct -- torchrun --max-restarts 3 train.py --lr 3",
            "fix: primus direct --max-restarts 3 -- run train.py --lr 3",
            marks=pytest.mark.torch,
        ),
        ("untrust team", "fix: primus trust --remove team"),
        ("replay latest -- --check", "fix: primus replay latest --check"),
        ("config migrate a.yaml --to megatron-core=0.19", "primus config migrate a.yaml --to megatron-core==0.19"),
        (
            "config validate exp.yaml --env A=1",
            "fix: remove it and its value; see `primus config validate --help`",
        ),
        pytest.param(
            "direct -- run --replay latest",
            "fix: a replay is a command of its own: primus replay RUN",
            marks=pytest.mark.torch,
        ),
        pytest.param(
            "direct -- run",
            "fix: `primus direct -- run FILE.py [arguments of FILE]`; "
            "to train an experiment: `primus direct -- train pretrain --config FILE`",
            marks=pytest.mark.torch,
        ),
    ],
)
def test_a_misspelt_word_is_answered_with_the_whole_command(
    words: str, whole: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    assert capsys.readouterr().err.splitlines()[-1].strip() == whole


@pytest.mark.torch  # the task `run` is there
def test_a_misspelt_file_of_variables_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "vars.env").touch()
    (tmp_path / "x.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["direct", "--env", "./vars.evn", "--", "run", "x.py"]) == 2
    assert capsys.readouterr().err.endswith(
        "fix: did you mean './vars.env'?\n       primus direct --env ./vars.env -- run x.py\n"
    )


def test_a_proposed_launch_keeps_the_variables_that_were_typed_before_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUS_PER_NODE", "2")
    assert told(["train", "pretrain", "--config", "x.yaml"], capsys).startswith(
        "GPUS_PER_NODE=2 primus direct -- train"
    )
    assert told(["direct", "--nproc_per_node=4", "--", "bench", "gemm", "-M", "8"], capsys).count("GPUS_PER_NODE") == 1
    assert told(["runs", "lst"], capsys) == "did you mean 'list'?"
    assert told(["rns", "list"], capsys) == "did you mean `primus runs list`?"


@pytest.mark.torch  # a backend is installed there
def test_flags_that_are_required_are_shown_with_an_example(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tokenizer.json").write_text('{"version": "1.0"}')
    whole = "primus config new llama3.1_8B --gpu MI355X --backend torchtitan"
    assert told(["config", "new", "llama3.1_8B", "--gpu", "MI355X"], capsys) == whole
    whole = "primus data prepare --input a --output-prefix b --tokenizer-model tokenizer.json"
    assert told(["data", "prepare", "--input", "a", "--output-prefix", "b"], capsys) == whole
