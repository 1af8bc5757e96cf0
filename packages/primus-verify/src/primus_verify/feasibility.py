"""Which layouts can be tried, and why others cannot: known before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from primus_core.config.document import dotted
from primus_core.errors import MachineError, Mistakes, PrimusError, RequestError
from primus_machine.facts import Facts
from primus_train.templates.recipe import leaves
from primus_verify.contract import Verifier
from primus_verify.layouts import WITHIN, Layout, parse
from primus_verify.resolving import as_experiment, as_reason, refusal

__all__ = ["Feasibility", "is_reference"]

_SMALL = "this is the small model, see --shrink"


@dataclass(frozen=True)
class Feasibility:
    """What decides whether a layout can be planned."""

    verifier: Verifier
    framework: str
    small: Mapping[str, Any]
    """The settings of all trials."""
    whole: Mapping[str, Any]
    """The same, with the model as the experiment has it."""
    batch: int
    facts: Facts

    def not_tried(self, layouts: Sequence[Layout]) -> dict[str, str]:
        """Return why layouts of `auto` cannot be tried, by their names.

        Raises:
            PrimusError: for all that the person named and that cannot be tried.
        """
        mistakes, found = Mistakes(), dict[str, str]()
        usual = "leave it out, or choose another one" if len(layouts) > 1 else "choose another one"
        for layout in layouts:
            if error := self.explain(layout):
                found[layout.name] = error.what
                if layout.asked:
                    fix = error.fix or usual
                    mistakes.add(type(error)(f"layout '{layout.name}' cannot be tried", why=error.what, fix=fix))
        mistakes.refuse()
        return found

    def explain(self, layout: Layout) -> PrimusError | None:
        """Return why a layout cannot be tried, or proves nothing; None: it can."""
        try:
            settings = self.verifier.settings(layout.degrees, self.batch)
        except ValueError as wrong:
            return RequestError(str(wrong))
        by_micro_batch = getattr(self.verifier, "by_micro_batch", None)
        if by_micro_batch and "mbs" in layout.degrees and (why := by_micro_batch(self.small)):
            return RequestError(why)
        if is_reference(self.verifier, layout, self.small, self.batch):
            return RequestError("it is what the reference does, too")
        error = self._refusal(self.small, settings, layout.ranks)
        if not error:
            return None
        why = as_reason(error)
        if dict(self.small) != dict(self.whole) and not self._refusal(self.whole, settings, layout.ranks):
            why = f"{why}; {_SMALL}"
        kind = MachineError if isinstance(error, MachineError) else RequestError
        return kind(why, fix=self._alternative(layout))

    def _refusal(self, experiment: Mapping[str, Any], settings: Mapping[str, Any], ranks: int) -> PrimusError | None:
        words = {**settings, **self.verifier.steps(1, rate=1.0), **self.verifier.start("/start")}
        with _in_memory(as_experiment(self.framework, experiment, "/nowhere")) as path:
            return refusal(path, words, ranks, self.facts)

    def _alternative(self, layout: Layout) -> str:
        """Return the same layout with what experts may need, if that one can be planned: sp, or ranks for ep."""
        degrees = layout.degrees
        more = [{"sp": 1}] if "tp" in degrees and not degrees.get("sp") else []
        if "ep" in degrees:
            more += [{axis: degrees["ep"]} for axis in WITHIN["ep"] if axis not in degrees]
        for one in more:
            name = ",".join(f"{axis}={degree}" for axis, degree in {**degrees, **one}.items())
            if not self.explain(parse(name, self.verifier.rank_axes)):
                return f"--layouts {name}"
        return ""


def is_reference(verifier: Verifier, layout: Layout, experiment: Mapping[str, Any], batch: int) -> bool:
    """Return whether a layout trains as the reference does: on one rank, with the same settings.

    The reference once more, `repeat`, is another matter.
    """
    base = {dotted(path): value for path, value in leaves(experiment)}
    one, other = (
        {name: value for name, value in verifier.settings(degrees, batch).items() if base.get(name) != value}
        for degrees in ({}, layout.degrees)
    )
    return layout.ranks == 1 and "repeat" not in layout.degrees and one == other


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Give a text a path while it is planned from: a plan writes no files."""
    file = os.memfd_create("experiment")
    try:
        os.write(file, text.encode())
        yield f"/dev/fd/{file}"
    finally:
        os.close(file)
