"""TorchTitan's metrics in the form of Primus: a line in `metrics.jsonl` and one in the log, per step and evaluation.

The processor is a subclass with a nested `Config`, which is how TorchTitan lets its components be replaced.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.metrics import BaseLogger, LoggerContainer, MetricsProcessor
from torchtitan.tools.logging import logger

from primus_core.metrics import Metrics, Validation, append, log_line
from primus_core.work import Work

__all__ = ["PrimusMetrics"]

_VALIDATION = "validation_metrics/loss"
Sink = Callable[[Metrics | Validation], None]


class StepRecorder(BaseLogger):  # type: ignore[misc]  # TorchTitan ships no types
    """Receives the metrics of each logged step and each evaluation, and hands them on in the form of Primus."""

    def __init__(self, *, steps: int, batch: int, world: int, work: Work, sinks: tuple[Sink, ...]) -> None:
        self.steps, self.batch, self.world, self.work, self.sinks = steps, batch, world, work, sinks
        self.last_step: int | None = None
        self.last_time = time.perf_counter()

    def begin(self, step: int) -> None:
        """The first step of this process starts now: what came before it was loading."""
        if self.last_step is None:
            self.last_step, self.last_time = step - 1, time.perf_counter()

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Called by TorchTitan. Validation comes here too, and is not a step."""
        now = time.perf_counter()
        record: Metrics | Validation
        if _VALIDATION in metrics:
            record = Validation(
                step=step, steps=self.steps, validation_loss=float(metrics[_VALIDATION]), time=time.time()
            )
        else:
            record = self.metrics(metrics, step, now)
            self.last_step, self.last_time = step, now
        for sink in self.sinks:
            sink(record)

    def metrics(self, found: Mapping[str, Any], step: int, now: float) -> Metrics:
        """One step, translated. TorchTitan's tps counts tokens per second and device."""
        lr = next((value for name, value in found.items() if name.startswith("lr/")), None)
        return Metrics(
            step=step,
            steps=self.steps,
            loss=found["loss_metrics/global_avg_loss"],
            lr=lr,
            grad_norm=found["grad_norm"],
            global_batch_size=self.batch,
            tokens=int(found["n_tokens_seen"]),
            tokens_per_second=found["throughput(tps)"] * self.world,
            tokens_per_second_per_gpu=found["throughput(tps)"],
            **self.work.rates(found["throughput(tps)"], found["tflops"]),
            step_time_s=(now - self.last_time) / max(step - (self.last_step or 0), 1),
            memory_gib=found["memory/max_reserved(GiB)"],
            time=time.time(),
        )


class PrimusMetrics(MetricsProcessor):  # type: ignore[misc]  # as above
    """TorchTitan's processor, with a recorder among its loggers and without its own line per step."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):  # type: ignore[misc]  # as above
        """What the recorder must know besides TorchTitan's settings."""

        steps: int = 0
        global_batch_size: int = 0
        file: str = ""
        metrics_rank: int = 0
        flops_per_token: int | None = None
        peak_tflops: float | None = None

    recorder: StepRecorder

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        logger.addFilter(_not_the_step_line)

    def _build_metric_logger(self, *, config: Any, parallel_dims: Any, pp_schedule: str, **kwargs: Any) -> BaseLogger:
        theirs = super()._build_metric_logger(
            config=config, parallel_dims=parallel_dims, pp_schedule=pp_schedule, **kwargs
        )
        self.recorder = StepRecorder(
            steps=config.steps,
            batch=config.global_batch_size,
            world=parallel_dims.world_size,
            work=Work(config.flops_per_token, config.peak_tflops),
            sinks=_sinks(config, _has_loss(parallel_dims, pp_schedule)),
        )
        container = LoggerContainer()
        container.add_logger(self.recorder)
        container.add_logger(theirs)
        return container

    def should_log(self, step: int) -> bool:
        """Called first in each step, so the first call is where the clock starts."""
        if self.recorder.last_step is None:
            self.recorder.begin(step)
            self.time_last_log = time.perf_counter()
        return bool(super().should_log(step))


def _sinks(config: Any, has_loss: bool) -> tuple[Sink, ...]:
    sinks: list[Sink] = []
    if has_loss:
        sinks.append(lambda metrics: logger.info(log_line(metrics)))
    if config.file and torch.distributed.get_rank() == config.metrics_rank:
        sinks.append(lambda metrics: append(config.file, metrics))
    return tuple(sinks)


def _has_loss(parallel_dims: Any, pp_schedule: str) -> bool:
    """With pipeline parallelism only the ranks of the last stage know the loss (of the first, in a V schedule)."""
    if not parallel_dims.pp_enabled:
        return True
    stage = parallel_dims.get_mesh("pp").get_local_rank()
    return bool(stage == (0 if pp_schedule == "ZBVZeroBubble" else parallel_dims.pp - 1))


def _not_the_step_line(record: logging.LogRecord) -> bool:
    """Drops `step: 1  loss: ...`: the line of Primus says the same, in the form that all backends share."""
    return not (record.module == "metrics" and record.funcName in ("log", "log_validation"))
