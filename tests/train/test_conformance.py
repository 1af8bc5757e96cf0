"""The conformance suite itself: a backend of another team passes it, and a careless one does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
from acme_primus.countdown import COUNTDOWN, Countdown
from primus_train.backend import BackendPlan
from primus_core.plan.plan import Worker
from primus_train.testing import BackendConformance

class TestCountdown(BackendConformance):
    backend = COUNTDOWN
    settings = {"steps": 3}
    misspelt = ("stesp", "steps")
    frameworks = ("torch",)

class Careless(Countdown):
    def resolve(self, call):
        return BackendPlan(Worker("acme_primus.countdown"), dict(call.config))

class TestCareless(TestCountdown):
    backend = Careless()
"""


@pytest.mark.full
def test_a_good_backend_passes_and_a_careless_one_fails(third_party: str, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(SUITE)
    environ = {**os.environ, "PYTHONPATH": f"{third_party}:{tmp_path}"}
    result = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
                            env=environ, cwd=tmp_path, text=True, capture_output=True, check=False)  # fmt: skip
    assert "1 failed, 17 passed" in result.stdout, result.stdout
    assert "'stesp' was accepted" in result.stdout
