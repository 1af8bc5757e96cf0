"""Run directories for tests of reports: whole ones, with the metrics, events and attempts that a test wants."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.core import run_directories
from tests.core.run_directories import STARTED

__all__ = ["STARTED", "THREE_ATTEMPTS", "add_lines", "line", "lines", "make", "three_attempts"]

CPU = {"physical_gpus": 0, "gpus": [], "gpu_model": "", "rocm": "", "driver": ""}


def line(step: int, at: float, **fields: Any) -> dict[str, Any]:
    """A line of metrics of `step`, `at` seconds after the run began; a step takes one second."""
    return {
        "step": step, "steps": 1000, "loss": 8.0 / (1 + step / 100), "lr": 1e-3, "grad_norm": 1.0,
        "global_batch_size": 8, "tokens": step * 1024, "tokens_per_second": 1024.0, "tokens_per_second_per_gpu": 128.0,
        "tflops_per_gpu": 100.0, "mfu": 0.4, "step_time_s": 1.0, "save_s": 0.0, "evaluation_s": 0.0,
        "memory_gib": 100.0, "time": STARTED + at, **fields,
    }  # fmt: skip


def lines(first: int, last: int, at: float, **fields: Any) -> list[dict[str, Any]]:
    """A line a step; the first one ends `at`, and each further one a second later."""
    return [line(step, at + step - first, **fields) for step in range(first, last + 1)]


def add_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add JSON lines to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def make(
    folder: Path,
    rows: Iterable[Mapping[str, Any]] = (),
    *,
    name: str = "small_2026_11_21_101526",
    events: Sequence[Mapping[str, Any]] = (),
    **parts: Any,
) -> Path:
    """A run directory with these lines of metrics and events; `parts` as `run_directories.make` takes them."""
    directory = run_directories.make(folder, name, **parts)
    add_lines(directory / "metrics.jsonl", rows)
    add_lines(directory / "logs/events.jsonl", ({"level": "info", "node": 0, **one} for one in events))
    return directory


THREE_ATTEMPTS: Mapping[str, float] = {
    "start": 10 + 20,  # before the first attempt, and in it before the first step
    "useful": 40 + 40 + 20,  # steps 1 to 40, 41 to 80, 81 to 100
    "repeated": 10 + 5,  # 41 to 50 of the first attempt, 81 to 85 of the second
    "failure": 10 + 15,  # from the last line to the end
    "restart": 5 + 20 + 5 + 15,  # between two attempts, and in a later one before its first step
    "checkpoint": 2 + 2 + 1,  # one of the second and third attempt's lines each, and the one after the last line
    "evaluation": 4,
    "end": 3 + 2,
}
"""Seconds by cause of `three_attempts`, counted by hand."""


def three_attempts(folder: Path, **parts: Any) -> Path:
    """A run of 8 GPUs that fails twice. Checkpoints of steps 40 and 80; each attempt has a line a step, of a second."""
    first = lines(1, 50, 31)  # begins to train after 30 s, ends its last line at 80
    second = lines(41, 85, 116)  # attempt: 95 to 177; trains from 115
    second = [{**row, "time": row["time"] + (2 if row["step"] >= 60 else 0)} for row in second]
    second[60 - 41]["save_s"] = 2.0  # the last line at 162
    third = lines(81, 100, 198)  # attempt: 182 on; trains from 197
    third = [{**row, "time": row["time"] + (6 if row["step"] >= 90 else 0)} for row in third]
    third[90 - 81] |= {"save_s": 2.0, "evaluation_s": 4.0}  # the last line at 223
    attempts = [
        {
            "started": STARTED + 10,
            "ended": STARTED + 90,
            "exit_code": 137,
            "last_step": 50,
            "what": "rank 3: ended by SIGKILL",
        },
        {
            "started": STARTED + 95,
            "ended": STARTED + 177,
            "exit_code": 1,
            "last_step": 85,
            "what": "rank 1: ValueError: boom",
        },
        {"started": STARTED + 182, "ended": STARTED + 227, "exit_code": 0, "last_step": 100, "what": ""},
    ]
    events = [
        {"time": STARTED + 70, "event": "checkpoint_saved", "step": 40, "path": "checkpoints/step-40"},
        {"time": STARTED + 157, "event": "checkpoint_saved", "step": 80, "path": "checkpoints/step-80"},
        {"time": STARTED + 224, "event": "training_ended", "step": 100, "save_s": 1.0, "evaluation_s": 0.0},
    ]
    known = {"attempts": attempts, "ended": STARTED + 229, "last_step": 100, **parts.pop("metadata", {})}
    return make(folder, [*first, *second, *third], events=events, metadata=known, **parts)
