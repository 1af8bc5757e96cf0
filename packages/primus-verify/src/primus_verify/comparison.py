"""Compares a trial with the reference, by what each has after each step: losses, norms, gradients, weights, moments."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from primus_verify.stored import State

    Array = np.ndarray[Any, Any]

__all__ = [
    "QUANTITIES",
    "Deviation",
    "Step",
    "Tolerance",
    "beyond",
    "causes_first",
    "compare",
    "without_moments",
    "worst",
]

QUANTITIES = ("loss", "gradient", "gradient norm", "first moment", "second moment", "weight")
"""What is compared: causes before their effects."""
_LATER = ("loss", "first moment", "second moment", "gradient norm", "weight")
"""The same after the first step: no gradient is compared then, and a moment names its parameter, and a norm none."""

_UNIT_ROUNDOFF = 2.0**-24
"""Of float32 (IEEE 754)."""
_SAFETY = 32.0
"""Errors of several reductions add up: of a forward and a backward pass through all layers."""
_NOISE = 1e-3
"""An element whose gradient is this far below the parameter's mean is rounding error to a good part."""
_NOTHING = 1e-4
"""A parameter whose gradients are this far below those of the model has no gradient but rounding errors."""
_BY_RULE = re.compile(r"(experts?|router|gate|moe|Moe)\S*bias|tokens_per_expert")
"""Names of what a rule moves, and not the optimizer: biases that balance experts."""
_PROPORTIONAL = 0.02
"""What may be left of a gradient beside its multiple of the reference."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a trial has after one step."""

    loss: float
    norm: float | None
    """Of the gradient; None: the framework does not log it."""
    read: Callable[[], State]
    """Reads weights and moments. They may be large: those of one step are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far a quantity of a trial is from that of the reference."""

    step: int
    quantity: str
    """One of `QUANTITIES`."""
    name: str
    """Of the parameter; empty: of the whole model."""
    error: float
    """Relative to the reference, in the 2-norm; infinite: not a number, or missing."""
    limit: float
    """What rounding explains."""
    factor: float | None = None
    """If it is beyond the limit: it is this many times the reference, if it is a multiple of it."""

    @property
    def share(self) -> float:
        """The error in units of the limit."""
        return self.error / self.limit if self.limit else math.inf if self.error else 0.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far float32 lets two ways to compute the same thing drift apart.

    The error of a sum of n terms in another order is about sqrt(n) u of it, where u is the unit roundoff: Higham and
    Mary, A New Approach to Probabilistic Rounding Error Analysis (SIAM J. Sci. Comput. 41, 2019). n is the longest
    reduction: over all tokens of a step.

    Adam divides by the gradient's own size, so an error of `rtol` turns the sign of the share `rtol` of all elements:
    updates agree to 2 sqrt(rtol), and so does everything after the first step.
    """

    rtol: float

    @classmethod
    def of_reduction(cls, terms: int) -> Tolerance:
        """Return that of sums of so many terms."""
        return cls(_SAFETY * math.sqrt(terms) * _UNIT_ROUNDOFF)

    @property
    def updated(self) -> float:
        """For what depends on an update of Adam."""
        return 2 * math.sqrt(self.rtol)


def compare(
    reference: Sequence[Step], trial: Sequence[Step], start: State, tolerance: Tolerance, *, exactly: bool = False
) -> list[Deviation]:
    """Return how far `trial` is off in every quantity, step by step. `start` has the weights before the first step.

    `exactly`: every difference is beyond the limit.
    """
    limits = Tolerance(0.0) if exactly else tolerance
    found: list[Deviation] = []
    for number, (right, other) in enumerate(zip(reference, trial, strict=True), 1):
        found += _Comparison(number, right, right.read(), other, other.read(), start, limits).deviations()
    return found


def causes_first(step: int) -> Sequence[str]:
    """Return what is compared after a step, causes before their effects."""
    return QUANTITIES if step == 1 else _LATER


def beyond(found: Sequence[Deviation]) -> list[Deviation]:
    """Return those that rounding does not explain."""
    return [one for one in found if one.error > one.limit]


def without_moments(start: State, then: State) -> list[str]:
    """Return the modules with weights that a step has moved and that have not both moments: nobody compares those.

    Numbers are counted, since TorchTitan stores queries, keys and values apart, and their moments as one. Weights that
    a rule moves have no moments.
    """
    numbers: dict[str, dict[str, int]] = defaultdict(
        lambda: dict.fromkeys(("weight", "first moment", "second moment"), 0)
    )
    for (kind, name), value in then.items():
        if kind != "weight" or not (_BY_RULE.search(name) or _is_same(start.get((kind, name)), value)):
            numbers[name.rsplit(".", 2)[0]][kind] += value.size
    return sorted(module for module, of in numbers.items()
                  if of["first moment"] != of["second moment"] or of["weight"] > of["first moment"])  # fmt: skip


def _is_same(one: Array | None, other: Array) -> bool:
    return one is not None and one.shape == other.shape and bool((one == other).all())


def worst(found: Sequence[Deviation]) -> dict[str, Deviation]:
    """Return the largest deviation of each quantity, in units of its limit."""
    largest: dict[str, Deviation] = {}
    for one in found:
        if one.quantity not in largest or one.share > largest[one.quantity].share:
            largest[one.quantity] = one
    return largest


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One step of both."""

    step: int
    right: Step
    right_state: State
    other: Step
    other_state: State
    start: State
    tolerance: Tolerance

    def deviations(self) -> Iterator[Deviation]:
        first = self.step == 1
        moved = self.tolerance.rtol if first else self.tolerance.updated
        yield from self._numbers(self.tolerance.rtol if first else 10 * self.tolerance.rtol, moved)
        whole = _norm_of([value for (kind, _), value in self.right_state.items() if kind == "first moment"])
        for (kind, name), right in self.right_state.items():
            if kind == "weight":
                yield from self._weight(name, right)
            elif kind == "first moment":
                yield from self._tensor("gradient" if first else kind, name, right, moved, _NOTHING * whole)
            else:
                yield from self._tensor(kind, name, right, 2 * moved, (_NOTHING * whole) ** 2)
        for kind, name in self.other_state.keys() - self.right_state.keys():
            yield Deviation(self.step, kind, name, math.inf, 0.0)

    def _numbers(self, loss_limit: float, norm_limit: float) -> Iterator[Deviation]:
        for quantity, right, found, limit in (
            ("loss", self.right.loss, self.other.loss, loss_limit),
            ("gradient norm", self.right.norm, self.other.norm, norm_limit),
        ):
            if right is None:
                continue
            other = math.nan if found is None else found
            error = abs(other - right) / abs(right) if right else abs(other)
            factor = other / right if right and math.isfinite(other) and error > limit else None
            yield Deviation(self.step, quantity, "", math.inf if math.isnan(error) else error, limit, factor)

    def _weight(self, name: str, right: Array) -> Iterator[Deviation]:
        """Its change since the start, in elements whose gradients are more than rounding errors, or nothing at all.

        An element that never had a gradient only decays: it agrees as a gradient does.
        """
        import numpy as np

        start, other = self.start.get(("weight", name)), self.other_state.get(("weight", name))
        if other is None or start is None or other.shape != right.shape:
            yield Deviation(self.step, "weight", name, math.inf, 0.0)
            return
        second = self.right_state.get(("second moment", name))
        counts, idle = np.ones(right.shape, bool), np.zeros(right.shape, bool)
        if second is not None and self.tolerance.rtol and second.shape == right.shape:
            root = np.sqrt(second.astype(np.float64))
            counts, idle = root > _NOISE * math.sqrt(float(np.mean(root**2))), root == 0
        worst = None
        for chosen, limit in ((counts, self.tolerance.updated), (idle, self.tolerance.rtol)):
            # What float32 keeps of a weight limits what is known of its change.
            kept = _norm(right[chosen]) * _UNIT_ROUNDOFF * 4 if self.tolerance.rtol else 0.0
            (one,) = self._judge("weight", name, (right - start)[chosen], (other - right)[chosen], limit, kept)
            worst = one if worst is None or one.share > worst.share else worst
        assert worst
        yield worst

    def _tensor(self, quantity: str, name: str, right: Array, limit: float, floor: float) -> Iterator[Deviation]:
        """A gradient or moment; `floor`: the norm of what is nothing but rounding errors."""
        kind = "first moment" if quantity == "gradient" else quantity
        other = self.other_state.get((kind, name))  # type: ignore[arg-type]
        if other is None or other.shape != right.shape:
            yield Deviation(self.step, quantity, name, math.inf, 0.0)
            return
        yield from self._judge(quantity, name, right, other - right, limit, limit * floor)

    def _judge(
        self, quantity: str, name: str, right: Array, off: Array, limit: float, floor: float
    ) -> Iterator[Deviation]:
        """Whether `off`, the difference from `right`, is within `limit` times it, or else below `floor`."""
        size, error = _norm(right), _norm(off)
        relative = error / size if size else math.inf if error else 0.0
        relative = math.inf if math.isnan(relative) else relative
        # An error below the floor is rounding, however small the quantity is.
        limit = max(limit, floor / size) if size else math.inf if error <= floor else limit
        factor = _multiple(right, off, size) if relative > limit else None
        yield Deviation(self.step, quantity, name, relative, limit, factor)


def _multiple(right: Array, off: Array, size: float) -> float | None:
    """`a`, if `right + off` is `a` times `right`."""
    import numpy as np

    if not size or not np.isfinite(off).all():
        return None
    wide, other = right.astype(np.float64).ravel(), (right + off).astype(np.float64).ravel()
    factor = float(wide @ other) / size**2
    rest = math.sqrt(float(np.sum((other - factor * wide) ** 2)))
    return factor if rest <= _PROPORTIONAL * max(abs(factor), 1.0) * size else None


def _norm(value: Array) -> float:
    import numpy as np

    return math.sqrt(float(np.sum(value.astype(np.float64) ** 2)))


def _norm_of(values: Sequence[Array]) -> float:
    return math.sqrt(sum(_norm(value) ** 2 for value in values))
