"""`primus env`: the real command, on this machine and on assumed ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.machine.machines import KFD, amd, base, port, roce_gids, routes, write

MELLANOX = {
    path: text
    for number in range(2)
    for path, text in port(f"mlx5_{number}", layer="Ethernet", gids=roce_gids(number)).items()
}
EXPERIMENT = """\
exp_name: small
env:
  NCCL_P2P_NET_CHUNKSIZE: 262144
  HF_TOKEN: ${HF_TOKEN}
modules:
  pre_trainer:
    framework: megatron
"""


@pytest.fixture
def assumed(tmp_path: Path) -> dict[str, str]:
    """Folders of machines, by name."""
    trees: dict[str, Mapping[str, str]] = {name: amd(name) for name in ("MI210", "MI300X", "MI355X")}
    trees["none"] = {}
    for name, tree in trees.items():
        write(tmp_path / "machines" / name, base(), tree, MELLANOX, routes(("10.0.0.0/8", "eth0", 0)))
    return {name: str(tmp_path / "machines" / name) for name in trees}


def told(primus: Run, *words: str, action: str = "explain", **environ: str) -> Any:
    """What `primus env ACTION --json` says."""
    result = primus("env", action, "--json", *words, env=environ)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def variables(primus: Run, *words: str, **environ: str) -> dict[str, dict[str, Any]]:
    """The rows of `primus env explain`, by variable."""
    return {row["name"]: row for row in told(primus, *words, **environ)["variables"]}


def test_this_machine_is_shown_with_its_variables(primus: Run) -> None:
    result = primus("env", "show")
    assert result.returncode == 0, result.stderr
    assert {line.split()[0] for line in result.stdout.splitlines()[:5]} >= {"host", "GPUs", "network", "profile"}
    assert any(line.startswith("PYTHONFAULTHANDLER=1 ") for line in result.stdout.splitlines())


def test_a_machine_is_described_as_one_would_count_it(primus: Run, tmp_path: Path) -> None:
    write(tmp_path / "cpx", base(), amd("MI300X", parts=8, memory="NPS4"), MELLANOX)
    text = primus("env", "show", "--assume-host", str(tmp_path / "cpx")).stdout
    assert "GPUs      8 x MI300X, 64 devices, 24 GiB each, gfx942, CPX/NPS4\n" in text
    assert "NUMA 0: 0000:05:00.0, 0000:26:00.0, 0000:46:00.0, 0000:65:00.0\n" in text
    assert "versions  driver 6.12.12, ROCm 6.4.1\n" in text
    assert "network   mlx5_0:1 Ethernet, 400 Gb/s, active, mlx5_core, RoCE v2 GID 3, NUMA 0\n" in text
    assert "profile   base > amd > MI300X\n" in text


@pytest.mark.parametrize("name", ["MI300X", "mi355x", "H100 SXM"])
def test_a_model_of_gpus_is_a_machine_that_has_eight_of_them(primus: Run, project: Path, name: str) -> None:
    shown = primus("env", "show", "--assume-host", name).stdout
    assert f"GPUs      8 x {name.upper()}" in shown
    assert "its CPUs and its network are not known" in shown
    assert "\nnetwork   not known\n" in shown
    planned = primus("direct", "--dry-run", "--assume-host", name, "--", "behave", "wait", cwd=project).stdout
    assert f"a machine with 8 {name.upper()} is assumed" in planned


def test_the_lists_of_visible_gpus_count_for_an_assumed_machine_too(primus: Run) -> None:
    rows = variables(primus, "--assume-host", "MI300X", "GPUS_PER_NODE", HIP_VISIBLE_DEVICES="4,5")
    assert rows["GPUS_PER_NODE"]["value"] == "2"


def test_a_model_that_nobody_knows_is_answered_with_the_nearest(primus: Run) -> None:
    refused = primus("env", "show", "--assume-host", "MI325")
    assert refused.returncode == 2
    assert "no GPU is called 'MI325'" in refused.stderr
    assert "did you mean 'MI325X'?" in refused.stderr


def test_partitions_that_differ_by_some_mib_are_of_one_kind(primus: Run, tmp_path: Path) -> None:
    tree = amd("MI300X", parts=8)
    bank = sorted(path for path in tree if path.endswith("mem_banks/0/properties"))[9]
    size = next(line for line in tree[bank].splitlines() if line.startswith("size_in_bytes"))
    less = f"size_in_bytes {int(size.split()[1]) - (600 << 20 >> 2)}"
    write(tmp_path / "cpx", base(), {**tree, bank: tree[bank].replace(size, less)})
    shown = primus("env", "show", "--assume-host", str(tmp_path / "cpx")).stdout
    [line] = [line for line in shown.splitlines() if "MI300X," in line]
    assert line == "GPUs      8 x MI300X, 64 devices, 24 GiB each, gfx942, CPX/NPS1"


@pytest.mark.parametrize(
    "changes",
    [
        {"numa_node": "-1\n", "links": "far"},
        {"numa_node": "-1\n", "links": "", "only": "0"},
        {"numa_node": "1\n", "links": ""},
    ],
    ids=("as the driver's links say", "the only one", "as PCI says"),
)
def test_the_numa_node_of_a_gpu_is_found_where_pci_does_not_say_it(
    primus: Run, tmp_path: Path, changes: dict[str, str]
) -> None:
    tree = {**base(), **amd("MI300X")}
    for path in [path for path in tree if path.endswith("/numa_node")]:
        tree[path] = changes["numa_node"]
    if changes["links"]:  # the second CPU is nearer
        for node in range(2, 10):
            for to, weight in ((0, 52), (1, 20)):
                tree[f"{KFD}/{node}/io_links/{to}/properties"] = f"node_to {to}\nweight {weight}\n"
    if changes.get("only"):
        tree = {path: text for path, text in tree.items() if "/node/node1/" not in path}
    write(tmp_path / "node", tree)
    shown = primus("env", "show", "--assume-host", str(tmp_path / "node")).stdout
    assert f"\n            NUMA {changes.get('only', '1')}: 0000:05:00.0, 0000:26:00.0" in shown, shown
    assert "NUMA node not known" not in shown


def test_profiles_differ_where_the_hardware_does(primus: Run, assumed: dict[str, str]) -> None:
    def by_profile(name: str) -> dict[str, str]:
        rows = variables(primus, "--assume-host", assumed[name])
        return {row["name"]: row["value"] for row in rows.values() if row["origin"].startswith("profile")}

    found = {name: by_profile(name) for name in assumed}
    assert found["none"] == {"PYTHONFAULTHANDLER": "1"}
    assert found["MI210"]["HSA_FORCE_FINE_GRAIN_PCIE"] == "1"
    assert found["MI300X"]["RCCL_MSCCL_ENABLE"] == "0"
    assert found["MI355X"]["RCCL_WARP_SPEED_AUTO"] == "0"
    names = [set(found[name]) for name in ("MI210", "MI300X", "MI355X")]
    assert names[0] != names[1] != names[2] != names[0]


def test_every_row_says_where_it_is_from_and_why(primus: Run, assumed: dict[str, str]) -> None:
    environ = {"NNODES": "2", "MASTER_ADDR": "10.1.2.3"}
    rows = variables(primus, "--assume-host", assumed["MI300X"], "--framework", "megatron", **environ)
    assert all(row["origin"] and row["why"] for row in rows.values())
    assert all(row["source"] for row in rows.values())
    assert rows["GLOO_SOCKET_IFNAME"]["value"] == "eth0"


def test_the_person_wins_over_detection_and_an_option_over_the_person(primus: Run, assumed: dict[str, str]) -> None:
    name = "NCCL_IB_GID_INDEX"
    words = ("--assume-host", assumed["MI300X"])
    detected = variables(primus, *words)[name]
    assert (detected["value"], detected["origin"], detected["overrode"]) == ("3", "network", [])
    own = variables(primus, *words, **{name: "9"})[name]
    assert (own["value"], own["origin"]) == ("9", "user")
    assert own["overrode"] == [{"value": "3", "origin": "network"}]
    given = variables(primus, *words, "--env", f"{name}=7", **{name: "9"})[name]
    assert (given["value"], given["origin"]) == ("7", "--env")
    assert given["overrode"] == [{"value": "9", "origin": "user"}, {"value": "3", "origin": "network"}]


def test_the_table_shows_what_was_overridden(primus: Run, assumed: dict[str, str]) -> None:
    result = primus("env", "explain", "NCCL_IB_GID_INDEX", "--assume-host", assumed["MI300X"],
                    "--env", "NCCL_IB_GID_INDEX=7", env={"NCCL_IB_GID_INDEX": "9"})  # fmt: skip
    head, _, first, second = (line.split() for line in result.stdout.splitlines())
    assert head == ["variable", "value", "origin", "overrode", "why", "source"]
    assert first == ["NCCL_IB_GID_INDEX", "7", "--env", "9", "(user)", "given", "for", "this", "run", "--env"]
    assert second == ["3", "(network)"]


def test_a_source_stays_whole_to_be_copied(primus: Run, assumed: dict[str, str]) -> None:
    text = primus("env", "explain", "RCCL_WARP_SPEED_AUTO", "--assume-host", assumed["MI355X"]).stdout
    assert "https://github.com/AMD-AGI/Primus/pull/1178\n" in text


def test_a_variable_that_nobody_sets_is_said_to_be_so(primus: Run) -> None:
    rows = variables(primus, "NCCL_PXN_DISABLE", "HOME", HOME="/home/me")
    assert rows["NCCL_PXN_DISABLE"]["why"] == "not set"
    assert (rows["HOME"]["value"], rows["HOME"]["origin"]) == ("/home/me", "user")


def test_a_misspelt_variable_is_answered_with_the_one_that_was_meant(primus: Run) -> None:
    assert "did you mean 'NCCL_DEBUG'?" in variables(primus, "NCCL_DEBGU", NCCL_DEBUG="INFO")["NCCL_DEBGU"]["why"]


@pytest.mark.parametrize("encoding", ["utf-8:strict", "latin-1", "ascii"])
def test_every_value_can_be_printed_and_none_commands_the_terminal(primus: Run, encoding: str) -> None:
    odd = {"NCCL_A": "\udcff", "NCCL_B": "日", "NCCL_C": "\x1b[31mred\n", "PYTHONIOENCODING": encoding}
    for action in ("show", "explain"):
        result = primus("env", action, env=odd)
        assert result.returncode == 0, result.stderr
        assert "\x1b" not in result.stdout
    assert "\\x1b[31mred\\n" in result.stdout


def test_the_persons_own_are_listed_where_they_change_a_run(primus: Run) -> None:
    rows = variables(primus, NCCL_DEBUG="INFO", LESS="x")
    assert rows["NCCL_DEBUG"]["origin"] == "user"
    assert "LESS" not in rows


def test_a_gpu_that_nobody_knows_is_said_loudly_once(primus: Run, tmp_path: Path) -> None:
    tree = {
        path: text.replace(f"device_id {0x75A0}\n", f"device_id {0x75A8}\n") for path, text in amd("MI350X").items()
    }
    write(tmp_path / "new", base(), tree)
    text = primus("env", "show", "--assume-host", str(tmp_path / "new")).stdout
    assert text.count("UNKNOWN GPU 1002:75a8") == 1
    assert "profile   base\n" in text
    known = primus("env", "show", "--assume-host", str(tmp_path / "new"), env={"PRIMUS_GPU_MODEL": "MI350X"}).stdout
    assert "profile   base > amd > MI350X\n" in known


@pytest.mark.full
def test_a_package_brings_the_profile_of_a_new_gpu(primus: Run, third_party: str, tmp_path: Path) -> None:
    tree = {
        path: text.replace(f"device_id {0x75A0}\n", f"device_id {0x75A8}\n") for path, text in amd("MI350X").items()
    }
    write(tmp_path / "new", base(), tree)
    rows = variables(primus, "--assume-host", str(tmp_path / "new"), PYTHONPATH=third_party)
    row = rows["GPU_MAX_HW_QUEUES"]
    assert (row["value"], row["origin"]) == ("4", "profile MI350P (acme-primus 2.1.0)")
    assert row["overrode"] == [{"value": "2", "origin": "profile amd"}]
    text = primus("env", "show", "--assume-host", str(tmp_path / "new"), env={"PYTHONPATH": third_party}).stdout
    assert "profile   base > amd > MI350P (acme-primus 2.1.0)\n" in text
    assert "UNKNOWN GPU" not in text


def test_a_persons_profile_is_laid_over(primus: Run, assumed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[[variable]]\nname = "GPU_MAX_HW_QUEUES"\nvalue = "8"\nwhy = "I measured"\n')
    row = variables(primus, "--assume-host", assumed["MI300X"], "--profile", "mine.toml")["GPU_MAX_HW_QUEUES"]
    assert (row["value"], row["origin"], row["why"]) == ("8", "profile mine.toml", "I measured")


def test_a_captured_machine_is_shown_as_it_is(primus: Run, tmp_path: Path) -> None:
    made = primus("env", "capture", "-o", "node.tar.gz")
    assert made.returncode == 0, made.stderr
    assert "Serial numbers, host name and network addresses were" in made.stdout
    here, there = told(primus, action="show"), told(primus, "--assume-host", "node.tar.gz", action="show")
    assert [row["name"] for row in there["variables"]] == [row["name"] for row in here["variables"]]
    assert there["gpus"] == here["gpus"]
    again = primus("env", "capture", "-o", "node.tar.gz")
    assert again.returncode == 2
    assert "'node.tar.gz' is there already" in again.stderr
    assert primus("env", "capture", "-o", "node.tar.gz", "--force").returncode == 0


WRONG = {
    "an unknown framework": (("explain", "--framework", "megatorn"), "did you mean 'megatron'?"),
    "a missing profile": (("show", "--profile", "gone.toml"), "gone.toml: this profile cannot be read"),
    "a missing host": (("show", "--assume-host", "gone.tar.gz"), "'gone.tar.gz' is not a capture of a machine"),
    "a missing experiment": (("show", "--config", "gone.yaml"), "gone.yaml"),
    "a wrong option": (("show", "--profil", "x"), "did you mean '--profile'?"),
    "a wrong --env": (("show", "--env", "A B"), "neither NAME=VALUE"),
    "no action": ((), "ACTION"),
    "a folder that is not there": (("capture", "-o", "gone/node.tar.gz"), "gone/node.tar.gz"),
}


def test_several_nodes_need_a_place_to_meet(primus: Run) -> None:
    result = primus("env", "show", env={"NNODES": "2"})
    assert result.returncode == 2
    assert "MASTER_ADDR is not set" in result.stderr


def test_the_options_of_direct_in_primus_yaml_count_and_a_misspelt_one_is_refused(primus: Run, tmp_path: Path) -> None:
    file = tmp_path / "primus.yaml"
    file.write_text("direct: {env: [SITE=1]}\n", encoding="utf-8")
    shown = primus("env", "show", cwd=tmp_path).stdout
    assert "SITE=1 " in shown
    assert f"{file}:1" in shown
    file.write_text("direct: {numaa: true}\n", encoding="utf-8")
    result = primus("env", "show", cwd=tmp_path)
    assert result.returncode == 2
    assert "`primus direct` has no option 'numaa'" in result.stderr
    assert "did you mean 'numa'?" in result.stderr


def test_a_variable_that_is_passed_on_by_name_overrides_nothing(primus: Run) -> None:
    assert variables(primus, "--env", "SITE", SITE="1")["SITE"]["overrode"] == []
    other = variables(primus, "--env", "SITE=2", SITE="1")["SITE"]["overrode"]
    assert [one["origin"] for one in other] == ["user"]
