"""Merge prefixes to one: byte for byte what Megatron's `tools/merge_datasets.py` writes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from primus_data.indexed import layout
from primus_data.indexed.described import expect_one_tokenizer, write_derived
from primus_data.indexed.joined import join
from primus_data.indexed.layout import Layout
from primus_data.indexed.nearby import correct_prefix
from primus_data.joining.output import expect_room, refuse_existing, written
from primus_data.progress import Progress
from primus_machine.errors import MachineError, Mistakes, RequestError

__all__ = ["Merged", "inputs", "merge"]


class Merged(NamedTuple):
    """What came of it."""

    prefix: str
    inputs: int
    documents: int
    sequences: int
    tokens: int


def inputs(paths: Sequence[str]) -> list[str]:
    """The prefixes that are named; those of a folder by their names, as Megatron takes them.

    Raises:
        RequestError: a folder has none, or half of one.
    """
    found: list[str] = []
    for path in paths:
        found += _of_folder(path) if os.path.isdir(path) else [path]
    return found


def _of_folder(folder: str) -> Iterator[str]:
    names = sorted({name[:-4] for name in os.listdir(folder) if name.endswith((".bin", ".idx"))})
    if not names:
        raise RequestError(f"folder '{folder}' has no .bin and .idx files")
    for prefix in (os.path.join(folder, name) for name in names):
        for path in (f"{prefix}.bin", f"{prefix}.idx"):
            if not os.path.isfile(path):
                raise RequestError(f"file '{path}' not found", fix=f"copy it, or move the other file out of '{folder}'")
        yield prefix


def merge(prefixes: Sequence[str], output: str) -> Merged:
    """Write all documents of `prefixes`, in this order, to `output`.

    Raises:
        RequestError: they do not fit together, or the output exists.
        MachineError: one of them is damaged, or there is no room.
    """
    refuse_existing([output])
    heads = _heads(prefixes)
    size = sum(os.path.getsize(f"{prefix}.bin") for prefix in prefixes)
    # The lengths and the bounds stand in files of their own until the index is written.
    room = size + sum(head.size + 4 * head.sequences + 8 * head.bounds for head in heads)
    expect_room(os.path.dirname(output), room)
    documents = sum(max(head.bounds - 1, 0) for head in heads)
    describe = partial(write_derived, "data merge", prefixes, documents=documents, bytes=size)
    with written([output], describe) as [name], Progress(f"merging {len(prefixes)} inputs", size) as progress:
        join(prefixes, name, progress.add)
    tokens = sum(os.path.getsize(f"{prefix}.bin") // head.width for prefix, head in zip(prefixes, heads, strict=True))
    return Merged(output, len(prefixes), documents, sum(head.sequences for head in heads), tokens)


def _heads(prefixes: Sequence[str]) -> list[Layout]:
    """All that is wrong with them, at once."""
    mistakes, found = Mistakes(), []
    for prefix in prefixes:
        with mistakes:
            found.append(_head(prefix))
            _expect_same_type(prefix, found[-1], prefixes[0], found[0])
    with mistakes:
        expect_one_tokenizer(prefixes)
    mistakes.refuse()
    return found


def _head(prefix: str) -> Layout:
    try:
        with open(f"{prefix}.bin", "rb", opener=layout.regular):
            found = layout.read(prefix)
    except FileNotFoundError as error:
        raise RequestError(f"file '{error.filename}' not found", fix=correct_prefix(prefix)) from None
    except OSError as error:
        raise MachineError(f"'{error.filename or prefix}' cannot be read", why=str(error.strerror)) from None
    if isinstance(found, str):
        raise MachineError(found, fix="prepare the data again, or copy it again")
    if (surplus := os.path.getsize(f"{prefix}.idx") - found.size) and surplus == found.sequences:
        raise RequestError(
            f"'{prefix}' is multimodal: its index ends in modes", fix="merge it with Megatron's own tool"
        )
    return found


def _expect_same_type(prefix: str, head: Layout, first: str, expected: Layout) -> None:
    if head.code != expected.code:
        names = [np.dtype(one.type).name for one in (head, expected)]
        why = f"the tokens of '{prefix}' are {names[0]}, those of '{first}' are {names[1]}"
        raise RequestError(
            f"'{prefix}' cannot be merged with '{first}'", why=why, fix="prepare both with one tokenizer"
        )
