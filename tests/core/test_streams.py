"""What ranks print: cut into lines, secrets masked across every boundary, sorted for the console."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.machine.secret_kinds import KINDS, PRIVATE_KEY, found_in

from primus_machine.output.streams import RankPipes, for_console, shown
from primus_machine.pipes import Channel
from primus_machine.secrets.masks import Mask
from primus_machine.variables import STREAMS

SECRET = "hunter2-and-more"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A real pipe, its reading end as the supervisor has it."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    for descriptor in (reader, writer):
        os.close(descriptor)


def heard(pipe: tuple[int, int], chunks: Sequence[bytes], *, idle: bool = False) -> list[tuple[bytes, bool]]:
    """What the sink gets when these chunks are written one after the other; `idle`: with a pause behind each."""
    got: list[tuple[bytes, bool]] = []
    channel = Channel(pipe[0], Mask((SECRET,)), lambda data, whole: got.append((data, whole)))
    for chunk in chunks:
        os.write(pipe[1], chunk)
        while channel.read():
            pass
        if idle:
            channel.flush()
    channel.finish()
    return got


def joined(got: list[tuple[bytes, bool]]) -> bytes:
    """All that was heard."""
    return b"".join(data for data, _ in got)


def test_whole_lines_come_as_they_are_and_the_rest_at_the_end(pipe: tuple[int, int]) -> None:
    assert heard(pipe, [b"a\nb", b"c\nd\n", b"e"]) == [(b"a\n", True), (b"bc\nd\n", True), (b"e", True)]


def test_an_unfinished_line_is_handed_on_in_a_pause(pipe: tuple[int, int]) -> None:
    assert heard(pipe, [b"50%", b"\r99%", b"\n"], idle=True) == [(b"50%", False), (b"\r99%", False), (b"\n", True)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(st.sampled_from([SECRET, SECRET[:7], "\n", "x", "a_b ", "é"]), max_size=8).map("".join),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    idle=st.booleans(),
)
def test_a_secret_is_masked_wherever_the_chunks_are_cut(
    pipe: tuple[int, int], text: str, cuts: list[int], idle: bool
) -> None:
    data = text.encode()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[a:b] for a, b in pairwise(ends)]
    assert joined(heard(pipe, chunks, idle=idle)) == data.replace(SECRET.encode(), b"<secret>")


@pytest.mark.parametrize("token", ["sk-ant-" + "x" * 30, "AKIA" + "A" * 16, "glpat-" + "x" * 20, "hf_" + "a" * 30])
def test_a_token_is_masked_by_its_shape_alone(pipe: tuple[int, int], token: str) -> None:
    assert joined(heard(pipe, [f"key {token} end\n".encode()])) == b"key <secret> end\n"


def test_a_line_without_an_end_does_not_wait_for_one_and_is_masked_too(pipe: tuple[int, int]) -> None:
    chunks = [b"x" * 40_000, b"y" * 30_000 + SECRET[:5].encode(), SECRET[5:].encode() + b"z"]
    got = heard(pipe, chunks)
    assert got[0] == (b"x" * 40_000 + b"y" * 30_000, False)
    assert joined(got) == b"x" * 40_000 + b"y" * 30_000 + b"<secret>z"


def test_a_line_of_just_the_longest_size_still_waits_for_its_end(pipe: tuple[int, int]) -> None:
    got = heard(pipe, [b"%" * 32_768, b"%" * 32_768, b"%\n"])
    assert got == [(b"%" * 65_537 + b"\n", True)]


def test_a_scripts_line_of_just_the_longest_size_is_heard_whole(pipe: tuple[int, int]) -> None:
    said: list[bytes] = []
    channel = Channel(pipe[0], Mask(()), lambda data, whole: None, said.append)
    for chunk in (b"%" * 32_768, b"%" * 32_768, b"%\n"):
        os.write(pipe[1], chunk)
        while channel.read():
            pass
    assert said == [b"%" * 65_537]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_secret_is_masked_wherever_a_pause_cuts_it(pipe: tuple[int, int], kind: str) -> None:
    text, secret = KINDS[kind]
    whole = f"a line: {text} \n".encode()
    for at in range(10, len(whole), max(len(whole) // 12, 1)):
        said = joined(heard(pipe, [whole[:at], whole[at:]], idle=True)).decode()
        assert secret not in said, at
        assert "<secret>" in said, at


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("size", [1, 7, 65, 10_000])
def test_a_private_key_is_masked_line_by_line_however_it_comes(pipe: tuple[int, int], size: int, idle: bool) -> None:
    text = f"before\n{PRIVATE_KEY}\nbehind\n".encode()
    whole = text.index(b"KEY-----\n") + 9  # the first line in one piece, which tells
    chunks = [text[:whole], *(text[at : at + size] for at in range(whole, len(text), size))]
    said = joined(heard(pipe, chunks, idle=idle)).decode()
    assert not found_in(said)
    begin, end = PRIVATE_KEY.splitlines()[0], PRIVATE_KEY.splitlines()[-1]
    assert said == "\n".join(["before", begin, *["<secret>"] * 4, end, "behind", ""])


def test_what_only_begins_like_a_private_key_hides_no_more_than_some_lines(pipe: tuple[int, int]) -> None:
    begin = PRIVATE_KEY.splitlines()[0].encode()
    said = joined(heard(pipe, [begin + b"\n", *[b"line\n"] * 500]))
    assert said.count(b"line\n") == 100


def test_bytes_that_are_no_text_pass_unchanged(pipe: tuple[int, int]) -> None:
    data = bytes(range(256)) + b"\xff://_\n"
    assert joined(heard(pipe, [data])) == data


@pytest.mark.parametrize(
    ("rank", "line", "heard"),
    [
        (0, b"hello", True),
        (1, b"hello", False),
        (1, b"2026-01-01 WARNING disk nearly full", True),
        (3, b"[E123 x.cpp:9] ERROR: out of memory", True),
        (1, b"ValueError: bad shape", True),
        (1, b"  torch.cuda.OutOfMemoryError: tried", True),
        (1, b"torch.distributed.DistBackendError: NCCL", True),
        (1, b"no error here", False),
        (1, b"WARNINGS are many", False),
        (0, b"iteration 3/10 | loss: 1.0", False),
        (2, b"iteration 3/10 | loss: 1.0", True),
        (1, b"iteration 3/10 | loss: 1.0", False),
        (0, b"iteration 3 of 10", True),
    ],
)
def test_the_console_shows_rank_0_trouble_of_any_and_metrics_of_one(rank: int, line: bytes, heard: bool) -> None:
    assert shown(rank, line, metrics_rank=2) is heard


PIECES = ("ERROR", "WARN", "ING", "my.Error: x", "x Exception", " ", "iteration 3/10 |", "\r", "\n", "\r\n", "é")


@settings(max_examples=300)
@given(
    lines=st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    rank=st.sampled_from([0, 2, 3]),
    metrics_rank=st.sampled_from([0, 2]),
)
@pytest.mark.full
def test_the_console_shows_of_a_block_what_it_shows_of_each_line(lines: str, rank: int, metrics_rank: int) -> None:
    heard = [line for line in lines.encode().splitlines(keepends=True) if shown(rank, line, metrics_rank)]
    prefix = b"[rank%d] " % rank if rank else b""
    assert for_console(rank, lines.encode(), metrics_rank) == b"".join(prefix + line for line in heard)


def test_each_rank_has_two_named_pipes_and_nothing_is_left_of_them() -> None:
    pipes = RankPipes(range(4, 6))
    try:
        found = {(rank, suffix): descriptor for rank, suffix, descriptor in pipes}
        assert sorted(found) == [(4, "err"), (4, "out"), (5, "err"), (5, "out")]
        got: list[bytes] = []
        channel = Channel(found[5, "err"], Mask(()), lambda data, whole: got.append(data))
        for text in ("one\n", "two\n"):  # writers may come and go
            with Path(pipes.folder, "5.err").open("w") as writer:
                writer.write(text)
            assert channel.read()
        assert not channel.read()
        assert got == [b"one\n", b"two\n"]
        assert Path(pipes.folder).stat().st_mode & 0o77 == 0, "private"
    finally:
        pipes.close()
    assert not Path(pipes.folder).exists()


def test_of_the_ranks_that_say_that_they_end_those_have_failed_that_leave_a_record() -> None:
    pipes = RankPipes(range(3))
    try:
        for name in ("0.left", "1.left", "rank_1.json"):
            Path(pipes.folder, name).touch()
        assert pipes.ends() == {0: False, 1: True}
    finally:
        pipes.close()


def test_what_a_traced_script_says_is_hidden_only_where_its_name_is_a_secrets() -> None:
    mask = Mask(())
    assert mask(b"+ echo env.HF_TOKEN=abc env.LR=3") == b"+ echo env.HF_TOKEN=<secret> env.LR=3"


def test_a_rank_writes_a_line_at_once_and_in_one_piece(tmp_path: Path, clean_environ: dict[str, str]) -> None:
    (tmp_path / "prints.py").write_text(
        "import sys\nprint('line', sys.stdout.line_buffering, sys.stdout.write_through)\n", encoding="utf-8"
    )
    pipes = RankPipes([0])
    environ = {**clean_environ, "PYTHONPATH": str(tmp_path), "RANK": "0", STREAMS: pipes.folder}
    as_torchrun = [sys.executable, "-u", "-m", "primus_core.programs.rank", "prints"]
    subprocess.run(as_torchrun, env=environ, check=True)
    assert os.read(pipes.descriptors[0, "out"], 100) == b"line True False\n"
    pipes.close()
