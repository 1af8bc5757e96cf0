"""Tells the Python hooks of a run what happens in it: at its start and end, and at each step and checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from primus_core.hooks.api import HookProcesses
from primus_core.hooks.data import FailureInfo, HangInfo, Ranks, Result, RunInfo, Stop
from primus_core.journal import events
from primus_core.journal.metrics import is_step
from primus_core.plan.plan import METRICS, Plan
from primus_machine.files.follow import Follower
from primus_machine.secrets.masks import Mask

__all__ = ["Lifecycle"]

_EVERY_S = 0.25
_TICK_S = 5.0


class Lifecycle:
    """The hooks of one run on this node. Node 0, which has the files, reports steps and checkpoints."""

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
        self.next_tick = 0.0
        self.has_looked: Callable[[], bool] | None = None
        """Whether the hooks that look at ranks that hang have returned; None: no rank hangs."""
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

    def may_end_hung(self, silent_s: float, ranks: Ranks) -> bool:
        """Called again and again while ranks hang, until it says that the hooks have looked at them."""
        self.has_looked = self.has_looked or self.hooks.asked("on_hang", hang=HangInfo(silent_s, ranks))
        self.hooks.poll()
        done = self.has_looked()
        if done:
            self.has_looked = None
        return done

    def poll(self, ranks: Callable[[], Ranks]) -> None:
        """Called often while the ranks run; `ranks` are those that have started."""
        if not self.launched:
            self.launched = True
            self.hooks.post("after_launch")
        if (now := time.monotonic()) >= self.next_look:
            self.next_look = now + _EVERY_S
            self.look()
        if now >= self.next_tick:
            self.next_tick = now + _TICK_S
            self.hooks.post("on_tick", ranks=ranks())
        self.hooks.poll()

    def look(self) -> None:
        """Tell of the steps, events and checkpoints since the last look."""
        if not self.first_node:
            return
        for row in filter(is_step, self.metrics.new()):
            self.hooks.post("on_step", metrics=row)
        for row in self.events.new():
            self.hooks.post("on_event", event=row)
            if row.get("event") == events.CHECKPOINT_SAVED:
                self.hooks.post("on_checkpoint", step=row.get("step"), path=row.get("path"))

    def ended(self, result: Result, failure: FailureInfo) -> None:
        """Tell how it ended, wait for the hooks, and end their processes. `failure`: of a run that has failed."""
        self.look()
        if result.status == "failed":
            self.hooks.call("on_failure", failure=failure)
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
