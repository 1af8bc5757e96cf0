"""AMD GPUs from the kernel driver's topology, so that no ROCm tool is needed.

How the driver packs its numbers is in Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from primus_machine import variables
from primus_machine.gpus.devices import (
    PCI,
    Devices,
    Gpu,
    absent,
    hidden,
    memory_of,
    missing,
    model_of,
    number,
    requested_model,
)
from primus_machine.gpus.nearest import numa_beside
from primus_machine.host import HostRoot, numbered

if TYPE_CHECKING:
    from primus_machine.gpus.models import GpuModel

__all__ = ["read"]

_TOPOLOGY = "/sys/class/kfd/kfd/topology"
_NODES = f"{_TOPOLOGY}/nodes"
_MODES = {1: "SPX", 2: "DPX", 3: "TPX", 4: "QPX"}
_DIES_ON_PCI = frozenset({"gfx90a"})
"""Architectures whose chiplets are PCI devices of their own, so that no partition mode joins or splits them."""
_ACCELERATORS = frozenset({"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1250"})
"""Architectures that only Instinct GPUs have, so that one of them is none for a screen, whatever its model."""
_SMALLEST = 64
"""SIMDs: the smallest part of an accelerator has 80 (MI308X in CPX), a GPU beside a CPU's cores 4 to 32."""
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
    def is_integrated(self) -> bool:
        """A GPU in a CPU, for its screen. MI300A is none: its GPU is a node without CPUs, of 912 SIMDs."""
        return not self.model and (self.get("cpu_cores_count") > 0 or self.get("simd_count") < _SMALLEST)

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
    folders = [f"{_NODES}/{name}" for name in numbered(host.names(_NODES)).values()]
    if not folders:
        return Devices(notes=_closed(host))
    texts = [host.text(f"{folder}/properties") for folder in folders]
    nodes = [
        _Node(folder, properties, model_of("amd", properties.get("device_id", 0)))
        for folder, text in zip(folders, texts, strict=True)
        if (properties := _properties(text or "")).get("simd_count", 0) > 0  # a CPU has none
    ]
    used = _used(nodes, is_requested=bool(host.environ.get(variables.GPU_MODEL, "").strip()))
    requested = requested_model("amd", host.environ)
    gpus = _devices(host, [node if node.model else node._replace(model=requested) for node in used])
    places = [nodes.index(node) for node in used]  # HIP counts those that are left out, too
    gpus = tuple(gpu._replace(ordinal=place) for gpu, place in zip(gpus, places, strict=True))
    # What the driver refuses is what a container's or a job's device list leaves out.
    notes = (*_left_out(nodes, used), *_not_here(host, nodes, gpus, texts.count(None)))
    return Devices(gpus, host.text("/sys/module/amdgpu/version") or "" if gpus else "", notes)


def _closed(host: HostRoot) -> tuple[str, ...]:
    """A note where the driver is there but its list is not: the driver lists at least the CPU."""
    if "nodes" not in host.names(_TOPOLOGY):
        return ()
    return (f"{_NODES} is empty, so AMD GPUs cannot be detected: you may have no permission, or a container hides it",)


def _used(nodes: Sequence[_Node], *, is_requested: bool) -> list[_Node]:
    """Return the accelerators: GPUs of known models and those like them if there are any, else all that are in no CPU.

    Where a person says what the GPUs are, all are it that may be.
    """
    known = [] if is_requested else [node for node in nodes if node.model]
    alike = _ACCELERATORS | {node.architecture for node in known}
    whole = [node for node in nodes if not node.is_integrated]
    if known:
        return [node for node in nodes if node.model or (node in whole and node.architecture in alike)]
    return whole or list(nodes)


def _left_out(nodes: Sequence[_Node], used: Sequence[_Node]) -> tuple[str, ...]:
    places = {node.folder for node in used}
    left = [node for node in nodes if node.folder not in places]
    if not left:
        return ()
    listed = ", ".join(f"{node.address()} (1002:{node.get('device_id'):04x})" for node in left)
    kept = [index for index, node in enumerate(nodes) if node.folder in places]
    shifted = kept != list(range(len(kept)))
    hip = f"; HIP counts it, too, unless HIP_VISIBLE_DEVICES={','.join(map(str, kept))}" if shifted else ""
    return (f"ignored beside the accelerators: {listed}{hip}",)


def _not_here(host: HostRoot, nodes: Sequence[_Node], gpus: Sequence[Gpu], unread: int) -> tuple[str, ...]:
    """Notes on what this machine has, or should have, that is not among `gpus`."""
    seen = {node.address() for node in nodes} | {node.address(0) for node in nodes}
    lost = [address for address in absent(host, gpus, "amd") if address not in seen]
    if unread:
        return (hidden(unread, lost), *_missing_parts(gpus, "hidden or missing"))
    return (*_missing_parts(gpus, "missing"), *_odd_dies(nodes), *missing(lost, gpus))


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
    # One place twice is no partition of a GPU: only such nodes are told apart by their unique ids, which newer drivers
    # give to each partition, and older ones to each GPU; without any, each is a GPU of its own.
    places = Counter((_package(node), node.partition) for node in nodes)
    alike = {package for (package, _), count in places.items() if count > 1}
    return [pairs.get(node.folder) or _package(node, unique=_package(node) in alike) for node in nodes]


def _package(node: _Node, *, unique: bool = False) -> str:
    place = node.address() if node.parts == 1 else node.address(0)  # a whole GPU's function is one of PCI
    return f"{place} {node.get('unique_id') or node.folder}" if unique else place


def _device(host: HostRoot, node: _Node, gpu: int, group: list[_Node]) -> Gpu:
    parts = _parts(group)
    partition = _partition(node, group) if parts > 1 else 0
    address = node.address() if parts == 1 or node.is_die else node.address(0)
    return Gpu(
        vendor="amd",
        pci_address=address,
        device_id=node.get("device_id"),
        numa_node=numa_beside(host, address, node.folder),
        model=node.model.name if node.model else "",
        architecture=node.architecture,
        memory_bytes=_memory(host, node, address, parts),
        gpu=gpu,
        partition=partition,
        partitions=parts,
        mode=_mode(host, node, address),
        uuid=f"GPU-{node.get('unique_id'):016x}" if 0 < node.get("unique_id") < 2**64 else "",
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
    if total := number(host.text(f"{PCI}/{address}/mem_info_vram_total")):
        return total if node.is_die else total // parts
    return memory_of(node.model) // parts


def _mode(host: HostRoot, node: _Node, address: str) -> str:
    compute = host.text(f"{PCI}/{address}/current_compute_partition") or _derived_mode(node)
    memory = host.text(f"{PCI}/{address}/current_memory_partition") or ""
    return "/".join(filter(None, (compute, memory)))


def _derived_mode(node: _Node) -> str:
    if node.is_die or not node.model or node.model.chiplets == 1 or not node.parts:
        return ""
    return "CPX" if node.get("num_xcc") == 1 else _MODES.get(node.parts, "")


def _missing_parts(gpus: Iterable[Gpu], how: str) -> tuple[str, ...]:
    groups: dict[int, list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(gpu.gpu, []).append(gpu)
    short = (group for group in groups.values() if group[0].mode and len(group) < group[0].partitions)
    return tuple(_missing(group, how) for group in short)


def _missing(group: list[Gpu], how: str) -> str:
    first = group[0]
    lost = sorted(set(range(first.partitions)) - {gpu.partition for gpu in group})
    listed = ", ".join(map(str, lost))
    which, verb = ("partition", "is") if len(lost) == 1 else ("partitions", "are")
    compute = first.mode.partition("/")[0]
    return f"GPU {first.pci_address}: {which} {listed} of 0-{first.partitions - 1} {verb} {how} ({compute})"


def _odd_dies(nodes: Iterable[_Node]) -> tuple[str, ...]:
    dies = [node for node in nodes if node.is_die]
    left = len(dies) % dies[0].parts if dies else 0
    return (f"{len(dies)} dies of GPUs that have two: one is missing",) if left else ()
