"""Run on this machine.

primus direct -- train pretrain --config exp.yaml
GPUS_PER_NODE=2 primus direct -- train pretrain --config exp.yaml
NNODES=2 NODE_RANK=0 MASTER_ADDR=node1 primus direct -- train pretrain --config exp.yaml
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from primus_core import variables
from primus_core.contracts import launchers
from primus_core.contracts.launcher import LaunchCall, LaunchPlan
from primus_core.contracts.launchers import ONE_PER_NODE, SINGLE
from primus_core.environment import placement, resolve
from primus_core.plan.plan import Distributed, Step, Variable
from primus_core.plan.programs import RANK, RENDEZVOUS
from primus_core.plugins.contracts import RuntimeCall, RuntimePlan
from primus_core.request.arguments import Parser, duration, size, whole_number
from primus_machine.errors import expect
from primus_machine.facts import Facts
from primus_machine.gpus.visible import visible

__all__ = ["DIRECT"]


class Direct:
    """Runtime `direct`."""

    name = "direct"
    epilog = """examples:
  primus direct -- train pretrain --config exp.yaml
  primus direct --dry-run -- train pretrain --config exp.yaml training.steps=50
  primus direct --single --env OMP_NUM_THREADS=4 -- bench gemm -M 4096
  GPUS_PER_NODE=2 primus direct --numa -- train pretrain --config exp.yaml

environment: NNODES NODE_RANK GPUS_PER_NODE MASTER_ADDR MASTER_PORT (your values override those of a scheduler)"""

    def add_arguments(self, parser: Parser) -> None:
        """Options of this runtime."""
        _add_process(parser)
        _add_limits(parser)
        _add_logs(parser)
        parser.add_argument("--grace-period", type=_seconds, default=8.0, metavar="DURATION",
                            help="time from SIGTERM or Ctrl-C to SIGKILL (default: 8)")  # fmt: skip

    def distributed(self, args: argparse.Namespace, facts: Facts) -> Distributed:
        """This node's place: the person's variables, then a scheduler's, then what the machine has."""
        place = placement.resolve(facts, _environ(args, facts))[0]
        return place._replace(gpus_per_node=1, tentative=False) if args.single else place

    def plan(self, call: RuntimeCall) -> RuntimePlan:
        """The task's preparation and its worker as processes."""
        facts, worker, node, prepare = call.facts, call.task.worker, call.distributed, call.task.prepare
        environ = _environ(call.args, facts)
        _, place = placement.resolve(facts, environ)
        if call.args.rendezvous_timeout:
            placement.refuse_wrong_master(facts, node, environ)
        alone = call.args.single or worker.launcher == SINGLE
        launcher = launchers.find(SINGLE if alone else worker.launcher)
        if not alone and node.nnodes > 1 and call.args.rendezvous_timeout:
            prepare = (*prepare, _rendezvous(facts, node, call.args.rendezvous_timeout))
        if call.args.numa and not launcher.one_per_node:  # beside its GPUs are all CPUs: it is bound to none
            place += _numa(facts, 1 if alone else node.gpus_per_node, environ)
        if alone and call.scope == "run" and node.node_rank > 0:
            return RuntimePlan(prepare, place)  # once per run: node 0 does it
        call_of = LaunchCall(("-m", RANK, worker.module, *worker.args), facts, node, environ, call.args.grace_period)
        launch = expect(launcher.plan(call_of), LaunchPlan, f"the launcher '{launcher.name}'")
        one = _one_device(facts, environ) if alone and worker.launcher == ONE_PER_NODE else ()
        return RuntimePlan((*prepare, launch.step), (*place, *launch.environment, *one), launch.requires)


def _add_process(parser: Parser) -> None:
    """What starts, with which variables, and what runs before it."""
    add = parser.add_argument
    add("--single", action="store_true", help="start one plain process instead of ranks")
    add("--env", action="append", default=[], metavar="K=V|FILE",
        help="set a variable for the run (repeatable; K alone: its current value)")  # fmt: skip
    add("--profile", metavar="FILE", default="", help="apply your own GPU profile over the detected one")
    add("--hooks", action="append", default=[], metavar="DIR",
        help="also run the hooks in this folder (repeatable)")  # fmt: skip
    add("--patch", action="append", default=[], metavar="FILE",
        help="run this script before the launch (repeatable)")  # fmt: skip
    numa = parser.add_mutually_exclusive_group()
    numa.add_argument("--numa", action="store_true", help="bind each rank to the CPUs next to its GPU")
    numa.add_argument("--no-numa", dest="numa", action="store_false", help="let ranks run on any CPU (default)")


def _add_limits(parser: Parser) -> None:
    """How long to wait, and how often to restart."""
    add = parser.add_argument
    add("--max-restarts", type=whole_number, default=0, metavar="N",
        help="restart failed ranks; give up after N consecutive restarts without progress (default: 0)")  # fmt: skip
    add("--hang-timeout", type=_seconds, default=0.0, metavar="DURATION",
        help="stop ranks that print nothing and log no step for so long: 90, 10m (default: never)")  # fmt: skip
    add("--start-timeout", type=_seconds, default=0.0, metavar="DURATION",
        help="the same limit before the first step (default: that of --hang-timeout)")  # fmt: skip
    add("--rendezvous-timeout", type=duration, default=600.0, metavar="DURATION",
        help="wait this long for all nodes before ranks start: 30s, 10m; 0: no rendezvous (default: 10m)")  # fmt: skip


def _add_logs(parser: Parser) -> None:
    """Where output goes, and how much of it is kept."""
    add = parser.add_argument
    add("--log-limit", type=size, default=0, metavar="SIZE",
        help="limit the log of each rank to SIZE, such as 2GiB; keep its beginning and end "
             "(default: no limit)")  # fmt: skip
    add("--log-file", metavar="FILE", default="", help="also write the console output to FILE")


def _seconds(text: str) -> float:
    if not (value := duration(text)):
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration above 0")
    return value


def _environ(args: argparse.Namespace, facts: Facts) -> dict[str, str]:
    given = resolve.from_options(args.env, facts.environ)
    return {**facts.environ, **{variable.name: variable.value for variable in given}}


def _one_device(facts: Facts, environ: Mapping[str, str]) -> tuple[Variable, ...]:
    """A process that would drive all GPUs of the node, alone with one of them."""
    from primus_core.runtimes.direct.one_per_node import devices

    return devices(facts, 1, environ)


def _rendezvous(facts: Facts, place: Distributed, limit_s: float) -> Step:
    """The nodes wait for each other just before their ranks start: what comes before may take longer on some."""
    where = ("--address", place.master_addr, "--port", str(place.master_port))
    node = ("--nodes", str(place.nnodes), "--node-rank", str(place.node_rank), "--timeout", f"{limit_s:g}")
    argv = (facts.python, "-m", RANK, RENDEZVOUS, *where, *node, *(("--gpus",) if facts.gpus else ()))
    return Step("rendezvous", argv, facts.cwd, kind="rendezvous")


def _numa(facts: Facts, ranks: int, environ: Mapping[str, str]) -> tuple[Variable, ...]:
    """CPU lists by local rank: those beside its GPU; without GPUs, ranks are dealt out over the NUMA nodes."""
    nodes = sorted(facts.numa_cpus)
    if not nodes:
        return ()
    beside = [facts.gpus[index].numa_node for index in visible(facts.gpus, environ)]
    chosen = [
        beside[r] if r < len(beside) and beside[r] in nodes else nodes[r * len(nodes) // ranks] for r in range(ranks)
    ]
    value = ";".join(facts.numa_cpus[node] for node in chosen)
    return (Variable(variables.NUMA_CPUS, value, "--numa", "CPUs of each local rank's NUMA node"),)


DIRECT = Direct()
