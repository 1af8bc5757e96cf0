"""The GPUs of a machine: one row for each device that a rank can use, and what a person should know of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from primus_core.host import HostRoot

if TYPE_CHECKING:
    from primus_core.gpus import GpuModel

__all__ = [
    "MODEL_VARIABLE",
    "Devices",
    "Gpu",
    "memory_of",
    "model_of",
    "named",
    "numa_node",
    "number",
    "unusual_count",
]

MODEL_VARIABLE = "PRIMUS_GPU_MODEL"
"""With it a person says which model all GPUs here are; `none`: no profile."""

_VENDORS = {"amd": 0x1002, "nvidia": 0x10DE}
_USUAL = (1, 2, 4, 8, 16)
"""How many GPUs a node has."""


class Gpu(NamedTuple):
    """One device that a rank can use: a whole GPU, or a partition (AMD CPX, DPX) or die (MI250X) of one."""

    vendor: str
    """`amd` or `nvidia`."""
    pci_address: str
    """Of the GPU: its partitions share it. A die of an MI250X has one of its own."""
    device_id: int = 0
    numa_node: int = -1
    """-1: the machine does not say."""
    model: str = ""
    """The name in the GPU table; empty: a model that nobody has told Primus about."""
    architecture: str = ""
    """`gfx942`, `sm_90`; empty: not known."""
    memory_bytes: int = 0
    """Of this device; 0: not known."""
    gpu: int = 0
    """Which physical GPU of this machine it belongs to, from 0."""
    partition: int = 0
    """Which part of its GPU it is, from 0."""
    partitions: int = 1
    """How many devices its GPU makes."""
    mode: str = ""
    """AMD's partition modes, as `SPX/NPS1` or `CPX/NPS4`, as far as the driver tells; empty: it has none."""


class Devices(NamedTuple):
    """What a vendor's driver shows."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    """Its version."""
    notes: tuple[str, ...] = ()


def number(text: str | None, base: int = 10) -> int:
    """The number that a file of the kernel holds; 0 where it holds none. No kernel writes more than 64 bits."""
    try:
        return max(int((text or "")[:24], base), 0)
    except ValueError:
        return 0


def memory_of(model: GpuModel | None) -> int:
    """Bytes of a whole GPU by the table. What its sellers call GB is GiB."""
    return int(model.memory_gb * 2**30) if model else 0


def numa_node(host: HostRoot, address: str) -> int:
    """The NUMA node beside which a PCI device sits; -1 where the machine does not say."""
    text = host.text(f"/sys/bus/pci/devices/{address}/numa_node") or ""
    return number(text) if text.isdecimal() else -1


def model_of(vendor: str, device_id: int, environ: Mapping[str, str], name: str = "") -> GpuModel | None:
    """The model by its PCI ids or else its driver's `name`; for one that nobody knows, what the person says it is."""
    from primus_core import gpus  # reads a table: only where there is a GPU

    said = environ.get(MODEL_VARIABLE, "")
    return gpus.by_pci_id(_VENDORS[vendor], device_id) or gpus.by_name(name) or gpus.by_name(said)


def named(found: Devices, environ: Mapping[str, str]) -> Devices:
    """`found` under the model that the person says, if one is said, and with notes on what is odd about it."""
    said = environ.get(MODEL_VARIABLE, "").strip()
    if not found.gpus:
        nothing = (f"{MODEL_VARIABLE} is '{said}', but no GPU was found here",)
        return found._replace(notes=found.notes + (nothing if said.lower() not in ("", "none") else ()))
    if not said:
        return found._replace(notes=found.notes + _unknown(found.gpus) + _mixed(found.gpus))
    model, notes = _said(said, found.gpus)
    return found._replace(gpus=tuple(gpu._replace(model=model) for gpu in found.gpus), notes=found.notes + notes)


def _said(said: str, devices: Sequence[Gpu]) -> tuple[str, tuple[str, ...]]:
    """The model that the person's word means, and what to say about it."""
    from primus_core import gpus
    from primus_core.errors import suggestion

    if said.lower() == "none":
        return "", ()
    model = gpus.by_name(said)
    if not model:
        near = suggestion(said, [known.name for known in gpus.load()])
        note = f"{MODEL_VARIABLE} is '{said}', unknown to Primus: no profile, unless one of that name is installed"
        return said, (f"{note}; {near}" if near else note,)
    others = sorted({gpu.model for gpu in devices} - {model.name, ""})
    found = f"{MODEL_VARIABLE} says {model.name}; found here: {', '.join(others)}"
    return model.name, (found,) if others else ()


def _unknown(devices: Sequence[Gpu]) -> tuple[str, ...]:
    """A note for each kind of GPU that is not in the table."""
    kinds = Counter((gpu.vendor, gpu.device_id, gpu.architecture) for gpu in devices if not gpu.model)
    return tuple(
        f"UNKNOWN GPU {_VENDORS[vendor]:04x}:{device_id:04x} ({count} of architecture {architecture or 'unknown'}): "
        f"only the base profile applies; set {MODEL_VARIABLE}=<model> if it is one that Primus knows"
        for (vendor, device_id, architecture), count in kinds.items()
    )


def _mixed(devices: Sequence[Gpu]) -> tuple[str, ...]:
    models = Counter(model or "unknown" for _, model in {(gpu.gpu, gpu.model) for gpu in devices})
    listed = ", ".join(f"{count} {model}" for model, count in sorted(models.items()))
    return (f"GPUs of mixed models: {listed}; the profile follows the most frequent one",) if len(models) > 1 else ()


def unusual_count(devices: Sequence[Gpu]) -> tuple[str, ...]:
    """A note where a GPU may be missing. One machine alone cannot tell for sure."""
    count = len({gpu.gpu for gpu in devices})
    usual = next((number for number in _USUAL if number >= count), count)
    return (f"{count} GPUs: a node has usually {usual}; is one missing?",) if 0 < count < usual else ()
