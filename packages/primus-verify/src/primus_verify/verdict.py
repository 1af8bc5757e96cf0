"""From the deviations of a trial to sentences: what differs, from which step on, where, and what that looks like."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from primus_verify.comparison import Deviation, causes_first
from primus_verify.layouts import AXES

if TYPE_CHECKING:
    from primus_train.kit.known_difference import KnownDifference

__all__ = ["ASKED", "ROUNDING", "Finding", "describe", "explain", "pattern_of"]

_NUMBERED = re.compile(r"\b(layers|experts)\.(\d+)\b")
_SHOWN = {"weight": "update"}
"""A weight is compared by what the steps have changed."""
_CLOSE = 0.02
ROUNDING, ASKED = "rounding explains", "--rtol allows"
"""What a limit is: by default, or if the person has set it."""
_SHARED = ("dp", "fsdp", "tp", "cp", "ep", "pp")
"""Axes over which gradients or losses are summed."""


class Finding(NamedTuple):
    """One thing that differs."""

    text: str
    step: int
    quantity: str
    names: tuple[str, ...]
    """Of the parameters; empty: of the whole model."""
    factor: float | None
    error: float


Names = Mapping[str, Sequence[str]]


def describe(
    deviations: Sequence[Deviation], degrees: Mapping[str, int], names: Names, allowed: str = ROUNDING
) -> list[Finding]:
    """Return what differs first, since everything after it follows from it.

    `names`: of all weights and moments, by their kind. `allowed`: what the limit is.
    """
    found = _first(deviations, degrees, names) if deviations else []
    return [one._replace(text=one.text.replace(ROUNDING, allowed)) for one in found]


def explain(
    findings: Sequence[Finding], degrees: Mapping[str, int], names: Names, known: Sequence[KnownDifference]
) -> str:
    """Return what the findings of a layout look like together; empty: nothing differs, or each says it itself."""
    every = [name for some in names.values() for name in some]
    differing = [name for one in findings for name in one.names]
    for one in known:
        if degrees.get(one.axis, 1) > 1 and _any(one.differs, differing) and _any(one.has, every):
            return f"it looks like a known difference: {one.what}"
    is_close = all(one.factor is not None and abs(one.factor - 1) < _CLOSE for one in findings)
    return f"less than {_CLOSE:.0%} off, which fits no known pattern" if findings and is_close else ""


def _any(pattern: str, names: Sequence[str]) -> bool:
    return any(re.search(pattern, name) for name in names)


def _first(deviations: Sequence[Deviation], degrees: Mapping[str, int], names: Names) -> list[Finding]:
    step = min(one.step for one in deviations)
    of_step = [one for one in deviations if one.step == step]
    quantity = next(one for one in causes_first(step) if any(deviation.quantity == one for deviation in of_step))
    first = [one for one in of_step if one.quantity == quantity]
    if quantity == "loss":  # a wrong forward pass: the gradients say more, if they are multiples
        return [_number(first[0], degrees), *_not_finite(of_step, names)]
    if quantity == "gradient norm":
        return [_number(first[0], degrees)]
    return _groups(first, degrees, names["first moment" if quantity == "gradient" else quantity])


def _number(one: Deviation, degrees: Mapping[str, int]) -> Finding:
    if one.factor is None:
        shown = "is not a number"
    else:
        shown = f"is {_times(one.factor)} the reference"
        shown += f" ({one.error:.1e} off; {_limit(one)})" if abs(one.factor - 1) < _CLOSE else ""
    why = _meaning(one.factor, degrees)
    if one.quantity == "loss" and not why and one.factor is not None:
        why = _of_loss(one.step)
    if one.quantity == "gradient norm":
        equal = "gradients" if one.step == 1 else "moments"
        why = why or f"all {equal} are equal: the norm is not reduced over all ranks, or counts some twice"
    return Finding(
        _sentence(f"{one.quantity} {shown}", one.step, why), one.step, one.quantity, (), one.factor, one.error
    )


def _limit(one: Deviation) -> str:
    return f"{ROUNDING} {one.limit:.1e}" if one.limit else "it must be equal to the bit"


def _of_loss(step: int) -> str:
    if step == 1:
        return "the forward pass, the data or the loss's scale differs; the weights were equal"
    return f"all was equal until step {step - 1}: a rank trains with other weights than were saved, or on other data"


def _not_finite(of_step: Sequence[Deviation], names: Names) -> list[Finding]:
    """Which gradients are not finite, if some are."""
    wrong = [one for one in of_step if math.isinf(one.error) and one.quantity in ("gradient", "first moment")]
    every = {one.name for one in wrong} >= set(names["first moment"])
    return [] if every else _groups(wrong, {}, names["first moment"])


def _groups(first: Sequence[Deviation], degrees: Mapping[str, int], names: Sequence[str]) -> list[Finding]:
    """One finding for each kind of parameter with one factor, the largest error first; one for all parameters if it is
    that of all.
    """
    groups: dict[tuple[str, float | None], list[Deviation]] = defaultdict(list)
    for one in first:
        groups[pattern_of(one.name), _rounded(one)].append(one)
    factors = {factor for _, factor in groups}
    if len(factors) == 1 and {one.name for one in first} >= set(names):
        return [_finding("every parameter", first, degrees, "")]
    found = [
        _finding(pattern, members, degrees, _where(pattern, [one.name for one in members], names))
        for (pattern, _), members in groups.items()
    ]
    return sorted(found, key=lambda one: -one.error)


def _finding(pattern: str, members: Sequence[Deviation], degrees: Mapping[str, int], where: str) -> Finding:
    one = max(members, key=lambda member: member.error)
    factor = None if _rounded(one) is None else one.factor
    if factor is not None and abs(factor - 1) < _CLOSE:
        shown = f"{one.error:.1e} off ({_limit(one)})"
    elif factor is not None:
        shown = f"{_times(factor)} the reference"
    elif math.isinf(one.error):
        shown = "not finite, or missing"
    else:
        shown = f"{one.error:.2g} off, and no multiple of the reference"
    why = _meaning(factor, degrees)
    if one.step > 1 and one.quantity != "weight" and "repeat" not in degrees:
        since = f"equal until step {one.step - 1}; from step {one.step} a gradient or the optimizer's state differs"
        why = f"it is zero, {since}" if factor is not None and abs(factor) < _CLOSE else since
    elif factor is None and not math.isinf(one.error):
        why = _unlike(one.quantity, degrees)
    text = _sentence(f"{_SHOWN.get(one.quantity, one.quantity)} of {pattern} is {shown}{where}", one.step, why)
    return Finding(text, one.step, one.quantity, tuple(m.name for m in members), factor, one.error)


def _sentence(what: str, step: int, why: str) -> str:
    return f"{what}, from step {step}" + (f": {why}" if why else "")


def pattern_of(name: str) -> str:
    """Return the kind of a parameter: its name without the numbers of layers and experts."""
    return _NUMBERED.sub(r"\1.*", name)


def _rounded(one: Deviation) -> float | None:
    return None if one.factor is None else round(one.factor, 1) if one.factor >= 1 else round(one.factor, 2)


def _where(pattern: str, found: Sequence[str], names: Sequence[str]) -> str:
    """Which layers and experts, if there are several of the kind."""
    alike = [name for name in names if pattern_of(name) == pattern]
    if len(alike) < 2:
        return ""
    texts = []
    for word in ("layers", "experts"):
        of_all, of_found = (_numbers(word, some) for some in (alike, found))
        if len(of_all) > 1:
            every = of_found == of_all
            shown = ", ".join(map(str, sorted(of_found)))
            texts.append(
                f" in every {word[:-1]}" if every else f" in {len(of_found)} of {len(of_all)} {word} ({shown})"
            )
    return "".join(texts)


def _numbers(word: str, names: Sequence[str]) -> set[int]:
    return {int(match[2]) for name in names for match in _NUMBERED.finditer(name) if match[1] == word}


def _times(factor: float) -> str:
    return f"{factor:.3g} times" if abs(factor) >= 1.005 or factor < 0 else f"{factor:.2f} of"


def _meaning(factor: float | None, degrees: Mapping[str, int]) -> str:
    """What a factor looks like, by the degrees of the layout."""
    if factor is None or abs(factor - 1) < _CLOSE:
        return ""
    if abs(factor) < _CLOSE:
        return "it is zero"
    of = [(axis, degrees[axis]) for axis in _SHARED if degrees.get(axis, 1) > 1]
    few = [axis for axis, degree in of if abs(factor * degree - 1) < _CLOSE]
    many = [axis for axis, degree in of if abs(factor / degree - 1) < _CLOSE]
    if few:
        return f"divided by {degrees[few[0]]} once too often, or not summed over {_named(few)}"
    return f"summed over {_named(many)} once too often, or not divided by {degrees[many[0]]}" if many else ""


def _named(axes: Sequence[str]) -> str:
    """Axes of one degree: which of them it is, a factor alone does not tell."""
    return " or ".join(f"{AXES[axis]} ({axis})" for axis in axes)


def _unlike(quantity: str, degrees: Mapping[str, int]) -> str:
    axes = ", ".join(f"{AXES[axis]} ({axis})" for axis in _SHARED if degrees.get(axis, 1) > 1)
    if "repeat" in degrees:
        return "two equal trainings differ: something is not deterministic"
    if quantity == "gradient" and axes:
        return f"it is computed otherwise, or part of it is missing or counted twice: not summed over {axes}"
    if quantity == "gradient":
        return "a micro-batch is missing" if "mbs" in degrees else "what is computed again is not what was computed"
    if quantity == "weight":
        return "losses, gradients and moments are equal: the optimizer's step differs"
    return "gradients are equal: the optimizer's state is lost or mixed up"
