"""The worker of `bench gemm`: check each engine's result, then measure its speed.

It runs alone too: `python -m primus_bench.gemm -M 4096 --dtype bf16`
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Sequence

import torch

from primus_bench import gemm_options
from primus_bench.accuracy import check
from primus_bench.device import Device, probe
from primus_bench.engines import engine
from primus_bench.gemm_options import Settings
from primus_bench.gemm_problem import Problem
from primus_bench.measure import measure, summary, timer_for, warm_up
from primus_bench.operands import Rotation, sets_for
from primus_bench.progress import Progress
from primus_bench.report import Report, Result, as_json, as_table, prepare, write
from primus_core import get_logger

__all__ = ["main", "run"]

_WARM_UP_LIMITS_S = (2.0, 10.0)


def main(argv: Sequence[str]) -> int:
    """Measure what `argv` asks for; print and write the result."""
    parser = argparse.ArgumentParser(prog="python -m primus_bench.gemm", description=__doc__, allow_abbrev=False)
    gemm_options.declare(parser)
    settings = gemm_options.settle(parser.parse_args(argv), torch.cuda.is_available())
    prepare(settings.outputs)
    say = get_logger().info  # structlog loads here, and not in the midst of a measurement
    with Progress(say) as progress:
        report = run(settings, progress)
    print(as_json(report) if settings.json else as_table(report), flush=True)
    for path in settings.outputs:
        write(path, report)
    return 0


def run(settings: Settings, progress: Callable[[str], None]) -> Report:
    """Measure every engine on the same buffers.

    Raises:
        MachineError: the device cannot do it.
        PrimusError: an engine's result is wrong.
    """
    # TF32 would be another benchmark, and a wrong reference
    torch.set_float32_matmul_precision("highest")
    device = probe(settings.device)
    results: list[Result] = []
    notes = list(settings.notes)
    for problem in settings.problems:
        found, said = _measured(problem, device, settings, progress)
        results += found
        notes += [f"{problem.name}: {note}" if problem.name else note for note in said]
    notes += _device_notes(device)
    return Report(device, tuple(results), settings.seed, _versions(settings), tuple(notes))


def _measured(
    problem: Problem, device: Device, settings: Settings, progress: Callable[[str], None]
) -> tuple[list[Result], list[str]]:
    """Every engine's result for one problem, and notes. Its buffers are gone when the next one's are drawn."""

    def say(text: str) -> None:
        progress(f"{problem.name}: {text}" if problem.name else text)

    say("drawing the operands")
    count = sets_for(problem, device.rotation_bytes, device.memory_bytes)
    rotation = Rotation(problem, count, settings.device, settings.seed, device.fp8)
    results = [_result(name, problem, rotation, device, settings, say) for name in settings.engines]
    return results, _notes(rotation, device, results)


def _result(name: str, problem: Problem, rotation: Rotation, device: Device, settings: Settings,
            progress: Callable[[str], None]) -> Result:  # fmt: skip
    multiply = engine(name, problem, device)
    progress(f"{name}: checking the result" + " and timing tiles for it" * (name == "triton"))
    accuracy = check(name, multiply, rotation.operands(0), problem)

    def work(iteration: int) -> Callable[[], object]:
        a, b, c = rotation.operands(iteration)
        return lambda: multiply(a, b, c)

    timer = timer_for(device.kind)
    progress(f"{name}: warming up")
    least, most = _WARM_UP_LIMITS_S
    warm = warm_up(timer, work, min(max(least, settings.duration_s), most))
    samples = measure(timer, work, warm, settings.duration_s,
                      lambda s: progress(f"{name}: measured {s:.0f} of {settings.duration_s:g} s"))  # fmt: skip
    return Result(name, problem, summary(samples), warm, accuracy, rotation.bytes, rotation.count)


def _notes(rotation: Rotation, device: Device, results: Sequence[Result]) -> list[str]:
    notes = [f"{result.engine}: the latency was not steady after {result.warm_up.seconds:.1f} s of warm-up"
             for result in results if not result.warm_up.steady]  # fmt: skip
    if rotation.count == 1:
        notes.append("the buffers do not rotate: memory has room for one set only")
    elif rotation.bytes <= device.rotation_bytes:
        notes.append("the last-level cache may have served the buffers: memory has no room for more of them")
    return notes


def _device_notes(device: Device) -> list[str]:
    notes = []
    if device.model and device.share < 1:
        notes.append(f"the device has {device.compute_units} of the {device.model.compute_units} compute units of "
                     f"{device.model.name}: its share of peak and reachable is what counts here")  # fmt: skip
    if device.model and "peak_tflops" in device.model.unverified:
        notes.append(f"the peak of {device.model.name} in the GPU table is unverified")
    return notes


def _versions(settings: Settings) -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.hip or torch.version.cuda:
        found |= {"rocm": torch.version.hip} if torch.version.hip else {"cuda": str(torch.version.cuda)}
    if "triton" in settings.engines:
        import triton  # only where it is measured

        found["triton"] = triton.__version__
    return found | {"measured": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
