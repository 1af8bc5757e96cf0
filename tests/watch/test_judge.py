"""Who is named, by where ranks are: as data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from primus_watch.hang import answer, place, printed
from primus_watch.hang.folder import Folder, current, new
from primus_watch.hang.judge import judge
from primus_watch.hang.place import Place
from primus_watch.hang.stack import Frame, Thread

TORCH = "/usr/lib/python3/dist-packages/torch"
DUMP = f"""\
step: 3  loss: 4.0
Thread 0x00007fbc6d9cbb00 [worker] (most recent call first):
  File "/usr/lib/python3.13/threading.py", line 327 in wait

Current thread 0x00007fbc6d9cbb80 (most recent call first):
  Garbage-collecting
  File "{TORCH}/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/home/ann/train.py", line 71 in main
"""


def at(rank: int, kind: str, code: str = "train.py:1 in main", *, waits: bool = False) -> Place:
    return Place(rank, "node1", 100 + rank, kind, f"in {kind}", waits, code)


def waiting(rank: int, code: str = "train.py:9 in main") -> Place:
    return at(rank, "collective", code, waits=True)


@pytest.mark.parametrize(
    ("places", "odd"),
    [
        ([waiting(0), waiting(1), at(2, "Python"), waiting(3)], [2]),
        ([waiting(0), at(1, "native call")], [1]),  # a tie: who does not wait
        ([waiting(0), waiting(1), waiting(2, "train.py:5 in main"), waiting(3)], [2]),
        ([waiting(0), waiting(1, "train.py:5 in main")], []),  # a tie of those that wait
        ([at(0, "Python"), at(1, "Python"), at(2, "Python", "data.py:3 in read")], [2]),
        ([waiting(0), waiting(1), waiting(2)], []),
        ([waiting(0), at(1, "Python"), at(2, place.STOPPED)], [2]),
        ([waiting(0), waiting(1), at(2, place.UNKNOWN, "")], []),  # of it, nothing is known
        ([], []),
    ],
)
def test_who_is_elsewhere_than_the_others_is_named(places: list[Place], odd: list[int]) -> None:
    assert [one.rank for one in judge(places).odd] == odd


def test_the_answer_names_ranks_by_place_and_silent_nodes() -> None:
    found = judge([waiting(0), waiting(1), at(2, "Python"), waiting(3)], [1])
    assert answer.render(found, "/run/hang/1").splitlines() == [
        "ranks hang: rank 2 on node1 keeps the others waiting",
        "  at       rank 2: in Python: at train.py:1 in main",
        "  others   ranks 0-1, 3: in collective: at train.py:9 in main",
        "  missing  node 1 did not answer",
        "  stacks   /run/hang/1",
    ]
    assert answer.render(judge([]), "x").startswith("ranks hang: none has started yet")


def test_under_jax_a_rank_that_waits_for_a_result_is_kept_waiting() -> None:
    native = [Frame("libjax_common.so", 0, name) for name in ("absl::Mutex::Block", "tsl::BlockUntilReady")]
    result = Frame("/venv/lib/python3.12/site-packages/jax/_src/array.py", 696, "ArrayImpl._value")
    step = Frame(
        "/venv/lib/python3.12/site-packages/maxtext/trainers/pre_train/train.py", 849, "training_loop_iteration"
    )
    threads = (
        [Thread("", (*native, result, step), pid=100, is_main=True)],
        [Thread("", (result, step), pid=100, is_main=True)],
    )
    waits = [place.of(0, "node1", 100, "S", one, "py-spy") for one in threads]
    assert [(one.kind, one.waits) for one in waits] == [("computation", True)] * 2
    assert [one.rank for one in judge([waits[0], at(1, "Python", "corpus.py:19 in wait_for_lock")]).odd] == [1]


def test_what_a_program_calls_its_functions_is_shown_without_effect() -> None:
    found = judge([waiting(0), at(1, "Python", "\x1b[31mevil\u202e.py:1 in \x07main")])
    text = answer.render(found, "x")
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "\\x1b[31mevil\\x202e.py" in text


def test_stacks_that_a_rank_printed_are_read() -> None:
    *_, main = threads = printed.parsed(DUMP + "more text\n")
    assert [thread.name for thread in threads] == ["worker", ""]
    assert (main.kind.name if main.kind else "", main.operation) == ("collective", "all_reduce")
    assert main.own == Frame("/home/ann/train.py", 71, "main")


@pytest.mark.parametrize("text", ["", "Thread 0x1 (most recent call first):\n", 'File "x", line 3 in y\n', "\x00" * 99])
def test_text_that_is_no_stack_is_none(text: str) -> None:
    assert printed.parsed(text) == []


@pytest.mark.parametrize(
    ("native", "words"),
    [
        ([], ""),
        ([("clock_nanosleep", "/lib/libc.so.6"), ("time_sleep", "/lib/libpython3.11.so.1.0")], ""),
        ([("ioctl", "/lib/libc.so.6"), ("hsa_wait", "/opt/lib/libx.so.1"), ("f", "/usr/bin/python3.11")], "hsa_wait (libx.so.1)"),
        ([("0x7f", "/lib/libc.so.6"), ("sleep", "/lib/libc.so.6"), ("ffi_call", "/lib/libffi.so.8")], "sleep (libc.so.6)"),
    ],
)  # fmt: skip
def test_a_native_call_is_one_of_a_library(native: list[tuple[str, str]], words: str) -> None:
    frames = [*(Frame(file, 0, name) for name, file in native), Frame("/home/ann/train.py", 7, "main")]
    assert Thread("main", tuple(frames)).native == words


def test_nodes_find_the_hang_in_hand_and_one_answers(tmp_path: Path) -> None:
    environ = dict(os.environ)
    assert current(str(tmp_path), environ, 60) is None
    first = new(str(tmp_path), environ)
    first.write(0, {"places": [waiting(0).to_dict()]})
    second = current(str(tmp_path), environ, 60)
    assert second
    assert second.path == first.path
    assert second.wait(2, 0.1) == [1]
    assert [first.answer({"schema": 1}), second.answer({"schema": 1})] == [True, False]
    assert current(str(tmp_path), environ, 0.0) is None  # it is answered
    assert current(str(tmp_path), environ, 60)  # and too fresh for another one
    assert new(str(tmp_path), environ).path.endswith("/hang/2")


def test_a_file_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), {"HOME": str(tmp_path)})
    folder.write(0, {"places": []})
    assert folder.read(0) == {"places": []}
    (tmp_path / "node_0.json").chmod(0o666)
    assert folder.read(0) is None
    (tmp_path / "node_1.json").write_text("[" * 100_000, encoding="utf-8")
    assert folder.read(1) is None
    assert place.from_dict({**waiting(3).to_dict(), "code": "x" * 9999}).code == "x" * 400


def test_a_wrapper_of_primus_is_not_where_a_rank_is() -> None:
    frames = [
        "/x/primus_train/kit/waits.py",
        "/lib/site-packages/torch/distributed/c10d.py",
        "/x/primus_torchtitan/worker.py",
    ]
    assert [at_file(frames), at_file([*frames, "/home/me/train.py"]), at_file(frames[:1])] == [
        frames[1],
        "/home/me/train.py",
        frames[0],
    ]


def test_without_code_of_its_own_a_training_is_at_the_line_of_its_framework() -> None:
    site = "/env/lib/python3.11/site-packages"
    frames = ["/usr/lib/python3.11/threading.py", f"{site}/torch/_ops.py", f"{site}/torchtitan/trainer.py"]
    assert [at_file([*frames, "/x/primus_torchtitan/worker.py"]), at_file(frames[:2])] == [frames[2], frames[0]]


def at_file(files: list[str]) -> str:
    frame = Thread("MainThread", tuple(Frame(file, 7, "main") for file in files)).own
    assert frame
    return frame.file
