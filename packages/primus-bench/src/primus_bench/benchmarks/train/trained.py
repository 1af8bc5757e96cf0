"""The worker of `bench train --config`, on every rank: runs the backend's worker, then reports from its metrics."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

from primus_bench.benchmarks.train import experiment
from primus_bench.benchmarks.train.experiment import Trained
from primus_bench.measure import training, where
from primus_bench.measure.training import Row
from primus_bench.options import parsed
from primus_bench.report.document import Case, Document
from primus_bench.report.files import prepare
from primus_bench.report.outcome import publish
from primus_bench.report.sheet import Sheet
from primus_core.errors import PrimusError
from primus_core.journal import summary
from primus_machine.units import counted
from primus_train.kit import worker

__all__ = ["main", "report"]

_COLUMNS = {
    "ranks": ("ranks", "d"), "steps": ("steps\nmeasured", "d"), "median_ms": ("median\nms", ".1f"),
    "tokens_per_second": ("tokens/s", ".4g"), "tokens_per_second_per_gpu": ("tokens/s\neach rank", ".4g"),
    "tflops_per_gpu": ("TFLOP/s\neach rank", ".4g"), "mfu_percent": ("MFU\n%", ".1f"),
    "memory_gib": ("memory\nGiB", ".2f"), "loss": ("last\nloss", ".4f"),
}  # fmt: skip
_FIX = "look at metrics.jsonl in the run directory, then at the learning rate, the data and the devices"


def main(argv: Sequence[str]) -> int:
    """Train, then measure; the rank whose metrics count prints and writes the result."""
    settings = experiment.settle(parsed("train", experiment.declare, argv))
    reports = worker.rank() == worker.resolved()["metrics_rank"]
    if reports:
        prepare(settings.outputs)
    _train(settings.module)
    if reports:
        found = report(summary.read(worker.metrics_file()), settings)
        publish(found, _sheet(found), settings.outputs, json=settings.json)
    return 0


def _train(module: Sequence[str]) -> None:
    """As `primus_core.programs.rank` runs it."""
    own, sys.argv = sys.argv, list(module)
    try:
        runpy.run_module(module[0], run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.argv = own


def report(rows: Sequence[Row], settings: Trained) -> Document:
    """What its metrics say.

    Raises:
        PrimusError: there are none, or a loss is not finite.
    """
    if not rows:
        raise PrimusError("the training logged no step", why="its metrics are empty", fix="log every step")
    if wrong := [row["step"] for row in rows if row["loss"] is None]:
        steps = ", ".join(map(str, wrong[:5]))
        raise PrimusError("the training has a wrong result; its speed is not reported",
                          why=f"the loss is not finite at step {steps}", fix=_FIX)  # fmt: skip
    config = worker.resolved()
    return Document(
        benchmark="train",
        parameters={"experiment": settings.name, "steps": settings.steps},
        machine={**where.of_machine(), "ranks": worker.world_size()},
        device={"kind": config.get("device"), "name": training.device_name(), "peak_tflops": config.get("peak_tflops")},
        clocks=where.clocks(),
        versions=where.of_python() | {"framework": str(config.get("framework_version") or "unknown")},
        method={"timer": "the clock of the training (docs/metrics.md)", "warm_up": "the first fifth of the steps",
                "check": "the loss of every logged step is finite"},
        cases=[_case(rows, settings)],
        notes=[] if rows[-1].get("mfu") is not None else ["no MFU: the peak of the device is not known"],
    )  # fmt: skip


def _case(rows: Sequence[Row], settings: Trained) -> Case:
    found = training.steady(rows)
    speed = found.median("tokens_per_second")
    mfu = found.median("mfu")
    return Case(
        name=settings.name,
        parameters={"experiment": settings.name, "ranks": worker.world_size()},
        samples_s=found.values("step_time_s"),
        median_s=found.median("step_time_s"),
        unit="tokens/s",
        value=speed,
        verified=True,
        error=None,
        derived={
            "steps": len(found.rows), "tokens_per_second": speed,
            "tokens_per_second_per_gpu": found.median("tokens_per_second_per_gpu"),
            "tflops_per_gpu": found.median("tflops_per_gpu"), "mfu": mfu,
            "mfu_percent": None if mfu is None else 100 * mfu,
            "memory_gib": max(training.values(rows, "memory_gib"), default=None), "loss": rows[-1]["loss"],
        },
        node=where.of_machine()["host"],
    )  # fmt: skip


def _sheet(found: Document) -> Sheet:
    machine = found.machine
    heading = (
        f"train: {found.parameters['experiment']}, {counted(found.parameters['steps'], 'step')}",
        f"on:    {found.device['name']}; {counted(machine['ranks'], 'rank')}",
    )
    records = [case.record() for case in found.cases]
    return Sheet("Training", heading, _COLUMNS, records, found.versions, tuple(found.notes))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
