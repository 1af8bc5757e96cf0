"""Backends of other teams join by their package alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.conftest import ROOT, Run
from tests.core.test_joined_plugins import EXPERIMENT
from tests.lab import countdown

from primus_core.installed import joined
from primus_train.backend import Backend


@pytest.mark.full
def test_a_backend_of_another_package_trains(primus: Run, third_party: str, tmp_path: Path) -> None:
    (tmp_path / "down.yaml").write_text(EXPERIMENT)
    env = {"PYTHONPATH": third_party}
    result = primus("direct", "--single", "--", "train", "pretrain", "--config", "down.yaml", "loss.start=8", env=env)
    assert result.returncode == 0, result.stderr
    assert "iteration 4/4 | loss: 0.00000" in result.stdout
    rows = [json.loads(line) for line in (tmp_path / "output/down/metrics.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in rows] == [6.0, 4.0, 2.0, 0.0]
    assert "loss   6.0000 at step 1 → 0.0000 at step 4" in result.stderr


def test_its_settings_are_checked_with_file_line_and_suggestion(primus: Run, third_party: str, tmp_path: Path) -> None:
    (tmp_path / "down.yaml").write_text(EXPERIMENT.replace("steps:", "stesp:"))
    result = primus("direct", "--", "train", "pretrain", "--config", "down.yaml", env={"PYTHONPATH": third_party})
    assert result.returncode == 2
    assert "down.yaml:6: countdown has no setting 'stesp'" in result.stderr
    assert "did you mean 'steps'?" in result.stderr


@pytest.mark.whole
def test_a_broken_backend_does_not_stop_a_file_that_is_not_its_own(
    primus: Run, third_party: str, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    (site / "sad-1.0.dist-info").mkdir(parents=True)
    (site / "sad-1.0.dist-info/entry_points.txt").write_text("[primus.backends]\naaa = sad_module:SAD\n")
    (tmp_path / "odd.yaml").write_text("exp_name: x\nsomething: 1\n")
    result = primus("direct", "--", "train", "pretrain", "--config", "odd.yaml",
                    env={"PYTHONPATH": f"{third_party}:{site}"})  # fmt: skip
    assert result.returncode == 2
    assert "odd.yaml:2: unknown key 'something'" in result.stderr


def test_a_bug_in_a_backend_is_told_with_its_package(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "down.yaml").write_text(EXPERIMENT)
    site = countdown.install(tmp_path / "site")
    (tmp_path / "site/plain_countdown.py").write_text("class Backend:\n    stages = 1 / 0\n")
    loaded = primus("direct", "--", "train", "pretrain", "--config", "down.yaml", env={"PYTHONPATH": site})
    assert loaded.returncode == 3
    assert "the backend 'countdown' of plain-countdown 1.0 cannot be loaded" in loaded.stderr
    text = "from acme_primus.countdown import Countdown\n\n\nclass Broken(Countdown):\n    def resolve(self, call):\n"
    (tmp_path / "site/plain_countdown.py").write_text(f"{text}        return 1 / 0\n\n\nBACKEND = Broken()\n")
    ran = primus("direct", "--", "train", "pretrain", "--config", "down.yaml", env={"PYTHONPATH": site})
    assert ran.returncode == 3
    assert "error: plain-countdown 1.0 is broken\n  why: `Broken.resolve` raised ZeroDivisionError" in ran.stderr


def test_what_is_checked_of_a_backend_is_its_interface_and_on_the_page() -> None:
    names = {name for name in (*vars(Backend), *Backend.__annotations__) if not name.startswith("_")}
    optional = {"translate", "profiling", "paths", "migration"}
    assert set(joined.lacking("primus.backends", object())) == names - optional
    table = (
        (ROOT / "docs/plugins.md").read_text(encoding="utf-8").partition("## Add a backend")[2].partition("In `res")[0]
    )
    assert set(re.findall("`(\\w+)`", " ".join(re.findall(r"^\| (`.*?`) \|", table, re.M)))) == names


def test_a_backend_that_lacks_a_member_or_plans_nothing_is_named(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "down.yaml").write_text(EXPERIMENT)
    env = {"PYTHONPATH": countdown.install(tmp_path / "site")}
    words = ("direct", "--", "train", "pretrain", "--config", "down.yaml")
    text = "from acme_primus.countdown import Countdown\n\n\nclass Odd(Countdown):\n    def resolve(self, call): ...\n"
    (tmp_path / "site/plain_countdown.py").write_text(f"{text}\n\nBACKEND = Odd()\n")
    empty = primus(*words, env=env)
    assert (empty.returncode, "it must return BackendPlan, and returned NoneType" in empty.stderr) == (3, True), (
        empty.stderr
    )
    (tmp_path / "site/plain_countdown.py").write_text("class Odd:\n    name = 'countdown'\n\n\nBACKEND = Odd()\n")
    incomplete = primus(*words, env=env)
    assert incomplete.returncode == 3
    assert "it lacks stages, presets, adopt, resolve" in incomplete.stderr
