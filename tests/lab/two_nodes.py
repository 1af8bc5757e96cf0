"""A real Slurm of two nodes for the tests of one file, which import the fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lab import slurm
from tests.lab.slurm import Cluster

__all__ = ["cluster"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes; skipped with the reason where there can be none."""
    if why := slurm.missing():
        pytest.skip(why)
    running = Cluster(2).start()
    yield running
    running.stop()
