"""Write down what a run went through."""

from primus_core import hookimpl
from primus_core.hooks.specs import Result, RunInfo


@hookimpl
def before_launch(run: RunInfo) -> None:
    print("acme diary:", run.task, "on", run.world_size, "ranks")


@hookimpl
def after_run(run: RunInfo, result: Result) -> None:
    print("acme diary:", result.status, "after step", result.last_step)
