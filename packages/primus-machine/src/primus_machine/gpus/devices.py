"""The GPUs of a machine: one row for each device that a rank can use, and what a person should know of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from primus_machine import variables
from primus_machine.host import HostRoot, number
from primus_machine.text import Note
from primus_machine.units import counted

if TYPE_CHECKING:
    from primus_machine.gpus.models import GpuModel

__all__ = [
    "PCI",
    "VENDORS",
    "Devices",
    "Gpu",
    "absent",
    "chosen",
    "hidden",
    "memory_of",
    "missing",
    "model_of",
    "named",
    "numa_node",
    "number",
    "pci_id",
    "requested_model",
]

PCI = "/sys/bus/pci/devices"
VENDORS = {"amd": 0x1002, "nvidia": 0x10DE}
"""PCI vendor ids."""
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
    ordinal: int = -1
    """Its number in the lists of visible devices; -1: its place among the devices found."""
    uuid: str = ""
    """Its name in those lists, as `GPU-0123456789abcdef`; empty: not known."""


class Devices(NamedTuple):
    """What a vendor's driver shows."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    """Its version."""
    notes: tuple[str, ...] = ()


def memory_of(model: GpuModel | None) -> int:
    """Bytes of a whole GPU by the table. What its sellers call GB is GiB."""
    return int(model.memory_gb * 2**30) if model else 0


def numa_node(host: HostRoot, address: str) -> int:
    """The NUMA node beside which a PCI device sits; -1 where the machine does not say."""
    text = host.text(f"{PCI}/{address}/numa_node") or ""
    return number(text) if text.isdecimal() else -1


def model_of(vendor: str, device_id: int) -> GpuModel | None:
    """The model by its PCI ids."""
    from primus_machine.gpus import models  # reads a table: only where there is a GPU

    return models.by_pci_id(VENDORS[vendor], device_id)


def requested_model(vendor: str, environ: Mapping[str, str]) -> GpuModel | None:
    """The model that the person says, where it is one of this vendor: what a GPU is taken for that nobody knows."""
    from primus_machine.gpus import models

    model = models.by_name(environ.get(variables.GPU_MODEL, ""))
    return model if model and model.vendor == vendor else None


def chosen(found: Sequence[Devices], environ: Mapping[str, str]) -> Devices:
    """Of two vendors the one that the person says, or else that with more GPUs that Primus knows, or with more."""
    wanted = _vendor_of(environ.get(variables.GPU_MODEL, ""))
    *others, best = sorted(found, key=lambda one: (one.gpus[0].vendor == wanted, _known(one), _count(one.gpus)))
    left = tuple(
        f"{counted(_count(other.gpus), 'GPU')} of {other.gpus[0].vendor} left out ({_addresses(other.gpus)}): no run "
        f"spans two vendors; {variables.GPU_MODEL}={other.gpus[0].vendor} or a model of theirs takes them"
        for other in others
    )
    return best._replace(notes=left + best.notes)


def _known(found: Devices) -> int:
    return _count([gpu for gpu in found.gpus if gpu.model])


def _count(devices: Sequence[Gpu]) -> int:
    return len({gpu.gpu for gpu in devices})


def _addresses(devices: Sequence[Gpu]) -> str:
    return ", ".join(dict.fromkeys(gpu.pci_address for gpu in devices))


def _vendor_of(requested: str) -> str:
    """The vendor that the person's word means, by its name or by that of a model."""
    from primus_machine.gpus import models

    model = models.by_name(requested)
    word = requested.strip().lower()
    return model.vendor if model else word if word in VENDORS else ""


def named(found: Devices, environ: Mapping[str, str]) -> Devices:
    """`found` under the model that the person says, if one is said, and with notes on what is odd about it."""
    requested = environ.get(variables.GPU_MODEL, "").strip()
    if not found.gpus:
        nothing = (f"{variables.GPU_MODEL} is '{requested}', but no GPU was found here",)
        return found._replace(notes=found.notes + (nothing if requested.lower() not in ("", "none") else ()))
    if not requested:
        return found._replace(notes=found.notes + _unknown(found.gpus) + _mixed(found.gpus))
    model, notes = _model_of(requested, found.gpus)
    return found._replace(gpus=tuple(gpu._replace(model=model) for gpu in found.gpus), notes=found.notes + notes)


def _model_of(requested: str, devices: Sequence[Gpu]) -> tuple[str, tuple[str, ...]]:
    """The model that the person's word means, and what to say about it.

    A word that Primus does not know may be the name of a profile that a package brings: `environment.gpu_model` checks.
    """
    from primus_machine.gpus import models

    if requested.lower() == "none":
        return "", ()
    model = models.by_name(requested)
    name = model.name if model else requested
    others = ", ".join(sorted({gpu.model for gpu in devices} - {name, ""}))
    vendor, here = _vendor_of(requested), devices[0].vendor
    if vendor and vendor != here:
        others = f"GPUs of {here}, {others or 'of no model that Primus knows'}, and none of {vendor}"
    return name, (Note(f"{variables.GPU_MODEL} says {name}; found here: {others}", name),) if others else ()


def pci_id(vendor: str, device_id: int) -> str:
    """Return a kind of GPU as PCI names it: `1002:74a1`."""
    return f"{VENDORS.get(vendor, 0):04x}:{device_id:04x}"


def _unknown(devices: Sequence[Gpu]) -> tuple[str, ...]:
    """A note for each kind of GPU that is not in the table."""
    kinds = Counter((gpu.vendor, gpu.device_id, gpu.architecture) for gpu in devices if not gpu.model)
    return tuple(
        Note(
            f"UNKNOWN GPU {pci_id(vendor, device_id)} ({count} of architecture {architecture or 'unknown'}): "
            f"Primus has no profile for its model; set {variables.GPU_MODEL}=<model> if it is one that Primus knows",
            pci_id(vendor, device_id),
        )
        for (vendor, device_id, architecture), count in kinds.items()
    )


def _mixed(devices: Sequence[Gpu]) -> tuple[str, ...]:
    models = Counter(model or "unknown" for _, model in {(gpu.gpu, gpu.model) for gpu in devices})
    listed = ", ".join(f"{count} {model}" for model, count in sorted(models.items()))
    return (f"GPUs of mixed models: {listed}; the profile follows the most frequent one",) if len(models) > 1 else ()


def absent(host: HostRoot, devices: Sequence[Gpu], vendor: str) -> tuple[str, ...]:
    """Addresses of GPUs on the PCI bus that the driver does not list: those of known models and of the models here."""
    from primus_machine.gpus import models

    known = {device for model in models.load() if model.vendor == vendor for device in model.pci_devices}
    known |= {gpu.device_id for gpu in devices} - {0}
    listed = {gpu.pci_address for gpu in devices}
    return tuple(
        address
        for address in host.names(PCI)
        if address not in listed
        and number(host.text(f"{PCI}/{address}/device"), 16) in known
        and number(host.text(f"{PCI}/{address}/vendor"), 16) == VENDORS[vendor]
    )


def missing(addresses: Sequence[str], devices: Sequence[Gpu]) -> tuple[str, ...]:
    """A note on the GPUs of which only the PCI bus tells; without any, on an unusual number of GPUs."""
    if not addresses:
        return _unusual_count(devices)
    count = counted(len(addresses), "GPU")
    return (f"{count} on the PCI bus but not among the driver's: {', '.join(addresses)}; hidden or lost",)


def _unusual_count(devices: Sequence[Gpu]) -> tuple[str, ...]:
    """A note where a GPU may be missing. One machine alone cannot tell for sure."""
    count = _count(devices)
    usual = next((number for number in _USUAL if number >= count), count)
    return (f"{count} GPUs: a node usually has {usual}; one may be missing",) if 0 < count < usual else ()


def hidden(count: int, addresses: Sequence[str]) -> str:
    """A note on devices that the driver refuses to show, by address as far as the PCI bus tells those."""
    which = f": {', '.join(addresses)}" if addresses else ""
    things = counted(count, "GPU device")
    verb = "is" if count == 1 else "are"
    return f"{things} of this machine {verb} hidden from here, by a container's or a job's device list{which}"
