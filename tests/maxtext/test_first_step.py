"""What a continuation announces is what MaxText's optimizer and schedule hold after the first step, or the run ends."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from primus_core.errors import TrainingError
from primus_maxtext.first_step import check_first_step

SETTINGS = {
    "learning_rate": 1e-4, "steps": 60, "adam_weight_decay": 0.3, "gradient_clipping_threshold": 0.5,
    "learning_rate_schedule_steps": -1, "lr_schedule_type": "cosine", "per_device_batch_size": 2.0,
}  # fmt: skip
USED = {**SETTINGS, "learning_rate_schedule_steps": 60, "lr_schedule_type": SimpleNamespace(value="cosine"),
        "skip_step_on_spikes": True}  # fmt: skip
"""With the last one, the optimizer's counts are not looked at, which needs jax."""
COUNTS = """
import sys
from types import SimpleNamespace
from primus_maxtext.first_step import check_first_step
state = {"optimizer": {"opt_state": [{"count": int(sys.argv[1]), "mu": 0.0}, {"count": int(sys.argv[1])}], "count": 0}}
check_first_step({}, SimpleNamespace(), state, 30)
"""


def test_settings_that_are_used_are_no_difference() -> None:
    check_first_step(SETTINGS, SimpleNamespace(**USED), {}, 30)


@pytest.mark.parametrize(
    ("used", "why"),
    [
        ({"learning_rate": 3e-3}, "learning_rate: 0.0001 set, 0.003 used"),
        ({"adam_weight_decay": 0.1}, "adam_weight_decay: 0.3 set, 0.1 used"),
        ({"steps": 30}, "steps: 60 set, 30 used"),
        ({"lr_schedule_type": SimpleNamespace(value="wsd")}, "lr_schedule_type: cosine set, wsd used"),
    ],
)
def test_a_difference_ends_the_run_by_name(used: dict[str, Any], why: str) -> None:
    with pytest.raises(TrainingError) as refused:
        check_first_step(SETTINGS, SimpleNamespace(**{**USED, **used}), {}, 30)
    assert refused.value.why == why


@pytest.mark.full
@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="maxtext is not installed")
@pytest.mark.parametrize(("count", "said"), [(31, ""), (1, "step of the schedule: 31 made, 1 counted")])
def test_a_schedule_that_is_at_another_step_ends_the_run(count: int, said: str, clean_environ: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", COUNTS, str(count)], env=clean_environ, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert (done.returncode == 0) == (not said), done.stderr
    assert said in done.stderr
