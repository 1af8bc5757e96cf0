"""What machine a run had, as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.machine import machines
from tests.machine.machines import port

from primus_machine import facts, system_info


def test_a_machine_is_described_in_full(tmp_path: Path) -> None:
    host = machines.write(tmp_path, machines.base(), machines.amd("MI300X", parts=2), port("mlx5_0"))
    info = system_info.describe(facts.read(host))
    gpus, ports = info.pop("gpus"), info.pop("network_ports")
    assert info == {
        "host": "gpu-node-17",
        "kernel": "6.8.0-60-generic",
        "os": "Ubuntu 24.04.2 LTS",
        "cpu_model": "AMD EPYC 9654 96-Core Processor",
        "cpu_count": 192,
        "memory_bytes": 2377634616 * 1024,
        "numa_cpus": {"0": "0-95", "1": "96-191"},
        "gpu_model": "MI300X",
        "physical_gpus": 8,
        "driver": "6.12.12",
        "rocm": "6.4.1",
        "cuda": "",
        "notes": [],
    }
    assert len(gpus) == 16
    assert gpus[3] == {
        "vendor": "amd",
        "pci_address": "0000:26:00.0",
        "device_id": 0x74A1,
        "numa_node": 0,
        "model": "MI300X",
        "architecture": "gfx942",
        "memory_bytes": 103070826496,
        "gpu": 1,
        "partition": 1,
        "partitions": 2,
        "mode": "DPX/NPS1",
    }
    assert ports == [
        {
            "device": "mlx5_0",
            "port": 1,
            "active": True,
            "link_layer": "InfiniBand",
            "rate_gbps": 400.0,
            "gid_index": -1,
            "driver": "mlx5_core",
            "numa_node": 0,
        }
    ]


def test_a_machine_that_says_nothing_is_described_by_nothing(tmp_path: Path) -> None:
    info = system_info.describe(facts.read(machines.write(tmp_path, {"proc/meminfo": "MemTotal: many kB\n"})))
    names = ("kernel", "os", "cpu_model", "memory_bytes", "gpu_model", "driver")
    assert [info[name] for name in names] == ["", "", "", 0, "", ""]


def test_this_machine_is_described_as_json() -> None:
    info = json.loads(json.dumps(system_info.describe(facts.read())))
    assert info["memory_bytes"] > 0
    assert info["kernel"]
