"""The stages of a pipeline: each has tasks that do not depend on each other, and begins when the one before is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from primus_data.quality.pipeline import Use

__all__ = ["Stage", "buckets", "stages"]

Kind = Literal["index", "pass", "exact_signatures", "exact_find", "near_signatures", "near_buckets", "near_cluster"]


class Stage(NamedTuple):
    """Tasks of one kind."""

    name: str
    """Its folder."""
    kind: Kind
    tasks: int
    message: str
    """What it does, for the progress."""
    step: int = -1
    """The step of the pipeline, counted from 0, that it is for; of a pass, the deduplication that it completes."""
    steps: tuple[int, ...] = ()
    """The steps by which a pass judges each document."""
    source: str = ""
    """The pass whose documents it reads; empty: the input."""
    is_last: bool = False
    """It writes the output."""


def stages(steps: Sequence[Use], files: int) -> tuple[Stage, ...]:
    """What is to be done for `files` files, in this order."""
    return (*_indexes(steps), *_passes(steps, files))


def _indexes(steps: Sequence[Use]) -> Iterator[Stage]:
    for number, use in enumerate(steps):
        if use.name == "decontaminate":
            yield Stage(f"{number + 1:02d}-index", "index", 1, "read the evaluation sets", number)


def _passes(steps: Sequence[Use], files: int) -> Iterator[Stage]:
    """Documents are read once for all steps between two deduplications."""
    dedups = [number for number, use in enumerate(steps) if use.step.is_dedup]
    source = ""
    begins = [-1, *dedups]
    for dedup, end in zip(begins, [*dedups, len(steps)], strict=True):
        if dedup >= 0:
            yield from _dedup(steps[dedup], dedup, files, source)
        name = f"{dedup + 1:02d}-pass"
        inner = tuple(range(dedup + 1, end))
        shown = ", ".join(steps[number].name for number in ((dedup,) if dedup >= 0 else ()) + inner) or "read"
        yield Stage(name, "pass", files, shown, dedup, inner, source, is_last=end == len(steps))
        source = name


def _dedup(use: Use, number: int, files: int, source: str) -> Iterator[Stage]:
    begin = f"{number + 1:02d}"
    if use.name == "exact_dedup":
        yield Stage(f"{begin}-signatures", "exact_signatures", files, "exact_dedup: hash", number, source=source)
        yield Stage(f"{begin}-find", "exact_find", 1, "exact_dedup: compare", number, source=source)
        return
    groups, _ = buckets(use.values["threshold"], use.values["hashes"])
    yield Stage(f"{begin}-signatures", "near_signatures", files, "near_dedup: hash", number, source=source)
    yield Stage(f"{begin}-buckets", "near_buckets", groups, "near_dedup: compare", number, source=source)
    yield Stage(f"{begin}-cluster", "near_cluster", 1, "near_dedup: cluster", number, source=source)


def buckets(threshold: float, hashes: int) -> tuple[int, int]:
    """Buckets, and hashes of each, for which pairs of this similarity are about as likely found as not.

    A pair of similarity s shares all r hashes of one of b buckets with the probability 1 - (1 - s^r)^b, which rises
    most steeply near (1/b)^(1/r) (Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, 3.4).
    """
    choices = [(hashes // rows, rows) for rows in range(1, hashes + 1)]
    return min(choices, key=lambda choice: abs((1 / choice[0]) ** (1 / choice[1]) - threshold))
