"""Run here, on this machine: ranks through torchrun, one process for the node, or one plain process.

primus direct -- train pretrain --config exp.yaml
GPUS_PER_NODE=2 primus direct -- train pretrain --config exp.yaml
NNODES=2 NODE_RANK=0 MASTER_ADDR=node1 primus direct -- train pretrain --config exp.yaml
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from primus_core import variables
from primus_core.contracts import launchers
from primus_core.contracts.launcher import LaunchCall
from primus_core.environment import placement, resolve
from primus_core.machine.facts import Facts
from primus_core.plan.plan import Distributed, Step, Variable, Worker
from primus_core.plan.programs import RANK, RENDEZVOUS
from primus_core.plugins.contracts import RuntimeCall, RuntimePlan
from primus_core.request.arguments import Parser, duration, size, whole_number
from primus_core.runtimes.direct.one_per_node import ONE_PER_NODE, devices
from primus_core.runtimes.direct.single import SINGLE

__all__ = ["DIRECT"]


class Direct:
    """Runtime `direct`."""

    name = "direct"
    epilog = """examples:
  primus direct -- train pretrain --config exp.yaml
  primus direct --dry-run -- train pretrain --config exp.yaml training.steps=50
  primus direct --single --env OMP_NUM_THREADS=4 -- bench gemm -M 4096
  GPUS_PER_NODE=2 primus direct --numa -- train pretrain --config exp.yaml

environment: NNODES NODE_RANK GPUS_PER_NODE MASTER_ADDR MASTER_PORT (yours win over a scheduler's)"""

    def add_arguments(self, parser: Parser) -> None:
        """Options of this runtime."""
        parser.add_argument("--single", action="store_true", help="one plain process, told that it is alone")
        parser.add_argument(
            "--env",
            action="append",
            default=[],
            metavar="K=V|FILE",
            help="set a variable for the run (repeatable; K alone passes its value on)",
        )
        parser.add_argument(
            "--profile", metavar="FILE", default="", help="a GPU profile of your own, over the one found"
        )
        parser.add_argument(
            "--hooks", action="append", default=[], metavar="DIR", help="run the hooks in this folder, too (repeatable)"
        )
        parser.add_argument(
            "--patch", action="append", default=[], metavar="FILE", help="run this script before the start (repeatable)"
        )
        numa = parser.add_mutually_exclusive_group()
        numa.add_argument("--numa", action="store_true", help="bind each rank to the CPUs next to its GPU")
        numa.add_argument("--no-numa", dest="numa", action="store_false", help="let ranks run on any CPU (default)")
        parser.add_argument(
            "--max-restarts",
            type=whole_number,
            default=0,
            metavar="N",
            help="restart failed ranks; give up after N consecutive restarts without progress (default 0)",
        )
        parser.add_argument(
            "--hang-timeout",
            type=_seconds,
            default=0.0,
            metavar="SECONDS",
            help="end ranks that print nothing for so long (default: never)",
        )
        parser.add_argument(
            "--rendezvous-timeout",
            type=duration,
            default=600.0,
            metavar="DURATION",
            help="how long nodes wait for each other: 30s, 10m; 0: they start without meeting first (default 10m)",
        )
        parser.add_argument(
            "--log-limit",
            type=size,
            default=0,
            metavar="SIZE",
            help="limit each rank's log to SIZE (2GiB), keeping its beginning and its end (default: no limit)",
        )
        parser.add_argument("--log-file", metavar="FILE", default="", help="also write the console's text to FILE")
        parser.add_argument(
            "--grace-period",
            type=_seconds,
            default=8.0,
            metavar="SECONDS",
            help="from SIGTERM or Ctrl-C to SIGKILL (default 8)",
        )

    def distributed(self, args: argparse.Namespace, facts: Facts) -> Distributed:
        """This node's place: the person's variables, then a scheduler's, then what the machine has."""
        place = placement.resolve(facts, _environ(args, facts))[0]
        return replace(place, gpus_per_node=1, tentative=False) if args.single else place

    def plan(self, call: RuntimeCall) -> RuntimePlan:
        """The task's preparation and its worker as processes."""
        facts, worker, node, prepare = call.facts, call.task.worker, call.distributed, call.task.prepare
        environ = _environ(call.args, facts)
        _, place = placement.resolve(facts, environ)
        if call.args.rendezvous_timeout:
            placement.refuse_wrong_master(facts, node, environ)
        alone = call.args.single or worker.launcher == SINGLE.name
        launcher = launchers.find(SINGLE.name if alone else worker.launcher)
        if not alone and node.nnodes > 1 and call.args.rendezvous_timeout:
            prepare = (*prepare, _rendezvous(facts, node, call.args.rendezvous_timeout))
        if call.args.numa and not launcher.one_per_node:  # beside its GPUs are all CPUs: it is bound to none
            place += _numa(facts, 1 if alone else node.gpus_per_node)
        if alone and call.scope == "run" and node.node_rank > 0:
            return RuntimePlan(prepare, place)  # once per run: node 0 does it
        launch = launcher.plan(LaunchCall(_rank_command(worker), facts, node, environ))
        one = devices(facts, 1, environ) if alone and worker.launcher == ONE_PER_NODE.name else ()
        return RuntimePlan((*prepare, launch.step), (*place, *launch.environment, *one), launch.requires)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 86400:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds above 0 and below 86400")
    return value


def _environ(args: argparse.Namespace, facts: Facts) -> dict[str, str]:
    given = resolve.from_options(args.env, facts.environ)
    return {**facts.environ, **{variable.name: variable.value for variable in given}}


def _rank_command(worker: Worker) -> tuple[str, ...]:
    return ("-m", RANK, worker.module, *worker.args)


def _rendezvous(facts: Facts, place: Distributed, limit_s: float) -> Step:
    """The nodes wait for each other just before their ranks start: what comes before may take longer on some."""
    where = ("--address", place.master_addr, "--port", str(place.master_port))
    node = ("--nodes", str(place.nnodes), "--node-rank", str(place.node_rank), "--timeout", f"{limit_s:g}")
    argv = (facts.python, "-m", RANK, RENDEZVOUS, *where, *node)
    return Step("rendezvous", argv, facts.cwd, kind="rendezvous")


def _numa(facts: Facts, ranks: int) -> tuple[Variable, ...]:
    """CPU lists by local rank: those beside its GPU; without GPUs, ranks are dealt out over the NUMA nodes."""
    nodes = sorted(facts.numa_cpus)
    if not nodes:
        return ()
    beside = [gpu.numa_node for gpu in facts.gpus]
    chosen = [
        beside[r] if r < len(beside) and beside[r] in nodes else nodes[r * len(nodes) // ranks] for r in range(ranks)
    ]
    value = ";".join(facts.numa_cpus[node] for node in chosen)
    return (Variable(variables.NUMA_CPUS, value, "--numa", "CPUs of each local rank's NUMA node"),)


DIRECT = Direct()
