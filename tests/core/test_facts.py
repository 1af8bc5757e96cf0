"""What is read from a machine: small trees of `/sys` and `/proc`, and this machine itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from primus_core import facts
from primus_core.facts import Facts, Gpu
from primus_core.host import HostRoot

KFD = "sys/class/kfd/kfd/topology/nodes"
CPU_NODE = "cpu_cores_count 64\nsimd_count 0\nlocation_id 0\n"


def gpu_node(bus: int, *, domain: int = 0, device: int = 0x74A1, partition: int = 0) -> str:
    """The properties of a GPU as the driver writes them; a partition is in the upper bits of the location."""
    location = partition << 28 | bus << 8
    return f"cpu_cores_count 0\nsimd_count 1216\nlocation_id {location}\ndomain {domain}\ndevice_id {device}\nname\n"


def read(root: Path, tree: Mapping[str, str]) -> Facts:
    """The facts of a machine that consists of these files."""
    for path, text in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return facts.read(HostRoot(str(root), {"A": "1"}))


def test_a_machine_without_anything_has_no_gpu(tmp_path: Path) -> None:
    found = read(tmp_path, {})
    assert found.gpus == ()
    assert found.numa_cpus == {}
    assert found.environ == {"A": "1"}


def test_amd_gpus_are_the_nodes_with_simds_in_numeric_order(tmp_path: Path) -> None:
    tree = {f"{KFD}/{n}/properties": CPU_NODE for n in (0, 1)}
    tree |= {f"{KFD}/{n}/properties": gpu_node(n, device=0x74A1) for n in (2, 9, 10)}
    tree |= {"sys/bus/pci/devices/0000:0a:00.0/numa_node": "1\n", "sys/bus/pci/devices/0000:02:00.0/numa_node": "0\n"}
    assert read(tmp_path, tree).gpus == (
        Gpu("amd", "0000:02:00.0", 0x74A1, 0),
        Gpu("amd", "0000:09:00.0", 0x74A1, -1),
        Gpu("amd", "0000:0a:00.0", 0x74A1, 1),
    )


def test_each_partition_of_a_gpu_is_a_device_at_the_same_address(tmp_path: Path) -> None:
    tree = {f"{KFD}/{n}/properties": gpu_node(0x75, domain=1, partition=n) for n in range(8)}
    assert [gpu.pci_address for gpu in read(tmp_path, tree).gpus] == ["0001:75:00.0"] * 8


def test_device_and_function_of_the_address_are_kept(tmp_path: Path) -> None:
    location = 0xC1 << 8 | 0x1F << 3 | 5
    tree = {f"{KFD}/1/properties": f"simd_count 8\nlocation_id {location}\n"}
    assert read(tmp_path, tree).gpus[0].pci_address == "0000:c1:1f.5"


def test_a_node_whose_properties_a_container_may_not_read_is_no_gpu(tmp_path: Path) -> None:
    tree = {f"{KFD}/1/properties": gpu_node(1), f"{KFD}/2/gpu_id": "1\n", f"{KFD}/.note": "of the person who copied it"}
    assert len(read(tmp_path, tree).gpus) == 1


def test_nvidia_gpus_are_those_of_its_driver(tmp_path: Path) -> None:
    tree = {
        "proc/driver/nvidia/gpus/0000:1B:00.0/information": "",
        "proc/driver/nvidia/gpus/0000:43:00.0/information": "",
        "sys/bus/pci/devices/0000:1b:00.0/device": "0x2330\n",
        "sys/bus/pci/devices/0000:1b:00.0/numa_node": "1\n",
    }
    assert read(tmp_path, tree).gpus == (
        Gpu("nvidia", "0000:1b:00.0", 0x2330, 1),
        Gpu("nvidia", "0000:43:00.0", 0, -1),
    )


def test_numa_nodes_with_cpus_are_listed_and_those_of_gpu_memory_are_not(tmp_path: Path) -> None:
    folder = "sys/devices/system/node"
    tree = {
        f"{folder}/node0/cpulist": "0-15,32-47\n",
        f"{folder}/node10/cpulist": "16-31\n",
        f"{folder}/node2/cpulist": "\n",
        f"{folder}/possible": "0-10\n",
    }
    assert read(tmp_path, tree).numa_cpus == {0: "0-15,32-47", 10: "16-31"}


def test_this_machine_is_read_without_an_error() -> None:
    found = facts.read()
    assert found.python == sys.executable
    assert found.cwd == str(Path.cwd())
    assert found.cpu_count == len(os.sched_getaffinity(0))
    assert found.environ["PATH"]
