"""The parts of a suite: which benchmarks fit this machine, each planned as it would be alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from primus_bench.contract import GROUP, SUITE, Benchmark, InSuite, SuiteMachine, SuitePart
from primus_core.errors import PrimusError
from primus_core.installed import joined
from primus_core.plan.plan import Requirement, RunPlace
from primus_core.plugins.contracts import TaskCall, TaskPlan
from primus_core.request.arguments import Parser, parse_segment
from primus_core.requirements import is_here, missing

__all__ = ["LAUNCHERS", "NO_PART", "Part", "machine", "names", "of_suite", "planned"]

LAUNCHERS = ("torchrun", "single")
"""Those that a suite can stand in for."""

NO_PART = "it takes no part in suites (docs/bench-suite.md)"
"""Why a benchmark without a method `suite` is skipped."""


class Part(NamedTuple):
    """One benchmark: what to run, or why it is skipped."""

    name: str
    module: str = ""
    args: tuple[str, ...] = ()
    alone: bool = False
    """One process, and not one for each rank."""
    skipped: str = ""

    def word(self) -> str:
        """Itself as one argument of a command; `of_word` reads it."""
        return json.dumps(self)

    @classmethod
    def of_word(cls, text: str) -> Part:
        """What `word` wrote.

        Raises:
            ValueError: it is something else.
        """
        name, module, args, alone, skipped = json.loads(text)
        return cls(name, module, tuple(args), alone, skipped)


def names() -> list[str]:
    """The benchmarks that are installed, without the suite itself."""
    return [entry.name for entry in joined.of_group(GROUP) if entry.name != SUITE]


def of_suite() -> list[str]:
    """Those that take part in suites; one that cannot be imported may."""
    return [name for name in names() if _takes_part(name)]


def _takes_part(name: str) -> bool:
    try:
        return isinstance(joined.load(GROUP, name), InSuite)
    except PrimusError:
        return True


def machine(call: TaskCall, device: str) -> SuiteMachine:
    """What is measured."""
    environ, place = call.facts.environ, call.distributed
    return SuiteMachine(
        device,
        place.world_size,
        place.nnodes,
        _dtypes(call.facts.gpu_model) if device == "cuda" else frozenset(),
        lambda name: is_here(Requirement("module", name, ""), environ),
        lambda name: shutil.which(name, path=environ.get("PATH", "")) is not None,
    )


def _dtypes(gpu_model: str) -> frozenset[str]:
    from primus_machine.gpus import models  # reads a table

    return frozenset(dtype for model in models.load() if model.name == gpu_model for dtype in model.peak_tflops)


def planned(call: TaskCall, chosen: Sequence[str], left_out: Mapping[str, str], place: RunPlace,
            here: SuiteMachine, *, quick: bool) -> tuple[Part, ...]:  # fmt: skip
    """Each of the benchmarks `chosen`; `left_out`: those that a person does not want, and why."""
    return tuple(
        Part(name, skipped=left_out[name]) if name in left_out else _part(name, call, place, here, quick=quick)
        for name in chosen
    )


def _part(name: str, call: TaskCall, place: RunPlace, here: SuiteMachine, *, quick: bool) -> Part:
    """A benchmark that cannot be planned is skipped: it shall not hide the others."""
    try:
        benchmark: Benchmark = joined.load(GROUP, name)
        if not isinstance(benchmark, InSuite):
            return Part(name, skipped=NO_PART)
        asked = benchmark.suite(here, quick=quick)
        return (
            Part(name, skipped=asked.skipped)
            if asked.skipped
            else _of_plan(name, _plan(benchmark, asked, call, place), call)
        )
    except PrimusError as error:
        return Part(name, skipped=f"{error.what}; {error.fix}" if error.fix else error.what)


def _plan(benchmark: Benchmark, asked: SuitePart, call: TaskCall, place: RunPlace) -> TaskPlan:
    """As `bench` plans it, in the suite's run directory."""
    parser = Parser()
    benchmark.add_arguments(parser)
    args = parse_segment(parser, asked.words)
    return benchmark.plan(call._replace(words=asked.words, args=args, place=lambda workspace, exp_name: place))


def _of_plan(name: str, plan: TaskPlan, call: TaskCall) -> Part:
    own = (one for one in plan.requires if one.kind != "gpu")  # the suite needs it, too
    if lacking := missing(own, call.facts.environ):
        return Part(name, skipped=f"{lacking[0].what}; {lacking[0].fix}")
    if plan.worker.launcher not in LAUNCHERS:
        return Part(name, skipped=f"its launcher is {plan.worker.launcher}, and a suite has {' and '.join(LAUNCHERS)}")
    if plan.prepare or plan.files or plan.environment:
        return Part(name, skipped="its plan has steps, files or variables of its own")
    return Part(name, plan.worker.module, plan.worker.args, plan.worker.launcher == "single")
