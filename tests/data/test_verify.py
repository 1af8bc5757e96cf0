"""`data verify`: each fault is found and placed, valid data is called valid, and what was not checked is said."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run
from tests.data.prepared import as_json, data, head_of, poke, tokenizer, write

from primus_core.errors import PrimusError, RequestError, SeveralErrors
from primus_data import worker
from primus_data.indexed.streams import Streams, pieces
from primus_data.indexed.writer import IndexedWriter

EOD = 50
DOCUMENTS = [[[5, 6, EOD]], [], [[1], [2, EOD]], [[9] * 40 + [EOD]], [[5, EOD]]]


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Valid data; its name is short, since tables break long ones."""
    write(tmp_path / "x", DOCUMENTS)
    monkeypatch.chdir(tmp_path)
    return "x"


def findings(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """What is found, by kind; the exit code says whether there is any."""
    capsys.readouterr()
    report = as_json(capsys, "verify", *words)
    found: list[dict[str, Any]] = report["findings"]
    assert data("verify", *words) == (1 if found else 0)
    assert report["valid"] == (not found)
    return found


def test_valid_data_is_valid_and_all_was_checked(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert data("verify", f"{prefix}.idx", "--vocab-size", "51", "--eod", "50") == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{prefix}: valid\n")
    assert "not checked" not in shown
    assert "5 documents, 5 sequences, 49 tokens, largest id 50" in shown


def test_what_was_not_checked_is_said(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert data("verify", prefix, "--skip-duplicates") == 0
    shown = capsys.readouterr().out
    assert "valid, as far as it was checked" in shown
    for name in ("tokens against a vocabulary", "ends of documents", "duplicates"):
        assert f"not checked: {name}" in shown
    report = as_json(capsys, "verify", prefix, "--fast")
    assert report["unchecked"] == ["what lies between the ends of the index, tokens, duplicates: --fast"]


@pytest.mark.full
def test_a_tokenizer_says_vocabulary_and_last_token(
    tmp_path: Path, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"w{number}" for number in range(50)] + ["<|endoftext|>"]
    model = tokenizer(tmp_path / "tokenizer.json", words)
    assert not findings(capsys, prefix, "--tokenizer-model", model, "--eod", "50")
    small = tokenizer(tmp_path / "small.json", words[:50])
    assert [one["check"] for one in findings(capsys, prefix, "--tokenizer-model", small, "--eod", "50")] == ["tokens"]


def _cut(suffix: str, size: int) -> Callable[[str], None]:
    def change(prefix: str) -> None:
        os.truncate(prefix + suffix, os.path.getsize(prefix + suffix) + size)

    return change


def _put(column: str, number: int, form: str, value: int) -> Callable[[str], None]:
    width = 4 if form == "<i" else 8

    def change(prefix: str) -> None:
        poke(prefix, getattr(head_of(prefix), f"{column}_at") + number * width, form, value)

    return change


def _replace(prefix: str) -> None:
    Path(f"{prefix}.idx").write_bytes(b"no index at all, but as long as one")


FAULTS: dict[str, tuple[Callable[[str], None], tuple[str, ...]]] = {
    "data cut off": (_cut(".bin", -4), ("x.bin has 94 bytes, and its index lists 98: 4 are missing",)),
    "data too long": (_cut(".bin", 6), ("x.bin has 104 bytes, and its index lists 98: 6 are surplus",)),
    "index cut off": (_cut(".idx", -1), ("it was cut off",)),
    "no index": (_replace, ("is not an index of Megatron",)),
    "index too long": (_cut(".idx", 3), ("x.idx has 3 bytes more than its head announces",)),
    "modes": (_cut(".idx", 5), ("x.idx ends in 5 modes: it is an index of multimodal data",)),
    "negative length": (_put("lengths", 1, "<i", -3), ("1 sequences have a negative length", "sequence 1: -3 tokens",
                                                       "sequence 2: byte 8 instead of 0")),
    "zero length": (_put("lengths", 3, "<i", 0), ("1 sequences have no tokens", "sequence 3")),
    "offset": (_put("offsets", 2, "<q", 10), ("1 sequences do not begin where", "sequence 2: byte 10 instead of 8")),
    "overflow": (_put("offsets", 2, "<q", 8 - (1 << 32)), ("they overflowed 32 bits",)),
    "huge offset": (_put("offsets", 4, "<q", 1 << 62), ("sequence 4: byte 4,611,686,018,427,387,904 instead of 94",)),
    "first bound": (_put("documents", 0, "<q", 1), ("the first document begins with sequence 1, not 0",)),
    "last bound": (_put("documents", 5, "<q", 4), ("the last document ends with sequence 4 of 5",)),
    "order": (_put("documents", 2, "<q", 4), ("1 documents begin before the one in front of them",
                                             "document 3: sequence 3 after 4")),
    "negative bound": (_put("documents", 1, "<q", -7), ("document 1: sequence -7 after 0",)),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_of_the_files_is_found(name: str, prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, told = FAULTS[name]
    change(prefix)
    assert data("verify", prefix, "--vocab-size", "51") == 1
    shown = " ".join(capsys.readouterr().out.split())
    for text in told:
        assert text in shown


FAST = {"data cut off", "data too long", "index cut off", "no index", "index too long", "modes", "first bound",
        "last bound", "huge offset"}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fast_finds_the_faults_of_sizes_and_ends(name: str, prefix: str) -> None:
    FAULTS[name][0](prefix)
    assert data("verify", prefix, "--fast") == (1 if name in FAST else 0)


def test_all_findings_come_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path / "x", [*DOCUMENTS, [[5, 6, EOD]], [[70, 7]]])
    found = findings(capsys, prefix, "--vocab-size", "60", "--eod", str(EOD))
    assert [(one["check"], one["times"]) for one in found] == [("tokens", 1), ("eod", 1), ("duplicates", 1)]
    assert found[0]["examples"] == ["the largest, 70, is token 0 of document 6"]
    assert found[1]["examples"] == ["document 6 ends with 7"]
    assert found[2]["examples"] == ["documents 0 and 5 are the same"]


def test_negative_tokens_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [found] = findings(capsys, write(tmp_path / "x", [[[5, 6]], [[7, -2, -9]]], 4))
    assert (found["what"], found["examples"]) == (
        "2 tokens are negative",
        ["the smallest, -9, is token 2 of document 1"],
    )


def test_a_share_of_duplicates_is_accepted_if_asked_for(tmp_path: Path) -> None:
    prefix = write(tmp_path / "x", [[[1]], [[2]], [[3]], [[1]]])
    assert data("verify", prefix) == 1
    assert data("verify", prefix, "--max-duplicates", "24%") == 1
    assert data("verify", prefix, "--max-duplicates", "0.25") == 0
    assert data("verify", prefix, "--skip-duplicates") == 0


def test_documents_longer_than_a_block_are_compared_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = np.arange(1_500_000, dtype="<i4") % 1000
    other = long.copy()
    other[-1] = 1001
    with IndexedWriter(str(tmp_path / "x"), 4) as writer:
        for one in (long, other, long):
            writer.add(one, np.array([len(one)]), np.array([1]))
    found = findings(capsys, str(tmp_path / "x"), "--vocab-size", "1001", "--eod", "499")
    assert [one["examples"] for one in found] == [
        ["the largest, 1,001, is token 1,499,999 of document 1"],
        ["document 0 ends with 999", "document 1 ends with 1,001", "document 2 ends with 999"],
        ["documents 0 and 2 are the same"],
    ]


def test_with_little_memory_a_share_of_the_documents_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = [[[number, number % 7]] for number in range(2000)]
    report = as_json(capsys, "verify", write(tmp_path / "x", [*half, *half]), "--memory", "40000")
    [found] = report["findings"]
    assert found["what"].startswith("about ")
    assert found["times"] == pytest.approx(2000, rel=0.2)
    assert any(
        "duplicates among one in 8 documents, by hash; the count is an estimate" in one for one in report["checked"]
    )


def test_many_copies_of_one_document_need_no_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [found] = findings(capsys, write(tmp_path / "x", [[[7]], *[[[1, 2]]] * 3000, [[8]]]), "--memory", "4096")
    assert (found["times"], found["what"]) == (2999, "2,999 documents (99.90%) repeat an earlier one")
    assert found["examples"] == ["3,000 documents are the same, the first is 1, the last is 3,000"]


def test_what_contradicts_fast_is_refused_at_once(prefix: str) -> None:
    with pytest.raises(SeveralErrors) as refused:
        data("verify", prefix, "--fast", "--eod", "3", "--vocab-size", "9", "--memory", "0")
    assert len(refused.value.errors) == 3
    with pytest.raises(RequestError, match="is not a share"):
        data("verify", prefix, "--max-duplicates", "120%")


def test_in_a_run_findings_are_what_failed_and_valid_data_are_not(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIMUS_RUN_DIR", str(tmp_path))
    with pytest.raises(PrimusError) as failed:
        worker.main(["verify", prefix, "--vocab-size", "50", "--eod", "49"])
    assert (failed.value.what, failed.value.exit_code) == ("data verify: 2 findings in x", 1)
    assert failed.value.fix
    assert "4 tokens are outside the vocabulary (0 to 49)" in capsys.readouterr().out
    assert worker.main(["verify", prefix, "--vocab-size", "51"]) == 0
    monkeypatch.delenv("PRIMUS_RUN_DIR")
    assert worker.main(["verify", prefix, "--vocab-size", "50"]) == 1


@pytest.mark.full
def test_the_task_ends_with_the_code_of_its_findings(prefix: str, primus: Run) -> None:
    done = primus("direct", "--", "data", "verify", prefix, "--vocab-size", "50")
    assert done.returncode == 1, done.stderr
    assert "4 tokens are outside the vocabulary (0 to 49)" in done.stdout
    assert f"data verify: 1 finding in {prefix}" in done.stderr
    assert "SystemExit" not in done.stderr
    assert "diagnosis" not in done.stderr
    alone = primus("data", "verify", prefix, "--vocab-size", "50")
    assert (alone.returncode, alone.stderr) == (1, "")
    assert primus("data", "verify", f"{prefix}-other").returncode == 3


@given(
    st.lists(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=3), min_size=1, max_size=8),
    st.integers(1, 7),
)
@pytest.mark.full
def test_pieces_of_any_size_belong_to_their_documents(documents: list[list[list[int]]], size: int) -> None:
    """However the tokens are cut, each is seen once, in its document and at its place."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = write(Path(folder) / "x", documents)
        streams = Streams(prefix, head_of(prefix))
        tokens = [block for whole in streams.tokens() for block in np.split(whole, range(size, len(whole), size))]
        seen = []
        for piece in pieces(prefix, iter(tokens), streams.token_ends()):
            seen += [(*piece.document_at(index), int(token)) for index, token in enumerate(piece.values)]
            assert piece.is_closed == (piece.document_at(len(piece.values) - 1)[1] == _size(documents, piece) - 1)
    rows = [[token for sequence in one for token in sequence] for one in documents]
    assert seen == [(number, place, token) for number, row in enumerate(rows) for place, token in enumerate(row)]


def _size(documents: list[list[list[int]]], piece: Any) -> int:
    return sum(map(len, documents[piece.numbers[-1]]))
