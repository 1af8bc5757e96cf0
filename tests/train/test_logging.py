"""The worker of a backend logs as a task does: text on the console, JSON in the run's one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_joined_plugins import EXPERIMENT
from tests.core.test_logging import of_ranks, two_nodes

TRAIN = ("train", "pretrain", "--config", "exp.yaml")


@pytest.mark.torch
@pytest.mark.full
def test_the_worker_of_a_backend_on_four_ranks_of_two_nodes_writes_one_file(
    primus: Run, third_party: str, tmp_path: Path
) -> None:
    (tmp_path / "exp.yaml").write_text(EXPERIMENT)
    nodes = two_nodes(primus, tmp_path, TRAIN, PYTHONPATH=third_party)
    assert [node.returncode for node in nodes] == [0, 0], nodes
    assert of_ranks(tmp_path / "output/shared", "countdown") == [(n, 2 * n + r, "info") for n in (0, 1) for r in (0, 1)]
    assert nodes[0].stdout.splitlines()[-1].startswith("iteration 4/4 | loss: 0.00000")


def test_a_recorder_that_has_nothing_to_log_does_not_load_structlog(clean_environ: dict[str, str]) -> None:
    code = "import sys, primus_train.kit.recorder; print('structlog' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=clean_environ, text=True, capture_output=True, check=True)
    assert done.stdout == "False\n"
