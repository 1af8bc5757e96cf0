"""A rank on one of two real nodes that fails and does not end, or leaves while the other needs it, is the reason."""

from __future__ import annotations

import pytest
from tests.lab.side_by_side import Lab
from tests.lab.slurm import wait_until
from tests.slurm.test_faults import Job, ranks_of

BEHAVE = '''
import atexit, ctypes, multiprocessing, os, sys, threading, time
import torch.distributed as dist
from primus_core import register_task

@register_task("steps", scope="rank")
def behave(call):
    """steps HOW: the rank of the second node ends so; the first one waits for it."""
    dist.init_process_group("gloo")
    dist.barrier()
    how = " ".join(call.words)
    if call.rank == 0:
        if how.startswith("sleeper"):
            time.sleep(3600)
        dist.barrier()
        return
    if how.endswith("exit handler"):
        atexit.register(time.sleep, 3600)
    if how.endswith("thread"):
        threading.Thread(target=time.sleep, args=[3600]).start()
    if how.endswith("child process"):
        multiprocessing.Process(target=time.sleep, args=[3600]).start()
    if how.endswith("native call"):
        atexit.register(ctypes.PyDLL(None).sleep, 3600)
    if how.endswith("exits"):
        sys.exit(0)
    if how.endswith("quits"):
        os._exit(0)
    if how.endswith("returns"):
        return
    try:
        raise ValueError("boom in step 3")
    finally:
        if how.endswith("clean-up"):
            dist.recv(__import__("torch").zeros(1), src=0)
'''
FAILS = ("exit handler", "thread", "child process", "native call", "clean-up")
LEAVES = ("exits", "quits", "returns")


def end_of(lab: Lab, how: str) -> tuple[int, dict[str, object], str]:
    """The exit code, the first failure, and what was said."""
    words = ("srun", "-N2", "--", "direct", "--grace-period", "2", "--", "steps", *how.split())
    job = Job(lab, *words, task=BEHAVE)
    code, said = job.end()
    wait_until(lambda: not ranks_of(job.run) and not lab.cluster.jobs())
    return code, job.known["first_failure"], said


@pytest.mark.parametrize("other", ["", "sleeper "])
@pytest.mark.parametrize("how", FAILS)
def test_a_rank_that_has_failed_and_does_not_end_is_the_reason_on_both_nodes(lab: Lab, how: str, other: str) -> None:
    code, first, said = end_of(lab, other + how)
    assert code == 1, said
    assert first == {"rank": 1, "node_rank": 1, "what": "ValueError: boom in step 3"}, said


@pytest.mark.parametrize("other", ["", "sleeper "])
@pytest.mark.parametrize("how", LEAVES)
def test_a_rank_that_leaves_with_0_is_the_reason_on_both_nodes(lab: Lab, how: str, other: str) -> None:
    code, first, said = end_of(lab, other + how)
    assert code == 1, said
    assert (first["rank"], first["node_rank"]) == (1, 1), said
    ways = (
        "left with exit code 0 while others",
        "ended with an unknown exit code (killed by a signal, or `os._exit`) while others",
    )
    assert str(first["what"]).startswith(ways if how == "quits" else ways[0]), said
