"""A test's task as one plain process on each node: torchrun costs two seconds of a core on each at every start."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write"]

_MODULE = """
import os, sys
from types import SimpleNamespace
from {name}_task import {name}
from primus_core.plugins.contracts import TaskPlan
from primus_core.plan.plan import Worker

class Task:
    name, scope, epilog = "{name}", "rank", ""

    def add_arguments(self, parser):
        parser.rest_to("words", checked=False)

    def plan(self, call):
        return TaskPlan(call.place("output", "{name}"), Worker("plain_{name}", tuple(call.words), "one-per-node"))

TASK = Task()

if __name__ == "__main__":
    rank, world_size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    call = SimpleNamespace(words=sys.argv[1:], rank=rank, world_size=world_size, run_dir=os.environ["PRIMUS_RUN_DIR"])
    raise SystemExit({name}(call))
"""


def write(folder: Path, name: str, text: str) -> str:
    """Install the task `name`, a function of that name in `text`, in `folder`, which goes on PYTHONPATH."""
    about = folder / f"plain_{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Name: plain-{name}\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[primus.tasks]\n{name} = plain_{name}:TASK\n", encoding="utf-8")
    (folder / f"plain_{name}.py").write_text(_MODULE.format(name=name), encoding="utf-8")
    (folder / f"{name}_task.py").write_text(text, encoding="utf-8")
    return str(folder)
