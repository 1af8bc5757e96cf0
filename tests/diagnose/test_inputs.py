"""Whatever wrote the logs: torchrun, srun, pods, flight recorders."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from primus_diagnose import Verdict, diagnose
from primus_diagnose.scan import pool
from primus_diagnose.verdict import Finding

CAUSE = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB."


def cause(verdict: Verdict) -> Finding:
    assert verdict.cause
    return verdict.cause


def test_a_log_folder_of_torchrun(tmp_path: Path) -> None:
    for rank in range(3):
        folder = tmp_path / f"none_x7/attempt_0/{rank}"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(f"{CAUSE}\n" if rank == 2 else "Connection closed by peer [10.0.0.1]:1\n")
    error = {"message": {"message": "KeyError: 'x'", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n"
             '  File "train.py", line 7, in main\nKeyError: \'x\'\n', "timestamp": "1795418000"}}}  # fmt: skip
    (tmp_path / "none_x7/attempt_0/1/error.json").write_text(json.dumps(error))
    verdict = diagnose([str(tmp_path)])
    assert cause(verdict).first.rank == 2
    [other] = [one for one in verdict.others if one.signature == "python.exception"]
    assert (other.first.rank, other.first.code, other.first.time) == (1, "train.py:7 in main", 1795418000.0)


def test_what_srun_printed_with_labels_of_tasks(tmp_path: Path) -> None:
    (tmp_path / "slurm-1.out").write_text(f"0: hello\n5: {CAUSE}\n")
    assert cause(diagnose([str(tmp_path / "slurm-1.out")])).first.rank == 5


def test_tasks_that_have_ranks_of_their_own_are_nodes(tmp_path: Path) -> None:
    (tmp_path / "slurm-1.out").write_text(f"1: [rank8]: hello\n1: [rank9]: {CAUSE}\n")
    found = cause(diagnose([str(tmp_path / "slurm-1.out")]))
    assert (found.first.rank, found.first.node) == (9, "1")


def test_numbers_in_the_names_of_several_logs_are_ranks(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"job.77.{number}.out").write_text(f"{CAUSE}\n" if number == 3 else "well\n")
    assert cause(diagnose([str(tmp_path)])).first.rank == 3


def test_a_compressed_log_is_read(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "rank_4.log.gz", "wb") as file:
        file.write(f"well\n{CAUSE}\n".encode())
    found = cause(diagnose([str(tmp_path)]))
    assert (found.first.rank, found.first.line) == (4, 2)


def test_the_states_of_pods(tmp_path: Path) -> None:
    state = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2025-11-23T10:00:00Z"}}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "job-worker-3"},
        "status": {"containerStatuses": [{"name": "t", "state": state}]},
    }
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": [pod]}))
    found = cause(diagnose([str(tmp_path / "pods.json")]))
    assert (found.signature, found.first.node) == ("oom.k8s", "job-worker-3")


def test_ranks_without_a_log_are_named(tmp_path: Path) -> None:
    for rank in (0, 1, 2, 5):
        (tmp_path / f"rank_{rank}.log").write_text("well\n")
    verdict = diagnose([str(tmp_path)])
    assert verdict.missing.ranks == (3, 4)
    assert "the logs of ranks 3-4: none is here" in verdict.missing.collect


def test_the_place_in_the_program_is_that_of_the_persons_own_file(tmp_path: Path) -> None:
    copy = "/work/output/boom_1/submitted/files/work/boom.py"
    frames = f'  File "{copy}", line 2, in f\n    raise ValueError("boom")\n'
    (tmp_path / "rank_0.log").write_text(f"Traceback (most recent call last):\n{frames}ValueError: boom\n")
    assert cause(diagnose([str(tmp_path)])).first.code == "/work/boom.py:2 in f"


def entry(sequence: int, operation: str = "nccl:all_reduce", state: str = "completed") -> dict[str, Any]:
    return {"process_group": ("0", "default_pg"), "collective_seq_id": sequence, "profiling_name": operation, "state": state,
            "is_p2p": False, "input_sizes": [[4]], "frames": [{"filename": "train.py", "line": 9, "name": "step"}]}  # fmt: skip


def dumped(folder: Path, calls: dict[int, list[dict[str, Any]]]) -> Verdict:
    for rank, entries in calls.items():
        data = {"version": "2.10", "pg_config": {"0": {"ranks": str(sorted(calls))}}, "entries": entries}
        (folder / f"trace_{rank}").write_bytes(pickle.dumps(data))
    return diagnose([str(folder)])


def test_a_flight_recorder_names_the_ranks_that_did_not_call(tmp_path: Path) -> None:
    calls = {rank: [entry(number) for number in range(1, 4 if rank in (1, 3) else 6)] for rank in range(5)}
    found = cause(dumped(tmp_path, calls))
    assert (found.signature, found.ranks) == ("collective.rank_behind", (1, 3))
    assert "its last collective of group 0 is number 3, that of others 5" in found.title
    assert found.first.code == "train.py:9 in step"


def test_a_flight_recorder_names_the_rank_that_called_another_collective(tmp_path: Path) -> None:
    calls = {rank: [entry(1), entry(2, "nccl:broadcast" if rank == 2 else "nccl:all_reduce")] for rank in range(4)}
    found = cause(dumped(tmp_path, calls))
    assert (found.signature, found.ranks) == ("collective.desync", (2,))


def test_a_flight_recorder_names_the_rank_whose_gpu_has_not_begun(tmp_path: Path) -> None:
    calls = {rank: [entry(1), entry(2, state="scheduled" if rank == 0 else "started")] for rank in range(4)}
    found = cause(dumped(tmp_path, calls))
    assert (found.signature, found.ranks) == ("collective.rank_behind", (0,))


def test_dumps_of_ranks_that_all_came_as_far_blame_nobody(tmp_path: Path) -> None:
    assert dumped(tmp_path, {rank: [entry(1), entry(2)] for rank in range(4)}).cause is None


@pytest.mark.full
def test_a_log_is_the_same_in_parts_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: x{0}\n'
    lines = [f"line {number}\n" + trace.format(number) * (number % 50 == 7) for number in range(2000)]
    (tmp_path / "a.log").write_text("".join(lines))
    whole = diagnose([str(tmp_path / "a.log")])
    for size in (1000, 4096, 10_001):
        monkeypatch.setattr(pool, "_PART", size)
        monkeypatch.setattr(pool, "_ALONE", 0)
        parts = diagnose([str(tmp_path / "a.log")])
        assert cause(parts).first == cause(whole).first
        assert parts.inputs.bytes == whole.inputs.bytes
        # a traceback over a border has lost its beginning: its exception is in the other part
        assert 0 <= cause(whole).count - cause(parts).count <= 2 * len("".join(lines)) // size


def test_a_step_that_printed_nothing_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "metadata.json").write_text('{"run_id": "x", "status": "failed", "exit_code": 2, "ended": 2}')
    (tmp_path / "logs/launch.log").write_text("\n")
    (tmp_path / "logs/events.jsonl").write_text('{"event": "step_ended", "name": "rendezvous", "exit_code": 2}\n')
    assert diagnose([str(tmp_path)]).answer == "nothing"


@pytest.mark.parametrize("printed", ["\n", "env.BAR=2\n"])
def test_a_silent_hook_that_ended_the_run_is_told_with_its_exit_code(printed: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    first = {"rank": -1, "what": "hook hooks/check.sh: exit code 4", "exit_code": 4}
    (tmp_path / "metadata.json").write_text(
        json.dumps({"run_id": "x", "status": "failed", "exit_code": 4, "ended": 2, "first_failure": first})
    )
    (tmp_path / "logs/launch.log").write_text(printed)
    earlier = {"event": "step_ended", "name": "hook hooks/env.sh", "exit_code": 0}
    ended = {"event": "step_ended", "name": "hook hooks/check.sh", "exit_code": 4}
    (tmp_path / "logs/events.jsonl").write_text(f"{json.dumps(earlier)}\n{json.dumps(ended)}\n")
    found = cause(diagnose([str(tmp_path)]))
    assert found.first.text == "primus: step 'hook hooks/check.sh' failed before any rank started: exit code 4"
