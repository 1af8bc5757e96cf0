"""Launcher `one-per-node`: one plain process on each node, which drives all devices there, as JAX does.

It gets its place in torchrun's variables, as the rank of its node, and the place where the processes meet in those that
MaxText reads on GPUs: `JAX_COORDINATOR_IP`, `JAX_COORDINATOR_PORT`, and `NNODES` and `NODE_RANK`, which every run has.
Which GPUs it takes stands in `JAX_LOCAL_DEVICE_IDS`.
"""

from __future__ import annotations

from collections.abc import Mapping

from primus_core.contracts import launchers
from primus_core.contracts.launcher import LaunchCall, Launcher, LaunchPlan, Signalled
from primus_core.environment.resolve import USER
from primus_core.plan.plan import Distributed, Step, Variable
from primus_machine.facts import Facts
from primus_machine.gpus.visible import visible

__all__ = ["ONE_PER_NODE", "devices"]

_IP, _PORT, _DEVICES = "JAX_COORDINATOR_IP", "JAX_COORDINATOR_PORT", "JAX_LOCAL_DEVICE_IDS"
_CLUSTERS = "jax-ml/jax jax/_src/clusters/cluster.py, auto_detect_unset_distributed_params"
_WHERE = "where the nodes' processes meet"


class OnePerNode:
    """One of them."""

    name = launchers.ONE_PER_NODE
    one_per_node = True
    reports = False
    families = ("JAX_COORDINATOR_", _DEVICES)

    def plan(self, call: LaunchCall) -> LaunchPlan:
        """The process of this node. The person's word on the coordinator holds."""
        rank = call.place.node_rank
        step = Step("worker", (call.facts.python, *call.rank), call.facts.cwd, ranks=1, first_rank=rank, kind="worker")
        own = devices(call.facts, call.place.gpus_per_node, call.environ)
        return LaunchPlan(step, (*_standing(call.place, call.environ), *own))

    def signalled(self, output: str) -> tuple[Signalled, ...]:
        """Its process is the rank."""
        return ()


def _standing(place: Distributed, environ: Mapping[str, str]) -> tuple[Variable, ...]:
    ranks = {"RANK": place.node_rank, "LOCAL_RANK": 0, "WORLD_SIZE": place.nnodes, "LOCAL_WORLD_SIZE": 1}
    placement = tuple(Variable(name, str(value), "direct", "one process per node") for name, value in ranks.items())
    # A process that is alone meets nobody. Without an address MaxText starts no coordinator, and takes any choice of
    # visible GPUs; with one, it reads their numbers as those of the machine.
    if place.nnodes == 1 and not {_IP, _PORT} & environ.keys():
        return placement
    meet = {_IP: ("MASTER_ADDR", _address(place.master_addr)), _PORT: ("MASTER_PORT", str(place.master_port))}
    return (*placement, *(_given(name, environ, _WHERE) or _own(name, *own) for name, own in meet.items()))


def _own(name: str, made_of: str, value: str) -> Variable:
    return Variable(name, value, "direct", f"{_WHERE}: {made_of}")


def _given(name: str, environ: Mapping[str, str], why: str) -> Variable | None:
    return Variable(name, environ[name], USER, why) if environ.get(name, "").strip() else None


def devices(facts: Facts, wanted: int, environ: Mapping[str, str]) -> tuple[Variable, ...]:
    """Which GPUs the process takes. Where nobody says, JAX takes all, and as task 0 of a scheduler's step one."""
    count = min(wanted, len(visible(facts.gpus, environ)))
    if not count:
        return ()
    why = f"{count} of the devices that it sees"
    own = Variable(_DEVICES, ",".join(map(str, range(count))), "direct", why, source=_CLUSTERS)
    return (_given(_DEVICES, environ, why) or own,)


def _address(master: str) -> str:
    """`master` as it can stand before a colon and a port. `localhost` may be an IPv6 address that nobody listens to."""
    return "127.0.0.1" if master == "localhost" else f"[{master}]" if ":" in master else master


ONE_PER_NODE: Launcher = OnePerNode()
