"""MaxText's log in the form of Primus: a line in `metrics.jsonl` and one in the log, per step and evaluation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from primus_core.errors import PrimusError
from primus_core.metrics import Metrics, Validation, tell
from primus_core.work import Work

__all__ = ["SEQUENCES", "StepRecorder", "TrainingError"]

SEQUENCES = "perf/global_batch_size"
"""Among MaxText's metrics of a step: the sequences it was given, of which it trains on a whole batch at most. While the
batch grows (`enable_rampup_batch_size`), or a part of it is loaded (`expansion_factor_real_data`), there are fewer."""


class TrainingError(PrimusError):
    """Training began, and did not reach its end."""

    exit_code = 1


class StepRecorder:
    """Stands where MaxText writes its lines. MaxText counts from 0 the step that others call the first."""

    def __init__(self, *, file: str, reports: bool, work: Work, look: Callable[[], None]) -> None:
        self.file, self.reports, self.work, self.look = file, reports, work, look
        self.done = 0
        """Steps whose loss is known, those of earlier runs included."""
        self.tokens = 0
        """In these steps."""

    def install(self) -> None:
        """Record each step and each evaluation that MaxText logs."""
        from maxtext.common.metric_logger import MetricLogger

        def logged(logger: Any, metrics: Mapping[str, Any], step: int, kind: str) -> None:
            if kind == "train":
                self.record(logger.config, metrics["scalar"], int(step))
            elif kind == "eval" and self.reports:
                found = float(metrics["scalar"]["eval/avg_loss"])
                steps = logger.config.steps
                tell(Validation(step=int(step) + 1, steps=steps, validation_loss=found, time=time.time()), self.file)

        MetricLogger.log_metrics = logged

    def record(self, config: Any, values: Mapping[str, Any], step: int) -> None:
        """Add this step's metrics.

        Raises:
            TrainingError: the loss is no number, over which MaxText would leave without a word.
        """
        loss = float(values["learning/loss"])
        self.done = step + 1
        self.look()
        if (math.isnan(loss) and config.abort_on_nan_loss) or (math.isinf(loss) and config.abort_on_inf_loss):
            raise TrainingError(
                f"the loss of step {step + 1} is {loss}",
                why="training went astray: often the learning rate is too high, or data or a device are bad",
                fix="lower the learning rate, or look at the steps before in metrics.jsonl",
            )
        if self.reports:
            tell(self.metrics(config, values, step, loss), self.file)

    def metrics(self, config: Any, values: Mapping[str, Any], step: int, loss: float) -> Metrics:
        """One step; where the plan has no count of floating-point operations, with MaxText's."""
        import jax

        whole, devices = int(config.global_batch_size_to_train_on), jax.device_count()
        batch = min(whole, int(values.get(SEQUENCES, whole)))
        seconds, tokens = float(values["perf/step_time_seconds"]), batch * config.max_target_length
        self.tokens = (self.tokens or tokens * step) + tokens  # of an earlier run nobody knows more than its steps
        rate = tokens / seconds
        counted = values.get("perf/per_device_tflops_per_sec")
        return Metrics(
            step=step + 1,
            steps=config.steps,
            loss=loss,
            lr=_number(values.get("learning/current_learning_rate")),
            grad_norm=_number(values.get("learning/raw_grad_norm")),
            global_batch_size=batch,
            tokens=self.tokens,
            tokens_per_second=rate,
            tokens_per_second_per_gpu=rate / devices,
            **self.work.rates(rate / devices, _number(counted)),
            step_time_s=seconds,
            memory_gib=_memory(jax.local_devices()[0]),
            time=time.time(),
        )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _memory(device: Any) -> float | None:
    """Peak memory of a device, GiB; a CPU does not say."""
    found = (device.memory_stats() or {}).get("peak_bytes_in_use")
    return None if found is None else found / 2**30
