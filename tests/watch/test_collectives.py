"""The last collective of a rank is that of its flight recorder's dump, where one is to be believed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from primus_machine.host import HostRoot
from primus_watch.hang import answer, collectives
from primus_watch.hang.judge import judge

CALL = {
    "process_group": ("0", "default_pg"),
    "collective_seq_id": 17,
    "profiling_name": "nccl:all_reduce",
    "input_sizes": [[4]],
    "state": "scheduled",
    "frames": [{"name": "main", "filename": "train.py", "line": 3}],
}
DUMP = {"version": "2.9", "pg_config": {}, "entries": [{**CALL, "collective_seq_id": 16, "state": "completed"}, CALL]}
WORDS = "nccl:all_reduce [[4]], number 17 of group 0: scheduled, at train.py:3 in main"


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[int]:
    """A process whose dumps are beside it."""
    environ = {**os.environ, "TORCH_FR_DUMP_TEMP_FILE": "trace_"}
    words = [sys.executable, "-c", "print(flush=True); input()"]
    process = subprocess.Popen(words, cwd=tmp_path, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate()


def test_the_last_collective_of_a_rank_is_told(rank: int, tmp_path: Path) -> None:
    (tmp_path / "trace_3").write_bytes(pickle.dumps(DUMP))
    found = collectives.last(HostRoot(), {3: rank, 4: rank})
    assert found == {3: WORDS}
    told = answer.render(replace(judge([]), collectives={**found, 5: WORDS}), "x")
    assert f"last     ranks 3, 5: {WORDS}" in told


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("harmed",)


@pytest.mark.parametrize("data", [b"", b"\x80", b"{", pickle.dumps({"version": "1", "entries": [Evil()]})])
def test_a_dump_that_is_none_says_nothing(data: bytes, rank: int, tmp_path: Path) -> None:
    (tmp_path / "trace_3").write_bytes(data)
    assert collectives.last(HostRoot(), {3: rank}) == {}
    assert not Path("harmed").exists()


def test_a_dump_of_an_earlier_start_is_not_this_one(rank: int, tmp_path: Path) -> None:
    (tmp_path / "trace_3").write_bytes(pickle.dumps(DUMP))
    os.utime(tmp_path / "trace_3", (1e9, 1e9))
    assert collectives.last(HostRoot(), {3: rank}) == {}


def test_a_rank_that_is_gone_says_nothing() -> None:
    assert collectives.last(HostRoot(), {0: 2**22 + 1}) == {}
