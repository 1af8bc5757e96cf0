"""What other tasks found that belongs to a run: the state of its nodes, its devices' GEMM speed, and predictions."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from primus_core.runs.names import parse_name
from primus_report.figures import documents
from primus_report.figures.documents import items, mapping, number, text
from primus_report.figures.records import Records

__all__ = ["Bench", "Health", "Prediction", "bench", "health", "predictions"]

_PREDICTION = "prediction.json"
"""In a run directory: the figures that were expected of the run, by the names of docs/report.md."""
_BENCHMARK = "gemm.json"


@dataclass(frozen=True, slots=True)
class Health:
    """What preflight found on a node before the run."""

    node: str
    verdict: str
    level: str
    problems: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Bench:
    """A matrix multiplication that was measured on such a device, in another run."""

    run: str
    engine: str
    problem: str
    dtype: str
    tflops: float
    percent_of_peak: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A figure that was expected, beside the measured one."""

    name: str
    predicted: float
    source: str


def health(records: Records) -> tuple[Health, ...]:
    """The reports of `--preflight`, of the latest attempt that has some."""
    folders = sorted(glob.glob(f"{glob.escape(records.directory)}/preflight*"), key=_attempt)
    for folder in reversed(folders):
        paths = sorted(glob.glob(f"{glob.escape(folder)}/*.json"))
        if found := [one for path in paths for one in _health(path, records.directory)]:
            return tuple(found)
    return ()


def _attempt(folder: str) -> int:
    number_ = os.path.basename(folder).partition("_")[2]
    return int(number_) if number_.isdecimal() else 1


def _health(path: str, directory: str) -> Iterator[Health]:
    known = documents.read(path)
    if not text(known.get("host")) or "findings" not in known:
        return
    rows = [row for row in items(known["findings"]) if isinstance(row, dict)]
    problems = tuple(_problem(row) for row in rows if row.get("status") not in ("pass", "skip"))
    yield Health(
        known["host"], text(known.get("verdict")), text(known.get("level")), problems, os.path.relpath(path, directory)
    )


def _problem(row: Mapping[str, Any]) -> str:
    name = " ".join(filter(None, (text(row.get("check")), text(row.get("subject")))))
    measured = " ".join(filter(None, (text(row.get("measured")), text(row.get("unit")))))
    expected = f"expected {text(row.get('expected'))}" if row.get("expected") else ""
    what = "; ".join(filter(None, (measured, expected, text(row.get("why")))))
    return f"{text(row.get('status'))}: {name}: {what}"


def bench(records: Records, gpu_model: str) -> Bench | None:
    """The best GEMM of the newest benchmark beside the run, on the same model of GPU, or on the same host."""
    workspace = os.path.dirname(records.directory)
    paths = glob.glob(f"{glob.escape(workspace)}/*/{_BENCHMARK}")
    for path in sorted(paths, key=_order, reverse=True):
        found = documents.read(path)
        device = mapping(found.get("device"))
        of_same = device.get("model") == gpu_model if gpu_model else _host(path) == records.metadata.get("host")
        if of_same and device and (best := _best(found, os.path.basename(os.path.dirname(path)))):
            return best
    return None


def _order(path: str) -> tuple[str, int]:
    parsed = parse_name(os.path.basename(os.path.dirname(path)))
    return parsed.order if parsed else ("", 0)


def _host(path: str) -> Any:
    return documents.read(f"{os.path.dirname(path)}/metadata.json").get("host")


def _best(found: Mapping[str, Any], run: str) -> Bench | None:
    cases = [row for row in items(found.get("cases")) if isinstance(row, dict) and number(row.get("value"))]
    if not cases:
        return None
    case = max(cases, key=lambda one: float(one["value"]))
    asked = mapping(case.get("parameters"))
    problem = " × ".join(str(asked.get(size)) for size in ("m", "n", "k"))
    share = number(mapping(case.get("derived")).get("percent_of_peak"))
    return Bench(run, text(asked.get("engine")), problem, text(asked.get("dtype")), float(case["value"]), share)


def predictions(records: Records) -> tuple[Prediction, ...]:
    """What `prediction.json` in the run directory expects."""
    known = documents.read(f"{records.directory}/{_PREDICTION}")
    source = text(known.get("source")) or _PREDICTION
    figures = mapping(known.get("figures"))
    return tuple(
        Prediction(str(name), value, source) for name, given in figures.items() if (value := number(given)) is not None
    )
