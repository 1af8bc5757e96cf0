"""`primus data fetch`: from a Hub on this machine, from folders, files and addresses, into shards of JSON lines."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Run, checksums, wait_until
from tests.data.fetched import TOKEN, TRAIN, Fetch, dataset, of_hub, parquet, table, texts
from tests.data.hub import COMMIT, NAME, Fault, Hub, serving

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def corpus() -> dict[str, bytes]:
    return dataset()


@pytest.fixture
def hub(corpus: dict[str, bytes]) -> Iterator[Hub]:
    with serving(corpus, {"license": "odc-by"}) as found:
        yield found


@pytest.fixture
def fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Fetch:
    return Fetch(tmp_path, monkeypatch, capfd)


@pytest.mark.full
def test_a_split_of_the_hub_becomes_shards_with_checksums(fetch: Fetch, hub: Hub, tmp_path: Path) -> None:
    said = fetch("--output-dir", "out", "--shard-size", "100kB", hub=hub, env={"HF_TOKEN": TOKEN})
    assert fetch.rows() == texts(TRAIN)
    found = fetch.manifest()
    assert found["rows"] == len(TRAIN)
    assert (found["dataset"], found["revision"], found["licence"]) == (NAME, COMMIT, "odc-by")
    assert found["request"]["split"] == "train"
    assert found["primus_data"]
    assert len(found["shards"]) > 3
    for shard in found["shards"]:
        data = (tmp_path / "out" / shard["file"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (shard["bytes"], shard["sha256"])
    names = [name for name in sorted(hub.files) if "train" in name]
    assert [(one["path"], one["sha256"], one["sha256_checked"]) for one in found["sources"]] == [
        (name, hashlib.sha256(hub.files[name]).hexdigest(), True) for name in names
    ]
    assert "of disk space" in said
    assert sorted(path.name for path in (tmp_path / "out").iterdir())[0] == "manifest.json", "nothing else is left"


@pytest.mark.full
def test_the_token_goes_to_the_hub_and_to_no_other_host(fetch: Fetch, hub: Hub, tmp_path: Path) -> None:
    fetch("--output-dir", "out", hub=hub, env={"HF_TOKEN": TOKEN})
    of_hub = [headers for path, headers in hub.asked if not path.startswith("/store/")]
    of_store = [headers for path, headers in hub.asked if path.startswith("/store/")]
    assert of_hub
    assert of_store
    assert all(headers["authorization"] == f"Bearer {TOKEN}" for headers in of_hub)
    assert not any("authorization" in headers for headers in of_store)
    assert not any(TOKEN.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("split", "part"),
    [
        ("train[:1%]", TRAIN[:24]),
        ("train[10%:20%]", TRAIN[240:480]),
        ("train[:1000]", TRAIN[:1000]),
        ("train[595:605]", TRAIN[595:605]),
        ("train[-5:]", TRAIN[-5:]),
        ("train[99%:]", TRAIN[-24:]),
        ("test", [(9, row) for row in range(20)]),
    ],
)
def test_a_slice_is_the_rows_that_datasets_would_take(
    split: str, part: Sequence[tuple[int, int]], fetch: Fetch, hub: Hub
) -> None:
    fetch("--split", split, "--output-dir", "out", hub=hub)
    assert fetch.rows() == texts(part)


def test_few_rows_of_a_large_file_cost_few_bytes(fetch: Fetch) -> None:
    data = parquet(table(0, 6000))
    with serving({"train.parquet": data}) as hub:
        fetch("--split", "train[5000:]", "--num-samples", "50", "--output-dir", "out", hub=hub)
        ranges = [one.removeprefix("bytes=").split("-") for one in hub.ranges("/store/")]
    assert fetch.rows() == texts([(0, row) for row in range(5000, 5050)])
    assert sum(int(last) + 1 - int(first) for first, last in ranges) < len(data) / 2
    (source,) = fetch.manifest()["sources"]
    assert source["sha256_checked"] is False, "the whole file was not read"


def test_columns_keep_their_names_and_values(fetch: Fetch, hub: Hub) -> None:
    fetch("--columns", "*", "--split", "test", "--output-dir", "out", hub=hub)
    assert fetch.rows() == table(9, 20).to_pylist()
    fetch("--columns", "url,text", "--split", "test", "--output-dir", "two", hub=hub)
    assert [list(row) for row in fetch.rows("two")] == [["url", "text"]] * 20


def test_a_text_column_of_another_name_is_written_as_text(fetch: Fetch, tmp_path: Path) -> None:
    pq.write_table(pa.table({"content": ["a", "b"], "n": [1, 2]}), tmp_path / "x.parquet")
    fetch("--input", "x.parquet", "--text-column", "content", "--output-dir", "out")
    assert fetch.rows() == [{"text": "a"}, {"text": "b"}]


FAILURES = {
    "store breaks": Fault("/store/", cut_after=1000),
    "store is busy": Fault("/store/", status=503, headers={"ratelimit": '"api";r=0;t=0'}),
    "hub is busy": Fault("/resolve/", status=429, headers={"Retry-After": "0"}),
    "hub fails": Fault("/api/datasets", status=500),
    "list fails": Fault("/tree/", status=502),
}


@pytest.mark.parametrize("fault", FAILURES.values(), ids=FAILURES)
def test_a_failure_of_the_network_is_reported_and_retried(fault: Fault, fetch: Fetch, hub: Hub) -> None:
    hub.faults = [replace(fault)]
    said = fetch("--output-dir", "out", hub=hub)
    assert fetch.rows() == texts(TRAIN)
    assert "retry 1 in" in said
    assert not hub.faults[0].times


def test_a_broken_connection_is_continued_where_it_broke(fetch: Fetch, hub: Hub) -> None:
    hub.faults = [Fault("/store/", cut_after=5000)]
    fetch("--output-dir", "out", hub=hub)
    assert fetch.rows() == texts(TRAIN)
    begins = {int(one.removeprefix("bytes=").partition("-")[0]) for one in hub.ranges("/store/")}
    assert any(begin + 5000 in begins for begin in begins)


def test_the_proxy_of_the_environment_is_used(fetch: Fetch) -> None:
    with serving({"train.parquet": parquet(table(0, 20))}) as hub:
        words = ("--dataset", NAME, "--endpoint", "http://user:secret5678@hub.invalid", "--output-dir", "out")
        said = fetch(*words, env={"http_proxy": hub.url, "NO_PROXY": "127.0.0.1"})
    assert len(fetch.rows()) == 20
    assert fetch.manifest()["endpoint"] == "http://hub.invalid"
    assert "secret5678" not in said


def kill(words: Sequence[str], hub: Hub, folder: Path, environ: dict[str, str], until: str) -> None:
    """Start a fetch, and kill it when this file is there and the Hub has halted a download."""
    command = [str(Path(sys.executable).with_name("primus")), "data", "fetch", *words, *of_hub(words, hub)]
    environ = {**environ, "HF_HOME": str(folder), "NO_PROXY": "*"}
    process = subprocess.Popen(command, env=environ, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: hub.halted.is_set() and (folder / until).exists())
    finally:
        process.kill()
        process.wait()


@pytest.mark.full
@pytest.mark.parametrize("compress", ["", "gz", "zst"])
def test_a_killed_fetch_resumes_without_a_duplicate_and_without_a_gap(
    compress: str, fetch: Fetch, hub: Hub, tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    words = ["--shard-size", "50kB", "--workers", "1", *(["--compress", compress] if compress else [])]
    fetch("--output-dir", "whole", *words, hub=hub)
    suffix = f".jsonl.{compress}".removesuffix(".")
    third = sorted(name for name in hub.files if "train" in name)[2]
    gate = threading.Event()
    hub.faults = [Fault(f"/store/{hashlib.sha256(hub.files[third]).hexdigest()}", wait=gate)]
    kill(["--output-dir", "out", *words], hub, tmp_path, clean_environ, f"out/train-00003{suffix}")
    gate.set()
    assert not (tmp_path / "out/manifest.json").exists()
    finished = {path: path.stat() for path in (tmp_path / "out").glob(f"*{suffix}")}
    hub.commits.append("d" * 40)  # a newer one: the fetch continues with its own
    hub.asked.clear()
    assert "continuing after" in fetch("--output-dir", "out", *words, hub=hub)
    whole = {Path(path).name: found for path, found in checksums(tmp_path / "whole").items()}
    assert {Path(path).name: found for path, found in checksums(tmp_path / "out").items()} == whole
    for path, old in finished.items():
        assert (path.stat().st_mtime_ns, path.stat().st_ino) == (old.st_mtime_ns, old.st_ino), "it was written again"
    assert any(not one.startswith("bytes=0-") for one in hub.ranges("/store/")), "the half file was continued"
    assert hub.paths(COMMIT)
    assert not hub.paths("d" * 40)


@pytest.mark.full
def test_a_run_of_the_task_fetches_on_its_first_node_and_keeps_no_token(primus: Run, hub: Hub, tmp_path: Path) -> None:
    environ = {"HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "*", "HF_ENDPOINT": hub.url}
    ended = primus("direct", "--", "data", "fetch", "--dataset", NAME, "--output-dir", "out", env=environ)
    assert ended.returncode == 0, ended.stderr
    assert "2,400 rows" in ended.stdout + ended.stderr
    assert TOKEN not in ended.stdout + ended.stderr
    assert not any(TOKEN.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert any("authorization" in headers for _, headers in hub.asked)
