"""What limits the way from a GPU to its CPU, and what to do about it: each cause has an answer of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.machine.machines import PCI
from tests.preflight import nodes, switched
from tests.preflight.nodes import Tree

from primus_machine import facts
from primus_machine.host import HostRoot
from primus_preflight.checks.findings import Finding
from primus_preflight.machine import pci


def chain() -> tuple[str, list[str], Tree]:
    """A GPU behind switches, the bridges above it (the nearest first), and the machine, all at full speed."""
    tree = switched.node()
    address = facts.read(nodes.held(tree)).gpus[3].pci_address
    above = [bridge.address for bridge in reversed(pci.read(nodes.held(tree)).above(address))]
    for device in (address, *above):
        tree |= link(device)
    return address, above, tree


def link(address: str, **changes: str) -> Tree:
    """The files of a device at full speed, with changes."""
    usual = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}
    usual |= {"max_link_width": "16"}
    return {f"{PCI}/{address}/{name}": f"{text}\n" for name, text in (usual | changes).items()}


def pcie(host: HostRoot, address: str) -> list[Finding]:
    """What is wrong with the way of one GPU. The other GPUs share bridges with it."""
    found = [one for one in nodes.found(host) if one.check.startswith("gpu.pcie-") and one.subject == address]
    return [one for one in found if one.status != "pass"]


def test_a_way_at_full_speed_passes() -> None:
    address, above, tree = chain()
    assert len(above) > 1
    assert pcie(nodes.held(tree), address) == []


def test_a_narrow_slot_is_told_from_a_gpu_that_sits_badly() -> None:
    address, above, tree = chain()
    tree |= link(address, current_link_width="8")
    [badly] = pcie(nodes.held(tree), address)
    assert (badly.status, badly.measured, badly.why) == ("fail", "8", "GPU and slot can do more")
    assert badly.fix.startswith("reseat the GPU; lspci")
    tree |= link(above[0], current_link_width="8", max_link_width="8")
    [narrow] = pcie(nodes.held(tree), address)
    assert (narrow.status, narrow.why) == ("fail", f"its slot, {above[0]}, has 8 lanes at most")
    assert narrow.fix.startswith("move the GPU to a slot")


def test_a_gpu_that_can_do_no_more_is_itself_the_limit() -> None:
    address, _, tree = chain()
    tree |= link(address, current_link_speed="16.0 GT/s PCIe", max_link_speed="16.0 GT/s PCIe")
    [found] = pcie(nodes.held(tree), address)
    assert (found.check, found.why) == ("gpu.pcie-speed", "the GPU itself has 16 GT/s at most")


@pytest.mark.parametrize(("kind", "now"), [("speed", "16.0 GT/s PCIe"), ("width", "8")])
def test_a_bridge_above_that_is_slow_is_named(kind: str, now: str) -> None:
    address, above, tree = chain()
    tree |= link(above[-1], **{f"current_link_{kind}": now})
    [found] = pcie(nodes.held(tree), address)
    assert (found.status, found.measured) == ("fail", now.partition(".")[0])
    assert f"a bridge above it, {above[-1]}," in found.why
    assert f"reseat the board or riser of {above[-1]}" in found.fix
    tree |= link(above[-1], **{f"current_link_{kind}": now, f"max_link_{kind}": now})
    [found] = pcie(nodes.held(tree), address)
    assert "at most" in found.why
    assert above[-1] in found.fix


@pytest.mark.parametrize(
    "sleep",
    [
        {"current_link_speed": "2.5 GT/s PCIe"},
        {"current_link_speed": "2.5 GT/s PCIe", "power/runtime_status": "suspended"},
        {"current_link_speed": "Unknown", "power_state": "D3cold", "current_link_width": "0"},
        {"current_link_speed": "8.0 GT/s PCIe", "pp_dpm_pcie": "0: 8.0GT/s, x16 *\n1: 32.0GT/s, x16"},
    ],
)
def test_a_link_that_sleeps_is_unknown_and_not_broken(sleep: dict[str, str]) -> None:
    address, _, tree = chain()
    tree |= link(address, **sleep)
    found = pcie(nodes.held(tree), address)
    assert {one.status for one in found} == {"unknown"}
    assert all("sleeps" in one.why or "idle" in one.why for one in found)
    assert all("under load" in one.fix for one in found)


def test_a_link_that_is_slow_while_the_gpu_works_has_failed() -> None:
    address, _, tree = chain()
    tree |= link(address, current_link_speed="2.5 GT/s PCIe", gpu_busy_percent="99")
    assert [one.status for one in pcie(nodes.held(tree), address)] == ["fail"]


def test_an_empty_file_and_one_that_may_not_be_read_are_two_answers(tmp_path: Path) -> None:
    address, _, tree = chain()
    tree |= link(address, current_link_width="", current_link_speed="Unknown")
    speed, width = pcie(nodes.held(tree), address)
    assert (width.status, width.why) == ("unknown", "current_link_width is empty")
    assert (speed.status, speed.why) == ("unknown", "current_link_speed holds no speed")
    assert f"lspci -vv -s {address}" in width.fix
    nodes.write(tmp_path / "node", tree | link(address))
    (tmp_path / "node" / PCI / address / "current_link_width").chmod(0)
    for folder in (tmp_path, *tmp_path.parents[:-1]):
        if folder.stat().st_uid == os.getuid() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    host, path = HostRoot(str(tmp_path / "node"), {}), f"/{PCI}/{address}/current_link_width"
    assert as_somebody(lambda: host.why_unread(path)) == "cannot be read: permission denied"


def as_somebody(ask: Callable[[], str]) -> str:
    """Ask as a user who is not root: root may read everything."""
    ours, theirs = os.pipe()
    if child := os.fork():
        os.close(theirs)
        os.waitpid(child, 0)
        with open(ours, encoding="utf-8") as answer:
            return answer.read()
    try:
        if os.getuid() == 0:
            os.setuid(65534)
        os.write(theirs, ask().encode())
    finally:
        os._exit(0)
