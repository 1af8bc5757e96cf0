"""What is read from the machine, on trees of files that stand for machines."""

from __future__ import annotations

from pathlib import Path

from primus_bench.measure import machine, where
from primus_machine.host import HostRoot


def tree(root: Path, files: dict[str, str]) -> HostRoot:
    """A machine that has these files."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n", encoding="utf-8")
    return HostRoot(str(root), {})


def cache(cpu: int, index: int, level: int, size: str, shared: str, kind: str = "Unified") -> dict[str, str]:
    """One cache of one CPU, as the kernel shows it."""
    folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
    values = {"level": str(level), "size": size, "shared_cpu_list": shared, "type": kind}
    return {f"{folder}/{name}": value for name, value in values.items()}


def test_last_level_caches_of_all_sockets_count_once_each(tmp_path: Path) -> None:
    files: dict[str, str] = {"sys/devices/system/cpu/cpufreq/boost": "1"}
    for cpu in range(4):
        files |= cache(cpu, 0, 1, "48K", str(cpu), "Data") | cache(cpu, 2, 2, "2048K", str(cpu))
        files |= cache(cpu, 3, 3, "32M", "0-1" if cpu < 2 else "2-3")
    assert machine.last_level_cache(tree(tmp_path, files)) == 2 * 32 * 2**20


def test_a_machine_that_does_not_say_has_an_unknown_cache(tmp_path: Path) -> None:
    """Some virtual machines and containers show none."""
    assert machine.last_level_cache(HostRoot(str(tmp_path), {})) is None
    assert machine.last_level_cache(tree(tmp_path, {"sys/devices/system/cpu/cpu0/online": "1"})) is None


def test_the_memory_left_is_the_least_of_machine_and_container(tmp_path: Path) -> None:
    files = {"proc/meminfo": "MemTotal:  4000 kB\nMemAvailable:  3000 kB", "sys/fs/cgroup/memory.max": "max"}
    host = tree(tmp_path, files)
    assert machine.available_memory(host) == 3000 * 1024
    tree(tmp_path, {"sys/fs/cgroup/memory.max": "1048576", "sys/fs/cgroup/memory.current": "48576"})
    assert machine.available_memory(host) == 1_000_000
    assert machine.available_memory(HostRoot(str(tmp_path / "nowhere"), {})) is None


def test_a_cpu_is_called_by_its_model_name(tmp_path: Path) -> None:
    host = tree(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9654: 96 cores\n"})
    assert machine.cpu_name(host) == "AMD EPYC 9654: 96 cores"
    assert machine.cpu_name(HostRoot(str(tmp_path / "nowhere"), {}))


def test_pci_ids_are_read_by_address(tmp_path: Path) -> None:
    folder = "sys/bus/pci/devices/0000:05:00.0"
    host = tree(tmp_path, {f"{folder}/vendor": "0x1002", f"{folder}/device": "0x74a1"})
    assert machine.pci_ids(host, "0000:05:00.0") == (0x1002, 0x74A1)
    assert machine.pci_ids(host, "0000:06:00.0") is None


def test_clock_power_and_temperature_of_a_gpu_are_those_of_its_driver(tmp_path: Path) -> None:
    sensors = "sys/bus/pci/devices/0000:05:00.0/hwmon/hwmon3"
    files = {"power1_average": "745000000", "freq1_input": "2100000000", "temp1_input": "61000"}
    host = tree(tmp_path, {f"{sensors}/{name}": value for name, value in files.items()})
    assert where._gpu(host, "0000:05:00.0") == {"gpu_mhz": 2100.0, "gpu_watts": 745.0, "gpu_celsius": 61.0}
