"""The samples of a training by their numbers: token ids from `.bin`/`.idx`, in the order of `order`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed.reader import Indexed
from primus_data.training import SEED
from primus_data.training.order import Asked, Blend, Order, cut, weighted
from primus_machine.errors import MachineError

__all__ = ["Samples"]


class Samples:
    """All samples that a training draws. `samples[i]` is the same on all machines and ranks."""

    def __init__(
        self, blend: Sequence[tuple[float | None, str]], asked: Asked, *, split: Sequence[float] = (1.0,), part: int = 0
    ) -> None:
        """`blend`: a weight for each prefix, or None for all. Of each, only `part` of `split` is read.

        Raises:
            PrimusError: files are missing or damaged, or have fewer samples than asked for.
        """
        self.name = "validation data" if part else "data"
        self.data = [Indexed(prefix) for _, prefix in blend]
        weights = None if blend[0][0] is None else [float(weight or 0) for weight, _ in blend]
        each = [asked] if len(blend) == 1 else _each(weights, asked, len(blend))
        self.orders = [_order(data, one, split, part) for data, one in zip(self.data, each, strict=True)]
        self.blend = Blend(self.orders, weights, asked.samples) if len(blend) > 1 else None
        if asked.samples is not None and len(self) < asked.samples:
            raise MachineError(
                f"the data have {len(self)} samples, and the training draws {asked.samples}",
                why="a blend without weights is read once",
                fix="give each prefix a weight, or train for fewer steps",
            )

    def __len__(self) -> int:
        return len(self.blend or self.orders[0])

    def __getitem__(self, number: int) -> NDArray[np.int64]:
        """Sample `number`: its tokens, and the one that follows."""
        which, inside = self.blend.find(number) if self.blend else (0, number)
        data = self.data[which]
        parts = []
        for piece in self.orders[which].pieces(inside):
            start = int(data.offsets[piece.document]) // data.layout.width + piece.start
            parts.append(data.tokens[start : start + piece.length])
        return np.concatenate(parts).astype(np.int64)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Samples:
        """As a plan describes them: `blend`, `length`, and optionally `samples`, `seed`, `split`, `part`.

        Without `samples`, each prefix is read once, whatever its weight: an evaluation reads what there is.
        """
        asked = Asked(told["length"], told.get("samples"), told.get("seed", SEED))
        blend = [(None if asked.samples is None else weight, prefix) for weight, prefix in told["blend"]]
        return cls(blend, asked, split=told.get("split", (1.0,)), part=told.get("part", 0))


def _each(weights: Sequence[float] | None, asked: Asked, count: int) -> list[Asked]:
    """What is asked of each prefix: all that it has, where there are no weights."""
    return [asked._replace(samples=None)] * count if weights is None else weighted(weights, asked)


def _order(data: Indexed, asked: Asked, split: Sequence[float], part: int) -> Order:
    documents = cut(data.layout.sequences, split)[part]
    try:
        return Order(data.lengths, documents, asked)
    except ValueError as error:
        share = f"{split[part] / sum(split):.6g} of " if len(split) > 1 else ""
        more = "use more text, or shorter samples" + ", or a larger share: data.split" * bool(share)
        raise MachineError(f"{share}the data '{data.prefix}' is too short", why=str(error), fix=more) from None
