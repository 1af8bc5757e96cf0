"""The writer thread: whoever reads too slowly loses text, never stops the run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from primus_machine.files.writer import BackgroundWriter


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A real pipe."""
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:  # the test closed it
            pass


def drain(reader: int) -> bytes:
    """All that a pipe holds."""
    os.set_blocking(reader, False)
    found = b""
    try:
        while chunk := os.read(reader, 1 << 16):
            found += chunk
    except BlockingIOError:
        pass
    return found


def test_text_arrives_whole_and_in_order(pipe: tuple[int, int]) -> None:
    writer = BackgroundWriter(limit=1 << 20)
    writer.start()
    lines = [b"line %d\n" % number for number in range(2000)]
    for line in lines:
        writer.put(pipe[1], line)
    writer.close(5.0)
    assert drain(pipe[0]) == b"".join(lines)
    assert writer.dropped == 0


def test_several_descriptors_each_get_their_own(pipe: tuple[int, int]) -> None:
    second = os.pipe()
    writer = BackgroundWriter(limit=1 << 20)
    writer.start()
    for number in range(10):
        writer.put(pipe[1] if number % 2 else second[1], b"%d" % number)
    writer.close(5.0)
    assert (drain(pipe[0]), drain(second[0])) == (b"13579", b"02468")
    for descriptor in second:
        os.close(descriptor)


def test_a_stuck_reader_never_blocks_and_what_it_misses_is_counted(pipe: tuple[int, int]) -> None:
    limit = 100_000
    writer = BackgroundWriter(limit=limit)
    writer.start()
    for _ in range(1000):
        writer.put(pipe[1], b"x" * 1000)
    assert writer.dropped >= 1_000_000 - limit - (1 << 17), "the queue and the pipe hold the rest"
    writer.close(0.1)
    assert writer.is_alive()
    in_pipe = len(drain(pipe[0]))
    assert in_pipe
    assert writer.dropped <= 1_000_000
    assert writer.dropped + in_pipe >= 1_000_000, "whatever nobody read is counted"
    while writer.is_alive():
        drain(pipe[0])
        writer.join(0.01)


def test_a_reader_that_comes_back_gets_what_the_queue_kept(pipe: tuple[int, int]) -> None:
    writer = BackgroundWriter(limit=1 << 20)
    writer.start()
    data = b"".join(b"%08d" % number for number in range(25_000))  # more than a pipe holds
    for start in range(0, len(data), 8000):
        writer.put(pipe[1], data[start : start + 8000])
    found = b""
    while len(found) < len(data):
        found += os.read(pipe[0], 1 << 16)
    writer.close(5.0)
    assert found == data
    assert writer.dropped == 0


def test_only_what_is_not_yet_written_counts_towards_the_limit(pipe: tuple[int, int]) -> None:
    writer = BackgroundWriter(limit=200_000)
    writer.start()
    for _ in range(20):
        writer.put(pipe[1], b"x" * 50_000)
        assert writer.dropped == 0
        found = 0
        while found < 50_000:
            found += len(os.read(pipe[0], 50_000 - found))
    assert writer.close(60)


def test_a_terminal_that_another_program_made_non_blocking_still_gets_all(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    writer = BackgroundWriter(limit=1 << 20)
    writer.start()
    writer.put(pipe[1], b"x" * 200_000)
    found = b""
    while len(found) < 200_000:
        found += os.read(pipe[0], 1 << 16)
    writer.close(5.0)
    assert writer.dropped == 0


def test_a_reader_that_is_gone_is_given_up_and_the_others_go_on(pipe: tuple[int, int]) -> None:
    gone = os.pipe()
    os.close(gone[0])
    writer = BackgroundWriter(limit=1 << 20)
    writer.start()
    writer.put(gone[1], b"nobody")
    writer.put(pipe[1], b"a")
    writer.put(gone[1], b"again")
    writer.put(pipe[1], b"b")
    writer.close(5.0)
    assert drain(pipe[0]) == b"ab"
    assert writer.dropped == len(b"nobodyagain")
    os.close(gone[1])


def test_closing_an_empty_outlet_ends_its_thread() -> None:
    before = threading.active_count()
    writer = BackgroundWriter(limit=1)
    writer.start()
    writer.close(5.0)
    assert threading.active_count() == before
