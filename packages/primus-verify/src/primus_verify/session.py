"""One verification: the weights to start from, the reference, and each layout beside it."""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from primus_core.errors import PrimusError, TrainingError
from primus_core.journal import summary
from primus_core.plan.plan import METRICS
from primus_machine.units import counted, time_span
from primus_verify import replicas, stored, verdict
from primus_verify.comparison import Deviation, Step, Tolerance, beyond, compare, without_moments, worst
from primus_verify.kept import Kept
from primus_verify.layouts import REFERENCE, Layout
from primus_verify.trials import ONE, Trials
from primus_verify.verdict import Finding

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["Result", "Session", "Status"]

_NUDGE = 2.0**-22
"""Changes weights by some units in their last place."""
_SEEDS = (11, 23)
_SECOND_SEED = 37
_EXPERT = re.compile(r"experts?\.\d+\.")
_RANK = re.compile(r"^rank \d+: ")
"""One rank trains: its number says nothing."""
_KINDS = ("weight", "first moment", "second moment")
Status = Literal["equal", "differs", "failed", "not tried"]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one layout."""

    layout: Layout
    status: Status
    findings: tuple[Finding, ...] = ()
    why: str = ""
    """Of `failed` and `not tried`; of others, what was not compared."""
    seconds: float = 0.0
    worst: Mapping[str, Deviation] = field(default_factory=dict)
    """The largest deviation of each quantity, also where rounding explains it."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as `verify.json` has it."""
        return {
            "layout": self.layout.name,
            "ranks": self.layout.ranks,
            "status": self.status,
            "why": self.why or None,
            "seconds": round(self.seconds, 1),
            "worst": {
                quantity: {"error": _finite(one.error), "limit": _finite(one.limit), "step": one.step, "name": one.name}
                for quantity, one in self.worst.items()
            },
            "findings": [finding._asdict() | {"error": _finite(finding.error)} for finding in self.findings],
        }


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if value < float("inf") else None


@dataclass(frozen=True, slots=True)
class Reference:
    """The training on one rank."""

    start: str
    """The checkpoint that all trainings start from."""
    initial: stored.State
    """What is in it."""
    steps: Sequence[Step]
    names: Mapping[str, Sequence[str]]
    """Of weights and moments, by kind."""
    tokens: int
    """In a step."""
    seed: Mapping[str, Any]
    """The settings of its seed, where that is not the experiment's."""
    compared: int
    """How many steps can be compared with other layouts."""


class Session:
    """Trains and compares. `say` gets a line for each thing that begins or ends. `not_tried`: why, by layout."""

    def __init__(
        self, trials: Trials, kept: Kept, rtol: float | None, say: Callable[[str], None], not_tried: Mapping[str, str]
    ) -> None:
        self.trials, self.kept, self.say, self.not_tried = trials, kept, say, not_tried
        self._own: list[str] = []
        self.tolerance: Tolerance | None = Tolerance(rtol) if rtol else None

    def verify(self, layouts: Sequence[Layout]) -> list[dict[str, Any]]:
        """Return what came of each layout, now or before (`kept`).

        Raises:
            PrimusError: the reference cannot be trained.
        """
        known = {layout.name: result for layout in layouts if (result := self.kept.read(layout.name))}
        for layout in layouts:
            if layout.name in known:
                self.say(f"{layout.name}: {known[layout.name]['status']}, as before")
            elif why := self.not_tried.get(layout.name):
                known[layout.name] = Result(layout, "not tried", why=why).to_dict()
                self.say(f"{layout.name}: not tried: {why}")
        left = [layout for layout in layouts if layout.name not in known]
        if left:
            known |= self._train_all(left)
        return [known[layout.name] for layout in layouts]

    def _train_all(self, layouts: Sequence[Layout]) -> dict[str, dict[str, Any]]:
        found = {}
        for layout in layouts:
            result = self._second_look(self._result(layout, self.reference))
            found[layout.name] = result.to_dict()
            if result.status != "failed":
                self.kept.write(layout.name, found[layout.name])
        return found

    def _second_look(self, first: Result) -> Result:
        """Return the result with other weights and tokens where those agree, if rounding may have chosen experts.

        A token whose experts are nearly equal gets others for one unit in the last place. A layout that computes
        something else does so with all weights.
        """
        has_experts = (
            first.status == "differs" and "repeat" not in first.layout.degrees and _has_experts(self.reference.initial)
        )
        if not has_experts:
            return first
        self.say(f"{first.layout.name}: rounding may have chosen other experts: trying other weights")
        second = self._result(first.layout, self.second_reference)
        if second.status != "equal":
            return first
        differed = f"differed with the first of two seeds; rounding may have chosen experts: {first.findings[0].text}"
        return replace(second, why="; ".join(filter(None, (differed, second.why))))

    def try_settings(self, settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return what each setting changes: each gets its default, alone, and the rest stays.

        Raises:
            PrimusError: the reference cannot be trained.
        """
        return [dict(one) | self._effect(one["name"], one["default"]) for one in settings]

    def _effect(self, name: str, default: Any) -> dict[str, str]:
        """What is first different with the default, to the bit; or why it could not be tried, and the log of that."""
        reference = self.reference
        self.say(f"{name}={default}: training ...")
        try:
            run = self.trials.train(ONE, reference.start, {**reference.seed, name: default})
            found = compare(reference.steps, self.trials.read(run), reference.initial, Tolerance(0.0), exactly=True)
        except PrimusError as error:
            log = self.trials.log(ONE, reference.start, {**reference.seed, name: default})
            self.say(f"{name}={default}: not tried: the training fails, see {log}")
            return {"status": "not tried", "effect": _RANK.sub("", error.why or error.what), "log": log}
        shutil.rmtree(run, ignore_errors=True)
        first = beyond(found)
        if not first:
            return {"status": "nothing", "effect": ""}
        return {"status": "changes", "effect": f"the {first[0].quantity} of step {first[0].step}"}

    def clean(self) -> None:
        """Remove the checkpoints of the reference, once everything is compared."""
        while self._own:
            shutil.rmtree(self._own.pop(), ignore_errors=True)

    @cached_property
    def reference(self) -> Reference:
        """What all trials are compared with, trained when it is needed first.

        Raises:
            PrimusError: it cannot be trained.
        """
        found = self._reference({})
        if not _has_experts(found.initial):
            return found
        steps = self._stable_steps(found)
        for number in _SEEDS:
            if steps == len(found.steps):
                return found
            self.say(f"step {steps + 1}: two experts are nearly equal, so rounding chooses: trying another seed")
            self.clean()
            found = self._reference(self.trials.verifier.seed(number))
            steps = self._stable_steps(found)
        if not steps:
            what = f"two experts are nearly equal for a token of step 1, with each of {len(_SEEDS) + 1} seeds"
            raise TrainingError(what, why="rounding chooses between them, so layouts cannot agree",
                                fix="set another seed in the experiment")  # fmt: skip
        return replace(found, compared=steps)

    @cached_property
    def second_reference(self) -> Reference:
        """The same with another seed."""
        return self._reference(self.trials.verifier.seed(_SECOND_SEED))

    def _reference(self, seed: Mapping[str, Any]) -> Reference:
        begin = self._train(ONE, "", seed)
        start = self.trials.verifier.checkpoint(begin, 1)
        run = self._train(ONE, start, seed)
        self._own += [begin, run]
        initial = stored.read(self.trials.verifier, start)
        steps = self.trials.read(run)
        _expect_finite(steps)
        first = steps[0].read()
        _expect_moments(initial, first)
        names = {kind: [name for of, name in first if of == kind] for kind in _KINDS}
        return Reference(start, initial, steps, names, self._tokens(run), seed, len(steps))

    def _stable_steps(self, found: Reference) -> int:
        """Return how many steps weights that differ by rounding errors train alike."""
        self.say("experts: training with weights that differ by rounding ...")
        verifier, (begin, *_) = self.trials.verifier, self._own
        nudged = shutil.copytree(begin, f"{begin}-nudged", ignore=shutil.ignore_patterns("logs", "env"))
        start = verifier.checkpoint(nudged, 1)
        stored.overwrite(verifier, start, self._nudged)
        run = self.trials.train(ONE, start, found.seed)
        self._own += [nudged, run]
        other = beyond(compare(found.steps, self.trials.read(run), found.initial, self._tolerance(found)))
        return min([one.step - 1 for one in other], default=len(found.steps))

    def _nudged(self, raw: Mapping[str, Array]) -> dict[str, Array]:
        """The weights, each changed by some units in its last place."""
        # A step of Adam would not do: a rule also moves biases of routers, by far more than rounding does.
        import numpy as np

        signs = np.random.default_rng(0)
        return {name: (array * (1 + _NUDGE * signs.choice((-1, 1), array.shape))).astype(array.dtype)
                for name, array in raw.items()
                if any(kind == "weight" for kind, *_ in self.trials.verifier.tensors({name: array}))}  # fmt: skip

    def _tolerance(self, reference: Reference) -> Tolerance:
        return self.tolerance or Tolerance.of_reduction(reference.tokens)

    def _train(self, layout: Layout, start: str, seed: Mapping[str, Any]) -> str:
        begun = time.monotonic()
        what = counted(self.trials.steps, "step") if start else "the weights to start from"
        self.say(f"{layout.name}: training {what} on {counted(layout.ranks, 'rank')} ...")
        run = self.trials.train(layout, start, seed)
        if layout.name == REFERENCE:
            self.say(f"{layout.name}: {time_span(time.monotonic() - begun)}")
        return run

    def _result(self, layout: Layout, reference: Reference) -> Result:
        begun = time.monotonic()
        tolerance = self._tolerance(reference)
        try:
            run = self._train(layout, reference.start, reference.seed)
            steps = slice(reference.compared)
            right, trial = reference.steps[steps], self.trials.read(run)[steps]
            measured = compare(right, trial, reference.initial, tolerance, exactly="repeat" in layout.degrees)
            differing = replicas.differences(run, self.trials.steps, layout.ranks)
        except PrimusError as error:
            result = Result(layout, "failed", why=f"{error.what}: {error.why}", seconds=time.monotonic() - begun)
        else:
            allowed = verdict.ASKED if self.tolerance else verdict.ROUNDING
            findings = (*verdict.describe(beyond(measured), layout.degrees, reference.names, allowed), *differing)
            status: Status = "differs" if findings else "equal"
            result = Result(
                layout,
                status,
                findings,
                self._note(reference, layout, findings),
                time.monotonic() - begun,
                worst(measured),
            )
            shutil.rmtree(run, ignore_errors=True)
        self.say(f"{layout.name}: {result.status} ({time_span(result.seconds)})")
        return result

    def _note(self, reference: Reference, layout: Layout, findings: Sequence[Finding]) -> str:
        """What the findings look like, and which steps could not be compared."""
        known = self.trials.verifier.known_differences
        steps = reference.compared
        few = f"{counted(steps, 'step')} of {self.trials.steps} could be compared: then rounding chooses experts"
        seen = verdict.explain(findings, layout.degrees, reference.names, known)
        return "; ".join(filter(None, (seen, few if steps < self.trials.steps else "")))

    def _tokens(self, run: str) -> int:
        rows = summary.read(f"{run}/{METRICS}")
        return int(rows[0].get("tokens") or 1)


def _has_experts(weights: stored.State) -> bool:
    return any(_EXPERT.search(name) for _, name in weights)


def _expect_moments(initial: stored.State, then: stored.State) -> None:
    """Raise an error if a weight has moved and its moments are not stored: then nobody compares its gradient."""
    if missing := without_moments(initial, then):
        what = f"the checkpoint of the reference has no moments of {', '.join(missing[:3])}"
        why = f"the gradients of {counted(len(missing), 'module')} cannot be compared"
        raise TrainingError(what, why=why, fix="use a version of the framework that docs/verify.md names")


def _expect_finite(steps: Sequence[Step]) -> None:
    """Raise an error if the reference is not finite: nothing can be equal to that."""
    for number, step in enumerate(steps, 1):
        norm = 0.0 if step.norm is None else step.norm
        if not (math.isfinite(step.loss) and math.isfinite(norm)):
            names = sorted(name for (kind, name), value in step.read().items()
                           if kind == "first moment" and not bool((abs(value) < math.inf).all()))  # fmt: skip
            of = f"; gradients that are not: {', '.join(names[:3])}" if names else ""
            what = f"the reference, on {REFERENCE}, is not finite from step {number}"
            fix = "no layout is the cause: train it on one rank, and look at the model's settings"
            raise TrainingError(what, why=f"loss {step.loss}, gradient norm {step.norm}{of}", fix=fix)
