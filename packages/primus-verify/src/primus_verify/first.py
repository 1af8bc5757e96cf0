"""`train --verify`: a step before the ranks that verifies the training's own layout (`primus.training_modes`)."""

from __future__ import annotations

import os
import sys

from primus_core.errors import RequestError
from primus_core.plan.plan import EXPERIMENT, Step, Variable
from primus_core.plugins.contracts import TaskCall, TaskPlan
from primus_train.modes import Training
from primus_verify.layouts import left_out, scaled_down
from primus_verify.resolving import find_verifier
from primus_verify.task import BEFORE_TRAINING

__all__ = ["FIRST", "RESULT", "VerifyFirst"]

RESULT = "verify.json"
"""What came of it, in the directory of the training."""
_VARIABLE = "PRIMUS_VERIFY"
_MOST_RANKS = 4


class VerifyFirst:
    """The mode that `--verify` asks for, or PRIMUS_VERIFY=1."""

    def environment(self, training: Training) -> tuple[Variable, ...]:
        """None: the ranks train as without it."""
        del training
        return ()

    def plan(self, training: Training, call: TaskCall, task: TaskPlan) -> TaskPlan:
        """The training, with the step; without it if the layout is one rank."""
        asked = training.environ.get(_VARIABLE, "")
        if asked not in ("0", "1"):
            raise RequestError(f"{_VARIABLE} is '{asked}'", why="known: 0 (off), 1 (on)", fix=f"{_VARIABLE}=1")
        if asked == "0":
            return task
        verifier = find_verifier(task.framework)
        most = min(_MOST_RANKS, call.distributed.world_size)
        settings = _settings(task)
        layout = scaled_down(verifier.own(settings), verifier.rank_axes, most)
        # of fewer ranks, all are there: what has no place is a rest of none
        whole = most if call.distributed.world_size > most else sys.maxsize
        missing = [f"--verify: not tried: {one.name}: {one.why}" for one in left_out(verifier, settings, whole)]
        task = task._replace(notes=(*task.notes, *missing))
        if not layout:
            return task._replace(notes=(*task.notes, "--verify: one rank has no layout to verify"))
        run = task.place.directory
        words = ["verify", "--config", os.path.join(run, EXPERIMENT), "--layouts", layout, BEFORE_TRAINING]
        if not call.distributed.node_rank:  # each node verifies on its own devices; one tells
            words += ["--output", os.path.join(run, RESULT)]
        command = (call.facts.python, "-m", "primus_core", "direct", "--", *words)
        return task._replace(prepare=(*task.prepare, Step("verify", command, call.facts.cwd)))


FIRST = VerifyFirst()
"""What the entry point names."""


def _settings(task: TaskPlan) -> dict[str, object]:
    """The settings of the experiment, as its file in the run directory has them."""
    import yaml

    text = next(file.text for file in task.files if file.path == EXPERIMENT)
    (module,) = yaml.safe_load(text)["modules"].values()
    return {**module["overrides"], "model": module["model"], "data": module["data"]}
