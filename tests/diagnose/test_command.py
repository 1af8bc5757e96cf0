from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from tests.conftest import Run

from primus_diagnose import diagnose, read
from primus_diagnose.text import render
from primus_diagnose.verdict import ANSWERS, CONFIDENCES, from_dict
from primus_machine.errors import MachineError
from primus_machine.host import HostRoot

LOG = """\
3: Traceback (most recent call last):
0: step 1
3:   File "/work/train.py", line 12, in main
3: torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.31 GiB. GPU 0 has a total capacity of 128.00 GiB of which 780.24 MiB is free.
0: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:31044
srun: error: node12: task 3: Exited with exit code 1
"""


def test_the_answer_names_cause_rank_line_and_fix(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "slurm-7.out").write_text(LOG, encoding="utf-8")
    result = primus("diagnose", "slurm-7.out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("diagnosis: The GPU ran out of memory\n  confidence  certain (oom.gpu_torch)\n")
    assert "  where       rank 3, slurm-7.out:4\n" in result.stdout
    assert "  code        /work/train.py:12 in main\n" in result.stdout
    assert "- lower the micro batch size" in result.stdout
    assert "symptom gloo.peer_closed" in result.stdout


def test_the_json_is_the_verdict(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "slurm-7.out").write_text(LOG, encoding="utf-8")
    data = json.loads(primus("diagnose", "slurm-7.out", "--json", cwd=tmp_path).stdout)
    assert data == json.loads(json.dumps(diagnose([str(tmp_path / "slurm-7.out")]).to_dict()))
    assert from_dict(data).to_dict() == diagnose([str(tmp_path / "slurm-7.out")]).to_dict()
    assert data["cause"]["first"]["groups"]["want"] == "3.31 GiB"
    assert data["answer"] in ANSWERS
    assert data["confidence"] in CONFIDENCES


def test_logs_without_a_known_line_are_said_to_be_so(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("all is well\n", encoding="utf-8")
    result = primus("diagnose", "a.log", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith("diagnosis: not in these logs\n  why         nothing known was found")
    assert "collect" in result.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "nothing to diagnose"),
        (("nothere",), "there is no run 'nothere'"),
        (("--jsno", "x"), "did you mean '--json'"),
        (("a.log", "--signatures", "nothere.toml"), "nothere.toml"),
    ],
)
def test_a_wrong_request_is_exit_code_2(words: tuple[str, ...], told: str, primus: Run, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("all is well\n", encoding="utf-8")
    result = primus("diagnose", *words, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert told in result.stderr


def test_a_folder_without_logs_is_exit_code_3(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"1")
    result = primus("diagnose", ".", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    assert "no file there has the name of a log" in result.stderr


def test_a_log_that_cannot_be_read_is_named(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").mkdir()
    (tmp_path / "rank_1.log").write_text("OSError: [Errno 122] Disk quota exceeded\n", encoding="utf-8")
    (tmp_path / "nccl_trace_rank_3").write_bytes(b"\x80\x04nothing")
    result = primus("diagnose", ".", cwd=tmp_path)
    assert result.returncode == 0
    assert "diagnosis: The disk quota is used up" in result.stdout
    assert "not read    nccl_trace_rank_3: " in result.stdout


def test_signatures_of_primus_yaml_count(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[[signature]]\nid = "acme.x"\ntitle = "X"\ncategory = "c"\nseverity = "fatal"\nrole = "cause"\n'
        'patterns = ["ACME-X"]\nmeaning = "m"\nfix = ["f"]\nsource = "s"\nsamples = ["ACME-X"]\n',
        encoding="utf-8",
    )
    (tmp_path / "primus.yaml").write_text("signatures: [mine.toml]\n", encoding="utf-8")
    (tmp_path / "a.log").write_text("ACME-X\n", encoding="utf-8")
    assert "(acme.x)" in primus("diagnose", "a.log", cwd=tmp_path).stdout
    assert "acme.x" in primus("diagnose", "--list", cwd=tmp_path).stdout


def test_a_run_that_has_recorded_no_end_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/rank_0.log").write_text("all is well\n", encoding="utf-8")
    (tmp_path / "metadata.json").write_text('{"run_id": "x", "status": "started", "started": 1}', encoding="utf-8")
    verdict = diagnose([str(tmp_path)])
    assert (verdict.answer, verdict.cause) == ("unfinished", None)
    assert render(verdict).startswith("diagnosis: no end is recorded\n")
    assert f"`primus runs show {tmp_path}`" in render(verdict)


def test_a_run_that_is_running_has_not_failed(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/rank_0.log").write_text("all is well\n", encoding="utf-8")
    known = {
        "run_id": "x",
        "status": "started",
        "started": time.time(),
        "pid": os.getpid(),
        "host": HostRoot().hostname(),
    }
    (tmp_path / "metadata.json").write_text(json.dumps(known), encoding="utf-8")
    verdict = diagnose([str(tmp_path)])
    assert (verdict.answer, verdict.missing.collect) == ("running", ())
    assert "--hang-timeout" in render(verdict)
    assert f"`primus stop {tmp_path}`" in render(verdict)


@pytest.mark.parametrize("is_alive", [True, False])
def test_only_a_process_that_is_alive_is_to_be_looked_at_with_py_spy(tmp_path: Path, *, is_alive: bool) -> None:
    (tmp_path / "logs").mkdir()
    timeout = (
        "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4)\n"
    )
    for rank in range(4):
        line = "waiting for data\n" if rank == 2 else timeout.format(rank)
        (tmp_path / f"logs/rank_{rank}.log").write_text(line, encoding="utf-8")
    known = {"run_id": "x", "status": "started" if is_alive else "failed", "started": time.time()}
    known |= {"pid": os.getpid(), "host": HostRoot().hostname()}
    known |= {} if is_alive else {"ended": time.time(), "exit_code": 1}
    (tmp_path / "metadata.json").write_text(json.dumps(known), encoding="utf-8")
    verdict = diagnose([str(tmp_path)])
    assert verdict.cause
    assert verdict.cause.signature == "collective.rank_behind"
    assert ("py-spy dump" in render(verdict)) is is_alive


def test_what_was_given_is_not_asked_for_again(tmp_path: Path) -> None:
    texts = {
        "a.log": "all is well",
        "dmesg_a.log": "all is well",
        "job.txt": "JobId=7 JobName=x\n   JobState=COMPLETED",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    assert diagnose([str(tmp_path)]).missing.collect == ()
    (tmp_path / "job.txt").unlink()
    (asked,) = diagnose([str(tmp_path)]).missing.collect
    assert "scontrol show job" in asked


def test_a_folder_of_a_run_without_logs_leads_to_the_run(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"run_id": "x", "status": "failed"}', encoding="utf-8")
    (tmp_path / "hang/1").mkdir(parents=True)
    (tmp_path / "hang/1/answer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(MachineError) as refused:
        diagnose([str(tmp_path / "hang/1")])
    assert refused.value.fix == f"primus diagnose {tmp_path}"


def test_a_run_that_was_told_to_end_has_no_cause_to_look_for(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/launch.log").write_text("W1127 Received Signals.SIGTERM death signal\n", encoding="utf-8")
    record = '{"run_id": "x", "status": "interrupted", "started": 1, "ended": 2, "exit_code": 130}'
    (tmp_path / "metadata.json").write_text(record, encoding="utf-8")
    verdict = diagnose([str(tmp_path)])
    assert (verdict.answer, verdict.cause, verdict.missing.collect) == ("interrupted", None, ())
    assert render(verdict).startswith("diagnosis: a signal ended the run\n")
    (tmp_path / "metadata.json").write_text(record.replace("interrupted", "stopped"), encoding="utf-8")
    assert render(diagnose([str(tmp_path)])).startswith("diagnosis: a hook ended the run\n")
    trace = (
        'Traceback (most recent call last):\n  File "save.py", line 3, in save\n    x()\nValueError: while it saved\n'
    )
    (tmp_path / "logs/rank_0.log").write_text(trace, encoding="utf-8")
    assert diagnose([str(tmp_path)]).answer == "cause"


@pytest.mark.full
def test_a_script_that_fails_before_the_ranks_is_the_cause_also_when_asked_again(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "mount.sh").write_text("echo mounting\necho access denied by server >&2\nexit 5\n", encoding="utf-8")
    (tmp_path / "tasks.py").write_text(
        "from primus_core import register_task\n\n\n@register_task('do nothing')\ndef nothing(call):\n    'Do nothing.'\n",
        encoding="utf-8",
    )
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n", encoding="utf-8")
    failed = primus("direct", "--patch", "mount.sh", "--", "do", "nothing", cwd=tmp_path)
    told = "diagnosis: The step 'patch mount.sh' failed before any rank started: access denied by server\n"
    assert failed.returncode == 5
    assert told in failed.stdout + failed.stderr
    assert primus("diagnose", "latest", cwd=tmp_path).stdout.startswith(told)


def test_a_step_before_the_ranks_is_named_with_its_error_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    error = "primus: error: the tokenizer has 7005 tokens, but the model 4000\n  why: too few\n  fix: use the model's"
    (tmp_path / "logs/launch.log").write_text(f"reading\n{error}\n", encoding="utf-8")
    (tmp_path / "metadata.json").write_text('{"run_id": "x", "status": "failed", "exit_code": 1}', encoding="utf-8")
    row = {"event": "step_ended", "name": "prepare data", "exit_code": 2, "time": 9.0}
    (tmp_path / "logs/events.jsonl").write_text(f"{json.dumps(row)}\n", encoding="utf-8")
    shown = render(diagnose([str(tmp_path)]))
    what = "the tokenizer has 7005 tokens, but the model 4000; fix: use the model's"
    assert f"'prepare data' failed before any rank started: {what}" in shown
    earlier = {"event": "step_ended", "name": "hook mount.sh", "exit_code": 0, "time": 8.0}
    (tmp_path / "logs/events.jsonl").write_text(f"{json.dumps(earlier)}\n{json.dumps(row)}\n", encoding="utf-8")
    (tmp_path / "logs/launch.log").write_text("mounted\n", encoding="utf-8")  # it may be of either
    shown = render(diagnose([str(tmp_path)]))
    assert (
        "failed before any rank started: exit code 2; the last line of the launch log, from this step or one before it: mounted"
        in shown
    )
    failure = '{"rank": -1, "what": "prepare data: took longer than 2 s", "exit_code": 143}'
    record = f'{{"run_id": "x", "status": "failed", "exit_code": 143, "first_failure": {failure}}}'
    (tmp_path / "metadata.json").write_text(record, encoding="utf-8")
    assert "'prepare data' failed before any rank started: took longer than 2 s\n" in render(diagnose([str(tmp_path)]))


def test_a_damaged_diagnosis_is_none(tmp_path: Path) -> None:
    for text in ("", "{}", "[]", '{"schema": 1}', '{"schema": 99}', "[" * 100_000):
        (tmp_path / "diagnosis.json").write_text(text, encoding="utf-8")
        assert read(str(tmp_path)) is None


def test_a_job_that_has_recorded_nothing_is_no_failure(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"run_id": "x", "status": "submitted"}', encoding="utf-8")
    said = primus("diagnose", str(tmp_path)).stdout
    assert said.startswith("diagnosis: the job has recorded nothing")
    assert "dmesg" not in said


def test_a_log_that_is_not_there_is_no_run(primus: Run) -> None:
    refused = primus("diagnose", "ext/rank_1.log")
    assert refused.returncode == 2
    assert "there is no " in refused.stderr
    assert "rank_1.log" in refused.stderr
    assert "there is no run" not in refused.stderr
