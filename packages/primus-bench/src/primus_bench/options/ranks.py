"""The benchmarks whose worker runs once for each device of each node: what the plans of all of them have in common."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from primus_bench.options.arguments import outputs, requirements
from primus_core.plan.plan import Requirement, RunPlace, Worker
from primus_core.plugins.contracts import TaskCall, TaskPlan

__all__ = ["RankBenchmark", "Settings"]


_NO_GPU = "no GPU was found on this machine: the run would fail with exit code 3"


class Settings(Protocol):
    """What will be measured, every default filled in. Some have a `device`."""

    def words(self) -> tuple[str, ...]:
        """The settings as arguments of the worker."""


S = TypeVar("S", bound=Settings)


class RankBenchmark(ABC, Generic[S]):
    """A benchmark `name`, whose worker is `primus_bench.benchmarks.<name>.worker`."""

    name: str
    epilog: str

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""

    @abstractmethod
    def settle(self, args: argparse.Namespace, call: TaskCall, place: RunPlace) -> S:
        """The settings in `args`, whose `output` has the file in the run directory already.

        Raises:
            RequestError: what is asked for cannot be.
        """

    def requires(self, settings: S, call: TaskCall) -> tuple[Requirement, ...]:
        """What it needs besides torch."""
        return ()

    def on_cpu(self, settings: S) -> str:
        """What to do on a machine without a GPU, where these settings need one."""
        return "measure the CPU (--device cpu)"

    def notes(self, settings: S, call: TaskCall) -> tuple[str, ...]:
        """What to know before it starts."""
        return ()

    def reads(self, call: TaskCall) -> tuple[str, ...]:
        """Files that the settings come from."""
        return ()

    def plan(self, call: TaskCall) -> TaskPlan:
        """One worker for each device."""
        place = call.place("", f"bench-{self.name}")
        args = argparse.Namespace(**vars(call.args))
        args.output = outputs(call, place.directory, f"{self.name}.json")
        settings = self.settle(args, call, place)
        # no error of the plan: it may be made on a login node
        lacks_gpu = getattr(settings, "device", "") == "cuda" and not call.facts.gpus
        return TaskPlan(
            place=place,
            worker=Worker(f"primus_bench.benchmarks.{self.name}.worker", settings.words(), "torchrun"),
            requires=(
                *requirements("torch"),
                *self.requires(settings, call),
                *[Requirement("gpu", "", f"{self.on_cpu(settings)}, or run it on a machine with a GPU")] * lacks_gpu,
            ),
            notes=(*[_NO_GPU] * lacks_gpu, *self.notes(settings, call)),
            reads=self.reads(call),
        )
