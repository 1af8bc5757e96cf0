"""Toil on each rank, and fail where that is asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from primus_core.plan.plan import Worker
from primus_core.plugins.contracts import Scope, Task, TaskCall, TaskPlan
from primus_core.request.arguments import Parser

DOINGS = ("work", "wait", "raise", "crash", "lose", "primus")


class Toil:
    """Task `toil`."""

    name = "toil"
    scope: Scope = "rank"
    epilog = "examples:\n  primus grid --nodes 2 -- toil"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument("doing", nargs="?", choices=DOINGS, default="work", help="what the last rank does")

    def plan(self, call: TaskCall) -> TaskPlan:
        return TaskPlan(call.place("output", "toil"), Worker("acme_grid.toil", (call.args.doing,), "acme-fork"))


TOIL: Task = Toil()


def main(doing: str) -> None:
    rank, world, node = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "NODE_RANK"))
    run, meets = Path(os.environ["PRIMUS_RUN_DIR"]), f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    print(f"rank {rank} of {world} on node {node} of {os.environ['NNODES']}, which meet at {meets}")
    if int(rank) < int(world) - 1:  # the others wait, as in a collective operation
        time.sleep(
            600 if doing in ("wait", "raise", "crash") or (doing == "lose" and not (run / "lost").exists()) else 0
        )
    elif doing == "wait":
        (run / "ready").touch()
        time.sleep(600)
    elif doing == "raise":
        raise ValueError("the toil was too hard")
    elif doing == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif doing == "lose" and not (run / "lost").exists():
        (run / "lost").touch()
        host = os.environ["ACME_HOSTS"].split(",")[int(node)]
        pid = Path(os.environ["ACME_GRID"], "jobs", os.environ["ACME_JOB"], host).read_text()
        os.kill(int(pid), signal.SIGKILL)
        time.sleep(600)
    elif doing == "primus":
        subprocess.run([sys.executable, "-m", "primus_core", "direct", "--single", "--", "toil"], check=True)
    print("done", *sorted(name for name in os.environ if name.startswith("ACME_FORK_")))


if __name__ == "__main__":
    main(sys.argv[1])
