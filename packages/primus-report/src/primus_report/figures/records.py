"""What a run directory says of itself beside its metrics: metadata, plan, machine, and the events that have a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from primus_core.journal.events import CHECKPOINT_SAVED, FILE, TRAINING_ENDED
from primus_core.plan.plan import BACKEND_CONFIG, PLAN
from primus_report.figures import documents
from primus_report.figures.documents import mapping, number, whole

__all__ = ["Events", "Records", "devices", "read"]


@dataclass(frozen=True, slots=True)
class Events:
    """The events that figures need, each with its time."""

    checkpoints: tuple[int, ...] = ()
    """Steps of which one was saved."""
    starts: tuple[float, ...] = ()
    """When Primus began on the run's first node: more than once, where a job was put back into the queue."""
    requeued: tuple[float, ...] = ()
    closing: tuple[tuple[float, float, float], ...] = ()
    """Time, save_s and evaluation_s after the last line of a training that ended well."""
    last: float | None = None
    """The time of the newest of all."""


@dataclass(frozen=True, slots=True)
class Records:
    """The documents of one run directory."""

    directory: str
    metadata: dict[str, Any]
    plan: dict[str, Any]
    backend: dict[str, Any]
    system: dict[str, Any]
    events: Events


def read(directory: str) -> Records:
    """All of them, as far as they are there."""
    return Records(
        directory=directory,
        metadata=documents.read(f"{directory}/metadata.json"),
        plan=documents.read(f"{directory}/{PLAN}"),
        backend=documents.read(f"{directory}/{BACKEND_CONFIG}"),
        system=documents.read(f"{directory}/env/system_info.json"),
        events=_events(directory),
    )


def _events(directory: str) -> Events:
    checkpoints, starts, requeued, closing, last = [], [], [], [], None
    for row in documents.lines(f"{directory}/{FILE}"):
        time, name = number(row.get("time")), row.get("event")
        if time is None:
            continue
        last = time if last is None else max(last, time)
        if name == CHECKPOINT_SAVED and (step := whole(row.get("step"))) is not None:
            checkpoints.append(step)
        elif name == "run_started" and not row.get("node"):
            starts.append(time)
        elif name == "requeued":
            requeued.append(time)
        elif name == TRAINING_ENDED:
            closing.append((time, number(row.get("save_s")) or 0.0, number(row.get("evaluation_s")) or 0.0))
    return Events(tuple(sorted(set(checkpoints))), tuple(starts), tuple(requeued), tuple(closing), last)


def devices(records: Records) -> tuple[int, int]:
    """How many devices the run trained on, and how many of them were GPUs: on a CPU, a rank is a device."""
    place = mapping(records.plan.get("distributed"))
    nodes, each = whole(place.get("nnodes")) or 1, whole(place.get("gpus_per_node")) or 0
    count = nodes * each or whole(records.metadata.get("world_size")) or 0
    has_gpu = bool(records.system.get("gpus") or records.metadata.get("gpu_model"))
    on_cpu = records.backend.get("device") == "cpu"
    return count, count if has_gpu and not on_cpu else 0
