"""Prepared data for tests: prefixes with known documents, faults in them, and commands in this process."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from primus_data import command
from primus_data.indexed import layout
from primus_data.indexed.writer import IndexedWriter

Documents = Sequence[Sequence[Sequence[int]]]
"""Documents of sequences of tokens."""


def write(prefix: Path, documents: Documents, code: int = layout.UINT16) -> str:
    """A prefix with these documents."""
    with IndexedWriter(str(prefix), code) as writer:
        for one in documents:
            tokens = np.array([token for sequence in one for token in sequence], np.int64)
            writer.add(tokens, np.array([len(sequence) for sequence in one], "<i4"), np.array([len(one)]))
    return str(prefix)


def read(prefix: str | Path) -> list[list[list[int]]]:
    """The documents of a prefix, number by number, as the format is described."""
    index, data = Path(f"{prefix}.idx").read_bytes(), Path(f"{prefix}.bin").read_bytes()
    _, _, code, sequences, bounds = layout.HEAD.unpack(index[: layout.HEAD.size])
    head = layout.Layout(code, sequences, bounds)
    lengths = struct.unpack_from(f"<{sequences}i", index, head.lengths_at)
    offsets = struct.unpack_from(f"<{sequences}q", index, head.offsets_at)
    ends = struct.unpack_from(f"<{bounds}q", index, head.documents_at)
    found = [np.frombuffer(data, head.type, size, at).tolist() for size, at in zip(lengths, offsets, strict=True)]
    return [found[first:end] for first, end in pairwise(ends)]


def poke(prefix: str, place: int, form: str, value: int) -> None:
    """Put another number into the index."""
    with open(f"{prefix}.idx", "r+b") as file:
        file.seek(place)
        file.write(struct.pack(form, value))


def head_of(prefix: str) -> layout.Layout:
    """What its index announces."""
    found = layout.read(prefix)
    assert isinstance(found, layout.Layout)
    return found


def data(*words: str | Path) -> int:
    """`primus data ...`; its exit code."""
    return command.run(list(map(str, words)), "")


def as_json(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    """What `primus data ... --json` prints."""
    capsys.readouterr()
    data(*words, "--json")
    return json.loads(capsys.readouterr().out)


def tokenizer(path: Path, words: Sequence[str]) -> str:
    """A `tokenizer.json` whose ids are the numbers of these words."""
    found = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    found.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    found.decoder = decoders.Fuse()
    found.save(str(path))
    return str(path)
