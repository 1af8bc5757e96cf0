"""The backend of `tests/third_party`, installed without pip, with one plain process on each node."""

from __future__ import annotations

from pathlib import Path

__all__ = ["EXPERIMENT", "install"]

_SOURCES = Path(__file__).parent.parent / "third_party/acme-primus/src"
_MODULE = """
from dataclasses import replace
from acme_primus.countdown import Countdown

class Plain(Countdown):
    def resolve(self, call):
        planned = super().resolve(call)
        return replace(planned, worker=planned.worker._replace(launcher="one-per-node"))

BACKEND = Plain()
"""
EXPERIMENT = """\
exp_name: count
workspace: ./output
modules:
  pre_trainer:
    framework: countdown
    model: {name: any}
    overrides:
      steps: 2
      loss: {start: 5.0}
"""


def install(folder: Path) -> str:
    """Install it in `folder`: what goes on PYTHONPATH."""
    about = folder / "plain_countdown-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: plain-countdown\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(
        "[primus.backends]\ncountdown = plain_countdown:BACKEND\n", encoding="utf-8"
    )
    (folder / "plain_countdown.py").write_text(_MODULE, encoding="utf-8")
    return f"{folder}:{_SOURCES}"
