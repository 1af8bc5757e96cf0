"""What a run was: who, when and where, its settings, the environment that Primus set, and its code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from primus_report.figures import documents
from primus_report.figures.documents import items, mapping, text
from primus_report.figures.records import Records, devices

__all__ = ["Identity", "Setting", "environment", "facts", "identity", "settings"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting or a fact, as text, and where it is from."""

    name: str
    value: str
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which run it is."""

    name: str
    directory: str
    status: str
    owner: str
    """The account of a run that is another user's; empty: it is yours."""
    task: str
    framework: str
    model: str
    devices: int
    gpus: int
    gpu_model: str
    nodes: int
    started: float | None
    ended: float | None
    exit_code: int | None
    failure: str
    """What failed first."""


def identity(records: Records, status: str, owner: str) -> Identity:
    """Which run it is."""
    known, (count, gpus) = records.metadata, devices(records)
    place = mapping(records.plan.get("distributed"))
    return Identity(
        name=text(known.get("run_id")) or os.path.basename(records.directory),
        directory=records.directory,
        status=status,
        owner=owner,
        task=text(known.get("task") or records.plan.get("task")),
        framework=text(known.get("framework") or records.backend.get("framework")),
        model=text(known.get("model")),
        devices=count,
        gpus=gpus,
        gpu_model=text(known.get("gpu_model") or records.system.get("gpu_model")),
        nodes=documents.whole(place.get("nnodes")) or 1,
        started=documents.number(known.get("started")),
        ended=documents.number(known.get("ended")),
        exit_code=documents.whole(known.get("exit_code")),
        failure=_failure(mapping(known.get("first_failure"))),
    )


def _failure(known: Mapping[str, Any]) -> str:
    rank, node = documents.whole(known.get("rank")), documents.whole(known.get("node_rank"))
    where = [f"rank {rank}"] if rank is not None and rank >= 0 else []
    where += [f"node {node}"] if node is not None and node >= 0 else []
    return ": ".join(filter(None, (", ".join(where), text(known.get("what")))))


def facts(records: Records) -> tuple[Setting, ...]:
    """Who, where and on what."""
    return tuple(_facts(records))


def _facts(records: Records) -> Iterator[Setting]:
    known, system = records.metadata, records.system
    command = [text(word) for word in items(known.get("command"))]
    own = {title: known.get(name) for title, name in _OF_METADATA.items()}
    yield from _some("metadata.json", {"command": " ".join(command), **own})
    yield from _some("env/system_info.json", {name: system.get(name) for name in _OF_SYSTEM})
    code = documents.read(f"{records.directory}/code/code.json")
    changed = ("yes" if code.get("dirty") else "no") if code else None
    commit = {"commit": code.get("commit"), "branch": code.get("branch"), "uncommitted changes": changed}
    yield from _some("code/code.json", commit)


_OF_METADATA = {"user": "user", "host": "host", "job": "job_id", "folder": "cwd", "Primus": "primus_version"}
_OF_SYSTEM = ("gpu_model", "physical_gpus", "driver", "rocm", "cuda", "cpu_model", "cpu_count", "os", "kernel")


def _some(origin: str, values: Mapping[str, Any]) -> Iterator[Setting]:
    yield from (Setting(name, str(value), origin) for name, value in values.items() if value not in (None, "", [], {}))


def settings(records: Records) -> tuple[Setting, ...]:
    """What the framework got; first the hyperparameters, in no framework's words."""
    hyper = mapping(records.backend.get("hyperparameters"))
    own = mapping(records.backend.get("settings"))
    origin = "config/backend_config.json"
    return (*_some(f"{origin}: hyperparameters", hyper), *_some(f"{origin}: settings", own))


def environment(records: Records) -> tuple[Setting, ...]:
    """The variables that Primus set, each with its origin and reason."""
    rows = [row for row in items(records.plan.get("environment")) if isinstance(row, dict) and "name" in row]
    return tuple(Setting(str(row["name"]), str(row.get("value")), _origin(row)) for row in rows)


def _origin(row: Mapping[str, Any]) -> str:
    return ": ".join(str(row[part]) for part in ("origin", "why") if row.get(part))
