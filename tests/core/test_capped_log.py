"""A log with a limit keeps its beginning and its end, says what is left out, and takes no more room."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.conftest import Run

from primus_core.request.arguments import size

TALK = """
from primus_core import register_task
@register_task("talk")
def talk(call):
    for number in range(int(call.words[0])):
        print(f"line {number:06}", "x" * 50)
"""


@pytest.fixture
def talker(tmp_path: Path) -> Path:
    (tmp_path / "talk.py").write_text(TALK)
    (tmp_path / "primus.yaml").write_text("plugins: [./talk.py]\n")
    return tmp_path


def numbers(path: Path) -> list[int]:
    return [int(found) for found in re.findall(r"^line (\d+)", path.read_text(), re.M)]


@pytest.mark.torch
@pytest.mark.full
def test_the_beginning_and_the_end_are_kept_and_the_rest_is_counted(primus: Run, talker: Path) -> None:
    result = primus("direct", "--single", "--log-limit", "64KiB", "--", "talk", "20000", cwd=talker)
    assert result.returncode == 0, result.stderr
    logs = (talker / "output/talk").resolve() / "logs"
    first, *ends = (logs / f"rank_0.log{end}" for end in ("", ".1", ".2"))
    total = sum(path.stat().st_size for path in (first, *ends))
    assert total <= 72 * 1024
    assert (
        "half of --log-limit is reached: the end of this log is in rank_0.log.1 and rank_0.log.2" in first.read_text()
    )
    begun = numbers(first)
    older, newer = sorted(numbers(path) for path in ends)
    assert begun == list(range(len(begun)))
    assert [*older, *newer] == list(range(older[0], 20_000)), "the end, without a gap"
    said = max(
        int(n) for path in ends for n in re.findall(r"primus: (\d+) bytes of this log are left out", path.read_text())
    )
    assert said > 0
    shown = primus("logs", "talk", cwd=talker).stdout
    assert shown.index("line 000000") < shown.index("bytes of this log are left out") < shown.index("line 019999")


@pytest.fixture
def pieces(tmp_path: Path) -> Path:
    """A run and its log with a limit: three pieces, of which `.2` is the newest."""
    run = tmp_path / "output/talk"
    (run / "logs").mkdir(parents=True)
    (run / "metadata.json").write_text('{"status": "completed"}')
    for number, end in enumerate(("", ".1", ".2")):
        path = run / f"logs/rank_0.log{end}"
        path.write_text("".join(f"{end or 'begin'} {line}\n" for line in range(200_000 if number < 2 else 10)))
        os.utime(path, (number, number))
    return run


@pytest.mark.torch
def test_the_pieces_of_a_long_log_are_printed_one_after_the_other(primus: Run, pieces: Path) -> None:
    shown = primus("logs", str(pieces)).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["begin"] * 200_000 + [".1"] * 200_000 + [".2"] * 10


@pytest.mark.full
def test_without_a_limit_a_log_has_everything(primus: Run, talker: Path) -> None:
    assert primus("direct", "--single", "--", "talk", "3000", cwd=talker).returncode == 0
    (log,) = ((talker / "output/talk").resolve() / "logs").glob("rank_0.log*")
    assert numbers(log) == list(range(3_000))


@pytest.mark.parametrize(
    ("text", "count"), [("2GiB", 2 << 30), ("500MB", 500_000_000), ("64k", 64_000), ("4096", 4096), ("0", 0)]
)
def test_a_size_has_the_units_that_people_write(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("text", ["2 GiB", "much", "-1", "12", "2GiBs"])
def test_another_size_is_refused(primus: Run, talker: Path, text: str) -> None:
    result = primus("direct", "--dry-run", f"--log-limit={text}", "--", "talk", "1", cwd=talker)
    assert result.returncode == 2
    assert f"'{text}'" in result.stderr
