"""What the tests of the TorchTitan backend share: a resolved experiment from a few lines of YAML, and forks of torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.forkserver import Ended, ForkServer
from tests.planning import Resolve, resolver
from tests.torchtitan import quickstart

from primus_torchtitan.backend import TORCHTITAN

Program = Callable[..., Ended]

MODEL = """
model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4, n_kv_heads: 2}
data: {text: python-stdlib, vocab_size: 512}
training: {steps: 4, seq_len: 64, local_batch_size: 2}
"""
IMPORTED = (
    *("torch", "torch._dynamo", "torch._functorch.partitioners", "torch.nn.attention.flex_attention"),
    *("torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.pipelining"),
    *("torch.distributed.tensor.experimental._attention", "torch.utils.tensorboard", "torch.utils.flop_counter"),
    *("datasets.distributed", "networkx.algorithms", "spmd_types.checker", "tokenizers", "torchdata", "tyro"),
)
"""What `torchtitan.train` imports, but TorchTitan: the worker patches that before it imports more of it."""
FIXED = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "TORCHDYNAMO_DISABLE": "1"}


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all tests with forks, so that torch is imported once."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "forks" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("torchtitan-forks"))


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    """Ranks on the CPU that need not import torch."""
    with ForkServer(IMPORTED, FIXED) as server:
        yield server


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> quickstart.Whole:
    """The small quickstart, trained without interruption, once for all workers: read only."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "torchtitan-whole"
    return quickstart.shared(folder, *quickstart.WHOLE)


@pytest.fixture
def program(forks: ForkServer, clean_environ: dict[str, str], tmp_path: Path) -> Program:
    """`program(code, ..., NAME=value)` runs Python with these words, and torch imported, as one process."""

    def run(code: str, *argv: str, **environ: str) -> Ended:
        (tmp_path / "program.py").write_text(code)
        (ended,) = forks.run(tmp_path / "program.py", [{**clean_environ, **environ}], cwd=tmp_path, argv=argv)
        return ended

    return run


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """`resolve(text, ranks=1, gpus=0, ...)`: what the backend plans."""
    return resolver(TORCHTITAN, tmp_path, MODEL)
