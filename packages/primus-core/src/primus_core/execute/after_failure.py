"""After a run has failed: the programs of packages that want to look at it. Entry-point group `primus.after_failure`.

An entry point names a module; `python -m MODULE RUN_DIR EXIT_CODE` runs once for a run, when all logs are closed.
"""

from __future__ import annotations

from primus_core import variables
from primus_core.execute.launch import Launch
from primus_core.plan.plan import Step
from primus_machine.supervision.program import Ended
from primus_machine.supervision.supervise import supervise

__all__ = ["run"]


def run(launch: Launch, code: int) -> None:
    """Run those of the plan. Whatever becomes of them, the run's end stays as it is."""
    for step in launch.plan.after_failure:
        environ = {**launch.environ, variables.IN_HOOK: "1"}
        try:
            ended = supervise(step._replace(argv=(*step.argv, str(code))), environ, launch.watch())
        except OSError as error:  # no process is to be had; the run's exit code counts
            ended = Ended(1, not_started=str(error))
        if why := _why(ended, step):
            launch.note(f"{step.name} {why}; the exit code of the run is {code} all the same")


def _why(ended: Ended, step: Step) -> str:
    """What went wrong with it; empty: nothing."""
    if ended.not_started:
        return f"could not be started: {ended.not_started}"
    if ended.timed_out:
        return f"took longer than {step.timeout_s:g} s and was ended"
    return f"ended with exit code {ended.exit_code}" if ended.exit_code and not ended.signal else ""
