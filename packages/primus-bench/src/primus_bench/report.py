"""What a benchmark found, as a table for people, and as Markdown, CSV and JSON for everything else."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from primus_bench.accuracy import Accuracy
from primus_bench.device import Device
from primus_bench.gemm_problem import Problem
from primus_bench.measure import Summary, WarmUp
from primus_core.errors import MachineError
from primus_core.files import plain_json
from primus_core.files.atomic import create, is_own_link, staged
from primus_core.secrets.redaction import redact

__all__ = ["Report", "Result", "as_csv", "as_json", "as_markdown", "as_table", "prepare", "write"]

SCHEMA = 2

_FIGURES = {
    "engine": ("engine", "s"), "iterations": ("runs", "d"), "median_ms": ("median\nms", ".4f"),
    "p5_ms": ("p5\nms", ".4f"), "p95_ms": ("p95\nms", ".4f"), "max_ms": ("max\nms", ".4f"),
    "tflops": ("TFLOP/s", ".4g"), "gb_per_s": ("GB/s", ".4g"), "flop_per_byte": ("FLOP/B", ".4g"),
    "percent_of_peak": ("% of\npeak", ".1f"), "percent_of_reachable": ("% of\nreachable", ".1f"),
}  # fmt: skip
"""What the table shows of a record, and how."""
_OF_MODELS = {"matrix": ("matrix", "s"), "m": ("M", "d"), "n": ("N", "d"), "k": ("K", "d")} | {
    key: shown
    for key, shown in _FIGURES.items()
    if key not in ("iterations", "p5_ms", "max_ms", "gb_per_s", "flop_per_byte")
}


@dataclass(frozen=True, slots=True)
class Result:
    """One engine's figures for one problem."""

    engine: str
    problem: Problem
    latency: Summary
    warm_up: WarmUp
    accuracy: Accuracy
    rotation_bytes: int
    rotation_sets: int


@dataclass(frozen=True, slots=True)
class Report:
    """One device, with one result per problem and engine. At least one."""

    device: Device
    results: tuple[Result, ...]
    seed: int
    versions: Mapping[str, str]
    notes: tuple[str, ...]


def rows(report: Report) -> list[dict[str, Any]]:
    """One flat record per problem and engine, the same for CSV and JSON; None stands for a figure that nobody knows."""
    return [_row(report, result) for result in report.results]


def _row(report: Report, result: Result) -> dict[str, Any]:
    p, latency = result.problem, result.latency
    per_s = 1000 / latency.median_ms
    tflops = p.flops * per_s / 1e12
    return {
        "engine": result.engine, "matrix": p.name, "device": report.device.name, "dtype": p.dtype,
        "m": p.m, "n": p.n, "k": p.k, "trans_a": p.trans_a, "trans_b": p.trans_b, "iterations": latency.iterations,
        "median_ms": latency.median_ms, "p5_ms": latency.p5_ms, "p95_ms": latency.p95_ms, "max_ms": latency.max_ms,
        "tflops": tflops, "gb_per_s": p.bytes_moved * per_s / 1e9, "flop_per_byte": p.intensity,
        **_percentages(report.device, p.dtype, tflops),
        "largest_error": result.accuracy.largest_error, "error_of_tolerance": result.accuracy.of_tolerance,
        "rows_checked": result.accuracy.rows_checked, "warm_up_s": result.warm_up.seconds,
        "steady": result.warm_up.steady,
        "rotation_sets": result.rotation_sets, "rotation_bytes": result.rotation_bytes,
    }  # fmt: skip


def _percentages(device: Device, dtype: str, tflops: float) -> dict[str, float | None]:
    limits = {
        "peak": device.limit(device.model.peak_tflops, dtype) if device.model else None,
        "reachable": device.limit(device.model.reachable_tflops, dtype) if device.model else None,
    }
    return {f"percent_of_{name}": 100 * tflops / limit if limit else None for name, limit in limits.items()}


def _table(report: Report, form: str, line: str = "\n") -> str:
    """The figures in one of tabulate's forms; `line` parts the lines of a heading."""
    shown = _OF_MODELS if report.results[0].problem.name else _FIGURES
    cells = [[_cell(row[key], figure) for key, (_, figure) in shown.items()] for row in rows(report)]
    headers = [name.replace("\n", line) for name, _ in shown.values()]
    aligned = ["left" if figure == "s" else "right" for _, figure in shown.values()]
    # tabulate would else take the numbers apart and line up their points
    return str(tabulate(cells, headers=headers, tablefmt=form, disable_numparse=True, colalign=aligned))


def _cell(value: Any, form: str) -> str:
    if value is None:
        return "-"
    # .4g turns to 1.234e+04 above 9999; such numbers read better plain
    return f"{value:.0f}" if form == ".4g" and abs(value) >= 1000 else f"{value:{form}}"


def _heading(report: Report) -> list[str]:
    device, first = report.device, report.results[0]
    unit = "threads" if device.kind == "cpu" else "compute units"
    mib, sets = first.rotation_bytes / 2**20, first.rotation_sets
    one = f"{sets} sets of buffers in rotation ({mib:,.0f} MiB)"
    many = f"C = A·Bᵀ with the matrices of a model, {first.problem.dtype}"
    return [
        f"GEMM: {many if first.problem.name else first.problem}",
        f"on:   {device.name} ({device.architecture}, {device.compute_units} {unit})",
        f"data: seeded normal, {'buffers in rotation' if first.problem.name else one}; results checked",
    ]


def as_table(report: Report) -> str:
    """The report for a terminal."""
    table = _table(report, "simple_outline")
    return "\n".join([*_heading(report), table, *(f"note: {note}" for note in report.notes)])


def as_markdown(report: Report) -> str:
    """The report as Markdown."""
    versions = ", ".join(f"{name} {value}" for name, value in report.versions.items())
    table = _table(report, "github", " ")
    lines = ["# GEMM", "", *(f"- {' '.join(line.split())}" for line in (*_heading(report), versions)), "", table]
    return "\n".join(lines + [""] * bool(report.notes) + [f"> {note}" for note in report.notes]) + "\n"


def as_csv(report: Report) -> str:
    """One line per record, after a line of names. An unknown figure is empty."""
    records = rows(report)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_json(report: Report) -> str:
    """Everything, as one JSON object."""
    device = report.device
    return plain_json.dumps({
        "schema": SCHEMA, "benchmark": "gemm",
        "device": {"kind": device.kind, "name": device.name, "architecture": device.architecture,
                   "compute_units": device.compute_units, "model": device.model.name if device.model else None},
        "results": rows(report),
        "seed": report.seed, "versions": dict(report.versions), "notes": list(report.notes),
    }, indent=2, ensure_ascii=False)  # fmt: skip


def _as_json_file(report: Report) -> str:
    return as_json(report) + "\n"


_FORMATS = {".md": as_markdown, ".csv": as_csv, ".json": _as_json_file}


def prepare(paths: Sequence[str]) -> None:
    """Make sure that each path can be written, before the measuring and not after it.

    Raises:
        MachineError: a folder cannot be made or written, or the path is a folder.
    """
    for path in paths:
        folder = os.path.dirname(os.path.abspath(path))
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise _unwritable(path, error.strerror) from None
        if os.path.isdir(path):
            raise _unwritable(path, "it is a folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _unwritable(path, f"{folder} is not writable")


def write(path: str, report: Report) -> None:
    """Write the report in the form that the suffix names. A reader sees the old file or the whole new one.

    Raises:
        MachineError: it cannot be written.
    """
    target = os.path.realpath(path) if is_own_link(path) else path
    stage = staged(target)
    text = redact(_FORMATS[os.path.splitext(path)[1].lower()](report))
    try:
        with open(stage, "w", encoding="utf-8", newline="", opener=create) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(stage, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(stage)
        raise _unwritable(path, error.strerror) from None


def _unwritable(path: str, why: str | None) -> MachineError:
    return MachineError(f"cannot write {path}", why=why or "", fix="choose another --output")
