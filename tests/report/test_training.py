"""A report of a run that really trained: its figures are those of its files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import median

import pytest
from tests.conftest import Run
from tests.torchtitan import quickstart

from primus_report.figures.goodput import _NOISE_S

pytestmark = [pytest.mark.full, pytest.mark.torch]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that the tests of TorchTitan share."""
    pytest.importorskip("torchtitan", reason="torchtitan is not installed")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "torchtitan-whole"
    return quickstart.shared(folder, *quickstart.WHOLE).run


def test_the_figures_of_a_training_are_those_of_its_files(trained: Path, primus: Run) -> None:
    [run] = json.loads(primus("report", str(trained), "--json").stdout)["runs"]
    rows, known = quickstart.rows(trained), json.loads((trained / "metadata.json").read_text())
    figures, window = {name: one["value"] for name, one in run["figures"].items()}, run["window"]
    inside = [row for row in rows if window["first_step"] <= row["step"] <= window["last_step"]]
    for name in ("tokens_per_second", "step_time_s", "tflops_per_gpu"):
        assert figures[name] == median(row[name] for row in inside), name
    assert figures["last_loss"] == known["last_loss"]
    wall = known["ended"] - known["started"]
    assert figures["wall_s"] == pytest.approx(wall)
    assert figures["goodput"] == pytest.approx(sum(row["step_time_s"] for row in rows) / wall)
    parts = {part["cause"]: part["seconds"] for part in run["time"]}
    assert sum(parts.values()) == pytest.approx(wall, abs=_NOISE_S), "steps are rounded"
    assert abs(parts["other"]) < 0.1, "every moment has its place"
    assert run["identity"]["framework"] == "torchtitan"
    assert figures["gpu_hours"] == 0
