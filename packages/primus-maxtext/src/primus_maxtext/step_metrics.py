"""Tells the recorder of Primus what MaxText's loop does: steps, what they gave, evaluations and saves.

JAX computes in the background: a step is done when its loss is there, and MaxText asks for that one step later, or
after a save or an evaluation. Each step's time is taken when its loss is there, and before training stands still.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

from primus_train.kit.recorder import Recorder, Step
from primus_train.kit.step_clock import Lap

__all__ = ["StepRecorder"]


class _Started(NamedTuple):
    """A step that the devices may still be at. `step` counts from 0, as MaxText does."""

    step: int
    tokens: int
    loss: Any


class StepRecorder:
    """Stands where MaxText writes its lines. MaxText counts from 0 the step that others call the first."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.done = 0
        """Steps whose loss is known, those of earlier runs included."""
        self.tokens = 0
        """In these steps."""
        self.started: deque[_Started] = deque()
        self.laps: dict[int, tuple[Lap, int]] = {}
        """Of steps that are done and have no line yet, with their tokens."""
        self.evaluation = ExitStack()

    def install(self) -> None:
        """Record each step and each evaluation that MaxText logs, and take the time of saves."""
        from maxtext.common import checkpointing
        from maxtext.common.metric_logger import MetricLogger

        reset = MetricLogger.reset_eval_metrics

        def evaluates(logger: Any) -> None:
            self.finish()
            self.evaluation.enter_context(self.recorder.clock.evaluating())
            reset(logger)

        def logged(logger: Any, metrics: Mapping[str, Any], step: int, kind: str) -> None:
            if kind == "train":
                self.record(logger.config, metrics["scalar"], int(step))
            elif kind == "eval":
                self.evaluation.close()
                loss = float(metrics["scalar"]["eval/avg_loss"])
                if self.recorder.reports:
                    self.recorder.validation(step=int(step) + 1, steps=logger.config.steps, loss=loss)

        MetricLogger.reset_eval_metrics, MetricLogger.log_metrics = evaluates, logged
        for name in ("save_checkpoint", "wait_until_finished"):
            setattr(checkpointing, name, self._saving(getattr(checkpointing, name)))

    def _saving(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def inside(*args: Any, **kwargs: Any) -> Any:
            self.finish()
            with self.recorder.clock.saving():
                return call(*args, **kwargs)

        return inside

    def begin(self) -> None:
        """An iteration of the loop begins."""
        self.recorder.clock.begin()

    def start(self, config: Any, step: int, scalars: Mapping[str, Any], batch: int) -> None:
        """The devices have been given a step with so many sequences.

        MaxText trains on a whole batch of them at most. While the batch grows (`enable_rampup_batch_size`), or a part
        of it is loaded (`expansion_factor_real_data`), there are fewer.
        """
        if self.started and self.started[-1].step == step:
            self.started.pop()  # it is done again
        sequences = min(int(config.global_batch_size_to_train_on), batch)
        self.started.append(_Started(step, sequences * int(config.max_target_length), scalars["learning/loss"]))

    def finish(self, last: float = math.inf) -> None:
        """Wait until the steps up to `last` are done, and take their times."""
        import jax

        while self.started and self.started[0].step <= last:
            found = self.started.popleft()
            jax.block_until_ready(found.loss)
            self.recorder.clock.step(found.tokens)
            self.laps[found.step] = self.recorder.clock.lap(), found.tokens

    def record(self, config: Any, values: Mapping[str, Any], step: int) -> None:
        """Add this step's line."""
        self.finish(step)
        self.done = step + 1
        lap, tokens = self.laps.pop(step)
        self.tokens = (self.tokens or tokens * step) + tokens  # of an earlier run nobody knows more than its steps
        self.recorder.log(lap, self._step(config, values, step, tokens))

    def _step(self, config: Any, values: Mapping[str, Any], step: int, tokens: int) -> Step:
        import jax

        loss, devices = float(values["learning/loss"]), jax.device_count()
        counted = values.get("perf/per_device_tflops")  # of a whole batch
        whole = int(config.global_batch_size_to_train_on) * int(config.max_target_length)
        return Step(
            step=step + 1,
            steps=config.steps,
            loss=loss,
            lr=_number(values.get("learning/current_learning_rate")),
            grad_norm=_number(values.get("learning/raw_grad_norm")),
            global_batch_size=tokens // int(config.max_target_length),
            tokens=self.tokens,
            devices=devices,
            memory_gib=_memory(jax.local_devices()[0]),
            flops_per_token=None if counted is None else float(counted) * 1e12 * devices / whole,
            ended_by=_ended_by(config, loss),
        )


def _ended_by(config: Any, loss: float) -> str:
    if math.isnan(loss) and config.abort_on_nan_loss:
        return "abort_on_nan_loss"
    return "abort_on_inf_loss" if math.isinf(loss) and config.abort_on_inf_loss else ""


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _memory(device: Any) -> float | None:
    """Peak memory of a device, GiB; a CPU does not say."""
    found = (device.memory_stats() or {}).get("peak_bytes_in_use")
    return None if found is None else found / 2**30
