"""Which rows of which split: `train`, `train[:1%]`, `train[10%:20%]`, `train[:1000]`, as in the library `datasets`."""

from __future__ import annotations

import re
from typing import NamedTuple

from primus_machine.errors import RequestError

__all__ = ["Slice", "parse"]

_NUMBER = r"-?[0-9][0-9_]{0,17}"
_SPLIT = re.compile(
    rf"(?P<split>\w+(?:\.\w+)*)(?:\[(?:(?P<start>{_NUMBER})(?P<start_unit>%)?)?:(?:(?P<stop>{_NUMBER})(?P<stop_unit>%)?)?\])?"
)


class Slice(NamedTuple):
    """A split, and the part of its rows."""

    split: str
    start: int | None = None
    stop: int | None = None
    is_percent: bool = False

    @property
    def needs_total(self) -> bool:
        """Whether it depends on how many rows the split has."""
        return self.is_percent or (self.start or 0) < 0 or (self.stop or 0) < 0

    def rows(self, total: int | None) -> tuple[int, int | None]:
        """The first row, and the one behind the last (None: to the end). `total`: the rows of the split, if known."""
        if total is None:
            assert not self.needs_total
            return self.start or 0, self.stop
        start = 0 if self.start is None else self._absolute(self.start, total)
        return start, total if self.stop is None else self._absolute(self.stop, total)

    def _absolute(self, bound: int, total: int) -> int:
        at = round(bound * total / 100.0) if self.is_percent else bound
        return min(max(total + at, 0) if at < 0 else at, total)


def parse(text: str) -> Slice:
    """What `--split` means.

    Raises:
        RequestError: it is no split.
    """
    found = _SPLIT.fullmatch(text)
    if not found:
        raise RequestError(
            f"--split: '{text}' is not a split",
            why="it has the form SPLIT, SPLIT[FROM:TO] or SPLIT[FROM%:TO%]; splits are not added with +",
            fix="write for example train, 'train[:1%]', 'train[10%:20%]' or 'train[:1000]'",
        )
    start, stop = (int(word) if (word := found[name]) else None for name in ("start", "stop"))
    units = {bool(found[f"{name}_unit"]) for name in ("start", "stop") if found[name]}
    if len(units) > 1:
        raise RequestError(
            f"--split: '{text}' mixes rows and percent", fix="write both bounds in rows, or both in percent"
        )
    is_percent = units == {True}
    for bound in (start, stop):
        if is_percent and bound is not None and abs(bound) > 100:
            raise RequestError(
                f"--split: {bound}% in '{text}' is not between -100% and 100%", fix="name a part of 100%"
            )
    return Slice(found["split"], start, stop, is_percent)
