"""A healthy node passes; each thing that can be wrong with one is found by the check that is meant for it, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.machine import machines
from tests.machine.machines import IB, KFD, PCI
from tests.preflight import nodes
from tests.preflight.nodes import ADDRESSES, Tree, healthy, text

from primus_preflight.checks.check import Check
from primus_preflight.checks.findings import Finding, verdict

Change = Callable[[Tree], None]
GPU = f"{PCI}/{ADDRESSES[3]}"
PORT = f"{IB}/mlx5_3/ports/1"
CGROUP = "sys/fs/cgroup/system.slice/job_7"
RANK = {"pass": 0, "skip": 1, "warn": 2, "unknown": 3, "fail": 4}


def says(path: str, content: str) -> Change:
    """A file says something else."""

    def change(tree: Tree) -> None:
        assert path in tree, path
        tree[path] = f"{content}\n"

    return change


def new(path: str, content: str) -> Change:
    """A file is there that was not."""
    return lambda tree: tree.update({path: f"{content}\n"})


def replaced(path: str, old: str, by: str) -> Change:
    """In a file, or in all that match."""

    def change(tree: Tree) -> None:
        paths = [one for one in tree if re.fullmatch(path, one)]
        assert paths
        for one in paths:
            assert re.search(old, text(tree, one)), one
            tree[one] = re.sub(old, by, text(tree, one))

    return change


def without(pattern: str) -> Change:
    """Files are gone."""

    def change(tree: Tree) -> None:
        gone = [path for path in tree if re.match(pattern, path)]
        assert gone
        for path in gone:
            del tree[path]

    return change


def together(*changes: Change) -> Change:
    """Several at once."""

    def change(tree: Tree) -> None:
        for one in changes:
            one(tree)

    return change


def answer(what: str, path: str, said: object) -> Change:
    """The kernel answers otherwise."""

    def change(tree: Tree) -> None:
        about = json.loads(text(tree, "facts.json"))
        about[what][path] = said
        tree["facts.json"] = json.dumps(about)

    return change


def partitions(tree: Tree) -> None:
    """All GPUs in CPX, 64 partitions, of which one is not there."""
    cut = machines.amd("MI300X", parts=8)
    for path in [path for path in tree if path.startswith(KFD)]:
        del tree[path]
    there = [node for node in range(2, 66) if node != 60]
    for path, content in cut.items():
        if not path.startswith(f"{KFD}/60/"):
            tree[path] = content
    for node in there:
        path = f"{KFD}/{node}/properties"
        tree[path] = (
            f"{re.sub('drm_render_minor.*', 'drm_render_minor 128', text(tree, path))}fw_version 192\nsdma_fw_version 25\n"
        )
        for index, other in enumerate(one for one in there if one != node):
            tree[f"{KFD}/{node}/io_links/{index}/properties"] = f"type 11\nnode_to {other}\n"


def lost_gpu(tree: Tree) -> None:
    """A GPU that neither the driver nor the bus shows."""
    without(f"{KFD}/5/|{GPU}/")(tree)
    for path in [path for path in tree if "/io_links/" in path and text(tree, path).find("node_to 5\n") >= 0]:
        del tree[path]


MUTATIONS: dict[str, tuple[Change, str, str]] = {
    "translation in the IOMMU": (replaced("proc/cmdline", "iommu=pt", "iommu=on"), "host.iommu", "warn"),
    "ACS redirects": (lambda t: t.update({f"{PCI}/0000:04:00.0/config": nodes.bridge(0x1D)}), "host.acs", "warn"),
    "configuration shown to root only": (lambda t: t.update({f"{PCI}/0000:04:00.0/config": nodes.bridge(0)[:64]}), "host.acs", "unknown"),
    "NUMA balancing on": (says("proc/sys/kernel/numa_balancing", "1"), "host.numa-balancing", "warn"),
    "huge pages never": (says("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"), "host.thp", "warn"),
    "one CPU saves power": (says("sys/devices/system/cpu/cpu11/cpufreq/scaling_governor", "powersave"), "host.governor", "warn"),
    "one CPU does not say": (without("sys/devices/system/cpu/cpu11/cpufreq/"), "host.governor", "unknown"),
    "huge pages held": (replaced("proc/meminfo", "HugePages_Total: +0", "HugePages_Total: 262144"), "host.hugepages", "warn"),
    "little memory may be pinned": (replaced("proc/self/limits", "(memory +)unlimited", r"\g<1>8388608"), "host.memlock", "fail"),
    "few files may be open": (replaced("proc/self/limits", "(files +)1048576", r"\g<1>1024"), "host.nofile", "warn"),
    "little shared memory": (answer("space", "/dev/shm", [2**26, 2**26]), "host.shm", "fail"),
    "a limit of memory": (says(f"{CGROUP}/memory.max", "274877906944"), "host.cgroup-memory", "warn"),
    "a limit of memory further up": (says("sys/fs/cgroup/system.slice/memory.max", "274877906944"), "host.cgroup-memory", "warn"),
    "a quota of CPU time": (says(f"{CGROUP}/cpu.max", "400000 100000"), "host.cgroup-cpu", "warn"),
    "half of the memory": (replaced("proc/meminfo", "MemTotal: +2377634616", "MemTotal: 1188817308"), "host.memory", "warn"),
    "memory that others use": (replaced("proc/meminfo", "MemAvailable: +2298518876", "MemAvailable: 99999999"), "host.memory-available", "warn"),
    "memory with errors": (says("sys/devices/system/edac/mc/mc1/ue_count", "2"), "host.memory-errors", "fail"),
    "a full disk": (answer("space", "/runs", [2**44, 2**20]), "host.disk", "fail"),
    "a GPU that is gone": (lost_gpu, "gpu.count", "fail"),
    "GPUs of mixed models": (replaced(f"{KFD}/5/properties|{GPU}/device", "29857|74a1", lambda m: {"29857": "29861", "74a1": "74a5"}[m[0]]), "gpu.model", "fail"),  # type: ignore[arg-type]
    "GPUs that nobody knows": (replaced(rf"{KFD}/[2-9]/properties|{PCI}/.*/device", "29857|74a1", lambda m: {"29857": "29951", "74a1": "74ff"}[m[0]]), "gpu.model", "unknown"),  # type: ignore[arg-type]
    "63 of 64 partitions": (partitions, "gpu.partitions", "fail"),
    "one GPU in another mode": (says(f"{GPU}/current_memory_partition", "NPS4"), "gpu.mode", "fail"),
    "one GPU with other firmware": (replaced(f"{KFD}/5/properties", r"\nfw_version 192", r"\nfw_version 185"), "gpu.firmware", "warn"),
    "no permission for the driver": (answer("access", "/dev/kfd", "closed"), "gpu.access", "fail"),
    "a device file that is not there": (answer("access", "/dev/dri/renderD131", "missing"), "gpu.access", "fail"),
    "somebody computes": (new("sys/class/kfd/kfd/proc/4711/pasid", "32770"), "gpu.processes", "fail"),
    "memory in use": (says(f"{GPU}/mem_info_vram_used", str(40 * 2**30)), "gpu.memory-used", "fail"),
    "a hot GPU": (says(f"{GPU}/hwmon/hwmon3/temp3_input", "101000"), "gpu.temperature", "fail"),
    "memory that lost something": (says(f"{GPU}/ras/umc_err_count", "ue: 1\nce: 0"), "gpu.uncorrectable", "fail"),
    "much corrected": (says(f"{GPU}/ras/gfx_err_count", "ue: 0\nce: 10001"), "gpu.correctable", "warn"),
    "8 lanes": (says(f"{GPU}/current_link_width", "8"), "gpu.pcie-width", "fail"),
    "16 GT/s": (says(f"{GPU}/current_link_speed", "16.0 GT/s PCIe"), "gpu.pcie-speed", "fail"),
    "much repeated": (says(f"{GPU}/pcie_replay_count", "5000"), "gpu.pcie-replays", "warn"),
    "a link between GPUs that is gone": (replaced(f"{KFD}/5/io_links/7/properties", "type 11", "type 2"), "gpu.xgmi", "fail"),
    "links that cannot be read": (without(f"{KFD}/5/io_links/"), "gpu.xgmi", "unknown"),
    "no hive": (replaced(f"{KFD}/[2-9]/properties", r"hive_id \d+", "hive_id 0"), "gpu.xgmi", "fail"),
    "a port without its like's rate": (says(f"{PORT}/rate", "100 Gb/sec (4X EDR)"), "network.rate", "fail"),
    "no GID for RoCE v2": (without(f"{PORT}/gid_attrs/"), "network.gid", "fail"),
    "a small MTU": (says(f"{IB}/mlx5_3/device/net/ens3np0/mtu", "1500"), "network.mtu", "warn"),
    "a link that flaps": (says(f"{PORT}/counters/link_downed", "23"), "network.flaps", "warn"),
    "symbol errors": (says(f"{PORT}/counters/symbol_error", "4711"), "network.errors", "warn"),
    "an interface that is down": (says("sys/class/net/eth0/operstate", "down"), "network.interface", "fail"),
}  # fmt: skip


def passing(found: list[Finding]) -> set[tuple[str, str, str]]:
    """What passes, and by what was measured."""
    return {(one.check, one.subject, one.measured) for one in found if one.status == "pass"}


def worst(tree: Tree) -> dict[str, str]:
    """The worst that each check says, where it does not pass."""
    said: dict[str, str] = {}
    for one in nodes.found(nodes.held(tree)):
        said[one.check] = max(said.get(one.check, "pass"), one.status, key=RANK.__getitem__)
    return {check: status for check, status in said.items() if status != "pass"}


@pytest.mark.parametrize("layer", ["Ethernet", "InfiniBand"])
def test_a_healthy_node_passes_and_everything_is_measured(layer: str) -> None:
    host = nodes.held(healthy(layer))
    found = nodes.found(host)
    left_out = {"network.gid", "network.mtu"} if layer == "InfiniBand" else set()
    assert [one for one in found if one.status != "pass" and one.check not in left_out] == []
    assert verdict(found) == "pass"
    assert {one.check for one in found} == {check.name for check in nodes.checks() if not check.meets} - nodes.MEASURED
    assert all(one.measured for one in found if one.status == "pass")
    assert all((one.source and one.expected) or one.compare for one in found)


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_wrong_is_found_by_its_check_and_no_other(name: str) -> None:
    change, check, status = MUTATIONS[name]
    tree = healthy()
    change(tree)
    found = nodes.found(nodes.held(tree))
    assert {one.check: one.status for one in found if one.status not in ("pass", "skip")} == {check: status}
    assert all(one.fix for one in found if one.status == status)


def test_a_port_that_is_down_is_found_and_nothing_else_is_said_of_it() -> None:
    tree = healthy()
    together(says(f"{PORT}/state", "1: DOWN"), says(f"{PORT}/phys_state", "2: Polling"))(tree)
    assert worst(tree) == {"network.ports": "fail"}


def test_a_driver_that_is_not_loaded_is_one_failure_and_the_rest_of_the_gpus_is_skipped() -> None:
    tree = healthy()
    without("sys/class/kfd/|sys/module/amdgpu/")(tree)
    said = worst(tree)
    assert said.pop("gpu.driver") == "fail"
    assert set(said.values()) == {"skip"}


def test_an_adapter_of_another_kind_may_be_slower() -> None:
    tree = healthy()
    tree |= {path.replace("mlx5_3", "mlx5_9"): text for path, text in tree.items() if "/mlx5_3/" in path}
    together(says(f"{IB}/mlx5_9/board_id", "MT_0000000884"), says(f"{IB}/mlx5_9/ports/1/rate", "200 Gb/sec (4X HDR)"))(
        tree
    )
    assert worst(tree) == {}


def test_a_port_that_trained_on_one_lane_is_found_even_if_it_is_alone() -> None:
    tree = healthy("InfiniBand")
    without(rf"{IB}/mlx5_[0-24-7]/")(tree)
    says(f"{PORT}/rate", "100 Gb/sec (1X NDR)")(tree)
    assert worst(tree)["network.rate"] == "fail"


def test_a_port_that_is_switched_off_is_skipped_but_counted() -> None:
    tree = healthy()
    together(says(f"{PORT}/state", "1: DOWN"), says(f"{PORT}/phys_state", "3: Disabled"))(tree)
    found = {(one.check, one.subject): one for one in nodes.found(nodes.held(tree))}
    assert found["network.ports", "mlx5_3:1"].status == "skip"
    assert found["network.active-ports", ""].measured == "7"


ONE_OF_EACH = sorted({re.sub(r"\d+", "N", path): path for path in healthy() if not path.endswith("/")}.values())
"""A path of each kind: what goes for one GPU goes for all."""
OTHER_GROUNDS = {
    "version": "gpu.driver",  # of the kernel's own tree, it has none
    "phys_state": "network.ports",  # some drivers have none; the state says it, too
    "3": "network.gid",  # one type of GID less: there is another GID for RoCE v2, link-local
    "properties": "gpu.xgmi",  # a GPU that is hidden (`gpu.count` is unknown then): the others reach each other
}


BEFORE = passing(nodes.found(nodes.held(healthy())))


@pytest.mark.parametrize("path", ONE_OF_EACH)
def test_a_file_that_is_taken_away_lets_nothing_pass_on_other_grounds(path: str) -> None:
    tree = healthy()
    del tree[path]
    after = passing(nodes.found(nodes.held(tree)))
    grounds = OTHER_GROUNDS.get(Path(path).name)
    assert {check for check, _, _ in after - BEFORE} <= {grounds}


@pytest.mark.parametrize("check", nodes.checks(), ids=lambda check: check.name)
def test_nothing_passes_whose_files_are_all_gone(check: Check) -> None:
    tree = healthy()
    host = nodes.held(tree)
    gone = {path for pattern in check.reads if ":/" not in pattern for path in host.paths(pattern)} | {"/facts.json"}
    found = nodes.found(nodes.held({path: text for path, text in tree.items() if f"/{path.rstrip('/')}" not in gone}))
    assert [one for one in found if one.check == check.name and one.status == "pass"] == []


def test_of_an_empty_machine_nothing_passes() -> None:
    found = nodes.found(nodes.held({"proc/": "", "sys/": ""}))
    assert {one.status for one in found} == {"unknown"}
    assert all(one.why for one in found)
    assert verdict(found) == "unknown"
