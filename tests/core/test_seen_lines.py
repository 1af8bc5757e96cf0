"""A rank's lines that were printed before cost little, and nothing else is different: the same log, the same console."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.machine.secret_kinds import KINDS, PRIVATE_KEY

from primus_machine.output.seen_lines import RankChannel, SeenLines
from primus_machine.output.streams import for_console
from primus_machine.pipes import Channel
from primus_machine.secrets.masks import Mask

VALUE = "hunter2-and-more"
LINES = (
    "iteration 12/100 | loss: 2.5",
    "iteration 7/100 | loss: 0.125",
    "value hunter-and-more",
    f"value {VALUE}",
    "hunter3-and-more",
    "many",
    "lines",
    "WARNING: queue 3 is full",
    "no WARNINGS",
    "ERROR1",
    "ERROR 1",
    "env.HF_TOKEN=abc",
    "progress 1%\rprogress 2%\rERROR",
    "token: 12345",
    "token: q8ZdW2vRw4xT",
    KINDS["github"][0],
    PRIVATE_KEY,
    *PRIVATE_KEY.splitlines()[:2],
    "",
    "12345678901234567890",
)


def printed(chunks: Sequence[str], mask: Mask, rank: int, teller: int, *, known: bool) -> tuple[bytes, bytes]:
    """The log and the console of a rank that prints these chunks; `known`: familiar lines are told from others."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    log: list[bytes] = []
    console: list[bytes] = []

    def sink(text: bytes, whole: bool) -> None:
        log.append(text)
        if not known:
            console.append(for_console(rank, text, teller))

    def heard(text: bytes) -> None:
        console.append(for_console(rank, text, teller))

    familiar = SeenLines(mask, metrics=rank == teller)
    channel = RankChannel(reader, mask, sink, seen=familiar, heard=heard) if known else Channel(reader, mask, sink)
    for chunk in chunks:
        os.write(writer, chunk.encode())
        channel.read()
    os.close(writer)
    channel.finish()
    os.close(reader)
    return b"".join(log), b"".join(console)


@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=30),
    cut=st.integers(1, 60),
    secrets=st.sets(st.sampled_from([VALUE, "many\nlines", "lines\n", "1234567890"])),
    ranks=st.sampled_from([(1, 0), (2, 2), (1, 2)]),
)
def test_what_was_printed_before_changes_neither_log_nor_console(
    lines: list[str], cut: int, secrets: set[str], ranks: tuple[int, int]
) -> None:
    text = "".join(f"{line}\n" for line in lines)
    chunks = [text[at : at + cut] for at in range(0, len(text), cut)]
    mask = Mask(tuple(secrets))
    assert printed(chunks, mask, *ranks, known=True) == printed(chunks, mask, *ranks, known=False)


def test_a_secret_that_a_script_names_late_is_hidden_in_familiar_lines_too() -> None:
    mask = Mask(())
    familiar = SeenLines(mask)
    mask(b"hello hunter-and-more 1\n")
    familiar.learn(familiar.strange(b"hello hunter-and-more 1\n"))
    assert not familiar.strange(b"hello hunter-and-more 2\n")
    mask.add((VALUE,))
    assert familiar.strange(b"hello hunter2-and-more\n")
    assert mask(b"hello hunter2-and-more\n") == b"hello <secret>\n"


def test_lines_that_differ_in_digits_alone_are_all_known() -> None:
    mask = Mask((VALUE,))
    familiar = SeenLines(mask)
    lines = b"".join(
        b"[2026-11-23 02:09:59] iteration %8d/ 1000000 | tokens_per_second_per_gpu: %.1f | loss: %.6E\n"
        % (n, n * 3.3, n / 7)
        for n in range(100_000, 110_000)
    )
    mask(lines)
    familiar.learn(lines)
    assert not familiar.strange(lines)
