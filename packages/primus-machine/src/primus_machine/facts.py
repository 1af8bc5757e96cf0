"""What is known about this machine and moment, read once and passed around as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from primus_machine import interconnect
from primus_machine.gpus import amd, devices, nvidia
from primus_machine.gpus.devices import Gpu
from primus_machine.gpus.visible import remarks
from primus_machine.host import HostRoot, numbered
from primus_machine.interconnect import Network, Port, Route

__all__ = ["Facts", "Gpu", "Network", "Port", "Route", "read"]


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
    found = devices.named(_devices(host), host.environ)
    return Facts(
        environ=host.environ,
        hostname=host.hostname(),
        cwd=host.cwd(),
        time=host.now(),
        python=host.python(),
        cpu_count=host.cpu_count(),
        gpus=found.gpus,
        numa_cpus=_numa(host),
        host=host,
        free_port=host.free_port(),
        network=interconnect.read(host),
        driver=found.driver,
        rocm=_rocm(host),
        cuda=_cuda(host),
        notes=(*found.notes, *remarks(found.gpus, host.environ)),
    )


def _devices(host: HostRoot) -> devices.Devices:
    """Of one vendor: no launcher spans two."""
    found = [amd.read(host), nvidia.read(host)]
    if all(one.gpus for one in found):
        return devices.chosen(found, host.environ)
    one, other = sorted(found, key=lambda one: not one.gpus)
    return one._replace(notes=other.notes + one.notes)


def _numa(host: HostRoot) -> dict[int, str]:
    folder = "/sys/devices/system/node"
    nodes = numbered(host.names(folder), "node")
    cpus = {node: host.text(f"{folder}/{name}/cpulist") or "" for node, name in nodes.items()}
    return {node: listed for node, listed in cpus.items() if listed}  # memory of a GPU can be a node without CPUs


def _rocm(host: HostRoot) -> str:
    """`6.4.1` of `6.4.1-83`."""
    return _first_version(host, ("ROCM_PATH", "ROCM_HOME"), "/opt/rocm", {".info/version": r"(\d+(?:\.\d+)+)"})


def _cuda(host: HostRoot) -> str:
    """From `{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}, ...}`, or `CUDA Version 10.2.89` before CUDA 11."""
    forms = {"version.json": r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"', "version.txt": r"CUDA Version ([\d.]+)"}
    return _first_version(host, ("CUDA_HOME",), "/usr/local/cuda", forms)


def _first_version(host: HostRoot, variables: tuple[str, ...], usual: str, forms: Mapping[str, str]) -> str:
    """The version in the first file that says one, in the folders that variables name and the usual one."""
    folders = [*filter(None, (host.environ.get(name) for name in variables)), usual]
    for path, form in ((f"{folder}/{name}", form) for folder in folders for name, form in forms.items()):
        if (text := host.text(path)) and (match := re.search(form, text)):
            return match[1]
    return ""
