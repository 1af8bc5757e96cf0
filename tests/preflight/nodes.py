"""Builds the file tree of a healthy node: 8 MI300X, 8 adapters of 400 Gb/s, with the values of real ones.

GPUs, their addresses and links: makora-ai/gpuq's mock, rocprofiler-sdk's capture, AMD's acceptance guide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.machine import machines
from tests.machine.machines import AMD, IB, KFD, PCI

from primus_core.plugins.catalogue import Catalogue
from primus_machine import facts
from primus_machine.captures import capture
from primus_machine.host import HostRoot
from primus_preflight.checks import catalogue
from primus_preflight.checks.check import Check, Node
from primus_preflight.checks.findings import Finding

Tree = dict[str, str | bytes]
"""Text or bytes by path; a path that ends in `/` is an empty folder."""

ADDRESSES = tuple(f"0000:{bus:02x}:00.0" for bus in AMD["MI300X"].buses)
MEASURED = {
    *("host.clock", "host.clock-offset", "host.dmesg", "host.disk-write", "host.disk-read"),
    *("gpu.gemm", "gpu.memory-bandwidth", "gpu.clock-under-load", "gpu.all-reduce"),
    *("gpu.gemm-sustained", "gpu.memory-bandwidth-sustained"),
}
"""Checks that no file answers."""
CPUS = 16
_LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
_MEMORY = """MemTotal:       2377634616 kB
MemFree:        2276518876 kB
MemAvailable:   2298518876 kB
HugePages_Total:       0
HugePages_Free:        0
Hugepagesize:       2048 kB
"""
COUNTERS = (
    *("symbol_error", "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors"),
    "link_downed",
)


def healthy(layer: str = "Ethernet", model: str = "MI300X") -> Tree:
    """The whole node; `layer`: of its adapters."""
    return {**_host(), **_gpus(model), **_network(layer), **_asked()}


def _host() -> Tree:
    governor = {f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor": "performance\n" for cpu in range(CPUS)}
    return {
        **machines.base(cpus=CPUS),
        **governor,
        "proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=/dev/md0 ro pci=realloc=off pci=bfsort iommu=pt\n",
        "proc/meminfo": _MEMORY,
        "proc/self/limits": _LIMITS,
        "proc/self/cgroup": "0::/system.slice/job_7\n",
        "proc/sys/kernel/numa_balancing": "0\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory\n",
        "sys/fs/cgroup/system.slice/memory.max": "max\n",
        "sys/fs/cgroup/system.slice/job_7/memory.max": "max\n",
        "sys/fs/cgroup/system.slice/job_7/cpu.max": "max 100000\n",
        "sys/devices/system/edac/mc/mc0/ue_count": "0\n",
        "sys/devices/system/edac/mc/mc1/ue_count": "0\n",
        f"{PCI}/0000:04:00.0/class": "0x060400\n",
        f"{PCI}/0000:04:00.0/config": bridge(0),
    }


def bridge(control: int) -> bytes:
    """The configuration of a PCI bridge whose ACS control register holds `control`, behind another capability."""
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    config[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
    config[0x14E:0x150] = control.to_bytes(2, "little")
    return bytes(config)


def _gpus(model: str) -> Tree:
    tree: Tree = {**machines.amd(model)}
    for node in range(2, 10):
        path = f"{KFD}/{node}/properties"
        tree[path] = f"{text(tree, path)}fw_version 192\nsdma_fw_version 25\n"
        tree[f"{KFD}/{node}/io_links/0/properties"] = (
            f"type 2\nnode_from {node}\nnode_to {(node - 2) // 4}\nweight 20\n"
        )
        for index, other in enumerate([other for other in range(2, 10) if other != node], 1):
            tree[f"{KFD}/{node}/io_links/{index}/properties"] = (
                f"type 11\nnode_from {node}\nnode_to {other}\nweight 15\n"
            )
    for index, address in enumerate(ADDRESSES):
        folder = f"{PCI}/{address}"
        tree |= {
            f"{folder}/vendor": "0x1002\n",
            f"{folder}/device": f"0x{AMD[model].device_id:04x}\n",
            f"{folder}/class": "0x120000\n",
            f"{folder}/current_link_speed": "32.0 GT/s PCIe\n",
            f"{folder}/current_link_width": "16\n",
            f"{folder}/pcie_replay_count": "0\n",
            f"{folder}/mem_info_vram_used": "298844160\n",
            f"{folder}/hwmon/hwmon{index}/temp2_input": "41000\n",
            f"{folder}/hwmon/hwmon{index}/temp3_input": "36000\n",
            f"{folder}/ras/umc_err_count": "ue: 0\nce: 0\n",
            f"{folder}/ras/gfx_err_count": "ue: 0\nce: 0\n",
        }
    return tree | {"sys/class/kfd/kfd/proc/": ""}


def _network(layer: str) -> Tree:
    tree: Tree = {**machines.routes(("0.0.0.0/0", "eth0", 100)), "sys/class/net/eth0/operstate": "up\n"}
    for index in range(8):
        device = f"mlx5_{index}"
        gids = machines.roce_gids(index) if layer == "Ethernet" else ()
        tree |= machines.port(device, layer=layer, gids=gids, numa=index // 4)
        tree[f"{IB}/{device}/board_id"] = "MT_0000000838\n"
        tree |= {f"{IB}/{device}/ports/1/counters/{name}": "0\n" for name in COUNTERS}
        if layer == "Ethernet":
            tree[f"{IB}/{device}/device/net/ens{index}np0/mtu"] = "9000\n"
    return tree


def _asked() -> Tree:
    devices = ("/dev/kfd", *(f"/dev/dri/renderD{minor}" for minor in range(128, 136)))
    said = asked(access=dict.fromkeys(devices, "open"), space={"/dev/shm": [2**40, 2**40], "/runs": [2**44, 2**43]})
    return said | {device.lstrip("/"): "" for device in devices}


def asked(**said: Mapping[str, object]) -> Tree:
    """What no file says."""
    return {"facts.json": json.dumps({"schema": 1, **said})}


def text(tree: Tree, path: str) -> str:
    """A file that is text."""
    found = tree[path]
    assert isinstance(found, str)
    return found


def write(root: Path, tree: Tree) -> HostRoot:
    """The machine that consists of these files."""
    for path, content in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            (root / path).mkdir(exist_ok=True)
        else:
            (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return HostRoot(str(root), {})


class Held(capture.CapturedHost):
    """A machine in memory, with what is bytes, too."""

    binary: Mapping[str, bytes]

    def data(self, path: str, limit: int) -> bytes:
        return self.binary.get(path.lstrip("/"), b"")[:limit]


def held(tree: Tree) -> HostRoot:
    """The same machine, many times faster than its files."""
    texts = {path: content.strip() for path, content in tree.items() if isinstance(content, str) and path[-1] != "/"}
    folders = capture._listings(path.rstrip("/") for path in tree)
    found = Held("", HostRoot("/nowhere", {}), texts, folders)
    found.binary = {path: content for path, content in tree.items() if isinstance(content, bytes)}
    return found


def checks() -> tuple[Check, ...]:
    """All that are installed, without a project's files."""
    return catalogue.gather(Catalogue.here(HostRoot("/nowhere", {})))


def found(host: HostRoot, *, cpu: bool = False) -> list[Finding]:
    """What all checks find on a machine whose run directory is `/runs`, save those that measure one, or several."""
    node = Node(facts.read(host), "/runs", cpu=cpu)
    return [
        finding for check in checks() if not (check.name in MEASURED or check.meets) for finding in check.findings(node)
    ]
