"""`analyze topology`: what it says and draws is what the machine's files say, and what they do not say is not known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.conftest import Run
from tests.machine import machines
from tests.machine.machines import IB, KFD, PCI
from tests.preflight import nodes, switched
from tests.preflight.nodes import ADDRESSES, Tree

from primus_core.errors import MachineError
from primus_machine import facts
from primus_machine.captures import capture
from primus_machine.host import HostRoot
from primus_preflight import analyze_worker
from primus_preflight.machine import pci, topology
from primus_preflight.machine.topology import Topology
from primus_preflight.views import picture, tree

CAPTURES = Path(__file__).parent / "captures"
MI210, CPX = "mi210-8", "mi300x-cpx-63-of-64"
SVG = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]


def captured(name: str) -> HostRoot:
    """One of the captured machines."""
    return capture.read(str(CAPTURES / f"{name}.tar.gz"), HostRoot("/nowhere", {}))


def of(machine: HostRoot | Tree) -> Topology:
    """Its topology."""
    return topology.read(facts.read(nodes.held(machine) if isinstance(machine, dict) else machine))


def broken() -> Tree:
    """A node without the link between its fourth and its eighth GPU, and with a port that is down."""
    tree = switched.node("InfiniBand")
    link = f"{KFD}/5/io_links/7/properties"
    tree[link] = nodes.text(tree, link).replace("type 11", "type 2")
    tree[f"{IB}/mlx5_3/ports/1/state"] = "1: DOWN\n"
    return tree


def partitioned() -> Tree:
    """MI300X in CPX beside adapters, on four NUMA nodes."""
    tree = {path: text for path, text in nodes.healthy().items() if not path.startswith((KFD, "facts.json"))}
    tree |= machines.amd("MI300X", parts=8, memory="NPS4")
    tree |= {f"sys/devices/system/node/node{at}/cpulist": f"{4 * at}-{4 * at + 3}\n" for at in range(4)}
    return tree | {f"{PCI}/{address}/numa_node": f"{at // 2}\n" for at, address in enumerate(ADDRESSES)}


def on_four_nodes() -> Tree:
    """A NUMA node without adapters, one without GPUs, and interfaces beside."""
    tree = broken()
    tree |= {f"sys/devices/system/node/node{at}/cpulist": f"{4 * at}-{4 * at + 3}\n" for at in range(4)}
    for name, about in (("eno1", "0000:21:00.0"), ("eno2", "0000:21:00.1")):
        folder = f"sys/class/net/{name}"
        tree |= {f"{folder}/operstate": "down\n", f"{folder}/device/uevent": f"DRIVER=bnxt_en\nPCI_SLOT_NAME={about}\n"}
        tree[f"{folder}/device/numa_node"] = "2\n"
    return tree


def many() -> Tree:
    """Sixteen GPUs on the one NUMA node."""
    tree = {path: text for path, text in nodes.healthy().items() if not re.match(rf"sys/.*/node1/|{KFD}/1/", path)}
    tree |= {f"{PCI}/{address}/numa_node": "-1\n" for address in ADDRESSES}
    tree |= {f"{IB}/mlx5_{at}/device/numa_node": "0\n" for at in range(8)}
    tree |= {f"{KFD}/{node}/io_links/0/properties": "type 2\nnode_to 0\nweight 20\n" for node in range(2, 10)}
    for node in range(2, 10):
        own = nodes.text(tree, f"{KFD}/{node}/properties")
        tree[f"{KFD}/{node + 8}/properties"] = re.sub(
            r"(location_id) (\d+)", lambda m: f"{m[1]} {int(m[2]) + 2048}", own
        )
    for node, other in product(range(2, 18), repeat=2):
        if max(node, other) > 9 and node != other:
            tree[f"{KFD}/{node}/io_links/{other + 20}/properties"] = f"type 11\nnode_to {other}\nweight 15\n"
    return tree


def cpu_only() -> Tree:
    """A machine for tests."""
    tree: Tree = {
        **machines.base(cpus=4),
        f"{PCI}/": "",
        "sys/class/net/lo/operstate": "unknown\n",
        "sys/class/net/eth0/operstate": "up\n",
    }
    return tree | {"sys/class/net/eth0/speed": "10000\n", "sys/class/net/eth0/device/uevent": "DRIVER=virtio_net\n"}


def machine(name: str) -> HostRoot | Tree:
    """By name, for tests of all."""
    made: dict[str, Callable[[], Tree]] = {
        "healthy": nodes.healthy,
        "switched": switched.node,
        "broken": broken,
        "partitioned": partitioned,
        "four nodes": on_four_nodes,
        "many": many,
        "CPUs only": cpu_only,
        "nothing": lambda: {"proc/": "", "sys/": ""},
        "MI250X": lambda: {**nodes.healthy(), **machines.amd("MI250X")},
        "NVIDIA": lambda: {**machines.base(), **machines.nvidia("H100 SXM")},
    }
    return made[name]() if name in made else captured(name)


ALL = (
    "many",
    "healthy",
    "switched",
    "broken",
    "partitioned",
    "four nodes",
    "CPUs only",
    "nothing",
    "MI250X",
    "NVIDIA",
    MI210,
    CPX,
)


def joined_pairs(host: HostRoot) -> dict[tuple[str, str], int]:
    """How many devices of two GPUs are joined by xGMI, read from the driver's files without our reader."""
    folder, places, ways = f"/{KFD}", {}, set()
    for node in host.names(folder):
        properties = dict(re.findall(r"(\w+) (\d+)", host.text(f"{folder}/{node}/properties") or ""))
        if int(properties["simd_count"]):
            places[node] = f"0000:{int(properties['location_id']) >> 8:02x}:00.0"
            for kind, link in product(("io_links", "p2p_links"), range(70)):
                text = host.text(f"{folder}/{node}/{kind}/{link}/properties") or ""
                if re.search(r"^type 11$", text, re.M) and (to := re.search(r"^node_to (\d+)$", text, re.M)):
                    ways.add((node, to[1]))
    found: dict[tuple[str, str], int] = {}
    for one, other in combinations(sorted(places, key=int), 2):
        pair = (places[one], places[other])
        if (one, other) in ways and (other, one) in ways and pair[0] != pair[1]:
            found[pair] = found.get(pair, 0) + 1
    return found


def drawn(found: Topology) -> ET.Element:
    """The picture, parsed."""
    return ET.fromstring(picture.as_svg(found))


def links(picture: ET.Element, kind: str) -> dict[tuple[str, str], ET.Element]:
    """The lines of a kind, by the GPUs that they join."""
    lines = [one for one in picture.iter(f"{SVG}path") if one.get("class", "").split()[0] == kind]
    return {(one.get("data-from", ""), one.get("data-to", "")): one for one in lines}


def box(element: ET.Element) -> Box:
    """Left, top, right and bottom of a group's frame."""
    frame = element if element.tag == f"{SVG}rect" else element.find(f"{SVG}rect")
    assert frame is not None
    x, y, width, height = (float(frame.get(name, "")) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def boxes(picture: ET.Element, kind: str) -> dict[str, Box]:
    """The frames of GPUs or adapters."""
    return {
        g.get("id", "")[len(kind) + 1 :]: box(g) for g in picture.iter(f"{SVG}g") if g.get("id", "").startswith(kind)
    }


def test_eight_mi210_are_two_hives_of_four_and_no_link_is_between_them() -> None:
    found = of(captured(MI210))
    assert [[gpu.index for gpu in gpus] for gpus in found.hives.values()] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    whole = {(one.a, one.b) for one in found.joints if one.state == "whole" and one.a != one.b}
    assert whole == {*combinations(range(4), 2), *combinations(range(4, 8), 2)}
    assert {one.state for one in found.joints if one.a < 4 <= one.b} == {"none"}
    text = tree.as_text(found)
    assert "hive 1: GPUs 4-7; 6 of 6 pairs joined by xGMI, 50 GB/s each way" in text
    assert re.search(r"^GPU3 +XGMI +XGMI +XGMI +X +SYS +SYS +SYS +SYS$", text, re.M)
    assert "adapters not known" in text


@pytest.mark.full
def test_gpus_of_a_capture_without_pci_are_beside_the_cpu_to_which_their_links_lead() -> None:
    assert [gpu.numa for gpu in of(captured(MI210)).gpus] == [0] * 4 + [1] * 4
    assert [gpu.numa for gpu in of(captured(CPX)).gpus] == [0] * 4 + [1] * 4


@pytest.mark.parametrize("name", [MI210, CPX, "healthy", "broken", "many"])
@pytest.mark.full
def test_each_drawn_line_is_a_link_of_the_machine_and_each_link_is_drawn(name: str) -> None:
    known = machine(name)
    host = nodes.held(known) if isinstance(known, dict) else known
    picture = drawn(of(known))
    lines = links(picture, "xgmi")
    assert {pair: int(line.get("data-joined", "")) for pair, line in lines.items()} == joined_pairs(host)
    gpus = boxes(picture, "gpu")
    for (one, other), line in lines.items():
        ends = [tuple(map(float, point.split(","))) for point in re.findall(r"[\d.]+,[\d.]+", line.get("d", ""))]
        for (x, y), (left, top, right, bottom) in ((ends[0], gpus[one]), (ends[-1], gpus[other])):
            assert x in (left, right)
            assert top < y < bottom


@pytest.mark.full
def test_of_64_partitions_63_are_drawn_and_the_one_that_is_missing_is_seen() -> None:
    picture = drawn(of(captured(CPX)))
    groups = {g.get("id"): [r.get("class", "") for r in g.iter(f"{SVG}rect")][1:] for g in picture.iter(f"{SVG}g")}
    assert groups.pop("gpu-0000:e5:00.0") == ["f0 part"] * 7 + ["gone"]
    assert set(map(tuple, groups.values())) == {("f0 part",) * 8}
    assert len(links(picture, "xgmi")) == 28
    assert sum(int(line.get("data-of", "")) for line in links(picture, "xgmi").values()) == 63 * 62 // 2 - 7 * 28 - 21


def test_a_link_that_is_missing_is_drawn_in_red_and_named() -> None:
    found = of(broken())
    assert links(drawn(found), "lost").keys() == {(ADDRESSES[3], ADDRESSES[7])}
    text = tree.as_text(found)
    assert "27 of 28 pairs joined by xGMI; LOST: 3-7" in text
    assert re.search(r"^GPU3 .* LOST ", text, re.M)


def test_links_that_cannot_be_read_are_not_known() -> None:
    found = of({path: text for path, text in nodes.healthy().items() if not path.startswith(f"{KFD}/5/io_links/")})
    assert len(links(drawn(found), "xgmi")) == 21
    assert re.search(r"^GPU3 +\? +\? +\? +X +\?", tree.as_text(found), re.M)
    assert "hive 0: GPUs 0-7; 21 of 28 pairs joined by xGMI, 7 not known" in tree.as_text(found)
    assert any("not all links" in note for note in found.notes)


def near(found: Topology) -> list[tuple[list[str], str]]:
    """Which adapters serve each GPU, and how."""
    return [([nic.name for nic in found.serving(gpu).nics], found.serving(gpu).how) for gpu in found.gpus]


def test_adapters_below_the_same_switch_serve_a_gpu() -> None:
    found = of(switched.node())
    pairs = [[f"mlx5_{at - at % 2}", f"mlx5_{at - at % 2 + 1}"] for at in range(8)]
    assert near(found) == [(pair, "same PCIe switch") for pair in pairs]
    lines = {
        (one.get("data-gpu"), one.get("data-nic")) for one in drawn(found).iter(f"{SVG}line") if one.get("data-gpu")
    }
    assert lines == {(address, name) for address, names in zip(ADDRESSES, pairs, strict=True) for name in names}


def test_a_port_that_is_down_serves_nobody() -> None:
    assert near(of(broken()))[2:4] == [(["mlx5_2"], "same PCIe switch")] * 2


def test_without_bridges_adapters_of_the_same_numa_node_serve_a_gpu() -> None:
    found = near(of(nodes.healthy()))
    assert found[0] == ([f"mlx5_{at}" for at in range(4)], "same NUMA node")
    assert found[7] == ([f"mlx5_{at}" for at in range(4, 8)], "same NUMA node")


@pytest.mark.parametrize(
    ("bridges", "path"),
    [
        ((), "?"),
        ((("00:01.0", 1, 9), ("00:02.0", 10, 19)), "PHB"),
        ((("00:01.0", 1, 9), ("40:02.0", 10, 19)), "?"),
        ((("00:01.0", 1, 19),), "PIX"),
        ((("00:01.0", 1, 19), ("01:00.0", 2, 19), ("02:00.0", 3, 9), ("02:01.0", 10, 19)), "PIX"),
        ((("00:01.0", 1, 19), ("01:00.0", 2, 9), ("01:01.0", 10, 19), ("02:00.0", 3, 9)), "PXB"),
    ],
)
def test_what_lies_between_two_devices_is_said_as_nvidia_smi_says_it(
    bridges: tuple[tuple[str, int, int], ...], path: str
) -> None:
    """One at bus 5, one at bus 15; with NUMA nodes, what the bus does not say becomes NODE or SYS."""
    tree: Tree = {"sys/": ""}
    for address, first, last in bridges:
        bus, device = address.split(":")
        tree |= switched.bridge(int(bus, 16), int(device[:2], 16), first, last)
    assert pci.read(nodes.held(tree)).path("0000:05:00.0", "0000:0f:00.0")[0] == path


def test_adapters_of_another_numa_node_serve_nobody_and_a_check_says_so() -> None:
    tree = nodes.healthy()
    tree |= {f"{IB}/mlx5_{at}/device/numa_node": "0\n" for at in range(8)}
    assert near(of(tree))[4:] == [([], "none on its NUMA node")] * 4
    said = [one for one in nodes.found(nodes.held(tree)) if one.status != "pass"]
    assert [(one.check, one.subject, one.status) for one in said] == [
        ("network.distance", address, "warn") for address in ADDRESSES[4:]
    ]


def test_where_the_machine_does_not_say_where_adapters_sit_it_is_not_known() -> None:
    tree = {path: text for path, text in nodes.healthy().items() if not re.search("mlx5_./device/numa_node", path)}
    found = of(tree)
    assert found.serving(found.gpus[0]) == ((), "the machine does not report the NUMA nodes of adapters", False)
    assert [one.status for one in nodes.found(nodes.held(tree)) if one.check == "network.distance"] == ["unknown"] * 8


def test_a_machine_without_gpus_has_an_honest_tree() -> None:
    assert tree.as_text(of(cpu_only())) == (
        "gpu-node-17: no GPU, 2 NUMA nodes, 1 port\n"
        "├─ NUMA node 0  2 CPUs (0-1)\n"
        "├─ NUMA node 1  2 CPUs (2-3)\n"
        "└─ NUMA node not known\n"
        "   └─ eth0  Ethernet  up  10 Gb/s  virtio_net"
    )


def test_of_a_machine_that_shows_neither_gpus_nor_adapters_both_are_not_known() -> None:
    assert tree.summary(of({"proc/cpuinfo": "", "sys/": ""})) == "GPUs not known, adapters not known"


def test_two_gpus_that_report_one_address_are_two_and_only_lists_narrow_the_view() -> None:
    vega = captured("../../machine/captures/vega-2")
    found = of(vega)
    assert [(gpu.index, gpu.address) for gpu in found.gpus] == [(0, "0000:19:00.0"), (1, "0000:19:00.0")]
    assert not any("are shown" in note for note in found.notes)
    narrowed = of(vega.with_environ({"ROCR_VISIBLE_DEVICES": "1"}))
    assert "1 of 2 GPUs are shown, those that ROCR_VISIBLE_DEVICES leaves visible" in narrowed.notes


def test_what_only_nvidias_tools_see_is_said_to_be_not_known() -> None:
    found = of(machine("NVIDIA"))
    assert any("nvidia-smi topo -m" in note for note in found.notes)
    assert re.search(r"^GPU0 +X +\?", tree.as_text(found), re.M)


def overlapping(placed: dict[str, Box]) -> Iterator[tuple[str, str]]:
    """Names of frames that cover each other."""
    for (one, a), (other, b) in combinations(placed.items(), 2):
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]:
            yield one, other


@pytest.mark.parametrize("name", ALL)
def test_a_picture_shows_everything_and_nothing_covers_another(name: str) -> None:
    found = of(machine(name))
    picture = drawn(found)
    gpus, adapters = boxes(picture, "gpu"), boxes(picture, "nic")
    assert list(gpus) == [gpu.address for gpu in found.gpus]
    assert list(adapters) == [nic.name for nic in found.nics]
    frames = {
        kind: [box(one) for one in picture.iter(f"{SVG}rect") if one.get("class") == kind] for kind in ("numa", "cpu")
    }
    assert len(frames["numa"]) == len(frames["cpu"]) == len(found.places)
    cpus = {f"CPU {at}": one for at, one in enumerate(frames["cpu"])}
    assert list(overlapping(gpus | adapters | cpus)) == []
    assert list(overlapping({str(at): one for at, one in enumerate(frames["numa"])})) == []
    for left, top, right, bottom in (*gpus.values(), *adapters.values(), *cpus.values()):
        assert any(a <= left and b <= top and c >= right and d >= bottom for a, b, c, d in frames["numa"])
    width, height = float(picture.get("width", "")), float(picture.get("height", ""))
    assert all(one[0] >= 0 and one[2] <= width and one[3] <= height for one in frames["numa"])
    bends = [float(x) for path in picture.iter(f"{SVG}path") for x in re.findall(r"Q([\d.-]+),", path.get("d", ""))]
    edge = max((box[2] for box in gpus.values()), default=0.0)
    assert all((x + edge) / 2 < width for x in bends), "an arc leaves the picture"


def test_long_names_and_lists_are_not_clipped() -> None:
    """CPUs that are numbered by turns make long lists: their number fits."""
    found = of(broken())
    long = replace(
        found,
        host="gpu-node-0123." * 12,
        numa=tuple(replace(one, cpus=",".join(map(str, range(0, 256, 2)))) for one in found.numa),
        gpus=tuple(replace(gpu, model="an accelerator " * 5, mode="CPX/NPS4") for gpu in found.gpus),
        nics=tuple(replace(nic, name="port_" * 12) for nic in found.nics),
    )
    svg = drawn(long)
    width = float(svg.get("width", "0"))
    for one in svg.iter(f"{SVG}text"):
        x, wide = float(one.get("x", "0")), 6.0 * len("".join(one.itertext()))
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[one.get("text-anchor", "start")]
        assert 0 <= left <= left + wide <= width, ET.tostring(one)
    assert "NUMA node 0: " in ET.tostring(svg, "unicode")


def test_names_are_escaped_wherever_they_come_from() -> None:
    tree = switched.node()
    tree["proc/sys/kernel/hostname"] = "<script>alert('&\"')</script>"
    tree[f"{IB}/mlx5_0/ports/1/state"] = "1: <b>\x08\n"
    found = of(tree)
    assert found.host.startswith("<script>")
    title = drawn(found).find(f"{SVG}title")
    assert title is not None
    assert title.text == f"Topology of {found.host}"
    page = picture.as_html(found)
    assert "<script" not in page
    assert "<b>" not in page
    assert "\x08" not in page


@pytest.mark.full
def test_a_capture_holds_all_that_is_shown(tmp_path: Path) -> None:
    reads = [pattern for check in nodes.checks() for pattern in check.reads]
    there = nodes.write(tmp_path / "there", on_four_nodes())
    capture.write(there, str(tmp_path / "node.tar.gz"), reads)
    before, after = (
        json.loads(tree.as_json(topology.read(facts.read(host))))
        for host in (there, capture.read(str(tmp_path / "node.tar.gz"), HostRoot("/nowhere", {})))
    )
    assert (before.pop("host"), after.pop("host")) == ("gpu-node-17", "captured-host")
    assert before == after


@pytest.mark.full
def test_the_command_prints_and_draws(primus: Run, tmp_path: Path) -> None:
    words = ("direct", "--", "analyze", "topology", "--assume-host", str(CAPTURES / f"{CPX}.tar.gz"))
    done = primus(*words, "--visualize", "pictures/node.svg")
    assert done.returncode == 0, done.stderr
    assert "CPX, 7 of 8" in done.stdout
    assert len(links(ET.parse(tmp_path / "pictures/node.svg").getroot(), "xgmi")) == 28
    done = primus(*words, "--visualize", "node.html", "--json")
    assert len(json.loads(done.stdout)["gpus"]) == 8
    page = (tmp_path / "node.html").read_text()
    assert "hive 0: GPUs 0-7; 28 of 28 pairs joined by xGMI" in page
    assert not re.search(r"<script|<link|<img|url\(|@import|\ssrc=|\shref=", page)
    here = primus("direct", "--", "analyze", "topology")
    assert here.returncode == 0, here.stderr
    assert "NUMA node" in here.stdout


@pytest.mark.parametrize("words", [("topology", "--visualize"), ("--visualize", "topology", "--json")])
@pytest.mark.full
def test_a_picture_that_nobody_named_is_in_the_run_directory(
    primus: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = primus("direct", "--", "analyze", *words)
    assert done.returncode == 0, done.stderr
    [drawn] = tmp_path.glob("output/analyze_*/topology.svg")
    assert f"picture: {drawn.relative_to(tmp_path)}" in done.stderr
    assert ET.parse(drawn).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one of: analyze topology"),
        (("topologie",), "did you mean 'topology'?"),
        (("topology", "--visualize", "node.png"), "'node.png' does not end in .svg or .html"),
        (("topology", "--visualize", "file/node.svg"), "/file is not a folder"),
        (("topology", "--assume-host", "file"), "'file' is not a capture of a machine"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_starts(
    primus: Run, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "file").touch()
    done = primus("direct", "--", "analyze", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "output").exists()


def test_a_picture_that_cannot_be_written_any_more_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match=re.escape(f"cannot write {tmp_path}/file/node.svg")):
        analyze_worker.main(["topology", "--visualize", f"{tmp_path}/file/node.svg"])
