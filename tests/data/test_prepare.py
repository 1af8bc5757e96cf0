"""`data prepare` writes what Megatron's tool writes, whatever the text comes in."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet
from tests.data import oracle
from tests.data.conftest import Prepare, as_lines

from primus_core.errors import MachineError, PrimusError, RequestError, SeveralErrors
from primus_data.indexed.described import vocabulary
from primus_data.indexed.reader import Indexed
from primus_data.indexed.tokens import unknown
from primus_data.preparing.claims import Claims
from primus_data.tokenizers import load


def by_lines(folder: Path, texts: list[str]) -> list[str]:
    (folder / "in.jsonl").write_bytes(as_lines(texts))
    return ["in.jsonl"]


def by_gzip(folder: Path, texts: list[str]) -> list[str]:
    """In two members, as `cat a.gz b.gz` makes them."""
    halves = (as_lines(texts[:900]), as_lines(texts[900:]))
    (folder / "in.jsonl.gz").write_bytes(b"".join(map(gzip.compress, halves)))
    return ["in.jsonl.gz"]


def by_zstd(folder: Path, texts: list[str]) -> list[str]:
    """In two frames."""
    halves = (as_lines(texts[:900]), as_lines(texts[900:]))
    (folder / "in.jsonl.zst").write_bytes(b"".join(zstandard.ZstdCompressor().compress(half) for half in halves))
    return ["in.jsonl.zst"]


def by_parquet(folder: Path, texts: list[str]) -> list[str]:
    table = pa.table({"id": list(range(len(texts))), "text": texts})
    parquet.write_table(table, folder / "in.parquet", row_group_size=300)
    return ["in.parquet"]


def by_folder(folder: Path, texts: list[str]) -> list[str]:
    """One file for each document, in folders, beside files that are hidden."""
    for number, text in enumerate(texts):
        path = folder / f"in/{number // 500}/{number:04d}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (folder / "in/.git").mkdir()
    (folder / "in/.git/config").write_text("hidden", encoding="utf-8")
    return ["in"]


def by_shards(folder: Path, texts: list[str]) -> list[str]:
    """Files of all kinds, by a pattern and by name."""
    (folder / "a1.jsonl").write_bytes(as_lines(texts[:500]))
    (folder / "a2.json").write_bytes(as_lines(texts[500:900])[:-1])  # without a line end at its end
    (folder / "b.json.gz").write_bytes(gzip.compress(as_lines(texts[900:1300])))
    parquet.write_table(pa.table({"text": texts[1300:1998]}), folder / "c.parquet")
    (folder / "d.txt").write_bytes(texts[1998].encode())
    (folder / "e.txt").write_bytes(texts[1999].encode())
    return ["a*", "b.json.gz", "c.parquet", "d.txt", "e.txt"]


WAYS = {"lines": by_lines, "gzip": by_gzip, "zstd": by_zstd, "parquet": by_parquet, "folder": by_folder}


@pytest.mark.parametrize("way", [*WAYS, "shards"])
@pytest.mark.full
def test_the_output_is_that_of_megatrons_tool(
    prepare: Prepare, texts: list[str], tokenizer_file: str, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primus_data.sources.lines.BLOCK", 5000)
    inputs = {**WAYS, "shards": by_shards}[way](tmp_path, texts)
    assert prepare("--input", *inputs, "--append-eod", "--partitions", "7") == 0
    assert oracle.files("out_text_document") == oracle.written(texts, tokenizer_file, append_eod=True)
    left = {path.name for path in tmp_path.iterdir() if "out" in path.name}
    assert left == {f"out_text_document.{end}" for end in ("bin", "idx", "json")}


@pytest.mark.full
def test_the_output_does_not_depend_on_partitions_and_workers(
    prepare: Prepare, texts: list[str], tokenizer_file: str, tmp_path: Path
) -> None:
    whole = oracle.written(texts, tokenizer_file)
    by_lines(tmp_path, texts)
    for words in ((), ("--partitions", "1", "--workers", "1"), ("--partitions", "100")):
        assert prepare("--input", "in.jsonl", "--overwrite", *words) == 0
        assert oracle.files("out_text_document") == whole


@pytest.mark.full
def test_each_key_has_its_own_output_and_sentences_may_be_given_apart(
    prepare: Prepare, texts: list[str], tokenizer_file: str, tmp_path: Path
) -> None:
    rows = [
        {"text": text, "title": text[:20], "parts": [text[:50], "", text[50:]] if number % 3 else []}
        for number, text in enumerate(texts[:300])
    ]
    (tmp_path / "in.jsonl").write_bytes(as_lines(rows))
    keys = ("title", "text", "parts")
    assert prepare("--input", "in.jsonl", "--json-keys", *keys, "--append-eod", "--partitions", "3") == 0
    for key in keys:
        expected = oracle.written(oracle.values(rows, key), tokenizer_file, append_eod=True)
        assert oracle.files(f"out_{key}_document") == expected


@pytest.mark.full
def test_a_document_longer_than_blocks_and_parts_is_kept_whole(
    prepare: Prepare, texts: list[str], tokenizer_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primus_data.sources.lines.BLOCK", 1000)
    documents = [*texts[:20], "".join(texts[:400]), *texts[20:40]]
    (tmp_path / "in.jsonl").write_bytes(as_lines(documents))
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(as_lines(documents)))
    for name in ("in.jsonl", "in.jsonl.gz"):
        assert prepare("--input", name, "--partitions", "90", "--overwrite") == 0
        assert oracle.files("out_text_document") == oracle.written(documents, tokenizer_file)


@pytest.mark.full
def test_what_pythons_json_takes_and_orjson_does_not_is_taken(
    prepare: Prepare, tokenizer_file: str, tmp_path: Path
) -> None:
    lines = [
        '{"text": "first", "score": NaN}',
        '{"text": "second", "score": -Infinity, "id": 123456789012345678901234567890}',
        '  {"text": "not this", "text": "the last one counts"}\r',
        "",
        '{"text": "\\ud83d\\ude42 and \\u0000 and \\/"}',
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf-8", newline="")
    assert prepare("--input", "in.jsonl") == 0
    documents = ["first", "second", "the last one counts", "🙂 and \0 and /"]
    assert oracle.files("out_text_document") == oracle.written(documents, tokenizer_file)


def test_what_was_prepared_lies_beside_the_output(
    prepare: Prepare, texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_lines(tmp_path, texts)
    assert prepare("--input", "in.jsonl") == 0
    known = json.loads((tmp_path / "out_text_document.json").read_text(encoding="utf-8"))
    assert known["documents"] == len(texts)
    assert known["inputs"] == [{"path": "in.jsonl", "bytes": (tmp_path / "in.jsonl").stat().st_size}]
    tokens = (tmp_path / "out_text_document.bin").stat().st_size // 2
    assert f"2,000 documents, {tokens:,} tokens in " in capsys.readouterr().out


@pytest.mark.full
def test_what_is_prepared_already_is_not_prepared_again(prepare: Prepare, texts: list[str], tmp_path: Path) -> None:
    by_lines(tmp_path, texts)
    assert prepare("--input", "in.jsonl") == 0
    before = (tmp_path / "out_text_document.bin").stat().st_mtime_ns
    assert prepare("--input", "in.jsonl") == 0
    assert (tmp_path / "out_text_document.bin").stat().st_mtime_ns == before
    with pytest.raises(RequestError, match=r"the output 'out_text_document\.bin' exists") as found:
        prepare("--input", "in.jsonl", "--append-eod")
    assert "--overwrite" in found.value.fix
    assert not (tmp_path / ".out.preparing").exists()
    assert prepare("--input", "in.jsonl", "--append-eod", "--overwrite") == 0


def test_all_that_is_wrong_with_a_request_is_said_at_once(prepare: Prepare, tmp_path: Path) -> None:
    with pytest.raises(SeveralErrors) as found:
        prepare("--input", "no*.jsonl", "/dev/null", ".", "--vocab-size", "5")
    text = str(found.value)
    assert "no file matches 'no*.jsonl'" in text
    assert "no file in the folder '.'" in text
    assert "'/dev/null' is not a regular file" in text
    assert "the tokenizer has a vocabulary of 1000, and --vocab-size is 5" in text
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_missing_are_found_out_before_anything_starts(
    prepare: Prepare, tmp_path: Path, texts: list[str]
) -> None:
    with pytest.raises(SeveralErrors) as found:
        prepare("--input", "none.jsonl", "no/*.jsonl", "--tokenizer-model", "none.json")
    assert found.value.exit_code == 3
    names = [f"file '{tmp_path / name}' not found" for name in ("none.jsonl", "no", "none.json")]
    assert [error.what for error in found.value.each()] == names
    by_folder(tmp_path, texts[:3])
    with pytest.raises(RequestError, match=r"the output 'in/out' would be in the folder 'in' of --input"):
        prepare("--input", "in", "--output-prefix", "in/out")


def test_arguments_that_contradict_each_other_are_refused_together(prepare: Prepare) -> None:
    words = ("--json-keys", "a/b", "--vocab-file", "v.json", "--output-prefix", "x/")
    with pytest.raises(SeveralErrors) as found:
        prepare("--input", "in.jsonl", *words)
    assert [error.what for error in found.value.each()] == [
        "--output-prefix 'x/' ends with a folder",
        "--json-keys: 'a/b' is not supported",
        "--vocab-file and --merge-file are of a GPT2BPETokenizer",
    ]


@pytest.mark.parametrize("words", [("--tokenizer-model", ""), ("--vocab-file", "v.json")])
def test_a_tokenizer_of_gpt2_needs_both_of_its_files(prepare: Prepare, words: tuple[str, ...]) -> None:
    with pytest.raises(RequestError, match="needs both --vocab-file and --merge-file") as found:
        prepare("--input", "in.jsonl", "--output-prefix", "x", "--tokenizer-type", "GPT2BPETokenizer", *words)
    assert "--tokenizer-model" not in found.value.fix


def test_an_owner_elsewhere_that_gives_no_sign_of_life_loses_its_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from primus_machine.host import HostRoot

    claims = Claims(str(tmp_path), HostRoot())
    path = tmp_path / "000003.claim"
    path.write_text(claims.text.replace(HostRoot().hostname(), "elsewhere"), encoding="utf-8")
    assert not claims.take("000003")
    assert not claims.take("000003")
    monkeypatch.setattr("primus_data.preparing.claims.SILENT_S", 0.0)
    assert claims.take("000003")
    assert claims.owner("000003") == HostRoot().hostname()
    assert not Claims(str(tmp_path), HostRoot()).take("000003")
    claims.release("000003")
    assert list(tmp_path.iterdir()) == []


PEAK = "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
"""Not `ru_maxrss`: that of a new process begins with its parent's."""
SPEECH = "Dr. Smith went home. He slept!\n\nThen he woke up at 5 p.m. and left. Why? Nobody knows.\n"


@pytest.fixture
def punkt(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """A model of sentences, where nltk finds it; what splits by it."""
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    folder = tmp_path_factory.mktemp("nltk")
    model = folder / "tokenizers/punkt_tab/english"
    model.mkdir(parents=True)
    for name, text in {"collocations.tab": "", "sent_starters.txt": "", "abbrev_types.txt": "dr\np.m\n",
                       "ortho_context.tab": ""}.items():  # fmt: skip
        (model / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr("nltk.data.path", [str(folder)])
    known = PunktParameters()
    known.abbrev_types = {"dr", "p.m"}
    return cast("Callable[[str], list[str]]", PunktSentenceTokenizer(known).tokenize)


@pytest.mark.full
def test_sentences_become_sequences(
    prepare: Prepare, tokenizer_file: str, tmp_path: Path, punkt: Callable[[str], list[str]]
) -> None:
    documents = [SPEECH, "", SPEECH * 3, "no end"]
    (tmp_path / "in.jsonl").write_bytes(as_lines(documents))
    assert prepare("--input", "in.jsonl", "--split-sentences", "--append-eod") == 0
    assert len(punkt(SPEECH)) == 5
    expected = oracle.written(documents, tokenizer_file, append_eod=True, split=punkt)
    assert oracle.files("out_text_sentence") == expected
    assert prepare("--input", "in.jsonl", "--split-sentences", "--keep-newlines", "--output-prefix", "kept") == 0
    kept = load("HuggingFaceTokenizer", tokenizer_file).decode(Indexed("kept_text_sentence").document(0).tolist())
    assert kept == SPEECH.rstrip()


@pytest.mark.full
def test_a_model_of_sentences_that_is_missing_is_named(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nltk.data.path", [str(tmp_path)])
    (tmp_path / "in.jsonl").write_bytes(as_lines([SPEECH]))
    with pytest.raises(MachineError, match="nltk has no sentence model for 'english' here") as found:
        prepare("--input", "in.jsonl", "--split-sentences")
    assert "python -m nltk.downloader punkt_tab" in found.value.fix


@pytest.mark.full
def test_the_memory_does_not_grow_with_the_input(
    texts: list[str], tokenizer_file: str, tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    data, peaks = as_lines(texts) * 50, []
    for times in (1, 4):
        with (tmp_path / "in.jsonl").open("wb") as file:
            for _ in range(times):
                file.write(data)
        words = ("prepare", "--input", "in.jsonl", "--output-prefix", "out", "--tokenizer-model", tokenizer_file)
        measure = "import re, sys; from primus_data.worker import main; main(sys.argv[1:]); " + PEAK
        done = subprocess.run([sys.executable, "-c", measure, *words, "--overwrite"], cwd=tmp_path, env=clean_environ,
                              capture_output=True, text=True, check=True, timeout=300)  # fmt: skip
        peaks.append(int(done.stdout.split()[-1]) / 1024)
    assert peaks[1] < 300
    assert peaks[1] < 1.2 * peaks[0], peaks


@pytest.mark.full
def test_a_wrong_line_behind_a_million_good_ones_is_named(prepare: Prepare, tmp_path: Path) -> None:
    with (tmp_path / "in.jsonl").open("wb") as file:
        file.writelines(b'{"text": "%d"}\n' % number for number in range(999_999))
        file.write(b'{"text": \n{"text": "behind it"}\n')
    with pytest.raises(PrimusError, match=r"^in\.jsonl:1000000: malformed JSON: Expecting value"):
        prepare("--input", "in.jsonl", "--partitions", "5")
    assert prepare("--input", "in.jsonl", "--on-error", "skip") == 0
    row = json.loads((tmp_path / "out_skipped.log").read_text(encoding="utf-8"))
    assert row["where"] == "in.jsonl:1000000"
    assert Indexed("out_text_document").documents == 1_000_000


def test_the_record_says_how_many_tokens_the_data_may_have_unless_it_is_of_other_data(
    prepare: Prepare, texts: list[str], tmp_path: Path
) -> None:
    by_lines(tmp_path, texts)
    assert prepare("--input", "in.jsonl") == 0
    assert (vocabulary("out_text_document"), unknown("out_text_document", 1000, 0)) == (1000, None)
    lacks = unknown("out_text_document", 300, 1 << 16)
    assert lacks
    assert (lacks.token >= 300, lacks.needed) == (True, 1000)
    assert unknown("out_text_document", lacks.token + 1, 1 << 16) is None
    with open("out_text_document.bin", "ab") as file:
        file.write(bytes(2))
    assert vocabulary("out_text_document") == 0
