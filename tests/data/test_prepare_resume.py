"""A preparation that was killed is continued, and several nodes share one: the result is always the same."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.data.conftest import as_lines

PARTS = 12


@pytest.fixture(scope="module")
def corpus(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 8 MB."""
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    path.write_bytes(as_lines(texts) * 10)
    return path


@pytest.fixture(scope="module")
def whole(corpus: Path, tokenizer_file: str, clean: dict[str, str]) -> dict[str, str]:
    """What one node makes of it, undisturbed."""
    node = Node(corpus, tokenizer_file, corpus.parent / "whole", clean)
    assert node.ended() == 0
    return sums(corpus.parent / "whole")


@pytest.fixture(scope="module")
def clean() -> dict[str, str]:
    """The environment of this process without what a run has."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PRIMUS_")}


def sums(folder: Path) -> dict[str, str]:
    """SHA-256 of .bin and .idx."""
    names = ("out_text_document.bin", "out_text_document.idx")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


class Node:
    """A node that prepares the corpus."""

    def __init__(
        self, corpus: Path, tokenizer_file: str, folder: Path, environ: dict[str, str], rank: int = 0, nodes: int = 1
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        where = ("--node-rank", str(rank), "--nodes", str(nodes))
        words = ("prepare", "--input", str(corpus), "--output-prefix", "out", "--tokenizer-model", tokenizer_file)
        command = [sys.executable, "-m", "primus_data.worker", *where, *words, "--partitions", str(PARTS)]
        self.process = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True)

    def ended(self) -> int:
        """Its exit code."""
        self.out, _ = self.process.communicate(timeout=120)
        return self.process.returncode

    def wait_for(self, parts: int) -> None:
        """Until so many are finished, or it has ended."""
        wait_until(lambda: len(finished(self.folder)) >= parts or self.process.poll() is not None)

    def kill(self) -> None:
        """As the kernel does it when memory is full."""
        self.process.send_signal(signal.SIGKILL)
        self.ended()


def finished(folder: Path) -> dict[str, int]:
    """The parts that are finished, and when they were."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob(".out.preparing/*/0*") if path.name.isdecimal()}


def stage(folder: Path, name: str) -> Iterator[Path]:
    return folder.glob(f".out.preparing/*/{name}.*.partial")


@pytest.mark.full
def test_what_is_killed_at_any_moment_is_continued_and_finished_parts_stay(
    corpus: Path, tokenizer_file: str, whole: dict[str, str], tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    draw, kept = random.Random(7), dict[str, int]()
    moments = sorted(draw.sample(range(PARTS), 7))
    for count in moments:
        node = Node(corpus, tokenizer_file, tmp_path, clean_environ)
        node.wait_for(count)
        time.sleep(draw.random() * 0.02)  # anywhere in the next part
        node.kill()
        assert finished(tmp_path).items() >= kept.items()
        kept = finished(tmp_path)
        assert not (tmp_path / "out_text_document.idx").exists()
    node = Node(corpus, tokenizer_file, tmp_path, clean_environ)
    wait_until(lambda: any(stage(tmp_path, "joined")) or node.process.poll() is not None)
    assert finished(tmp_path).items() >= kept.items()
    node.kill()  # while it joins, or just behind
    assert Node(corpus, tokenizer_file, tmp_path, clean_environ).ended() == 0
    assert sums(tmp_path) == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"out_text_document.{end}" for end in ("bin", "idx", "json")
    ]


@pytest.mark.full
def test_nodes_share_a_preparation_and_finish_without_one_that_is_killed(
    corpus: Path, tokenizer_file: str, whole: dict[str, str], tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    nodes = [Node(corpus, tokenizer_file, tmp_path, clean_environ, rank, 4) for rank in range(4)]
    folder = tmp_path / ".out.preparing"
    wait_until(
        lambda: len(list(folder.glob("*/claims/*.claim"))) > 1 or any(one.process.poll() is not None for one in nodes)
    )
    nodes[2].kill()
    assert [node.ended() for node in nodes if node is not nodes[2]] == [0, 0, 0]
    assert sums(tmp_path) == whole
    assert sum("documents, " in node.out for node in nodes) == 1
    late = Node(corpus, tokenizer_file, tmp_path, clean_environ, 3, 4)
    assert late.ended() == 0
    assert sums(tmp_path) == whole
    assert not (tmp_path / ".out.preparing").exists()


@pytest.mark.full
def test_a_node_that_fails_stops_the_others(
    texts: list[str], tokenizer_file: str, tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    corpus = tmp_path / "in.jsonl"
    corpus.write_bytes(as_lines(texts) * 3 + b"wrong\n")
    nodes = [Node(corpus, tokenizer_file, tmp_path, clean_environ, rank, 2) for rank in range(2)]
    assert [node.ended() for node in nodes] == [1, 1]
    assert not (tmp_path / "out_text_document.idx").exists()


@pytest.mark.full
def test_what_is_left_of_a_folder_whose_removal_was_killed_is_removed(
    corpus: Path, whole: dict[str, str], tokenizer_file: str, clean_environ: dict[str, str]
) -> None:
    folder = corpus.parent / "whole"
    left = folder / ".out.preparing.removed.host.1.abc.partial"
    (left / "000000").mkdir(parents=True)
    assert Node(corpus, tokenizer_file, folder, clean_environ).ended() == 0
    assert sums(folder) == whole
    assert not left.exists()
