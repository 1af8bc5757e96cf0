"""What only MaxText itself can refuse ends the run with its sentence, without a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.conftest import Run
from tests.maxtext.conftest import SETTINGS, needs_maxtext


@pytest.mark.full
@needs_maxtext
def test_a_rule_that_the_plan_does_not_know_is_told_in_maxtexts_words(primus: Run, tmp_path: Path) -> None:
    settings = {name: value for name, value in SETTINGS.items() if name != "model"} | {"use_qk_clip": True}
    module = {"framework": "maxtext", "model": SETTINGS["model"], "overrides": settings}
    (tmp_path / "x.yaml").write_text(json.dumps({"exp_name": "x", "modules": {"pre_trainer": module}}))
    refused = primus("direct", "--", "train", "pretrain", "--config", "x.yaml", timeout=300)
    assert refused.returncode == 2, refused.stderr
    assert (
        "ConfigError: MaxText refuses the settings: QK-Clip is only supported when attention_type='mla'"
        in refused.stderr
    )
    assert "Traceback" not in refused.stdout + refused.stderr
