"""What the tests of the MaxText backend share: a small Llama, its plan, and real runs of it in real processes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from tests.planning import Resolve, resolver

MODEL = {
    "decoder_block": "llama2", "base_emb_dim": 64, "base_num_query_heads": 4, "base_num_kv_heads": 2, "head_dim": 16,
    "base_mlp_dim": 128, "base_num_decoder_layers": 2, "mlp_activations": ["silu", "linear"], "vocab_size": 512,
}  # fmt: skip
SETTINGS: dict[str, Any] = {
    "model": MODEL,
    "dtype": "float32",
    "max_target_length": 64,
    "per_device_batch_size": 4,
    "steps": 4,
    "learning_rate": 3e-3,
    "dataset_type": "synthetic",
    "enable_checkpointing": False,
}
needs_maxtext = pytest.mark.skipif(not importlib.util.find_spec("maxtext"), reason="maxtext is not installed")


def tiny(**changes: Any) -> str:
    """The model on made-up tokens, with `changes` (None: without that setting), one setting a line."""
    settings = {**SETTINGS, **changes}
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items() if value is not None)


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """`resolve(text, ranks=1, gpus=0, ...)`: what the backend plans."""
    from primus_maxtext.backend import MAXTEXT  # not at the top: the package may be missing

    return resolver(MAXTEXT, tmp_path, tiny())
