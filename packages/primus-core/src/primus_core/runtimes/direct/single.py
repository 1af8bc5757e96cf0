"""Launcher `single`: one plain process, with the variables of a single rank."""

from __future__ import annotations

from primus_core.contracts import launchers
from primus_core.contracts.launcher import LaunchCall, Launcher, LaunchPlan, Signalled
from primus_core.plan.plan import Step, Variable

__all__ = ["SINGLE"]

_ALONE = tuple(
    Variable(name, value, "direct", "one process, without torchrun")
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_WORLD_SIZE", "1"))
)
"""What torchrun would set for a single rank."""


class Single:
    """One of them."""

    name = launchers.SINGLE
    one_per_node = False
    reports = False
    families = ()

    def plan(self, call: LaunchCall) -> LaunchPlan:
        """The rank itself."""
        step = Step("worker", (call.facts.python, *call.rank), call.facts.cwd, ranks=1, kind="worker")
        return LaunchPlan(step, _ALONE)

    def signalled(self, output: str) -> tuple[Signalled, ...]:
        """Its process is the rank."""
        return ()


SINGLE: Launcher = Single()
