"""What is known about this machine and moment, read once and passed around as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from primus_core.host import HostRoot

__all__ = ["Facts", "Gpu", "read"]

_AMD, _NVIDIA = 0x1002, 0x10DE


class Gpu(NamedTuple):
    """One device that a rank can use (a partition counts as a device)."""

    vendor: str
    """`amd` or `nvidia`."""
    pci_address: str
    device_id: int = 0
    numa_node: int = -1
    """-1: the machine does not say."""


class Facts(NamedTuple):
    """The machine as the planner sees it."""

    environ: Mapping[str, str]
    hostname: str
    cwd: str
    time: float
    python: str
    cpu_count: int
    gpus: tuple[Gpu, ...]
    numa_cpus: Mapping[int, str]
    """CPUs of each NUMA node, in the kernel's list form (`0-15,32-47`)."""
    host: HostRoot
    free_port: int = 29500
    """A TCP port that nobody listens on, for ranks that meet on this machine."""


def read(host: HostRoot | None = None) -> Facts:
    """The facts of `host` (default: this machine). Reads a few small files; starts nothing, imports nothing heavy."""
    host = host or HostRoot()
    return Facts(
        environ=host.environ,
        hostname=host.hostname(),
        cwd=host.cwd(),
        time=host.now(),
        python=host.python(),
        cpu_count=host.cpu_count(),
        gpus=_amd(host) or _nvidia(host),
        numa_cpus=_numa(host),
        host=host,
        free_port=host.free_port(),
    )


def _amd(host: HostRoot) -> tuple[Gpu, ...]:
    """AMD devices by the kernel driver's topology: no ROCm tool needed. CPU nodes have `simd_count 0`."""
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    found = []
    for node in sorted(filter(str.isdigit, host.names(nodes)), key=int):
        lines = (host.text(f"{nodes}/{node}/properties") or "").splitlines()
        properties = dict(line.split(None, 1) for line in lines if " " in line)
        if int(properties.get("simd_count", 0)) > 0:
            found.append(_amd_gpu(host, {name: int(value) for name, value in properties.items() if value.isdigit()}))
    return tuple(found)


def _amd_gpu(host: HostRoot, properties: Mapping[str, int]) -> Gpu:
    location = properties.get("location_id", 0)
    # bus, device and function as the amdgpu driver packs them (kfd_topology.c)
    address = (
        f"{properties.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7:x}"
    )
    return Gpu("amd", address, properties.get("device_id", 0), _numa_node(host, address))


def _nvidia(host: HostRoot) -> tuple[Gpu, ...]:
    folder = "/proc/driver/nvidia/gpus"
    found = []
    for name in host.names(folder):
        address = name.lower()[-12:]
        device = host.text(f"/sys/bus/pci/devices/{address}/device")
        found.append(Gpu("nvidia", address, int(device, 16) if device else 0, _numa_node(host, address)))
    return tuple(found)


def _numa_node(host: HostRoot, address: str) -> int:
    return int(host.text(f"/sys/bus/pci/devices/{address}/numa_node") or -1)


def _numa(host: HostRoot) -> dict[int, str]:
    folder = "/sys/devices/system/node"
    nodes = [name for name in host.names(folder) if name.startswith("node") and name[4:].isdigit()]
    cpus = {int(name[4:]): host.text(f"{folder}/{name}/cpulist") or "" for name in nodes}
    return {node: listed for node, listed in cpus.items() if listed}  # memory of a GPU can be a node without CPUs
