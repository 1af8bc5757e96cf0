"""What the tests of the Megatron backend share: a resolved experiment, and a run of it, from a few lines of YAML."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT, plain_environ
from tests.planning import Resolve, resolver
from tests.processes import Ended, run_ranks, torchrun

Row = dict[str, Any]
Train = Callable[..., tuple[list[Row], str]]
Python = Callable[..., Ended]

ON_A_CPU = {
    "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONWARNINGS": "ignore",
    "TORCHDYNAMO_DISABLE": "1",
}  # fmt: skip
"""As a plan has it, with one thread for each rank."""

MODEL = {
    "num_layers": 4,
    "hidden_size": 64,
    "ffn_hidden_size": 192,
    "num_attention_heads": 4,
    "group_query_attention": True,
    "num_query_groups": 2,
    "swiglu": True,
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True,
    "make_vocab_size_divisible_by": 8,
}
SETTINGS = {
    "mock_data": True,
    "vocab_size": 511,
    "seq_length": 32,
    "micro_batch_size": 2,
    "global_batch_size": 8,
    "train_iters": 4,
    "lr": 1e-2,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "log_interval": 1,
    "eval_iters": 0,
}


def tiny(**changes: Any) -> str:
    """A small Llama on made-up tokens, with `changes` (None: without that setting), one setting a line."""
    settings = {"model": MODEL, **SETTINGS, **changes}
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items() if value is not None)


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """`resolve(text, ranks=1, gpus=0, ...)`: what the backend plans."""
    from primus_megatron.backend import MEGATRON  # not at the top: the package may be missing

    return resolver(MEGATRON, tmp_path, tiny())


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    """`python(program, *argv)`: how a program ended. It is its text, or the name of its module."""
    folder = tmp_path_factory.mktemp("programs")

    def run(program: str, *argv: str) -> Ended:
        file = folder / "program.py"
        file.write_text(program)
        named: str | Path = program if program.replace(".", "").isidentifier() else file
        environ = {**plain_environ(), **ON_A_CPU, "PYTHONPATH": str(ROOT)}
        [ended] = run_ranks(named, [environ], cwd=folder, argv=argv)
        return ended

    return run


@pytest.fixture
def train(resolve: Resolve, tmp_path: Path, clean_environ: dict[str, str]) -> Train:
    """`train(text, ranks=1)`: what the plan says, done; the metrics and the log of all ranks.

    `before`: what the worker does first; `real`: with torchrun; `fails`: a rank must.
    """

    def run(
        text: str = "",
        *,
        ranks: int = 1,
        run: str = "run",
        previous: Any = lambda _: (),
        packages: str = "",
        without: str = "",
        before: str = "",
        real: bool = False,
        fails: bool = False,
    ) -> Any:
        folder = tmp_path / run
        plan = resolve(text, ranks=ranks, run=folder, previous=previous)
        (folder / "config").mkdir(parents=True, exist_ok=True)
        (folder / "logs").mkdir(exist_ok=True)
        (folder / "config" / "backend_config.json").write_text(json.dumps(plan.config))
        environ = {**clean_environ, **{variable.name: variable.value for variable in plan.environment}}
        environ |= {"PRIMUS_RUN_DIR": str(folder), "PRIMUS_METRICS_FILE": str(folder / "metrics.jsonl")}
        for step in plan.prepare:
            subprocess.run(step.argv, env=environ, cwd=step.cwd, check=True, capture_output=True)
        environ |= {**ON_A_CPU, "PYTHONPATH": packages}
        if real:
            log = _with_torchrun(plan.worker.module, ranks, environ, tmp_path)
        else:
            worker = _worker_that(without, before, tmp_path) if without or before else plan.worker.module
            ended = run_ranks(worker, torchrun(ranks, environ), cwd=tmp_path, timeout=240)
            log = "".join(rank.out + rank.err for rank in ended)
            assert any(rank.code for rank in ended) == fails, "".join(
                f"{rank.out[-3000:]}{rank.err[-3000:]}" for rank in ended
            )
        metrics = folder / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return [json.loads(line) for line in lines], log

    return run


def _with_torchrun(module: str, ranks: int, environ: Mapping[str, str], folder: Path) -> str:
    """What its ranks print, each a process of its own."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run([*launch, "-m", module], env=environ, cwd=folder, capture_output=True, text=True,
                          check=False, timeout=240)  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def _worker_that(patch: str, before: str, folder: Path) -> Path:
    """The worker as it would be if a patch had never been written, and that does something first."""
    (folder / "worker.py").write_text(f"""
if __name__ == "__main__":
{textwrap.indent(before, "    ")}
    from primus_megatron import patches
    patches.PATCHES = tuple(patch for patch in patches.PATCHES if patch.id != {patch!r})
    from primus_megatron.worker import main
    main()
""")
    return folder / "worker.py"


def losses(rows: list[Row]) -> list[float]:
    """By iteration, in order."""
    return [row["loss"] for row in rows]


def saved(run: Path) -> Callable[[str], tuple[str, ...]]:
    """What `previous` answers where `run` is the only earlier one."""
    return lambda pattern: tuple(str(path) for path in sorted(run.glob(pattern)))
