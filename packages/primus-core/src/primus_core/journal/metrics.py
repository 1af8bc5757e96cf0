"""Step metrics in one schema for every backend: a JSON object a line in `metrics.jsonl`, and one log line.

`primus_train.kit.recorder` makes one `Metrics` per logged step, and one `Validation` per evaluation; the supervisor
follows the file. What the figures mean stands in docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from primus_core.journal import events

__all__ = ["Metrics", "OnNonFinite", "Validation", "append", "is_step", "log_line"]

OnNonFinite = Literal["stop", "warn", "ignore"]
"""What follows losses that are not finite, as experiments say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """One logged step. None: the framework does not say. Throughput counts tokens of the whole job."""

    step: int
    steps: int
    """Steps that the run was asked for."""
    loss: float
    """Not a finite number: null in the file."""
    lr: float | None = None
    grad_norm: float | None = None
    global_batch_size: int | None = None
    """Sequences per optimizer step, over all ranks."""
    tokens: int | None = None
    """Tokens seen since step 0, over all ranks."""
    tokens_per_second: float | None = None
    """Times `step_time_s`, the tokens of a step."""
    tokens_per_second_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    mfu: float | None = None
    """Model FLOPs utilisation, 0 to 1; None where the device's peak is not known."""
    step_time_s: float | None = None
    """Training time of a step, the mean since the line before (`primus_train.kit.step_clock`)."""
    save_s: float | None = None
    """Time in saves since the line before."""
    evaluation_s: float | None = None
    """Time in evaluations since the line before."""
    memory_gib: float | None = None
    """Peak memory reserved on the reporting rank's device."""
    time: float | None = None
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """One evaluation: a line of its own, since it comes after that of its step."""

    step: int
    steps: int
    validation_loss: float
    """Of data that are not trained on."""
    time: float | None = None


def is_step(row: Mapping[str, Any]) -> bool:
    """Whether a line of the file tells of a step, and not of an evaluation."""
    return "validation_loss" not in row


def append(path: str, metrics: Metrics | Validation) -> None:
    """Add one line to `path`, or say that it is lost."""
    events.append(path, asdict(metrics))


def log_line(metrics: Metrics | Validation) -> str:
    """The line that a person follows, the same for every backend (fields that the framework lacks are left out)."""
    m = metrics
    if isinstance(m, Validation):
        return f"iteration {m.step}/{m.steps} | validation loss: {m.validation_loss:.5f}"
    parts = [
        f"iteration {m.step}/{m.steps}",
        m.step_time_s is not None and f"elapsed time per iteration (ms): {m.step_time_s * 1e3:.1f}",
        m.lr is not None and f"learning rate: {m.lr:.6E}",
        m.global_batch_size is not None and f"global batch size: {m.global_batch_size}",
        f"loss: {m.loss:.5f}",
        m.grad_norm is not None and f"grad norm: {m.grad_norm:.3f}",
        m.tokens_per_second is not None and f"throughput: {m.tokens_per_second:.1f} tokens/s",
        m.tokens is not None and f"tokens: {m.tokens}",
        m.tflops_per_gpu is not None and f"TFLOP/s/GPU: {m.tflops_per_gpu:.4g}",
        m.mfu is not None and f"MFU: {m.mfu:.1%}",
    ]
    return " | ".join(part for part in parts if part)
