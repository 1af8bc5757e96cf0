"""The worker of `bench comm`, one for each rank: check each collective, then measure it.

It runs alone too: `torchrun --nproc-per-node 2 -m primus_bench.benchmarks.comm.worker --device cpu --sizes 1MiB`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from statistics import median

import torch
from torch import distributed

from primus_bench.benchmarks.comm import options, report
from primus_bench.benchmarks.comm.operations import COLLECTIVES, Collective, Group, buffers, wrong
from primus_bench.benchmarks.comm.options import Settings
from primus_bench.benchmarks.comm.overlap import Gemm, Overlapped, beside
from primus_bench.benchmarks.comm.report import Timed
from primus_bench.benchmarks.comm.sizes import shown
from primus_bench.measure import machine
from primus_bench.measure.device import probe
from primus_bench.measure.progress import logged
from primus_bench.measure.ranks import Place, Ranks, join, use_device
from primus_bench.measure.timing import timer_for
from primus_bench.options import parsed
from primus_bench.report.files import prepare
from primus_bench.report.outcome import publish
from primus_core.errors import MachineError, PrimusError
from primus_machine.host import HostRoot

__all__ = ["main"]

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "int32": torch.int32}
_FIX = """check the nodes (primus direct -- preflight --network --level perf),
then the versions of torch and of the communication library"""
_COPIES = 4
"""Of a message that a rank holds at once: sent, received, and what the check compares."""


def main(argv: Sequence[str], collectives: Mapping[str, Collective] = COLLECTIVES) -> int:
    """Measure what `argv` asks for; rank 0 prints and writes the result."""
    settings = options.settle(parsed("comm", options.declare, argv), torch.cuda.is_available())
    ranks = join(HostRoot().environ, settings.timeout_s)
    if ranks.place.rank == 0:
        prepare(settings.outputs)
    backend = _connect(settings, ranks)
    try:
        _measure(settings, ranks, backend, collectives)
    finally:
        distributed.destroy_process_group()
    return 0


def _connect(settings: Settings, ranks: Ranks) -> str:
    """Join the ranks for what is measured; the backend's name for people."""
    place, device = ranks.place, settings.device
    use_device(device, place)
    distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=distributed.PrefixStore("measured", ranks.store),
        rank=place.rank,
        world_size=place.world,
        timeout=timedelta(seconds=settings.timeout_s),
    )
    return "gloo" if device == "cpu" else "RCCL" if torch.version.hip else "NCCL"


def _measure(settings: Settings, ranks: Ranks, backend: str, collectives: Mapping[str, Collective]) -> None:
    cases, notes = [], []
    with logged(here=ranks.place.rank == 0) as progress:
        for scope in settings.scopes:
            group = _group(scope, ranks.place)
            _require_memory(settings, ranks)
            for operation in settings.operations:
                if operation == "send_recv" and len(group.ranks) == 1:
                    notes.append(f"{scope}: send_recv is skipped: it needs two ranks")
                    continue
                for size in settings.sizes:
                    progress(f"{scope}: {operation} of {shown(size)}")
                    timed = _timed(operation, collectives[operation], size, scope, group, settings, ranks)
                    cases += [report.case(timed, ranks.hosts)] if timed.seconds else []
    if ranks.place.rank == 0:
        found = report.document(settings, probe(settings.device), ranks.hosts, cases, backend, notes)
        publish(found, report.sheet(found), settings.outputs, json=settings.json)


def _group(scope: str, place: Place) -> Group:
    """The ranks that exchange messages with this one. Each rank helps to make all groups, as torch demands it."""
    if scope == "job":
        return Group(tuple(range(place.world)), place.rank)
    step, count = (1, place.local_world) if scope == "intra-node" else (place.local_world, place.nodes)
    if count == 1 and scope == "inter-node":
        raise MachineError("--scope inter-node needs two nodes", fix="leave the option out")
    firsts = range(0, place.world, place.local_world) if scope == "intra-node" else range(place.local_world)
    members = [tuple(range(first, first + step * count, step)) for first in firsts]
    handles = [(one, distributed.new_group(list(one))) for one in members]
    return next(Group(one, place.rank, handle) for one, handle in handles if place.rank in one)


def _require_memory(settings: Settings, ranks: Ranks) -> None:
    """Refuse what does not fit, on all ranks alike."""
    needed = _COPIES * max(settings.sizes)
    if settings.device == "cuda":
        free = torch.cuda.mem_get_info()[0]
    else:
        free = (machine.available_memory(HostRoot()) or 2**62) // ranks.place.local_world
    if (least := min(ranks.exchange(free))) < needed:
        raise MachineError(f"{shown(max(settings.sizes))} needs {needed / 2**30:.1f} GiB on each rank",
                           why=f"one has {least / 2**30:.1f} GiB", fix="choose smaller --sizes")  # fmt: skip


def _timed(operation: str, collective: Collective, size: int, scope: str, group: Group, settings: Settings,
           ranks: Ranks) -> Timed:  # fmt: skip
    """The times of all ranks on rank 0, once all of them have the right result, before and after.

    Raises:
        PrimusError: a result is wrong, or the library gave up.
    """
    try:
        return _checked(operation, collective, size, scope, group, settings, ranks)
    except RuntimeError as error:  # whatever torch's backends raise: a peer that is gone, a time that is over
        place = ranks.place
        raise PrimusError(f"{operation} of {shown(size)} failed on rank {place.rank} ({place.host})",
                          why=str(error).strip().partition("\n")[0], fix=_FIX) from error  # fmt: skip


def _checked(operation: str, collective: Collective, size: int, scope: str, group: Group, settings: Settings,
             ranks: Ranks) -> Timed:  # fmt: skip
    data = buffers(operation, size, _DTYPES[settings.dtype], group, settings.device)
    what = f"{operation} of {shown(data.size)}"
    ranks.require_right(what, wrong(operation, collective, data, group), _FIX)

    def run() -> object:
        return collective(data, group)

    seconds = _seconds(run, group, settings)
    overlapped = _overlapped(run, median(seconds), group, settings, ranks) if settings.overlap else None
    ranks.require_right(what, wrong(operation, collective, data, group), _FIX)
    return Timed(operation, scope, len(group.ranks), data.size, ranks.collect(seconds), overlapped)


def _overlapped(run: Callable[[], object], alone: float, group: Group, settings: Settings, ranks: Ranks) -> Overlapped:
    """The collective with a GEMM that takes about as long. All ranks multiply equally often."""
    alone, gemm = max(ranks.exchange(alone)), Gemm(settings.device)
    one = max(ranks.exchange(median(_seconds(gemm.once, group, settings))))
    multiply = gemm.lasting(alone, one)
    with beside(run, multiply, settings.device) as both:
        found = [median(_seconds(work, group, settings)) for work in (multiply, both)]
    times = ranks.exchange(found)
    return Overlapped(alone, max(t[0] for t in times), max(t[1] for t in times))


def _seconds(run: Callable[[], object], group: Group, settings: Settings) -> list[float]:
    """Of each iteration on this rank."""
    timer = timer_for(settings.device)

    def prepare_one(_: int) -> Callable[[], object]:
        if settings.device == "cpu":  # a rank that comes late would be counted as slow
            distributed.barrier(group=group.handle)
        return run

    timer.times(prepare_one, 0, settings.warm_up)
    return [ms / 1000 for ms in timer.times(prepare_one, settings.warm_up, settings.iterations)]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
