"""JAX raises no error for a token id that the embedding does not have: Primus looks at the first batches."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.maxtext.conftest import needs_maxtext

LOADS = """
import types
import numpy as np
from maxtext.common.data_loader import DataLoader
from primus_core.errors import TrainingError
from primus_maxtext import token_ids

batches = iter([{"inputs": np.array([[1, 255]])}, {"inputs": np.array([[256, 2]])}])
DataLoader.load_next_batch_pre_sharding = lambda loader: next(batches)
token_ids.check_first_batches()
loader = types.SimpleNamespace(config=types.SimpleNamespace(vocab_size=256))
print(DataLoader.load_next_batch_pre_sharding(loader)["inputs"].max())
try:
    DataLoader.load_next_batch_pre_sharding(loader)
except TrainingError as error:
    print(error)
"""


@pytest.mark.full
@needs_maxtext
def test_a_token_id_outside_the_vocabulary_is_an_error_that_names_both() -> None:
    """In a process of its own: to import MaxText changes the environment."""
    loaded = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True, timeout=120)
    _, _, ours = loaded.stdout.partition("\n255\n")  # what MaxText prints when it is imported stands before
    assert "token id 256 is outside the model's vocabulary of 256" in ours, loaded.stdout + loaded.stderr
    assert "at least 257" in ours
