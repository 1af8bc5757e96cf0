"""`data merge` writes the bytes of Megatron's tool, and Megatron reads what `data split` and `data blend` write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12")

from tests.data.prepared import data, read, write
from tests.megatron.conftest import Python

from primus_data.indexed import layout
from primus_megatron.installation import importable_version

# What `tools/merge_datasets.py` does behind its command line, and what a training reads.
PROGRAM = """
import json, sys
import numpy
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
from megatron.core.datasets.utils import get_blend_from_list
folder = sys.argv[1]
for name in ("small", "large"):
    builder = None
    for part in ("a", "b", "c"):
        prefix = f"{folder}/{name}/{part}"
        if builder is None:
            builder = IndexedDatasetBuilder(f"{folder}/{name}.bin", dtype=IndexedDataset(prefix).index.dtype)
        builder.add_index(prefix)
    builder.finalize(f"{folder}/{name}.idx")
found = IndexedDataset(f"{folder}/parts_train")
blend = get_blend_from_list(open(f"{folder}/blend.txt").read().split())
rows = {"sequences": [found[number].tolist() for number in range(len(found))], "blend": blend}
print(json.dumps({**rows, "documents": found.document_indices.tolist()}))
"""


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.skipif(not importable_version(), reason="megatron-core is not installed")
def test_megatron_merges_to_the_same_bytes_and_reads_the_parts_and_the_blend(tmp_path: Path, python: Python) -> None:
    documents = [[[number] * (number % 7 + 1), [5]] if number % 4 else [] for number in range(30)]
    for name, code in (("small", layout.UINT16), ("large", layout.INT32)):
        (tmp_path / name).mkdir()
        for part, first in (("a", 0), ("b", 10), ("c", 20)):
            write(tmp_path / name / part, documents[first : first + 10], code)
        assert data("merge", "--input", tmp_path / name, "--output-prefix", tmp_path / f"own-{name}") == 0
    assert data("split", tmp_path / "own-small", "--shares", "80,20", "--output-prefix", tmp_path / "parts") == 0
    inputs = [f"{tmp_path}/parts_train=3", f"{tmp_path}/parts_validation=1"]
    assert data("blend", "--input", *inputs, "--output", tmp_path / "blend.txt") == 0
    ended = python(PROGRAM, str(tmp_path))
    assert ended.code == 0, ended.err
    for name in ("small.bin", "small.idx", "large.bin", "large.idx"):
        assert (tmp_path / name).read_bytes() == (tmp_path / f"own-{name}").read_bytes()
    found = json.loads(ended.out.splitlines()[-1])
    kept = read(tmp_path / "parts_train")
    assert found["sequences"] == [sequence for one in kept for sequence in one]
    assert found["documents"] == [sum(map(len, kept[:number])) for number in range(len(kept) + 1)]
    assert found["blend"] == [[f"{tmp_path}/parts_train", f"{tmp_path}/parts_validation"], [0.75, 0.25]]
