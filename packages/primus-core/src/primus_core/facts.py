"""What is known about this machine and moment, read once and passed around as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from primus_core.host import HostRoot

__all__ = ["Facts", "Gpu", "Network", "Port", "Route", "read"]

_AMD, _NVIDIA = 0x1002, 0x10DE


class Gpu(NamedTuple):
    """One device that a rank can use: a whole GPU, or a partition (AMD CPX, DPX) or die (MI250X) of one."""

    vendor: str
    """`amd` or `nvidia`."""
    pci_address: str
    """Of the GPU: its partitions share it."""
    device_id: int = 0
    numa_node: int = -1
    """-1: the machine does not say."""
    model: str = ""
    """The name in the GPU table; empty: a model that nobody has told Primus about."""
    architecture: str = ""
    """`gfx942`, `sm_90`; empty: not known."""
    memory_bytes: int = 0
    """Of this device; 0: not known."""
    gpu: int = 0
    """Which physical GPU of this machine it belongs to, from 0."""
    partition: int = 0
    """Which part of its GPU it is, from 0."""
    partitions: int = 1
    """How many devices its GPU makes."""
    mode: str = ""
    """AMD's partition modes, as `SPX/NPS1` or `CPX/NPS4`, as far as the driver tells; empty: it has none."""


class Port(NamedTuple):
    """One port of an InfiniBand or RoCE adapter."""

    device: str
    """`mlx5_0`: what `NCCL_IB_HCA` names."""
    port: int
    active: bool
    """State ACTIVE and link up."""
    link_layer: str
    """`InfiniBand` or `Ethernet` (RoCE)."""
    rate_gbps: float = 0.0
    gid_index: int = -1
    """The GID for RoCE v2, from the port's own table; -1: none, or not RoCE."""
    driver: str = ""
    """The kernel driver: `mlx5_core`, `bnxt_en`, `ionic`."""
    numa_node: int = -1


class Route(NamedTuple):
    """One line of the kernel's routing table."""

    network: str
    """`10.1.0.0/16`, `fd00::/64`, `0.0.0.0/0`."""
    interface: str
    metric: int = 0


class Network(NamedTuple):
    """How this machine reaches others."""

    ports: tuple[Port, ...] = ()
    routes: tuple[Route, ...] = ()


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
    network: Network = Network()
    driver: str = ""
    """Version of the GPU driver; empty: none, or it does not say."""
    rocm: str = ""
    """Version of ROCm, as `6.4.1`; empty: not installed."""
    cuda: str = ""
    """Version of CUDA that is installed; empty: not installed."""
    notes: tuple[str, ...] = ()
    """What a person should know of this machine: a missing partition, a GPU that nobody knows."""

    @property
    def physical_gpus(self) -> int:
        """GPUs as one would count them in the rack."""
        return len({device.gpu for device in self.gpus})

    @property
    def gpu_model(self) -> str:
        """The model of the GPUs (the most frequent one); empty where there is none, or none that Primus knows."""
        models = [gpu.model for gpu in self.gpus]
        return max(sorted(set(models)), key=models.count) if models else ""


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
