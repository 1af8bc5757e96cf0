"""What the tests of the Megatron backend share: a resolved experiment, and a run of it, from a few lines of YAML."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.planning import Resolve, resolver

Row = dict[str, Any]
Train = Callable[..., tuple[list[Row], str]]

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


@pytest.fixture
def train(resolve: Resolve, tmp_path: Path, clean_environ: dict[str, str]) -> Train:
    """`train(text, ranks=1)`: what the plan says, done with torchrun; the metrics and the log of all ranks."""

    def run(
        text: str = "",
        *,
        ranks: int = 1,
        run: str = "run",
        previous: Any = lambda _: (),
        packages: str = "",
        without: str = "",
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
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        environ |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
        environ |= {"PYTHONPATH": packages}
        worker = _worker_without(without, tmp_path) if without else ["-m", plan.worker.module]
        done = subprocess.run([*launch, *worker], env=environ, cwd=tmp_path, capture_output=True,
                              text=True, check=False, timeout=240)  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines], done.stdout

    return run


def _worker_without(patch: str, folder: Path) -> list[str]:
    """The worker as it would be if a patch had never been written."""
    (folder / "worker.py").write_text(f"""
if __name__ == "__main__":
    from primus_megatron import patches
    patches.PATCHES = tuple(patch for patch in patches.PATCHES if patch.id != {patch!r})
    from primus_megatron.worker import main
    main()
""")
    return [str(folder / "worker.py")]


def losses(rows: list[Row]) -> list[float]:
    """By iteration, in order."""
    return [row["loss"] for row in rows]


def saved(run: Path) -> Callable[[str], tuple[str, ...]]:
    """What `previous` answers where `run` is the only earlier one."""
    return lambda pattern: tuple(str(path) for path in sorted(run.glob(pattern)))
