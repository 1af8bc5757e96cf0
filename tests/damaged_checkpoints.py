"""Continues a training whose newest checkpoint has files of the right size and other content."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.end_cells import FOLDERS, STEPS, STEPS_OF, Cell, whole_steps
from tests.project import TASK, Project, rows

__all__ = ["continue_damaged"]


def continue_damaged(backend: str, project: Project, ranks: int) -> list[str]:
    """Continue it twice: by the same command after it failed, and by an automatic restart. What is wrong, line by line."""
    words = (*TASK, "exp_name=damaged")
    project("direct", *words, GPUS_PER_NODE=str(ranks))
    run = (project.folder / "output/damaged").resolve()
    before = _damage_newest(backend, run)
    longer = (*words, f"{STEPS_OF[backend]}={STEPS + 3}", "--continue")
    found = []
    failed = project.run("direct", *longer, GPUS_PER_NODE=str(ranks))
    if failed.returncode != 1:
        found.append(f"the damaged checkpoint: {failed.returncode}, {failed.stderr[-3000:]}")
    if "what          TrainingError: the checkpoint cannot be loaded: " not in failed.stderr:
        found.append(f"the first failure does not name the checkpoint: {failed.stderr[-3000:]}")
    if f"{shlex.join(longer)}    # continues {run.name} again" not in failed.stderr:
        found.append(f"no command that continues: {failed.stderr[-3000:]}")
    again = project.run("direct", *longer, GPUS_PER_NODE=str(ranks))
    run = (project.folder / "output/damaged").resolve()
    if again.returncode or [row["step"] for row in rows(run)] != list(range(before + 1, STEPS + 4)):
        found.append(f"again: {again.returncode}, {[row['step'] for row in rows(run)]}, {again.stderr[-3000:]}")
    if "it could not be loaded (" not in again.stderr:
        found.append(f"no word of the checkpoint that is passed over: {again.stderr}")
    before = _damage_newest(backend, run)
    longer = (*words, f"{STEPS_OF[backend]}={STEPS + 6}", "--continue")
    restarted = project.run("direct", "--max-restarts", "1", *longer, GPUS_PER_NODE=str(ranks))
    run = (project.folder / "output/damaged").resolve()
    if restarted.returncode or [row["step"] for row in rows(run)] != list(range(before + 1, STEPS + 7)):
        found.append(f"restarted: {restarted.returncode}, {rows(run)}, {restarted.stderr[-3000:]}")
    return found


def _damage_newest(backend: str, run: Path) -> int:
    """Overwrite the largest file of the newest checkpoint; the step of the one before."""
    *_, before, newest = sorted(whole_steps(Cell(backend, "last"), run))
    number = newest - 1 if backend == "maxtext" else newest
    files = [path for path in (run / "checkpoints" / FOLDERS[backend].format(number)).rglob("*") if path.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size)
    largest.write_bytes(bytes(largest.stat().st_size))
    return before
