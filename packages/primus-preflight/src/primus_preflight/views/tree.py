"""The topology of a node for a terminal, as a tree and as the matrix of `nvidia-smi topo -m`; and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from primus_machine.units import counted
from primus_preflight.machine.nics import Nic
from primus_preflight.machine.topology import Accelerator, Topology

__all__ = ["as_json", "as_text", "is_fabric", "joined", "ranges", "served", "summary"]

SCHEMA = 1
_MEANS = {
    "XGMI": "a link between GPUs",
    "LOST": "same hive, but no link, or not between all partitions",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the PCIe root",
    "NODE": "a NUMA node",
    "SYS": "between NUMA nodes",
    "?": "not known",
}
_LISTED = 4


def as_text(found: Topology) -> str:
    """All of it."""
    parts = [_tree(found), _hives(found), _matrix(found), [f"note: {note}" for note in found.notes]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def summary(found: Topology) -> str:
    """One line."""
    models = list(dict.fromkeys(gpu.model for gpu in found.gpus))
    parts = [f"{counted(len(found.gpus), 'GPU')} ({', '.join(models)})" if found.gpus else found.no_gpus]
    parts += [counted(len(found.hives), "hive")] if found.hives else []
    parts += [counted(len(found.numa), "NUMA node")] if found.numa else []
    return ", ".join([*parts, counted(len(found.nics), "port") if found.nics else found.no_nics])


def _tree(found: Topology) -> list[str]:
    lines = [f"{found.host}: {summary(found)}"]
    for number in found.places:
        last = number == found.places[-1]
        lines.append(f"{'└─' if last else '├─'} {_numa(found, number)}")
        leaves = [*_aligned(_gpu_rows(found, number)), *_aligned(_nic_rows(found, number))]
        for index, leaf in enumerate(leaves):
            lines.append(f"{'   ' if last else '│  '}{'└─' if index == len(leaves) - 1 else '├─'} {leaf}".rstrip())
    return lines


def _numa(found: Topology, number: int) -> str:
    node = next((one for one in found.numa if one.number == number), None)
    if number < 0:
        return "NUMA node not known"
    listed = f" ({node.cpus})" if node and node.cpus else ""
    return f"NUMA node {number}  {node.cpu_count} CPUs{listed}" if node else f"NUMA node {number}  no CPUs"


def _gpu_rows(found: Topology, number: int) -> list[tuple[str, ...]]:
    return [
        (
            *(f"GPU {gpu.index}", gpu.model, gpu.address, gpu.pcie, _parts(gpu)),
            f"hive {gpu.hive}" if gpu.hive >= 0 else "",
            f"NIC: {served(found, gpu)}" if found.nics else "",
        )
        for gpu in found.gpus
        if gpu.numa == number
    ]


def _nic_rows(found: Topology, number: int) -> list[tuple[str, ...]]:
    return [
        (
            nic.name,
            nic.kind,
            nic.address,
            nic.state,
            f"{nic.gbps:g} Gb/s" if nic.gbps else "speed not known" if nic.is_up else "",
            ", ".join(nic.interfaces),
            nic.driver,
        )
        for nic in found.nics
        if nic.numa == number
    ]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """As columns; what no row has takes no room."""
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(7)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True) if width) for row in rows]


def _parts(gpu: Accelerator) -> str:
    return f"{gpu.mode}, {len(gpu.parts)} of {gpu.partitions}" if gpu.partitions > 1 else gpu.mode


def served(found: Topology, gpu: Accelerator) -> str:
    """The adapters that serve a GPU, in words."""
    near, how, _ = found.serving(gpu)
    return f"{_listed([nic.name for nic in near])} ({how})" if near else how


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def ranges(numbers: Sequence[int]) -> str:
    """`0-3, 7`."""
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _hives(found: Topology) -> list[str]:
    lines = []
    for hive, gpus in found.hives.items():
        numbers = [gpu.index for gpu in gpus]
        own = [one for one in found.joints if one.a in numbers and one.b in numbers]
        lost = [f"{one.a}-{one.b} ({one.joined} of {one.of})" if one.of > 1 else f"{one.a}-{one.b}"
                for one in own if one.state == "lost"]  # fmt: skip
        fast = max((one.gbytes_per_s for one in own if one.a != one.b), default=0)
        speed = f", {fast:g} GB/s each way" if fast else ""
        lines.append(f"{joined(found, hive)}{speed}{f'; LOST: {_listed(lost)}' * bool(lost)}")
    return lines


def joined(found: Topology, hive: int) -> str:
    """`hive 0: GPUs 0-3; 6 of 6 pairs joined by xGMI`."""
    numbers = [gpu.index for gpu in found.hives[hive]]
    pairs = len(numbers) * (len(numbers) - 1) // 2
    known = [one for one in found.joints if one.a != one.b and {one.a, one.b} <= set(numbers)]
    whole, unread = sum(one.state == "whole" for one in known), pairs - len(known)
    summary = f"{whole} of {pairs} pairs joined by xGMI{f', {unread} not known' * bool(unread)}"
    return f"hive {hive}: GPUs {ranges(numbers)}; {summary}"


def is_fabric(nic: Nic) -> bool:
    """Whether it is there for what GPUs say to other nodes, and no interface beside."""
    return nic.kind != "Ethernet" or nic.is_used


def _matrix(found: Topology) -> list[str]:
    """Between each two devices, what lies between them."""
    things: list[Accelerator | Nic] = [*found.gpus, *filter(is_fabric, found.nics)]
    names = [f"GPU{one.index}" if isinstance(one, Accelerator) else one.name for one in things]
    cells = [[_between(found, one, other) for other in things] for one in things]
    if len(things) < 2:
        return []
    widths = [max(len(name), 4) for name in names]
    lines = [_row("", names, widths), *(_row(name, row, widths) for name, row in zip(names, cells, strict=True))]
    used = {cell for row in cells for cell in row}
    legend = "; ".join(f"{word} {means}" for word, means in _MEANS.items() if word in used)
    return [*lines, *textwrap.wrap(legend, 120)]


def _row(name: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{name:{max(widths)}}  {'  '.join(padded)}".rstrip()


def _between(found: Topology, one: Accelerator | Nic, other: Accelerator | Nic) -> str:
    if one is other:
        return "X"
    if isinstance(one, Accelerator) and isinstance(other, Accelerator):
        joint = found.joint(one.index, other.index)
        if joint is None:
            return "?"
        if joint.state != "none":
            return "XGMI" if joint.state == "whole" else "LOST"
    return found.path(one, other)[0]


def as_json(found: Topology) -> str:
    """Everything, for programs."""
    near = {gpu.index: found.serving(gpu) for gpu in found.gpus}
    return json.dumps({
        "schema": SCHEMA,
        "host": found.host,
        "numa": [asdict(one) for one in found.numa],
        "gpus": [
            {**asdict(gpu), "nics": [nic.name for nic in near[gpu.index].nics], "nics_by": near[gpu.index].how}
            for gpu in found.gpus
        ],
        "nics": [asdict(one) for one in found.nics],
        "xgmi": [{**asdict(one), "state": one.state} for one in found.joints],
        "notes": found.notes,
    }, indent=1, ensure_ascii=False)  # fmt: skip
