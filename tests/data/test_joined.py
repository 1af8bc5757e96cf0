"""Prefixes are joined in their order, byte for byte as if all their documents had been written at once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from primus_core.errors import MachineError, RequestError
from primus_data.indexed import layout
from primus_data.indexed.joined import join, publish
from primus_data.indexed.writer import IndexedWriter

DOCUMENTS = [[[1, 2, 3]], [], [[4], [5, 6]], [], [[7, 8, 9, 10]], [[11]]]
"""Each with its sequences; two are empty."""


def written(prefix: Path, documents: list[list[list[int]]], code: int = layout.UINT16) -> str:
    """A prefix with these documents."""
    with IndexedWriter(str(prefix), code) as writer:
        for one in documents:
            tokens = np.array([token for sequence in one for token in sequence], np.uint32)
            writer.add(tokens, np.array([len(sequence) for sequence in one]), np.array([len(one)]))
    return str(prefix)


def both(prefix: str) -> tuple[bytes, bytes]:
    """The data and the index."""
    return Path(f"{prefix}.bin").read_bytes(), Path(f"{prefix}.idx").read_bytes()


@pytest.mark.parametrize("cuts", [(), (3,), (1, 2), (2, 2, 5), (0, 6)])
def test_joined_parts_are_byte_for_byte_what_was_cut(
    tmp_path: Path, cuts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primus_data.indexed.joined._DOCUMENTS", 2)
    monkeypatch.setattr("primus_data.indexed.writer._PIECE", 4)
    ends = (*cuts, len(DOCUMENTS))
    parts = [
        written(tmp_path / str(number), DOCUMENTS[start:end])
        for number, (start, end) in enumerate(zip((0, *cuts), ends, strict=True))
    ]
    join(parts, str(tmp_path / "joined"))
    assert both(str(tmp_path / "joined")) == both(written(tmp_path / "whole", DOCUMENTS))
    publish(str(tmp_path / "joined"), str(tmp_path / "final"))
    assert sorted(path.name for path in tmp_path.glob("[fj]*")) == ["final.bin", "final.idx"]


def test_parts_on_another_file_system_are_joined_too(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        if os.stat(name).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("the temporary folder is in memory, too")
        join([written(Path(name) / "part", DOCUMENTS)], str(tmp_path / "joined"))
    assert both(str(tmp_path / "joined")) == both(written(tmp_path / "whole", DOCUMENTS))


def test_a_prefix_may_be_joined_twice(tmp_path: Path) -> None:
    one = written(tmp_path / "one", DOCUMENTS)
    join([one, one], str(tmp_path / "joined"))
    assert both(str(tmp_path / "joined")) == both(written(tmp_path / "whole", DOCUMENTS * 2))


def test_tokens_of_different_sizes_are_not_joined(tmp_path: Path) -> None:
    small, large = written(tmp_path / "small", DOCUMENTS), written(tmp_path / "large", DOCUMENTS, layout.INT32)
    with pytest.raises(RequestError, match=r"a token has 32 bits in .*large, and 16 in .*small"):
        join([small, large], str(tmp_path / "joined"))
    assert not (tmp_path / "joined.bin").exists()


def test_a_damaged_prefix_is_named(tmp_path: Path) -> None:
    one = written(tmp_path / "one", DOCUMENTS)
    os.truncate(f"{one}.bin", 10)
    with pytest.raises(MachineError, match=r"one\.bin has 5 tokens, and its index lists 11"):
        join([one], str(tmp_path / "joined"))
    with pytest.raises(RequestError, match=r"file '.*none\.idx' not found"):
        join([one, str(tmp_path / "none")], str(tmp_path / "joined"))
