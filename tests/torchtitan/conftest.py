"""What the tests of the TorchTitan backend share: a resolved experiment from a few lines of YAML."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.planning import Resolve, resolver

from primus_torchtitan.backend import TORCHTITAN

MODEL = """
model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4, n_kv_heads: 2}
data: {text: python-stdlib, vocab_size: 512}
training: {steps: 4, seq_len: 64, local_batch_size: 2}
"""


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """`resolve(text, ranks=1, gpus=0, ...)`: what the backend plans."""
    return resolver(TORCHTITAN, tmp_path, MODEL)
