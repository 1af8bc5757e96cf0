"""The topology of a node as a picture: SVG, alone or in a page.

NUMA nodes stand left and right, their GPUs in two columns, and all links in the room between: straight ones to the
other side, arcs on one side, so that none hides another. Each link is a path with `data-from`, `data-to`, and how many
pairs of partitions it joins (`data-joined` of `data-of`).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from primus_preflight.machine.nics import Nic
from primus_preflight.machine.topology import Accelerator, Joint, Topology
from primus_preflight.views import markup
from primus_preflight.views.markup import tag, text
from primus_preflight.views.tree import as_text, is_fabric, joined, served, summary

__all__ = ["as_html", "as_svg"]

_HIVES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours that all eyes tell apart (Okabe and Ito)."""
_LOST = "#d00000"
_MARGIN, _CPU, _NIC, _GPU, _GAP = 24, 66, 168, 226, 26
_NIC_BOX, _NIC_PITCH, _ROOM, _HEAD, _TOP = 36, 44, 14, 34, 74.0
_LETTER = {"title": 10.2, "strong": 7.2, "small": 6.4, "plain": 7.0}
"""Pixels of a letter."""
_MIDDLE, _ARC = 420, 46
"""Room for links; how much further an arc reaches for each GPU that it passes."""
_STYLE = (
    markup.TEXT_COLOURS
    + """
.paper{fill:#fff}text{font-size:12px;fill:#1c1c1e}.small{font-size:11px;fill:#5b5b60}.title{font-size:17px;font-weight:600}
.strong{font-weight:600}.numa{fill:#f4f4f6;stroke:#c9c9ce}.cpu{fill:#e3e3e8;stroke:#9a9aa2}.nic{fill:#fff;stroke:#7d7d85}
.gpu{fill:#fff;stroke-width:2}.down{stroke-dasharray:4 3}.pcie{stroke:#8e8e96;stroke-width:1.2;fill:none}
.near{stroke:#8e8e96;stroke-width:2.5;stroke-dasharray:1.5 4;stroke-linecap:round}.none{stroke:#7d7d85}
path{fill:none}.xgmi{stroke-width:2;stroke-opacity:.75}"""
    + f".lost{{stroke:{_LOST};stroke-width:2.5;stroke-dasharray:7 4}}.warn{{fill:{_LOST}}}"
    + f".gone{{fill:none;stroke:{_LOST};stroke-dasharray:2 2}}"
    + "".join(f".h{at}{{stroke:{colour}}}.f{at}{{fill:{colour}}}" for at, colour in enumerate(_HIVES))
    + """
@media(prefers-color-scheme:dark){.paper{fill:#141416}text{fill:#ececf0}.small{fill:#a5a5ad}.numa{fill:#1e1e22;stroke:#3c3c43}
.cpu{fill:#2c2c32;stroke:#66666f}.nic,.gpu{fill:#19191c}.lost,.gone{stroke:#ff5a5a}.warn{fill:#ff5a5a}.h0{stroke:#3ba3e0}.f0{fill:#3ba3e0}}"""
)


class _Spot(NamedTuple):
    """Where a box is: its corner, and its width and height."""

    x: float
    y: float
    width: float
    height: float

    def edge(self, *, right: bool) -> tuple[float, float]:
        """The middle of its left or right side."""
        return self.x + self.width * right, self.y + self.height / 2


class _Layout(NamedTuple):
    """Where everything is."""

    width: float
    height: float
    boxes: dict[int, _Spot]
    """Of NUMA nodes, by number; -1: what sits nobody knows where."""
    cpus: dict[int, _Spot]
    gpus: dict[int, _Spot]
    nics: dict[str, _Spot]
    left: frozenset[int]
    """NUMA nodes of the left half."""


def as_html(found: Topology) -> str:
    """A page with the picture and the text."""
    style = _STYLE + "body{margin:2em;background:#fff;color:#1c1c1e}pre{overflow-x:auto}svg{max-width:100%;height:auto}"
    style += "@media(prefers-color-scheme:dark){body{background:#141416;color:#ececf0}}"
    return markup.page(f"Topology of {found.host}", style, _drawing(found), tag("pre", text(as_text(found))))


def as_svg(found: Topology) -> str:
    """A file of its own."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_drawing(found, tag("style", _STYLE))}\n'


def _drawing(found: Topology, *head: str) -> str:
    place = _layout(found)
    rows = list(_explained(found, place))
    height = place.height + 24 * len(rows) + _MARGIN
    inside = (
        *head,
        tag("title", text(f"Topology of {found.host}")),
        _box(_Spot(0, 0, place.width, height), "paper", 0),
        _label(_MARGIN, 34, _fitting(found.host, place.width - 2 * _MARGIN, "title"), "title"),
        _label(_MARGIN, 54, _fitting(summary(found), place.width - 2 * _MARGIN, "small"), "small"),
        *_numa_boxes(found, place),
        *_pcie(found, place),
        *_links(found, place),
        *(_nic(nic, place.nics[nic.name]) for nic in found.nics),
        *(_gpu(found, gpu, place.gpus[gpu.index]) for gpu in found.gpus),
        *_legend(rows, place),
    )
    size = {"width": f"{place.width:g}", "height": f"{height:g}", "viewBox": f"0 0 {place.width:g} {height:g}"}
    return tag("svg", *inside, xmlns="http://www.w3.org/2000/svg", role="img", **size)


def _layout(found: Topology) -> _Layout:
    half = math.ceil(len(found.places) / 2)
    left, right = found.places[:half], found.places[half:]
    inner = _CPU + _NIC * bool(found.nics) + _GPU + 2 * _GAP
    width = 2 * _MARGIN + inner * (1 + bool(right)) + _middle(found, left, right)
    place = _Layout(width, 0, {}, {}, {}, {}, frozenset(left))
    bottoms = [_TOP + 6]
    for side in (left, right):
        y = _TOP
        for number in side:
            y = _place(found, place, number, y, inner) + _ROOM
        bottoms.append(y)
    return place._replace(height=max(bottoms) + _MARGIN)


def _middle(found: Topology, left: Sequence[int], right: Sequence[int]) -> float:
    """How wide the room for links is: an arc reaches half as far as the point that bends it."""
    rows = max(sum(gpu.numa in side for gpu in found.gpus) for side in (left, right))
    arcs = (_ARC / 2 * rows + _GAP) * (2 if right else 1)
    sides = [{found.gpus[at].numa in left for at in (one.a, one.b)} for one in found.joints if one.state != "none"]
    return max(arcs, _MIDDLE if {True, False} in sides else 0) if rows else _GAP


def _place(found: Topology, place: _Layout, number: int, y: float, inner: float) -> float:
    """Puts a NUMA node and all that sits beside it in their places; its lower edge."""
    gpus = [gpu for gpu in found.gpus if gpu.numa == number]
    ports = [nic for nic in found.nics if nic.numa == number]
    beside = [nic for nic in ports if gpus and is_fabric(nic)]
    tall = 44 + 20 * any(gpu.partitions > 1 for gpu in found.gpus) + 18 * bool(found.nics)
    slots = math.ceil(len(beside) / len(gpus)) if gpus else 1
    pitch = max(tall + _ROOM, slots * _NIC_PITCH + 24)
    top, below = y + _HEAD, y + _HEAD + len(gpus) * pitch
    for at, gpu in enumerate(gpus):
        spot = _Spot(_MARGIN + inner - _GPU - 10, top + at * pitch, _GPU, tall)
        place.gpus[gpu.index] = _mirrored(spot, number, place)
    # Between the lines from GPUs to the CPU; what is no way for GPUs stands below.
    rows = [top + at // slots * pitch + at % slots * _NIC_PITCH + 22 for at in range(len(beside))]
    others = [nic for nic in ports if nic not in beside]
    rows += [below + at * _NIC_PITCH for at in range(len(others))]
    for nic, row in zip((*beside, *others), rows, strict=True):
        spot = _Spot(_MARGIN + _CPU + 10 + _GAP, row, _NIC - 10, _NIC_BOX)
        place.nics[nic.name] = _mirrored(spot, number, place)
    height = max(below + len(others) * _NIC_PITCH - y, _HEAD + 60) + _ROOM
    place.boxes[number] = _mirrored(_Spot(_MARGIN, y, inner, height), number, place)
    place.cpus[number] = _mirrored(_Spot(_MARGIN + 10, top, _CPU, height - _HEAD - 10), number, place)
    return y + height


def _mirrored(spot: _Spot, number: int, place: _Layout) -> _Spot:
    return spot if number in place.left else spot._replace(x=place.width - spot.x - spot.width)


def _label(x: float, y: float, label: str, kind: str = "", anchor: str = "start") -> str:
    return tag("text", text(label), x=f"{x:g}", y=f"{y:g}", class_=kind or "plain", text_anchor=anchor)


def _box(spot: _Spot, kind: str, radius: int = 5) -> str:
    return tag(
        "rect",
        x=f"{spot.x:g}",
        y=f"{spot.y:g}",
        width=f"{spot.width:g}",
        height=f"{spot.height:g}",
        rx=radius,
        class_=kind,
    )


def _line(start: tuple[float, float], end: tuple[float, float], kind: str, *inside: str, **data: object) -> str:
    places = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    return tag("line", *inside, **{key: f"{value:g}" for key, value in places.items()}, class_=kind, **data)


def _numa_boxes(found: Topology, place: _Layout) -> Iterator[str]:
    known = {one.number: one for one in found.numa}
    for number, spot in place.boxes.items():
        node = known.get(number)
        listed = f": CPUs {node.cpus}" if node and node.cpus else ""
        if node and (not listed or _width(f"NUMA node {number}{listed}", "strong") > spot.width - 20):
            listed = f": {node.cpu_count} CPUs"
        name = f"NUMA node {number}{listed}" if number >= 0 else "NUMA node not known"
        x, anchor = (spot.x + 10, "start") if number in place.left else (spot.x + spot.width - 10, "end")
        yield _box(spot, "numa", 9)
        yield _label(x, spot.y + 22, name, "strong", anchor)
        cpu = place.cpus[number]
        yield _box(cpu, "cpu")
        yield _label(
            cpu.x + cpu.width / 2,
            cpu.y + cpu.height / 2 + 4,
            f"CPU {number}" if node else "not known",
            "strong" if node else "small",
            "middle",
        )


def _pcie(found: Topology, place: _Layout) -> Iterator[str]:
    """From each device to its CPU; dotted, from a GPU to the adapters that are nearer than that."""
    spots: list[tuple[Accelerator | Nic, _Spot, float]] = [(gpu, place.gpus[gpu.index], 10) for gpu in found.gpus]
    spots += [(nic, place.nics[nic.name], _NIC_BOX / 2) for nic in found.nics]
    for thing, spot, below in spots:
        is_left, cpu = thing.numa in place.left, place.cpus[thing.numa]
        first, last = (cpu.x + cpu.width, spot.x) if is_left else (cpu.x, spot.x + spot.width)
        yield _line((first, spot.y + below), (last, spot.y + below), "pcie")
    for gpu in found.gpus:
        near, how, _ = found.serving(gpu)
        is_left = gpu.numa in place.left
        for nic in near if how.startswith("same PCIe") else ():
            start, end = place.gpus[gpu.index].edge(right=not is_left), place.nics[nic.name].edge(right=is_left)
            yield _line(start, end, "near", data_gpu=gpu.address, data_nic=nic.name)


def _links(found: Topology, place: _Layout) -> Iterator[str]:
    """Those that are missing lie above the others."""
    for state in ("whole", "lost"):
        yield from (_link(found, joint, place) for joint in found.joints if joint.state == state and joint.a != joint.b)


def _link(found: Topology, joint: Joint, place: _Layout) -> str:
    one, other = found.gpus[joint.a], found.gpus[joint.b]
    lost = joint.state == "lost"
    title = f"GPU {joint.a} - GPU {joint.b}: {joint.joined} of {joint.of} joined by xGMI{', incomplete' * lost}"
    kind = "lost" if lost else f"xgmi h{max(one.hive, 0) % len(_HIVES)}"
    data = {"data_from": one.address, "data_to": other.address, "data_joined": joint.joined, "data_of": joint.of}
    return tag("path", tag("title", text(title)), d=_way(one, other, place), class_=kind, **data)


def _way(one: Accelerator, other: Accelerator, place: _Layout) -> str:
    """From one GPU to another: straight to the other side, an arc on the same."""
    sides = [gpu.numa in place.left for gpu in (one, other)]
    (x, y), (end_x, end_y) = (
        place.gpus[gpu.index].edge(right=is_left) for gpu, is_left in zip((one, other), sides, strict=True)
    )
    if sides[0] != sides[1]:
        return f"M{x:g},{y:g} L{end_x:g},{end_y:g}"
    column = [
        index
        for index, spot in sorted(place.gpus.items(), key=lambda item: item[1].y)
        if spot.x == place.gpus[one.index].x
    ]
    reach = (_ARC * abs(column.index(one.index) - column.index(other.index)) + 8) * (1 if sides[0] else -1)
    return f"M{x:g},{y:g} Q{x + reach:g},{(y + end_y) / 2:g} {end_x:g},{end_y:g}"


def _nic(nic: Nic, spot: _Spot) -> str:
    rate = f"{nic.gbps:g} Gb/s" if nic.gbps else "speed not known" if nic.is_up else nic.kind
    title = " · ".join(filter(None, (nic.kind, nic.address, nic.state, *nic.interfaces, nic.driver)))
    kind = "small" if nic.is_up else "small warn"
    state = "" if nic.is_up else f", {nic.state}"
    return tag(
        "g",
        tag("title", text(title)),
        _box(spot, f"nic{' down' * (not nic.is_up)}"),
        _label(spot.x + 8, spot.y + 15, _fitting(nic.name, spot.width - 12, "strong"), "strong"),
        _label(spot.x + 8, spot.y + 29, _fitting(f"{rate}{state}", spot.width - 12, "small"), kind),
        id=f"nic-{nic.name}",
    )


def _gpu(found: Topology, gpu: Accelerator, spot: _Spot) -> str:
    x, room, colour = spot.x + 10, spot.width - 14, gpu.hive % len(_HIVES)
    near, how, _ = found.serving(gpu)
    names = ", ".join(nic.name for nic in near) if len(near) < 3 else f"{len(near)} adapters"
    last = f"NIC {names} ({how.removeprefix('same ')})" if near else f"NIC: {how}"
    label = f"{gpu.address}{f' · {gpu.mode}' * bool(gpu.mode)}"
    return tag(
        "g",
        tag("title", text(f"NIC: {served(found, gpu)}")),
        _box(spot, f"gpu {f'h{colour}' if gpu.hive >= 0 else 'none'}"),
        _label(x, spot.y + 18, _fitting(f"GPU {gpu.index} · {gpu.model or 'not known'}", room, "strong"), "strong"),
        _label(x, spot.y + 34, _fitting(label, room, "small"), "small"),
        *(_parts(gpu, x, spot.y + 44, colour) if gpu.partitions > 1 else ()),
        *([_label(x, spot.y + spot.height - 10, _fitting(last, room, "small"), "small")] if found.nics else ()),
        id=f"gpu-{gpu.address}",
    )


def _parts(gpu: Accelerator, x: float, y: float, colour: int) -> Iterable[str]:
    """A square for each partition; those that are missing are empty."""
    return [
        _box(_Spot(x + 17 * part, y, 13, 13), f"f{colour} part" if part in gpu.parts else "gone", 2)
        for part in range(gpu.partitions)
    ]


def _width(label: str, kind: str) -> float:
    """How wide a label may be at most: the fonts of the style have no common measure."""
    return len(label) * _LETTER[kind]


def _fitting(label: str, room: float, kind: str) -> str:
    """As much of a label as fits into so many pixels; all of it is in the title of its group, or in the text."""
    length = int(room / _LETTER[kind])
    return label if len(label) <= length else f"{label[: length - 1]}…"


def _legend(rows: Sequence[tuple[str, str, str]], place: _Layout) -> Iterator[str]:
    for at, (mark, label, kind) in enumerate(rows):
        y = place.height + 24 * at
        yield _line((_MARGIN, y), (_MARGIN + 36, y), mark) if mark else ""
        yield _label(_MARGIN + 46, y + 4, _fitting(label, place.width - 2 * _MARGIN - 46, "plain"), kind)


def _explained(found: Topology, place: _Layout) -> Iterator[tuple[str, str, str]]:
    """Lines of the legend: whose mark, what it means, and how it is written."""
    room = int((place.width - 2 * _MARGIN - 46) / _LETTER["plain"])
    for hive in found.hives:
        for at, line in enumerate(textwrap.wrap(joined(found, hive), room)):
            yield f"xgmi h{hive % len(_HIVES)}" if not at else "", line, ""
    if lost := [one for one in found.joints if one.state == "lost"]:
        listed = ", ".join(f"{one.a}-{one.b}" if one.a != one.b else f"inside {one.a}" for one in lost[:8])
        for at, line in enumerate(textwrap.wrap(f"missing: {listed}{' …' * (len(lost) > 8)}", room)):
            yield "lost" if not at else "", line, "warn"
    yield "pcie", "PCIe", ""
    if any(found.serving(gpu).how.startswith("same PCIe") for gpu in found.gpus):
        yield "near", "adapter and GPU below one PCIe switch or root", ""
    for note in found.notes:
        yield from (("", line, "") for line in textwrap.wrap(note, room))
