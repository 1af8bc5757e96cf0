"""Before a run is replayed: what the person is asked, and what equals and what differs here."""

from __future__ import annotations

from primus_core.planning.planned import Planned
from primus_core.replay import consent, report
from primus_core.replay.prepare import Replay
from primus_machine.host import HostRoot

__all__ = ["answered", "checked"]


def answered(planned: Planned, replay: Replay, host: HostRoot) -> HostRoot | None:
    """The machine with what a person answers before a run is replayed; None: there is nothing to ask."""
    if trusting := consent.trusting(replay, planned.plan, planned.switches, host):
        return trusting
    return None if planned.inner else consent.secrets(replay, planned.switches, host)


def checked(planned: Planned, replay: Replay) -> int | None:
    """Say what equals and what differs, where the ranks start or --check asks; the exit code if that is all."""
    if planned.inner and not planned.switches.check:
        return None
    inside = planned.innermost
    return report.check(report.compared(inside.plan, inside.facts, replay, planned.around), replay, planned.switches)
