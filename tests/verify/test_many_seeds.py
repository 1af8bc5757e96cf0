"""No false alarm: layouts that are right are equal, whatever the weights and tokens are.

For many seeds: python -m tests.verify.many_seeds --seeds 200
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.verify.many_seeds import verify_seeds

SEEDS = range(1, 4)


@pytest.mark.full
@pytest.mark.torch
def test_layouts_are_equal_with_every_seed(tmp_path: Path) -> None:
    found = list(verify_seeds(SEEDS, ["tp=2", "fsdp=2"], str(tmp_path)))
    assert [(number, one["layout"], one["status"]) for number, one in found] == [
        (number, layout, "equal") for number in SEEDS for layout in ("tp=2", "fsdp=2")
    ]
