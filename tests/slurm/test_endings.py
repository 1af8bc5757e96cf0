"""How a run on several nodes ended, with a program in the place of srun."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core import test_record as record_fields
from tests.core.test_stop_run import folder, known

from primus_core.journal.record import RunRecord

__all__ = ["folder"]

REFUSED_BY_ONE = """#!/bin/sh
for word; do case $word in PRIMUS_RUN_DIR=*) run=${word#*=} ;; esac; done
mkdir -p "$run/nodes/1"
echo '{"runtime": "direct", "status": "failed", "exit_code": 143, "ended": 50,
       "first_failure": {"rank": -1, "what": "rendezvous: ended with exit code 143"}}' > "$run/nodes/1/metadata.json"
echo "primus: error: MASTER_ADDR is 'nowhere', but node rank 0 is node1" >&2
echo "srun: error: node1: task 0: Exited with exit code 2" >&2
exit 143
"""


@pytest.mark.full
def test_a_node_that_refuses_comes_before_those_that_srun_ends_because_of_it(primus: Run, project: Path) -> None:
    (project / "bin").mkdir()
    (project / "bin/srun").write_text(REFUSED_BY_ONE, encoding="utf-8")
    (project / "bin/srun").chmod(0o755)
    done = primus(
        *("slurm", "srun", "-N2", "--", "analyze", "topology"),
        cwd=project,
        env={"PATH": f"{project}/bin:/usr/bin:/bin"},
    )
    assert done.returncode == 2, done.stderr
    [known] = [json.loads(path.read_text(encoding="utf-8")) for path in project.glob("output/*_*/metadata.json")]
    assert known["first_failure"]["what"] == "node1: MASTER_ADDR is 'nowhere', but node rank 0 is node1"


NODES_OF_A_STOPPED_RUN = """#!/bin/sh
for word; do case $word in PRIMUS_RUN_DIR=*) run=${word#*=} ;; esac; done
mkdir -p $run/nodes/0 $run/nodes/1
echo '{"runtime": "direct", "status": "stopped", "exit_code": 0, "reason": "well done", "ended": 50}' > $run/nodes/0/metadata.json
echo '{"runtime": "direct", "status": "failed", "exit_code": 143, "ended": ENDED,
       "first_failure": {"rank": 1, "what": "ended by SIGTERM"}}' > $run/nodes/1/metadata.json
exit 1
"""
"""What Slurm's nodes leave behind: a hook of node 0 stopped the run, and srun ended node 1."""


@pytest.mark.parametrize(("ended", "is_failure"), [(51, False), (49, True)])
def test_what_ends_because_a_hook_stopped_the_run_is_no_failure(
    primus: Run, folder: Path, ended: int, is_failure: bool
) -> None:
    (folder / "bin").mkdir()
    (folder / "bin/srun").write_text(NODES_OF_A_STOPPED_RUN.replace("ENDED", str(ended)), encoding="utf-8")
    (folder / "bin/srun").chmod(0o755)
    path = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    done = primus("slurm", "srun", "-N2", "--", "direct", "--single", "--", "steps", cwd=folder, env=path)
    assert done.returncode == 0, done.stderr
    found = known(folder)
    assert (found["status"], bool(found.get("first_failure"))) == ("stopped", is_failure)


NODES_WITH_A_WHOLE_RECORD = """#!/bin/sh
for word; do case $word in PRIMUS_RUN_DIR=*) run=${word#*=} ;; esac; done
mkdir -p $run/nodes/0
cp RECORD $run/nodes/0/metadata.json
"""


def test_each_field_that_only_a_node_knows_is_in_the_record_of_the_run(primus: Run, folder: Path) -> None:
    """Under srun, and for a container in the same way: what a node has recorded gets into the run's own record."""
    whole = replace(record_fields.FULL, runtime="direct", status="completed", exit_code=0, first_failure=None)
    (folder / "record.json").write_text(json.dumps(whole.to_dict()), encoding="utf-8")
    (folder / "bin").mkdir()
    (folder / "bin/srun").write_text(NODES_WITH_A_WHOLE_RECORD.replace("RECORD", f"{folder}/record.json"))
    (folder / "bin/srun").chmod(0o755)
    path = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    done = primus("slurm", "srun", "-N2", "--", "direct", "--single", "--", "steps", cwd=folder, env=path)
    assert done.returncode == 0, done.stderr
    found, sent = known(folder), whole.to_dict()
    of_nodes = [one.name for one in fields(RunRecord) if "nodes" in one.metadata.get("from", ())]
    assert {name: found.get(name) for name in of_nodes} == {name: sent[name] for name in of_nodes}
    shared = [one.name for one in fields(RunRecord) if one.name != "others" and "from" not in one.metadata]
    assert all(found.get(name) for name in shared), "a field that no layer claims is lost"


NODES_THAT_FELL_SILENT = """#!/bin/sh
for word; do case $word in PRIMUS_RUN_DIR=*) run=${word#*=} ;; esac; done
mkdir -p $run/nodes/0 $run/nodes/1
for rank in 0 1; do
  echo '{"runtime": "direct", "status": "started", "host": "node'$((rank + 1))'", "node": "node'$((rank + 1))'"}' \\
    > $run/nodes/$rank/metadata.json
done
cat >&2 <<END
PRINTED
END
exit 137
"""
CANCELLED = "slurmstepd-node1: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-24T04:16:58"
OF_A_CANCELLED_STEP = f"""{CANCELLED} ***
srun: error: node1: task 0: Killed
srun: launch/slurm: _step_signal: Terminating StepId=1.0
srun: error: node2: task 1: Killed
srun: Force Terminated StepId=1.0"""
OF_A_KILLED_PRIMUS = f"""srun: error: node2: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=1.0
{CANCELLED} ***
srun: error: node1: task 0: Exited with exit code 143"""
OF_A_LOST_NODE = f"""srun: error: Node failure on node2
{CANCELLED} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***
srun: error: node1: task 0: Exited with exit code 143"""
"""What srun has printed on a real cluster after `scancel 1.0`, `kill -9` of Primus on node2, and a crash of node2."""


@pytest.mark.parametrize(
    ("printed", "status", "cause", "node"),
    [
        (OF_A_CANCELLED_STEP, "interrupted", "sched.ended_by_person", ""),
        (OF_A_KILLED_PRIMUS, "failed", "proc.sigkill", "node2"),
        (OF_A_LOST_NODE, "failed", "sched.node_fail", "node2"),
    ],
    ids=["cancelled", "killed", "node"],
)
@pytest.mark.full
def test_a_cancelled_step_a_killed_process_and_a_lost_node_are_told_apart(
    primus: Run, folder: Path, printed: str, status: str, cause: str, node: str
) -> None:
    (folder / "bin").mkdir()
    (folder / "bin/srun").write_text(NODES_THAT_FELL_SILENT.replace("PRINTED", printed), encoding="utf-8")
    (folder / "bin/srun").chmod(0o755)
    path = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    done = primus("slurm", "srun", "-N2", "--", "direct", "--single", "--", "steps", cwd=folder, env=path)
    assert done.returncode != 0
    assert known(folder)["status"] == status, done.stderr
    found = json.loads(primus("diagnose", "latest", "--json", cwd=folder).stdout)
    assert (found["cause"]["signature"], found["cause"]["first"]["node"]) == (cause, node)
    assert cause == "sched.node_fail" or found["confidence"] == "likely"
