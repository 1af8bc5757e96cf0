"""What the tests of the TorchTitan backend share: a resolved experiment from a few lines of YAML."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.planning import Resolve, resolver
from tests.processes import Ended, run_ranks
from tests.torchtitan import quickstart

from primus_torchtitan.backend import TORCHTITAN

Program = Callable[..., Ended]

MODEL = """
model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4, n_kv_heads: 2}
data: {text: python-stdlib, vocab_size: 512}
training: {steps: 4, seq_len: 64, local_batch_size: 2}
"""
ON_A_CPU = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "TORCHDYNAMO_DISABLE": "1"}


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> quickstart.Whole:
    """The small quickstart, trained without interruption, once for all workers: read only."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "torchtitan-whole"
    return quickstart.shared(folder, *quickstart.WHOLE)


@pytest.fixture
def program(clean_environ: dict[str, str], tmp_path: Path) -> Program:
    """`program(code, ..., NAME=value)` runs Python with these words."""

    def run(code: str, *argv: str, **environ: str) -> Ended:
        (tmp_path / "program.py").write_text(code)
        (ended,) = run_ranks(
            tmp_path / "program.py", [{**clean_environ, **ON_A_CPU, **environ}], cwd=tmp_path, argv=argv
        )
        return ended

    return run


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """`resolve(text, ranks=1, gpus=0, ...)`: what the backend plans."""
    return resolver(TORCHTITAN, tmp_path, MODEL)
