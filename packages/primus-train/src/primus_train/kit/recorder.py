"""Records a training: one line per step in `metrics.jsonl` and in the log, and a loss that is not finite.

The worker of a backend makes one `Recorder` and tells it what happens; all figures follow here, so that they mean the
same for every backend (docs/metrics.md):

    recorder = Recorder.of(worker.resolved())
    recorder.clock.step(tokens)                 # at the beginning of each step
    with recorder.clock.saving(): ...           # and evaluating()
    recorder.log(recorder.clock.lap(), Step(step=7, steps=100, loss=2.5, tokens=7168, devices=8))
    recorder.close(asked=100)
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from primus_core.errors import TrainingError
from primus_core.journal.events import TRAINING_BEGAN, TRAINING_ENDED, Events
from primus_core.journal.metrics import Metrics, Validation, append, log_line
from primus_core.logger.logger import STEP, get_logger
from primus_train.failed_loads import FailedLoads
from primus_train.kit import worker
from primus_train.kit.step_clock import Lap, StepClock
from primus_train.kit.waits import Waits
from primus_train.kit.work import ComputeCost

__all__ = ["IN_A_ROW", "Recorder", "Step", "print_line"]

_NOT_FINITE = "loss_not_finite"
IN_A_ROW = 3
"""So many logged steps in a row without a finite loss end a run (`on_non_finite: stop`)."""

_DIGITS = 4
"""To look whether a save is due takes some microseconds; that is no save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a framework knows of a logged step; None: it does not say."""

    step: int
    steps: int
    """Steps that the run was asked for."""
    loss: float
    tokens: int
    """Seen since step 0, over all ranks."""
    devices: int
    """Over which the tokens were spread."""
    lr: float | None = None
    grad_norm: float | None = None
    global_batch_size: int | None = None
    memory_gib: float | None = None
    flops_per_token: float | None = None
    """As the framework counts them: for a plan that has no count."""
    ended_by: str = ""
    """The setting of the framework that ends this run at its first loss like this one."""


def print_line(line: str) -> None:
    """Print a line in one write: `print` could make two, another's may come between, and who reads them wakes twice."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Recorder:
    """One per process. `reports`: this rank writes the file and the events; `say`: how it tells people a line."""

    def __init__(
        self,
        *,
        reports: bool,
        work: ComputeCost,
        on_non_finite: str = "stop",
        run_dir: str = "",
        file: str = "",
        say: Callable[[str], None] | None = print_line,
        clock: StepClock | None = None,
        waits: Waits | None = None,
    ) -> None:
        self.reports, self.work, self.on_non_finite, self.run_dir = reports, work, on_non_finite, run_dir
        self.file, self.say, self.clock = file, say, clock or StepClock()
        self.last_step: int | None = None
        self.saves = False
        """Whether the training saves checkpoints. For the backend to set."""
        self._bad: list[tuple[int, float]] = []
        self._log = get_logger()
        self.waits = waits
        self.clock.on_begin = lambda: self._event(TRAINING_BEGAN, saves=self.saves)
        self.clock.on_step = self._begun if waits else None
        STEP.set(self._step_in_hand)

    @classmethod
    def of(cls, resolved: Mapping[str, Any], say: Callable[[str], None] | None = None) -> Self:
        """The recorder for a plan's `config`, in a worker. Without `say`, only the rank that reports tells people."""
        reports = worker.rank() == resolved["metrics_rank"]
        return cls(
            reports=reports,
            work=ComputeCost(resolved["flops_per_token"], resolved["peak_tflops"]),
            on_non_finite=resolved.get("on_non_finite", "stop"),
            run_dir=str(worker.run_directory()),
            file=worker.metrics_file(),
            say=say or (print_line if reports else None),
            waits=Waits.of_torch(str(worker.run_directory()), worker.rank(), worker.world_size()),
        )

    def log(self, lap: Lap, step: Step) -> None:
        """Write the line of `step`, the last one of `lap`.

        Raises:
            TrainingError: the loss has not been finite for too long.
        """
        self.last_step = step.step
        self._tell(self._metrics(lap, step))
        self._check(step)

    def validation(self, *, step: int, steps: int, loss: float) -> None:
        """Write the line of an evaluation after `step`."""
        self._tell(Validation(step=step, steps=steps, validation_loss=loss, time=time.time()))

    def ended_by(self, setting: str, step: int, why: str) -> TrainingError:
        """The error for a framework whose `setting` ends the run before the loss of `step` is known.

        Perhaps only this rank knows of it: it tells, whichever it is.
        """
        self._event(_NOT_FINITE, level="warning", always=True, step=step, loss="not finite")
        fix = _FIX.format(f"{setting}=false")
        return TrainingError(f"the loss or a gradient is not finite at step {step}", why=why, fix=fix)

    def close(self, asked: int) -> None:
        """The training ended well: its last step, and the saves and evaluations after the last line, are an event.

        Args:
            asked: the step at which it was to end; 0: it was not asked for any.

        Raises:
            TrainingError: it was asked for steps, and made none; or the last loss is not finite.
        """
        if self._bad and self.on_non_finite == "stop":
            raise self._diverged()
        if asked and not self.clock.has_begun:
            raise TrainingError(
                f"no step was made, but training should end at step {asked}",
                why="its first checkpoint is already at that step or a later one",
                fix="increase the number of steps, or start from another checkpoint",
            )
        rest, digits = self.clock.lap(), _DIGITS
        step = asked if self.last_step is None else self.last_step + rest.steps  # not each step has a line
        if self.clock.has_begun and step:
            self._event(
                TRAINING_ENDED,
                step=step,
                save_s=round(rest.save_s, digits),
                evaluation_s=round(rest.evaluation_s, digits),
            )

    def _begun(self) -> None:
        if self.waits:
            self.waits.step(self._step_in_hand(), self.clock.paused_s)

    def _step_in_hand(self) -> int | None:
        """Not known before the first line: the steps that an earlier run made are not counted here."""
        return None if self.last_step is None else self.last_step + self.clock.steps

    def _metrics(self, lap: Lap, step: Step) -> Metrics:
        rate = lap.tokens_per_second
        return Metrics(
            step=step.step,
            steps=step.steps,
            loss=step.loss,
            lr=step.lr,
            grad_norm=step.grad_norm,
            global_batch_size=step.global_batch_size,
            tokens=step.tokens,
            tokens_per_second=rate,
            tokens_per_second_per_gpu=rate / step.devices,
            **self.work.rates(rate / step.devices, step.flops_per_token),
            step_time_s=lap.step_time_s,
            save_s=round(lap.save_s, _DIGITS),
            evaluation_s=round(lap.evaluation_s, _DIGITS),
            memory_gib=step.memory_gib,
            time=time.time(),
        )

    def _tell(self, line: Metrics | Validation) -> None:
        if self.say:
            self.say(log_line(line))
        if self.reports and self.file:
            append(self.file, line)

    def _event(self, name: str, *, level: str = "", always: bool = False, **fields: Any) -> None:
        if self.run_dir and (self.reports or always):
            Events.of_process(self.run_dir).emit(name, level=level, **fields)

    def _check(self, step: Step) -> None:
        if math.isfinite(step.loss):
            self._bad.clear()
            return
        self._bad = [*self._bad[-IN_A_ROW:], (step.step, step.loss)]  # a run that continues may have millions
        if self.on_non_finite != "ignore":
            self._warn(step)
        if step.ended_by or (self.on_non_finite == "stop" and len(self._bad) >= IN_A_ROW):
            raise self._diverged(step.ended_by)

    def _diverged(self, setting: str = "") -> TrainingError:
        """The error, once the checkpoints that have no better weights are marked: the next attempt passes over them."""
        if self.reports and self.run_dir:
            FailedLoads.of_run(Path(self.run_dir)).mark_diverged(self.run_dir)
        return _error(self._bad, setting)

    def _warn(self, step: Step) -> None:
        number, loss = step.step, str(step.loss)
        if not self.reports or len(self._bad) > IN_A_ROW:
            self._event(_NOT_FINITE, level="warning", step=number, loss=loss)
            return
        last = self.on_non_finite == "warn" and len(self._bad) == IN_A_ROW
        silence = "; no further warnings until it is finite again" if last else ""
        self._log.warning(_NOT_FINITE, message=f"the loss of step {number} is {loss}{silence}", step=number, loss=loss)


_FIX = (
    "lower the learning rate, or check the steps before in metrics.jsonl; {} continues despite such a loss, with --new"
)


def _error(bad: list[tuple[int, float]], setting: str) -> TrainingError:
    kinds = " or ".join(dict.fromkeys(str(loss) for _, loss in bad))
    noun = "step" if len(bad) == 1 else "steps"
    return TrainingError(
        f"the loss is {kinds} at {noun} {', '.join(str(step) for step, _ in bad)}",
        why="training diverged: often the learning rate is too high, or the data or a device is faulty",
        fix=_FIX.format(f"{setting}=false" if setting else "on_non_finite=warn"),
    )
