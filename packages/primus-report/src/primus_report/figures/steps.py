"""The steps of a run, from its `metrics.jsonl`: a column a field, so that a run of a million steps fits in memory."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field

from primus_core.journal.metrics import is_step
from primus_core.plan.plan import METRICS
from primus_report.figures import documents

__all__ = ["COLUMNS", "Steps", "read"]

COLUMNS = (
    "time", "loss", "lr", "grad_norm", "tokens", "tokens_per_second", "tokens_per_second_per_gpu", "tflops_per_gpu",
    "mfu", "step_time_s", "save_s", "evaluation_s", "memory_gib",
)  # fmt: skip
"""The fields of a line beside `step`; docs/metrics.md says what they mean."""


@dataclass(slots=True)
class Steps:
    """All lines of steps, in the order of the file. A number that a line lacks is NaN."""

    step: array[int] = field(default_factory=lambda: array("q"))
    columns: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in COLUMNS})
    validations: list[tuple[int, float]] = field(default_factory=list)
    """Step and loss of each evaluation."""
    asked: int | None = None
    """Steps that the run was asked for."""
    unread: int = 0
    """Lines that are no step and no evaluation."""

    def __len__(self) -> int:
        return len(self.step)

    def known(self, name: str, first: int = 0, end: int | None = None) -> list[float]:
        """The numbers of a column, without the lines that have none."""
        return [value for value in self.columns[name][first:end] if not math.isnan(value)]

    def last(self, name: str) -> float | None:
        """The number of the newest line that has one."""
        return next((value for value in reversed(self.columns[name]) if not math.isnan(value)), None)


def read(directory: str) -> Steps:
    """The steps of the run in `directory`; none where it logged nothing."""
    found = Steps()
    for row in documents.lines(f"{directory}/{METRICS}"):
        step = documents.whole(row.get("step"))
        if step is None:
            found.unread += 1
        elif not is_step(row):
            loss = documents.number(row["validation_loss"])
            found.validations += [] if loss is None else [(step, loss)]
        elif "loss" not in row:
            found.unread += 1
        else:
            found.step.append(step)
            found.asked = documents.whole(row.get("steps")) or found.asked
            for name, column in found.columns.items():
                value = documents.number(row.get(name))
                column.append(math.nan if value is None else value)
    return found
