"""Commands of other tools, and a forgotten `--`: the answer is the command to type, with the person's own words."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.packages import PACKAGES, project

from primus_core.cli.commands import load, names
from primus_core.cli.hints import Known, instead, retyped
from primus_core.cli.main import main
from primus_core.cli.proposed import moved, refusal
from primus_core.installed import homes
from primus_core.request.arguments import parse_segment
from primus_core.request.request import parse
from primus_machine.errors import RequestError

KNOWN = Known({"direct", "container", "slurm"}, {"train", "bench", "analyze", "preflight"}, names())
ANSWERS = {
    # what other tools call it
    "status": "primus runs list",
    "status small": "primus runs show small",
    "stauts small": "primus runs show small",
    "ps": "primus runs list --status running",
    "tail small": "primus logs small --follow",
    "kill small --now": "primus stop small",
    "kill": "primus runs list --status running",
    "diff a b": "primus runs diff a b",
    "init": "primus config list",
    "init llama3.1_8B": "primus config list llama3.1_8B",
    "resume": "primus runs show latest",
    "resume small": "primus runs show small",
    "resume exp.yaml steps=9": "primus direct -- train pretrain --config exp.yaml steps=9",
    "run": "primus direct -- run train.py",
    "run exp.yaml 'a=b c'": "primus direct -- train pretrain --config exp.yaml 'a=b c'",
    "run --config exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "run -- train --config exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "run --single bench gemm -M 8": "primus direct --single -- bench gemm -M 8",
    "run slurm srun -N 2 bench gemm -M 8": "primus slurm srun -N 2 -- bench gemm -M 8",
    "run train.py --lr 1": "primus direct -- run train.py --lr 1",
    "train.py --lr 1": "primus direct -- run train.py --lr 1",
    "torchrun --nproc-per-node 8 --nnodes=2 train.py --lr 1":
        "GPUS_PER_NODE=8 NNODES=2 NODE_RANK=N MASTER_ADDR=HOST primus direct -- run train.py --lr 1",
    "torchrun --nproc_per_node=gpu --standalone train.py": "primus direct -- run train.py",
    "direct --nproc-per-node 8 train.py": "GPUS_PER_NODE=8 primus direct -- run train.py",
    "direct --nnodes=2 --single --nproc_per_node=8 train.py --nnodes 3":
        "NNODES=2 GPUS_PER_NODE=8 NODE_RANK=N MASTER_ADDR=HOST primus direct --single -- run train.py --nnodes 3",
    "direct --gpus 8 -- bench gemm -M 8": "GPUS_PER_NODE=8 primus direct -- bench gemm -M 8",
    "direct --gpus 4,5 -- bench gemm -M 8": "CUDA_VISIBLE_DEVICES=4,5 primus direct -- bench gemm -M 8",
    "direct --nproc 2 -- bench gemm -M 8": "GPUS_PER_NODE=2 primus direct -- bench gemm -M 8",
    "mpirun -np 2 python train.py --log 3": "GPUS_PER_NODE=2 primus direct -- run train.py --log 3",
    "torchrun --nnodes=1:4 train.py": "NNODES=4 NODE_RANK=N MASTER_ADDR=HOST primus direct -- run train.py",
    "torchrun --nproc-per-node 2 -m pkg.train --lr 1": "GPUS_PER_NODE=2 primus direct -- run -m pkg.train --lr 1",
    "torchrun --max_restarts=3 train.py": "primus direct --max-restarts 3 -- run train.py",
    "python -m pkg.train": "primus direct -- run -m pkg.train",
    "direct torchrun -m pkg.train x": "primus direct -- run -m pkg.train x",
    "docker run img python -m pkg.train": "primus container --image img -- run -m pkg.train",
    "apptainer exec --nv --bind /a:/b i.sif python t.py":
        "primus container --engine apptainer --image i.sif --bind /a:/b -- run t.py",
    "singularity run docker://img":
        "primus container --engine singularity --image docker://img -- train pretrain --config FILE",
    "apptainer pull docker://img": "it is the engine's own command, without `primus`: apptainer pull docker://img",
    "accelerate env": "primus env show",
    "primus-cli direct -- bench gemm -M 8": "primus direct -- bench gemm -M 8",
    "primus direct bench gemm -M 8": "primus direct -- bench gemm -M 8",
    "srun -N 2 primus direct -- run train.py": "primus slurm srun -N 2 -- direct -- run train.py",
    "sbatch -N 2 -- primus-cli direct -- bench gemm -M 8": "primus slurm sbatch -N 2 -- direct -- bench gemm -M 8",
    "slurm --nproc-per-node 8 -N 2 -- run train.py": "GPUS_PER_NODE=8 primus slurm -N 2 -- run train.py",
    "container --master_port 1 --image x -- run train.py": "primus container --image x -- run train.py",
    "direct --gpus all -- run train.py": "primus direct -- run train.py",
    "direct --gpus A100:8 -- run train.py": "GPUS_PER_NODE=8 primus direct -- run train.py",
    "sbatch --array=0-3 job.sh": "primus slurm sbatch -N 2 -- train pretrain --config FILE",
    "describe run latest": "primus runs show latest",
    "slurm srun -N 2 -- eval": "Primus has no evaluation of its own yet; `primus slurm srun -N 2 -- run FILE` starts a program of yours",
    "direct --nproc-per-node -- run train.py": "GPUS_PER_NODE=N primus direct -- run train.py",
    "direct -- preflight gpu": "type --gpu",
    "slurm srun -N 2 -- primus direct -- run train.py": "primus slurm srun -N 2 -- direct -- run train.py",
    "jsrun -n 2 python train.py": "GPUS_PER_NODE=2 primus direct -- run train.py",
    "docker run -v a:/b -it rocm/primus:v26 bash x.sh":
        "primus container --image rocm/primus:v26 -v a:/b -- train pretrain --config FILE",
    "check exp.yaml": "primus config validate exp.yaml",
    "tensorboard --logdir output": "primus runs show latest",
    "new experiment": "primus config list",
    "run -m pkg.train --x 1": "primus direct -- run -m pkg.train --x 1",
    "srun -N 2 python -m pkg.train": "primus slurm srun -N 2 -- run -m pkg.train",
    "srun -N 2 torchrun --nproc-per-node 8 train.py": "GPUS_PER_NODE=8 primus slurm srun -N 2 -- run train.py",
    "srun torchrun --nnodes 2 --nproc-per-node 8 train.py": "GPUS_PER_NODE=8 primus slurm srun -N 2 -- run train.py",
    "sbatch --nodes=3 torchrun --nnodes 2 train.py": "primus slurm sbatch --nodes=3 -- run train.py",
    "slurm srun -- torchrun --nnodes 2 train.py": "primus slurm srun -N 2 -- run train.py",
    "srun -N 2 --ntasks-per-node=8 train.py": "GPUS_PER_NODE=8 primus slurm srun -N 2 -- run train.py",
    "sbatch -N 2 --wrap 'python train.py'": "primus slurm sbatch -N 2 -- run train.py",
    "slurm sbatch -N2 --wrap='python t.py --lr 1'": "primus slurm sbatch -N2 -- run t.py --lr 1",
    "train direct -- pretrain --config exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "bench slurm -N 2 -- gemm -M 8": "primus slurm -N 2 -- bench gemm -M 8",
    "bench slurm srun -N 2 gemm -M 8": "primus slurm srun -N 2 -- bench gemm -M 8",
    "data direct -- inspect p": "primus direct -- data inspect p",
    "direct -- train --pretrain --config exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "describe job 12": "primus runs show 12",
    "direct --volume /data -- run train.py": "primus container --image IMAGE --volume FOLDER -- TASK",
    "container -it rocm/pytorch python hello.py": "primus container --image rocm/pytorch -- run hello.py",
    "prepare --input c.jsonl --output-prefix p": "primus data prepare --input c.jsonl --output-prefix p",
    "train": "primus direct -- train pretrain --config FILE",
    "version": "primus --version",
    "mpirun -np 16 -H a:8,b:8 python train.py":
        "GPUS_PER_NODE=8 NNODES=2 MASTER_ADDR=a NODE_RANK=N primus direct -- run train.py",
    "mpirun -n 2 -f hosts train.py": "GPUS_PER_NODE=2/N NNODES=N NODE_RANK=N MASTER_ADDR=HOST primus direct -- run train.py",
    "mpiexec -n 2 python train.py": "GPUS_PER_NODE=2 primus direct -- run train.py",
    "deepspeed --hostfile h --num_gpus=2 train.py":
        "NNODES=N GPUS_PER_NODE=2 NODE_RANK=N MASTER_ADDR=HOST primus direct -- run train.py",
    "accelerate launch --num_processes 16 --num_machines 2 --machine_rank 1 --main_process_ip h train.py":
        "GPUS_PER_NODE=8 NNODES=2 NODE_RANK=1 MASTER_ADDR=h primus direct -- run train.py",
    "run torchrun --nproc-per-node 2 train.py": "GPUS_PER_NODE=2 primus direct -- run train.py",
    "direct -- run python3 -u train.py --lr 1": "primus direct -- run train.py --lr 1",
    "direct -- run python -m pkg.train": "primus direct -- run -m pkg.train",
    "direct python3 -u train.py": "primus direct -- run train.py",
    "python -m torch.distributed.run --nproc_per_node 2 train.py": "GPUS_PER_NODE=2 primus direct -- run train.py",
    "run --max_restarts 3 --log_file a_b train.py": "primus direct --max-restarts 3 --log-file a_b -- run train.py",
    "direct -- run --max_restarts 3 train.py --max_restarts 4":
        "primus direct --max-restarts 3 -- run train.py --max_restarts 4",
    "torchrun --nnodes 2 --node-rank 1 --master-addr h --max-restarts 3 train.py":
        "NNODES=2 NODE_RANK=1 MASTER_ADDR=h primus direct -- run train.py",
    "torchrun --no-python ./x.sh": "primus direct -- run FILE",
    "pretrain exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "direct -- --env A=1 run train.py": "did you mean: primus direct --env A=1 -- run train.py",
    "--dry-run direct -- --numa run train.py": "did you mean: primus --dry-run direct --numa -- run train.py",
    "container --image I -- --env A=1 train pretrain --config e.yaml": "did you mean: primus container --image I -- direct --env A=1 -- train pretrain --config e.yaml",
    "direct -- --config exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "direct -- run --env A=1 train.py": "primus direct --env A=1 -- run train.py",
    "slurm cancel small": "primus stop small",
    "direct -- run --log 3 train.py a": "primus direct -- run train.py a --log 3",
    "direct -- run --nproc-per-node 2 train.py": "GPUS_PER_NODE=2 primus direct -- run train.py",
    "direct --nodes 2 -- bench gemm -M 8": "NNODES=2 NODE_RANK=N MASTER_ADDR=HOST primus direct -- bench gemm -M 8",
    "direct -- rccl-tests": "primus direct -- bench comm",
    "direct -- nccl-test": "primus direct -- bench comm",
    "show exp.yaml": "primus config show exp.yaml",
    "slurm sbatch train.sh": "primus slurm sbatch -N 2 -- train pretrain --config FILE",
    "sbatch -N 4 --gpus-per-node 8 job.sh": "primus slurm sbatch -N 4 --gpus-per-node 8 -- train pretrain --config FILE",
    "slurm srun -N 4 job.sh": "primus slurm sbatch -N 4 -- train pretrain --config FILE",
    "direct slurm srun -N 2 -- run t.py": "primus slurm srun -N 2 -- direct -- run t.py",
    "direct container -- run t.py": "primus container -- direct -- run t.py",
    "container --rm -it rocm/primus bash": "primus container --image rocm/primus -- train pretrain --config FILE",
    "direct --include localhost:0,1 -- run t.py": "CUDA_VISIBLE_DEVICES=0,1 primus direct -- run t.py",
    "accelerate launch --gpu_ids 2 t.py": "CUDA_VISIBLE_DEVICES=2 primus direct -- run t.py",
    "direct --standalone train.py": "primus direct -- run train.py",
    "direct --standalone --nproc-per-node gpu -- bench gemm -M 8": "primus direct -- bench gemm -M 8",
    "direct --nproc-per-node 8 --nnodes 2 --single -- bench gemm -M 8":
        "GPUS_PER_NODE=8 NNODES=2 NODE_RANK=N MASTER_ADDR=HOST primus direct --single -- bench gemm -M 8",
    "slurm srun -N 2 -- direct --rdzv_endpoint h:29500 --rdzv-id=1 -- bench gemm -M 8":
        "MASTER_ADDR=h MASTER_PORT=29500 primus slurm srun -N 2 -- direct -- bench gemm -M 8",
    "run --nproc-per-node 8 train.py": "GPUS_PER_NODE=8 primus direct -- run train.py",
    "accelerate launch train.py": "primus direct -- run train.py",
    "mpirun": "primus direct -- run FILE",
    "exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "pretrain --config x": "primus direct -- train pretrain --config x",
    "--dry-run run exp.yaml": "primus --dry-run direct -- train pretrain --config exp.yaml",
    "srun -N 2 exp.yaml": "primus slurm srun -N 2 -- train pretrain --config exp.yaml",
    "sbatch -N 2": "primus slurm sbatch -N 2 -- train pretrain --config FILE",
    "docker --image I bench gemm -M 8": "primus container --image I -- bench gemm -M 8",
    "lgos small": "did you mean `primus logs small`?",
    "checkpoints": "primus runs show latest",
    "wandb sync": "primus runs show latest",
    "tensorboard small": "primus runs show small",
    # a forgotten `--`, runtime or stage
    "train --config x": "primus direct -- train pretrain --config x",
    "direct train pretrain --config x": "primus direct -- train pretrain --config x",
    "direct train --config x": "primus direct -- train pretrain --config x",
    "direct --single bench gemm -M 8": "primus direct --single -- bench gemm -M 8",
    "direct --env=A=1 --log-file train train": "primus direct --env=A=1 --log-file train -- train pretrain --config FILE",
    "slurm srun -N 2 container --image I train pretrain --config e.yaml": "primus slurm srun -N 2 -- container --image I -- train pretrain --config e.yaml",
    "--debug slurm -N 2 bench gemm -M 8": "primus --debug slurm -N 2 -- bench gemm -M 8",
    "direct -- pretrain --config x": "primus direct -- train pretrain --config x",
    "direct -- exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "direct -- train --config x": "primus direct -- train pretrain --config x",
    "train exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "direct -- train exp.yaml steps=1": "primus direct -- train pretrain --config exp.yaml steps=1",
    "direct -- run exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "direct -- train.py --lr 1": "primus direct -- run train.py --lr 1",
    "direct train.py": "primus direct -- run train.py",
    "direct python train.py": "primus direct -- run train.py",
    "direct -- torchrun --nnodes 2 train.py a": "NNODES=2 NODE_RANK=N MASTER_ADDR=HOST primus direct -- run train.py a",
    "run --single exp.yaml": "primus direct --single -- train pretrain --config exp.yaml",
    "slurm -N 2 --config exp.yaml -- train pretrain": "primus slurm -N 2 -- train pretrain --config exp.yaml",
    "direct exp.yaml steps=1": "primus direct -- train pretrain --config exp.yaml steps=1",
    "direct --config exp.yaml": "primus direct -- train pretrain --config exp.yaml",
    "direct --config exp.yaml -- train pretrain a=1": "primus direct -- train pretrain a=1 --config exp.yaml",
    "slurm sbatch -N 2 exp.yaml": "primus slurm sbatch -N 2 -- train pretrain --config exp.yaml",
    "container --image I exp.yaml": "primus container --image I -- train pretrain --config exp.yaml",
}  # fmt: skip


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What `primus WORDS` is answered: the first line behind `fix: `."""
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return re.search(r"^  fix: (.*)$", said.err, re.M)[1]  # type: ignore[index]


def with_packages(words: str, answer: str) -> Any:
    """A case; one that names the task of a package is none for the kernel alone."""
    of_packages = ("-- run ", "preflight gpu", "bench slurm", "data direct")
    is_of_one = any(part in f"{words} {answer}" for part in of_packages)
    return pytest.param(words, marks=pytest.mark.torch) if is_of_one else words


def understood(fix: str) -> bool:
    """Whether the command line says it, or the parser of a management command takes it."""
    head, *rest = shlex.split(fix.removeprefix("primus "))
    if head in names():
        return bool(parse_segment(load(head).parser(), rest))
    return head == "--version" or bool(parse([head, *rest], KNOWN.runtimes, KNOWN.tasks).task)


def test_a_legal_value_that_looks_like_a_task_is_no_forgotten_dash() -> None:
    words = ["container", "--name", "train", "--image", "I", "--", "bench", "gemm", "-M", "8"]
    assert instead(words, KNOWN, RequestError("segment 2 (bench): anything else")) is None


@pytest.mark.parametrize("words", ["direct -- nothing a.py", "direct -- nothing a.yaml", "direct --nothing -- train"])
def test_what_nobody_can_tell_is_not_guessed(words: str) -> None:
    refused = RequestError("unknown option '--nothing'", kind="unknown", options=["--nothing"])
    assert instead(words.split(), KNOWN, refused) is None


@pytest.mark.parametrize("words", ["direct --nothing", "container --numa", "direct --numa -- --env A=1", ""])
def test_an_option_is_moved_only_in_a_command_that_has_a_task(words: str) -> None:
    assert moved(words.split(), [RequestError("", options=["--numa", "--nothing"])]) == []


def test_a_whole_command_follows_from_the_fields_of_an_error_whatever_its_texts_say() -> None:
    words = ["direct", "--", "x", "--modle=a", "b"]
    known = RequestError("anything", fix="look", options=["--modle"], meant="--model")
    assert retyped(words, known) == "look\nprimus direct -- x --model=a b"
    removed = RequestError("anything", fix="look", options=["b"], meant="")
    assert retyped(words, removed) == "look\nprimus direct -- x --modle=a"
    assert (
        retyped(words, RequestError("unknown option '--modle'", fix="did you mean '--model'?"))
        == "did you mean '--model'?"
    )


@pytest.mark.torch
def test_the_engines_own_commands_and_options_of_a_replay_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert "without `primus`: docker ps, or podman ps" in told(["container", "ps"], capsys)
    assert told(["podman", "ps"], capsys).endswith("without `primus`: podman ps")
    assert "podman exec -it x bash" in told(["podman", "exec", "-it", "x", "bash"], capsys)
    for option, meant in (("-N 2", "slurm srun -N 2"), ("--env A=1", "direct --env A=1")):
        assert main(["replay", "x", *option.split()]) == 2
        assert capsys.readouterr().err.endswith(f"       primus replay x {meant}\n")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("--dry-run docker run --gpus all img torchrun train.py", "--dry-run container --image img -- run train.py"),
        ("slurm --dry-run sbatch job.sh", "--dry-run slurm sbatch -N 2 -- train pretrain --config FILE"),
        ("slurm sbatch --wrap x -N 2 --dry-run", "--dry-run slurm sbatch -N 2 -- train pretrain --config FILE"),
    ],
)
def test_what_is_proposed_to_whom_asked_for_a_dry_run_starts_nothing(
    words: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    assert f"fix: primus {fix}\n" in capsys.readouterr().err


@pytest.mark.torch
def test_a_proposed_command_that_would_be_refused_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["srun", "hostname"], ["run", "-n", "2", "train.py"], ["slurm", "-X", "train"]):
        assert main(words) == 2
        for line in re.findall(r"primus [^`\n]*", capsys.readouterr().err.partition("fix: ")[2]):
            assert refusal(shlex.split(line)[1:]) is None, line


@pytest.mark.torch
def test_options_of_torchrun_that_nothing_here_is_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torchrun", "--monitor-interval=5", "--role", "x", "train.py"]) == 2
    assert "left out: --monitor-interval=5, --role\n" in capsys.readouterr().err
    assert main(["direct", "--", "torchrun", "--nnodes", "2", "--max-restarts", "2", "train.py"]) == 2
    assert "left out: --max-restarts\n" in capsys.readouterr().err, "one node cannot start again without the others"


@pytest.mark.parametrize("word", ["stpo", "slop", "stopp", "kil", "cancle"])
def test_no_guess_ends_a_run(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "latest"]) == 2
    assert "primus stop" not in capsys.readouterr().err


def test_run_alone_needs_a_file_or_means_a_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(["run"], capsys).startswith("primus direct -- run train.py")


def test_a_secret_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert "sesame" not in told(["train", "--config", "x", "--env", "DB_PASSWORD=sesame"], capsys)


@pytest.mark.parametrize("word", ["loader", "scale", "inspect"])
def test_a_word_that_is_hardly_alike_is_no_misspelling(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told([word], capsys).startswith("see `primus --help`")


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("env capture", "env capture -o node.tar.gz"),
        ("env capture x.tgz", "env capture -o x.tgz"),
        ("env capture x.tgz --force", "env capture -o x.tgz --force"),
        pytest.param("direct -- bench gemm", "direct -- bench gemm -M 1024", marks=pytest.mark.torch),
        pytest.param("direct -- bench gemm 4096", "direct -- bench gemm -M 4096", marks=pytest.mark.torch),
    ],
)
def test_flags_that_are_required_are_shown_with_an_example(
    words: str, whole: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(words.split(), capsys) == f"primus {whole}"


def test_a_file_is_no_misspelt_word_of_other_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(["direct", "--", "job.sh"], capsys).startswith("see `primus --help`")


def test_the_words_of_torchrun_have_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    whole = "GPUS_PER_NODE=2 primus direct -- bench gemm -M 8"
    for words in (["--nproc_per_node", "2"], ["--nproc-per-node=2"]):
        assert told(["direct", *words, "--", "bench", "gemm", "-M", "8"], capsys) == whole


def test_nothing_is_written_or_started(primus: Run, tmp_path: Path) -> None:
    for words in ("status", "run exp.yaml", "direct train pretrain --config exp.yaml"):
        assert primus(*words.split()).returncode == 2
    assert not list(tmp_path.iterdir())


def test_every_name_that_a_package_of_ours_brings_leads_to_that_package() -> None:
    groups = ("backends", "commands", "runtimes", "schedulers", "tasks")
    for package in PACKAGES:
        brought = project(package).get("entry-points", {})
        names = [(kind, name) for kind in groups for name in brought.get(f"primus.{kind}", ())]
        wrong = [] if package.name == "primus-core" else [n for n in names if homes.home_of(*n) != package.name]
        assert wrong == [], package.name
