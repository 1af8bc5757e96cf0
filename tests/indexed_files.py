"""Megatron's data files for tests, from lists of token ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["write_indexed"]


def write_indexed(prefix: Path | str, documents: Iterable[Sequence[int]], vocab_size: int = 512) -> str:
    """Write `<prefix>.bin` and `<prefix>.idx`; each document is one sequence, an empty one is none. The prefix."""
    import numpy as np

    from primus_data.indexed.layout import type_for
    from primus_data.indexed.writer import IndexedWriter

    with IndexedWriter(str(prefix), type_for(vocab_size)) as writer:
        for document in documents:
            count = 1 if len(document) else 0
            writer.add(np.array(document, "<i8"), np.array([len(document)] * count), np.array([count]))
    return str(prefix)
