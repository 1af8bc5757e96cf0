"""The NUMA node of a GPU where PCI does not say it: the only one there is, or that of the CPU its links lead to first.

The AMD driver tells how far each CPU is. It counts CPUs in the order of the NUMA nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

from primus_machine.gpus.devices import numa_node
from primus_machine.host import HostRoot, number, numbered

__all__ = ["numa_beside"]

_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
_NUMA = "/sys/devices/system/node"


def numa_beside(host: HostRoot, address: str, folder: str = "") -> int:
    """Of the device at a PCI address; -1: nobody says. `folder`: its node in the AMD driver's topology."""
    reported = numa_node(host, address)
    if reported >= 0:
        return reported
    known = [at for at, name in sorted(numbered(host.names(_NUMA), "node").items()) if _has_cpus(host, name)]
    if len(known) == 1:
        return known[0]
    place = _nearest_cpu(host, folder) if folder else -1
    return known[place] if 0 <= place < len(known) else place


def _has_cpus(host: HostRoot, name: str) -> bool:
    """Memory of a GPU can be a node without CPUs."""
    return bool(host.text(f"{_NUMA}/{name}/cpulist"))


def _nearest_cpu(host: HostRoot, folder: str) -> int:
    """Its place among the CPUs; -1: no link to one can be read."""
    nodes = numbered(host.names(_TOPOLOGY)).items()
    cpus = [at for at, name in nodes if _properties(host, f"{_TOPOLOGY}/{name}").get("cpu_cores_count")]
    links = [_properties(host, f"{folder}/io_links/{name}") for name in host.names(f"{folder}/io_links")]
    near = [(link.get("weight", 0), cpus.index(link["node_to"])) for link in links if link.get("node_to") in cpus]
    return min(near, default=(0, -1))[1]


def _properties(host: HostRoot, folder: str) -> Mapping[str, int]:
    words = (line.split() for line in (host.text(f"{folder}/properties") or "").splitlines())
    return {one[0]: number(one[1]) for one in words if len(one) == 2}
