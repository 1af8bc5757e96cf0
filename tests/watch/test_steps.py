"""Steps that are odd are reported with their number; those of healthy runs are not."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Run

from primus_watch.plugin import Plugin
from primus_watch.steps.rules import Report, Watch

TASKS = '''
"""Logs steps as a training does: a spike of the loss at step 60, each 50th step slow."""
import os, random
from primus_core import register_task
from primus_core.journal.metrics import Metrics, append

@register_task("steps", scope="rank")
def steps(call):
    "steps TOTAL [odd]"
    chance, odd = random.Random(1), "odd" in call.words
    for step in range(1, int(call.words[0]) + 1):
        loss = 9.0 if odd and step == 60 else 4.0 * step**-0.1 + chance.gauss(0, 0.05)
        seconds = 0.9 if odd and step % 50 == 0 else abs(chance.gauss(0.4, 0.02))
        append(os.environ["PRIMUS_METRICS_FILE"], Metrics(step=step, steps=200, loss=loss, grad_norm=1.0, step_time_s=seconds))
'''


def healthy(seed: int, count: int = 400) -> Iterator[dict[str, float | int | None]]:
    """A loss that falls with noise, gradients that are large at first, steps of which the first is slow."""
    chance = random.Random(seed)
    for step in range(1, count + 1):
        yield {
            "step": step,
            "loss": 11.0 * step**-0.25 + chance.gauss(0, 0.1),
            "grad_norm": 0.5 + 20 / step + abs(chance.gauss(0, 0.3)),
            "step_time_s": 30.0 if step == 1 else 0.4 * math.exp(chance.gauss(0, 0.08)),
        }


def reported(rows: Iterator[dict[str, float | int | None]], **changed: dict[int, float | None]) -> list[Report]:
    watch = Watch()
    found: list[Report] = []
    for row in rows:
        step = row["step"]
        assert isinstance(step, int)
        row.update({name: values[step] for name, values in changed.items() if step in values})
        found += watch.reports(row)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_run_gives_no_report(seed: int) -> None:
    assert reported(healthy(seed)) == []


@pytest.mark.parametrize(
    ("changed", "event", "steps"),
    [
        ({"loss": {150: 9.0}}, "loss_spike", [150]),
        ({"grad_norm": {150: 900.0}}, "grad_norm_spike", [150]),
        ({"grad_norm": {150: None, 151: None}}, "grad_norm_not_finite", [150, 151]),
        ({"step_time_s": dict.fromkeys(range(50, 401, 50), 1.2)}, "slow_step", list(range(50, 401, 50))),
    ],
)
def test_an_odd_step_is_reported_with_its_number(
    changed: dict[str, dict[int, float | None]], event: str, steps: list[int]
) -> None:
    found = reported(healthy(1), **changed)
    assert [(one.event, one.step) for one in found] == [(event, step) for step in steps]
    assert [one.warns for one in found].count(True) == 1


def test_a_slow_step_is_a_warning_when_it_comes_again() -> None:
    found = reported(healthy(1), step_time_s=dict.fromkeys(range(50, 401, 50), 1.2))
    assert [one.step for one in found if one.warns] == [150]


def test_a_new_level_is_not_odd_for_ever() -> None:
    found = reported(healthy(1), step_time_s=dict.fromkeys(range(100, 401), 1.2))
    assert max(one.step for one in found) <= 200


def test_after_a_restart_the_start_is_not_looked_at() -> None:
    watch = Watch()
    for row in healthy(1, 100):
        assert not list(watch.reports(row))
    assert not list(watch.reports({"step": 50, "loss": 2.0, "step_time_s": 30.0, "grad_norm": None}))


@pytest.mark.parametrize(
    "row", [{}, {"step": "x"}, {"step": 1, "loss": None}, {"step": 2, "loss": "9", "grad_norm": []}]
)
def test_a_line_that_says_nothing_is_no_report(row: dict[str, object]) -> None:
    assert list(Watch().reports(row)) == []


@pytest.mark.torch
@pytest.mark.full
def test_the_console_and_the_events_of_a_run_name_the_step(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS, encoding="utf-8")
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n", encoding="utf-8")
    done = primus("direct", "--single", "--", "steps", "200", "odd", cwd=tmp_path)
    console = done.stdout + done.stderr
    assert console.count("primus: warning: ") == 2
    assert "primus: warning: the loss of step 60 is 9, and was " in console
    assert "primus: warning: step 150 took 0.9 s, others 0.4" in console
    [file] = tmp_path.glob("output/steps_2*/logs/events.jsonl")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    odd = [(row["event"], row["step"]) for row in rows if row["event"] in ("loss_spike", "slow_step")]
    assert odd == [("slow_step", 50), ("loss_spike", 60), ("slow_step", 100), ("slow_step", 150), ("slow_step", 200)]
    quiet = primus("direct", "--single", "--", "steps", "200", cwd=tmp_path)
    assert "warning" not in quiet.stdout + quiet.stderr


@pytest.mark.full
def test_the_limits_of_primus_yaml_are_those_that_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("loss_spike", "grad_norm_spike", "slow_step", "slow_rank", "rank_pause", "slow_gpu")
    text = "".join(f"  {name}: {number}.5\n" for number, name in enumerate(names, 11))
    (tmp_path / "primus.yaml").write_text(f"watch:\n{text}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    plugin = Plugin()
    found = {rule.name: rule.factor for rule in plugin._watch._rules}
    found |= {rule.name: rule.factor for rule in (plugin._ranks._slow, plugin._ranks._pause)}
    found["slow_gpu"] = plugin._health._gpus._rules.factor
    assert found == {name: number + 0.5 for number, name in enumerate(names, 11)}


def test_a_factor_decides_what_is_odd() -> None:
    steps = [{"step": step, "loss": 9.0 if step == 60 else 3.0 + step % 2 / 100} for step in range(1, 80)]
    for factor, events in ((1.3, ["loss_spike"]), (4.0, [])):
        watch = Watch({"loss_spike": factor})
        assert [one.event for step in steps for one in watch.reports(step)] == events
