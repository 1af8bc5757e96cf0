"""What logs and records hold is shown as text, and does no harm."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run

from primus_diagnose import diagnose
from primus_diagnose.lines.clean import shown, without_controls
from primus_diagnose.lines.prefix import split
from primus_diagnose.lines.times import of_line
from primus_diagnose.scan.scanner import Scanner
from primus_diagnose.scan.source import Source, blocks
from primus_diagnose.signatures.catalogue import built_in
from primus_diagnose.text import render

CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
SCANNER = Scanner(tuple(built_in()))
CAUSE = "OSError: [Errno 28] No space left on device"


@pytest.mark.full
def test_terminal_escapes_and_markup_are_shown_as_text(primus: Run, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x1b]8;;http://x\x07OSError: [Errno 28] No space left on device: '<script>\u202e\x9b31m'"
    (tmp_path / "rank_0.log").write_text(f"{evil}\n", encoding="utf-8")
    for words in ((), ("--json",)):
        printed = primus("diagnose", "rank_0.log", *words, cwd=tmp_path).stdout
        assert "The disk is full" in printed
        assert not CONTROLS.search(printed)
        assert "owned" not in printed
    assert "<script>" in printed


def test_colours_inside_a_message_do_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "50%|###\r\x1b[31mHIP out of \x1b[1mmemory\x1b[0m. Tried to allocate 1.00 GiB\r\n", encoding="utf-8"
    )
    verdict = diagnose([str(tmp_path / "a.log")])
    assert verdict.cause
    assert verdict.cause.signature == "oom.gpu_torch"
    assert verdict.cause.first.text.startswith("HIP out of memory.")


def test_a_line_of_a_hundred_megabytes_is_read_without_its_rest(tmp_path: Path) -> None:
    with (tmp_path / "a.log").open("wb") as file:
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(CAUSE.encode())
        file.write(b"y" * 1_000_000)
    verdict = diagnose([str(tmp_path / "a.log")])
    assert verdict.cause
    assert (verdict.cause.signature, verdict.cause.first.line) == ("fs.no_space", 1)
    assert len(verdict.cause.first.text) <= 400


def test_bytes_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(os.urandom(1 << 16) + b"\xff\xfe\n" + CAUSE.encode() + b"\xc3\n\x00\x00")
    verdict = diagnose([str(tmp_path / "a.log")])
    assert verdict.cause
    assert verdict.cause.signature == "fs.no_space"


@pytest.mark.parametrize("bomb", ["memo", "nested", "number"])
def test_a_small_dump_that_grows_without_end_is_not_built(bomb: str, primus: Run, tmp_path: Path) -> None:
    """Ten bytes that ask for a memo of 16 GB; a list that holds itself twice, 26 times over; a number of a million digits."""
    nested: list[object] = []
    for _ in range(26):
        nested = [nested, nested]
    name: object = nested if bomb == "nested" else 10**1_000_000
    call = {"process_group": ("0", "default_pg"), "collective_seq_id": 1, "profiling_name": name, "state": "started"}
    dump = pickle.dumps({"version": "2.4", "entries": [call]})
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"\x80\x04K\x01r\xff\xff\xff?." if bomb == "memo" else dump)
    (tmp_path / "rank_0.log").write_text(f"{CAUSE}\n", encoding="utf-8")
    limited = ("bash", "-c", 'ulimit -v 2000000; exec "$@"', "-", sys.executable, "-m", "primus_core", "diagnose", ".")
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "The disk is full" in done.stdout, done.stderr


def test_a_pickle_that_would_run_code_runs_none(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {tmp_path}/owned",)

    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"version": "2.4", "entries": [Evil()]}))
    (tmp_path / "rank_0.log").write_text("all is well\n", encoding="utf-8")
    verdict = diagnose([str(tmp_path)])
    assert not (tmp_path / "owned").exists()
    assert any("system" in one for one in verdict.inputs.skipped)


def test_json_within_json_without_end_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "error.json").write_text('{"message":' * 100_000, encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps({"message": {"message": ["x"], "extraInfo": "y"}}), encoding="utf-8")
    (tmp_path / "rank_0.log").write_text(f"{CAUSE}\n", encoding="utf-8")
    verdict = diagnose([str(tmp_path)])
    assert verdict.cause
    assert [one.partition(":")[0] for one in verdict.inputs.skipped] == ["error.json"]


def test_a_pipe_and_a_folder_that_are_called_logs_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank_0.log")
    (tmp_path / "rank_1.log").write_text(f"{CAUSE}\n", encoding="utf-8")
    verdict = diagnose([str(tmp_path)])
    assert verdict.cause
    assert verdict.inputs.skipped == ("rank_0.log: it is not a regular file",)


def test_devices_and_links_to_nowhere_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").symlink_to("/dev/zero")
    (tmp_path / "rank_2.log").symlink_to("rank_2.log")
    (tmp_path / "rank_3.log").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "rank_1.log").write_text(f"{CAUSE}\n", encoding="utf-8")
    verdict = diagnose([str(tmp_path)])
    assert verdict.cause
    assert verdict.cause.first.file == "rank_1.log"
    assert sorted(one.partition(":")[0] for one in verdict.inputs.skipped) == ["rank_0.log", "rank_2.log", "rank_3.log"]


@pytest.mark.full
def test_a_log_with_a_hole_of_a_terabyte_is_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "rank_0.log").open("wb") as file:
        file.write(b"step 1\n")
        file.seek(1 << 40)
        file.write(f"\n{CAUSE}\n".encode())
    verdict = diagnose([str(tmp_path)])
    assert verdict.cause
    assert verdict.cause.first.offset == (1 << 40) + 1


@given(st.lists(st.tuples(st.sampled_from([0, 1, 3000, 20_000]), st.lists(st.sampled_from([3, 80, 9000]), max_size=20))),
       st.sampled_from([1000, 5000, 20_000]))  # fmt: skip
@pytest.mark.full
def test_each_line_is_read_once_whatever_holes_and_parts_there_are(
    texts: list[tuple[int, list[int]]], part: int
) -> None:
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        for hole, lines in texts:
            file.seek(hole, os.SEEK_CUR)
            file.write(b"".join(b"x" * length + b"\n" for length in lines))
        file.flush()
        data, seen = Path(file.name).read_bytes(), Counter[int]()
        for start in range(0, max(len(data), 1), part):
            end = start + part if start + part < len(data) else None
            for offset, block in blocks(Source(file.name), start, end):
                assert data[offset : offset + len(block)] == block
                seen.update(offset + at for at, byte in enumerate(block) if byte == ord("\n"))
    assert seen == Counter(at for at, byte in enumerate(data) if byte == ord("\n"))


def test_what_is_written_while_a_log_is_read_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.log"
    path.write_bytes(b"step 1\n" * 1_000_000)
    with path.open("ab") as log:
        for count, _ in enumerate(blocks(Source(str(path)))):
            log.write(b"step 2\n" * 1_000_000)
            log.flush()
            assert count < 10


def test_a_log_of_another_user_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can become another user")
    for rank in (0, 1):
        (tmp_path / f"rank_{rank}.log").write_text(f"{CAUSE}\n", encoding="utf-8")
    (tmp_path / "rank_0.log").chmod(0o600)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    code = (
        "import os, sys; from primus_diagnose import diagnose; from primus_diagnose.text import render\n"
        "from primus_diagnose.inputs import find; os.setgid(65534); os.setuid(65534)\n"
        "sys.stdout.write(render(diagnose([sys.argv[1]])))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "rank 1, rank_1.log:1" in done.stdout, done.stderr
    assert "not read    rank_0.log: it cannot be read" in done.stdout


def test_secrets_in_a_line_are_masked(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{CAUSE}: 'https://me:hunter2secret@host/x'\n", encoding="utf-8")
    verdict = diagnose([str(tmp_path / "a.log")])
    assert "hunter2secret" not in render(verdict)
    assert "hunter2secret" not in json.dumps(verdict.to_dict())


@pytest.mark.full
def test_a_log_of_nothing_but_errors_is_counted_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{CAUSE}\n" * 200_000, encoding="utf-8")
    verdict = diagnose([str(tmp_path / "a.log")])
    assert verdict.cause
    assert (verdict.cause.at_least, verdict.cause.count) == (True, 2000)


@pytest.mark.full
def test_a_traceback_without_end_ends(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "Traceback (most recent call last):\n" + '  File "x.py", line 1, in f\n' * 50_000 + CAUSE
    )
    verdict = diagnose([str(tmp_path / "a.log")])
    assert verdict.cause
    assert verdict.cause.first.line == 50_002


@given(st.binary(max_size=2000))
def test_any_bytes_are_some_log(data: bytes) -> None:
    result = SCANNER.scan(Source("a", "a", text=data.decode("latin-1")))
    assert result.lines >= 0
    assert without_controls(data).count(b"\n") == data.count(b"\n")


@given(st.text(max_size=300))
def test_any_text_is_some_line(text: str) -> None:
    assert not CONTROLS.search(shown(text))
    _, rest = split(text)
    assert text.endswith(rest)
    of_line(text, 2025)


@pytest.mark.parametrize(
    ("line", "rank", "local", "task", "node", "rest"),
    [
        ("[rank3]: ValueError: x", 3, None, None, "", "ValueError: x"),
        ("[rank 3] ValueError: x", 3, None, None, "", "ValueError: x"),
        ("12: ValueError: x", None, None, 12, "", "ValueError: x"),
        ("[default1]:ValueError: x", None, 1, None, "", "ValueError: x"),
        ("[1,5]<stderr>:ValueError: x", 5, None, None, "", "ValueError: x"),
        ("(pid=71, ip=10.0.0.3) ValueError: x", None, None, None, "10.0.0.3", "ValueError: x"),
        ("(TrainWorker pid=71) ValueError: x", None, None, None, "", "ValueError: x"),
        ("[pod/job-worker-3/pytorch] [rank7]: ValueError: x", 7, None, None, "job-worker-3", "ValueError: x"),
        ("2025-11-23T10:00:00.123456789Z stderr F 3: ValueError: x", None, None, 3, "", "ValueError: x"),
        ("node17: 3: [rank1]: ValueError: x", 1, None, 3, "node17", "ValueError: x"),
        ("ValueError: x", None, None, None, "", "ValueError: x"),
    ],
)
def test_prefixes_say_who_wrote_a_line(
    line: str, rank: int | None, local: int | None, task: int | None, node: str, rest: str
) -> None:
    writer, text = split(line)
    assert (writer.rank, writer.local, writer.task, writer.node, text) == (rank, local, task, node, rest)
