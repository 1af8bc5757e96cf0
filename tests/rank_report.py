"""A package of another team whose task runs as one process per node: each says where it stands."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write"]

_MODULE = '''
"""Say where each node's process stands."""
import atexit, json, os, signal, sys, time
from primus_core.plugins.contracts import TaskPlan
from primus_core.plan.plan import Worker

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NNODES", "NODE_RANK", "GPUS_PER_NODE",
         "JAX_COORDINATOR_IP", "JAX_COORDINATOR_PORT", "XLA_FLAGS")

class RankReport:
    name, scope, epilog = "rank_report", "rank", ""

    def add_arguments(self, parser):
        parser.add_argument("--do", default="say", choices=("say", "raise", "die", "desert", "lose"))
        parser.add_argument("--rank", default="0")

    def plan(self, call):
        worker = Worker("rank_report", (call.args.do, call.args.rank), "one-per-node")
        return TaskPlan(call.place("output", "rank_report"), worker, config={"devices": call.distributed.gpus_per_node})

RANK_REPORT = RankReport()

def await_record(rank):
    """Until there is a record of that rank's failure."""
    path = os.path.join(os.environ["PRIMUS_RUN_DIR"], "logs/failures", f"rank_{rank}.json")
    end = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)

if __name__ == "__main__":
    print(json.dumps({name: os.environ.get(name) for name in NAMES}))
    mine = sys.argv[2] == os.environ["RANK"]
    if sys.argv[1] == "raise" and mine:
        raise ValueError("no roll call")
    if sys.argv[1] in ("die", "desert") and mine:
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "desert":  # as JAX does: the others wait for it
        time.sleep(120)
    if sys.argv[1] == "lose" and mine:  # the other one is quicker to say that it lost this one
        await_record("0")
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "lose":
        atexit.register(await_record, sys.argv[2])
        raise ConnectionResetError("lost a node")
'''


def write(folder: Path) -> str:
    """Install it in `folder`, which goes on PYTHONPATH."""
    known = folder / "rank_report-1.0.dist-info"
    known.mkdir(parents=True)
    (folder / "rank_report.py").write_text(_MODULE, encoding="utf-8")
    (known / "METADATA").write_text("Name: rank_report\nVersion: 1.0\n", encoding="utf-8")
    (known / "entry_points.txt").write_text("[primus.tasks]\nrank_report = rank_report:RANK_REPORT\n", encoding="utf-8")
    return str(folder)
