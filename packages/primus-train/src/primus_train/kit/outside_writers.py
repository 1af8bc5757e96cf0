"""What Weights & Biases and TensorBoard must know of a run, so that a restart resumes it and loses nothing.

An attempt of a run that begins again reports to the same run of W&B. A run that continues another has its own, in the
same group, and names it. TensorBoard drops the steps after a checkpoint when they are made again from it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from primus_core.plan.plan import RunPlace, Variable
from primus_core.runs.names import parse_name
from primus_train.kit import worker

__all__ = ["OutsideWriters", "wandb_variables"]

_LONGEST = 128
"""So many characters may the id of a run of W&B have."""


def wandb_variables(place: RunPlace, continues: str = "") -> tuple[Variable, ...]:
    """Return the environment of a run that reports to W&B. What the person sets stands."""
    name = parse_name(place.run_id)
    why = "a further attempt resumes this run of Weights & Biases"
    found = [
        Variable("WANDB_RUN_ID", place.run_id[-_LONGEST:], "wandb", why),
        Variable("WANDB_RESUME", "allow", "wandb", why),
        Variable("WANDB_RUN_GROUP", name.exp_name if name else place.run_id, "wandb", "runs of one experiment"),
    ]
    if continues:
        text = f"starts from a checkpoint of {os.path.basename(continues)}"
        found.append(Variable("WANDB_NOTES", text, "wandb", "the run whose checkpoint it starts from"))
    return tuple(found)


def _has_trained() -> bool:
    """Return whether an earlier attempt of this run has made steps."""
    file = worker.metrics_file()
    return bool(file) and os.path.exists(file) and os.path.getsize(file) > 0


class OutsideWriters:
    """The writers of TensorBoard and W&B in a worker."""

    def __init__(self, module: str = "", resumed: int | None = None) -> None:
        """`module`: where `SummaryWriter` is; empty: there is none. `resumed`: the step that training resumes after.

        Writers that are made later drop what an earlier attempt wrote after that step, or all of it where it left none.
        """
        self.open: list[Any] = []
        if module:
            kind = importlib.import_module(module).SummaryWriter
            if resumed is None and _has_trained():
                resumed = -1
            kind.__init__ = self._created(kind.__init__, {} if resumed is None else {"purge_step": resumed + 1})

    def _created(self, theirs: Callable[..., None], usual: Mapping[str, Any]) -> Callable[..., None]:
        def create(writer: Any, *args: Any, **kwargs: Any) -> None:
            theirs(writer, *args, **{**usual, **kwargs})
            self.open.append(writer)

        return create

    def flush(self) -> None:
        """Write out what they hold, before the process ends, and the service of W&B with it."""
        for writer in self.open:
            writer.flush()
        wandb = sys.modules.get("wandb")
        if wandb is not None and getattr(wandb, "run", None) is not None:
            wandb.finish()
