"""What `primus data fetch` refuses, and what it says: the Hub's answers, folders of other fetches, rows that are no text."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from tests.conftest import Run, free_port, wait_until
from tests.data.fetched import TOKEN, TRAIN, Fetch, dataset, parquet, table, texts
from tests.data.hub import NAME, Fault, Hub, serving

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def corpus() -> dict[str, bytes]:
    return dataset()


@pytest.fixture
def hub(corpus: dict[str, bytes]) -> Iterator[Hub]:
    with serving(corpus) as found:
        yield found


@pytest.fixture
def fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Fetch:
    return Fetch(tmp_path, monkeypatch, capfd)


GATED = {"X-Error-Code": "GatedRepo"}


def test_a_gated_dataset_says_where_to_accept_its_terms(fetch: Fetch, hub: Hub) -> None:
    hub.faults = [Fault("/resolve/", 401, GATED), Fault("/resolve/", 403, GATED)]
    said = fetch("--output-dir", "out", hub=hub, code=3)
    assert f"accept the terms at {hub.url}/datasets/{NAME} with your account, then set HF_TOKEN" in said
    said = fetch("--output-dir", "out", hub=hub, code=3, env={"HF_TOKEN": TOKEN})
    assert "with the account of this token" in said
    assert not (fetch.folder / "out").exists()


def test_a_token_that_the_hub_does_not_take_is_told(fetch: Fetch, hub: Hub) -> None:
    hub.faults = [Fault("/api/", 401, {"X-Error-Message": "Invalid credentials in Authorization header"})]
    said = fetch("--output-dir", "out", hub=hub, code=3, env={"HF_TOKEN": TOKEN})
    assert "the Hub does not take the token" in said
    assert "Invalid credentials" in said
    assert "has characters that no token has" in fetch(
        "--output-dir", "out", hub=hub, code=3, env={"HF_TOKEN": "hf_ä\x01"}
    )


@pytest.mark.full
def test_a_dataset_a_revision_a_config_and_a_split_that_are_missing_are_told_with_what_is_there(
    fetch: Fetch, hub: Hub
) -> None:
    said = fetch("--dataset", "team/corpse", "--output-dir", "out", hub=hub, code=2)
    assert "dataset 'team/corpse' not found" in said
    assert "write --dataset ./team/corpse" in said
    assert "has no revision 'v9'" in fetch("--revision", "v9", "--output-dir", "out", hub=hub, code=2)
    said = fetch("--split", "trian", "--output-dir", "out", hub=hub, code=2)
    assert "its splits: train, test" in said
    assert "did you mean 'train'?" in said
    hub.card = {
        "configs": [
            {"config_name": "sample-10BT", "data_files": [{"split": "train", "path": "data/train-*"}]},
            {"config_name": "all", "data_files": "data/*"},
        ]
    }
    said = fetch("--name", "sample-10B", "--output-dir", "out", hub=hub, code=2)
    assert "did you mean 'sample-10BT'?" in said
    assert "its configs: sample-10BT, all" in said
    assert "several configs, and no default" in fetch("--output-dir", "out", hub=hub, code=2)
    fetch("--name", "sample-10BT", "--num-samples", "3", "--output-dir", "out", hub=hub)
    assert fetch.manifest()["config"] == "sample-10BT"


def test_code_of_a_dataset_is_not_run_and_the_converted_files_are_named(fetch: Fetch) -> None:
    rows = parquet(table(0, 5))
    with serving({"corpus.py": b"raise SystemExit(9)", "dataset_infos.json": b"{}"}) as hub:
        said = fetch("--output-dir", "out", hub=hub, code=2)
        assert "its script corpus.py would make the data, and no code of a dataset is run here" in said
        assert "--revision refs/convert/parquet" in said
    with serving({"rows.csv": b"text\na\n"}) as hub:
        assert "it has files of the kinds .csv" in fetch("--output-dir", "out", hub=hub, code=2)
    with serving({"default/train/0000.parquet": rows, "default/test/0000.parquet": rows}) as hub:
        fetch("--revision", "refs/convert/parquet", "--output-dir", "out", hub=hub)
        assert len(fetch.rows()) == 5


@pytest.mark.full
def test_a_hub_that_does_not_answer_is_given_up_with_a_message(fetch: Fetch, hub: Hub) -> None:
    hub.faults = [Fault("/store/", 503, times=99), Fault("/api/", 429, {"Retry-After": "7200"}, times=0)]
    said = fetch("--retry-for", "1.5s", "--output-dir", "out", hub=hub, code=1)
    assert "answered 503; tried" in said
    assert "retry 1 in" in said
    assert "run the same command again" in said
    hub.faults[1].times = 1
    assert "429; tried 1 time in 0 s, next in 120 min" in fetch("--output-dir", "out", hub=hub, code=1)
    words = ("--dataset", NAME, "--endpoint", f"http://127.0.0.1:{free_port()}")
    said = fetch(*words, "--retry-for", "1s", "--output-dir", "out", code=3)
    assert "check the address and the network" in said


@pytest.mark.full
def test_offline_nothing_is_asked(primus: Run, hub: Hub, tmp_path: Path) -> None:
    environ = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    ended = primus("data", "fetch", "--dataset", NAME, "--output-dir", "out", env=environ)
    assert ended.returncode == 3, ended.stderr
    assert "HF_HUB_OFFLINE" in ended.stderr
    assert not hub.asked


@pytest.mark.full
def test_a_wrong_checksum_is_downloaded_once_more_and_then_refused(fetch: Fetch, hub: Hub) -> None:
    wrong = Fault("/store/", replaced=bytes(1 << 20), only_whole=True)
    hub.faults = [wrong]
    said = fetch("--output-dir", "out", hub=hub)
    assert "is wrong: downloading it again" in said
    assert fetch.rows() == texts(TRAIN)
    wrong.times = 99
    said = fetch("--output-dir", "bad", hub=hub, code=1)
    assert "the checksum of data/train-00000-of-00004.parquet is wrong" in said
    assert hashlib.sha256(hub.files["data/train-00000-of-00004.parquet"]).hexdigest() in said
    assert not list((fetch.folder / "bad").glob("*.json*"))
    wrong.times = 0
    fetch("--output-dir", "bad", hub=hub)
    assert fetch.rows("bad") == texts(TRAIN)


def test_another_fetch_in_the_same_folder_is_refused_with_what_differs(fetch: Fetch, hub: Hub) -> None:
    fetch("--output-dir", "out", "--num-samples", "10", hub=hub)
    before = {path: path.read_bytes() for path in (fetch.folder / "out").iterdir()}
    said = fetch("--output-dir", "out", "--num-samples", "20", "--columns", "url", hub=hub, code=2)
    assert "num_samples: 10 there, 20 now; columns: ['text'] there, ['url'] now" in said
    assert "is complete already: 10 rows" in fetch("--output-dir", "out", "--num-samples", "10", hub=hub)
    assert {path: path.read_bytes() for path in (fetch.folder / "out").iterdir()} == before
    (fetch.folder / "other").mkdir()
    (fetch.folder / "other/train-00007.jsonl").write_text("{}\n")
    said = fetch("--output-dir", "other", hub=hub, code=2)
    assert "already has shards, as 'train-00007.jsonl'" in said
    assert [path.name for path in (fetch.folder / "other").iterdir()] == ["train-00007.jsonl"]
    (fetch.folder / "out/train-00000.jsonl").unlink()
    said = fetch("--output-dir", "out", "--num-samples", "10", hub=hub, code=3)
    assert "is missing" in said
    (fetch.folder / "out/manifest.json").write_text('{"schema": 1}')
    said = fetch("--output-dir", "out", hub=hub, code=3)
    assert "manifest.json' is damaged" in said
    assert "it lacks request, shards" in said


@pytest.mark.full
def test_two_fetches_into_one_folder_do_not_mix(fetch: Fetch, hub: Hub, clean_environ: dict[str, str]) -> None:
    hub.faults = [Fault("/store/", wait=threading.Event(), only_whole=True)]
    command = [str(Path(sys.executable).with_name("primus")), "data", "fetch", "--dataset", NAME, "--endpoint", hub.url]
    environ = {**clean_environ, "HF_HOME": str(fetch.folder), "NO_PROXY": "*"}
    log = fetch.folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen([*command, "--output-dir", "out"], env=environ, cwd=fetch.folder, stderr=file)
    try:
        wait_until(hub.halted.is_set)
        wait_until(lambda: "fetch: downloading data/train-0" in log.read_text())  # no wait without a voice
        assert "another fetch runs in" in fetch("--output-dir", "out", hub=hub, code=2)
        assert hub.faults[0].wait
        hub.faults[0].wait.set()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert fetch.rows() == texts(TRAIN)


def test_a_source_that_changes_between_two_starts_is_refused(fetch: Fetch) -> None:
    one, two = fetch.folder / "one.jsonl", fetch.folder / "two.jsonl"
    one.write_text('{"text": "a"}\n' * 1000)
    two.write_text('{"text": "b"}\n' * 1000 + "no json\n")
    words = ("--input", "one.jsonl", "two.jsonl", "--shard-size", "5kB", "--output-dir", "out")
    assert "two.jsonl:1001: the line is not valid JSON" in fetch(*words, code=1)
    finished = sorted(path.name for path in (fetch.folder / "out").glob("*.jsonl"))
    assert finished
    one.write_text('{"text": "c"}\n' * 1000)
    assert f"the source has changed since this fetch began: {one}" in fetch(*words, code=2)
    assert sorted(path.name for path in (fetch.folder / "out").glob("*.jsonl")) == finished


def test_too_small_a_disk_is_refused_before_anything_is_written(fetch: Fetch, hub: Hub) -> None:
    for name in hub.files:
        hub.sizes[name] = 10**17 if "train-00003" in name else len(hub.files[name])
    said = fetch("--output-dir", "out", hub=hub, code=3)
    assert "not enough disk space" in said
    assert "TB" in said
    assert "estimate" in said
    assert not (fetch.folder / "out").exists()


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a file system")
def test_a_disk_that_fills_up_is_told_and_the_fetch_continues_with_more_room(fetch: Fetch) -> None:
    (fetch.folder / "x.jsonl.gz").write_bytes(gzip.compress(b'{"text": "aaaaaaaaaaaaaaaaaaaaaaaaaaaa"}\n' * 40_000))
    disk = fetch.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        words = ("--input", "x.jsonl.gz", "--output-dir", "disk", "--shard-size", "300kB")
        said = fetch(*words, code=3)
        assert "is full" in said
        assert "run the same command again" in said
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        fetch(*words)
        assert len(fetch.rows("disk")) == 40_000
    finally:
        subprocess.run(["umount", str(disk)], check=True)


BAD_LINES = {
    b"no json": "the line is not valid JSON",
    b'{"text": "cut': "the line is not valid JSON",
    b'{"text": "\xff"}': "byte 10 of the line is not valid UTF-8",
    b'{"txt": "a"}': "it has no key 'text'",
    b'{"text": null}': "'text' is null, and not text",
    b'{"text": ["a"]}': "'text' is a list, and not text",
    b'{"text": {"a": 1}}': "'text' is an object, and not text",
    b'{"text": 5}': "'text' is a number, and not text",
    b'"text"': "the line is text, and not an object",
    b'[{"text": "a"}]': "the line is a list, and not an object; a file with one array of all rows is not supported",
    b'{"text": "\\ud800"}': "the line is not valid JSON",
    b'{"\x1b[31mtext": 1}': "the line is not valid JSON",
}


def test_a_fetch_that_has_fetched_nothing_may_be_another_one(fetch: Fetch) -> None:
    (fetch.folder / "bad.jsonl").write_text('{"text": "a"}\n{"txt": "b"}\n')
    assert "--on-error skip" in fetch("--input", "bad.jsonl", "--output-dir", "out", code=1)
    fetch("--input", "bad.jsonl", "--output-dir", "out", "--on-error", "skip")
    assert fetch.manifest("out")["rows"] == 1


@pytest.mark.full
def test_a_bad_line_is_named_with_its_file_and_number_or_skipped_and_counted(fetch: Fetch) -> None:
    for number, (line, reason) in enumerate(BAD_LINES.items()):
        (fetch.folder / "bad.jsonl").write_bytes(b'{"text": "a"}\n\n' + line + b"\n")
        said = fetch("--input", "bad.jsonl", "--output-dir", f"out{number}", code=1)
        assert f"bad.jsonl:3: {reason}" in said, line
        assert "\x1b" not in said
        assert "--on-error skip" in said
    lines = b"".join(b'{"text": "%d"}\n%s\n' % pair for pair in enumerate(BAD_LINES))
    (fetch.folder / "all.jsonl").write_bytes(lines)
    said = fetch("--input", "all.jsonl", "--output-dir", "out", "--on-error", "skip")
    assert fetch.rows() == [{"text": str(number)} for number in range(len(BAD_LINES))]
    skipped = fetch.manifest()["skipped"]
    assert skipped["rows"] == len(BAD_LINES)
    assert skipped["first"][2].endswith("all.jsonl:6: byte 10 of the line is not valid UTF-8")
    assert f"{len(BAD_LINES)} rows skipped" in said
    (fetch.folder / "last.jsonl").write_text(json.dumps({"text": "a" * 5000}) + "\nbad\n")
    fetch("--input", "last.jsonl", "--output-dir", "last", "--on-error", "skip", "--shard-size", "5kB")
    assert fetch.manifest("last")["skipped"]["rows"] == 1, "also one that follows the last shard"


def test_a_bad_row_of_a_parquet_file_is_named(fetch: Fetch) -> None:
    offsets = pa.py_buffer(b"".join(number.to_bytes(4, "little") for number in (0, 1, 2, 3)))
    broken = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"a\xffc"))
    pq.write_table(pa.table({"text": broken}), fetch.folder / "utf8.parquet")
    pq.write_table(pa.table({"text": ["a", None]}), fetch.folder / "null.parquet")
    pq.write_table(pa.table({"text": [["a"], ["b"]]}), fetch.folder / "list.parquet")
    for name, reason in {
        "utf8": "row 2: 'text' is not valid UTF-8: byte 0",
        "null": "row 2: 'text' is null, and not text",
        "list": "row 1: 'text' is a list, and not text",
    }.items():
        assert f"{name}.parquet, {reason}" in fetch("--input", f"{name}.parquet", "--output-dir", name, code=1)
    words = ("--input", "utf8.parquet", "null.parquet", "--on-error", "skip")
    fetch(*words, "--output-dir", "out")
    assert [row["text"] for row in fetch.rows()] == ["a", "c", "a"]
    assert fetch.manifest()["skipped"]["rows"] == 2


def test_columns_that_are_missing_or_hold_bytes_are_refused_before_the_start(fetch: Fetch) -> None:
    pq.write_table(pa.table({"content": ["a"], "image": [b"\x00"]}), fetch.folder / "x.parquet")
    said = fetch("--input", "x.parquet", "--output-dir", "out", code=2)
    assert "has no column 'text'" in said
    assert "its columns: content, image" in said
    said = fetch("--input", "x.parquet", "--columns", "*", "--output-dir", "out", code=2)
    assert "column 'image'" in said
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(twice, fetch.folder / "twice.parquet")
    assert "twice.parquet has 2 columns 'text'" in fetch("--input", "twice.parquet", "--output-dir", "out", code=2)
    assert not (fetch.folder / "out").exists()


def test_a_damaged_file_is_named(fetch: Fetch) -> None:
    lines = b'{"text": "a"}\n' * 5000
    damaged = {
        "a.parquet": parquet(table(0))[:-100],
        "b.jsonl.gz": gzip.compress(lines)[:-20],
        "c.jsonl.zst": zstandard.compress(lines)[:-3],
        "d.jsonl.gz": b"no gzip at all",
        "e.parquet": b"",
    }
    for name, data in damaged.items():
        (fetch.folder / name).write_bytes(data)
        said = fetch("--input", name, "--output-dir", f"out-{name}", code=1)
        assert name in said
        assert "get it again" in said, said


def test_all_mistakes_of_a_command_are_told_at_once(fetch: Fetch) -> None:
    words = ("--dataset", "a/b", "--input", "x", "--split", "a+b", "--columns", "a,,b", "--num-samples", "0")
    said = fetch(*words, "--workers", "99", "--output-dir", "out", code=2)
    for one in (
        "either --dataset or --input",
        "'a+b' is not a split",
        "empty or repeated",
        "--num-samples: 0",
        "--workers",
    ):
        assert one in said
    assert "mixes rows and percent" in fetch("--dataset", "a/b", "--split", "t[1:5%]", "--output-dir", "o", code=2)
    assert "not a name of the Hugging Face Hub" in fetch("--dataset", "a/../b", "--output-dir", "out", code=2)
    assert "is for datasets of the" in fetch("--input", "x.txt", "--revision", "v1", "--output-dir", "out", code=2)
    for url in ("http://", "http://h:99999", "http://h\x1b/", "ftp://h/x"):
        assert "is not an address" in fetch("--dataset", "a/b", "--endpoint", url, "--output-dir", "out", code=2)
    (fetch.folder / "in").mkdir()
    assert "which is read" in fetch("--dataset", "./in", "--output-dir", "in/out", code=2)
    assert "file '" in fetch("--input", "absent.jsonl", "--output-dir", "out", code=3)


def test_names_of_a_dataset_cannot_write_to_the_terminal_or_outside_of_the_folder(fetch: Fetch) -> None:
    rows = b'{"text": "a"}\nbad\n'
    names = ["x\x1b[31m/train.jsonl", "../outside/train.jsonl", "/etc/x/train.jsonl"]
    with serving(dict.fromkeys(names, rows), {"license": "\x1b[31m"}) as hub:
        said = fetch("--output-dir", "out", "--on-error", "skip", hub=hub)
    assert "\x1b" not in said
    assert "train.jsonl:2" in said
    assert b"\x1b" not in (fetch.folder / "out/manifest.json").read_bytes()
    assert sorted(path.name for path in (fetch.folder / "out").iterdir()) == ["manifest.json", "train-00000.jsonl"]
    assert not (fetch.folder / "outside").exists()
    with serving({"train.jsonl": rows}, {"configs": [{"config_name": "a", "data_files": "a**"}]}) as hub:
        assert "names its files by 'a**', which is not a pattern" in fetch("--output-dir", "b", hub=hub, code=2)
