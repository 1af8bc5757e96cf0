"""`data inspect`: what it counts, what it estimates, and what a terminal gets to see."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from tests.data.conftest import Prepare, as_lines
from tests.data.prepared import as_json, data, head_of, poke, tokenizer, write

from primus_core.errors import MachineError, PrimusError, RequestError, SeveralErrors
from primus_data.indexed import layout
from primus_data.indexed.layout import Layout
from primus_data.indexed.writer import IndexedWriter

DOCUMENTS = [[[5, 6, 7]], [], [[1], [2, 3]], [[9] * 40], [[5]]]


def test_documents_sequences_and_tokens_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "inspect", write(tmp_path / "x", DOCUMENTS))
    assert (found["documents"], found["sequences"], found["tokens"], found["type"]) == (5, 5, 47, "uint16")
    lengths = found["lengths"]
    assert not lengths["is_sample"]
    assert [lengths[name] for name in ("empty", "shortest", "median", "mean", "p99", "longest")] == [
        1,
        0,
        3,
        9.4,
        40,
        40,
    ]
    bars = {(bar["shortest"], bar["longest"]): bar["documents"] for bar in lengths["histogram"]}
    assert bars == {(1, 1): 1, (2, 3): 2, (4, 7): 0, (8, 15): 0, (16, 31): 0, (32, 63): 1}
    assert found["top"][:2] == [{"id": 9, "count": 40, "text": None}, {"id": 5, "count": 2, "text": None}]
    assert (found["fault"], found["data_bytes"]) == ("", 94)


def test_empty_data_has_no_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "inspect", write(tmp_path / "x", []))
    assert (found["documents"], found["tokens"], found["frequencies"]) == (0, 0, None)
    assert "it is empty" in found["fault"]
    assert data("inspect", tmp_path / "x", "--samples", "3") == 0


def test_the_output_fits_80_columns_and_ends_in_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write(tmp_path / "x", [[list(range(60000, 60000 + size))] for size in range(1, 1500, 7)])
    assert data("inspect", f"{prefix}.bin", "--samples", "2", "--document", "0") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:])) <= 80
    titles = [line for line in lines if line.startswith("document ")]
    assert titles == [
        "document 0, 1 tokens",
        "document 53, 372 tokens (the first 128)",
        "document 161, 1,128 tokens (the first 128)",
    ]


def test_samples_are_decoded_and_terminal_escapes_are_spelt_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tokenizer(tmp_path / "tokenizer.json", ["<unk>", "good ", "\x1b[2Jevil ", "text\n", "\u202e"])
    prefix = write(tmp_path / "x", [[[1, 3, 2, 4]], [[1]]])
    assert data("inspect", prefix, "--document", "0", "--tokenizer-model", model) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "document 0, 4 tokens\n  good text\n  \\x1b[2Jevil \\u202e\n" in shown
    found = as_json(capsys, "inspect", prefix, "--samples", "2", "--tokens", "1", "--tokenizer-model", model)
    assert [one["text"] for one in found["samples"]] == ["good ", "good "]


def test_a_frequent_token_keeps_the_space_that_a_text_does_not_begin_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As SentencePiece and Llama 2's `tokenizer.json` decode."""
    path = Path(tokenizer(tmp_path / "tokenizer.json", ["<unk>", "\u2581the", "s", "\u2581"]))
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"decoder": {"type": "Metaspace", "replacement": "\u2581"}})
    )
    prefix = write(tmp_path / "x", [[[1, 2, 1, 1, 2, 3]]])
    found = as_json(capsys, "inspect", prefix, "--samples", "1", "--tokenizer-model", str(path))
    assert [one["text"] for one in found["top"]] == [" the", "s", " "]
    assert found["samples"][0]["text"] == "thes the thes "


def test_a_name_with_a_line_end_is_spelt_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert data("inspect", write(tmp_path / "a\nb\x1b[1m", DOCUMENTS)) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{tmp_path}/a\\nb\\x1b[1m"


def test_a_missing_document_is_refused_with_the_number_of_documents(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no document 5") as refused:
        data("inspect", write(tmp_path / "x", DOCUMENTS), "--document", "5")
    assert refused.value.why == "it has 5 documents, numbered from 0 to 4"


def test_what_no_memory_holds_and_a_type_without_a_model_are_refused_at_once(tmp_path: Path) -> None:
    words = ("--samples", "1B", "--tokens", "1e9", "--top", "1e9", "--tokenizer-type", "TikTokenizer")
    with pytest.raises(SeveralErrors) as refused:
        data("inspect", write(tmp_path / "x", DOCUMENTS), *words)
    assert len(refused.value.errors) == 4


@pytest.mark.full
def test_an_index_of_100_gb_is_inspected_by_a_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both files are sparse; the middle of the index has documents."""
    count = 5_000_000_000
    head, prefix = Layout(layout.UINT16, count, count + 1), tmp_path / "x"
    with open(f"{prefix}.idx", "wb") as file:
        file.write(head.head)
        file.truncate(head.size)
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate(100_000_000_000)
    poke(str(prefix), head.size - 8, "<q", count)
    found = as_json(capsys, "inspect", prefix, "--samples", "3")
    assert (found["documents"], found["tokens"]) == (count, 50_000_000_000)
    assert found["lengths"]["is_sample"]
    assert found["frequencies"]["is_sample"]
    assert data("inspect", prefix) == 0
    assert "estimated from a sample of 262,144 (--exact counts all)" in capsys.readouterr().out


@pytest.mark.full
def test_a_sample_is_near_what_exact_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    lengths = np.minimum(draw.lognormal(1, 1, 4_300_000), 1000).astype("<i4")
    lengths.sort()  # a sample from one place would mislead
    filled = lengths[lengths > 0]
    with IndexedWriter(str(tmp_path / "x"), 1) as writer:
        writer.add(np.zeros(int(lengths.sum()), "u1"), filled, (lengths > 0).astype("<i8"))
    sampled = as_json(capsys, "inspect", tmp_path / "x")["lengths"]
    exact = as_json(capsys, "inspect", tmp_path / "x", "--exact")["lengths"]
    assert sampled["is_sample"]
    assert not exact["is_sample"]
    assert (exact["documents"], exact["empty"]) == (len(lengths), int((lengths == 0).sum()))
    assert (exact["median"], exact["p99"], exact["longest"]) == (
        *(int(np.percentile(lengths, percent, method="inverted_cdf")) for percent in (50, 99)),
        int(lengths[-1]),
    )
    assert sampled["median"] == exact["median"]
    assert sampled["mean"] == pytest.approx(exact["mean"], rel=0.02)
    assert sampled["p99"] == pytest.approx(exact["p99"], rel=0.05)


@pytest.mark.parametrize(
    ("place", "value"),
    [("offsets", -8), ("offsets", 1 << 62), ("documents", -1), ("documents", 1 << 62), ("documents", 4)],
)
def test_an_index_that_contradicts_itself_is_named_damaged(tmp_path: Path, place: str, value: int) -> None:
    prefix = write(tmp_path / "x", DOCUMENTS)
    poke(prefix, getattr(head_of(prefix), f"{place}_at") + (8 if place == "offsets" else 16), "<q", value)
    with pytest.raises(MachineError, match="is damaged") as refused:
        data("inspect", prefix, "--samples", "5", "--exact")
    assert "primus data verify" in refused.value.fix


ACTIONS = {
    "inspect": (),
    "verify": (),
    "split": ("--shares", "1,1", "--output-prefix", "out"),
    "merge": ("--output-prefix", "out"),
    "blend": (),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("suffix", [".idx", ".bin"])
def test_a_fifo_or_a_folder_is_refused_and_not_waited_for(tmp_path: Path, action: str, suffix: str) -> None:
    prefix = write(tmp_path / "x", DOCUMENTS)
    given = ("--input", prefix) if action in ("merge", "blend") else (prefix,)
    words = (action, *given, *ACTIONS[action])
    os.unlink(prefix + suffix)
    os.mkfifo(prefix + suffix)
    with pytest.raises(MachineError, match="cannot be read") as refused:
        data(*words)
    assert refused.value.why == "it is not a regular file"
    os.unlink(prefix + suffix)
    os.mkdir(prefix + suffix)
    with pytest.raises(MachineError, match="cannot be read"):
        data(*words)


def test_a_text_is_refused_with_the_command_that_prepares_it(tmp_path: Path) -> None:
    text = tmp_path / "web.jsonl"
    text.write_text('{"text": "a"}\n')
    with pytest.raises(RequestError, match="is not prepared data") as refused:
        data("inspect", str(text))
    assert refused.value.fix.startswith(f"primus data prepare --input {text} --output-prefix web --tokenizer-model ")
    write(tmp_path / "x", DOCUMENTS)
    with pytest.raises(RequestError) as refused:
        data("verify", str(tmp_path))
    assert refused.value.fix == f"name a prefix in it: {tmp_path}/x"


def test_a_prefix_that_is_not_there_is_answered_with_one_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("tokens_text_document"), DOCUMENTS)
    Path("half_text_document.idx").touch()
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub/web_text_document", DOCUMENTS)
    named = {
        **dict.fromkeys(("tokens", "tokens_text", "tokens_text_documnet", "tokens_text_text_document"), "tokens"),
        "sub/web": "sub/web",
    }
    for action in ("inspect", "verify"):
        for typed, near in named.items():
            with pytest.raises(PrimusError, match="not found") as refused:
                data(action, typed)
            assert refused.value.fix.endswith(f", such as {near}_text_document")
            assert data(action, f"{near}_text_document", *["--fast"] * (action == "verify")) == 0
        for far in ("half", "books", "corpus_text_document", "elsewhere/x"):
            with pytest.raises(PrimusError, match="not found") as refused:
                data(action, far)
            assert "such as" not in refused.value.fix
    with pytest.raises(RequestError, match="not found") as found:
        data("merge", "--input", "tokens", "--output-prefix", "all")
    assert found.value.fix.endswith("such as tokens_text_document")


def test_text_that_is_prepared_and_the_record_of_prepared_data_lead_to_the_data(
    prepare: Prepare, texts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "web.jsonl").write_bytes(as_lines(texts[:9]))
    prepare("--input", "web.jsonl", "--output-prefix", "web")
    for path, what in {
        "web.jsonl": "'web.jsonl' is not prepared data",
        "web_text_document.json": "'web_text_document.json' is the record of prepared data, not the data",
    }.items():
        with pytest.raises(RequestError) as refused:
            data("inspect", path)
        assert refused.value.what == what
        assert refused.value.fix.splitlines()[1:] == ["primus data inspect web_text_document"]
    assert data("inspect", "web_text_document") == 0


def test_a_link_to_data_elsewhere_is_followed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    prefix = write(tmp_path / "store/x", DOCUMENTS)
    for suffix in (".idx", ".bin"):
        os.symlink(prefix + suffix, tmp_path / f"link{suffix}")
    assert data("inspect", tmp_path / "link") == 0


@pytest.mark.parametrize("place", [18, 26])
def test_an_index_with_a_huge_count_is_cut_off(tmp_path: Path, place: int) -> None:
    prefix = write(tmp_path / "x", DOCUMENTS)
    poke(prefix, place, "<Q", (1 << 64) - 1)
    with pytest.raises(MachineError, match="it was cut off"):
        data("inspect", prefix)
