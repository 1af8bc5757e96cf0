"""The hooks of this package. Primus calls them in a process of their own on each node."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import cached_property

from primus_core import get_logger, hookimpl
from primus_core.config.system import load
from primus_core.hooks.console import show
from primus_core.hooks.data import HangInfo, RunInfo, StepMetrics
from primus_core.hooks.data import Ranks as Pids
from primus_machine.host import HostRoot
from primus_watch.health.node import Health
from primus_watch.ranks.files import Reader
from primus_watch.ranks.rules import Ranks
from primus_watch.steps.rules import Report, Watch

__all__ = ["Plugin"]


class Plugin:
    """One for each node of a run."""

    def __init__(self) -> None:
        self._reader: Reader | None = None
        self._step = 0

    @cached_property
    def _factors(self) -> Mapping[str, float]:
        return load(HostRoot()).section("watch").data

    @cached_property
    def _watch(self) -> Watch:
        return Watch(self._factors)

    @cached_property
    def _ranks(self) -> Ranks:
        return Ranks(self._factors)

    @cached_property
    def _health(self) -> Health:
        return Health(HostRoot(), self._factors)

    @hookimpl
    def on_step(self, run: RunInfo, metrics: StepMetrics) -> None:
        """Compare the step with those before it: what is odd is an event, and the first of a kind a warning."""
        del run
        self._step = int(metrics.get("step") or 0)
        _tell(self._watch.reports(metrics))

    @hookimpl
    def on_hang(self, run: RunInfo, hang: HangInfo) -> None:
        """Say who keeps the others waiting, before Primus ends the ranks."""
        from primus_watch.hang import meeting  # most runs never hang

        if text := meeting.open_hang(run, hang.ranks, hang.silent_s, HostRoot(), self._health):
            get_logger().error("hang", message=text.partition("\n")[0])
            show(text)

    @hookimpl
    def on_tick(self, run: RunInfo, ranks: Pids) -> None:
        """Compare the ranks and the GPUs; and look at the ranks of this node where another node has found a hang."""
        _tell(self._health.reports(self._step, list(ranks), time.monotonic()))
        if run.world_size > 1 and run.node_rank == 0:
            self._reader = self._reader or Reader(run.directory, HostRoot().environ)
            _tell(self._ranks.reports(self._reader.changed()))
        from primus_watch.hang import folder

        if run.nnodes > 1 and folder.exists(run.directory):
            from primus_watch.hang import meeting

            meeting.join(run, ranks, HostRoot(), self._health)


def _tell(reports: Iterable[Report]) -> None:
    for report in reports:
        get_logger().warning(report.event, message=report.message, step=report.step, **report.figures)
        if report.warns:
            show(f"warning: {report.message}")
