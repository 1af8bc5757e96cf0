"""Real failures under each backend, as their ranks logged them (captures/README.md): the cause comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_diagnose import diagnose

CAPTURES = Path(__file__).parent / "captures"
CAUSES = {
    "exception": "python.exception",
    "missing-module": "py.module_missing",
    "learning-rate": "num.nan_log",
    "memory": "oom.host_python",
    "vocabulary": "config.vocabulary",
    "damaged-checkpoint": "ckpt.truncated",
}
RANK = {"torchtitan": 1, "megatron": 1, "maxtext": 0}
"""Which raised the exception."""
FOLDERS = sorted(f"{one.parent.name}/{one.name}" for one in CAPTURES.glob("*/*/"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_cause_of_a_captured_failure_comes_first(folder: str) -> None:
    framework, _, failure = folder.partition("/")
    verdict = diagnose([str(CAPTURES / folder)])
    if failure == "well":
        assert (verdict.answer, verdict.cause) == ("nothing", None)
        return
    assert verdict.cause
    assert (verdict.cause.signature, verdict.confidence != "possible") == (CAUSES[failure], True)
    if failure == "exception":
        assert (verdict.cause.title, verdict.cause.first.rank) == (
            "An exception ended the program: KeyError",
            RANK[framework],
        )
