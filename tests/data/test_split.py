"""`data split`: every document once, whole and in its order; the same parts each time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.prepared import as_json, data, head_of, poke, read, write

from primus_core.cli.main import main
from primus_core.errors import MachineError, RequestError, SeveralErrors
from primus_data.indexed import layout
from primus_data.indexed.streams import Streams
from primus_data.indexed.writer import IndexedWriter
from primus_data.joining.selection import by_shares

Document = list[list[int]]


def numbered(count: int, longest: int = 9) -> list[Document]:
    """Documents that their first token names; every tenth is empty."""
    return [[[number], [1] * (number % longest + 1)] if number % 10 else [] for number in range(count)]


def names(documents: list[Document]) -> list[int]:
    """Those that are not empty, by their first tokens."""
    return [one[0][0] for one in documents if one]


def test_each_document_is_in_one_part_and_keeps_its_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = numbered(1000)
    prefix = write(tmp_path / "x", documents)
    found = as_json(capsys, "split", prefix, "--shares", "90,8,2", "--output-prefix", tmp_path / "y")["parts"]
    parts = [read(tmp_path / f"y_{name}") for name in ("train", "validation", "test")]
    assert sorted(names([one for part in parts for one in part])) == names(documents)
    for part, told in zip(parts, found, strict=True):
        assert names(part) == sorted(names(part))
        assert all(one == documents[one[0][0]] for one in part if one)
        assert (len(part), sum(map(len, part))) == (told["documents"], told["sequences"])
        assert data("verify", told["prefix"], "--skip-duplicates") == 0
    assert sum(map(len, parts)) == 1000
    whole = sum(part["tokens"] for part in found)
    assert [part["tokens"] / whole for part in found] == pytest.approx([0.9, 0.08, 0.02], abs=0.003)
    assert names(parts[2]) != list(range(names(parts[2])[0], 1000))


def test_a_seed_decides_and_no_shuffle_keeps_the_order(tmp_path: Path) -> None:
    prefix = write(tmp_path / "x", numbered(300))
    options = {"a": (), "b": ("--seed", "1234"), "c": ("--seed", "5"), "d": ("--no-shuffle",)}
    for name, words in options.items():
        assert data("split", prefix, "--shares", "75%,25%", "--output-prefix", tmp_path / name, *words) == 0
    found = {name: names(read(tmp_path / f"{name}_validation")) for name in options}
    assert found["a"] == found["b"]
    assert found["a"] != found["c"]
    assert found["d"] == [number for number in range(found["d"][0], 300) if number % 10]
    assert (
        data("merge", "--input", tmp_path / "d_train", tmp_path / "d_validation", "--output-prefix", tmp_path / "e")
        == 0
    )
    for suffix in (".bin", ".idx"):
        assert Path(f"{tmp_path}/e{suffix}").read_bytes() == Path(f"{prefix}{suffix}").read_bytes()


def test_shares_count_tokens_or_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = [[[1] * (1 if number < 500 else 9)] for number in range(1000)]
    prefix = write(tmp_path / "x", documents)
    words = ("split", prefix, "--shares", "1,1", "--names", "a,b", "--no-shuffle", "--output-prefix")
    tokens = as_json(capsys, *words, tmp_path / "t")["parts"]
    assert [part["tokens"] for part in tokens] == [2498, 2502]
    counts = as_json(capsys, *words, tmp_path / "d", "--by", "documents")["parts"]
    assert [part["documents"] for part in counts] == [500, 500]


def test_a_part_is_never_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path / "x", [[[1] * 5], [[2]], [], [[3]]])
    found = as_json(capsys, "split", prefix, "--shares", "98,1,1", "--output-prefix", tmp_path / "y")["parts"]
    assert sorted(part["tokens"] for part in found) == [1, 1, 5]
    with pytest.raises(RequestError, match="cannot be split into 4 parts") as refused:
        data("split", prefix, "--shares", "1,1,1,1", "--names", "a,b,c,d", "--output-prefix", tmp_path / "z")
    assert refused.value.why == "3 of its documents have tokens"


def test_documents_and_tokens_are_cut_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = numbered(100)
    prefix = write(tmp_path / "x", documents)
    for number, (words, wanted) in enumerate({"20:40": slice(20, 40), ":7": slice(7), "95:": slice(95, None)}.items()):
        assert data("split", prefix, "--documents", words, "--output-prefix", tmp_path / f"cut{number}") == 0
        assert read(tmp_path / f"cut{number}") == documents[wanted]
    [part] = as_json(capsys, "split", prefix, "--max-tokens", "100", "--output-prefix", tmp_path / "some")["parts"]
    assert 80 < part["tokens"] <= 100
    assert set(names(read(tmp_path / "some"))) < set(names(documents))
    assert data("split", prefix, "--max-tokens", "100", "--no-shuffle", "--output-prefix", tmp_path / "first") == 0
    first = read(tmp_path / "first")
    assert first == documents[: len(first)]
    for wrong in ("50:101", "7:7", "200:"):
        with pytest.raises(RequestError, match="there are no documents"):
            data("split", prefix, "--documents", wrong, "--output-prefix", tmp_path / "none")
    with pytest.raises(RequestError, match="cannot be cut to 1 tokens"):
        data("split", prefix, "--max-tokens", "1", "--no-shuffle", "--output-prefix", tmp_path / "none")


@pytest.mark.full
def test_a_document_larger_than_a_block_is_not_cut(tmp_path: Path) -> None:
    long = np.arange(2_500_000, dtype="<i4")
    with IndexedWriter(str(tmp_path / "x"), layout.INT32) as writer:
        for one in (long[:3], long, long[5:9]):
            writer.add(one, np.array([len(one)]), np.array([1]))
    assert data("split", tmp_path / "x", "--shares", "99,1", "--no-shuffle", "--output-prefix", tmp_path / "y") == 0
    assert read(tmp_path / "y_train") == [[[0, 1, 2]], [long.tolist()]]
    assert read(tmp_path / "y_validation") == [[[5, 6, 7, 8]]]


def test_nothing_is_overwritten_and_damaged_data_leaves_nothing(tmp_path: Path) -> None:
    prefix = write(tmp_path / "x", numbered(30))
    (tmp_path / "y_test.bin").write_bytes(b"of a person")
    with pytest.raises(RequestError, match=r"y_test\.bin' exists"):
        data("split", prefix, "--shares", "8,1,1", "--output-prefix", tmp_path / "y")
    poke(prefix, head_of(prefix).lengths_at, "<i", 2)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(MachineError, match="is damaged"):
        data("split", prefix, "--shares", "8,1,1", "--output-prefix", tmp_path / "z")
    assert sorted(os.listdir(tmp_path)) == before


def test_mistakes_are_refused_at_once(tmp_path: Path) -> None:
    prefix = write(tmp_path / "x", numbered(30))
    with pytest.raises(SeveralErrors) as refused:
        data("split", prefix, "--documents", "3", "--output-prefix", "a.bin", "--seed", "-1")
    assert len(refused.value.errors) == 3
    words = ("--names", "a,b", "--by", "documents", "--seed", "3", "--output-prefix", "y")
    with pytest.raises(SeveralErrors) as refused:
        data("split", prefix, "--documents", "3:4", *words)
    assert len(refused.value.errors) == 3
    with pytest.raises(RequestError, match="nothing says how to split"):
        data("split", prefix, "--output-prefix", "y")
    for shares in ("98", "98,0,2", "a,b", "1,-1"):
        with pytest.raises(RequestError, match="is not a list of"):
            data("split", prefix, "--shares", shares, "--output-prefix", "y")
    with pytest.raises(RequestError, match="there are 4 shares, and 3 names"):
        data("split", prefix, "--shares", "1,1,1,1", "--output-prefix", "y")
    with pytest.raises(RequestError, match="is not a list of different names"):
        data("split", prefix, "--shares", "1,1", "--names", "../a,b", "--output-prefix", "y")


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=60),
    st.lists(st.integers(1, 100), min_size=2, max_size=5),
    st.none() | st.integers(0, 1 << 40),
    st.booleans(),
)
@pytest.mark.full
def test_shares_are_met_as_near_as_whole_documents_allow(
    sizes: list[int], shares: list[float], seed: int | None, by_tokens: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prefix = write(Path(folder) / "x", [[[1] * size] if size else [] for size in sizes])
        streams = Streams(prefix, head_of(prefix))
        if sum(map(bool, sizes)) < len(shares):
            with pytest.raises(RequestError, match="cannot be split"):
                by_shares(streams, shares, seed, by_tokens=by_tokens)
            return
        parts = by_shares(streams, shares, seed, by_tokens=by_tokens).parts(np.arange(len(sizes)))
    assert set(parts.tolist()) == set(range(len(shares)))
    if by_tokens:
        wanted = list(_summed(share / sum(shares) * sum(sizes) for share in shares))
        got = list(_summed(sum(np.array(sizes)[parts == part]) for part in range(len(shares))))
        # Each boundary may be off by half a document, and by the documents that keep other parts from being empty.
        assert all(abs(one - other) <= max(sizes) * len(shares) for one, other in zip(wanted, got, strict=True))


def _summed(values: Iterator[float]) -> Iterator[float]:
    whole = 0.0
    for value in values:
        whole += value
        yield whole


def test_a_split_without_an_output_is_completed_and_needs_no_shares_for_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("x"), numbered(30))
    for how in ("--documents 0:10", "--max-tokens 100", "--shares 9,1"):
        for typed in (f"data split x {how}", f"data split --input x {how}"):
            assert main(typed.split()) == 2
            whole = capsys.readouterr().err.splitlines()[-1].strip().removeprefix("fix: ")
            assert whole == f"primus data split x {how} --output-prefix tokens"
        assert main([*whole.split()[1:-1], f"out{how[2]}"]) == 0
        capsys.readouterr()
