"""One verification: the weights to start from, the reference, and each layout beside it."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from primus_core.errors import PrimusError
from primus_core.journal import summary
from primus_core.plan.plan import METRICS, Distributed, RunPlace
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import TaskCall
from primus_machine import facts as machine
from primus_machine.host import HostRoot
from primus_machine.units import time_span
from primus_verify import stored, verdict
from primus_verify.comparison import Step, Tolerance, compare
from primus_verify.layouts import REFERENCE, Layout
from primus_verify.trials import Trials
from primus_verify.verdict import Finding

__all__ = ["Result", "Session", "Status"]

_KINDS = ("weight", "first moment", "second moment")
Status = Literal["equal", "differs", "failed", "not tried"]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one layout."""

    layout: Layout
    status: Status
    findings: tuple[Finding, ...] = ()
    why: str = ""
    """Of `failed` and `not tried`."""
    seconds: float = 0.0

    @property
    def is_tried(self) -> bool:
        """Whether it was trained."""
        return self.status != "not tried"


class Session:
    """Trains and compares. `say` gets a line for each thing that begins or ends."""

    def __init__(self, trials: Trials, rtol: float | None, say: Callable[[str], None]) -> None:
        self.trials, self.say = trials, say
        self.tolerance: Tolerance | None = Tolerance(rtol) if rtol else None

    def verify(self, layouts: Sequence[Layout]) -> list[Result]:
        """Return what came of each layout.

        Raises:
            PrimusError: the reference cannot be trained.
        """
        one = Layout(REFERENCE, {})
        refused = {layout.name: why for layout in layouts if (why := self._refusal(layout))}
        for name, why in refused.items():
            self.say(f"{name}: not tried: {why}")
        if len(refused) == len(layouts):
            return [Result(layout, "not tried", why=refused[layout.name]) for layout in layouts]
        begin = self._train(one, "")
        start = self.trials.verifier.checkpoint(begin, 1)
        initial = stored.read(self.trials.verifier, start)
        run = self._train(one, start)
        reference = self.trials.read(run)
        self.tolerance = self.tolerance or Tolerance.of_reduction(self._tokens(run))
        results = [
            Result(layout, "not tried", why=refused[layout.name]) if layout.name in refused
            else self._result(layout, start, reference, initial)
            for layout in layouts
        ]  # fmt: skip
        shutil.rmtree(begin, ignore_errors=True)
        shutil.rmtree(run, ignore_errors=True)
        return results

    def _train(self, layout: Layout, start: str) -> str:
        begun = time.monotonic()
        self.say(f"{layout.name}: training {self.trials.steps if start else 'the weights to start from'}"
                 f"{' steps' if start else ''} on {layout.ranks} rank{'s' * (layout.ranks > 1)} ...")  # fmt: skip
        run = self.trials.train(layout, start)
        if layout.name == REFERENCE:
            self.say(f"{layout.name}: {time_span(time.monotonic() - begun)}")
        return run

    def _result(self, layout: Layout, start: str, reference: Sequence[Step], initial: stored.State) -> Result:
        begun = time.monotonic()
        assert self.tolerance
        try:
            run = self._train(layout, start)
            trial = self.trials.read(run)
        except PrimusError as error:
            result = Result(layout, "failed", why=f"{error.what}: {error.why}", seconds=time.monotonic() - begun)
        else:
            exactly = "repeat" in layout.degrees
            deviations = compare(reference, trial, initial, self.tolerance, exactly=exactly)
            names = {kind: [name for of, name in reference[0].state if of == kind] for kind in _KINDS}
            findings = tuple(verdict.describe(deviations, layout.degrees, names))
            status: Status = "differs" if findings else "equal"
            result = Result(layout, status, findings, seconds=time.monotonic() - begun)
            shutil.rmtree(run, ignore_errors=True)
        self.say(f"{layout.name}: {result.status} ({time_span(result.seconds)})")
        return result

    def _refusal(self, layout: Layout) -> str:
        """Why this layout cannot be planned; empty: it can."""
        from primus_train import task as train

        host = HostRoot()
        facts = machine.read(host)
        try:
            words = [f"{key}={value}" for key, value in self.trials.settings(layout, "/start").items()]
        except ValueError as error:
            return str(error)
        args = argparse.Namespace(stage="pretrain", config=self.trials.experiment, overrides=words, replay=None,
                                  profile=None, anew=True, always=False)  # fmt: skip

        def somewhere(_: str, name: str) -> RunPlace:
            return RunPlace(name, f"{self.trials.folder}/{name}", "")

        try:
            train.resolve(
                TaskCall((), args, facts, Distributed(gpus_per_node=layout.ranks), somewhere, Catalogue.here(host, ""))
            )
        except PrimusError as error:
            return f"{error.what}{f' ({error.why})' if error.why else ''}"
        return ""

    def _tokens(self, run: str) -> int:
        rows = summary.read(f"{run}/{METRICS}")
        return int(rows[0].get("tokens") or 1)
