"""The device under test: its name, its row in the GPU table, its share of that model, its caches and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from primus_bench.measure import machine
from primus_core.errors import MachineError
from primus_machine.gpus import models
from primus_machine.gpus.models import GpuModel
from primus_machine.host import HostRoot

__all__ = ["Device", "address", "fp8_format", "probe", "share_of"]

_CPU_CACHE_UNKNOWN = 64 * 2**20
_MOST_CPU_ROTATION = 4 * 2**30
_LEAST_GPU_ROTATION = 512 * 2**20
"""More than MI300X's 256 MiB Infinity Cache, as hipBLASLt's own benchmark rotates."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device, as the operating system and torch see it."""

    kind: str
    """`cpu` or `cuda`, torch's word for it."""
    name: str
    architecture: str
    compute_units: int
    """CUs or SMs; threads on a CPU."""
    rotation_bytes: int
    """Buffers must be larger than this together, or the last-level cache serves them."""
    memory_bytes: int
    """How much a benchmark may take."""
    fp8: str | None = None
    """torch's name of the fp8 type that the device multiplies, or None."""
    model: GpuModel | None = None

    @property
    def share(self) -> float:
        """The part of its package that this device is: 1/8 for a CPX partition of an MI300X."""
        return share_of(self.compute_units, self.model)

    @property
    def chiplets(self) -> int:
        """Compute dies with an L2 cache of their own."""
        return max(1, round(self.model.chiplets * self.share)) if self.model else 1

    def peak_tflops(self, dtype: str) -> float | None:
        """What this device can do at most, as its maker says; None: not known."""
        return self.limit(self.model.peak_tflops, dtype) if self.model else None

    def limit(self, rates: Mapping[str, float], dtype: str) -> float | None:
        """This device's share of a rate of its model, TFLOP/s; None where the table has none."""
        return rates[dtype] * self.share if dtype in rates else None


def share_of(compute_units: int, model: GpuModel | None) -> float:
    """The part of `model` that has so many compute units."""
    return min(1.0, compute_units / model.compute_units) if model else 1.0


def fp8_format(hip: bool, architecture: str, capability: tuple[int, int]) -> str | None:
    """Name in torch of the e4m3 type that a GPU multiplies: FNUZ on gfx942, OCP on those after it and on NVIDIA."""
    if not hip:
        return "float8_e4m3fn" if capability >= (8, 9) else None
    if architecture.startswith("gfx94"):
        return "float8_e4m3fnuz"
    return "float8_e4m3fn" if architecture.startswith(("gfx95", "gfx12")) else None


def probe(kind: str, host: HostRoot | None = None) -> Device:
    """The device to measure: the rank's GPU for `cuda` (`use_device`), all of torch's threads for `cpu`.

    Raises:
        MachineError: there is no GPU that torch can use.
    """
    host = host or HostRoot()
    return _cpu(host) if kind == "cpu" else _gpu(host)


def _cpu(host: HostRoot) -> Device:
    cache = machine.last_level_cache(host) or _CPU_CACHE_UNKNOWN
    memory = machine.available_memory(host) or 2 * 2**30
    return Device(
        kind="cpu",
        name=machine.cpu_name(host),
        architecture=torch.backends.cpu.get_cpu_capability(),
        compute_units=torch.get_num_threads(),
        rotation_bytes=min(2 * cache, _MOST_CPU_ROTATION),
        memory_bytes=memory // 2,  # others live on this machine too
    )


def _gpu(host: HostRoot) -> Device:
    if not torch.cuda.is_available():
        raise _no_gpu()
    hip = torch.version.hip is not None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    architecture = properties.gcnArchName.split(":")[0] if hip else f"sm_{properties.major}{properties.minor}"
    ids = machine.pci_ids(host, _address(properties))
    return Device(
        kind="cuda",
        name=properties.name,
        architecture=architecture,
        compute_units=properties.multi_processor_count,
        rotation_bytes=max(_LEAST_GPU_ROTATION, 2 * getattr(properties, "L2_cache_size", 0)),
        memory_bytes=torch.cuda.mem_get_info()[0] * 4 // 5,
        fp8=fp8_format(hip, architecture, (properties.major, properties.minor)),
        # the ids first: in a container the driver often calls every AMD device "AMD Radeon Graphics"
        model=(models.by_pci_id(*ids) if ids else None) or models.by_name(properties.name),
    )


def address() -> str:
    """The PCI address of this process's GPU; empty: it uses none."""
    if not torch.cuda.is_initialized():
        return ""
    return _address(torch.cuda.get_device_properties(torch.cuda.current_device()))


def _address(properties: Any) -> str:
    """`domain:bus:device.0`; torch before 2.8 has no such properties."""
    numbers = (getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device"))
    return "{:04x}:{:02x}:{:02x}.0".format(*numbers)


def _no_gpu() -> MachineError:
    built = torch.version.cuda or torch.version.hip
    return MachineError(
        "torch finds no GPU",
        why=f"torch {torch.__version__} " + ("sees no device" if built else "is built without GPU support"),
        fix="install a torch that fits the GPU and its driver (https://pytorch.org),\nor measure the CPU: --device cpu",
    )
