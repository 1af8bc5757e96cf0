"""`bench io`: files as they were written, what is in memory, and a storage that loses data."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.indexed_files import write_indexed

from primus_bench.benchmarks.io import files, loader, report, worker
from primus_bench.benchmarks.io.report import Pass
from primus_core.errors import MachineError, PrimusError

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """The worker ends orderly on SIGTERM: the handler is the process's."""
    kept = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, kept)


SMALL = ("--size", "1000000", "--block", "65536", "--files", "20", "--repeat", "2")


@pytest.mark.parametrize(("size", "block"), [(1, 1), (1000, 7), (65536, 4096), (100_000, 65536)])
def test_a_file_is_what_was_written_and_any_other_is_not(tmp_path: Path, size: int, block: int) -> None:
    path = str(tmp_path / "data")
    found = files.write(path, size, block, 3)
    assert 0 < found.returned_s <= found.durable_s
    assert files.wrong(path, size, block, 3) == ""
    assert files.wrong(path, size, block, 4)
    assert files.read(path, size, block) > 0
    text = bytearray((tmp_path / "data").read_bytes())
    text[-1] ^= 1
    (tmp_path / "data").write_bytes(text)
    assert "differs from what was written" in files.wrong(path, size, block, 3)
    (tmp_path / "data").write_bytes(text[:-1])
    assert f"has {size - 1} bytes, not {size}" in files.wrong(path, size, block, 3)


def test_blocks_in_each_others_place_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "data"
    files.write(str(path), 4 * 4096, 4096, 0)
    text = path.read_bytes()
    path.write_bytes(text[4096:8192] + text[:4096] + text[8192:])
    assert "at 0" in files.wrong(str(path), 4 * 4096, 4096, 0)


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("of a person")
    with pytest.raises(FileExistsError):
        files.write(str(tmp_path / "data"), 10, 10, 0)


def test_what_was_just_read_is_in_memory_where_the_kernel_says_so(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    files.write(path, 1 << 20, 1 << 16, 0)
    files.read(path, 1 << 20, 1 << 16)
    assert files.cached(path) in (1.0, None)


def test_operations_on_many_files_leave_nothing_behind(tmp_path: Path) -> None:
    found = files.metadata(str(tmp_path), 10)
    assert list(found) == ["create", "stat", "rename", "delete"]
    assert all(seconds > 0 for seconds in found.values())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_others_use_gives_no_figure(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    with pytest.raises(ValueError, match="after create"):
        files.metadata(str(tmp_path), 2)


def test_all_ranks_wait_for_the_slowest_and_the_bytes_of_all_count(tmp_path: Path) -> None:
    from primus_bench.benchmarks.io import options
    from primus_core.request.arguments import Parser

    parser = Parser()
    options.declare(parser)
    settings = options.settle(parser.parse_args(["--size", "1GB"]))
    passes = [Pass("write", 2, [1.0, 4.0], [1.0, 2.0]), Pass("read", 2, [2.0, 1.0], cached=[0.0, 0.5])]
    write, read = report.document(settings, ["node0", "node1"], passes, "ext4").cases
    assert write.value == pytest.approx(2 / 4)
    assert (write.rank, write.node) == (1, "node1")
    assert write.derived["gb_per_s_without_fsync"] == pytest.approx(2 / 2)
    assert read.value == pytest.approx(2 / 2)
    assert read.derived["cached_percent"] == 50


def test_a_storage_that_changes_a_byte_is_found_and_no_speed_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose(path: str) -> None:
        with open(path, "r+b") as file:
            file.seek(70_000)
            file.write(b"\0")

    with pytest.raises(PrimusError, match="wrong result on rank 0") as caught:
        worker.main(["--dir", str(tmp_path), *SMALL], lose)
    assert caught.value.exit_code == 1
    assert "at 65536" in caught.value.why
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_storage_that_refuses_is_exit_3_and_nothing_is_left(tmp_path: Path) -> None:
    def refuse(path: str) -> None:
        raise OSError(28, "No space left on device", path)

    with pytest.raises(MachineError, match="No space left"):
        worker.main(["--dir", str(tmp_path), *SMALL], refuse)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(MachineError, match="GiB are needed"):
        worker.main(["--dir", str(tmp_path), "--size", "1TiB"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
def test_each_rank_writes_and_reads_and_nothing_is_left(primus: Run, tmp_path: Path, ranks: int) -> None:
    words = (*SMALL, "--dir", "store", "--output", "r.md", "--output", "r.csv")
    done = primus("direct", "--", "bench", "io", *words, env={"GPUS_PER_NODE": str(ranks)}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "output/bench-io/io.json").read_text())
    counts = {case["name"]: case["parameters"]["ranks"] for case in found["cases"]}
    transfers = {f"{name}/{count}": count for name in ("write", "read") for count in {1, ranks}}
    others = ("create", "stat", "rename", "delete", "loader")
    assert counts == transfers | {f"{name}/{ranks}": ranks for name in others}
    for case in found["cases"]:
        assert len(case["samples"]) == 2
        asked = case["parameters"]
        amount = asked.get("bytes", 0) / 1e9 or asked.get("files") or asked["tokens"]
        assert case["value"] == pytest.approx(amount * case["parameters"]["ranks"] / case["median"])
    assert list((tmp_path / "store").iterdir()) == []
    assert found["device"]["name"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("vocabulary", [1000, 100_000], ids=["16 bits", "32 bits"])
def test_each_sample_of_megatron_data_is_loaded_once_by_one_rank(tmp_path: Path, workers: int, vocabulary: int) -> None:
    """Documents of many lengths are one stream of tokens, as frameworks read it."""
    prefix, tokens = str(tmp_path / "text"), [number * 7 % vocabulary for number in range(4001)]
    bounds = zip((0, 1, 700, 2000), (1, 700, 2000, 4001), strict=True)
    write_indexed(prefix, (tokens[first:last] for first, last in bounds), vocabulary)
    assert loader.fault(prefix) == ""
    seen: list[int] = []
    for rank in range(2):
        samples = loader.Samples.of(prefix, 40, 1 << 20, (rank, 2))
        assert len(samples) == 48, "the largest number of batches of 8 that both ranks can have"
        assert loader.wrong(samples, workers, is_own=False) == ""
        assert samples[5].tolist() == tokens[samples.order[5] * 40 : samples.order[5] * 40 + 41]
        seen += samples.order
    assert len(set(seen)) == len(seen)
    assert seen != sorted(seen)
    found = loader.load(samples, workers)
    assert (found.tokens, found.seconds > 0) == (40 * 40, True)


def test_a_token_that_the_storage_changes_is_found_and_no_speed_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose(path: str) -> None:
        with open(path, "r+b") as file:
            file.seek(70_000)
            file.write(b"\xff\xff")

    words = ["--dir", str(tmp_path), *SMALL, "--op", "loader", "--workers", "0", "--seq-len", "512"]
    with pytest.raises(PrimusError, match="loader has a wrong result on rank 0") as caught:
        worker.main(words, lose)
    assert caught.value.exit_code == 1
    assert "differs from what was written" in caught.value.why
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_data_that_cannot_be_loaded_is_exit_3(tmp_path: Path) -> None:
    prefix = tmp_path / "text"
    write_indexed(prefix, [range(5000)])
    words = ["--dir", str(tmp_path / "x"), "--op", "loader", "--data", str(prefix)]
    with pytest.raises(MachineError) as caught:
        worker.main(words)
    assert "too few tokens" in caught.value.why
    (tmp_path / "text.bin").write_bytes(b"")
    with pytest.raises(MachineError) as caught:
        worker.main(words)
    assert "it was cut off" in caught.value.why


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--op", "loader", "--size", "64KiB"), 2, "choose a larger --size"),
        (("--op", "metadata", "--data", "x"), 2, "add --op loader"),
        (("--op", "loaders"), 2, "did you mean 'loader'?"),
        (("--workers", "-1"), 2, "whole number from 0"),
        (("--op", "loader", "--data", "nowhere"), 3, "nowhere.bin"),
    ],
)
def test_a_loader_that_cannot_be_is_refused(
    primus: Run, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    done = primus("direct", "--dry-run", "--", "bench", "io", *words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_a_read_without_a_write_is_refused(primus: Run, tmp_path: Path) -> None:
    done = primus("direct", "--dry-run", "--", "bench", "io", "--op", "read", cwd=tmp_path)
    assert done.returncode == 2
    assert "add --op write" in done.stderr
