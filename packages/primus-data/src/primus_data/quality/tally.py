"""What a step did to the documents: how many came in and stayed, why others were removed, and samples of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Tally", "merged"]

_LONGEST = 2000
"""Characters of a sample that are kept."""
_AROUND = 60
"""Characters before and after a change that a sample shows."""


class Tally:
    """Of one step, in one part of the input. `samples`: so many for each reason."""

    def __init__(self, samples: int) -> None:
        self.most = samples
        self.documents = self.characters = 0
        self.removed: dict[str, list[int]] = {}
        """Documents and characters by reason."""
        self.edits: dict[str, int] = {}
        """What was replaced or cut out of documents that stayed, by kind."""
        self.edited = self.edited_characters = 0
        """Documents that stayed, and how many characters they lost (or gained, below 0)."""
        self.samples: dict[str, list[dict[str, Any]]] = {}

    def came(self, text: str) -> None:
        """A document came in."""
        self.documents += 1
        self.characters += len(text)

    def remove(self, text: str, reason: str, place: str, detail: Mapping[str, Any]) -> None:
        """A document is removed."""
        found = self.removed.setdefault(reason, [0, 0])
        found[0] += 1
        found[1] += len(text)
        self._sample(reason, {"source": place, **detail, "text": text[:_LONGEST]})

    def edit(self, before: str, after: str, edits: Mapping[str, int], place: str) -> None:
        """A document stays, with another text."""
        self.edited += 1
        self.edited_characters += len(before) - len(after)
        for what, count in edits.items():
            self.edits[what] = self.edits.get(what, 0) + count
        reason = ", ".join(edits)
        if len(self.samples.get(reason, ())) < self.most:
            old, new = _difference(before, after)
            self._sample(reason, {"source": place, "before": old, "after": new})

    def _sample(self, reason: str, sample: dict[str, Any]) -> None:
        kept = self.samples.setdefault(reason, [])
        if len(kept) < self.most:
            kept.append({"reason": reason, **sample})

    def data(self) -> dict[str, Any]:
        """As JSON has it."""
        fields = ("documents", "characters", "removed", "edits", "edited", "edited_characters", "samples")
        return {name: getattr(self, name) for name in fields}


def merged(parts: Iterable[Mapping[str, Any]], most: int) -> dict[str, Any]:
    """The tallies of all parts of a step, in the order of the input, as one."""
    whole = Tally(most)
    for part in parts:
        for name in ("documents", "characters", "edited", "edited_characters"):
            setattr(whole, name, getattr(whole, name) + part[name])
        for reason, counts in part["removed"].items():
            whole.removed[reason] = [sum(pair) for pair in zip(whole.removed.get(reason, [0, 0]), counts, strict=True)]
        for what, count in part["edits"].items():
            whole.edits[what] = whole.edits.get(what, 0) + count
        for reason, samples in part["samples"].items():
            kept = whole.samples.setdefault(reason, [])
            kept.extend(samples[: most - len(kept)])
    return whole.data()


def _difference(before: str, after: str) -> tuple[str, str]:
    """The neighbourhood of the first change, in both."""
    ends = range(min(len(before), len(after)))
    first = next((at for at in ends if before[at] != after[at]), len(ends))
    window = slice(max(first - _AROUND, 0), first + 2 * _AROUND)
    return before[window], after[window]
