"""Tells the recorder of Primus what TorchTitan's trainer does: steps, what they gave, evaluations and saves.

The processor is a subclass with a nested `Config`, which is how TorchTitan lets its components be replaced.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torchtitan.components import metrics as titan_metrics
from torchtitan.components.metrics import BaseLogger, LoggerContainer, MetricsProcessor
from torchtitan.tools.logging import logger

from primus_train.kit import worker
from primus_train.kit.recorder import Recorder, Step

__all__ = ["PrimusMetrics", "first_attempts_folder", "install"]

_VALIDATION = "validation_metrics/loss"
_FLOPS = 1e12


class StepLogger(BaseLogger):  # type: ignore[misc]  # TorchTitan ships no types
    """Receives the metrics of each logged step and each evaluation, and hands them on to the recorder."""

    def __init__(self, recorder: Recorder, *, steps: int, batch: int, world: int, has_loss: bool) -> None:
        self.recorder, self.steps, self.batch, self.world, self.has_loss = recorder, steps, batch, world, has_loss

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Called by TorchTitan. Validation comes here too, and is not a step."""
        if _VALIDATION in metrics:
            if self.has_loss:
                self.recorder.validation(step=step, steps=self.steps, loss=float(metrics[_VALIDATION]))
            return
        lap = self.recorder.clock.lap()
        self.recorder.last_step = step
        if self.has_loss:
            self.recorder.log(lap, self.step(metrics, step))

    def step(self, found: Mapping[str, Any], step: int) -> Step:
        """One step, translated. TorchTitan's tps counts tokens per second and device."""
        lr = next((value for name, value in found.items() if name.startswith("lr/")), None)
        tps = found["throughput(tps)"]
        return Step(
            step=step,
            steps=self.steps,
            loss=found["loss_metrics/global_avg_loss"],
            lr=lr,
            grad_norm=found["grad_norm"],
            global_batch_size=self.batch,
            tokens=int(found["n_tokens_seen"]),
            devices=self.world,
            flops_per_token=found["tflops"] * _FLOPS / tps if tps else None,
            memory_gib=found["memory/max_reserved(GiB)"],
        )


class PrimusMetrics(MetricsProcessor):  # type: ignore[misc]  # as above
    """TorchTitan's processor, with a recorder among its loggers and without its own line per step."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):  # type: ignore[misc]  # as above
        """What the recorder must know besides TorchTitan's settings."""

        steps: int = 0
        global_batch_size: int = 0
        tokens_per_step: int = 0
        plan: dict[str, Any] = field(default_factory=dict)
        """What `Recorder.of` reads of the plan. No settings: TorchTitan hands its configuration on to W&B."""

    recorder: Recorder

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        logger.addFilter(_not_the_step_line)

    def _build_metric_logger(self, *, config: Any, parallel_dims: Any, pp_schedule: str, **kwargs: Any) -> BaseLogger:
        with _one_tensorboard_folder():
            theirs = super()._build_metric_logger(
                config=config, parallel_dims=parallel_dims, pp_schedule=pp_schedule, **kwargs
            )
        self.recorder = Recorder.of(config.plan, say=logger.info)
        if self.recorder.waits and parallel_dims.pp_enabled:
            self.recorder.waits.group = f"pipeline stage {parallel_dims.get_mesh('pp').get_local_rank()}"
        container = LoggerContainer()
        container.add_logger(
            StepLogger(
                self.recorder,
                steps=config.steps,
                batch=config.global_batch_size,
                world=parallel_dims.world_size,
                has_loss=_has_loss(parallel_dims, pp_schedule),
            )
        )
        container.add_logger(theirs)
        return container

    def should_log(self, step: int) -> bool:
        """Called first in each step. The last one is logged, too: a run whose loss is lost has not completed."""
        self.recorder.clock.step(self.config.tokens_per_step)
        return bool(super().should_log(step)) or step == self.config.steps


@contextmanager
def _one_tensorboard_folder() -> Iterator[None]:
    """Have further attempts of the run write for TensorBoard where the first one did.

    TorchTitan names a folder after the minute. TensorBoard would show each as a run of its own, and the steps that were
    made again twice.
    """
    logger_of = titan_metrics.TensorBoardLogger

    def create(log_dir: str, *args: Any, **kwargs: Any) -> Any:
        return logger_of(first_attempts_folder(log_dir, str(worker.run_directory())), *args, **kwargs)

    titan_metrics.TensorBoardLogger = create
    try:
        yield
    finally:
        titan_metrics.TensorBoardLogger = logger_of


def first_attempts_folder(folder: str, run: str) -> str:
    """Return `folder` with the minute of the run's first attempt. Outside the run, other runs write, too."""
    match = re.fullmatch(r"(.*/)(\d{8}-\d{4})(/.*)?", folder)
    if not match or not folder.startswith(f"{run}/") or not os.path.isdir(match[1]):
        return folder
    first = min((name for name in os.listdir(match[1]) if re.fullmatch(r"\d{8}-\d{4}", name)), default=match[2])
    return f"{match[1]}{first}{match[3] or ''}"


def install(trainer: Any) -> Recorder:
    """Take the time in which the trainer stands still; its recorder."""
    recorder: Recorder = trainer.metrics_processor.recorder
    for name in ("save", "maybe_wait_for_staging", "close"):
        _during(recorder.clock.saving, trainer.checkpointer, name)
    if trainer.config.validator.enable:
        _during(recorder.clock.evaluating, trainer.validator, "validate")
    return recorder


def _during(state: Callable[[], Any], part: Any, name: str) -> None:
    theirs = getattr(part, name)

    def inside(*args: Any, **kwargs: Any) -> Any:
        with state():
            return theirs(*args, **kwargs)

    setattr(part, name, inside)


def _has_loss(parallel_dims: Any, pp_schedule: str) -> bool:
    """With pipeline parallelism only the ranks of the last stage know the loss (of the first, in a V schedule)."""
    if not parallel_dims.pp_enabled:
        return True
    stage = parallel_dims.get_mesh("pp").get_local_rank()
    return bool(stage == (0 if pp_schedule == "ZBVZeroBubble" else parallel_dims.pp - 1))


def _not_the_step_line(record: logging.LogRecord) -> bool:
    """Drops `step: 1  loss: ...`: the line of Primus says the same, in the form that all backends share."""
    return not (record.module == "metrics" and record.funcName in ("log", "log_validation"))
