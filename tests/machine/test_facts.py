"""What is read from a machine: captures of real ones, trees of `/sys` and `/proc` built after real ones, this one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.machine import machines
from tests.machine.machines import AMD, KFD, NVIDIA, PCI

from primus_core.environment.of_machine import Defaults, of_machine
from primus_core.plan.plan import Distributed
from primus_machine import facts
from primus_machine.captures import capture
from primus_machine.errors import RequestError
from primus_machine.facts import Facts, Gpu
from primus_machine.gpus import models
from primus_machine.host import HostRoot, number, numbered

CAPTURES = Path(__file__).with_name("captures")


def read(root: Path, *trees: Mapping[str, str], environ: Mapping[str, str] | None = None) -> Facts:
    """The facts of a machine that consists of these files."""
    return facts.read(machines.write(root, *trees, environ=environ))


def captured(name: str) -> Facts:
    """The facts of a captured machine."""
    return facts.read(capture.read(str(CAPTURES / f"{name}.tar.gz"), HostRoot(environ={})))


def wanted(found: Facts) -> Defaults:
    """What this machine asks for in a run on it alone."""
    place = Distributed(1, 0, 1, "localhost", 29500)
    return of_machine(found, place, framework="", profile_file="", environ=found.environ)


def without(tree: Mapping[str, str], *nodes: int) -> dict[str, str]:
    """A machine that lost some nodes of its topology."""
    lost = tuple(f"{KFD}/{node}/" for node in nodes)
    return {path: text for path, text in tree.items() if not path.startswith(lost)}


def table(name: str) -> models.GpuModel:
    return next(model for model in models.load() if model.name == name)


def test_a_machine_without_anything_has_no_gpu(tmp_path: Path) -> None:
    found = read(tmp_path, {}, environ={"A": "1"})
    assert found.gpus == ()
    assert found.numa_cpus == {}
    assert found.environ == {"A": "1"}
    assert (found.driver, found.rocm, found.cuda, found.notes, found.physical_gpus) == ("", "", "", (), 0)


@pytest.mark.parametrize("model", [name for name in AMD if name != "MI250X"])
def test_each_amd_model_is_known_by_its_pci_id(tmp_path: Path, model: str) -> None:
    found = read(tmp_path, machines.base(), machines.amd(model))
    assert found.gpu_model == model
    assert {gpu.model for gpu in found.gpus} == {model}
    assert {gpu.architecture for gpu in found.gpus} == {table(model).architecture}
    assert (len(found.gpus), found.physical_gpus) == (8, 8)
    assert [gpu.pci_address for gpu in found.gpus] == [f"0000:{bus:02x}:00.0" for bus in AMD[model].buses]
    assert [gpu.gpu for gpu in found.gpus] == list(range(8))
    assert [gpu.numa_node for gpu in found.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {gpu.memory_bytes for gpu in found.gpus} == {AMD[model].memory_gb * 2**30 - 2**24}
    assert {gpu.mode for gpu in found.gpus} == {"SPX/NPS1" if AMD[model].chiplets > 1 else ""}
    assert found.notes == ()


@pytest.mark.parametrize("model", NVIDIA)
def test_each_nvidia_model_is_known_by_its_pci_id(tmp_path: Path, model: str) -> None:
    found = read(tmp_path, machines.base(), machines.nvidia(model))
    assert found.gpu_model == model
    assert {gpu.architecture for gpu in found.gpus} == {table(model).architecture}
    assert (len(found.gpus), found.physical_gpus) == (8, 8)
    assert found.gpus[4].numa_node == 1
    assert {gpu.memory_bytes for gpu in found.gpus} == {int(table(model).memory_gb * 2**30)}
    assert found.notes == ()


@pytest.mark.parametrize(
    ("device", "model"),
    [
        (0x7410, "MI210"),
        (0x74B5, "MI300X"),
        (0x74B6, "MI308X"),
        (0x74B9, "MI325X"),
        (0x75B0, "MI350X"),
        (0x75B3, "MI355X"),
    ],
)
def test_the_virtual_function_that_a_cloud_gives_is_its_gpus_model(tmp_path: Path, device: int, model: str) -> None:
    whole = f"device_id {AMD[model].device_id}\n"
    tree = {path: text.replace(whole, f"device_id {device}\n") for path, text in machines.amd(model).items()}
    found = read(tmp_path, tree)
    assert (found.gpu_model, found.gpus[0].device_id, found.notes) == (model, device, ())


def test_an_nvidia_gpu_of_an_id_that_nobody_knows_is_not_known_by_a_name_like_anothers(tmp_path: Path) -> None:
    tree = {
        path: text.replace("0x2330", "0x2336").replace("80GB HBM3", "96GB HBM2e")
        for path, text in machines.nvidia("H100 SXM").items()
    }
    found = read(tmp_path / "id", tree)
    assert (found.gpu_model, found.gpus[0].memory_bytes) == ("", 0)
    assert found.notes[0].startswith("UNKNOWN GPU 10de:2336 (8 of architecture unknown)")
    no_id = {path: text for path, text in tree.items() if not path.endswith("/device")}
    assert read(tmp_path / "name", no_id).gpu_model == ""


def test_an_nvidia_gpu_whose_id_cannot_be_read_is_known_by_its_exact_name(tmp_path: Path) -> None:
    tree = machines.nvidia("H100 SXM", gpus=1)
    del tree[f"{PCI}/0000:1b:00.0/device"]
    assert read(tmp_path, tree).gpus[0] == Gpu(
        "nvidia",
        "0000:1b:00.0",
        0,
        0,
        "H100 SXM",
        "sm_90",
        80 * 2**30,
        ordinal=0,
        uuid="GPU-9221d5d1-b60b-a624-bf14-0a1819cfda00",
    )


@pytest.mark.parametrize(("parts", "mode"), [(1, "SPX"), (2, "DPX"), (4, "QPX"), (8, "CPX")])
def test_partitions_are_devices_of_one_gpu(tmp_path: Path, parts: int, mode: str) -> None:
    found = read(tmp_path, machines.amd("MI300X", parts=parts, memory="NPS4"))
    assert (len(found.gpus), found.physical_gpus) == (8 * parts, 8)
    assert {gpu.mode for gpu in found.gpus} == {f"{mode}/NPS4"}
    assert {gpu.partitions for gpu in found.gpus} == {parts}
    assert [(gpu.gpu, gpu.partition) for gpu in found.gpus] == [(g, p) for g in range(8) for p in range(parts)]
    assert found.gpus[-1].pci_address == "0000:e5:00.0"
    assert found.gpus[-1].memory_bytes == (192 * 2**30 - 2**24) // parts
    assert found.notes == ()


@pytest.mark.parametrize(("parts", "mode"), [(1, "SPX"), (2, "DPX"), (8, "CPX")])
def test_a_driver_that_tells_no_mode_shows_it_by_its_chiplets(tmp_path: Path, parts: int, mode: str) -> None:
    tree = {path: text for path, text in machines.amd("MI300X", parts=parts).items() if "current_" not in path}
    assert {gpu.mode for gpu in read(tmp_path, tree).gpus} == {mode}


def test_a_gpu_with_four_chiplets_makes_four_partitions_in_cpx(tmp_path: Path) -> None:
    found = read(tmp_path, machines.amd("MI308X", parts=4))
    assert (len(found.gpus), found.physical_gpus, found.gpus[0].mode) == (32, 8, "CPX/NPS1")


def test_partitions_that_an_older_driver_numbers_in_the_highest_bits_are_parts_too(tmp_path: Path) -> None:
    tree = {
        f"{KFD}/{n}/properties": f"simd_count 152\nlocation_id {n << 28 | 0x75 << 8}\ndomain 1\ndevice_id 29857\n"
        for n in range(8)
    }
    found = read(tmp_path, tree)
    assert [gpu.pci_address for gpu in found.gpus] == ["0001:75:00.0"] * 8
    assert [gpu.partition for gpu in found.gpus] == list(range(8))
    assert found.physical_gpus == 1


def test_an_unknown_gpu_has_as_many_parts_as_their_numbers_speak_of(tmp_path: Path) -> None:
    tree = {f"{KFD}/{n}/properties": f"simd_count 152\nlocation_id {0x500 | n}\ndevice_id 9\n" for n in (0, 5)}
    found = read(tmp_path, tree)
    assert [(gpu.partition, gpu.partitions) for gpu in found.gpus] == [(0, 6), (5, 6)]


def test_two_dies_that_follow_each_other_on_the_bus_are_one_gpu(tmp_path: Path) -> None:
    found = read(tmp_path, machines.amd("MI250X"))
    assert (len(found.gpus), found.physical_gpus, found.gpu_model) == (8, 4, "MI250X")
    # the driver's order is not that of the bus: d1 d6 c9 ce d9 de c1 c6
    assert [(gpu.pci_address[5:7], gpu.gpu, gpu.partition) for gpu in found.gpus[:4]] == [
        ("d1", 0, 0),
        ("d6", 0, 1),
        ("c9", 1, 0),
        ("ce", 1, 1),
    ]
    assert {(gpu.partitions, gpu.mode, gpu.memory_bytes >> 30) for gpu in found.gpus} == {(2, "", 63)}
    assert found.notes == ()


def test_an_odd_number_of_dies_is_told(tmp_path: Path) -> None:
    found = read(tmp_path, machines.amd("MI250X", gpus=7))
    assert (len(found.gpus), found.physical_gpus) == (7, 4)
    assert found.notes == ("7 dies of GPUs that have two: one is missing",)


def test_the_captured_mi300x_in_cpx_misses_one_of_its_partitions() -> None:
    found = captured("mi300x-cpx-63-of-64")
    assert (len(found.gpus), found.physical_gpus, found.gpu_model) == (63, 8, "MI300X")
    assert {(gpu.architecture, gpu.partitions, gpu.mode) for gpu in found.gpus} == {("gfx942", 8, "CPX")}
    assert found.notes == ("GPU 0000:e5:00.0: partition 7 of 0-7 is missing (CPX)",)


def test_the_captured_mi210_are_eight_gpus() -> None:
    found = captured("mi210-8")
    assert (len(found.gpus), found.physical_gpus, found.gpu_model) == (8, 8, "MI210")
    assert {(gpu.architecture, gpu.partitions, gpu.mode) for gpu in found.gpus} == {("gfx90a", 1, "")}
    assert [gpu.pci_address[5:7] for gpu in found.gpus] == ["63", "43", "03", "26", "e3", "c3", "83", "a3"]
    assert found.notes == ()


def test_the_captured_vega_is_unknown_and_counts_by_its_unique_id() -> None:
    found = captured("vega-2")
    assert (len(found.gpus), found.physical_gpus, found.gpu_model) == (2, 2, "")
    assert {gpu.memory_bytes for gpu in found.gpus} == {17163091968}
    assert found.notes == (
        (
            "UNKNOWN GPU 1002:6860 (2 of architecture unknown): Primus has no profile for its model; "
            "set PRIMUS_GPU_MODEL=<model> if it is one that Primus knows"
        ),
    )


def test_gpus_at_one_address_without_unique_ids_are_not_merged(tmp_path: Path) -> None:
    tree = {
        path: re.sub("location_id [0-9]+", "location_id 6400", re.sub("unique_id [0-9]+\n", "", text))
        for path, text in machines.amd("MI210", gpus=2).items()
    }
    found = read(tmp_path, tree)
    assert (len(found.gpus), found.physical_gpus) == (2, 2)
    assert {gpu.partitions for gpu in found.gpus} == {1}


def test_several_missing_partitions_are_named_for_each_gpu(tmp_path: Path) -> None:
    found = read(tmp_path, without(machines.amd("MI300X", parts=8), 3, 4, 12))
    assert found.notes == (
        "GPU 0000:05:00.0: partitions 1, 2 of 0-7 are missing (CPX)",
        "GPU 0000:26:00.0: partition 2 of 0-7 is missing (CPX)",
    )


def test_a_last_partition_that_is_alone_is_still_a_partition(tmp_path: Path) -> None:
    found = read(tmp_path, without(machines.amd("MI300X", parts=2, gpus=1), 2))
    assert found.gpus[0][6:10] == ((192 * 2**30 - 2**24) // 2, 0, 1, 2)
    assert found.gpus[0].pci_address == "0000:05:00.0"
    assert found.notes == ("GPU 0000:05:00.0: partition 0 of 0-1 is missing (DPX)",)


@pytest.mark.parametrize(("count", "usual"), [(3, 4), (5, 8), (6, 8), (7, 8)])
def test_an_unusual_number_of_gpus_asks_whether_one_is_missing(tmp_path: Path, count: int, usual: int) -> None:
    found = read(tmp_path, machines.amd("MI355X", gpus=count))
    assert found.physical_gpus == count
    assert found.notes == (f"{count} GPUs: a node usually has {usual}; one may be missing",)


def test_an_unusual_number_of_nvidia_gpus_asks_it_too(tmp_path: Path) -> None:
    found = read(tmp_path, machines.nvidia("H100 SXM", gpus=7))
    assert found.notes == ("7 GPUs: a node usually has 8; one may be missing",)


def on_the_bus(vendor: int, device: int, *buses: int) -> dict[str, str]:
    """GPUs as the PCI bus shows them, whatever a driver thinks of them; and a network adapter."""
    tree = {f"{PCI}/0000:01:00.0/vendor": "0x15b3\n", f"{PCI}/0000:01:00.0/device": f"{device:#06x}\n"}
    for bus in buses:
        folder = f"{PCI}/0000:{bus:02x}:00.0"
        tree |= {f"{folder}/vendor": f"{vendor:#06x}\n", f"{folder}/device": f"{device:#06x}\n"}
    return tree


def test_amd_gpus_that_only_the_bus_shows_are_named(tmp_path: Path) -> None:
    found = read(tmp_path, machines.amd("MI300X", gpus=6), on_the_bus(0x1002, 0x74A1, *AMD["MI300X"].buses))
    assert found.notes == (
        "2 GPUs on the PCI bus but not among the driver's: 0000:c6:00.0, 0000:e5:00.0; hidden or lost",
    )


def test_nvidia_gpus_that_only_the_bus_shows_are_named(tmp_path: Path) -> None:
    found = read(tmp_path, machines.nvidia("H100 SXM", gpus=1), on_the_bus(0x10DE, 0x2330, 0x1B, 0x43))
    assert found.notes == ("1 GPU on the PCI bus but not among the driver's: 0000:43:00.0; hidden or lost",)


def test_partitions_and_dies_are_on_the_bus_as_their_gpus(tmp_path: Path) -> None:
    cpx = read(tmp_path / "cpx", machines.amd("MI300X", parts=8), on_the_bus(0x1002, 0x74A1, *AMD["MI300X"].buses))
    dies = read(tmp_path / "dies", machines.amd("MI250X"), on_the_bus(0x1002, 0x7408, *AMD["MI250X"].buses))
    assert (cpx.notes, dies.notes) == ((), ())


def test_a_list_of_the_driver_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / KFD).mkdir(parents=True)
    assert facts.read(HostRoot(str(tmp_path), {})).notes == (
        (
            "/sys/class/kfd/kfd/topology/nodes is empty, so AMD GPUs cannot be detected: "
            "you may have no permission, or a container hides it"
        ),
    )


SCREEN = "simd_count 4\nvendor_id 4098\ndevice_id 5710\nlocation_id 4096\ngfx_target_version 100306\nnum_xcc 1\n"
"""The GPU of a Ryzen."""


def test_a_gpu_in_the_cpu_gives_way_to_those_of_another_vendor(tmp_path: Path) -> None:
    found = read(tmp_path, machines.nvidia("H100 SXM"), {f"{KFD}/1/properties": SCREEN})
    assert (found.gpu_model, len(found.gpus), found.driver) == ("H100 SXM", 8, "570.86.15")
    assert found.notes == (
        (
            "1 GPU of amd left out (0000:10:00.0): no run spans two vendors; "
            "PRIMUS_GPU_MODEL=amd or a model of theirs takes them"
        ),
    )


def test_one_unknown_accelerator_among_eight_counts_and_is_named(tmp_path: Path) -> None:
    tree = machines.amd("MI300X")
    path = f"{KFD}/{5}/properties"
    tree[path] = tree[path].replace("device_id 29857", "device_id 30000")
    found = read(tmp_path, tree)
    assert (found.gpu_model, len(found.gpus), found.physical_gpus) == ("MI300X", 8, 8)
    assert found.notes[0].startswith("UNKNOWN GPU 1002:7530 (1 of architecture gfx942)")


def test_an_accelerator_of_the_next_architecture_counts_beside_known_ones_and_a_screen_does_not(tmp_path: Path) -> None:
    for version, count in (("120500", 8), ("110000", 7)):
        tree = machines.amd("MI300X")
        path = f"{KFD}/{5}/properties"
        tree[path] = re.sub(r"gfx_target_version \d+", f"gfx_target_version {version}", tree[path])
        tree[path] = tree[path].replace("device_id 29857", "device_id 30000")
        assert len(read(tmp_path / version, tree).gpus) == count


@pytest.mark.parametrize(
    ("node", "hip"), [(99, ""), (0, "; HIP counts it, too, unless HIP_VISIBLE_DEVICES=1,2,3,4,5,6,7,8")]
)
@pytest.mark.parametrize("model", ["MI210", "MI300X"])
@pytest.mark.parametrize("known", [True, False])
def test_a_gpu_in_the_cpu_is_no_rank_beside_accelerators(
    tmp_path: Path, node: int, hip: str, model: str, known: bool
) -> None:
    whole = f"device_id {AMD[model].device_id}\n"
    tree = {path: text if known else text.replace(whole, "device_id 1\n") for path, text in machines.amd(model).items()}
    found = read(tmp_path, tree, {f"{KFD}/{node}/properties": SCREEN})
    assert (found.gpu_model, len(found.gpus), found.physical_gpus) == (model if known else "", 8, 8)
    assert found.notes[0] == f"ignored beside the accelerators: 0000:10:00.0 (1002:164e){hip}"


def test_a_gpu_in_the_cpu_alone_is_a_gpu(tmp_path: Path) -> None:
    found = read(tmp_path, {f"{KFD}/0/properties": "cpu_cores_count 16\n" + SCREEN})
    assert [gpu.pci_address for gpu in found.gpus] == ["0000:10:00.0"]


def test_an_mi300a_is_an_accelerator(tmp_path: Path) -> None:
    """Its nodes are those of other GPUs, of the domains 0 to 3: from the test data of a device plugin."""
    tree = {f"{KFD}/{node}/properties": "cpu_cores_count 48\nsimd_count 0\n" for node in range(4)}
    for node in range(4):
        tree[f"{KFD}/{node + 4}/properties"] = (
            "cpu_cores_count 0\nsimd_count 912\ngfx_target_version 90402\nvendor_id 4098\ndevice_id 29856\n"
            f"location_id 512\ndomain {node}\nunique_id {node + 7}\nnum_xcc 6\n"
        )
    found = read(tmp_path, tree, {f"{KFD}/9/properties": SCREEN})
    assert [gpu.pci_address for gpu in found.gpus] == [f"000{domain}:02:00.0" for domain in range(4)]
    assert found.physical_gpus == 4


@pytest.mark.parametrize(
    ("amd", "said", "vendor"), [(8, "", "amd"), (1, "", "nvidia"), (1, "MI300X", "amd"), (8, "nvidia", "nvidia")]
)
def test_of_two_vendors_the_one_with_more_gpus_is_taken_or_the_one_that_is_said(
    tmp_path: Path, amd: int, said: str, vendor: str
) -> None:
    trees = machines.amd("MI300X", gpus=amd), machines.nvidia("H100 SXM", gpus=2)
    found = read(tmp_path, *trees, environ={"PRIMUS_GPU_MODEL": said})
    assert {gpu.vendor for gpu in found.gpus} == {vendor}
    left = "2 GPUs of nvidia" if vendor == "amd" else f"{amd} GPU{'s' if amd > 1 else ''} of amd"
    assert found.notes[0].startswith(f"{left} left out (")


@pytest.mark.parametrize("parts", [2, 8])
def test_partitions_with_unique_ids_of_their_own_are_still_of_one_gpu(tmp_path: Path, parts: int) -> None:
    """As the driver gives them since Linux 6.17."""
    tree = {
        path: re.sub(r"unique_id \d+", f"unique_id {9000 + at}", text)
        for at, (path, text) in enumerate(machines.amd("MI300X", parts=parts).items())
    }
    found = read(tmp_path / "whole", tree)
    assert (len(found.gpus), found.physical_gpus, found.notes) == (8 * parts, 8, ())
    assert {gpu.partitions for gpu in found.gpus} == {parts}
    mode = {2: "DPX", 8: "CPX"}[parts]
    lost = read(tmp_path / "lost", without(tree, 2 + parts))
    which = f"partition 0 of 0-{parts - 1} is missing ({mode})"
    assert lost.notes == (f"GPU 0000:26:00.0: {which}",)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_usual_number_of_gpus_asks_nothing(tmp_path: Path, count: int) -> None:
    assert read(tmp_path, machines.amd("MI355X", gpus=count)).notes == ()


def test_nodes_that_a_container_may_not_read_are_hidden_and_not_missing(tmp_path: Path) -> None:
    tree = machines.amd("MI300X")
    for node in (7, 8, 9):
        del tree[f"{KFD}/{node}/properties"]
    found = read(tmp_path, tree, {f"{KFD}/.note": "of the person who copied it"})
    assert len(found.gpus) == 5
    assert found.notes == (
        "3 GPU devices of this machine are hidden from here, by a container's or a job's device list",
    )


def test_hidden_devices_are_named_as_far_as_bus_and_partitions_tell(tmp_path: Path) -> None:
    tree = machines.amd("MI300X", parts=8) | on_the_bus(0x1002, 0x74A1, *AMD["MI300X"].buses)
    for node in (3, 4, *range(10, 18)):
        del tree[f"{KFD}/{node}/properties"]
    assert read(tmp_path, tree).notes == (
        ("10 GPU devices of this machine are hidden from here, by a container's or a job's device list: 0000:26:00.0"),
        "GPU 0000:05:00.0: partitions 1, 2 of 0-7 are hidden or missing (CPX)",
    )


def test_one_hidden_device_is_one(tmp_path: Path) -> None:
    tree = machines.amd("MI300X")
    del tree[f"{KFD}/7/properties"]
    assert read(tmp_path, tree).notes[0].startswith("1 GPU device of this machine is hidden from here")


def test_an_unknown_gpu_is_told_loudly_with_its_architecture(tmp_path: Path) -> None:
    tree = {path: text.replace("device_id 29857", "device_id 30000") for path, text in machines.amd("MI300X").items()}
    found = read(tmp_path, tree)
    assert (found.gpu_model, found.gpus[0].architecture, len(found.gpus)) == ("", "gfx942", 8)
    assert found.notes == (
        (
            "UNKNOWN GPU 1002:7530 (8 of architecture gfx942): Primus has no profile for its model; "
            "set PRIMUS_GPU_MODEL=<model> if it is one that Primus knows"
        ),
    )


def test_gpus_of_two_models_are_told(tmp_path: Path) -> None:
    tree = machines.amd("MI300X")
    for node in (2, 3):
        tree[f"{KFD}/{node}/properties"] = tree[f"{KFD}/{node}/properties"].replace("29857", "29861")
    found = read(tmp_path, tree)
    assert found.gpu_model == "MI300X"
    assert found.notes == ("GPUs of mixed models: 6 MI300X, 2 MI325X; the profile follows the most frequent one",)


@pytest.mark.parametrize(
    ("said", "model"), [("MI300X", "MI300X"), ("mi300x", "MI300X"), ("AMD Instinct MI300X OAM", "MI300X"), ("none", "")]
)
def test_the_person_names_the_model_of_a_gpu_that_nobody_knows(tmp_path: Path, said: str, model: str) -> None:
    tree = {path: text.replace("29857", "30000") for path, text in machines.amd("MI300X", parts=8).items()}
    found = read(tmp_path, tree, environ={"PRIMUS_GPU_MODEL": said})
    assert {gpu.model for gpu in found.gpus} == {model}
    assert (len(found.gpus), found.physical_gpus, found.gpus[0].partitions) == (64, 8, 8)
    assert found.notes == ()


def test_a_model_that_contradicts_the_machine_wins_and_is_told(tmp_path: Path) -> None:
    found = read(tmp_path, machines.amd("MI300X"), environ={"PRIMUS_GPU_MODEL": "MI350X"})
    assert (found.gpu_model, found.gpus[0].architecture) == ("MI350X", "gfx942")
    assert found.notes == ("PRIMUS_GPU_MODEL says MI350X; found here: MI300X",)


@pytest.mark.parametrize("said", ["MI35X", "MI300", "H1000"])
@pytest.mark.parametrize("model", ["MI355X", ""])
def test_a_model_that_nobody_knows_is_refused_with_a_suggestion(tmp_path: Path, said: str, model: str) -> None:
    found = read(tmp_path, machines.amd(model) if model else {}, environ={"PRIMUS_GPU_MODEL": said})
    with pytest.raises(RequestError, match=f"unknown GPU model '{said}'") as refused:
        wanted(found)
    assert refused.value.exit_code == 2
    assert "MI300X, MI308X" in refused.value.why
    assert refused.value.why.endswith("none")
    assert refused.value.fix.startswith("did you mean '")


@pytest.mark.parametrize("said", ["amd", "AMD", "none", " MI300X ", "H100"])
def test_a_vendor_none_and_every_model_are_words_for_a_gpu(tmp_path: Path, said: str) -> None:
    wanted(read(tmp_path / "with", machines.amd("MI355X"), environ={"PRIMUS_GPU_MODEL": said}))
    wanted(read(tmp_path / "without", {}, environ={"PRIMUS_GPU_MODEL": said}))


def test_a_vendor_that_the_person_says_is_the_profile_of_an_unknown_gpu(tmp_path: Path) -> None:
    tree = {path: text.replace("29857", "30000") for path, text in machines.amd("MI300X").items()}
    found = wanted(read(tmp_path, tree, environ={"PRIMUS_GPU_MODEL": "amd"}))
    assert [profile.name for profile in found.chain] == ["base", "amd"]
    assert not [note for note in found.notes if "GPU" in note]


@pytest.mark.parametrize(
    ("device", "said", "note"),
    [
        ("29857", "H100", "says H100 SXM; found here: GPUs of amd, MI300X, and none of nvidia"),
        ("29857", "nvidia", "says nvidia; found here: GPUs of amd, MI300X, and none of nvidia"),
        ("30000", "H100", "says H100 SXM; found here: GPUs of amd, of no model that Primus knows, and none of nvidia"),
    ],
)
def test_a_model_of_another_vendor_is_told_with_both(tmp_path: Path, device: str, said: str, note: str) -> None:
    tree = {path: text.replace("29857", device) for path, text in machines.amd("MI300X").items()}
    found = read(tmp_path, tree, environ={"PRIMUS_GPU_MODEL": said})
    assert found.notes == (f"PRIMUS_GPU_MODEL {note}",)
    assert found.gpus[0].architecture == "gfx942"


@pytest.mark.parametrize(
    ("said", "notes"),
    [("MI300X", ("PRIMUS_GPU_MODEL is 'MI300X', but no GPU was found here",)), ("none", ()), ("", ())],
)
def test_a_model_makes_no_gpus_where_there_are_none(tmp_path: Path, said: str, notes: tuple[str, ...]) -> None:
    found = read(tmp_path, machines.base(), environ={"PRIMUS_GPU_MODEL": said})
    assert (found.gpus, found.notes) == ((), notes)


def test_memory_comes_from_the_graphics_driver_and_then_from_the_table(tmp_path: Path) -> None:
    tree = {path: text for path, text in machines.amd("MI300X", parts=2, gpus=2).items() if "mem_banks" not in path}
    tree[f"{PCI}/0000:05:00.0/mem_info_vram_total"] = "206141652992\n"
    assert [gpu.memory_bytes for gpu in read(tmp_path, tree).gpus] == [103070826496] * 2 + [96 * 2**30] * 2


def test_device_and_function_of_a_whole_gpu_are_kept(tmp_path: Path) -> None:
    location = 0xC1 << 8 | 0x1F << 3 | 5
    tree = {f"{KFD}/1/properties": f"simd_count 1216\nlocation_id {location}\ndevice_id 29857\nnum_xcc 8\n"}
    tree |= {f"{KFD}/2/properties": f"simd_count 1216\nlocation_id {location + 1}\ndevice_id 29857\nnum_xcc 8\n"}
    tree |= {f"{KFD}/3/properties": f"simd_count 1216\nlocation_id {location + 2}\ndevice_id 29857\nnum_xcc 8\n"}
    found = read(tmp_path, tree)
    assert [gpu.pci_address for gpu in found.gpus] == ["0000:c1:1f.5", "0000:c1:1f.6", "0000:c1:1f.7"]
    assert found.physical_gpus == 3


def test_malformed_numbers_count_as_nothing(tmp_path: Path) -> None:
    text = (
        "simd_count 8\nlocation_id many\ndomain -1\ndevice_id ²\nnum_xcc\ngfx_target_version 1 2\nunique_id "
        + "9" * 5000
    )
    tree = {f"{KFD}/1/properties": text, f"{KFD}/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes x\n"}
    found = read(tmp_path, tree, {f"{PCI}/0000:00:00.0/numa_node": "none\n"}).gpus
    assert [gpu._replace(architecture="") for gpu in found] == [Gpu("amd", "0000:00:00.0", ordinal=0)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["simd_count", "location_id", "domain", "device_id", "unique_id", "num_xcc", "gfx_target_version", "x"]
            ),
            st.one_of(
                st.integers(-1, 2**64).map(str), st.sampled_from(["29857", "29704", "1", "8"]), st.text(max_size=5)
            ),
        ),
        max_size=6,
    ),
    st.sampled_from(["", "none", "MI300X", "MI250X"]),
)
def test_no_topology_stops_the_detection(tmp_path: Path, nodes: list[dict[str, str]], said: str) -> None:
    # Always the same seven folders: what a former example wrote is written over.
    texts = ["\n".join(f"{name} {value}" for name, value in node.items()) for node in nodes] + [""] * (7 - len(nodes))
    tree = {f"{KFD}/{index}/properties": text for index, text in enumerate(texts)}
    found = read(tmp_path, tree, environ={"PRIMUS_GPU_MODEL": said})
    assert sorted({gpu.gpu for gpu in found.gpus}) == list(range(found.physical_gpus))
    assert all(0 <= gpu.partition < gpu.partitions for gpu in found.gpus)


def test_versions_of_driver_rocm_and_cuda_are_read(tmp_path: Path) -> None:
    amd = read(tmp_path / "amd", machines.amd("MI300X"))
    assert (amd.driver, amd.rocm, amd.cuda) == ("6.12.12", "6.4.1", "")
    nvidia = read(tmp_path / "nvidia", machines.nvidia("H100 SXM"))
    assert (nvidia.driver, nvidia.rocm, nvidia.cuda) == ("570.86.15", "", "12.8.1")


def test_a_rocm_or_cuda_that_the_person_names_comes_first(tmp_path: Path) -> None:
    tree = {
        "opt/rocm/.info/version": "6.4.1-83\n",
        "opt/rocm-7.0.0/.info/version": "7.0.0\n",
        "opt/cuda-10/version.txt": "CUDA Version 10.2.89\n",
    }
    named = {"ROCM_PATH": "/opt/rocm-7.0.0", "CUDA_HOME": "/opt/cuda-10"}
    found = read(tmp_path, tree, environ=named)
    assert (found.rocm, found.cuda) == ("7.0.0", "10.2.89")
    assert read(tmp_path, {}, environ={"ROCM_HOME": "/nowhere"}).rocm == "6.4.1"


def test_a_link_of_the_other_machine_leads_to_its_own_files(tmp_path: Path) -> None:
    machines.write(tmp_path, {"opt/rocm-6.4.1/.info/version": "6.4.1\n"})
    (tmp_path / "opt" / "rocm").symlink_to("/opt/rocm-6.4.1")
    (tmp_path / "opt" / "out").symlink_to("../../../../../../opt/rocm")
    (tmp_path / "opt" / "circle").symlink_to("circle")
    host = HostRoot(str(tmp_path), {})
    assert facts.read(host).rocm == "6.4.1"
    assert host.text("/opt/out/.info/version") == "6.4.1"
    assert host.text("/opt/circle") is None


def test_a_tree_says_its_own_name_and_cpus(tmp_path: Path) -> None:
    found = read(tmp_path, machines.base(cpus=192))
    assert (found.hostname, found.cpu_count) == ("gpu-node-17", 192)


def test_a_tree_that_does_not_say_name_and_cpus_borrows_none(tmp_path: Path) -> None:
    nothing = read(tmp_path / "nothing", {"proc/x": ""})
    assert (nothing.hostname, nothing.cpu_count) == ("unknown", 0)
    counted = read(tmp_path / "counted", {"proc/cpuinfo": "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\n"})
    assert counted.cpu_count == 2


def test_a_fifo_or_an_endless_file_in_a_tree_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "proc" / "sys" / "kernel").mkdir(parents=True)
    os.mkfifo(tmp_path / "proc" / "sys" / "kernel" / "hostname")
    (tmp_path / "proc" / "meminfo").symlink_to("/proc/sys/kernel/hostname")
    with open(tmp_path / "proc" / "cpuinfo", "wb") as file:
        file.truncate(2**40)
    host = HostRoot(str(tmp_path), {})
    assert (host.hostname(), host.text("/proc/meminfo"), host.text("/proc/cpuinfo", 10)) == ("unknown", None, None)


HUGE = "9" * 5000


def test_numbers_of_thousands_of_digits_are_none(tmp_path: Path) -> None:
    host = capture.CapturedHost(
        "",
        HostRoot(environ={}),
        texts={
            "sys/devices/system/cpu/online": f"0-{HUGE},4-2,0-1",
            f"sys/devices/system/node/node{HUGE}/cpulist": "0-3",
            f"{KFD}/{HUGE}/properties": "simd_count 1216",
        },
        folders={"sys/devices/system/node": (f"node{HUGE}", "node٣"), KFD: (HUGE, "٣")},
    )
    found = facts.read(host)
    assert (found.cpu_count, found.numa_cpus, found.gpus) == (2, {}, ())


@given(st.text(), st.sampled_from([10, 16]))
def test_a_number_is_read_from_any_text(text: str, base: int) -> None:
    assert 0 <= number(text, base) < 16**24


@given(st.lists(st.one_of(st.integers(0, 10**12).map(str), st.text(max_size=4))))
def test_numbered_names_are_in_the_order_of_their_numbers(names: list[str]) -> None:
    found = numbered(names)
    assert list(found) == sorted(found)
    assert set(found.values()) <= set(names)


def test_numa_nodes_with_cpus_are_listed_and_those_of_gpu_memory_are_not(tmp_path: Path) -> None:
    folder = "sys/devices/system/node"
    tree = {
        f"{folder}/node0/cpulist": "0-15,32-47\n",
        f"{folder}/node10/cpulist": "16-31\n",
        f"{folder}/node2/cpulist": "\n",
        f"{folder}/possible": "0-10\n",
    }
    assert read(tmp_path, tree).numa_cpus == {0: "0-15,32-47", 10: "16-31"}


def test_this_machine_is_read_without_an_error() -> None:
    found = facts.read()
    assert found.python == sys.executable
    assert found.cwd == str(Path.cwd())
    assert found.cpu_count == len(os.sched_getaffinity(0))
    assert found.environ["PATH"]
