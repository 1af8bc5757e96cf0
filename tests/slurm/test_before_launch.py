"""`--preflight` on a real cluster: where one node is not fit, no node starts, and each attempt looks again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run

CHECKS = """
from primus_preflight.checks.check import Check
from primus_preflight.checks.rule import Rule

def lamp(node, rule):
    yield rule.word("", node.host.text(f"{node.run_dir}/../../lamps/{node.facts.hostname}") or "green")

def checks():
    return (Check("rack.lamp", "the lamp is green", (), lamp, Rule("rack.lamp", allowed=("green",), fix="call us")),)
"""
TASKS = '''
"""Breaks a node."""
from primus_core import register_task

@register_task("break", scope="rank")
def broken(call):
    "break NODE: its lamp turns red, and the start fails."
    from pathlib import Path
    print("started", flush=True)
    if call.rank == 0:
        Path("lamps", call.words[0]).write_text("red")
        raise ValueError("the start fails")
'''


@pytest.fixture
def site(tmp_path: Path, on_cluster: dict[str, str]) -> dict[str, str]:
    """A project that asks each node for its lamp alone."""
    about = tmp_path / "packages/acme_rack-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: acme-rack\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[primus.checks]\nrack = acme_rack:checks\n")
    (tmp_path / "packages/acme_rack.py").write_text(CHECKS)
    (tmp_path / "break.py").write_text(TASKS)
    (tmp_path / "primus.yaml").write_text("plugins: [./break.py]\npreflight: {only: ['rack.*']}\n")
    (tmp_path / "lamps").mkdir()
    return {**on_cluster, "PYTHONPATH": str(tmp_path / "packages")}


def run_of(folder: Path) -> tuple[Path, dict[str, Any], list[str]]:
    """Its directory, what is known of it, and the steps that its nodes started."""
    run = (folder / "output/break").resolve()
    events = [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines()]
    steps = [event["name"] for event in events if event["event"] == "step_started"]
    return run, json.loads((run / "metadata.json").read_text()), steps


def test_one_node_that_is_not_fit_keeps_all_from_starting(primus: Run, tmp_path: Path, site: dict[str, str]) -> None:
    (tmp_path / "lamps/node2").write_text("red")
    done = primus("slurm", "--preflight", "srun", "-N2", "--nodelist=node[1-2]", "--", "break", "node1", env=site)
    assert done.returncode == 1, done.stderr
    assert "FAIL    rack.lamp" in done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("primus: preflight failed") <= 1, "one console, one block"
    run, known, steps = run_of(tmp_path)
    assert steps == ["preflight", "preflight"]
    assert known["status"] == "failed"
    assert known["first_failure"]["what"] == "preflight: not fit to train: node2 (rack.lamp)"
    assert (run / "preflight/failing_nodes.txt").read_text() == "node2\n"


def test_each_attempt_looks_again_and_believes_no_earlier_one(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    words = ("--max-restarts", "1", "srun", "-N2", "--nodelist=node[1-2]", "--preflight", "--", "break", "node2")
    done = primus("slurm", *words, env=site)
    assert done.returncode == 1, done.stderr
    run, known, steps = run_of(tmp_path)
    first, second = known["attempts"]
    assert first["what"] == "ValueError: the start fails"
    assert second["what"] == "preflight: not fit to train: node2 (rack.lamp)"
    assert (steps.count("preflight"), steps.count("worker")) == (4, 2)

    assert json.loads((run / "preflight_1/node2.json").read_text())["verdict"] == "pass"
    assert json.loads((run / "preflight/node2.json").read_text())["verdict"] == "fail"
