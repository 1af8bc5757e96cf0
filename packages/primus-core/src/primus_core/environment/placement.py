"""Where this node stands in the job: `NNODES`, `NODE_RANK`, `GPUS_PER_NODE`, `MASTER_ADDR`, `MASTER_PORT`.

One rule: what the person set wins over what the scheduler says, which wins over the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from primus_core.contracts import schedulers
from primus_core.environment.nesting import is_alone
from primus_core.plan.plan import Distributed, Variable
from primus_machine.errors import RequestError
from primus_machine.facts import Facts
from primus_machine.gpus.visible import choosing, visible
from primus_machine.variables import GPU_MODEL

if TYPE_CHECKING:
    from primus_core.contracts.scheduler import Scheduler

__all__ = ["MAX_GPUS_PER_NODE", "allocated", "allocation", "given", "node_count", "refuse_wrong_master", "resolve"]

MAX_GPUS_PER_NODE = 72
"""The largest node that one operating system sees today: an NVL72 rack."""

_MAX_NODES = 1_000_000
_DEFAULT_PORT = 1234
_PAGE = "docs/direct.md"
_KUBERNETES = "KUBERNETES_SERVICE_HOST"
"""Where it is set, the address of a service may lead here that is none of this node's."""
_HOST = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?$"


def resolve(facts: Facts, environ: Mapping[str, str]) -> tuple[Distributed, tuple[Variable, ...]]:
    """This node's place and the variables that say so, from `environ` (the person's, `--env` on top) and the machine.

    Raises:
        RequestError: a value is no number, out of range, or contradicts another.
    """
    for scheduler in schedulers.all_of_them():
        scheduler.refuse(environ)
    nnodes, nnodes_from = _number("NNODES", environ, 1, 1, _MAX_NODES)
    node_rank, rank_from = _number("NODE_RANK", environ, 0, 0, _MAX_NODES)
    if node_rank >= nnodes:
        raise RequestError(
            f"NODE_RANK is {node_rank}, but NNODES is {nnodes}",
            why=f"node ranks run from 0 to {nnodes - 1} (NODE_RANK from {rank_from}, NNODES from {nnodes_from})",
            fix=f"set NODE_RANK to 0 to {nnodes - 1}, another one on each node, or unset both",
        )
    devices = len(visible(facts.gpus, environ))
    gpus, source = _number("GPUS_PER_NODE", environ, max(devices, 1), 1, MAX_GPUS_PER_NODE)
    addr, addr_from = _address(environ, nnodes)
    # One node: a free port, so that two runs on one machine do not collide. Several: one that all of them know.
    own_port, meet = (facts.free_port, "free now") if nnodes == 1 else _port_of_job(environ)
    port, port_from = _number("MASTER_PORT", environ, own_port, 1, 65535)
    meet = meet if port_from == "default" else "where the ranks meet"
    place = Distributed(nnodes, node_rank, gpus, addr, port, tentative=not facts.host.is_known and source == "default")
    detected = _found(facts, environ) if facts.host.is_known else "unknown until the scheduler has chosen nodes"
    asked = f"devices to use on each node{f'; it has only {devices}' if 0 < devices < gpus else ''}"
    # A scheduler gives each job lists of its own: a person has not set them, and must not type them again.
    lists = choosing(facts.gpus, environ) if facts.gpus and not _scheduler(environ) else ()
    said = environ.get(GPU_MODEL, "").strip()
    rows = (
        *((name, environ[name], "user", "GPUs that the ranks may use") for name in lists),
        *[(GPU_MODEL, said, "user", "what the GPUs of this machine are taken for")] * bool(said),
        ("NNODES", nnodes, nnodes_from, "nodes in the job; each of them runs this command"),
        ("NODE_RANK", node_rank, rank_from, "this node's index"),
        ("GPUS_PER_NODE", gpus, source, detected if source == "default" else asked),
        ("MASTER_ADDR", addr, addr_from, "where the ranks meet"),
        ("MASTER_PORT", port, port_from, meet),
    )
    return place, tuple(Variable(name, str(value), origin, why, source=_PAGE) for name, value, origin, why in rows)


def given(name: str, environ: Mapping[str, str]) -> str:
    """The value of `NODE_RANK` or another of these, as the user or else the scheduler set it; empty: not set."""
    scheduler = _scheduler(environ)
    names = (name, *(scheduler.variables.get(name, ()) if scheduler else ()))
    return next((environ[name] for name in names if environ.get(name, "").strip()), "")


def node_count(environ: Mapping[str, str]) -> int:
    """How many nodes `environ` says there are.

    Raises:
        RequestError: it is no number, or out of range.
    """
    return _number("NNODES", environ, 1, 1, _MAX_NODES)[0]


def allocation(environ: Mapping[str, str]) -> str:
    """The nodes of the job, as its scheduler lists them; empty: none started this process."""
    scheduler = _scheduler(environ)
    return scheduler.nodes(environ) if scheduler else ""


def allocated(environ: Mapping[str, str]) -> Iterator[str]:
    """Their names, one after the other."""
    scheduler = _scheduler(environ)
    return scheduler.hosts(environ) if scheduler else iter(())


def refuse_wrong_master(facts: Facts, place: Distributed, environ: Mapping[str, str]) -> None:
    """The ranks meet on node 0, so MASTER_ADDR must lead there. Only node 0 knows all of its addresses.

    Raises:
        RequestError: it leads elsewhere, as far as can be seen.
    """
    addr, nodes = environ.get("MASTER_ADDR", "").strip(), allocation(environ)
    if not addr or place.nnodes == 1 or place.node_rank or not facts.host.is_here or environ.get(_KUBERNETES):
        return
    scheduler = _scheduler(environ)
    node = (scheduler.numbers(environ).get("node") if scheduler else "") or facts.hostname
    found = facts.host.addresses(place.master_addr)
    if addr == node or any(map(facts.host.is_own, found)) or not (found or nodes):
        return
    leads = f"leads to {', '.join(found)}, which is not an address of {node}" if found else "cannot be resolved there"
    outside = f", not on '{addr}'" if addr.split(".")[0] not in allocated(environ) else ""
    job = f"; the job runs on {nodes}{outside}" if nodes else ""
    by_hand = f"set MASTER_ADDR={node}, or start node rank 0 on {addr}; for a forwarded port: --rendezvous-timeout 0"
    raise RequestError(
        f"MASTER_ADDR is '{addr}', but node rank 0 is {node}",
        why=f"the ranks meet on node rank 0, and '{addr}' {leads}{job}",
        fix=f"unset MASTER_ADDR: {scheduler.title} provides it; or set MASTER_ADDR={node}"
        if scheduler and nodes
        else by_hand,
    )


def _found(facts: Facts, environ: Mapping[str, str]) -> str:
    """What this machine has, in words. Partitions and dies are devices: each of them gets a rank."""
    count = len(facts.gpus)
    if not count:
        return "no GPU found: one process"
    if names := choosing(facts.gpus, environ):
        left = visible(facts.gpus, environ)
        which = f" ({','.join(map(str, left))})" if left else ""
        lists = ", ".join(f"{name}={environ[name]}" for name in names)
        return f"{len(left)} of {count} devices are visible{which}: {lists}"
    several = any(gpu.partitions > 1 for gpu in facts.gpus)
    return f"{count} devices of {facts.physical_gpus} GPUs" if several else f"{count} GPUs"


def _number(name: str, environ: Mapping[str, str], default: int, low: int, high: int) -> tuple[int, str]:
    scheduler = _scheduler(environ)
    for source in (name, *(scheduler.variables.get(name, ()) if scheduler else ())):
        text = environ.get(source, "").strip()
        if not text:
            continue
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise RequestError(
                f"{source} is '{text}'",
                why=f"it must be a whole number from {low} to {high}",
                fix=f"unset or correct {source}",
            )
        return int(text), scheduler.title if scheduler and source != name else "user"
    return default, "default"


def _port_of_job(environ: Mapping[str, str]) -> tuple[int, str]:
    """A port on which all nodes agree without a word between them, and why it is that one."""
    scheduler = _scheduler(environ)
    return (scheduler.port(environ) if scheduler else None) or (_DEFAULT_PORT, "where the ranks meet")


def _scheduler(environ: Mapping[str, str]) -> Scheduler | None:
    """The scheduler that started this process on a node. What a hook or a rank of its run starts, it did not start."""
    return None if is_alone(environ) else schedulers.started(environ)


def _address(environ: Mapping[str, str], nnodes: int) -> tuple[str, str]:
    if addr := environ.get("MASTER_ADDR", "").strip():
        return _checked(addr), "user"
    if nnodes > 1 and (first := next(allocated(environ), "")):
        scheduler = _scheduler(environ)
        return first, scheduler.title if scheduler else ""
    if nnodes > 1:
        raise RequestError(
            f"NNODES is {nnodes}, but MASTER_ADDR is not set",
            why="the nodes need the address of node 0",
            fix="export MASTER_ADDR=<host name or address of node 0> on every node",
        )
    return "localhost", "default"


def _checked(addr: str) -> str:
    import ipaddress  # only where a person gave an address

    bare = addr[1:-1] if addr.startswith("[") and addr.endswith("]") else addr
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass
    if not re.match(_HOST, addr):
        raise RequestError(
            f"MASTER_ADDR is '{addr}'",
            why="it is neither a host name nor an IPv4 or IPv6 address",
            fix="set it to the first node's name or address, without a port",
        )
    return addr
