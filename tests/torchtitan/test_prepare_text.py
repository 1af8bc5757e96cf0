"""Text is prepared once, the same way everywhere, and several processes may ask for it at the same time.

It is the form of runs that earlier versions started, whose replays need it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.torchtitan.test_training import losses, train

from primus_data.training.files import STDLIB, cache_key, documents, pieces

__all__ = ["train"]

pytestmark = pytest.mark.torch  # tokenizers and tqdm come with the backend


def folder_of_text(path: Path, files: int = 30) -> Path:
    path.mkdir(parents=True)
    for number in range(files):
        words = " ".join(f"word{(number * 7 + i) % 97} is number {i}" for i in range(200))
        (path / f"text_{number}.md").write_text(words + "\n")
    return path


def command(source: str | Path, cache: Path, out: Path, vocab: int = 400, *more: str) -> list[str]:
    program = [sys.executable, "-m", "primus_torchtitan.prepare_text", "--source", str(source)]
    return [*program, "--vocab-size", str(vocab), "--cache", str(cache), "--out", str(out), *more]


def prepare(source: str | Path, cache: Path, out: Path, vocab: int = 400, *more: str) -> str:
    done = subprocess.run(command(source, cache, out, vocab, *more), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.full
def test_the_same_text_is_prepared_the_same_way(tmp_path: Path) -> None:
    source = folder_of_text(tmp_path / "source")
    for name in ("a", "b"):
        prepare(source, tmp_path / f"cache_{name}", tmp_path / name)
    first, second = ((tmp_path / name).resolve() for name in ("a", "b"))
    assert first.name == second.name
    for file in ("documents.jsonl", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"):
        assert (first / file).read_bytes() == (second / file).read_bytes()


@pytest.mark.full
def test_what_was_prepared_is_found_again_at_once(tmp_path: Path) -> None:
    source = folder_of_text(tmp_path / "source")
    prepare(source, tmp_path / "cache", tmp_path / "a")
    assert "prepared before" in prepare(source, tmp_path / "cache", tmp_path / "b")
    assert (tmp_path / "a").resolve() == (tmp_path / "b").resolve()


def test_a_cache_that_cannot_be_written_is_told_of_by_its_name(tmp_path: Path) -> None:
    source = folder_of_text(tmp_path / "source")
    (tmp_path / "taken").write_text("")
    line = command(source, tmp_path / "taken" / "cache", tmp_path / "out")
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("primus: error: the text cannot be prepared\n  why: ")
    assert f"{tmp_path}/taken/cache: Not a directory" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_other_text_or_another_vocabulary_is_prepared_anew(tmp_path: Path) -> None:
    source = folder_of_text(tmp_path / "source")
    prepare(source, tmp_path / "cache", tmp_path / "a")
    prepare(source, tmp_path / "cache", tmp_path / "b", 300)
    (source / "text_0.md").write_text("something else\n")
    prepare(source, tmp_path / "cache", tmp_path / "c")
    assert len({(tmp_path / name).resolve() for name in "abc"}) == 3


@pytest.mark.full
def test_several_processes_at_once_leave_one_complete_result(tmp_path: Path) -> None:
    source = folder_of_text(tmp_path / "source")
    running = [
        subprocess.Popen(command(source, tmp_path / "cache", tmp_path / f"out{i}"), stderr=subprocess.PIPE)
        for i in range(4)
    ]
    assert [process.communicate() and process.returncode for process in running] == [0, 0, 0, 0]
    assert [entry.name[:5] for entry in (tmp_path / "cache").iterdir()] == ["text-"]
    assert (tmp_path / "out3" / "documents.jsonl").is_file()


@pytest.mark.full
def test_the_tokenizer_has_the_size_that_was_asked_for_and_loses_nothing(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    source = folder_of_text(tmp_path / "source")
    prepare(source, tmp_path / "cache", tmp_path / "out")
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer" / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 400
    assert tokenizer.decode(tokenizer.encode("naïve 漢字 \t word1").ids) == "naïve 漢字 \t word1"


def test_too_little_text_is_an_error_that_says_so(tmp_path: Path) -> None:
    source = folder_of_text(tmp_path / "source", files=1)
    done = subprocess.run(
        command(source, tmp_path / "cache", tmp_path / "out", 50_000), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "use more text, or data.vocab_size=" in done.stderr
    assert not list((tmp_path / "cache").iterdir()), "nothing half-made stays"


@pytest.mark.full
def test_binaries_and_foreign_encodings_are_left_out(tmp_path: Path) -> None:
    source = folder_of_text(tmp_path / "source")
    (source / "binary.txt").write_bytes(b"\0\1\2")
    (source / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    prepare(source, tmp_path / "cache", tmp_path / "out")
    files = (tmp_path / "out" / part / "documents.jsonl" for part in (".", "validation"))
    names = {json.loads(line)["name"] for file in files for line in file.read_text().splitlines()}
    assert len(names) == 30
    assert not names & {"binary.txt", "latin.txt"}


def test_documents_can_be_cut(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("".join(f"line {n} of a long file, with words\n" for n in range(500)))
    prepare(source, tmp_path / "cache", tmp_path / "out", 300, "--document-chars", "1000")
    texts = [json.loads(line)["text"] for line in (tmp_path / "out" / "documents.jsonl").read_text().splitlines()]
    assert len(texts) > 10
    assert max(map(len, texts)) <= 1000


@given(text=st.text(alphabet="ab\n"), size=st.integers(min_value=1, max_value=20))
def test_pieces_lose_nothing(text: str, size: int) -> None:
    assert "".join(pieces(text, size)) == text


def test_names_and_contents_cannot_be_mistaken_for_one_another() -> None:
    assert cache_key([("a", "bc")], 300, 0) != cache_key([("ab", "c")], 300, 0)


def test_the_standard_library_is_text_without_its_tests() -> None:
    found, left_out = documents(STDLIB)
    assert len(found) > 300
    assert found == documents(STDLIB)[0]
    named = [name for names in left_out.names.values() for name in names]
    assert not [name for name in named if {"test", "site-packages", "__pycache__"} & set(name.split("/"))]


@pytest.mark.full
def test_a_run_that_an_earlier_version_planned_trains_as_it_was(train: Callable[..., Any], tmp_path: Path) -> None:
    rows, log = train(former=True)
    assert losses(rows)[-1] < losses(rows)[0]
    assert "Preparing primus_text dataset from" in log
    assert (tmp_path / "run/data/documents.jsonl").exists()
