"""Puts one GPU under load and says how fast it is. A program of its own, since a GPU may hang: see `measured`.

It prints JSON lines, each as soon as it is known, so that what was measured before a hang is not lost:

    python -m primus_preflight.gpu.load --device cuda:0
    {"stage": "loaded", "torch": "2.13.0"}
    {"stage": "device", "address": "0000:05:00.0"}
    {"stage": "gemm", "value": 612.3, "error": 0.0017, "seconds": 0.00053, "began": 81.2, "ended": 84.2}     TFLOP/s
    {"stage": "memory", "value": 4012.5, "seconds": 0.0008, "began": 86.3, "ended": 89.3}                    GB/s
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from primus_preflight.checks import program

__all__ = ["main"]

_BATCH = 20
"""Calls between two looks at the clock."""
_CHECKED_ROWS = 256


def main(words: Sequence[str]) -> int:
    """Measure what the words say."""
    return program.run(_arguments(), words, _measure)


def _measure(args: argparse.Namespace, device: Any) -> None:
    import torch

    if device.type == "cuda":
        program.say(stage="device", **_address(torch.cuda.get_device_properties(device)))
    program.say(stage="gemm", **_gemm(device, args.shape, args.rotate, args.seconds))
    program.say(stage="memory", **_triad(device, args.elements, args.seconds))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m primus_preflight.gpu.load", description=__doc__.partition("\n")[0])
    # That of AMD's own stress test (ROCmValidationSuite, gst), whose figures are the thresholds.
    parser.add_argument("--shape", type=int, nargs=3, default=[4864, 4096, 8192], metavar=("M", "N", "K"))
    parser.add_argument("--rotate", type=int, default=512 << 20, metavar="BYTES",
                        help="the operands are more together: twice the largest cache (MI300X: 256 MiB)")  # fmt: skip
    parser.add_argument("--elements", type=int, default=1 << 28, help="of each array that the triad goes through")
    parser.add_argument("--seconds", type=float, nargs=2, default=[2.0, 3.0], metavar=("WARM_UP", "MEASURED"),
                        help="a GPU's clock falls to where it stays in the first seconds")  # fmt: skip
    return parser


def _address(properties: Any) -> dict[str, str]:
    """On the PCI bus; nothing where torch does not tell it (before 2.8)."""
    parts: list[Any] = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if any(part is None for part in parts):
        return {}
    domain, bus, device = map(int, parts)
    return {"address": f"{domain:04x}:{bus:02x}:{device:02x}.0"}


def _gemm(device: Any, shape: Sequence[int], rotate: int, seconds: Sequence[float]) -> dict[str, float]:
    """TFLOP/s of C = A·Bᵀ in bf16, 2·M·N·K each, as a linear layer does it; and the relative error of the last C.

    The data are normal: with zeros or small whole numbers a GPU needs less power and is up to a fifth faster.
    """
    import torch

    m, n, k = shape
    draw = torch.Generator(device).manual_seed(0)
    count = max(2, rotate // (2 * (m * k + n * k + m * n)) + 1)
    sets = [
        [torch.randn(size, generator=draw, device=device, dtype=torch.bfloat16) for size in ((m, k), (n, k), (m, n))]
        for _ in range(count)
    ]

    def multiply(turn: int) -> None:
        a, b, c = sets[turn % count]
        torch.mm(a, b.t(), out=c)

    timed = _timed(multiply, device, seconds)
    a, b, c = sets[0]
    exact = a[:_CHECKED_ROWS].float() @ b.float().t()
    error = float((c[:_CHECKED_ROWS].float() - exact).norm() / exact.norm())
    return {"value": 2 * m * n * k / timed.seconds / 1e12, "error": error, **timed._asdict()}


def _triad(device: Any, elements: int, seconds: Sequence[float]) -> dict[str, float]:
    """GB/s of a = b + 3·c in fp32: two arrays are read and one is written (STREAM's triad)."""
    import torch

    a, b, c = (torch.randn(elements, device=device) for _ in range(3))
    timed = _timed(lambda _: torch.add(b, c, alpha=3.0, out=a), device, seconds)
    return {"value": 3 * 4 * elements / timed.seconds / 1e9, **timed._asdict()}


class _Timed(NamedTuple):
    seconds: float
    """The median call."""
    began: float
    """By a clock that all processes share."""
    ended: float


def _timed(call: Callable[[int], object], device: Any, seconds: Sequence[float]) -> _Timed:
    """The median over the calls of so many seconds, after a warm-up of so many; each call gets its number."""
    warm_up_s, measured_s = seconds
    done, _ = _lasting(call, device, warm_up_s, 0)
    began = time.monotonic()
    _, times = _lasting(call, device, measured_s, done)
    return _Timed(statistics.median(times), began, time.monotonic())


def _lasting(call: Callable[[int], object], device: Any, seconds: float, first: int) -> tuple[int, list[float]]:
    found: list[float] = []
    deadline = time.monotonic() + seconds
    while not found or time.monotonic() < deadline:
        turns = range(first + len(found), first + len(found) + _BATCH)
        found += _on_cpu(call, turns) if device.type == "cpu" else _on_gpu(call, turns, device)
    return first + len(found), found


def _on_cpu(call: Callable[[int], object], turns: range) -> list[float]:
    found = []
    for turn in turns:
        began = time.perf_counter()
        call(turn)
        found.append(time.perf_counter() - began)
    return found


def _on_gpu(call: Callable[[int], object], turns: range, device: Any) -> list[float]:
    """By the GPU's own events: a call returns before its work is done."""
    import torch

    with torch.cuda.device(device):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in turns]
        for turn, (begin, end) in zip(turns, events, strict=True):
            begin.record()
            call(turn)
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1000 for begin, end in events]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
