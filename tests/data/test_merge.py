"""`data merge`: the bytes of Megatron's own tool, or a refusal; never half a result."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.data.prepared import as_json, data, head_of, poke, read, write

from primus_core.errors import MachineError, RequestError, SeveralErrors
from primus_data.indexed import layout
from primus_data.indexed.layout import Layout

WEB = [[[1, 2, 3]], [], [[4], [5, 6]], []]
BOOKS = [[], [[7] * 50], [[8]]]


def as_megatron(*prefixes: str) -> tuple[bytes, bytes]:
    """`IndexedDatasetBuilder.add_index` for each, then `finalize`."""
    tokens, lengths, bounds = b"", list[int](), [0]
    for prefix in prefixes:
        head, index = head_of(prefix), Path(f"{prefix}.idx").read_bytes()
        before = len(lengths)
        lengths += struct.unpack_from(f"<{head.sequences}i", index, head.lengths_at)
        bounds += [before + bound for bound in struct.unpack_from(f"<{head.bounds}q", index, head.documents_at)][1:]
        tokens += Path(f"{prefix}.bin").read_bytes()
    offsets = [sum(lengths[:number]) * head.width for number in range(len(lengths))]
    found = Layout(head.code, len(lengths), len(bounds))
    numbers = struct.pack(f"<{len(lengths)}i{len(lengths)}q{len(bounds)}q", *lengths, *offsets, *bounds)
    return tokens, found.head + numbers


def both(prefix: str | Path) -> tuple[bytes, bytes]:
    """The bytes of .bin and .idx."""
    return Path(f"{prefix}.bin").read_bytes(), Path(f"{prefix}.idx").read_bytes()


@pytest.mark.parametrize("code", [layout.UINT16, layout.INT32])
def test_merged_files_have_the_bytes_of_megatrons_tool(
    tmp_path: Path, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    web, books = write(tmp_path / "web", WEB, code), write(tmp_path / "books", BOOKS, code)
    found = as_json(capsys, "merge", "--input", web, f"{books}.bin", web, "--output-prefix", tmp_path / "new/all")
    assert both(tmp_path / "new/all") == as_megatron(web, books, web)
    assert read(tmp_path / "new/all") == [*WEB, *BOOKS, *WEB]
    assert (found["inputs"], found["documents"], found["sequences"], found["tokens"]) == (3, 11, 8, 63)
    assert sorted(os.listdir(tmp_path / "new")) == ["all.bin", "all.idx"]


def known_by(prefix: str, tokenizer: str) -> str:
    """The same prefix, of which the tokenizer is known."""
    Path(f"{prefix}.json").write_text(json.dumps({"outcome": {"tokenizer": tokenizer}, "tokenizer": {"type": "T"}}))
    return prefix


def test_the_tokenizer_stays_known_through_merge_and_split(tmp_path: Path) -> None:
    web, books, other = (
        known_by(write(tmp_path / name, one), tokenizer)
        for name, one, tokenizer in (("web", WEB, "T 1"), ("books", BOOKS, "T 1"), ("other", WEB, "T 2"))
    )
    merged, first = tmp_path / "all", tmp_path / "first"
    assert data("merge", "--input", web, books, "--output-prefix", merged) == 0
    known = json.loads(Path(f"{merged}.json").read_text())
    assert (known["outcome"], known["tokenizer"]) == ({"tokenizer": "T 1"}, {"type": "T"})
    assert (known["documents"], known["bytes"], known["made_by"]) == (7, 57 * 2, "data merge")
    assert known["inputs"] == [{"prefix": web}, {"prefix": books}]
    assert data("split", merged, "--documents", "0:1", "--output-prefix", first) == 0
    assert json.loads(Path(f"{first}.json").read_text()).items() >= {"documents": 1, "bytes": 6}.items()
    with pytest.raises(RequestError, match="have different tokenizers"):
        data("merge", "--input", first, other, "--output-prefix", tmp_path / "none")


def test_a_file_beside_the_output_that_describes_no_prefix_stays(tmp_path: Path) -> None:
    web, plain = known_by(write(tmp_path / "web", WEB), "T 1"), write(tmp_path / "plain", WEB)
    (tmp_path / "raw.json").write_text('{"text": "raw"}\n')
    assert data("merge", "--input", web, web, "--output-prefix", tmp_path / "raw") == 0
    assert (tmp_path / "raw.json").read_text() == '{"text": "raw"}\n'
    (tmp_path / "old.json").write_text((tmp_path / "web.json").read_text())
    assert data("merge", "--input", web, plain, "--output-prefix", tmp_path / "old") == 0
    assert not (tmp_path / "old.json").exists(), "it was of other data"


def test_a_folder_stands_for_all_in_it_by_name(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    prefixes = [write(tmp_path / f"parts/{name}", one) for name, one in (("b", WEB), ("a", BOOKS), ("B", BOOKS))]
    assert data("merge", "--input", tmp_path / "parts", "--output-prefix", tmp_path / "all") == 0
    assert both(tmp_path / "all") == as_megatron(*sorted(prefixes))
    os.unlink(tmp_path / "parts/a.idx")
    with pytest.raises(RequestError, match=r"a\.idx' not found"):
        data("merge", "--input", tmp_path / "parts", "--output-prefix", tmp_path / "more")


def test_different_types_are_refused_by_name(tmp_path: Path) -> None:
    prefixes = [write(tmp_path / name, WEB, code) for name, code in (("a", 8), ("b", 4), ("c", 8), ("d", 5))]
    with pytest.raises(SeveralErrors) as refused:
        data("merge", "--input", *prefixes, "--output-prefix", tmp_path / "all")
    told = [(one.what, one.why) for one in refused.value.errors]
    assert told == [
        (f"'{prefixes[index]}' cannot be merged with '{prefixes[0]}'",
         f"the tokens of '{prefixes[index]}' are {name}, those of '{prefixes[0]}' are uint16")
        for index, name in ((1, "int32"), (3, "int64"))
    ]  # fmt: skip
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("action", ["merge", "blend"])
def test_different_tokenizers_are_refused_as_far_as_they_are_known(tmp_path: Path, action: str) -> None:
    prefixes = [write(tmp_path / name, WEB) for name in ("a", "b", "c")]
    for prefix, tokenizer in zip(prefixes[1:], ("HuggingFaceTokenizer 1", "SentencePieceTokenizer 2"), strict=True):
        Path(f"{prefix}.json").write_text(json.dumps({"outcome": {"tokenizer": tokenizer}}))
    words: list[str | Path] = ["--output-prefix", tmp_path / "all"] if action == "merge" else []
    assert data(action, "--input", *prefixes[:2], *words) == 0
    with pytest.raises(RequestError, match=r"c' and '.*b' have different tokenizers") as refused:
        data(action, "--input", *prefixes, *words[:1], *(f"{word}-2" for word in words[1:]))
    assert "c.json says SentencePieceTokenizer 2, and " in refused.value.why


def test_multimodal_data_and_an_existing_output_are_refused(tmp_path: Path) -> None:
    prefix = write(tmp_path / "web", WEB)
    with pytest.raises(RequestError, match=r"output '.*web.bin' exists"):
        data("merge", "--input", prefix, "--output-prefix", prefix)
    with open(f"{prefix}.idx", "ab") as file:
        file.write(bytes(head_of(prefix).sequences))
    with pytest.raises(RequestError, match="is multimodal"):
        data("merge", "--input", prefix, "--output-prefix", tmp_path / "all")


def test_damaged_data_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    web, books = write(tmp_path / "web", WEB), write(tmp_path / "books", BOOKS)
    poke(books, head_of(books).lengths_at, "<i", 49)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(MachineError, match="is damaged"):
        data("merge", "--input", web, books, "--output-prefix", tmp_path / "all")
    assert sorted(os.listdir(tmp_path)) == before


def sparse(prefix: Path, sequences: int, length: int, code: int) -> None:
    """Data of zeros that takes no space on the disk."""
    head = Layout(code, sequences, sequences + 1)
    offsets = [number * length * head.width for number in range(sequences)]
    numbers = struct.pack(f"<{sequences}i{sequences}q", *[length] * sequences, *offsets)
    bounds = struct.pack(f"<{sequences + 1}q", *range(sequences + 1))
    Path(f"{prefix}.idx").write_bytes(head.head + numbers + bounds)
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate(sequences * length * head.width)


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    sparse(tmp_path / "x", 900, (1 << 31) - 1, 5)  # 15 TB
    words = ("--input", tmp_path / "x", tmp_path / "x", tmp_path / "x", "--output-prefix", tmp_path / "all")
    with pytest.raises(MachineError, match="there is no room") as refused:
        data("merge", *words)
    assert refused.value.why.startswith("46,385.6")
    assert sorted(os.listdir(tmp_path)) == ["x.bin", "x.idx"]


def test_a_kill_leaves_nothing_under_the_final_name(tmp_path: Path, clean_environ: dict[str, str]) -> None:
    sparse(tmp_path / "x", 400, 1 << 20, layout.UINT16)
    command = [str(Path(sys.executable).with_name("primus")), "data", "merge", "--input", "x", "--output-prefix", "all"]
    with subprocess.Popen(command, cwd=tmp_path, env=clean_environ) as run:
        wait_until(lambda: list(tmp_path.glob("all.*.partial.bin")) or run.poll() is not None)
        run.send_signal(signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    assert not list(tmp_path.glob("all.bin")) + list(tmp_path.glob("all.idx"))
    (partial,) = tmp_path.glob("all.*.partial.bin")
    os.unlink(partial)
