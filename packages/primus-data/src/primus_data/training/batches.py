"""The batches of one data-parallel rank, of which the next is read while one is trained on.

The state is how many samples all ranks have consumed: it is the same on each rank, and any number of ranks continues.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_data.training.order import of_rank
from primus_data.training.samples import Samples
from primus_machine.errors import MachineError

__all__ = ["Batches"]

Rows = NDArray[np.int64]


class Batches:
    """An iterator of rows of tokens, each with the token that follows. `again`: begin again after the last sample."""

    def __init__(self, samples: Samples, batch: int, ranks: int, rank: int, *, again: bool) -> None:
        """Of `batch` samples a time for this rank.

        Raises:
            MachineError: there are fewer samples than all ranks take at a time.
        """
        self.samples, self.batch, self.ranks, self.rank, self.again = samples, batch, ranks, rank, again
        self.consumed = 0
        self._reader = ThreadPoolExecutor(1, "samples")
        self._ahead: tuple[int, Future[Rows]] | None = None
        if len(samples) < self.at_once:
            raise MachineError(
                f"the {samples.name} have {len(samples)} samples, and all ranks take {self.at_once} at a time",
                fix="use more text, shorter samples, or smaller batches",
            )

    @property
    def at_once(self) -> int:
        """Samples that all ranks take together."""
        return self.batch * self.ranks

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Rows:
        at, rows = self._ahead or (-1, None)
        if not self._has(self.consumed):
            raise StopIteration
        found = rows.result() if rows and at == self.consumed else self._read(self.consumed)
        self.consumed += self.at_once
        self._ahead = None
        if self._has(self.consumed):
            self._ahead = self.consumed, self._reader.submit(self._read, self.consumed)
        return found

    def close(self) -> None:
        """Read no further."""
        self._reader.shutdown(cancel_futures=True)

    def _has(self, consumed: int) -> bool:
        return self.again or consumed + self.at_once <= len(self.samples)

    def _read(self, consumed: int) -> Any:
        numbers = of_rank(consumed, self.batch, self.ranks, self.rank)
        return np.stack([self.samples[number % len(self.samples)] for number in numbers])
