"""Builds the file trees of machines: `/sys` and `/proc` as the drivers of real ones write them.

The values are those of real machines: MI300X and MI350X from the mock of makora-ai/gpuq and rocprofiler-sdk's capture,
addresses and NUMA nodes from AMD's acceptance guide, MI210 from the capture beside this file, MI250X from Frontier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from primus_machine.host import HostRoot

Tree = dict[str, str]
KFD = "sys/class/kfd/kfd/topology/nodes"
PCI = "sys/bus/pci/devices"
IB = "sys/class/infiniband"

_GB = 2**30
_KEPT_BY_FIRMWARE = 2**24  # MI300X and MI350X report so much less than their nominal size


class Amd(NamedTuple):
    device_id: int
    version: int
    compute_units: int
    chiplets: int
    """As `num_xcc` counts them: an MI250X has two dies, which are devices of their own with one each."""
    memory_gb: int
    buses: tuple[int, ...]


_MI300 = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
AMD: Mapping[str, Amd] = {
    "MI210": Amd(0x740F, 90010, 104, 1, 64, (0x63, 0x43, 0x03, 0x26, 0xE3, 0xC3, 0x83, 0xA3)),
    "MI250X": Amd(0x7408, 90010, 110, 1, 64, (0xD1, 0xD6, 0xC9, 0xCE, 0xD9, 0xDE, 0xC1, 0xC6)),
    "MI300X": Amd(0x74A1, 90402, 304, 8, 192, _MI300),
    "MI308X": Amd(0x74A2, 90402, 80, 4, 192, _MI300),
    "MI325X": Amd(0x74A5, 90402, 304, 8, 256, _MI300),
    "MI350X": Amd(0x75A0, 90500, 256, 8, 288, _MI300),
    "MI355X": Amd(0x75A3, 90500, 256, 8, 288, _MI300),
}
NVIDIA: Mapping[str, tuple[int, str]] = {
    "H100 SXM": (0x2330, "NVIDIA H100 80GB HBM3"),
    "H200 SXM": (0x2335, "NVIDIA H200"),
    "B200": (0x2901, "NVIDIA B200"),
}


def write(root: Path, *trees: Mapping[str, str], environ: Mapping[str, str] | None = None) -> HostRoot:
    """A machine that consists of these files."""
    for tree in trees:
        for path, text in tree.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return HostRoot(str(root), environ or {})


def base(*, cpus: int = 192) -> Tree:
    """What every machine has: CPUs, memory, an operating system."""
    half = cpus // 2
    return {
        "proc/sys/kernel/hostname": "gpu-node-17\n",
        "proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"\n',
        "proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9654 96-Core Processor\n"
        * 64,
        "proc/meminfo": "MemTotal:       2377634616 kB\nMemFree:        2276518876 kB\n",
        "sys/devices/system/cpu/online": f"0-{cpus - 1}\n",
        "sys/devices/system/node/node0/cpulist": f"0-{half - 1}\n",
        "sys/devices/system/node/node1/cpulist": f"{half}-{cpus - 1}\n",
    }


def amd(model: str, *, parts: int = 1, gpus: int = 8, memory: str = "NPS1") -> Tree:
    """`gpus` GPUs (or dies) of an AMD model, each cut into `parts` partitions."""
    row = AMD[model]
    tree = {f"{KFD}/{node}/properties": _cpu_node() for node in (0, 1)} | {f"{KFD}/{n}/gpu_id": "0\n" for n in (0, 1)}
    node = 2
    for index, bus in enumerate(row.buses[:gpus]):
        address = f"{PCI}/0000:{bus:02x}:00.0"
        tree[f"{address}/numa_node"] = f"{index * 2 // 8}\n"
        if row.chiplets > 1:
            mode = "CPX" if parts == row.chiplets else {1: "SPX", 2: "DPX", 4: "QPX"}[parts]
            tree[f"{address}/current_compute_partition"] = f"{mode}\n"
            tree[f"{address}/current_memory_partition"] = f"{memory}\n"
        for part in range(parts):
            tree |= _amd_node(node, row, index, part, parts)
            node += 1
    return tree | {"sys/module/amdgpu/version": "6.12.12\n", "opt/rocm/.info/version": "6.4.1-83\n"}


def _cpu_node() -> str:
    return "cpu_cores_count 96\nsimd_count 0\nmem_banks_count 1\nvendor_id 0\ndevice_id 0\nlocation_id 0\ndomain 0\n"


def _amd_node(node: int, row: Amd, index: int, part: int, parts: int) -> Tree:
    size = (row.memory_gb * _GB - _KEPT_BY_FIRMWARE) // parts
    properties = {
        "cpu_cores_count": 0,
        "simd_count": row.compute_units * 4 // parts,
        "mem_banks_count": 1,
        "caches_count": 626,
        "io_links_count": 8,
        "max_waves_per_simd": 8,
        "lds_size_in_kb": 160 if row.version == 90500 else 64,
        "wave_front_size": 64,
        "simd_per_cu": 4,
        "gfx_target_version": row.version,
        "vendor_id": 0x1002,
        "device_id": row.device_id,
        "location_id": row.buses[index] << 8 | part,
        "domain": 0,
        "drm_render_minor": 126 + node,
        "hive_id": 7773567030725891371,
        "local_mem_size": 0,
        "unique_id": 15304831566906821053 + index,
        "num_xcc": row.chiplets // parts,
    }
    return {
        f"{KFD}/{node}/properties": "".join(f"{name} {value}\n" for name, value in properties.items()),
        f"{KFD}/{node}/gpu_id": f"{28851 + node}\n",
        f"{KFD}/{node}/mem_banks/0/properties": f"heap_type 1\nsize_in_bytes {size}\nflags 0\nwidth 8192\nmem_clk_max 1300\n",
    }


def nvidia(model: str, *, gpus: int = 8) -> Tree:
    """`gpus` GPUs of an NVIDIA model."""
    device_id, name = NVIDIA[model]
    tree = {
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
        "usr/local/cuda/version.json": '{\n   "cuda" : {\n      "name" : "CUDA SDK",\n      "version" : "12.8.1"\n   },\n'
        '   "nccl" : {"name" : "NCCL", "version" : "2.25"}\n}\n',
    }
    for index, bus in enumerate((0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)[:gpus]):
        address = f"0000:{bus:02x}:00.0"
        tree |= {
            f"proc/driver/nvidia/gpus/{address}/information": f"Model: \t\t {name}\nIRQ:   \t\t {18 + index}\n"
            f"GPU UUID: \t GPU-9221d5d1-b60b-a624-bf14-0a1819cfda{index:02x}\nVideo BIOS: \t 96.00.99.00.01\n"
            f"Bus Type: \t PCIe\nBus Location: \t {address}\nDevice Minor: \t {index}\nGPU Excluded:\t No\n",
            f"{PCI}/{address}/vendor": "0x10de\n",
            f"{PCI}/{address}/device": f"0x{device_id:04x}\n",
            f"{PCI}/{address}/numa_node": f"{index * 2 // 8}\n",
        }
    return tree


ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"


def mapped(address: str) -> str:
    """A GID with an IPv4 address."""
    a, b, c, d = map(int, address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def local(number: int) -> str:
    """A link-local GID."""
    return f"fe80:0000:0000:0000:0e42:a1ff:fe65:{number:04x}"


def roce_gids(index: int) -> list[tuple[str, str]]:
    """The table of a RoCE port with one IPv4 address: each GID is there for RoCE v1 and v2."""
    gids = [(gid, kind) for gid in (local(index), mapped(f"10.20.{index}.7")) for kind in ("IB/RoCE v1", "RoCE v2")]
    return gids + [(ZERO, "")] * 12


def port(
    device: str,
    *,
    number: int = 1,
    layer: str = "InfiniBand",
    rate: str = "400 Gb/sec (4X NDR)",
    state: str = "4: ACTIVE",
    physical: str | None = "5: LinkUp",
    gids: Sequence[tuple[str, str]] = (),
    driver: str = "mlx5_core",
    numa: int = 0,
) -> Tree:
    """One port of an InfiniBand or RoCE adapter. `gids` are GIDs with their types; an empty type cannot be read."""
    folder = f"{IB}/{device}/ports/{number}"
    tree = {
        f"{folder}/state": f"{state}\n",
        f"{folder}/link_layer": f"{layer}\n",
        f"{folder}/rate": f"{rate}\n",
        f"{IB}/{device}/device/uevent": f"DRIVER={driver}\nPCI_CLASS=20700\nPCI_ID=15B3:1021\n",
        f"{IB}/{device}/device/numa_node": f"{numa}\n",
        f"{IB}/{device}/node_guid": "0c42:a103:0065:1a2b\n",
    }
    if physical is not None:
        tree[f"{folder}/phys_state"] = f"{physical}\n"
    for index, (gid, kind) in enumerate(gids):
        tree[f"{folder}/gids/{index}"] = f"{gid}\n"
        if kind:
            tree[f"{folder}/gid_attrs/types/{index}"] = f"{kind}\n"
    return tree


def routes(*lines: tuple[str, str, int]) -> Tree:
    """`/proc/net/route` with (network, interface, metric) a line."""
    import ipaddress

    head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    body = ""
    for text, interface, metric in lines:
        network = ipaddress.IPv4Network(text)
        address, mask = (int.from_bytes(a.packed, "little") for a in (network.network_address, network.netmask))
        body += f"{interface}\t{address:08X}\t00000000\t0001\t0\t0\t{metric}\t{mask:08X}\t0\t0\t0\n"
    return {"proc/net/route": head + body}
