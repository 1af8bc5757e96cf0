"""What is wrong with the input is named by file and line, or skipped and counted; nothing half-written is left."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet
from tests.conftest import Run
from tests.data import oracle
from tests.data.conftest import Prepare, as_lines

from primus_core.errors import MachineError, PrimusError, RequestError
from primus_data import command, worker
from primus_data.sources import documents, files
from primus_data.sources.files import Kind
from primus_data.sources.parts import divide
from primus_data.sources.walk import LeftOut

WRONG = {
    b'{"text": "never closed': "malformed JSON: Unterminated string starting at position 10 of the line",
    b"nonsense": "malformed JSON: Expecting value at position 1 of the line",
    b'{"text": "a"} {"text": "b"}': "malformed JSON: Extra data at position 15 of the line",
    b'{"txt": "a", "id": 1}': "key 'text' is missing; the keys are txt, id",
    b'{"text": 5}': "the value of 'text' is a number, not a string",
    b'{"text": null}': "the value of 'text' is null, not a string",
    b'{"text": ["a", 7]}': "the value of 'text' has a sentence that is a number, not a string",
    b'["text"]': "it is a list, not a JSON object",
    b'{"text": "caf\xe9"}': "invalid UTF-8: byte 0xe9 at position 14 of the line",
    b'{"text": "half \\ud83d"}': "the value of 'text' has half of a surrogate pair, \\ud83d, which is not Unicode",
    b"[" * 100_000: "malformed JSON: it is nested too deeply",
}


@pytest.fixture
def mixed(texts: list[str], tmp_path: Path) -> dict[int, str]:
    """A file of good documents, with a wrong line behind each fifty; what is wrong with which line."""
    found, lines = {}, as_lines(texts[:700]).splitlines()
    for number, (wrong, what) in enumerate(WRONG.items(), 1):
        lines.insert(51 * number, wrong)
        found[51 * number + 1] = what
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))
    return found


@pytest.mark.parametrize("line", range(len(WRONG)))
@pytest.mark.parametrize("way", ["lines", "gzip"])
@pytest.mark.full
def test_a_wrong_line_is_named(
    prepare: Prepare, texts: list[str], tmp_path: Path, line: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primus_data.sources.lines.BLOCK", 3000)
    wrong, what = list(WRONG.items())[line]
    data = as_lines(texts[:100]) + b"\n" + wrong + b"\n" + as_lines(texts[:50])
    name = {"lines": "in.jsonl", "gzip": "in.gz"}[way]
    (tmp_path / name).write_bytes(data if way == "lines" else gzip.compress(data))
    with pytest.raises(PrimusError) as found:
        prepare("--input", name, "--partitions", "9")
    assert found.value.what.startswith(f"{name}:102: {what}")
    assert found.value.exit_code == 1
    assert "--on-error skip" in found.value.fix
    assert not list(tmp_path.glob("out*"))
    assert not list(tmp_path.glob(".out.preparing/*/*.partial"))


@pytest.mark.parametrize("partitions", ["1", "13"])
@pytest.mark.full
def test_wrong_lines_are_skipped_counted_and_listed(
    prepare: Prepare,
    texts: list[str],
    tokenizer_file: str,
    mixed: dict[int, str],
    partitions: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert prepare("--input", "in.jsonl", "--on-error", "skip", "--partitions", partitions) == 0
    assert oracle.files("out_text_document") == oracle.written(texts[:700], tokenizer_file)
    report = capsys.readouterr().out
    assert f"{len(mixed)} skipped, listed in out_skipped.log" in report
    assert "  in.jsonl:52: malformed JSON: Unterminated string" in report
    rows = [json.loads(line) for line in (tmp_path / "out_skipped.log").read_text(encoding="utf-8").splitlines()]
    assert [row["where"] for row in rows] == [f"in.jsonl:{number}" for number in mixed]
    assert all(row["why"].startswith(what) for row, what in zip(rows, mixed.values(), strict=True))


@pytest.mark.full
def test_a_wrong_row_of_parquet_is_named(prepare: Prepare, texts: list[str], tmp_path: Path) -> None:
    column = [*texts[:100], None, *texts[100:200]]
    parquet.write_table(pa.table({"text": column}), tmp_path / "in.parquet", row_group_size=30)
    with pytest.raises(PrimusError, match=r"^in\.parquet:101: the value of 'text' is null, not a string"):
        prepare("--input", "in.parquet", "--partitions", "3")
    with pytest.raises(PrimusError, match=r"^in\.parquet:1: key 'body' is missing"):
        prepare("--input", "in.parquet", "--json-keys", "body", "--discard-unfinished")
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    parquet.write_table(twice, tmp_path / "in.parquet")
    with pytest.raises(PrimusError, match=r"^'in\.parquet' cannot be read") as error:
        prepare("--input", "in.parquet", "--discard-unfinished")
    assert error.value.why == "2 of its columns are called 'text'"
    (tmp_path / "in.parquet").write_bytes(b"PAR1 this is none")
    with pytest.raises(PrimusError, match=r"^'in\.parquet' cannot be read"):
        prepare("--input", "in.parquet", "--discard-unfinished")


def test_a_text_file_that_is_no_text_is_named(prepare: Prepare, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.md").write_text("text", encoding="utf-8")
    (tmp_path / "in/b.png").write_bytes(b"\x89PNG")
    with pytest.raises(PrimusError, match=r"^in/b\.png: invalid UTF-8: byte 0x89 at 0") as found:
        prepare("--input", "in")
    assert found.value.fix.startswith("move it out of the folder, each file of which is read as a text in UTF-8\nor ")


@pytest.mark.parametrize("kind", ["lines", "gzip", "text"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, kind: Kind) -> None:
    data = BOM_UTF8 + (b"plain" if kind == "text" else b'{"text": "one"}\n{"text": "two"}\n')
    (tmp_path / "in").write_bytes(gzip.compress(data) if kind == "gzip" else data)
    [file] = files.find([str(tmp_path / "in")])
    [part] = divide([file._replace(kind=kind)], 1 << 20)
    [found] = documents.read(part, [file._replace(kind=kind)], ["text"])
    assert found.texts == ((["plain"] if kind == "text" else ["one", "two"]),)
    assert found.faults == []


def test_a_link_to_a_file_that_is_read_already_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "a.jsonl").symlink_to("b.jsonl")
    (tmp_path / "c.jsonl").hardlink_to(tmp_path / "b.jsonl")
    (tmp_path / "d.jsonl").write_text('{"text": "one"}\n')
    for words in ([str(tmp_path)], [f"{tmp_path}/*.jsonl"], [f"{tmp_path}/{name}.jsonl" for name in "abcd"]):
        left_out = LeftOut(str(tmp_path))
        assert [Path(file.path).name for file in files.find(words, left_out)] == ["b.jsonl", "d.jsonl"]
        assert str(left_out) == "2 linking to a file that is read already (a.jsonl, c.jsonl)"


def test_what_is_left_out_of_a_folder_is_counted_and_named(
    prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fetch leaves `manifest.json` beside its files: nobody expects documents there."""
    (tmp_path / "in").mkdir()
    for name in ("a.jsonl", "b.json", "c.txt", ".d.jsonl", "manifest.json"):
        (tmp_path / "in" / name).write_text('{"text": "one"}\n')
    (tmp_path / "in/more").symlink_to(tmp_path)
    (tmp_path / "in/z.jsonl").symlink_to("nowhere")
    assert prepare("--input", "in") == 0
    said = capsys.readouterr()
    assert (
        "--input: left out 1 hidden (in/.d.jsonl); 1 linking to a folder (in/more/); 1 linking to nothing (in/z.jsonl); "
        "2 of other kinds than .gz, .jsonl, .parquet, .zst (in/b.json, in/c.txt)\n"
    ) in said.err
    assert "1 document," in said.out


def test_a_link_to_nothing_behind_a_pattern_is_left_out_and_named_and_one_that_is_typed_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "z.jsonl").symlink_to("nowhere")
    left_out = LeftOut(str(tmp_path))
    assert [Path(file.path).name for file in files.find([f"{tmp_path}/*.jsonl"], left_out)] == ["a.jsonl"]
    assert str(left_out) == "1 linking to nothing (z.jsonl)"
    with pytest.raises(PrimusError, match=r"z\.jsonl' not found"):
        files.find([str(tmp_path / "z.jsonl")])


def test_a_folder_of_which_everything_is_left_out_says_so(tmp_path: Path) -> None:
    (tmp_path / "z.jsonl").symlink_to("nowhere")
    with pytest.raises(PrimusError, match=r"no file in the folder .*\n  why: left out 1 linking to nothing \("):
        files.find([str(tmp_path)])


def cut_off(data: bytes) -> bytes:
    return data[:-20]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("in.gz", cut_off(gzip.compress(b'{"text": "a"}\n' * 1000))),
        ("in.zst", cut_off(zstandard.ZstdCompressor().compress(os.urandom(5000).hex().encode()))),
        ("in.gz", b"this is not gzip"),
        ("in.zst", b"this is not zstd"),
    ],
    ids=["cut-gz", "cut-zst", "no-gz", "no-zst"],  # compressed data differs from process to process
)
def test_a_compressed_file_that_was_cut_off_is_named(prepare: Prepare, tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PrimusError, match=rf"^'{name}' cannot be read\n  why: it is damaged"):
        prepare("--input", name, "--on-error", "skip")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.full
def test_an_input_without_documents_is_refused(prepare: Prepare, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    with pytest.raises(RequestError, match=r"in\.jsonl is empty"):
        prepare("--input", "in.jsonl")
    (tmp_path / "in.jsonl").write_text("\n\n\n[]\n", encoding="utf-8")
    with pytest.raises(PrimusError, match=r"the input has no document\n  why: 1 line skipped"):
        prepare("--input", "in.jsonl", "--on-error", "skip")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("name", "data", "fix"),
    [
        ("in.txt", b"caf\xe9", "correct it"),
        ("in.json", b'[{"text": "a"}, {"text": "b"}]', "correct it"),
        ("in.jsonl", b'{"body": "a"}\n' * 3, "name the key of the text: --json-keys body\nor correct it"),
    ],
)
def test_where_no_document_would_be_left_skipping_is_not_proposed_and_nothing_stays(
    prepare: Prepare, texts: list[str], tmp_path: Path, name: str, data: bytes, fix: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PrimusError) as found:
        prepare("--input", name)
    assert found.value.fix == fix
    with pytest.raises(PrimusError, match="the input has no document"):
        prepare("--input", name, "--on-error", "skip")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    (tmp_path / "good.jsonl").write_bytes(as_lines(texts[:9]))
    with pytest.raises(PrimusError) as found:
        prepare("--input", name, "good.jsonl")
    assert "--on-error skip" in found.value.fix
    assert prepare("--input", name, "good.jsonl", "--on-error", "skip") == 0


def test_what_nodes_leave_without_a_document_does_not_stop_another_preparation(
    prepare: Prepare, texts: list[str], tokenizer_file: str, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"wrong\n")
    words = ("--output-prefix", "out", "--tokenizer-model", tokenizer_file, "--on-error", "skip")
    with pytest.raises(PrimusError, match="the input has no document"):
        worker.main(["--nodes", "2", "prepare", "--input", "in.jsonl", *words])
    assert list(tmp_path.glob(".out.preparing/*/000000"))
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts[:9]))
    assert prepare("--input", "in.jsonl") == 0


@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize(
    ("change", "message"),
    [("append", r"'in\.jsonl' changed while it was prepared"), ("remove", r"'in\.jsonl' cannot be read")],
)
def test_an_input_that_changes_or_vanishes_is_named(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, message: str, when: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("primus_data.sources.lines.BLOCK", 3000)
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts[:100]))
    found = files.find(["in.jsonl"])
    (part,) = divide(found, 1 << 20)
    reader = documents.read(part, found, ["text"])
    if when == "meanwhile":
        next(reader)
    if change == "append":
        (tmp_path / "in.jsonl").write_bytes(as_lines(texts[:101]))
    else:
        (tmp_path / "in.jsonl").unlink()
    if (change, when) == ("remove", "meanwhile"):  # who has a file open keeps it
        assert len([text for block in reader for text in block.texts[0]]) > 50
        return
    with pytest.raises(PrimusError, match=message):
        list(reader)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    if os.getuid():
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.full
def test_a_full_disk_is_named_and_the_same_command_continues(
    prepare: Prepare, texts: list[str], tokenizer_file: str, tmp_path: Path, small_disk: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts))
    words = ("--input", "in.jsonl", "--output-prefix", "disk/out", "--partitions", "5")
    other = small_disk / "other"
    other.write_bytes(bytes(400_000))
    with pytest.raises(MachineError, match=r"no space is left on the disk of '.*/disk'") as found:
        prepare(*words)
    assert "finished parts are kept" in found.value.fix
    assert not list(small_disk.glob("out*"))
    assert not list(small_disk.glob(".out.preparing/*/*.partial"))
    kept = {path.name: path.stat().st_mtime_ns for path in small_disk.glob(".out.preparing/*/0*")}
    assert kept
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    assert prepare(*words) == 0
    assert oracle.files(small_disk / "out_text_document") == oracle.written(texts, tokenizer_file)


def test_a_disk_that_is_certainly_too_small_is_refused_before_the_start(
    prepare: Prepare, texts: list[str], tmp_path: Path, small_disk: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts) * 10)
    with pytest.raises(MachineError, match=r"has 0\.001\d* GB of free space, and about 0\.0\d+ GB are needed"):
        prepare("--input", "in.jsonl", "--output-prefix", "disk/out")
    assert not list(small_disk.glob(".out.preparing/*/0*"))


@pytest.mark.full
def test_an_unfinished_preparation_of_something_else_is_named_and_can_be_discarded(
    prepare: Prepare, texts: list[str], tokenizer_file: str, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts[:100]) + b"wrong\n")
    with pytest.raises(PrimusError, match=r"in\.jsonl:101"):
        prepare("--input", "in.jsonl", "--partitions", "3")
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts[:100]))
    with pytest.raises(RequestError, match=r"holds an unfinished preparation of something else") as found:
        prepare("--input", "in.jsonl", "--append-eod")
    assert "input: there" in found.value.why
    assert "append eod: there false, now true" in found.value.why
    assert "--discard-unfinished" in found.value.fix
    assert prepare("--input", "in.jsonl", "--discard-unfinished") == 0
    assert oracle.files("out_text_document") == oracle.written(texts[:100], tokenizer_file)


@pytest.mark.full
def test_what_stopped_at_a_wrong_line_is_continued_by_skipping_it_and_not_the_other_way_round(
    prepare: Prepare, texts: list[str], tokenizer_file: str, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts[:100]) + b"wrong\n" + as_lines(texts[100:200]) + b"wrong\n")
    words = ("--input", "in.jsonl", "--partitions", "8")
    with pytest.raises(PrimusError, match=r"^in\.jsonl:101: malformed JSON"):
        prepare(*words)
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob(".out.preparing/*/0*")}
    assert kept
    with pytest.raises(PrimusError, match=r"^in\.jsonl:101: malformed JSON"):
        prepare(*words)
    assert kept == {path.name: path.stat().st_mtime_ns for path in tmp_path.glob(".out.preparing/*/0*")}
    assert prepare(*words, "--on-error", "skip") == 0
    assert oracle.files("out_text_document") == oracle.written(texts[:200], tokenizer_file)


@pytest.mark.parametrize("how", ["link", "owner"])
def test_a_strangers_unfinished_preparation_is_not_believed(
    prepare: Prepare, texts: list[str], tmp_path: Path, how: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts[:10]))
    (tmp_path / "theirs").mkdir()
    if how == "link":
        (tmp_path / ".out.preparing").symlink_to("theirs")
    else:
        if os.getuid():
            pytest.skip("only root can give a folder away")
        os.rename(tmp_path / "theirs", tmp_path / ".out.preparing")
        os.chown(tmp_path / ".out.preparing", 4711, 4711)
    with pytest.raises(RequestError, match=r"the unfinished preparation in .* is not trusted"):
        prepare("--input", "in.jsonl")
    assert not list((tmp_path / ".out.preparing").iterdir())


@pytest.mark.full
def test_the_command_names_an_error_without_a_traceback(
    primus: Run, texts: list[str], tokenizer_file: str, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts[:10]) + b'{"\x1b[31m": 1}\n')
    done = primus("data", "prepare", "--input", "in.jsonl", "--output-prefix", "out", "--tokenizer-model",
                  tokenizer_file)  # fmt: skip
    assert done.returncode == 1
    assert "primus: error: in.jsonl:11: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


def test_a_missing_key_is_answered_with_the_option_that_names_it() -> None:
    one = documents.refused("a.jsonl:1", documents.Fault("a.jsonl", 1, "no text", ["body"]), has_others=False)
    assert (one.kind, one.fix) == ("key", "name the key of the text: --json-keys body\nor correct it")
    ids = documents.Fault("a.jsonl", 1, "no text", ["body", "id"])
    several = documents.refused("a.jsonl:1", ids, has_others=False)
    assert several.fix.startswith("name the key of the text: --json-keys KEY\n")
    malformed = documents.refused("a.jsonl.gz:1", documents.Fault("a.jsonl.gz", 1, "malformed JSON"))
    assert malformed.fix.startswith("correct it, or skip")
    other = documents.refused("a.ndjson:1", documents.Fault("a.ndjson", 1, "no text", ["body"]), has_others=False)
    assert other.fix.startswith("name the key of the text: --json-keys body")
    odd_one = documents.refused("a.ndjson:9", documents.Fault("a.ndjson", 9, "no text", ["body"]))
    assert (odd_one.kind, odd_one.fix[:15]) == ("document", "correct it, or ")
    page = documents.refused("a.md:1", documents.Fault("a.md", 1, "malformed JSON"))
    assert page.fix.startswith("a text of its own is named *.txt")


PREPARE = ("prepare", "--input", "in.jsonl", "--output-prefix", "out")


@pytest.fixture
def corpus(texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a text, in which the commands run; it has no tokenizer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_bytes(as_lines(texts[:20]))
    return tmp_path


def _fix(*words: str) -> str:
    with pytest.raises(PrimusError) as found:
        command.run([*PREPARE, *words], "")
    return found.value.fix


def test_a_tokenizer_that_is_not_there_is_answered_with_one_that_is(corpus: Path, tokenizer_file: str) -> None:
    shutil.copy(tokenizer_file, corpus / "tokenizer.json")
    (corpus / "tokenizer_config.json").write_text("{}")
    assert _fix("--tokenizer-model", "toknizer.json") == "did you mean --tokenizer-model tokenizer.json?"
    assert _fix("--tokenizer-model", "a/b.json") == "name one that exists, such as --tokenizer-model tokenizer.json"
    assert _fix("--tokenizer-model", "gpt2").splitlines()[1].endswith("such as --tokenizer-model tokenizer.json")
    assert _fix() == "name the tokenizer's file: --tokenizer-model tokenizer.json"
    (corpus / "llama").mkdir()
    (corpus / "tokenizer.json").rename(corpus / "llama/tokenizer.json")
    assert _fix("--tokenizer-model", "tokenizer.json") == "name one that exists, such as --tokenizer-model llama"
    assert _fix() == "add --tokenizer-model llama"
    assert command.run([*PREPARE, "--tokenizer-model", "llama"], "") == 0


@pytest.mark.parametrize("words", [(), ("--tokenizer-model", "tokenizer.json"), ("--tokenizer-model", "FILE")])
def test_where_no_tokenizer_is_near_the_error_says_how_to_get_one(corpus: Path, words: tuple[str, ...]) -> None:
    lines = _fix(*words).splitlines()
    assert lines[1].startswith("hf download ORGANIZATION/MODEL --include '*token*' --local-dir FOLDER")
    assert lines[2] == "or train one on your text: docs/data-tokenizers.md"
