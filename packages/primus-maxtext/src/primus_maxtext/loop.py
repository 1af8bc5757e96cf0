"""MaxText's training loop, with an end that says what it was: all steps done, told to end, or out of data."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from primus_core.errors import ConfigError
from primus_maxtext.step_metrics import SEQUENCES, StepRecorder, TrainingError

__all__ = ["Loop"]


class Loop:
    """One training. MaxText itself ends with exit code 0 whatever stopped it."""

    def __init__(self, recorder: StepRecorder) -> None:
        self.recorder = recorder
        self.stopped = ""
        self.terminated = False

    def run(self, words: list[str]) -> None:
        """Train with a command line of MaxText's.

        Raises:
            TrainingError: training ended before its last step, and nobody asked for it.
        """
        from maxtext.trainers.pre_train import train

        config, recorder = _initialized(train, words)
        self._install(train)
        train.run(config, recorder)
        if self.stopped and not self.terminated:
            raise TrainingError(
                f"training ended after step {self.recorder.done} of {config.steps}",
                why=self.stopped,
                fix="give it more data, raise num_epoch, or ask for fewer steps",
            )

    def _install(self, train: Any) -> None:
        """Stand around each step."""
        from maxtext.common.checkpointing import reached_preemption
        from maxtext.utils.exceptions import StopTraining

        theirs = train.training_loop_iteration

        def iteration(state: dict[str, Any], variables: dict[str, Any], fixed: dict[str, Any]) -> Any:
            if not isinstance(state["p_train_step"], _Remembering):
                state["p_train_step"] = _Remembering(state["p_train_step"])
            try:
                found = theirs(state, variables, fixed)
                if variables["checkpoint_manager"] is None and reached_preemption(None, variables["step"]):
                    raise StopTraining("Job received termination signal (SIGTERM).")
            except StopTraining as stop:
                self._stopped(stop, state["p_train_step"], variables)
                raise
            if _evaluates(fixed, variables["step"]):  # it is no part of the next step
                variables["last_step_completion"] = datetime.now()  # noqa: DTZ005  # as MaxText has it
            return found

        train.training_loop_iteration = iteration

    def _stopped(self, stop: Exception, step: _Remembering, variables: dict[str, Any]) -> None:
        """Keep the reason, and the metrics of a step that was done: MaxText stops between a step and its line."""
        self.stopped = str(stop)
        self.terminated = "SIGTERM" in self.stopped
        if self.terminated and variables["checkpoint_manager"] is not None:
            took = step.returned - variables["last_step_completion"]
            variables["metric_logger_instance"].buffer_and_write_metrics(step.metrics, variables["step"], took)


def _initialized(train: Any, words: list[str]) -> Any:
    """MaxText's configuration.

    Raises:
        ConfigError: MaxText has a rule that the plan does not know.
    """
    from pydantic import ValidationError

    try:
        return train.initialize(words)
    except ValidationError as error:
        first = error.errors()[0]
        name = "".join(f"'{part}': " for part in first["loc"])
        why = "of some settings, only MaxText itself knows what they need"
        raise ConfigError(
            f"MaxText refuses the settings: {name}{first['msg'].removeprefix('Value error, ')}", why=why
        ) from error


def _evaluates(fixed: dict[str, Any], step: int) -> bool:
    """Whether there was an evaluation after the step, by MaxText's own rule."""
    first: int = fixed["eval_start_step"]
    return fixed["eval_interval"] > 0 and step >= first and (step - first) % fixed["eval_interval"] == 0


class _Remembering:
    """A compiled step that keeps the metrics of its last call, and when it returned."""

    def __init__(self, step: Any) -> None:
        self.step = step
        self.metrics: Any = None
        self.returned = datetime.now()  # noqa: DTZ005  # as MaxText has it

    def __call__(self, *args: Any) -> Any:
        result = self.step(*args)
        self.metrics, self.returned = result[1], datetime.now()  # noqa: DTZ005
        self.metrics["scalar"][SEQUENCES] = math.prod(args[1]["inputs"].shape[:-1])
        return result
