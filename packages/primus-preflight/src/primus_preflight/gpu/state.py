"""Checks of the GPUs: that all are here and of one kind, free, cool, without errors, and well connected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import mode

from primus_machine.facts import Gpu
from primus_machine.gpus import state
from primus_machine.gpus.devices import absent, pci_id
from primus_machine.units import counted
from primus_preflight.checks.check import NO_GPU, Ask, Check, Node, absence, no_gpu, unseen
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule
from primus_preflight.checks.thresholds import packaged
from primus_preflight.gpu import links, measured, pcie
from primus_preflight.gpu.links import needs_amd, needs_gpus, whole
from primus_preflight.machine import kfd
from primus_preflight.machine.files import GIB, GPU_FOLDER, integer, is_shown, shows_gpus

__all__ = ["checks"]

_KFD = "/sys/class/kfd/kfd/*"
_PROCESSES = "/sys/class/kfd/kfd/proc"
_USUAL = (1, 2, 4, 8, 16)
_NEED = "GPUS_PER_NODE, PRIMUS_GPU_MODEL, Slurm's allocation"


def checks() -> tuple[Check, ...]:
    """Those of the GPUs."""
    of_gpu = f"{GPU_FOLDER}/*"
    driver = ("/sys/module/amdgpu/version", f"{of_gpu}/vendor", f"{of_gpu}/device")
    ras = (f"{of_gpu}/ras/*_err_count",)
    held = (_KFD, f"{kfd.FOLDER}/*/gpu_id", f"{_PROCESSES}/*/pasid", f"{_PROCESSES}/*/vram_*")
    return (
        _check("driver", "the driver is loaded", driver, _driver),
        _check("rocm", "the version of ROCm", ("/opt/rocm/.info/version", "access:/opt/rocm"), _rocm),
        _check("count", "no GPU is missing", (f"{kfd.FOLDER}/*/properties", f"{of_gpu}/device"), _count),
        _check("model", "all GPUs have the same, known model", (f"{kfd.FOLDER}/*/properties",), _model),
        _check("partitions", "no partition is missing", (f"{kfd.FOLDER}/*/properties",), _partitions),
        _check("mode", "all GPUs have the same partition modes", (*kfd.READS, f"{of_gpu}/current_*_partition"), _mode),
        _check("firmware", "all GPUs have the same firmware", (f"{kfd.FOLDER}/*/properties",), _firmware),
        _check("access", "this user may use them", ("access:/dev/kfd", "access:/dev/dri/renderD*"), _access),
        _check("processes", "no other process uses them", held, _processes),
        _check("memory-used", "their memory is free", (f"{of_gpu}/mem_info_vram_used",), needs_amd(_memory_used)),
        _check("temperature", "no GPU is too hot", (f"{of_gpu}/hwmon/hwmon*/temp*_input",), needs_amd(_temperature)),
        _check("uncorrectable", "memory and caches have no uncorrected errors", ras, needs_amd(_ras("ue"))),
        _check("correctable", "memory and caches have few corrected errors", ras, needs_amd(_ras("ce"))),
        _check("pcie-speed", "PCIe runs at full speed", pcie.reads("speed"), pcie.speed),
        _check("pcie-width", "PCIe uses all lanes", pcie.reads("width"), pcie.width),
        _check("pcie-replays", "PCIe has few replays", (f"{of_gpu}/pcie_replay_count",), needs_amd(links.replays)),
        _check("xgmi", "each GPU has a link to all others of its hive", kfd.READS, needs_amd(links.xgmi)),
        *measured.checks(),
    )  # fmt: skip


def _check(name: str, summary: str, reads: tuple[str, ...], ask: Ask) -> Check:
    return Check(f"gpu.{name}", summary, reads, ask, packaged()[f"gpu.{name}"])


def _driver(node: Node, rule: Rule) -> Iterator[Finding]:
    facts = node.facts
    if node.why_cpu:
        yield rule.skip(node.why_cpu)
        return
    if facts.gpus:
        missing = "its version cannot be read (/sys/module/amdgpu/version; one of the kernel's own tree has none)"
        yield rule.good("", facts.driver) if facts.driver else _in_tree(node, rule) or rule.unknown("", missing)
    elif on_bus := _on_bus(node):
        yield rule.bad("", "not loaded", f"GPUs on the PCI bus, but none is the driver's: {', '.join(on_bus)}")
    else:
        yield no_gpu(node, rule)


def _in_tree(node: Node, rule: Rule) -> Finding | None:
    """The driver in the kernel's own tree has no version but the kernel's."""
    release = node.host.text("/proc/sys/kernel/osrelease")
    loaded = "amdgpu" in node.host.names("/sys/module")
    return rule.good("", f"of kernel {release}") if loaded and release else None


@needs_gpus
def _rocm(node: Node, rule: Rule) -> Iterator[Finding]:
    if node.gpus[0].vendor != "amd":
        yield rule.skip("no AMD GPU here")
    else:
        found, why = node.facts.rocm, "not in /opt/rocm: it may be in the container or the wheels"
        is_known = is_shown(node.host, "/opt/rocm")
        yield rule.good("", found) if found else absence(node, rule, why, is_known=is_known)


def _count(node: Node, rule: Rule) -> Iterator[Finding]:
    facts, count = node.facts, len({gpu.gpu for gpu in node.gpus})
    if node.devices:
        yield _for_ranks(node, rule)
    if not node.gpus:
        yield _no_gpu(node, rule)
        return
    unread = [path for path in node.host.paths(f"{kfd.FOLDER}/*/properties") if node.host.text(path) is None]
    lost = absent(node.host, facts.gpus, facts.gpus[0].vendor)
    if unread:
        hidden = counted(len(unread), "device")
        yield rule.unknown("", f"{hidden} hidden from here, by a container's or a job's device list")
    elif lost:
        yield rule.bad("", str(count), f"on the PCI bus, but not the driver's: {', '.join(lost)}", count)
    elif node.is_narrowed and not rule.explicit:
        yield replace(rule.good("", str(count), count), expected="", source=node.lists)
    elif rule.is_set or count in _USUAL:
        yield rule.number("", count)
    else:
        yield rule.bad("", str(count), "a node usually has a power of two; one may be missing", count)


def _no_gpu(node: Node, rule: Rule) -> Finding:
    """Unless somebody wants to train on the CPUs, a node without a GPU may have lost them."""
    if not (node.why_cpu or shows_gpus(node.host)):
        return unseen(node, rule, NO_GPU)
    found = rule.none(node.why_cpu or NO_GPU)
    if node.why_cpu or found.status != "skip" or _on_bus(node):
        return found
    find = "find them: `lspci -d 1002:` (NVIDIA: `lspci -d 10de:`), of the package pciutils"
    fix = f"{find}; to train on the CPUs: PRIMUS_GPU_MODEL=none before the command"
    return replace(found, status="unknown", expected="GPUs, or PRIMUS_GPU_MODEL=none", fix=fix)


def _on_bus(node: Node) -> list[str]:
    """Return the addresses of GPUs that no driver has."""
    return [address for vendor in ("amd", "nvidia") for address in absent(node.host, node.facts.gpus, vendor)]


def _for_ranks(node: Node, rule: Rule) -> Finding:
    """Devices, of which partitions and dies are some, too, against what the launch needs."""
    need = replace(rule, floor=node.devices, limit=None, unit="devices", compare="", source=_NEED)
    return need.number("for ranks", len(node.gpus), why="each rank of this node needs a device")


@needs_gpus
def _model(node: Node, rule: Rule) -> Iterator[Finding]:
    groups: dict[str, list[Gpu]] = {}
    for gpu in whole(node.gpus):
        groups.setdefault(gpu.model, []).append(gpu)
    if len(groups) > 1:
        listed = ", ".join(f"{len(gpus)} {model or 'unknown'}" for model, gpus in groups.items())
        few = min(groups.values(), key=len)
        yield rule.bad("", listed, f"the minority: {', '.join(gpu.pci_address for gpu in few)}")
    elif "" in groups:
        ids = ", ".join(sorted({pci_id(gpu.vendor, gpu.device_id) for gpu in groups[""]}))
        why = f"{ids} is not in Primus's table of GPUs, so there are no thresholds for it"
        fix = f"if it is a model that Primus knows: PRIMUS_GPU_MODEL=<model>; or skip the check: --skip {rule.check}"
        yield replace(rule.unknown("", why), fix=fix)
    else:
        yield rule.good("", next(iter(groups)))


@needs_gpus
def _partitions(node: Node, rule: Rule) -> Iterator[Finding]:
    usual = mode(gpu.mode.partition("/")[0] for gpu in whole(node.gpus))
    rule = replace(rule, fix=rule.fix.replace("MODE", usual) if usual else "reset the GPU")
    for gpu in whole(node.gpus):
        here = sum(other.gpu == gpu.gpu for other in node.facts.gpus)
        measured = f"{here} of {gpu.partitions}"
        yield rule.good(gpu.pci_address, measured) if here == gpu.partitions else rule.bad(gpu.pci_address, measured)


@needs_gpus
def _mode(node: Node, rule: Rule) -> Iterator[Finding]:
    modes = {gpu.pci_address: gpu.mode for gpu in whole(node.gpus)}
    if not any(modes.values()):
        is_known = any(gpu.model for gpu in node.gpus) or is_shown(node.host, GPU_FOLDER)
        yield absence(node, rule, "GPUs of this model are not partitioned", is_known=is_known)
    elif len(found := sorted(set(modes.values()))) > 1:
        few = min(found, key=list(modes.values()).count)
        which = [address for address, mode in modes.items() if mode == few]
        yield rule.bad(
            "", " and ".join(mode or "not reported" for mode in found), f"{few or 'not reported'}: {', '.join(which)}"
        )
    else:
        yield rule.good("", found[0])


@needs_amd
def _firmware(node: Node, rule: Rule) -> Iterator[Finding]:
    """Of compute and copy engines, as the driver numbers them."""
    found = links.devices(node)
    versions = {
        one.address: tuple(one.properties.get(name) for name in ("fw_version", "sdma_fw_version")) for one in found
    }
    kinds = sorted({f"compute {compute}, copy {copy}" for compute, copy in versions.values()})
    if not kinds or any(None in pair for pair in versions.values()):
        yield rule.unknown("", "the driver's topology does not report it")
    elif len(kinds) > 1:
        yield rule.bad(
            "", " and ".join(kinds), "; ".join(f"{address}: {pair[0]}, {pair[1]}" for address, pair in versions.items())
        )
    else:
        yield rule.good("", kinds[0])


@needs_gpus
def _access(node: Node, rule: Rule) -> Iterator[Finding]:
    for path in _device_files(node):
        found = node.host.access(path)
        if (
            not found
            and path.startswith("/dev/dri/")
            and path.rpartition("/")[2] not in (there := node.host.names("/dev/dri"))
        ):
            found = "missing" if there else ""
        if found == "open":
            yield rule.good(path, "open")
        else:
            yield rule.bad(path, found) if found else rule.unknown(path, "the kernel reports nothing about it")


def _device_files(node: Node) -> tuple[str, ...]:
    """Those that ROCm opens for these GPUs; CUDA's."""
    if node.gpus[0].vendor == "nvidia":
        return ("/dev/nvidiactl", *(f"/dev/nvidia{index}" for index in range(node.facts.physical_gpus)))
    found = links.devices(node)
    minors = sorted({one.properties.get("drm_render_minor", 0) for one in found} - {0})
    return ("/dev/kfd", *(f"/dev/dri/renderD{minor}" for minor in minors))


@needs_amd
def _processes(node: Node, rule: Rule) -> Iterator[Finding]:
    host = node.host
    if "proc" not in host.names("/sys/class/kfd/kfd"):
        yield rule.unknown("", f"{_PROCESSES} cannot be read")
        return
    found = [pid for pid in host.names(_PROCESSES) if _uses(node, pid)]
    named = [f"{pid} ({host.text(f'/proc/{pid}/comm') or 'not seen from here'})" for pid in found]
    yield rule.number("", len(found), why=", ".join(named))


def _uses(node: Node, pid: str) -> bool:
    """Return whether a process may use GPUs that are judged. It has memory on those that it uses."""
    files = [name for name in node.host.names(f"{_PROCESSES}/{pid}") if name.startswith("vram_")]
    if not (node.is_narrowed and files):
        return True
    judged = {one.address for one in links.devices(node)}
    every = kfd.nodes(node.host, frozenset(gpu.device_id for gpu in node.gpus))
    ids = {node.host.text(f"{kfd.FOLDER}/{one.number}/gpu_id"): one.address for one in every}
    used = [name for name in files if node.host.text(f"{_PROCESSES}/{pid}/{name}") not in ("0", None)]
    return any(ids.get(name.removeprefix("vram_")) in judged for name in used)


def _memory_used(node: Node, rule: Rule) -> Iterator[Finding]:
    for gpu in whole(node.gpus):
        used = integer(node.host, f"{GPU_FOLDER}/{gpu.pci_address}/mem_info_vram_used")
        if used is None:
            yield links.number_in(
                node.host, rule, gpu.pci_address, f"{GPU_FOLDER}/{gpu.pci_address}/mem_info_vram_used"
            )
        else:
            yield rule.number(gpu.pci_address, used / GIB, measured=f"{used / GIB:.3g}")


def _temperature(node: Node, rule: Rule) -> Iterator[Finding]:
    """The hottest place that the driver tells of."""
    for gpu in whole(node.gpus):
        found = state.read(node.host, gpu.pci_address).celsius
        yield rule.number(gpu.pci_address, found, why="hwmon/*/temp*_input cannot be read" if found is None else "")


def _ras(kind: str) -> Ask:
    """Errors of one kind (`ue`, `ce`) over all blocks of a GPU."""

    def ask(node: Node, rule: Rule) -> Iterator[Finding]:
        for gpu in whole(node.gpus):
            found = state.errors(node.host, gpu.pci_address)
            counts = {block: pair[kind == "ce"] for block, pair in found.items()}
            unread = [block for block, count in counts.items() if count is None]
            if unread:
                yield rule.unknown(gpu.pci_address, f"{', '.join(f'ras/{block}' for block in unread)} cannot be read")
            else:
                listed = ", ".join(
                    f"{block.removesuffix('_err_count')} {count}" for block, count in counts.items() if count
                )
                yield rule.number(gpu.pci_address, sum(count or 0 for count in counts.values()), why=listed)

    return ask
