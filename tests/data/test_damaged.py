"""Whatever stands in an index, commands end with an answer or an error that a person can act on; what they write is valid."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.prepared import data, head_of, write

from primus_core.errors import PrimusError

DOCUMENTS = [[[5, 6, 7]], [], [[1], [2, 3]], [[9] * 40], [[5]]]
COMMANDS = (
    ("inspect", "--samples", "5"),
    ("inspect", "--exact", "--json"),
    ("verify", "--vocab-size", "10", "--eod", "3"),
    ("split", "--shares", "1,1", "--output-prefix", "parts"),
    ("split", "--documents", "1:3", "--output-prefix", "cut"),
)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-5, 60)


@pytest.mark.full
@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(["lengths", "offsets", "documents"]), st.integers(0, 5), NUMBERS), max_size=3),
    st.sampled_from([".bin", ".idx"]),
    st.integers(-40, 40),
)
def test_a_damaged_index_is_answered_or_refused(numbers: list[tuple[str, int, int]], suffix: str, grown: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prefix = write(Path(folder) / "x", DOCUMENTS)
        head, size = head_of(prefix), os.path.getsize(prefix + suffix)
        for column, number, value in numbers:
            width = 4 if column == "lengths" else 8
            with open(f"{prefix}.idx", "r+b") as file:
                file.seek(getattr(head, f"{column}_at") + min(number, head.sequences - 1) * width)
                file.write((value % (1 << (8 * width))).to_bytes(width, "little"))
        os.truncate(prefix + suffix, max(size + grown, 0))
        is_valid = data("verify", prefix, "--skip-duplicates") == 0
        for name, *words in COMMANDS:
            placed = [os.path.join(folder, word) if word in ("parts", "cut") else word for word in words]
            try:
                assert data(name, prefix, *placed) in (0, 1)
            except PrimusError as error:
                assert not is_valid or error.exit_code == 2, error  # noqa: PT017  # it may be raised, and need not
        for written in Path(folder).glob("[pc]*.idx"):
            assert data("verify", written, "--skip-duplicates") == 0, numbers
