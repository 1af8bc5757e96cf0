"""Tells the Python hooks of a run what happens in it: at its start and end, and at each step and checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from primus_core.hooks.api import HookProcesses
from primus_core.hooks.data import FailureInfo, Result, RunInfo, Stop
from primus_core.hooks.follow import Follower
from primus_core.journal import events
from primus_core.journal.metrics import is_step
from primus_core.plan.plan import METRICS, Plan
from primus_core.process.failure import Failure
from primus_core.process.streams import Mask

__all__ = ["Lifecycle"]

_EVERY_S = 0.25


class Lifecycle:
    """The hooks of one run on this node. Steps and checkpoints are told by node 0, which has the files."""

    def __init__(
        self,
        plan: Plan,
        host: str,
        environ: Mapping[str, str],
        *,
        mask: Mask,
        say: Callable[[str], None],
        interruptions: Callable[[], int],
    ) -> None:
        self.directory = plan.place.directory
        self.first_node = plan.distributed.node_rank == 0
        self.metrics = Follower(f"{self.directory}/{METRICS}")
        self.events = Follower(f"{self.directory}/{events.FILE}")
        self.launched = False
        self.next_look = 0.0
        self.hooks = HookProcesses(
            plan.hook_plugins,
            _about(plan, host),
            timeout_s=plan.hook_timeout_s,
            environ=environ,
            say=say,
            log=f"{self.directory}/logs/hooks.log",
            mask=mask,
            interruptions=interruptions,
        )

    def before_launch(self) -> Stop | None:
        """Whether a hook wants no launch.

        Raises:
            ConfigError: a person's own file of hooks cannot be loaded.
        """
        return self.hooks.call("before_launch")

    @property
    def stop(self) -> Stop | None:
        """Whether a hook has asked for the run's end."""
        return self.hooks.stop

    def poll(self) -> None:
        """Called often while the ranks run."""
        if not self.launched:
            self.launched = True
            self.hooks.post("after_launch")
        if (now := time.monotonic()) >= self.next_look:
            self.next_look = now + _EVERY_S
            self.look()
        self.hooks.poll()

    def look(self) -> None:
        """Tell of the steps and checkpoints since the last look."""
        if not self.first_node:
            return
        for row in filter(is_step, self.metrics.new()):
            self.hooks.post("on_step", metrics=row)
        for row in self.events.new():
            if row.get("event") == events.CHECKPOINT_SAVED:
                self.hooks.post("on_checkpoint", step=row.get("step"), path=row.get("path"))

    def ended(self, result: Result, first: Failure | None) -> None:
        """Tell how it ended, wait for the hooks, and end their processes."""
        self.look()
        if result.status == "failed":
            self.hooks.call("on_failure", failure=_failure(result, first))
        self.hooks.call("after_run", result=result)
        self.hooks.close()

    def close(self) -> None:
        """End the processes."""
        self.hooks.close()


def _about(plan: Plan, host: str) -> RunInfo:
    place = plan.distributed
    return RunInfo(
        run_id=plan.place.run_id,
        directory=plan.place.directory,
        task=plan.task,
        framework=plan.framework,
        model=plan.model,
        command=plan.command,
        nnodes=place.nnodes,
        node_rank=place.node_rank,
        gpus_per_node=place.gpus_per_node,
        world_size=place.world_size,
        host=host,
        config=plan.config or {},
    )


def _failure(result: Result, first: Failure | None) -> FailureInfo:
    if first is None:
        return FailureInfo(-1, result.exit_code, "", "", "")
    return FailureInfo(first.rank, first.exit_code, first.what, first.traceback, first.host)
