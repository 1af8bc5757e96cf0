"""The worker of `bench train`, one for each device: check a layer, then measure its steps, all devices at once.

It runs alone too: `python -m primus_bench.benchmarks.train.worker --model qwen3_0.6B --device cpu`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch

from primus_bench.benchmarks.train import options, report
from primus_bench.benchmarks.train.check import not_finite, wrong
from primus_bench.benchmarks.train.layer import DTYPES, Forward, Layer, draw, forward
from primus_bench.benchmarks.train.options import Settings
from primus_bench.benchmarks.train.problem import Problem
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

_STEP = "forward-backward"
_COPIES = 6
"""Of weights and gradients for the reference: two in the same type, two in one twice as wide."""
_LEARNING_RATE = 1e-6
"""Small: the weights stay what they are, and the figures comparable."""


def main(argv: Sequence[str], build: Forward = forward) -> int:
    """Measure what `argv` asks for; rank 0 prints and writes the result."""
    settings = options.settle(parsed("train", options.declare, argv), torch.cuda.is_available())
    ranks, device = start(settings.device)
    first = ranks.place.rank == 0
    if first:
        prepare(settings.outputs)
    _require_memory(settings.problem, device, ranks)
    with logged(here=first) as progress:
        cases = _measured(settings, device, ranks, build, progress)
    if first:
        notes = [] if device.model else [f"no MFU: the peak of {device.name} is not known"]
        found = report.document(settings, device, ranks.hosts, cases, notes)
        publish(found, report.sheet(found, settings.problem), settings.outputs, json=settings.json)
    return 0


def _require_memory(problem: Problem, device: Device, ranks: Ranks) -> None:
    """Refuse a layer that does not fit, on all ranks alike: weights, gradients, the reference, the optimizer."""
    each = torch.finfo(DTYPES[problem.dtype]).bits // 8
    kept = sum(one.stored * one.size for one in problem.matrices)
    experts = problem.compared * problem.facts.moe.topk if problem.facts.moe else 1
    compared = sum(min(one.stored, experts) * one.size for one in problem.matrices)
    states = {"none": 0, "sgd": 0, "adamw": 2}[problem.optimizer]
    needed = each * max((2 + states) * kept, 2 * kept + _COPIES * compared)
    share = 1 if device.kind == "cuda" else ranks.place.local_world
    if (least := min(ranks.exchange(device.memory_bytes // share))) < needed:
        why = f"its weights and gradients need {needed / 2**30:.1f} GiB, and a rank has {least / 2**30:.1f} GiB"
        raise MachineError(f"a layer of {problem.model} does not fit into memory", why=why,
                           fix="choose a smaller model, --optimizer none, or fewer ranks")  # fmt: skip


def _measured(settings: Settings, device: Device, ranks: Ranks, build: Forward,
              progress: Callable[[str], None]) -> list[Case]:  # fmt: skip
    problem = settings.problem
    progress("drawing the data")
    layer = draw(problem, settings.device, settings.seed)
    progress("checking output and gradients")
    try:
        text = wrong(build, layer)
    except torch.OutOfMemoryError:
        raise MachineError(
            f"{problem} does not fit into memory", fix="choose a smaller --seq-len or --micro-batch"
        ) from None
    ranks.require_right(f"a layer of {problem.model}", text)
    cases = []
    for step, run in _steps(layer, build):
        progress(f"measuring {step}")
        _forget_peak(device)
        found = timed(always(run), settings.device, settings.duration_s, ranks)
        ranks.require_right(f"{step} of {problem.model}", _spoiled(build, layer))
        cases += [report.case(step, problem, found, device, ranks.hosts, _memory(device))] if found else []
    return cases


def _steps(layer: Layer, build: Forward) -> list[tuple[str, Callable[[], object]]]:
    """What is measured, by name."""

    def gradients() -> tuple[torch.Tensor, ...]:
        return tuple(torch.autograd.grad(build(layer), layer.inputs, layer.upstream))

    weights = list(layer.weights.values())
    if layer.problem.optimizer == "none":
        return [(_STEP, gradients)]
    make = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[layer.problem.optimizer]
    optimizer = make(weights, lr=_LEARNING_RATE)

    def step() -> None:
        for weight, found in zip(weights, gradients()[1:], strict=True):
            weight.grad = found
        optimizer.step()

    return [(_STEP, gradients), (f"{_STEP}-{layer.problem.optimizer}", step)]


def _spoiled(build: Forward, layer: Layer) -> str:
    """What is not finite once it has been measured; empty: nothing."""
    output = build(layer)
    return not_finite(layer, (output, *torch.autograd.grad(output, layer.inputs, layer.upstream)))


def _forget_peak(device: Device) -> None:
    """The check needs more memory than a step."""
    if device.kind == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _memory(device: Device) -> float | None:
    """The peak that torch has reserved, as docs/metrics.md has it; None on a CPU."""
    return torch.cuda.max_memory_reserved() / 2**30 if device.kind == "cuda" else None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
