"""What `primus data fetch` reads: formats, folders, addresses; splits and slices as the library `datasets` has them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.data.conftest import Prepare
from tests.data.fetched import Fetch, parquet, text_of
from tests.data.hub import Fault, serving

from primus_data.fetching import slices, splits
from primus_data.indexed.reader import Indexed

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = [{"text": text_of(0, row), "n": row, "big": 12345678901234567890123} for row in range(300)]


@pytest.fixture
def fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Fetch:
    return Fetch(tmp_path, monkeypatch, capfd)


def lines(rows: list[dict[str, object]], ascii_only: bool = False) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows).encode()


def formats(folder: Path) -> list[str]:
    """The same rows in each format, and one text file."""
    data, escaped = lines(ROWS), lines(ROWS, ascii_only=True)
    (folder / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(data[:5000]) + gzip.compress(data[5000:]))
    (folder / "c.ndjson.zst").write_bytes(zstandard.compress(escaped[:5000]) + zstandard.compress(escaped[5000:]))
    (folder / "d.json").write_bytes(data.rstrip(b"\n"))
    (folder / "e.parquet").write_bytes(parquet(pa.table({"text": [str(row["text"]) for row in ROWS]})))
    return ["a.jsonl", "b.jsonl.gz", "c.ndjson.zst", "d.json", "e.parquet"]


def test_all_formats_give_the_same_rows_in_the_order_of_the_inputs(fetch: Fetch) -> None:
    names = formats(fetch.folder)
    (fetch.folder / "f.txt").write_bytes(b" ein\r\nganzes Dokument\n")
    fetch("--input", *names, "f.txt", "--output-dir", "out", "--shard-size", "20kB")
    expected = [{"text": row["text"]} for row in ROWS] * len(names)
    assert fetch.rows() == [*expected, {"text": " ein\r\nganzes Dokument\n"}]
    written = (fetch.folder / "out/train-00000.jsonl").read_bytes()
    assert "Zeile 0/0: „ümlaut“ \u2028".encode() in written, "text is not escaped to ASCII"
    fetch("--input", "a.jsonl", "--columns", "*", "--output-dir", "all")
    assert fetch.rows("all") == ROWS, "also a number beyond 64 bits"


def test_rows_of_lines_are_cut_and_continued_in_the_middle_of_files(fetch: Fetch) -> None:
    names = [name for name in formats(fetch.folder) if "parquet" not in name]
    fetch("--input", *names, "--split", "train[250:950]", "--output-dir", "out")
    assert [row["text"] for row in fetch.rows()] == [row["text"] for row in (ROWS * 4)[250:950]]
    fetch("--input", *names, "--split", "train[50%:]", "--num-samples", "10", "--output-dir", "half")
    assert [row["text"] for row in fetch.rows("half")] == [row["text"] for row in ROWS[:10]]


@pytest.mark.full
def test_prepare_reads_what_fetch_wrote(fetch: Fetch, prepare: Prepare) -> None:
    formats(fetch.folder)
    fetch("--input", "b.jsonl.gz", "--output-dir", "shards", "--shard-size", "20kB")
    assert prepare("--input", "shards/*.jsonl") == 0
    assert Indexed("out_text_document").documents == len(ROWS)


@pytest.mark.parametrize("has_ranges", [True, False])
def test_addresses_are_read_with_and_without_ranges(has_ranges: bool, fetch: Fetch) -> None:
    names = formats(fetch.folder)
    with serving({name: (fetch.folder / name).read_bytes() for name in names}) as hub:
        hub.has_ranges = has_ranges
        hub.faults = [Fault("/e.parquet", cut_after=2000), Fault("/b.jsonl.gz", cut_after=900)]
        urls = [f"{hub.url.replace('//', '//user:secret5678@')}/{name}?key=secret1234" for name in names]
        said = fetch("--input", *urls, "--output-dir", "out", env={"HF_TOKEN": "hf_" + "0a" * 17})
        assert not any("Bearer" in headers.get("authorization", "") for _, headers in hub.asked)
    assert [row["text"] for row in fetch.rows()] == [row["text"] for row in ROWS] * len(names)
    left = said + (fetch.folder / "out/manifest.json").read_text()
    assert "secret1234" not in left
    assert "secret5678" not in left


def test_an_address_whose_file_changes_is_refused(fetch: Fetch) -> None:
    rows = lines([{"text": str(number)} for number in range(1000)])
    with serving({"a.jsonl": rows, "b.jsonl": rows + b"bad\n"}) as hub:
        words = ("--input", f"{hub.url}/a.jsonl", f"{hub.url}/b.jsonl", "--output-dir", "out", "--shard-size", "5kB")
        fetch(*words, code=1)
        hub.files["a.jsonl"] = rows.replace(b"9", b"8")
        assert f"the source has changed since this fetch began: {hub.url}/a.jsonl" in fetch(*words, code=2)


LAYOUTS: dict[str, tuple[list[str], str, str | None, str]] = {
    "sharded": (["data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl",
                 "data/dev_2-00000-of-00001.jsonl", "extra/train.jsonl"], "", None, "train"),
    "another name": (["data/train-00000-of-00001.jsonl", "data/dev_2-00000-of-00001.jsonl"], "", None, "dev_2"),
    "folders": (["train/b.jsonl", "train/a.jsonl", "x/valid/c.jsonl", "other.jsonl"], "", None, "train"),
    "a folder": (["train/b.jsonl", "x/valid/c.jsonl", "other.jsonl"], "", None, "validation"),
    "names": (["my_train_2.jsonl", "my_train_10.jsonl", "a-test.jsonl", "rest.jsonl"], "", None, "train"),
    "neither": (["b.jsonl", "a/z.jsonl", "a/b.jsonl", ".hidden/c.jsonl", "__pycache__/d.jsonl"], "", None, "train"),
    "mixed": (["b.jsonl", "c.jsonl", "config.json", "e.txt"], "", None, "train"),
    "configs": (["data/x/1.jsonl", "data/y/2.jsonl", "data/y/3.jsonl"], """
configs:
- config_name: default
  data_files: [{split: train, path: "data/*/*"}]
- config_name: y
  data_files:
  - {split: train, path: ["data/y/3.jsonl", "data/y/2.*"]}
  - {split: test, path: data/x/*.jsonl}
""", "y", "train"),
    "a default": (["data/x/1.jsonl", "data/y/2.jsonl"], """
configs:
- {config_name: x, data_files: "data/x/*"}
- {config_name: y, data_dir: data/y, default: true}
""", None, "train"),
}  # fmt: skip


def test_files_of_another_format_are_left_out_of_a_split_and_named(fetch: Fetch) -> None:
    """As `datasets` does, which says nothing."""
    folder = fetch.folder / "corpus"
    folder.mkdir()
    for name in ("a.jsonl", "c.jsonl", "test.jsonl"):
        (folder / name).write_bytes(lines(ROWS[:2]))
    for name in ("train.jsonl", "train-a.jsonl", "train-b.parquet"):
        rows = lines(ROWS[:2]) if name.endswith("l") else parquet(pa.table({"text": ["of parquet"]}))
        (folder / name).write_bytes(rows)
    said = fetch("--dataset", "./corpus", "--output-dir", "out")
    assert "takes the jsonl files, and leaves out 1 file of another format, such as 'train-b.parquet'" in said
    assert "corpus/*\n" in said
    assert "3 files in " in said
    assert len(fetch.rows()) == 4
    fetch("--input", "corpus/", "corpus/a.jsonl", "--output-dir", "all")
    assert len(fetch.rows("all")) == 13


@pytest.mark.full
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_files_of_a_split_are_those_that_datasets_finds(layout: str, fetch: Fetch) -> None:
    import datasets  # 1.5 s

    names, card, config, split = LAYOUTS[layout]
    for name in names:
        path = fetch.folder / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"text": name}) + "\n" if name.endswith(".jsonl") else "")
    if card:
        (fetch.folder / "corpus/README.md").write_text(f"---{card}---\n# Corpus\n")
    cache = str(fetch.folder / "cache")
    known = datasets.load_dataset(str(fetch.folder / "corpus"), config, split=split, cache_dir=cache)
    chosen = ("--name", config) if config else ()
    fetch("--dataset", "./corpus", *chosen, "--split", split, "--output-dir", "out")
    assert [row["text"] for row in fetch.rows()] == list(known["text"])


BOUND = st.one_of(st.none(), st.integers(-250, 250))
PERCENT = st.one_of(st.none(), st.integers(-99, 99))


@pytest.mark.full
@given(start=BOUND, stop=BOUND, rows=st.integers(0, 300))
def test_a_slice_in_rows_is_that_of_datasets(start: int | None, stop: int | None, rows: int) -> None:
    _compare("" if start is None else str(start), "" if stop is None else str(stop), rows)


@pytest.mark.full
@given(start=PERCENT, stop=PERCENT, rows=st.integers(0, 3000))
def test_a_slice_in_percent_is_that_of_datasets(start: int | None, stop: int | None, rows: int) -> None:
    _compare("" if start is None else f"{start}%", "" if stop is None else f"{stop}%", rows)


def _compare(start: str, stop: str, rows: int) -> None:
    import datasets

    text = f"train[{start}:{stop}]"
    (known,) = datasets.ReadInstruction.from_spec(text).to_absolute({"train": rows})
    assert slices.parse(text).rows(rows) == (known.from_, known.to)


def test_thousands_of_configs_cost_only_the_one_that_is_asked_for() -> None:
    names = [f"data/lang{number}/train-{part:05d}.parquet" for number in range(500) for part in range(10)]
    card = {"configs": [{"config_name": f"lang{n}", "data_files": f"data/lang{n}/*"} for n in range(500)]}
    configs, default = splits.find(names, card)
    assert default == ""
    assert splits.files_of(configs, "lang7", "train", "it").chosen == [name for name in names if "lang7/" in name]


PEAK = """
import re, sys
from primus_data import command
command.run(sys.argv[1:], "")
print(re.search("VmHWM:[\\t ]*([0-9]+)", open("/proc/self/status").read())[1])
"""


def large(kind: str, size: int) -> bytes:
    """A file of the worst kind: one row group, or one stream."""
    random = Random(0)
    rows = [random.randbytes(400).hex() for _ in range(size)]
    if kind == "parquet":
        return parquet(pa.table({"text": rows, "url": rows}), group=size)
    return gzip.compress("".join(f'{{"text": "{row}", "url": ""}}\n' for row in rows).encode(), 1)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["parquet", "jsonl.gz"])
def test_memory_stays_flat(kind: str, tmp_path: Path, clean_environ: dict[str, str]) -> None:
    peaks = []
    for size in (25_000, 60_000):  # more than two blocks
        (tmp_path / f"{size}.{kind}").write_bytes(large(kind, size))
        words = ["fetch", "--input", f"{size}.{kind}", "--columns", "*", "--output-dir", f"out-{size}"]
        command = [sys.executable, "-c", PEAK, *words]
        ended = subprocess.run(
            command, env=clean_environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        assert ended.returncode == 0, ended.stderr
        peaks.append(int(ended.stdout.split()[-1]))
    assert peaks[1] < 1.2 * peaks[0], peaks
    assert peaks[1] < 200_000, "kB"
