"""The figures of one run: speed in the steady-state window, what it came to, what it cost, memory, distribution."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from primus_core.plan.plan import METRICS
from primus_machine.gpus import models
from primus_report.figures.attempts import Held
from primus_report.figures.documents import items, whole
from primus_report.figures.figure import Figure, percentile, unknown
from primus_report.figures.goodput import TimeShare
from primus_report.figures.records import Records
from primus_report.figures.settings import Identity
from primus_report.figures.steady import Window
from primus_report.figures.steps import Steps

__all__ = ["cost", "distribution", "memory", "results", "speed"]

_WINDOW = (
    ("tokens_per_second", "throughput", "tokens/s"),
    ("tokens_per_second_per_gpu", "throughput per device", "tokens/s"),
    ("tflops_per_gpu", "model FLOP/s per device", "TFLOP/s"),
    ("mfu", "MFU", "share"),
    ("step_time_s", "step time", "s"),
)
"""Medians over the steady-state window."""
_SHARES = (
    ("step_time_p10_s", "step time, 10th percentile", 0.1),
    ("step_time_p90_s", "step time, 90th percentile", 0.9),
    ("step_time_p99_s", "step time, 99th percentile", 0.99),
    ("step_time_max_s", "longest step", 1.0),
)


def speed(steps: Steps, window: Window | None, no_window: str) -> dict[str, Figure]:
    """Throughput, MFU and step time in the steady-state window."""
    return {name: _median(steps, window, no_window, name, title, unit) for name, title, unit in _WINDOW}


def results(steps: Steps) -> dict[str, Figure]:
    """Losses and steps."""
    count = float(steps.step[-1]) if steps else None
    loss = steps.last("loss")
    return {
        "last_loss": _or("last loss", loss, "", "loss"),
        "last_step": Figure("last step", count, "steps", f"{METRICS}: step", "" if steps else "no step was logged"),
        "asked_steps": _or("requested steps", steps.asked, "steps", "steps"),
        "last_validation_loss": _or(
            "last validation loss", steps.validations[-1][1] if steps.validations else None, "", "validation_loss"
        ),
    }


def _or(title: str, value: float | None, unit: str, field_: str) -> Figure:
    if value is None:
        return unknown(title, unit, f"no line of {METRICS} has `{field_}` as a finite number")
    return Figure(title, float(value), unit, f"{METRICS}: {field_}, the newest")


def _median(steps: Steps, window: Window | None, no_window: str, name: str, title: str, unit: str) -> Figure:
    if not window:
        return unknown(title, unit, no_window)
    values = steps.known(name, window.first, window.end)
    if not values:
        return unknown(title, unit, f"no line of the steady-state window has {name}")
    return Figure(title, median(values), unit, f"{METRICS}: {name}, median of {len(values)} lines, {_of(window)}")


def _of(window: Window) -> str:
    return f"steps {window.first_step} to {window.last_step}"


def distribution(steps: Steps, window: Window | None, no_window: str) -> dict[str, Figure]:
    """How step times are spread, and by how much their mean is above their median."""
    values = sorted(steps.known("step_time_s", window.first, window.end)) if window else []
    if not window or not values:
        return {name: unknown(title, "s", no_window) for name, title, _ in _SHARES}
    source = f"{METRICS}: step_time_s, {_of(window)}"
    found = {name: Figure(title, percentile(values, share), "s", source) for name, title, share in _SHARES}
    usual = median(values)
    found["variation"] = Figure(
        "step time above its median", max(fmean(values) / usual - 1, 0.0) if usual else 0.0, "share", source
    )
    return found


def memory(steps: Steps, identity: Identity, of_run: Records) -> dict[str, Figure]:
    """The peak, beside what a device has."""
    values = steps.known("memory_gib")
    title = "peak memory of the reporting rank"
    peak = Figure(title, max(values), "GiB", f"{METRICS}: memory_gib, the highest") if values else None
    return {
        "memory_gib": peak or unknown(title, "GiB", f"no line of {METRICS} has memory_gib"),
        "memory_of_device_gib": _memory_of_device(identity, of_run),
    }


def _memory_of_device(identity: Identity, of_run: Records) -> Figure:
    title = "memory of a device"
    if not identity.gpus:
        return unknown(title, "GiB", "the run used no GPU")
    model = next((one for one in models.load() if one.name == identity.gpu_model), None)
    if not model:
        return unknown(title, "GiB", "the memory of this GPU is not known")
    size = model.memory_gb * 1e9 / 2**30 / _partitions(of_run)
    return Figure(title, size, "GiB", "the data sheet of the GPU (gpus.toml)")


def _partitions(of_run: Records) -> float:
    """Partitions of a GPU count as what they are."""
    devices, known = len(items(of_run.system.get("gpus"))), whole(of_run.system.get("physical_gpus"))
    return max(devices / known, 1.0) if known and known > 0 else 1.0


_COST = (
    ("goodput", "goodput", "share"),
    ("wall_s", "wall time", "s"),
    ("device_hours", "device-hours", "h"),
    ("gpu_hours", "GPU-hours", "GPU-h"),
)


def cost(time: Sequence[TimeShare], held: Held | None, identity: Identity, price: float | None) -> dict[str, Figure]:
    """Goodput, wall time, hours, and what they cost at `price` for an hour of a GPU."""
    if not held:
        return {
            name: unknown(title, unit, "when the run began or ended was not recorded") for name, title, unit in _COST
        }
    hours = held.seconds * identity.gpus / 3600
    useful = next((part.share for part in time if part.is_useful), None)
    good = Figure("goodput", useful, "share", "useful step time ÷ wall time, over all devices")
    if useful is None:
        good = unknown("goodput", "share", f"no line of {METRICS} has step_time_s")
    rest = f", {held.queued_s:.0f} s in the queue left out" if held.queued_s else ""
    found = {
        "goodput": good,
        "wall_s": Figure("wall time", held.seconds, "s", f"{held.source}{rest}"),
        "device_hours": Figure("device-hours", held.seconds * identity.devices / 3600, "h", "wall time × devices"),
        "gpu_hours": Figure(
            "GPU-hours", hours, "GPU-h", "wall time × GPUs" if identity.gpus else "the run used no GPU"
        ),
    }
    return found | ({} if price is None else {"cost": Figure("cost", hours * price, "", f"GPU-hours × {price:g}")})
