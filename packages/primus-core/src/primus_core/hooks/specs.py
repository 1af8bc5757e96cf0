"""The Python Hook API: the moments of a run at which a plugin's own code is called. This is the page to read.

A hook takes the arguments below, or as few of them as it needs. Each plugin runs in a process of its own on every
node, beside the supervisor: never in a rank, so nothing here slows a step, and nothing that it does can harm the run.
Its calls come one after the other, in the order of the events. A hook that raises is named with its plugin and
exception, and the run continues, unless it raises `StopRun("reason")`: then the ranks get SIGTERM and their grace, and
the command ends with exit code 1 (`StopRun("reason", exit_code=0)`: that is a good end). A hook that takes longer than
`hooks: {event_timeout_s: 30}` is ended, and its plugin gets no further events. What hooks print goes to
`logs/hooks.log`. What they return is ignored.

pluggy's options (`@hookimpl(tryfirst=True)`, `wrapper=True`, `specname="on_step"`) work within one plugin.
"""

from __future__ import annotations

import pluggy

from primus_core.hooks.data import Event, FailureInfo, HangInfo, Ranks, Result, RunInfo, StepMetrics, StopRun

__all__ = [
    "Event",
    "FailureInfo",
    "HangInfo",
    "Ranks",
    "Result",
    "RunInfo",
    "StepMetrics",
    "StopRun",
    "hookimpl",
    "hookspec",
]

hookspec = pluggy.HookspecMarker("primus")
hookimpl = pluggy.HookimplMarker("primus")


@hookspec
def before_launch(run: RunInfo) -> None:
    """Before the first process of the run is started. The launch waits for it.

    `StopRun("why")`: nothing is launched.
    """


@hookspec
def after_launch(run: RunInfo) -> None:
    """The ranks of this node have been started; they are not yet ready. The run does not wait for it."""


@hookspec
def on_step(run: RunInfo, metrics: StepMetrics) -> None:
    """A training step was logged. The run does not wait for it.

    A plugin that falls thousands of steps behind misses some; their number is reported at the end.
    """


@hookspec
def on_checkpoint(run: RunInfo, step: int, path: str) -> None:
    """The checkpoint of `step` is whole and lies at `path`. The run does not wait for it."""


@hookspec
def on_event(run: RunInfo, event: Event) -> None:
    """A line was added to `logs/events.jsonl`. The run does not wait for it. Called where `node_rank` is 0."""


@hookspec
def on_tick(run: RunInfo, ranks: Ranks) -> None:
    """Some seconds have passed while the ranks run: every 5 s, on each node. The run does not wait for it."""


@hookspec
def on_hang(run: RunInfo, hang: HangInfo) -> None:
    """The ranks of this node print nothing any more (`--hang-timeout`), and are ended when this returns.

    What they print meanwhile is still read. Signals reach them; a debugger may need a permission of the system.
    """


@hookspec
def on_failure(run: RunInfo, failure: FailureInfo) -> None:
    """The run failed on this node, and everything of it has ended. Primus waits for it. `after_run` follows."""


@hookspec
def after_run(run: RunInfo, result: Result) -> None:
    """The run is over, well or not. Primus waits for it; then the process of the plugin ends."""
