"""Runs hooks and patches before the ranks, and takes what they print: variables, settings, a reason to skip."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

from primus_core.environment.flag_lists import FLAG_LISTS, applied
from primus_core.execute.launch import Launch, Replan
from primus_core.hooks import script_output
from primus_core.hooks.script_output import Malformed, ScriptOutput
from primus_core.hooks.scripts import NOT_APPLICABLE
from primus_core.plan.plan import Step
from primus_machine.files import trust
from primus_machine.secrets.redaction import spelt
from primus_machine.supervision.program import Ended

__all__ = ["Scripts"]

RunStep = Callable[[Step, Callable[[bytes], None]], Ended]
"""Runs a step; each line of its stdout goes to the function."""


class Scripts:
    """Those of one launch. `run_step` starts each."""

    def __init__(self, launch: Launch, replan: Replan, run_step: RunStep) -> None:
        self.launch, self.replan, self.run_step = launch, replan, run_step
        self.printed = ScriptOutput()
        self.words_of: dict[str, tuple[str, ...]] = {}
        self.skipped = ""
        """Why a script finds nothing to launch."""

    def run(self) -> tuple[Ended, Step | None]:
        """Run one after the other, until one fails; what they printed is planned, and the launch goes on with it."""
        for step in self.launch.plan.steps:
            if not step.script:
                continue
            ended, printed = self._script(step)
            if step.kind == "patch" and ended.exit_code == NOT_APPLICABLE and not ended.signal:
                self.launch.say(f"primus: {step.name}: not applicable here\n")
                continue
            if ended.exit_code:
                return ended, step
            if printed.skip:
                self.skipped = f"{printed.skip} ({step.name})"
                return Ended(0), None
            self._take(step, printed)
        if self.has_printed:
            with script_output.naming(self.words_of):
                self.launch.take(self.replan(self.printed))
        return Ended(0), None

    @property
    def has_printed(self) -> bool:
        """Whether one of them printed something that is planned."""
        return self.printed != ScriptOutput()

    def _take(self, step: Step, printed: ScriptOutput) -> None:
        """The next scripts get the variables that this one sets, except those that `--env` sets."""
        self.printed, self.words_of[step.name] = self.printed.and_then(printed), printed.words
        options = (v for v in self.launch.plan.environment if v.is_option)
        fixed = {v.name for v in options} - FLAG_LISTS
        self.launch.environ = applied(self.launch.environ, (v for v in printed.environment if v.name not in fixed))

    def _script(self, step: Step) -> tuple[Ended, ScriptOutput]:
        launch = self.launch
        trust.of(launch.facts.host.environ).require(step.script, "the script")  # planned a while ago: still the same?
        listener = _Listener(step, launch)
        ended = self.run_step(step, listener)
        if ended.timed_out:
            launch.say(f"primus: {step.name} took longer than {step.timeout_s:g} s and was cut off\n")
        if ended.timed_out and not ended.exit_code:  # it tidied up, and called it a good end
            ended = replace(ended, exit_code=128 + signal.SIGTERM)
        for command in ended.left:
            launch.note(launch.masked(f"{step.name} left '{command}' running; it was ended with it"))
        return ended, listener.printed


class _Listener:
    """Takes each line of a script. A secret in it is masked from then on; a malformed line is named and ignored."""

    def __init__(self, step: Step, launch: Launch) -> None:
        self.step, self.launch = step, launch
        self.printed = ScriptOutput()

    def __call__(self, line: bytes) -> None:
        text = line.decode("utf-8", "surrogateescape")
        self.launch.mask.add(tuple(spelt(script_output.secrets_in(text))))
        found = script_output.parse_line(text, self.step.script)
        if isinstance(found, Malformed):
            self.launch.note(f"{self.step.name}: '{self.launch.masked(found.text)}' was ignored: {found.why}")
            self.launch.events.emit("malformed_line", level="warning", name=self.step.name, why=found.why)
        elif found:
            self.printed = self.printed.and_then(found)
