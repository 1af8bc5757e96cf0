"""Tells the Python hooks of a run what happens in it: at its start and end, and at each step and checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from primus_core import variables
from primus_core.contracts.observer import Observer, Ranks, RunEnd, Stop
from primus_core.hooks.api import HookProcesses
from primus_core.hooks.data import FailureInfo, HangInfo, Result, RunInfo
from primus_core.journal import events, summary
from primus_core.journal.metrics import is_step
from primus_core.journal.record import FirstFailure
from primus_core.plan.plan import METRICS, Plan
from primus_machine.files.follow import Follower
from primus_machine.secrets.masks import Mask

__all__ = ["Lifecycle"]

_EVERY_S = 0.25
_TICK_S = 5.0


class Lifecycle(Observer):
    """The hooks of one run on this node. Node 0, which has the files, reports steps and checkpoints."""

    def __init__(self, host: str, mask: Mask, say: Callable[[str], None], interruptions: Callable[[], int]) -> None:
        self.host, self.mask, self.say, self.interruptions = host, mask, say, interruptions
        self.hooks: HookProcesses | None = None
        """None: the ranks are not prepared yet."""
        self.launched = False
        self.next_look = 0.0
        self.next_tick = 0.0
        self.has_looked: Callable[[], bool] | None = None
        """Whether the hooks that look at ranks that hang have returned; None: no rank hangs."""

    def before_ranks(self, plan: Plan, environ: Mapping[str, str]) -> Stop | None:
        """Start the hooks, and ask whether one wants no launch.

        Raises:
            ConfigError: a person's own file of hooks cannot be loaded.
        """
        self.directory, self.first_node = plan.place.directory, plan.distributed.node_rank == 0
        self.metrics = Follower(f"{self.directory}/{METRICS}")
        self.events = Follower(f"{self.directory}/{events.FILE}")
        self.hooks = HookProcesses(
            plan.hook_plugins,
            _about(plan, self.host),
            timeout_s=plan.hook_timeout_s,
            environ={**environ, variables.IN_HOOK: "1"},
            say=self.say,
            log=f"{self.directory}/logs/hooks.log",
            mask=self.mask,
            interruptions=self.interruptions,
        )
        return self.hooks.call("before_launch")

    @property
    def stop(self) -> Stop | None:  # type: ignore[override]  # read, never set
        """What a hook has asked for."""
        return self.hooks.stop if self.hooks else None

    def may_end_hung(self, silent_s: float, ranks: Ranks) -> bool:
        """Called again and again while ranks hang, until it says that the hooks have looked at them."""
        if not self.hooks:
            return True
        self.has_looked = self.has_looked or self.hooks.asked("on_hang", hang=HangInfo(silent_s, ranks))
        self.hooks.poll()
        done = self.has_looked()
        if done:
            self.has_looked = None
        return done

    def look(self, ranks: Callable[[], Ranks]) -> None:
        """Called often while the ranks run; `ranks` are those that have started."""
        if not self.hooks:
            return
        if not self.launched:
            self.launched = True
            self.hooks.post("after_launch")
        if (now := time.monotonic()) >= self.next_look:
            self.next_look = now + _EVERY_S
            self._read_files(self.hooks)
        if now >= self.next_tick:
            self.next_tick = now + _TICK_S
            self.hooks.post("on_tick", ranks=ranks())
        self.hooks.poll()

    def _read_files(self, hooks: HookProcesses) -> None:
        """Tell of the steps, events and checkpoints since the last look."""
        if not self.first_node:
            return
        for row in filter(is_step, self.metrics.new()):
            hooks.post("on_step", metrics=row)
        for row in self.events.new():
            hooks.post("on_event", event=row)
            if row.get("event") == events.CHECKPOINT_SAVED:
                hooks.post("on_checkpoint", step=row.get("step"), path=row.get("path"))

    def ended(self, end: RunEnd) -> None:
        """Tell how it ended, wait for the hooks, and end their processes."""
        if not self.hooks:
            return
        self._read_files(self.hooks)
        if end.status == "failed":
            first = end.failure or FirstFailure()
            code = end.exit_code if first.exit_code is None else first.exit_code
            self.hooks.call("on_failure", failure=FailureInfo(first.rank, code, first.what, end.traceback, end.host))
        rows = summary.read(f"{self.directory}/{METRICS}")
        last = (rows[-1]["step"], rows[-1]["loss"]) if rows else (None, None)
        self.hooks.call("after_run", result=Result(end.status, end.exit_code, end.seconds, *last))
        self.hooks.close()

    def close(self) -> None:
        """End the processes."""
        if self.hooks:
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
