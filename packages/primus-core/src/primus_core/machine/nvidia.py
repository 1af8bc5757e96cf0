"""NVIDIA GPUs from the kernel driver's files, so that no NVIDIA tool is needed."""

from __future__ import annotations

import re

from primus_core.host import HostRoot
from primus_core.machine.devices import Devices, Gpu, memory_of, model_of, numa_node, number

__all__ = ["read"]

_FOLDER = "/proc/driver/nvidia"


def read(host: HostRoot) -> Devices:
    """The NVIDIA devices by PCI address, which is CUDA's order with `CUDA_DEVICE_ORDER=PCI_BUS_ID`."""
    names = host.names(f"{_FOLDER}/gpus")
    gpus = tuple(_device(host, name, index) for index, name in enumerate(names))
    return Devices(gpus, _driver(host) if gpus else "")


def _device(host: HostRoot, name: str, index: int) -> Gpu:
    address = name.lower()[-12:]
    device_id = number(host.text(f"/sys/bus/pci/devices/{address}/device"), 16)
    information = host.text(f"{_FOLDER}/gpus/{name}/information") or ""
    model = model_of("nvidia", device_id, host.environ, _field(information, "Model"))
    return Gpu(
        vendor="nvidia",
        pci_address=address,
        device_id=device_id,
        numa_node=numa_node(host, address),
        model=model.name if model else "",
        architecture=model.architecture if model else "",
        memory_bytes=memory_of(model),
        gpu=index,
    )


def _field(text: str, name: str) -> str:
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def _driver(host: HostRoot) -> str:
    """`NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 ...`: the first number with points."""
    found = re.search(r"\b\d+(?:\.\d+)+\b", host.text(f"{_FOLDER}/version") or "")
    return found[0] if found else ""
