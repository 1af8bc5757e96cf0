"""Text becomes the files that Megatron reads, byte for byte as Megatron would have written them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12")

from tests.indexed_files import write_indexed
from tests.megatron.conftest import Python

from primus_data.training.files import pieces
from primus_megatron.installation import importable_version

ORACLE = """
import sys, numpy, torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
kind = numpy.uint16 if int(sys.argv[2]) < 65500 else numpy.int32
builder = IndexedDatasetBuilder(sys.argv[1] + ".bin", dtype=kind)
for document in ([1, 2, 3], [], [7] * 1000, [0]):
    builder.add_document(torch.tensor(document), [len(document)] if document else [])
builder.finalize(sys.argv[1] + ".idx")
"""


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.skipif(not importable_version(), reason="megatron-core is not installed")
@pytest.mark.parametrize("vocab", [512, 70000])
def test_the_files_are_megatrons_own(python: Python, tmp_path: Path, vocab: int) -> None:
    write_indexed(tmp_path / "ours", ([1, 2, 3], [], [7] * 1000, [0]), vocab)
    assert python(ORACLE, str(tmp_path / "theirs"), str(vocab)).code == 0
    for suffix in (".bin", ".idx"):
        ours, theirs = tmp_path / f"ours{suffix}", tmp_path / f"theirs{suffix}"
        assert ours.read_bytes() == theirs.read_bytes()


def test_pieces_end_at_line_ends_and_lose_nothing() -> None:
    text = "".join(f"line {number}\n" for number in range(100))
    found = list(pieces(text, 64))
    assert "".join(found) == text
    assert all(len(piece) <= 64 for piece in found)
    assert list(pieces(text, 0)) == [text]


def prepare(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "primus_data.training.prepare", "--source", str(tmp_path / "text")]
    command += ["--vocab-size", "300", "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "run/data"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_text_is_prepared_once_and_validation_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for number in range(60):
        (tmp_path / f"text/{number:02}.md").write_text(f"number {number} " * 40)
    first, second = prepare(tmp_path), prepare(tmp_path)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "prepared in" in first.stderr
    assert "prepared before" in second.stderr
    sizes = {part: (tmp_path / f"run/data/{part}.bin").stat().st_size for part in ("train", "validation")}
    assert 0 < sizes["validation"] < sizes["train"]
    assert (tmp_path / "run/data/tokenizer.json").exists()


def test_a_folder_without_text_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    asked = prepare(tmp_path)
    assert asked.returncode == 2
    assert "no text in" in asked.stderr
