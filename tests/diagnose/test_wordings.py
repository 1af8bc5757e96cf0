"""Failures as other versions and programs word them, behind all kinds of prefixes; and what only looks like one."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

import pytest
from tests.diagnose.logs import LINES, SYMPTOMS, healthy, write

from primus_diagnose import Verdict
from primus_diagnose.diagnosis import of_gathered
from primus_diagnose.inputs.gathered import Gathered
from primus_diagnose.scan.scanner import Scanner
from primus_diagnose.scan.source import Source
from primus_diagnose.signatures.catalogue import built_in

HERE = Path(__file__).parent
CATALOGUE = built_in()
WORDINGS: list[dict[str, str]] = tomllib.loads((HERE / "wordings.toml").read_text(encoding="utf-8"))["wording"]
HARMLESS = (HERE / "harmless.txt").read_text(encoding="utf-8").splitlines()
"""Lines of runs that are well: from runs of the three frameworks, and from the issues that wordings.toml names."""
PREFIXES = (
    "", "[rank3]: ", "3: ", "[default3]:", "node17: ", "[1,3]<stderr>:", "(TrainWorker pid=71) ", "[pod/job-3/pytorch] ",
    "2025-11-23T10:00:00.123456789Z stderr F ", "\x1b[31m", "job-worker-3  | ", "2025-11-23T10:00:00.1Z [rank3]: ",
)  # fmt: skip
LAUNCHER = """\
W1123 10:00:09.000000 99 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 101 closing signal SIGTERM
E1123 10:00:10.000000 99 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1) local_rank: 3 (pid: 99) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-11-23_10:00:09
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 99)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
"""
BROKEN = "[rank{rank}]:[W1123 10:00:09.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=7): Broken pipe"


def judged(folder: Path, *texts: str) -> Verdict:
    return of_gathered(CATALOGUE, Gathered(write(folder, *texts)))


@pytest.mark.parametrize("number", range(len(WORDINGS)))
def test_a_failure_that_is_worded_otherwise_comes_first(number: int, tmp_path: Path) -> None:
    one = WORDINGS[number]
    picked = random.Random(number)
    prefix = picked.choice(PREFIXES)
    failed = [f"{prefix}{line}" for line in one["text"].splitlines()]
    lines = healthy(400, picked)
    texts = ["\n".join([*healthy(50, picked), BROKEN, *picked.sample(SYMPTOMS, 3)]) for _ in range(3)]
    verdict = judged(tmp_path, *texts, "\n".join([*lines, *failed]), f"{LAUNCHER}")
    assert verdict.cause, one["text"]
    assert (verdict.cause.signature, verdict.cause.first.file) == (one["cause"], "rank_3.log"), one["text"]


@pytest.mark.full
def test_a_line_that_looks_bad_and_is_not_is_no_finding() -> None:
    scanner = Scanner(tuple(CATALOGUE))
    for line in HARMLESS:
        found = {name for name, *_ in scanner.scan(Source("a", "a", text=f"{line}\n")).tallies}
        assert {CATALOGUE[name].role for name in found} <= {"evidence", "noise"}, line


@pytest.mark.parametrize("framework", sorted(LINES))
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.full
def test_a_run_that_is_well_and_complains_has_no_cause(framework: str, prefix: str, tmp_path: Path) -> None:
    lines = [*HARMLESS, *healthy(200, random.Random(1), framework)]
    random.Random(2).shuffle(lines)
    verdict = judged(tmp_path, "\n".join(f"{prefix}{line}" for line in lines))
    assert (verdict.answer, verdict.cause) == ("nothing", None)


MIXED = """\
Traceback (most recent call last):
step: 3  loss: 2.0
  File "/work/train.py", line 12, in main
INFO: saved
    step()
ValueError: bad sample 17
"""
TRACE = '{0}Traceback (most recent call last):\n{1}  File "/work/train.py", line 12, in main\n{1}    step()\n{1}{2}\n'
BOX = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /work/train.py:12 in main                                                    │
│ ❱ 12 │   step()                                                              │
╰──────────────────────────────────────────────────────────────────────────────╯
ValueError: bad sample 17
"""


@pytest.mark.parametrize(
    "text",
    [
        TRACE.format("", "", "ValueError: bad sample 17"),
        TRACE.format("ERROR 10-27 07:48:16 worker.py:464] ", "ERROR 10-27 07:48:17 worker.py:464] ", "ValueError: bad sample 17"),
        TRACE.format("2025-11-23 10:00:00,123 - root - ERROR - ", "", "ValueError: bad sample 17"),
        TRACE.format("  traceback : ", "  ", "ValueError: bad sample 17"),
        BOX,
        '  File "/work/train.py", line 12, in main\n    step()\nValueError: bad sample 17\n',
        MIXED,
    ],
    ids=["plain", "logger", "logger-once", "summary", "box", "no-beginning", "mixed"],
)  # fmt: skip
def test_an_exception_is_found_in_whatever_form_its_traceback_has(text: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, "waiting", text, SYMPTOMS[4])
    assert verdict.cause
    assert verdict.cause.title == "An exception ended the program: ValueError: bad sample 17"
    assert (verdict.cause.first.rank, verdict.cause.first.code) == (1, "/work/train.py:12 in main")


def test_the_program_that_a_traceback_quotes_has_not_happened(tmp_path: Path) -> None:
    quotes = ("from data import DataloaderExhaustedError", 'raise OSError("No space left on device")', "loss = nan")
    frames = "".join(
        f'  File "/work/a.py", line {n}, in f\n    {text}\n    ^^^^^^^^\n' for n, text in enumerate(quotes, 1)
    )
    verdict = judged(
        tmp_path, f"Traceback (most recent call last):\n{frames}ModuleNotFoundError: No module named 'torchdata'"
    )
    assert verdict.cause
    assert (verdict.cause.signature, verdict.others) == ("py.module_missing", ())


def test_an_exception_that_another_rank_prints_is_of_the_rank_that_raised_it(tmp_path: Path) -> None:
    text = (
        "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([1])\n"
        'Traceback (most recent call last): (RANK 1)\n  File "/work/train.py", line 12, in main\n    step()\n'
        "KeyError: 'decoder'\n"
    )
    verdict = judged(tmp_path, text)
    assert verdict.cause
    assert (verdict.cause.signature, verdict.cause.first.rank) == ("python.exception", 1)
    assert [(one.signature, one.follows) for one in verdict.others] == [("ckpt.failed", "python.exception")]


OPTIONAL = """\
Traceback (most recent call last):
  File "/opt/maxtext/max_utils.py", line 1257, in transformer_engine_context
    from transformer_engine.jax.sharding import global_shard_guard
ModuleNotFoundError: No module named 'transformer_engine'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/work/train.py", line 12, in main
    step()
{0}ValueError: bad sample 17
"""
WRAPPED = '  File "/opt/maxtext/max_utils.py", line 1260, in transformer_engine_context\n    raise ValueError(text)\n'


@pytest.mark.parametrize(("frame", "name"), [("", "python.exception"), (WRAPPED, "py.module_missing")])
def test_a_module_that_the_program_can_do_without_is_not_why_it_failed(frame: str, name: str, tmp_path: Path) -> None:
    """The context manager in which MaxText trains handles a missing module all the while: each failure names it."""
    verdict = judged(tmp_path, OPTIONAL.format(frame))
    assert verdict.cause
    assert verdict.cause.signature == name
    assert len(verdict.others) == bool(frame)


@pytest.mark.parametrize(
    "warning",
    [
        "WARNING: Could not load Transformer Engine; ModuleNotFoundError: No module named 'transformer_engine'",
        "/opt/x.py:13: UserWarning: ImportError: libx.so: cannot open shared object file: No such file or directory",
    ],
)
def test_what_the_program_warned_of_and_went_on_without_is_not_why_it_failed(warning: str, tmp_path: Path) -> None:
    failure = TRACE.format("", "", "ValueError: bad sample 17")
    verdict = judged(tmp_path, f"2025-11-23 10:00:00 {warning}\n2025-11-23 10:00:40 building the model\n{failure}")
    assert verdict.cause
    assert verdict.cause.signature == "python.exception"
    last = judged(tmp_path, f"2025-11-23 10:00:00 {warning}")
    assert last.confidence == "possible"


@pytest.mark.parametrize("seconds", ["", "2025-11-23 10:{0:02}:00 "])
def test_a_rank_that_waits_for_a_master_that_failed_is_not_the_cause(seconds: str, tmp_path: Path) -> None:
    waits = f"{seconds.format(5)}torch.distributed.DistNetworkError: The client socket has timed out after 300000ms while trying to connect to (n0, 29500)."
    fails = f"{seconds.format(1)}ModuleNotFoundError: No module named 'flash_attn'"
    verdict = judged(tmp_path, waits, waits, fails)
    assert verdict.cause
    assert (verdict.cause.signature, verdict.cause.first.rank) == ("py.module_missing", 2)


def test_an_attempt_that_failed_is_the_cause_only_where_the_log_ends_with_it(tmp_path: Path) -> None:
    attempt = "[W socket.cpp:697] [c10d] The client socket has failed to connect to [n0]:29500 (errno: 110 - Connection timed out)."
    ended = judged(tmp_path, f"starting\n{attempt}")
    assert ended.cause
    assert (ended.cause.signature, ended.confidence) == ("c10d.connect_attempt", "possible")
    assert judged(tmp_path, "\n".join([attempt, *healthy(50, random.Random(1), "torchtitan")])).cause is None
