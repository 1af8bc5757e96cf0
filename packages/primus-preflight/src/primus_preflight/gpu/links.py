"""What joins GPUs to the machine and to each other: PCIe and xGMI. And which GPUs a check goes through."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import wraps

from primus_machine.facts import Gpu
from primus_preflight.checks.check import Ask, Node
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule
from primus_preflight.machine import kfd
from primus_preflight.machine.files import GPU_FOLDER, integer

__all__ = ["needs_amd", "needs_gpus", "replays", "speed", "whole", "width", "xgmi"]


def whole(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """One device for each PCI address: partitions share one, the dies of an MI250X do not."""
    return tuple({gpu.pci_address: gpu for gpu in reversed(gpus)}.values())[::-1]


def needs_gpus(ask: Ask) -> Ask:
    """A check that has nothing to look at where there is no GPU."""

    @wraps(ask)
    def asked(node: Node, rule: Rule) -> Iterator[Finding]:
        if node.facts.gpus:
            yield from ask(node, rule)
        else:
            yield rule.skip("no GPU here")

    return asked


def needs_amd(ask: Ask) -> Ask:
    """The same for what NVIDIA's driver tells through its library (NVML) only, which is not asked."""

    @wraps(ask)
    def asked(node: Node, rule: Rule) -> Iterator[Finding]:
        if node.facts.gpus[0].vendor == "amd":
            yield from ask(node, rule)
        else:
            yield rule.skip("only NVIDIA's own tools can read it: nvidia-smi -q")

    return needs_gpus(asked)


@needs_gpus
def speed(node: Node, rule: Rule) -> Iterator[Finding]:
    """`32.0 GT/s PCIe`."""
    for gpu in whole(node.facts.gpus):
        own, address = rule.of(gpu.model), gpu.pci_address
        if not own.is_set:
            idle = (
                "an idle NVIDIA GPU lowers it"
                if gpu.vendor == "nvidia"
                else "the expected value for this model is not known"
            )
            yield own.skip(idle, address)
            continue
        found = re.match(
            r"([0-9]{1,4}(?:\.[0-9]+)?) GT/s", node.host.text(f"{GPU_FOLDER}/{address}/current_link_speed") or ""
        )
        yield own.number(
            address, float(found[1]) if found else None, why="" if found else "current_link_speed cannot be read"
        )


@needs_gpus
def width(node: Node, rule: Rule) -> Iterator[Finding]:
    """0 and 255 are what the kernel writes where it does not know."""
    for gpu in whole(node.facts.gpus):
        lanes = integer(node.host, f"{GPU_FOLDER}/{gpu.pci_address}/current_link_width")
        known = lanes if lanes in range(1, 33) else None
        yield rule.number(gpu.pci_address, known, why="" if known else "current_link_width cannot be read")


def replays(node: Node, rule: Rule) -> Iterator[Finding]:
    """Packets that had to be sent again."""
    for gpu in whole(node.facts.gpus):
        count = integer(node.host, f"{GPU_FOLDER}/{gpu.pci_address}/pcie_replay_count")
        yield rule.number(gpu.pci_address, count, why="" if count is not None else "pcie_replay_count cannot be read")


def xgmi(node: Node, rule: Rule) -> Iterator[Finding]:
    """Each device has a link to each other one of its hive."""
    found = kfd.nodes(node.host, frozenset(gpu.device_id for gpu in node.facts.gpus))
    hives: dict[int, set[int]] = {}
    for one in found:
        hives.setdefault(one.hive, set()).add(one.number)
    if not found:
        yield rule.unknown("", "the driver's topology cannot be read")
    models = {gpu.device_id: gpu.model for gpu in node.facts.gpus}
    addresses = {one.number: one.address for one in found}
    for address in dict.fromkeys(addresses.values()):
        devices = [one for one in found if one.address == address]
        own = rule.of(models[devices[0].properties["device_id"]])
        yield _joined(own, address, devices, hives, addresses)


def _joined(
    rule: Rule, address: str, devices: Sequence[kfd.KfdNode], hives: dict[int, set[int]], addresses: dict[int, str]
) -> Finding:
    """Of one GPU, with all of its partitions."""
    hive = hives[devices[0].hive] if devices[0].hive else set()
    others = {addresses[number] for number in hive} - {address}
    if not others:
        alone = rule.is_set and len(set(addresses.values())) > 1
        return (
            rule.bad(address, "0", "it is in no hive, but other GPUs of its model are")
            if alone
            else rule.skip("in no hive", address)
        )
    if any(one.xgmi is None for one in devices):
        return rule.unknown(address, "its io_links cannot be read")
    lost = {addresses[to] for one in devices for to in hive - {one.number} - (one.xgmi or frozenset())}
    measured = f"{len(others - lost)} of {len(others)}"
    if lost:
        return rule.bad(address, measured, f"no link to {', '.join(sorted(lost))}")
    return rule.number(address, len(others), measured=measured)
