"""Machines in a file: what checks read comes along, and what it does not hold is unknown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.machine.machines import PCI
from tests.preflight import nodes

from primus_machine import cgroups
from primus_machine.captures import capture
from primus_machine.host import HostRoot
from primus_preflight.checks.check import LACKING
from primus_preflight.checks.findings import Finding

HERE = Path(__file__).parent
HOST = HostRoot("/nowhere", {})


def found(path: Path) -> dict[tuple[str, str], Finding]:
    """What all checks find on a captured machine."""
    return {(one.check, one.subject): one for one in nodes.found(capture.read(str(path), HOST))}


def of(findings: dict[tuple[str, str], Finding], check: str) -> list[tuple[str, str]]:
    """Status and measure of each finding of a check."""
    return [(one.status, one.measured) for (name, _), one in findings.items() if name == check]


def test_eight_mi210_are_two_complete_hives_of_four() -> None:
    known = found(HERE / "captures/mi210-8.tar.gz")
    assert of(known, "gpu.xgmi") == [("pass", "3 of 3")] * 8
    assert of(known, "gpu.count") == [("pass", "8")]
    assert of(known, "gpu.model") == [("pass", "MI210")]
    assert of(known, "gpu.partitions") == [("pass", "1 of 1")] * 8


@pytest.mark.full
def test_the_missing_partition_of_a_captured_mi300x_is_found_and_its_links_are_whole() -> None:
    known = found(HERE / "captures/mi300x-cpx-63-of-64.tar.gz")
    failed = {key: one.measured for key, one in known.items() if one.status == "fail"}
    assert failed == {("gpu.partitions", "0000:e5:00.0"): "7 of 8"}
    commands = re.findall(r"amd-smi set -g 0000:e5:00.0 -C \w+", known["gpu.partitions", "0000:e5:00.0"].fix)
    assert [one.split()[-1] for one in commands] == ["SPX", "CPX"], "it ends in the mode of the other GPUs"
    assert of(known, "gpu.xgmi") == [("pass", "7 of 7")] * 8
    assert of(known, "gpu.count") == [("pass", "8")]


@pytest.mark.parametrize("name", ["mi210-8", "mi300x-cpx-63-of-64"])
def test_what_an_older_capture_does_not_hold_is_unknown(name: str) -> None:
    known = found(HERE.parent / f"machine/captures/{name}.tar.gz")
    assert of(known, "gpu.xgmi") == [("unknown", "")] * 8
    asked = {"gpu.driver", "gpu.access", "gpu.temperature", "gpu.uncorrectable", "gpu.pcie-width", "gpu.memory-used"}
    assert {known[key].status for key in known if key[0] in asked} == {"unknown"}


ABSENCES = {
    *("host.iommu", "host.acs", "host.memlock", "host.memory-errors", "gpu.driver", "gpu.rocm", "gpu.pcie-width"),
    *("network.distance", "network.ports", "network.active-ports", "network.rate", "network.interface"),
}
"""Checks that are skipped where what they look at is absent."""
GPU_LACKING = {"gpu.count", "gpu.model", "gpu.mode", "gpu.xgmi"}


def test_what_a_capture_does_not_show_is_not_said_to_be_absent() -> None:
    thin = nodes.held({"proc/cpuinfo": "processor: 0\n", "sys/": ""})
    bare = {one.check: one for one in nodes.found(thin)}
    assert {(bare[name].status, bare[name].why) for name in ABSENCES | GPU_LACKING} == {("unknown", LACKING)}
    known = {check: one for (check, _), one in found(HERE.parent / "machine/captures/mi210-8.tar.gz").items()}
    lacking = {name for name in ABSENCES if known[name].why == LACKING}
    assert lacking == ABSENCES - {"host.iommu", "host.acs", "host.memlock", "gpu.driver", "gpu.pcie-width"}
    assert [one.check for one in known.values() if "here" in one.why or "no route" in one.why] == []


def test_what_a_capture_shows_to_be_empty_or_missing_is_absent() -> None:
    folders = {"sys/bus/pci/devices/": "", "sys/class/net/lo/": "", "proc/net/route": "Iface\tDestination\n"}
    tree = {**folders, **nodes.asked(access={"/sys/devices/system/edac/mc": "missing"})}
    known = {one.check: one for one in nodes.found(nodes.held(tree))}
    assert {known[name].status for name in ABSENCES} == {"skip"}
    assert known["gpu.count"].why == "no GPU here"
    alone = {**nodes.healthy(), **nodes.asked(access={"/opt/rocm": "missing"})}
    del alone["opt/rocm/.info/version"]
    [rocm] = [one for one in nodes.found(nodes.held(alone)) if one.check == "gpu.rocm"]
    assert (rocm.status, rocm.why) == ("skip", "not in /opt/rocm: it may be in the container or the wheels")


def test_a_captured_gpu_that_is_not_in_the_table_is_named_with_what_to_do() -> None:
    one = found(HERE.parent / "machine/captures/vega-2.tar.gz")["gpu.model", ""]
    assert (one.status, one.why.partition(",")[0]) == ("unknown", "1002:6860 is not in Primus's table of GPUs")
    assert "PRIMUS_GPU_MODEL=<model>" in one.fix


@pytest.mark.full
def test_checks_find_the_same_on_a_capture_as_on_the_machine_save_what_only_bytes_say(tmp_path: Path) -> None:
    tree = nodes.healthy()
    tree[f"{PCI}/{nodes.ADDRESSES[3]}/current_link_width"] = "8\n"
    tree["facts.json"] = nodes.text(tree, "facts.json").replace('"/dev/kfd": "open"', '"/dev/kfd": "closed"')
    there = nodes.write(tmp_path / "there", tree)
    reads = [pattern for check in nodes.checks() for pattern in check.reads]
    capture.write(there, str(tmp_path / "node.tar.gz"), reads)
    before = {(one.check, one.subject): one for one in nodes.found(there)}
    after = found(tmp_path / "node.tar.gz")
    differing = {key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    # The disk is that of the run; bridges are bytes.
    assert differing == {"host.acs", "host.disk"}
    assert {after[check, ""].status for check in differing} == {"unknown"}
    assert {key[0] for key, one in after.items() if one.status == "fail"} == {"gpu.pcie-width", "gpu.access"}


def test_a_capture_holds_the_limits_of_ones_own_cgroup_and_an_older_one_is_said_to_lack_them(tmp_path: Path) -> None:
    tree = nodes.healthy()
    tree["proc/self/cgroup"] = "0::/user.slice/user-1000.slice/job_7\n"
    tree["sys/fs/cgroup/user.slice/user-1000.slice/job_7/cgroup.controllers"] = "memory\n"
    tree["sys/fs/cgroup/user.slice/user-1000.slice/memory.max"] = "4096\n"
    tree["sys/fs/cgroup/user.slice/user-1001.slice/memory.max"] = "max\n"
    there = nodes.write(tmp_path / "there", tree)
    capture.write(there, str(tmp_path / "node.tar.gz"), ())
    taken = capture.read(str(tmp_path / "node.tar.gz"), HOST)
    assert cgroups.limits(taken, "memory.max") == cgroups.limits(there, "memory.max") == ["4096"]
    assert not taken.names("/sys/fs/cgroup/user.slice/user-1001.slice")
    tree["proc/self/cgroup"] = "0::/gone\n"
    known = {(one.check, one.subject): one for one in nodes.found(nodes.write(tmp_path / "older", tree))}
    one = known["host.cgroup-memory", ""]
    assert (one.status, "the capture may lack it" in one.why, "primus env capture" in one.fix) == (
        "unknown",
        True,
        True,
    )


@pytest.mark.full
def test_a_capture_with_what_checks_read_is_the_same_file_when_it_is_captured_again(tmp_path: Path) -> None:
    reads = [pattern for check in nodes.checks() for pattern in check.reads]
    first, second = str(tmp_path / "a.tar.gz"), str(tmp_path / "b.tar.gz")
    capture.write(nodes.write(tmp_path / "there", nodes.healthy()), first, reads)
    capture.write(capture.read(first, HOST), second, reads)
    assert Path(first).read_bytes() == Path(second).read_bytes()
