"""What joins GPUs to the machine and to each other: PCIe and xGMI. And which GPUs a check goes through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import wraps

from primus_machine.facts import Gpu
from primus_machine.host import HostRoot
from primus_preflight.checks.check import Ask, Node, no_gpu, unseen
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule
from primus_preflight.machine import kfd
from primus_preflight.machine.files import GPU_FOLDER, integer

__all__ = ["devices", "needs_amd", "needs_gpus", "number_in", "replays", "whole", "xgmi"]


def whole(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """One device for each PCI address: partitions share one, the dies of an MI250X do not."""
    return tuple({gpu.pci_address: gpu for gpu in reversed(gpus)}.values())[::-1]


def devices(node: Node) -> tuple[kfd.KfdNode, ...]:
    """Return the devices of the driver's topology that are judged."""
    judged = {gpu.pci_address for gpu in node.gpus}
    found = kfd.nodes(node.host, frozenset(gpu.device_id for gpu in node.gpus))
    return tuple(one for one in found if one.address in judged)


def number_in(host: HostRoot, rule: Rule, subject: str, path: str) -> Finding:
    """Return the finding for the number that a file of a device holds, or why there is none."""
    found = integer(host, path)
    why = host.why_unread(path) or "holds no number"
    return rule.number(subject, found, why="" if found is not None else f"{path.rpartition('/')[2]} {why}")


def needs_gpus(ask: Ask) -> Ask:
    """A check that has nothing to look at where there is no GPU."""

    @wraps(ask)
    def asked(node: Node, rule: Rule) -> Iterator[Finding]:
        if node.gpus:
            yield from ask(node, rule)
        else:
            yield no_gpu(node, rule)

    return asked


def needs_amd(ask: Ask) -> Ask:
    """The same for what NVIDIA's driver tells through its library (NVML) only, which is not asked."""

    @wraps(ask)
    def asked(node: Node, rule: Rule) -> Iterator[Finding]:
        if node.gpus[0].vendor == "amd":
            yield from ask(node, rule)
        else:
            yield rule.skip("only NVIDIA's own tools can read it: nvidia-smi -q")

    return needs_gpus(asked)


def replays(node: Node, rule: Rule) -> Iterator[Finding]:
    """Packets that had to be sent again."""
    for gpu in whole(node.gpus):
        path = f"{GPU_FOLDER}/{gpu.pci_address}/pcie_replay_count"
        yield number_in(node.host, rule, gpu.pci_address, path)


def xgmi(node: Node, rule: Rule) -> Iterator[Finding]:
    """Each device has a link to each other one of its hive."""
    found = devices(node)
    if not found:
        yield rule.unknown("", "the driver's topology cannot be read")
    models = {gpu.device_id: gpu.model for gpu in node.gpus}
    for address in dict.fromkeys(one.address for one in found):
        parts = [one for one in found if one.address == address]
        yield _joined(node, rule.of(models[parts[0].properties["device_id"]]), parts, found)


def _joined(node: Node, rule: Rule, parts: Sequence[kfd.KfdNode], found: Sequence[kfd.KfdNode]) -> Finding:
    """Of one GPU, with all of its partitions, among those that were `found`."""
    address, addresses = parts[0].address, {one.number: one.address for one in found}
    hive = {one.number for one in found if one.hive and one.hive == parts[0].hive}
    others = {addresses[number] for number in hive} - {address}
    if not others:
        alone = rule.is_set and len(set(addresses.values())) > 1
        return (
            rule.bad(address, "0", "it is in no hive, but other GPUs of its model are")
            if alone
            else rule.skip("in no hive", address)
        )
    if any(one.xgmi is None for one in parts):
        return unseen(node, rule, "its io_links cannot be read", address)
    lost = {addresses[to] for one in parts for to in hive - {one.number} - (one.xgmi or frozenset())}
    measured = f"{len(others - lost)} of {len(others)}"
    if lost:
        return rule.bad(address, measured, f"no link to {', '.join(sorted(lost))}")
    return rule.number(address, len(others), measured=measured)
