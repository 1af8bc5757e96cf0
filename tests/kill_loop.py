"""Kills a training's ranks again and again while it saves, and watches its checkpoints. A command, too:

    python -m tests.kill_loop maxtext 8

At no moment is there no whole checkpoint, once there was one; what is not the framework's stays as it is.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.conftest import MARK, all_gone, checksums, wait_until
from tests.end_cells import Cell, project_of, whole_steps
from tests.project import TASK, Project, rows
from tests.tensorboard import read_steps

__all__ = ["SETTINGS", "kill_while_it_saves"]

SETTINGS = {
    "torchtitan": ("training.steps=100000", "checkpoint.interval=3", "checkpoint.keep_latest_k=2"),
    "megatron": (
        "train_iters=100000",
        "save_interval=3",
        "save_retain_interval=99999",
        "tensorboard_dir=board",
        "tensorboard_log_interval=1",
    ),
    "maxtext": ("steps=100000", "checkpoint_period=3", "max_num_checkpoints_to_keep=2", "enable_tensorboard=true"),
}
_FOREIGN = {
    "torchtitan": ("best-step-3/mine.txt", "step-99990/mine.txt", "notes.txt"),
    "megatron": ("best_iter_0000003/mine.txt", "iter_9999990/mine.txt", "notes.txt"),
    "maxtext": ("best-3/mine.txt", "99990/mine.txt", "notes.txt"),
}
_EMPTY = {"torchtitan": "step-99991", "megatron": "iter_9999991", "maxtext": "99991"}
_PATIENCE_S = 280
_LONGEST_S = 1.5
"""A save and what follows take about so long."""


def kill_while_it_saves(backend: str, project: Project, kills: int, seed: int, *words: str) -> list[str]:
    """Return what is wrong, one line each."""
    dice, environ = random.Random(seed), {"GPUS_PER_NODE": "2" if backend != "maxtext" else "1", MARK: uuid.uuid4().hex}
    name = f"kills-{seed}"
    command = ("direct", "--grace-period", "120", "--max-restarts", "9", *TASK)
    process = project.start(*command, *SETTINGS[backend], *words, f"exp_name={name}", **environ)
    link, cell, wrong = project.folder / "output" / name, Cell(backend, "save"), list[str]()
    try:
        wait_until(lambda: process.poll() is not None or (link / "metrics.jsonl").exists(), _PATIENCE_S)
        run = link.resolve()
        before = dict(_add_foreign(backend, run / "checkpoints"))
        had = False
        for kill in range(kills):
            seen = _newest_folders(run)
            wait_until(lambda seen=seen: process.poll() is not None or _newest_folders(run) - seen, _PATIENCE_S)  # type: ignore[misc]
            ends = time.monotonic() + dice.random() * _LONGEST_S
            while time.monotonic() < ends and process.poll() is None:
                had, fault = _look(cell, run, had=had)
                wrong += [f"before kill {kill}: {fault}"] if fault else []
            for pid in dice.sample(found := _ranks(run), dice.randint(1, max(1, len(found)))):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            had, fault = _look(cell, run, had=had)
            wrong += [f"after kill {kill}: {fault}"] if fault else []
            count = len(rows(run))
            wait_until(lambda count=count: process.poll() is not None or len(rows(run)) > count, _PATIENCE_S)  # type: ignore[misc]
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=_PATIENCE_S)
    finally:
        process.kill()
        process.communicate(timeout=60)
    wait_until(lambda: all_gone(environ), 60)
    if process.returncode != 143:
        wrong.append(f"exit code {process.returncode}: {said[-3000:]}")
    steps, last = whole_steps(cell, run), rows(run)[-1]["step"]
    if max(steps, default=0) < last:
        wrong.append(f"step {last} is not saved: {sorted(steps)}: {said[-3000:]}")
    after = checksums(run / "checkpoints")
    wrong += [f"{path} was touched" for path, text in before.items() if after.get(path) != text]
    if not (run / "checkpoints" / _EMPTY[backend]).is_dir():
        wrong.append(f"{_EMPTY[backend]} is gone")
    return wrong + [f"TensorBoard shows step {step} twice" for step in shown_twice(run)]


def shown_twice(run: Path) -> list[int]:
    """The steps that TensorBoard shows twice: two folders are two curves, and in one a mark drops what came before."""
    folders: dict[Path, set[int]] = {}
    for file in sorted(run.rglob("*tfevents*"), key=lambda file: file.stat().st_mtime):
        purged, steps = read_steps(file)
        before = folders.setdefault(file.parent, set())
        folders[file.parent] = {step for step in before if purged is None or step < purged}
        if twice := folders[file.parent] & steps:
            return sorted(twice)
        folders[file.parent] |= steps
    every = [step for steps in folders.values() for step in steps]
    return sorted({step for step in every if every.count(step) > 1})


def _add_foreign(backend: str, folder: Path) -> Iterator[tuple[str, str]]:
    for name in _FOREIGN[backend]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of the person's own")
        yield str(path), checksums(path.parent)[str(path)]
    (folder / _EMPTY[backend]).mkdir(parents=True, exist_ok=True)


def _newest_folders(run: Path) -> set[str]:
    with suppress(OSError):
        return set(os.listdir(run / "checkpoints"))
    return set()


def _look(cell: Cell, run: Path, *, had: bool) -> tuple[bool, str]:
    """Whether there is a whole checkpoint; what is wrong if there was one and is none."""
    for _ in range(3):  # the one that is looked at may be deleted since a newer one is whole
        with suppress(OSError):
            if whole_steps(cell, run):
                return True, ""
    return had, "no whole checkpoint" if had else ""


def _ranks(run: Path) -> list[int]:
    """The processes of the ranks."""
    place, found = f"PRIMUS_RUN_DIR={run}\0".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if b"primus_core.programs.rank\0" in (folder / "cmdline").read_bytes() and (
                place in (folder / "environ").read_bytes() and b"\0RANK=" in (folder / "environ").read_bytes()
            ):
                found.append(int(folder.name))
    return sorted(found)


def main(argv: list[str]) -> int:
    """`BACKEND KILLS [SEED [SETTING...]]`."""
    backend, kills, *rest = argv
    project = project_of(backend, Path(tempfile.mkdtemp(prefix=f"kill-loop-{backend}-")))
    seed = int(rest[0]) if rest else 1
    wrong = kill_while_it_saves(backend, project, int(kills), seed, *rest[1:])
    print(f"{backend}, {kills} kills, seed {seed}:", "ok" if not wrong else "\n  ".join(("WRONG", *wrong)))
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
