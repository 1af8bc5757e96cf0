"""MaxText's training loop, with an end that says what it was: all steps done, told to end, or out of data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from primus_core.errors import ConfigError, TrainingError
from primus_maxtext.first_step import check_first_step
from primus_maxtext.step_metrics import StepRecorder
from primus_train.kit import replicas

__all__ = ["Loop"]

_PROGRAMS = ("p_train_step", "p_train_step_dropless", "p_train_step_first_phase")
"""A step is one of these; one whose experts overflow is done again by the second."""


class Loop:
    """One training. MaxText itself ends with exit code 0 whatever stopped it."""

    def __init__(self, recorder: StepRecorder, settings: Mapping[str, Any]) -> None:
        """`settings`: of the plan, which the first step is compared with."""
        self.recorder, self.settings = recorder, settings
        self.is_checked = False
        self.stopped = ""
        self.terminated = False
        self.metrics: Any = None
        """Of the newest step; it may still be computed."""
        self.returned = datetime.now()  # noqa: DTZ005  # as MaxText has it

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

        from primus_maxtext.replicas import copies

        theirs = train.training_loop_iteration

        def iteration(state: dict[str, Any], variables: dict[str, Any], fixed: dict[str, Any]) -> Any:
            for name in _PROGRAMS:
                if (program := state.get(name)) and not isinstance(program, _Watched):
                    state[name] = _Watched(program, self, fixed["config"], variables)
            self.recorder.begin()
            try:
                found = theirs(state, variables, fixed)
                self._check(fixed["config"], state["state"], variables["step"])
                replicas.record(lambda: copies(state["state"]))
                if variables["checkpoint_manager"] is None and reached_preemption(None, variables["step"]):
                    raise StopTraining("Job received termination signal (SIGTERM).")
            except StopTraining as stop:
                self._stopped(stop, variables)
                raise
            return found

        train.training_loop_iteration = iteration

    def _check(self, config: Any, state: Any, step: int) -> None:
        if not self.is_checked:
            self.is_checked = True
            check_first_step(self.settings, config, state, int(step))

    def called(self, metrics: Any, batch: int, config: Any, step: int) -> None:
        """The devices have been given a step."""
        self.metrics, self.returned = metrics, datetime.now()  # noqa: DTZ005  # as MaxText has it
        self.recorder.start(config, step, metrics["scalar"], batch)

    def _stopped(self, stop: Exception, variables: dict[str, Any]) -> None:
        """Keep the reason, and the metrics of a step that was done: MaxText stops between a step and its line."""
        self.stopped = str(stop)
        self.terminated = "SIGTERM" in self.stopped
        if self.terminated and variables["checkpoint_manager"] is not None:
            took = self.returned - variables["last_step_completion"]
            variables["metric_logger_instance"].buffer_and_write_metrics(self.metrics, variables["step"], took)


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
        why = "only MaxText itself can check some settings"
        raise ConfigError(
            f"MaxText refuses the settings: {name}{first['msg'].removeprefix('Value error, ')}", why=why
        ) from error


class _Watched:
    """A compiled step that tells the loop of each call."""

    def __init__(self, program: Any, loop: Loop, config: Any, variables: dict[str, Any]) -> None:
        self.program, self.loop, self.config, self.variables = program, loop, config, variables

    def __call__(self, *args: Any) -> Any:
        result = self.program(*args)
        batch = math.prod(args[1]["inputs"].shape[:-1])
        self.loop.called(result[1], batch, self.config, int(self.variables["step"]))
        return result
