"""Checks of the host: kernel settings, limits, memory, disk."""

from __future__ import annotations

import re
from collections.abc import Iterator

from primus_machine import cgroups
from primus_machine.host import HostRoot, numbered
from primus_machine.units import counted
from primus_preflight.checks.check import Ask, Check, Node, absence, no_gpu, unseen
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule
from primus_preflight.checks.thresholds import packaged
from primus_preflight.host import acs, measured
from primus_preflight.machine.files import GIB, bracketed, cpus, integer, is_shown, meminfo, shows_gpus, shows_network

__all__ = ["checks"]

_CPUS = "/sys/devices/system/cpu"
_THP = "/sys/kernel/mm/transparent_hugepage/enabled"
_NUMA = "/proc/sys/kernel/numa_balancing"
_EDAC = "/sys/devices/system/edac/mc"
_EDAC_FILES = (f"{_EDAC}/mc*/ue_count", f"access:{_EDAC}")
_UNLIMITED = 2**62
"""Beyond it, a limit of memory is none: cgroup v1 writes 2^63 less a page."""


def checks() -> tuple[Check, ...]:
    """Those of the host."""
    return (
        _check("iommu", "GPUs reach memory without translation", ("/proc/cmdline",), _iommu),
        _check("acs", "PCI bridges do not send GPU traffic through the root complex", acs.READS, acs.ask),
        _check("numa-balancing", "the kernel does not move pages between NUMA nodes", (_NUMA,), _numa_balancing),
        _check("thp", "transparent huge pages may be used", (_THP,), _thp),
        _check(
            "governor",
            "no CPU is in a power-saving mode",
            (f"{_CPUS}/online", f"{_CPUS}/cpu*/cpufreq/scaling_governor"),
            _governor,
        ),
        _check("hugepages", "no memory is reserved as huge pages", ("/proc/meminfo",), _hugepages),
        _check("memlock", "processes may pin memory", ("/proc/self/limits",), _memlock),
        _check("nofile", "processes may open many files", ("/proc/self/limits",), _nofile),
        _check("shm", "/dev/shm is large enough", ("space:/dev/shm",), _shm),
        _check("cgroup-memory", "no cgroup limits memory", _cgroup_files("memory.max"), _cgroup_memory),
        _check("cgroup-cpu", "no cgroup limits CPU time", _cgroup_files("cpu.max"), _cgroup_cpu),
        _check("memory", "the machine has enough memory", ("/proc/meminfo",), _memory),
        _check("memory-available", "no other process uses the machine", ("/proc/meminfo",), _memory_available),
        _check("memory-errors", "memory had no uncorrected errors", _EDAC_FILES, _memory_errors),
        _check("disk", "the run directory has free space", (), _disk),
        _check("kernel", "the version of the kernel", ("/proc/sys/kernel/osrelease",), _kernel),
        *measured.checks(),
    )


def _check(name: str, summary: str, reads: tuple[str, ...], ask: Ask) -> Check:
    return Check(f"host.{name}", summary, reads, ask, packaged()[f"host.{name}"])


def _cgroup_files(name: str) -> tuple[str, ...]:
    """Those that a pattern can name: a capture has the rest of the way to one's own cgroup by itself."""
    root, older = cgroups.ROOT, cgroups.LIMITS[name]
    return ("/proc/self/cgroup", f"{root}/{name}", f"{root}/*/{name}", f"{root}/{older}", "/proc/meminfo")


def _iommu(node: Node, rule: Rule) -> Iterator[Finding]:
    words = (node.host.text("/proc/cmdline") or "").split()
    if not node.facts.gpus:
        yield no_gpu(node, rule)
    elif not words:
        yield rule.unknown("", "/proc/cmdline cannot be read")
    else:
        options = [word for word in words if "iommu" in word]
        passes = {"iommu=pt", "iommu.passthrough=1"} & set(options)
        yield (
            rule.good("", " ".join(options))
            if passes
            else rule.bad("", " ".join(options) or "the kernel command line does not set it")
        )


def _numa_balancing(node: Node, rule: Rule) -> Iterator[Finding]:
    yield rule.word("", node.host.text(_NUMA), why=f"{_NUMA} cannot be read")


def _thp(node: Node, rule: Rule) -> Iterator[Finding]:
    yield rule.word("", bracketed(node.host.text(_THP)), why=f"{_THP} cannot be read")


def _governor(node: Node, rule: Rule) -> Iterator[Finding]:
    """Of all CPUs that are on: one that saves power holds back the rank on it, and all others wait."""
    host = node.host
    folders = numbered(host.names(_CPUS), "cpu")
    found = {cpu: host.text(f"{_CPUS}/{name}/cpufreq/scaling_governor") for cpu, name in folders.items()}
    online = cpus(host.text(f"{_CPUS}/online")) or set(found)
    read = {cpu: word for cpu, word in found.items() if word and cpu in online}
    if not found:
        yield unseen(node, rule, f"{_CPUS} cannot be read")
    elif not read:
        yield rule.skip("no CPU has a governor: a hypervisor or the firmware sets the frequency")
    elif wrong := {cpu: word for cpu, word in read.items() if word not in rule.allowed}:
        yield rule.bad("", ", ".join(sorted(set(wrong.values()))), f"{len(wrong)} of {len(read)} CPUs: {_some(wrong)}")
    elif silent := online - read.keys():
        yield rule.unknown("", f"{len(silent)} of {len(online)} CPUs do not report it: {_some(silent)}")
    else:
        yield rule.good("", f"{' and '.join(sorted(set(read.values())))} on {counted(len(read), 'CPU')}")


def _some(numbers: set[int] | dict[int, str]) -> str:
    listed = sorted(numbers)
    return ", ".join(map(str, listed[:8])) + (" …" if len(listed) > 8 else "")


def _hugepages(node: Node, rule: Rule) -> Iterator[Finding]:
    pages, size, total = (meminfo(node.host, name) for name in ("HugePages_Total", "Hugepagesize", "MemTotal"))
    if pages is None or size is None or not total:
        yield rule.unknown("", "/proc/meminfo does not report it")
    else:
        yield rule.number("", 100 * pages * size / total, measured=f"{100 * pages * size / total:.3g}")


def _limit(host: HostRoot, name: str) -> float | None:
    """A soft limit of this process."""
    found = re.search(rf"(?m)^{name}\s+(unlimited|[0-9]{{1,20}})\s", host.text("/proc/self/limits") or "")
    return (float("inf") if found[1] == "unlimited" else float(found[1])) if found else None


def _memlock(node: Node, rule: Rule) -> Iterator[Finding]:
    if not node.facts.gpus and not node.facts.network.ports:
        is_known = shows_gpus(node.host) and shows_network(node.host)
        yield absence(node, rule, "neither GPU nor RDMA adapter here, so nothing pins memory", is_known=is_known)
        return
    found = _limit(node.host, "Max locked memory")
    yield _bytes(rule, found, "/proc/self/limits cannot be read", unlimited=found == float("inf"))


def _bytes(rule: Rule, found: float | None, why: str, *, unlimited: bool = False) -> Finding:
    if unlimited:
        return rule.good("", "unlimited")
    return rule.number(
        "", None if found is None else found / GIB, measured=f"{(found or 0) / GIB:.4g}", why=why * (found is None)
    )


def _nofile(node: Node, rule: Rule) -> Iterator[Finding]:
    found = _limit(node.host, "Max open files")
    if found == float("inf"):
        yield rule.good("", "unlimited")
    else:
        yield rule.number("", found, why="/proc/self/limits cannot be read" * (found is None))


def _shm(node: Node, rule: Rule) -> Iterator[Finding]:
    space = node.host.space("/dev/shm")
    yield _bytes(rule, space[1] if space else None, "the size of /dev/shm cannot be read")


def _cgroup_memory(node: Node, rule: Rule) -> Iterator[Finding]:
    texts = cgroups.limits(node.host, "memory.max")
    total = meminfo(node.host, "MemTotal")
    if texts is None or not total:
        yield rule.unknown("", "the cgroup of this process, or /proc/meminfo, cannot be read")
        return
    limits = [int(text) for text in texts if text.isdecimal() and int(text) < _UNLIMITED]
    share = 100 * min(limits, default=total) / total
    yield rule.number("", share, measured=f"{share:.3g}") if limits else rule.good("", "no limit")


def _cgroup_cpu(node: Node, rule: Rule) -> Iterator[Finding]:
    texts = cgroups.limits(node.host, "cpu.max")
    if texts is None or not node.facts.cpu_count:
        yield rule.unknown("", "the cgroup of this process, or the CPUs, cannot be read")
        return
    quotas = [quota for text in texts if (quota := _quota(text)) is not None]
    share = 100 * min(quotas, default=0.0) / node.facts.cpu_count
    yield rule.number("", share, measured=f"{share:.3g}") if quotas else rule.good("", "no quota")


def _quota(text: str) -> float | None:
    """CPUs in `400000 100000`, or in v1's `400000`, whose period is next to always 100000; None: no quota."""
    quota, *period = text.split()
    return int(quota) / int(period[0] if period else 100_000) if quota.isdecimal() else None


def _memory(node: Node, rule: Rule) -> Iterator[Finding]:
    yield _bytes(rule, meminfo(node.host, "MemTotal"), "/proc/meminfo cannot be read")


def _memory_available(node: Node, rule: Rule) -> Iterator[Finding]:
    left, total = (meminfo(node.host, name) for name in ("MemAvailable", "MemTotal"))
    if left is None or not total:
        yield rule.unknown("", "/proc/meminfo does not report it")
    else:
        yield rule.number("", 100 * left / total, measured=f"{100 * left / total:.3g}")


def _memory_errors(node: Node, rule: Rule) -> Iterator[Finding]:
    controllers = [name for name in node.host.names(_EDAC) if re.fullmatch(r"mc[0-9]+", name)]
    if not controllers:
        why = "the kernel has no driver for the memory controller (EDAC)"
        yield absence(node, rule, why, is_known=is_shown(node.host, _EDAC))
    for name in controllers:
        path = f"{_EDAC}/{name}/ue_count"
        yield rule.number(
            name, integer(node.host, path), why=f"{path} cannot be read" * (integer(node.host, path) is None)
        )


def _disk(node: Node, rule: Rule) -> Iterator[Finding]:
    if not node.run_dir:
        yield rule.skip("no run directory")
        return
    space = node.host.space(node.run_dir)
    yield _bytes(rule, space[1] if space else None, f"the free space of {node.run_dir} cannot be read")


def _kernel(node: Node, rule: Rule) -> Iterator[Finding]:
    release = node.host.text("/proc/sys/kernel/osrelease")
    yield rule.good("", release) if release else rule.unknown("", "/proc/sys/kernel/osrelease cannot be read")
