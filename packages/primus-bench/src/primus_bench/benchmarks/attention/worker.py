"""The worker of `bench attention`, one for each device: check each backend, then measure it, all devices at once.

It runs alone too: `python -m primus_bench.benchmarks.attention.worker --seq 512 --causal`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch

from primus_bench.benchmarks.attention import options, report
from primus_bench.benchmarks.attention.backends import Attend, Operands, attend_with, draw, unavailable
from primus_bench.benchmarks.attention.check import wrong
from primus_bench.benchmarks.attention.options import Settings
from primus_bench.benchmarks.attention.problem import Problem
from primus_bench.measure.device import Device
from primus_bench.measure.progress import logged
from primus_bench.measure.ranks import Ranks
from primus_bench.measure.start import start
from primus_bench.measure.together import always, timed
from primus_bench.options import parsed
from primus_bench.report.document import Case
from primus_bench.report.files import prepare
from primus_bench.report.outcome import publish
from primus_core.errors import MachineError

__all__ = ["main"]


def main(argv: Sequence[str], build: Callable[[str, Problem, str], Attend] = attend_with) -> int:
    """Measure what `argv` asks for; rank 0 prints and writes the result."""
    settings = options.settle(parsed("attention", options.declare, argv), torch.cuda.is_available())
    ranks, device = start(settings.device)
    first = ranks.place.rank == 0
    if first:
        prepare(settings.outputs)
    with logged(here=first) as progress:
        cases, notes = _measured(settings, device, ranks, build, progress)
    if first:
        found = report.document(settings, device, ranks.hosts, cases, notes)
        publish(found, report.sheet(found, settings.problem), settings.outputs, json=settings.json)
    return 0


def _measured(settings: Settings, device: Device, ranks: Ranks, build: Callable[[str, Problem, str], Attend],
              progress: Callable[[str], None]) -> tuple[list[Case], list[str]]:  # fmt: skip
    """The cases, on rank 0, and notes on backends that cannot do it.

    Raises:
        MachineError: none of them can.
    """
    operands = draw(settings.problem, settings.device, settings.seed)
    cases: list[Case] = []
    notes: list[str] = []
    for backend in settings.backends:
        progress(f"{backend}: checking the result")
        attend = build(backend, settings.problem, settings.device)
        if reason := next(filter(None, ranks.exchange(unavailable(attend, operands))), ""):
            notes.append(f"{backend} is skipped: {reason}")
            continue
        ranks.require_right(f"{backend} attention", wrong(attend, operands, settings.problem))
        for direction in settings.passes:
            progress(f"{backend}: measuring the {direction} pass")
            work = always(_work(attend, operands, direction))
            found = timed(work, settings.device, settings.duration_s, ranks)
            cases += [report.case(backend, direction, settings.problem, found, device, ranks.hosts)] if found else []
    if len(notes) == len(settings.backends):
        raise MachineError("torch has no backend for this attention here", why="\n".join(notes),
                           fix="choose another --backend or --dtype, or install a torch that fits the GPU")  # fmt: skip
    return cases, notes


def _work(attend: Attend, operands: Operands, direction: str) -> Callable[[], object]:
    if direction == "forward":
        return torch.no_grad()(lambda: attend(operands))  # type: ignore[no-any-return]  # torch has no types here
    output = attend(operands)
    return lambda: torch.autograd.grad(output, operands.inputs, operands.upstream, retain_graph=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
