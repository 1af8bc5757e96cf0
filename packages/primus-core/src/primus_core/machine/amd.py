"""AMD GPUs from the kernel driver's topology, so that no ROCm tool is needed.

How the driver packs its numbers is in Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from primus_core.host import HostRoot
from primus_core.machine.devices import Devices, Gpu, memory_of, model_of, numa_node, number, unusual_count

if TYPE_CHECKING:
    from primus_core.gpus import GpuModel

__all__ = ["read"]

_NODES = "/sys/class/kfd/kfd/topology/nodes"
_PCI = "/sys/bus/pci/devices"
_MODES = {1: "SPX", 2: "DPX", 3: "TPX", 4: "QPX"}
_DIES_ON_PCI = frozenset({"gfx90a"})
"""Architectures whose chiplets are PCI devices of their own, so that no partition mode joins or splits them."""
_VRAM = (1, 2)
"""Heap types: memory of the GPU that the CPU can see, and that it cannot."""


class _Node(NamedTuple):
    """A GPU node of the topology."""

    folder: str
    properties: Mapping[str, int]
    model: GpuModel | None

    def get(self, name: str) -> int:
        return self.properties.get(name, 0)

    @property
    def function(self) -> int:
        return self.get("location_id") & 7

    @property
    def partition(self) -> int:
        """The driver writes it where the PCI function stands; older ones into the highest bits."""
        return self.function or self.get("location_id") >> 28 & 0xF

    @property
    def architecture(self) -> str:
        version = self.get("gfx_target_version")
        decoded = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""
        return decoded or (self.model.architecture if self.model else "")

    @property
    def is_die(self) -> bool:
        return bool(self.model and self.model.chiplets > 1 and self.model.architecture in _DIES_ON_PCI)

    @property
    def parts(self) -> int:
        """Devices that its GPU should make; 0: not known."""
        if self.is_die and self.model:
            return self.model.chiplets
        chiplets = self.get("num_xcc")
        return self.model.chiplets // chiplets if self.model and chiplets else 0

    def address(self, function: int | None = None) -> str:
        place = self.get("location_id")
        function = self.function if function is None else function
        return f"{self.get('domain') & 0xFFFFFFFF:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{function:x}"


def read(host: HostRoot) -> Devices:
    """The AMD devices in the driver's order, which is HIP's, too."""
    folders = [f"{_NODES}/{node}" for node in sorted(filter(str.isdecimal, host.names(_NODES)), key=int)]
    texts = [host.text(f"{folder}/properties") for folder in folders]
    nodes = [
        _Node(folder, properties, model_of("amd", properties.get("device_id", 0), host.environ))
        for folder, text in zip(folders, texts, strict=True)
        if (properties := _properties(text or "")).get("simd_count", 0) > 0  # a CPU has none
    ]
    gpus = _devices(host, nodes)
    hidden = texts.count(None)  # the driver refuses what a container's or a job's device list leaves out
    notes = _hidden(hidden) if hidden else (*_missing_parts(gpus), *_odd_dies(nodes), *unusual_count(gpus))
    return Devices(gpus, host.text("/sys/module/amdgpu/version") or "" if gpus else "", notes)


def _properties(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {words[0]: number(words[1]) for words in pairs if len(words) == 2}


def _devices(host: HostRoot, nodes: list[_Node]) -> tuple[Gpu, ...]:
    """Each node as a device of its physical GPU."""
    packages = _packages(nodes)
    order = {key: index for index, key in enumerate(dict.fromkeys(packages))}
    groups: dict[str, list[_Node]] = {key: [] for key in order}
    for key, node in zip(packages, nodes, strict=True):
        groups[key].append(node)
    return tuple(_device(host, node, order[key], groups[key]) for key, node in zip(packages, nodes, strict=True))


def _packages(nodes: list[_Node]) -> list[str]:
    """For each node, a word that names its physical GPU."""
    dies = sorted((node for node in nodes if node.is_die), key=_Node.address)
    # The driver does not say which two dies share a package: they follow each other on the bus (Frontier, LUMI).
    pairs = {node.folder: f"package {index // node.parts}" for index, node in enumerate(dies)}
    return [pairs.get(node.folder) or _package(node) for node in nodes]


def _package(node: _Node) -> str:
    if unique := node.get("unique_id"):
        return str(unique)
    return node.address() if node.parts == 1 else node.address(0)  # a whole GPU's function is one of PCI


def _device(host: HostRoot, node: _Node, gpu: int, group: list[_Node]) -> Gpu:
    parts = _parts(group)
    partition = _partition(node, group) if parts > 1 else 0
    address = node.address() if parts == 1 or node.is_die else node.address(0)
    return Gpu(
        vendor="amd",
        pci_address=address,
        device_id=node.get("device_id"),
        numa_node=numa_node(host, address),
        model=node.model.name if node.model else "",
        architecture=node.architecture,
        memory_bytes=_memory(host, node, address, parts),
        gpu=gpu,
        partition=partition,
        partitions=parts,
        mode=_mode(host, node, address),
    )


def _parts(group: list[_Node]) -> int:
    """Devices that a GPU makes: as many as it should, and as many as its partitions' numbers speak of."""
    parts = max(len(group), *(node.parts for node in group))
    return parts if parts == 1 or group[0].is_die else max(parts, *(node.partition + 1 for node in group))


def _partition(node: _Node, group: list[_Node]) -> int:
    """The driver's number, or the place in the group where that says nothing."""
    numbers = [other.partition for other in group]
    if node.is_die:
        return sorted(group, key=_Node.address).index(node)
    return node.partition if len(set(numbers)) == len(group) else group.index(node)


def _memory(host: HostRoot, node: _Node, address: str, parts: int) -> int:
    banks = (f"{node.folder}/mem_banks/{name}/properties" for name in host.names(f"{node.folder}/mem_banks"))
    found = [_properties(host.text(bank) or "") for bank in banks]
    if size := sum(bank.get("size_in_bytes", 0) for bank in found if bank.get("heap_type") in _VRAM):
        return size
    if total := number(host.text(f"{_PCI}/{address}/mem_info_vram_total")):
        return total if node.is_die else total // parts
    return memory_of(node.model) // parts


def _mode(host: HostRoot, node: _Node, address: str) -> str:
    compute = host.text(f"{_PCI}/{address}/current_compute_partition") or _derived_mode(node)
    memory = host.text(f"{_PCI}/{address}/current_memory_partition") or ""
    return "/".join(filter(None, (compute, memory)))


def _derived_mode(node: _Node) -> str:
    if node.is_die or not node.model or node.model.chiplets == 1 or not node.parts:
        return ""
    return "CPX" if node.get("num_xcc") == 1 else _MODES.get(node.parts, "")


def _missing_parts(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    groups: dict[int, list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(gpu.gpu, []).append(gpu)
    return tuple(_missing(group) for group in groups.values() if group[0].mode and len(group) < group[0].partitions)


def _missing(group: list[Gpu]) -> str:
    first = group[0]
    lost = sorted(set(range(first.partitions)) - {gpu.partition for gpu in group})
    listed = ", ".join(map(str, lost))
    which, verb = ("partition", "is") if len(lost) == 1 else ("partitions", "are")
    compute = first.mode.partition("/")[0]
    return f"GPU {first.pci_address}: {which} {listed} of 0-{first.partitions - 1} {verb} missing ({compute})"


def _odd_dies(nodes: Iterable[_Node]) -> tuple[str, ...]:
    dies = [node for node in nodes if node.is_die]
    left = len(dies) % dies[0].parts if dies else 0
    return (f"{len(dies)} dies of GPUs that have two: one is missing",) if left else ()


def _hidden(count: int) -> tuple[str, ...]:
    return (f"{count} GPU devices of this machine are hidden from here, by a container's or a job's device list",)
