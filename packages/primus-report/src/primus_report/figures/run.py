"""A report of one run: every figure of it, with its source, from its directory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from primus_core.plan.plan import METRICS
from primus_machine.host import HostRoot
from primus_report.figures import benchmark, bottleneck, joined, measured, steady, timing, traced, warned
from primus_report.figures import settings as settings_of
from primus_report.figures.attempts import Attempt
from primus_report.figures.benchmark import Case
from primus_report.figures.bottleneck import Finding
from primus_report.figures.figure import Figure
from primus_report.figures.goodput import TimeShare
from primus_report.figures.joined import Bench, Health, Prediction
from primus_report.figures.settings import Identity, Setting
from primus_report.figures.steady import Window
from primus_report.figures.steps import Steps
from primus_report.figures.traced import Traced
from primus_report.figures.warned import Warned
from primus_runs.listing import of_status
from primus_runs.status import status_of

__all__ = ["RunReport", "read"]

_SLACK = 0.01
"""So much of the wall time may come of clocks and rounding."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """All that a report says of a run."""

    identity: Identity
    figures: Mapping[str, Figure]
    """By name, in the order in which one reads them."""
    window: Window | None
    time: tuple[TimeShare, ...]
    attempts: tuple[Attempt, ...]
    warnings: tuple[Warned, ...]
    findings: tuple[Finding, ...]
    traces: Traced
    health: tuple[Health, ...]
    cases: tuple[Case, ...]
    """What the run itself measured as a benchmark."""
    bench: Bench | None
    """A benchmark beside a training."""
    predictions: tuple[Prediction, ...]
    facts: tuple[Setting, ...]
    settings: tuple[Setting, ...]
    environment: tuple[Setting, ...]
    notes: tuple[str, ...]
    steps: Steps = field(repr=False, compare=False)
    """What the charts draw; no part of the JSON."""


def read(directory: str, host: HostRoot, price: float | None = None) -> RunReport:
    """The report of the run in `directory`. `price`: of a GPU for an hour, in any currency."""
    stands = status_of(directory, host)
    listed = of_status(directory, stands, host)
    found = timing.read(directory, listed.status, listed.owner, host.now())
    identity, of_run, steps, time = found.identity, found.records, found.steps, found.time
    window, no_window = steady.find(steps, found.spans)
    traces = traced.read(directory)
    figures = {
        **measured.speed(steps, window, no_window),
        **measured.results(steps),
        **measured.cost(time, found.held, identity, price),
        **measured.memory(steps, identity, of_run),
        **measured.distribution(steps, window, no_window),
        **traced.figures(traces),
    }
    return RunReport(
        identity=identity,
        figures=figures,
        window=window,
        time=time,
        attempts=found.attempts,
        warnings=warned.of_run(directory),
        findings=bottleneck.apply(_parts(time, figures, traces)),
        traces=traces,
        health=joined.health(of_run),
        cases=benchmark.cases(of_run),
        bench=joined.bench(of_run, identity.gpu_model if identity.gpus else ""),
        predictions=joined.predictions(of_run),
        facts=settings_of.facts(of_run),
        settings=settings_of.settings(of_run),
        environment=settings_of.environment(of_run),
        notes=(*_notes(steps, identity, time), *traces.notes),
        steps=steps,
    )


def _parts(time: Sequence[TimeShare], figures: Mapping[str, Figure], traces: Traced) -> dict[str, float | None]:
    """What the rules for bottlenecks look at."""
    useful = next((part.share for part in time if part.is_useful), None)
    variation = figures["variation"].value if "variation" in figures else None
    varies = useful * variation if useful is not None and variation is not None else None
    causes = {part.cause: part.share for part in time}
    return {**causes, **traced.parts(traces, useful), "variation": varies, "mfu": figures["mfu"].value}


def _notes(steps: Steps, identity: Identity, time: Sequence[TimeShare]) -> list[str]:
    notes = [f"the run belongs to {identity.owner}"] if identity.owner else []
    notes += [f"{steps.unread} lines of {METRICS} are not steps and were left out"] if steps.unread else []
    lost = sum(map(math.isnan, steps.columns["loss"]))
    notes += [f"the loss of {lost} lines is not finite"] if lost else []
    disagree = any(part.share < -_SLACK for part in time)
    return notes + ["the steps add up to more than the wall time: clocks disagree"] * disagree
