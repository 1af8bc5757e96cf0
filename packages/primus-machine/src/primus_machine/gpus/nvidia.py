"""NVIDIA GPUs from the kernel driver's files, so that no NVIDIA tool is needed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from primus_machine.gpus.devices import PCI, Devices, Gpu, absent, memory_of, missing, model_of, number, requested_model
from primus_machine.gpus.nearest import numa_beside
from primus_machine.host import HostRoot

if TYPE_CHECKING:
    from primus_machine.gpus.models import GpuModel

__all__ = ["read"]

_FOLDER = "/proc/driver/nvidia"


def read(host: HostRoot) -> Devices:
    """The NVIDIA devices by PCI address, which is CUDA's order with `CUDA_DEVICE_ORDER=PCI_BUS_ID`."""
    names = host.names(f"{_FOLDER}/gpus")
    gpus = tuple(_device(host, name, index) for index, name in enumerate(names))
    if not gpus:
        return Devices()
    return Devices(gpus, _driver(host), missing(absent(host, gpus, "nvidia"), gpus))


def _device(host: HostRoot, name: str, index: int) -> Gpu:
    address = name.lower()[-12:]
    device_id = number(host.text(f"{PCI}/{address}/device"), 16)
    model = _model(host, name, device_id)
    return Gpu(
        vendor="nvidia",
        pci_address=address,
        device_id=device_id,
        numa_node=numa_beside(host, address),
        model=model.name if model else "",
        architecture=model.architecture if model else "",
        memory_bytes=memory_of(model),
        gpu=index,
        ordinal=index,
        uuid=_field(host.text(f"{_FOLDER}/gpus/{name}/information") or "", "GPU UUID"),
    )


def _model(host: HostRoot, name: str, device_id: int) -> GpuModel | None:
    """By its PCI id. The driver's name decides only where no id can be read: one name may stand for several models."""
    from primus_machine.gpus import models

    known = model_of("nvidia", device_id)
    if not device_id:
        information = host.text(f"{_FOLDER}/gpus/{name}/information") or ""
        known = models.by_driver_name(_field(information, "Model"))
    return known or requested_model("nvidia", host.environ)


def _field(text: str, name: str) -> str:
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def _driver(host: HostRoot) -> str:
    """`NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 ...`: the first number with points."""
    found = re.search(r"\b\d+(?:\.\d+)+\b", host.text(f"{_FOLDER}/version") or "")
    return found[0] if found else ""
