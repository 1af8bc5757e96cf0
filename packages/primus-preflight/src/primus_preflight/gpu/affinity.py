"""Whether each GPU has an adapter near it: what it sends to other nodes should not cross another NUMA node."""

from __future__ import annotations

from collections.abc import Iterator

from primus_preflight.checks.check import Check, Node, absence, no_gpu
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule
from primus_preflight.checks.thresholds import packaged
from primus_preflight.machine import topology

__all__ = ["checks"]

_NAME = "network.distance"


def checks() -> tuple[Check, ...]:
    """The one."""
    requirement = "each GPU has an RDMA adapter on its NUMA node or nearer"
    return (Check(_NAME, requirement, topology.READS, _distance, packaged()[_NAME]),)


def _distance(node: Node, rule: Rule) -> Iterator[Finding]:
    found = topology.read(node.facts)
    if not found.gpus:
        yield no_gpu(node, rule)
    elif not any(port.active for port in node.facts.network.ports):
        is_known = bool(node.facts.network.ports) or found.network_is_shown
        yield absence(node, rule, "no InfiniBand or RoCE port is up here", is_known=is_known)
    else:
        yield from (_of(found, gpu, rule) for gpu in found.gpus)


def _of(found: topology.Topology, gpu: topology.Accelerator, rule: Rule) -> Finding:
    near = found.serving(gpu)
    if near.nics:
        return rule.good(gpu.address, near.how)
    return rule.bad(gpu.address, near.how) if near.is_known else rule.unknown(gpu.address, near.how)
