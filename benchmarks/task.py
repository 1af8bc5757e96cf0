"""The smallest task there is: it runs a program, the module `measured_program`, on every rank."""

from __future__ import annotations

from pathlib import Path

__all__ = ["NAME", "PROGRAM", "install"]

NAME, PROGRAM = "measured", "measured_program"
_TASK = f'''"""Run the program."""
from primus_core.plugins.contracts import TaskPlan
from primus_core.plan.plan import Worker


class Task:
    name, scope, epilog = "{NAME}", "rank", ""

    def add_arguments(self, parser): ...

    def plan(self, call):
        return TaskPlan(call.place("output", "{NAME}"), Worker("{PROGRAM}"))


TASK = Task()
'''


def install(folder: Path, program: str) -> None:
    """Put the task and its program in `folder`, as a package that is found with this in PYTHONPATH."""
    (folder / f"{PROGRAM}.py").write_text(program)
    (folder / "measured_task.py").write_text(_TASK)
    metadata = folder / "measured-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text(f"[primus.tasks]\n{NAME} = measured_task:TASK\n")
