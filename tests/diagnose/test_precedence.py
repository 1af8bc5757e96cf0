"""Whatever else the logs hold, the cause comes first."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from tests.diagnose.logs import SYMPTOMS, healthy, write

from primus_diagnose import Verdict
from primus_diagnose.diagnosis import diagnose, of_gathered
from primus_diagnose.inputs.gathered import Gathered
from primus_diagnose.scan.source import Source
from primus_diagnose.signatures.catalogue import Catalogue, built_in
from primus_diagnose.signatures.signature import Signature
from primus_diagnose.text import render
from primus_diagnose.verdict import from_dict

CATALOGUE = built_in()
CAUSES = [one for one in CATALOGUE if one.role == "cause" and one.samples]


def judged(*texts: str, catalogue: Catalogue = CATALOGUE, folder: Path) -> Verdict:
    """The verdict on the logs of ranks 0, 1, ..."""
    return of_gathered(catalogue, Gathered(write(folder, *texts)))


@pytest.mark.parametrize("one", CAUSES, ids=lambda one: one.id)
@pytest.mark.full
def test_a_cause_in_ten_thousand_healthy_lines_beats_the_symptoms_of_other_ranks(
    one: Signature, tmp_path: Path
) -> None:
    picked = random.Random(one.id)
    for sample in one.samples:
        lines = healthy(10_000, picked)
        lines.insert(picked.randrange(10_000), sample)
        others = ["\n".join([*healthy(50, picked), *picked.sample(SYMPTOMS, 3)]) for _ in range(3)]
        verdict = judged(others[0], "\n".join(lines), *others[1:], folder=tmp_path)
        assert verdict.cause is not None
        assert (verdict.cause.signature, verdict.cause.first.file) == (one.id, "rank_1.log"), sample
        assert lines[verdict.cause.first.line - 1] == sample
        assert {one.role for one in verdict.others} <= {"cause", "symptom", "evidence", "noise"}


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "maxtext"])
def test_a_run_that_is_well_has_no_finding(framework: str, tmp_path: Path) -> None:
    verdict = judged("\n".join(healthy(10_000, random.Random(1), framework)), folder=tmp_path)
    assert (verdict.answer, verdict.cause, verdict.others) == ("nothing", None, ())


def test_a_rank_that_aborts_after_a_timeout_of_a_collective_is_no_cause(tmp_path: Path) -> None:
    timeout = (
        "[rank0]:[E321 02:07:08.408 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout"
    )
    aborted = f"{timeout}\nterminate called after throwing an instance of 'c10::DistBackendError'\n"
    verdict = judged(aborted, aborted.replace("ank 0", "ank 1").replace("ank0", "ank1"), folder=tmp_path)
    assert (verdict.answer, verdict.cause) == ("symptoms", None)
    assert judged("Fatal Python error: Aborted\n", folder=tmp_path).answer == "cause", "alone, it is all that is known"


def test_symptoms_alone_are_no_cause_and_the_answer_says_what_to_collect(tmp_path: Path) -> None:
    verdict = judged(SYMPTOMS[0], SYMPTOMS[1], folder=tmp_path)
    assert (verdict.answer, verdict.cause, verdict.confidence) == ("symptoms", None, "")
    assert any("TORCH_FR_BUFFER_SIZE" in one for one in verdict.missing.collect)
    assert any("dmesg" in one for one in verdict.missing.collect)


@pytest.mark.parametrize(
    "then", ["rank 0 then failed: RuntimeError: [../gloo/pair.cc:1] ", "the others waited for 30 s: "]
)
def test_a_rank_that_left_early_is_the_cause_and_no_log_of_nccl_is_asked_for(then: str, tmp_path: Path) -> None:
    closed = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:31044"
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs", f"Traceback (most recent call last):\n{closed}\n", "step 3\n")
    what = f"left with exit code 0 after step 3 while others were running; {then}Connection closed by peer [::1]:31044"
    first = {"rank": 1, "what": what, "node_rank": 0, "exit_code": 1, "time": 9.0}
    record = {"run_id": "x", "status": "failed", "exit_code": 1, "started": 1, "ended": 9, "first_failure": first}
    (tmp_path / "metadata.json").write_text(json.dumps(record), encoding="utf-8")
    verdict = diagnose([str(tmp_path)])
    assert verdict.cause
    assert (verdict.cause.signature, verdict.cause.first.rank) == ("proc.left_early", 1)
    assert verdict.missing.collect == ()
    assert "NCCL" not in render(verdict)


@pytest.mark.parametrize(
    ("hooks", "signature", "line"),
    [
        ("", "primus.error", "primus: error: the hooks of mine.py cannot be used: it cannot be loaded"),
        ("[mine.py] ModuleNotFoundError: No module named 'mine_too'\n", "py.module_missing", "logs/hooks.log:1"),
    ],
)
def test_what_ended_a_run_before_its_ranks_is_the_cause(hooks: str, signature: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/hooks.log").write_text(hooks)
    first = {"rank": -1, "what": "the hooks of mine.py cannot be used: it cannot be loaded"}
    record = {"run_id": "x", "status": "failed", "exit_code": 2, "started": 1, "ended": 9, "first_failure": first}
    (tmp_path / "metadata.json").write_text(json.dumps(record), encoding="utf-8")
    verdict = diagnose([str(tmp_path)])
    assert verdict.cause
    assert verdict.cause.signature == signature
    assert line in render(verdict)


BEGAN, ENDED = 1795418000.0, 1795418100.0


@pytest.mark.parametrize(
    ("seconds", "is_cause"), [(BEGAN - 2000, False), (BEGAN - 30, True), (ENDED + 30, True), (ENDED + 2000, False)]
)
@pytest.mark.parametrize(
    "stamp", ["%Y-%m-%dT%H:%M:%S,990410%z", "[%a %b %d %H:%M:%S %Y]", "%b %d %H:%M:%S node1 kernel:"]
)
@pytest.mark.parametrize("name", ["dmesg_node1.log", "slurmctld.log"])
def test_a_line_of_the_kernel_from_before_or_after_the_run_is_not_its_cause(
    name: str, stamp: str, seconds: float, is_cause: bool, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    record = {"run_id": "x", "status": "failed", "exit_code": 1, "started": BEGAN, "ended": ENDED}
    (tmp_path / "run/metadata.json").write_text(json.dumps(record), encoding="utf-8")
    stamped = time.strftime(stamp, time.localtime(seconds))
    (tmp_path / name).write_text(f"{stamped} python invoked oom-killer: gfp_mask=0xcc0\n")
    verdict = diagnose([str(tmp_path / "run"), str(tmp_path / name)])
    assert bool(verdict.cause) == is_cause
    assert from_dict(verdict.to_dict()) == verdict
    assert (f"{name}: 1 line from before the run began" in render(verdict)) == (not is_cause)
    assert diagnose([str(tmp_path / name)]).cause, "without a run, nobody knows"


def test_a_line_of_the_kernel_without_a_time_of_day_counts(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    record = {"run_id": "x", "status": "failed", "exit_code": 1, "started": BEGAN, "ended": ENDED}
    (tmp_path / "run/metadata.json").write_text(json.dumps(record), encoding="utf-8")
    (tmp_path / "dmesg.log").write_text("[ 1234.567890] python invoked oom-killer: gfp_mask=0xcc0\n")
    assert diagnose([str(tmp_path / "run"), str(tmp_path / "dmesg.log")]).cause


def test_a_line_of_the_cause_is_no_other_cause(tmp_path: Path) -> None:
    verdict = judged("primus: error: Error: initializing source docker://foo:1: no such host", folder=tmp_path)
    assert verdict.cause
    assert (verdict.cause.signature, verdict.confidence, verdict.others) == ("sched.image_pull", "certain", ())


def test_the_earlier_of_two_causes_is_the_cause(tmp_path: Path) -> None:
    early = "[rank1]: 2025-11-23 10:00:00 OSError: [Errno 122] Disk quota exceeded"
    late = "2025-11-23 10:10:00 torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB."
    verdict = judged(late, early, folder=tmp_path)
    assert verdict.cause
    assert (verdict.cause.signature, verdict.cause.first.rank, verdict.confidence) == ("fs.quota", 1, "certain")


def test_clocks_that_differ_by_seconds_decide_nothing(tmp_path: Path) -> None:
    generic = "2025-11-23 10:00:00 last step\nTraceback (most recent call last):\nRuntimeError: what a pity\n"
    cause = "2025-11-23 10:00:03 torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB."
    verdict = judged(generic, cause, folder=tmp_path)
    assert verdict.cause
    assert verdict.cause.signature == "oom.gpu_torch"


def test_what_the_run_survived_is_not_the_cause(tmp_path: Path) -> None:
    survived = ["ModuleNotFoundError: No module named 'wandb'", *healthy(100, random.Random(2), "megatron")]
    verdict = judged("\n".join([*survived, "OSError: [Errno 28] No space left on device"]), folder=tmp_path)
    assert verdict.cause
    assert (verdict.cause.signature, verdict.confidence) == ("fs.no_space", "certain")
    [other] = verdict.others
    assert (other.signature, other.before_progress) == ("py.module_missing", True)


def test_a_consequence_names_what_it_follows_from(tmp_path: Path) -> None:
    verdict = judged(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\nSignal 9 (SIGKILL) received by PID 7",
        folder=tmp_path,
    )
    assert verdict.cause
    assert verdict.cause.signature == "oom.host_slurm"
    assert [one.follows for one in verdict.others] == ["oom.host_slurm"]


def test_a_warning_is_a_cause_where_there_is_no_other(tmp_path: Path) -> None:
    warning = "WARN: GPU is throttled, expect performance decrease"
    alone = judged(warning, SYMPTOMS[0], folder=tmp_path)
    assert alone.cause
    assert (alone.cause.signature, alone.confidence) == ("gpu.throttle", "possible")
    both = judged(f"{warning}\nRuntimeError: HIP error: an illegal memory access was encountered", folder=tmp_path)
    assert both.cause
    assert (both.cause.signature, both.confidence) == ("hip.illegal_access", "certain")


def test_the_rank_that_torchrun_blames_is_believed_where_times_are_equal(tmp_path: Path) -> None:
    log = "\n".join(
        [
            *(f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: {error}"
              for rank, error in ((0, "ValueError: bad shape 3"), (1, "KeyError: 'text'"))),
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
            "Failures:", "[1]:", "  rank      : 0 (local_rank: 0)",
            "Root Cause (first observed failure):", "[0]:", "  rank      : 1 (local_rank: 1)",
        ]
    )  # fmt: skip
    (tmp_path / "launch.log").write_text(log, encoding="utf-8")
    verdict = of_gathered(CATALOGUE, Gathered([Source(str(tmp_path / "launch.log"), "launch.log")]))
    assert verdict.cause
    assert (verdict.cause.first.rank, verdict.cause.title) == (1, "An exception ended the program: KeyError: 'text'")


def test_a_rank_that_did_not_time_out_where_all_others_did_is_named(tmp_path: Path) -> None:
    line = (
        "[rank{0}]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600060 milliseconds"
    )
    texts = ["waiting for data" if rank == 2 else line.format(rank) for rank in range(4)]
    verdict = judged(*texts, folder=tmp_path)
    assert verdict.cause
    assert (verdict.cause.signature, verdict.cause.first.rank, verdict.confidence) == (
        "collective.rank_behind",
        2,
        "possible",
    )


def test_ranks_that_called_another_collective_are_named(tmp_path: Path) -> None:
    line = (
        "[Rank {0}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=80078, OpType={1}, NumelIn=4, NumelOut=4, Timeout(ms)=600000)"
    )
    texts = [line.format(rank, "BROADCAST" if rank == 3 else "ALLREDUCE") for rank in range(4)]
    verdict = judged(*texts, folder=tmp_path)
    assert verdict.cause
    assert (verdict.cause.signature, verdict.cause.first.rank) == ("collective.desync", 3)
    assert "BROADCAST where the others call ALLREDUCE" in verdict.cause.title


KILLED = "srun: error: node1: task 0: Killed"
CANCELLED = "slurmstepd-node1: error: *** STEP 22.0 ON node1 CANCELLED AT 2026-11-29T01:25:45 ***"


def test_what_srun_kills_once_a_step_has_ended_is_no_cause_of_that_end(tmp_path: Path) -> None:
    crash = 'Traceback (most recent call last):\n  File "s.py", line 6, in <module>\nValueError: bad batch'
    ended = judged(f"{crash}\n{CANCELLED}\n{KILLED}\n", folder=tmp_path)
    assert {one.signature: one.follows for one in ended.others} == {
        "proc.sigkill": "sched.cancelled",
        "sched.cancelled": "",
    }
    killed = judged(f"{KILLED}\n{CANCELLED}\n", folder=tmp_path)
    assert killed.cause is not None
    assert (killed.cause.signature, killed.cause.follows) == ("proc.sigkill", "")
    cancelled = judged(f"{CANCELLED}\n{KILLED}\n", folder=tmp_path)
    assert (cancelled.answer, cancelled.cause) == ("symptoms", None)
