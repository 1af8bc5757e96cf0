"""What `bench suite` found: the results of its parts in one document, and in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primus_bench.benchmarks.suite.options import Settings
from primus_bench.benchmarks.suite.running import Ended
from primus_bench.contract import SUITE
from primus_bench.measure import where
from primus_bench.report import about
from primus_bench.report.document import Case, Document
from primus_bench.report.sheet import Sheet
from primus_machine.files import plain_json
from primus_machine.units import counted

__all__ = ["Result", "document", "sheet"]

_COLUMNS = {
    "benchmark": ("benchmark", "s"), "outcome": ("outcome", "s"), "case": ("case", "s"),
    "median_ms": ("median\nms", ".4f"), "value": ("value", ".4g"), "unit": ("", "s"),
    "percent_of_peak": ("% of\npeak", ".1f"), "slowest": ("slowest\nrank", "s"),
}  # fmt: skip
_UNKNOWN = dict.fromkeys(_COLUMNS)


class Result(NamedTuple):
    """A part that ran, and the document that it wrote; None: it wrote none."""

    ended: Ended
    document: Mapping[str, Any] | None

    @property
    def outcome(self) -> str:
        """`passed` or `failed`."""
        return "failed" if self.ended.exit_code else "passed"


def document(settings: Settings, hosts: Sequence[str], results: Sequence[Result]) -> Document:
    """The cases of all parts, each with its benchmark's name. A part that failed is a case without a value."""
    written = [one.document for one in results if one.document]
    devices: list[Mapping[str, Any]] = [
        one["device"] for one in written if one["device"].get("kind") == settings.device
    ]
    return Document(
        benchmark=SUITE,
        parameters={"quick": settings.quick, "device": settings.device,
                    "parts": [*map(_outcome, results), *_skipped(settings)]},
        **where.measured(devices[0] if devices else {"kind": settings.device, "name": None}, hosts),
        method={"parts": "one after the other, each with a process for each rank",
                "check": "each benchmark's own; see its result in the run directory"},
        cases=[case for one in results for case in _cases(one)],
        notes=[*(f"{one.ended.part.name} failed: {one.ended.why}" for one in results if one.ended.exit_code),
               *(f"{one['name']} is skipped: {one['why']}" for one in _skipped(settings)),
               *(f"{one['benchmark']}: {note}" for one in written for note in one["notes"])],
    )  # fmt: skip


def _outcome(one: Result) -> dict[str, Any]:
    ended = one.ended
    return {"name": ended.part.name, "outcome": one.outcome, "exit_code": ended.exit_code,
            "seconds": round(ended.seconds, 1), "why": ended.why}  # fmt: skip


def _skipped(settings: Settings) -> list[dict[str, Any]]:
    return [{"name": one.name, "outcome": "skipped", "why": one.skipped} for one in settings.parts if one.skipped]


def _cases(one: Result) -> list[Case]:
    name = one.ended.part.name
    if one.ended.exit_code:
        return [Case(name, {"benchmark": name}, (), None, "", None, verified=False, error=one.ended.why)]
    judged = (one.document or {}).get("steadiness")
    unsteady = judged.get("cases") if isinstance(judged, dict) else None
    return [
        Case(
            f"{name}: {case['name']}", {"benchmark": name, **case["parameters"]}, case["samples"], case["median"],
            case["unit"], case["value"], case["verified"], case["error"], case["derived"], case["rank"], case["node"],
            str(unsteady.get(case["name"], "")) if isinstance(unsteady, dict) else "",
        )
        for case in (one.document or {}).get("cases", ())
    ]  # fmt: skip


def sheet(found: Document, results: Sequence[Result]) -> Sheet:
    """The table: each case, and each benchmark without one."""
    parts = found.parameters["parts"]
    counts = {outcome: sum(one["outcome"] == outcome for one in parts) for outcome in ("passed", "failed", "skipped")}
    heading = (
        f"suite: {counted(len(parts), 'benchmark')}: "
        + ", ".join(f"{count} {name}" for name, count in counts.items() if count),
        f"on:    {about.place(found)}",
        "time:  " + ", ".join(f"{one['name']} {one['seconds']} s" for one in parts if "seconds" in one),
    )
    records = [row for one in results for row in _rows(one)]
    records += [
        {**_UNKNOWN, "benchmark": one["name"], "outcome": "skipped"} for one in parts if one["outcome"] == "skipped"
    ]
    return Sheet("Benchmark suite", heading, _COLUMNS, records, found.versions, tuple(found.notes))


def _rows(one: Result) -> list[dict[str, Any]]:
    name = one.ended.part.name
    rows = [
        {
            "benchmark": name, "outcome": one.outcome, "case": case.name.partition(": ")[2] or None,
            "median_ms": None if case.median_s is None else 1000 * case.median_s, "value": case.value,
            "unit": case.unit or None,
            "percent_of_peak": plain_json.number(case.derived.get("percent_of_peak", case.derived.get("mfu_percent"))),
            "slowest": f"{case.rank} {case.node}" if case.median_s is not None else None,
        }
        for case in _cases(one)
    ]  # fmt: skip
    return rows or [{**_UNKNOWN, "benchmark": name, "outcome": one.outcome}]
