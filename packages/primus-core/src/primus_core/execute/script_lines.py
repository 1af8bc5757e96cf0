"""What a hook or patch says, line by line while it runs."""

from __future__ import annotations

from collections.abc import Callable

from primus_core.hooks import scripts
from primus_core.hooks.scripts import Malformed, Spoken
from primus_core.journal.events import Events
from primus_core.plan.plan import Step
from primus_core.process.streams import Mask
from primus_core.secrets.redaction import redact, spelt

__all__ = ["Listener"]


class Listener:
    """Takes each line of a script. A secret in it is masked from then on; what is malformed is told, and ignored."""

    def __init__(self, step: Step, mask: Mask, events: Events, note: Callable[[str], None]) -> None:
        self.step, self.mask, self.events, self.note = step, mask, events, note
        self.said = Spoken()

    def __call__(self, line: bytes) -> None:
        text = line.decode("utf-8", "surrogateescape")
        self.mask.add(tuple(spelt(scripts.secrets_in(text))))
        spoken = scripts.parse_line(text, self.step.script)
        if isinstance(spoken, Malformed):
            self.note(f"{self.step.name}: '{redact(spoken.text, self.mask.secrets)}' was ignored: {spoken.why}")
            self.events.emit("malformed_line", level="warning", name=self.step.name, why=spoken.why)
        elif spoken:
            self.said = self.said.and_then(spoken)
