"""Carries out a plan: makes the run directory, runs the steps, records how it ended. It decides nothing.

Each layer takes the same way: the innermost, whose steps are ranks, and those around it, whose step is Primus again.
"""

from __future__ import annotations

from typing import Protocol

from primus_core import requirements
from primus_core.execute.launch import Launch, Replan
from primus_core.plan.plan import Plan
from primus_core.runs.record_writer import unwritable
from primus_machine.errors import PrimusError
from primus_machine.facts import Facts
from primus_machine.own_process.signals import Signals

__all__ = ["execute"]


class Layer(Protocol):
    """What is a layer's own."""

    def save(self) -> None:
        """Write what the run directory gets before anything starts."""

    def begin(self) -> None:
        """Say what begins, and what is not as it was submitted."""

    def run(self) -> int:
        """Run the steps, and record and say how they ended; the exit code."""

    def close(self) -> None:
        """End what was started beside the steps."""


def execute(plan: Plan, facts: Facts, replan: Replan, *, debug: bool = False) -> int:
    """Run `plan` to its end; the exit code. `replan` gives the plan with what hooks and patches printed.

    Raises:
        MachineError: something that the plan requires is missing, or a program cannot be started.
        RequestError: what a hook or patch printed cannot be planned.
        RunDirectoryTaken: another run made the directory since it was planned.
    """
    requirements.check_plan(plan, facts.host.environ, installed=True)
    signals = Signals()
    try:
        launch = Launch(plan, facts, signals, debug=debug)
        return _carried_out(launch, _layer(launch, replan))
    finally:
        signals.restore()


def _layer(launch: Launch, replan: Replan) -> Layer:
    """Only the kind in hand is imported: each start pays for it."""
    if launch.plan.inner:
        from primus_core.execute.outer import OuterLayer

        return OuterLayer(launch)
    from primus_core.execute.ranks import RankLayer

    return RankLayer(launch, replan)


def _carried_out(launch: Launch, layer: Layer) -> int:
    launch.record.make()
    try:
        try:
            layer.save()
            launch.record.write(status="started")
        except OSError as error:
            raise unwritable(launch.directory, error) from None
        layer.begin()
        code = layer.run()
        if launch.plan.after_failure and launch.needs_explaining:
            from primus_core.execute import after_failure

            after_failure.run(launch, code)
    except PrimusError as error:
        raise launch.refused(error) from None
    except Exception as error:  # a bug of ours, or of a plugin that was asked: the run has ended all the same
        from primus_core.installed import faults

        if found := faults.of_plugin(error):
            raise launch.refused(found) from error
        launch.failed(launch.masked(f"{type(error).__name__}: {error}"), 1)
        raise
    else:
        return code
    finally:
        layer.close()
        launch.record.release()
