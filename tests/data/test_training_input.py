"""Raw text that a `data` section names is tokenized once, into a cache, and found again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.test_trust import STRANGER, give, home, needs_root
from tests.data.conftest import as_lines

from primus_core.errors import PrimusError
from primus_data.indexed.reader import Indexed
from primus_data.preparing.failures import Failures
from primus_data.training import prepare_input

__all__ = ["home"]


@pytest.fixture
def corpus(texts: list[str], tmp_path: Path) -> Path:
    """Two files of JSON lines."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.jsonl").write_bytes(as_lines(texts[number * 100 : number * 100 + 100]))
    return folder


def words(corpus: Path, tokenizer: str, out: str, *more: str) -> list[str]:
    place = ["--cache", str(corpus.parent / "cache"), "--out", str(corpus.parent / out)]
    return ["--input", f"{corpus}/*.jsonl", "--tokenizer-model", tokenizer, "--append-eod", *place, *more]


def prefix(corpus: Path, out: str) -> str:
    return str(corpus.parent / out / "corpus_text_document")


@pytest.mark.full
def test_a_second_run_finds_what_the_first_prepared(
    corpus: Path, tokenizer_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare_input.main(words(corpus, tokenizer_file, "one/data")) == 0
    assert "2 files, prepared in" in capsys.readouterr().err
    data = Indexed(prefix(corpus, "one/data"))
    assert data.documents == 200
    assert data.document(1)[-1] == json.loads(Path(tokenizer_file).read_text())["model"]["vocab"]["<|endoftext|>"]
    assert prepare_input.main(words(corpus, tokenizer_file, "two/data")) == 0
    assert "2 files, prepared before in" in capsys.readouterr().err
    assert os.path.realpath(corpus.parent / "two/data") == os.path.realpath(corpus.parent / "one/data")


@pytest.mark.full
def test_other_text_another_tokenizer_and_other_settings_are_prepared_anew(corpus: Path, tokenizer_file: str) -> None:
    def place(out: str, tokenizer: str = tokenizer_file, *more: str) -> str:
        assert prepare_input.main(words(corpus, tokenizer, out, *more)) == 0
        return os.path.realpath(corpus.parent / out)

    before = place("one")
    other = corpus.parent / "other.json"
    other.write_text(Path(tokenizer_file).read_text() + "\n")
    with (corpus / "0.jsonl").open("ab") as file:
        file.write(as_lines(["one more"]))
    (corpus / "1.jsonl").write_bytes((corpus / "1.jsonl").read_bytes().replace(b'"text"', b'"body"'))
    (corpus / "0.jsonl").write_bytes((corpus / "0.jsonl").read_bytes().replace(b'"text"', b'"body"'))
    after = place("two", tokenizer_file, "--json-key", "body")
    assert len({before, after, place("three", str(other), "--json-key", "body")}) == 3
    assert Indexed(f"{after}/corpus_body_document").documents == 201


@pytest.mark.full
def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(
    corpus: Path, tokenizer_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare_input.main(words(corpus, tokenizer_file, "out", "--model-vocab-size", "999")) == 2
    assert "the tokenizer has 1000 tokens, but the model's vocabulary has 999" in capsys.readouterr().err
    assert prepare_input.main(words(corpus, tokenizer_file, "out", "--model-vocab-size", "1000")) == 0


@pytest.mark.full
def test_what_cannot_be_prepared_is_an_error_with_its_exit_code(
    corpus: Path, tokenizer_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (corpus / "0.jsonl").write_text('{"text": "a"}\n{"txet": "b"}\n')
    assert prepare_input.main(words(corpus, tokenizer_file, "out")) == 1
    said = capsys.readouterr().err
    assert f"primus: error: {corpus}/0.jsonl:2" in said
    assert "data.json_key" not in said
    assert said.endswith("--on-error skip\n")
    assert prepare_input.main(words(corpus.parent / "nowhere", tokenizer_file, "out")) == 2
    assert "no file matches" in capsys.readouterr().err
    assert not (corpus.parent / "out").exists()


def test_a_key_that_no_document_has_is_answered_with_the_setting_and_no_command(
    corpus: Path, tokenizer_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare_input.main([*words(corpus, tokenizer_file, "out"), "--json-key", "content"]) == 1
    said = capsys.readouterr().err
    assert said.endswith("  fix: name the key of the text: data.json_key=text\n       or correct it\n")


def test_a_node_that_hears_of_a_wrong_key_can_name_the_setting_too(tmp_path: Path) -> None:
    one, other = (Failures(str(tmp_path), rank) for rank in range(2))
    with pytest.raises(PrimusError), one.told():
        raise PrimusError("no key", fix="--json-keys body", kind="key", meant="body")
    with pytest.raises(PrimusError) as heard:
        other.look()
    assert (heard.value.kind, heard.value.meant) == ("key", "body")


@pytest.mark.full
def test_nodes_that_share_the_cache_prepare_it_together(corpus: Path, tokenizer_file: str) -> None:
    program = [sys.executable, "-m", "primus_data.training.prepare_input"]
    running = [
        subprocess.Popen(
            [*program, *words(corpus, tokenizer_file, f"node{rank}", "--nodes", "2", "--node-rank", str(rank))],
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert os.path.realpath(corpus.parent / "node0") == os.path.realpath(corpus.parent / "node1")
    assert [name for name in os.listdir(corpus.parent / "node0") if name.startswith(".")] == []


@needs_root
@pytest.mark.full
def test_what_a_stranger_prepared_is_not_trained_on(
    corpus: Path, tokenizer_file: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare_input.main(words(corpus, tokenizer_file, "one")) == 0
    give((corpus.parent / "one").resolve())
    assert prepare_input.main(words(corpus, tokenizer_file, "two")) == 2
    assert f"it belongs to uid {STRANGER}" in capsys.readouterr().err
    assert not (corpus.parent / "two").exists()
