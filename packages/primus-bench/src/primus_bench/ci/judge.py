"""What a run measured against its golden values: pure functions from figures to findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from primus_bench.ci.golden import Measured
from primus_bench.comparison.intervals import FEWEST, slowdown, verdict
from primus_bench.report.steadiness import steadiness

__all__ = ["Finding", "judge"]

Outcome = Literal["passed", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure of a check."""

    figure: str
    outcome: Outcome
    says: str


def judge(golden: Measured, measured: Measured, tolerances: Mapping[str, float], unsteady: Mapping[str, str], *,
          known: bool) -> list[Finding]:  # fmt: skip
    """One finding a figure. `known`: golden values of this machine exist; `unsteady`: what to say of a series."""
    found: list[Finding] = []
    for figure, tolerance in tolerances.items():
        if figure == "loss":
            found.append(_loss(golden.loss, measured.loss, tolerance))
        elif not known:
            found.append(Finding(figure, "unknown", "no golden value of this machine: primus ci --update adds it"))
        elif figure == "tokens_per_second":
            found.append(_speed(golden.tokens_per_second, measured.tokens_per_second, tolerance, unsteady))
        elif figure == "memory_gib":
            found.append(_memory(golden.memory_gib, measured.memory_gib, tolerance))
        else:
            found += _times(golden.time, measured.time, tolerance, unsteady)
    return found


def _loss(golden: Mapping[str, float | None], measured: Mapping[str, float | None], tolerance: float) -> Finding:
    if not golden:
        return Finding("loss", "unknown", "no golden value: primus ci --update adds it")
    for step, wanted in sorted(golden.items(), key=lambda item: int(item[0])):
        if step not in measured:
            return Finding("loss", "failed", f"step {step} was not logged, or the run ended before it")
        got = measured[step]
        if wanted is None or got is None:
            if wanted is not got:
                return Finding("loss", "failed", f"step {step}: {_shown(got)}, golden {_shown(wanted)}")
        elif abs(got - wanted) > tolerance * abs(wanted):
            off = f"{(got - wanted) / abs(wanted):+.2%}" if wanted else "golden is 0"
            says = f"step {step}: {got:.6g}, golden {wanted:.6g} ({off}), tolerance {tolerance:.2%}"
            return Finding("loss", "failed", says)
    return Finding("loss", "passed", f"{len(golden)} steps within {tolerance:.2%}")


def _shown(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.6g}"


def _memory(golden: float | None, measured: float | None, tolerance: float) -> Finding:
    if golden is None or measured is None:
        return Finding("memory_gib", "unknown", "the framework does not report the device's memory here")
    says = f"{measured:.3f} GiB, golden {golden:.3f} ({_change(measured, golden)})"
    return Finding("memory_gib", "failed" if measured > golden * (1 + tolerance) else "passed", says)


def _change(measured: float, golden: float) -> str:
    return f"{(measured - golden) / golden:+.1%}" if golden else "no change is known"


def _speed(
    golden: Sequence[float], measured: Sequence[float], tolerance: float, unsteady: Mapping[str, str]
) -> Finding:
    times = [[1 / value for value in series if value > 0] for series in (golden, measured)]
    name = "tokens_per_second"
    return _noted(_series(name, times[0], times[1], tolerance, 1), unsteady.get(name, ""))


def _times(golden: Mapping[str, Sequence[float]], measured: Mapping[str, Sequence[float]], tolerance: float,
           unsteady: Mapping[str, str]) -> Iterator[Finding]:  # fmt: skip
    for case, before in golden.items():
        if case in measured:
            found = _series(f"time of {case}", before, measured[case], tolerance, len(golden))
            yield _noted(found, unsteady.get(case, ""))
        else:
            yield Finding(f"time of {case}", "failed", "it was not measured")
    for case in measured.keys() - golden.keys():
        yield Finding(f"time of {case}", "unknown", "no golden value: primus ci --update adds it")


def _noted(found: Finding, unsteady: str) -> Finding:
    """With what else is known of the measurement: a percentage alone would claim more."""
    return replace(found, says=f"{found.says}; {unsteady}") if unsteady else found


def _series(figure: str, golden: Sequence[float], measured: Sequence[float], tolerance: float, count: int) -> Finding:
    fewest = min(len(golden), len(measured))
    if fewest < FEWEST:
        return Finding(figure, "failed", f"{fewest} samples; {FEWEST} are needed: let it run for longer")
    found = slowdown(golden, measured, count)
    says = f"{found.ratio - 1:+.1%} time ({found.low - 1:+.1%} to {found.high - 1:+.1%}), tolerance {tolerance:.0%}"
    if why := steadiness([(figure, golden, "")])["cases"]:
        says += f"; golden value not steady: {why[figure]}"
    said = verdict(found, tolerance)
    if said == "slower":
        return Finding(figure, "failed", f"slower: {says}")
    return Finding(figure, "passed", f"{said}: {says}")
