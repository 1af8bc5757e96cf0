"""GPUs that are hot, slow or lose data are named with their rank; healthy machines are not, nor those without GPUs."""

from __future__ import annotations

import pytest
from tests.machine.machines import IB, PCI
from tests.preflight import nodes
from tests.preflight.nodes import ADDRESSES, Tree

from primus_machine.gpus import state
from primus_machine.host import HostRoot
from primus_watch.health.gpus import Gpus
from primus_watch.health.node import Health
from primus_watch.health.ports import Ports
from primus_watch.steps.rules import Report

RANKS = range(8, 16)


def busy() -> Tree:
    """A node that trains: each GPU at its power limit."""
    tree = nodes.healthy()
    for index, address in enumerate(ADDRESSES):
        folder = f"{PCI}/{address}/hwmon/hwmon{index}"
        tree |= {
            f"{folder}/freq1_input": f"{1300 + index}000000\n",
            f"{folder}/power1_average": "742000000\n",
            f"{folder}/temp2_input": "87000\n",
            f"{folder}/temp2_label": "junction\n",
            f"{folder}/temp2_crit": "100000\n",
            f"{PCI}/{address}/gpu_busy_percent": "99\n",
        }
    return tree


def looked(*trees: Tree, monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    """What is reported where the machine is one tree after the other."""
    gpus = Gpus(nodes.held(trees[0]))
    found: list[Report] = []
    for step, tree in enumerate(trees, 1):
        monkeypatch.setattr(gpus, "_host", nodes.held(tree))
        found += gpus.reports(step, RANKS)
    return found


def changed(**files: str) -> Tree:
    """The node whose fourth GPU is otherwise."""
    folders = {"ras": "ras/", "gpu": "", "hwmon": "hwmon/hwmon3/"}
    places = {f"{folders[key.partition('__')[0]]}{key.partition('__')[2]}": text for key, text in files.items()}
    return busy() | {f"{PCI}/{ADDRESSES[3]}/{place}": f"{text}\n" for place, text in places.items()}


def test_healthy_gpus_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked(*[busy()] * 20, monkeypatch=monkeypatch) == []


CASES = {
    "gpu_hot": (
        changed(hwmon__temp2_input="101000"),
        2,
        "is hot: junction has 101 °C of 100 (1303 MHz, 742 W, 101 °C)",
    ),
    "slow_gpu": (
        changed(hwmon__freq1_input="132000000"),
        6,
        "is slow: 132 MHz, 742 W, 87 °C, while the others have 1304 MHz",
    ),
    "gpu_errors": (changed(ras__umc_err_count="ue: 1\nce: 7"), 2, "has had 1 uncorrected and 7 corrected errors"),
}


@pytest.mark.parametrize("event", CASES)
def test_a_gpu_that_is_ill_is_named_once_with_its_rank_and_step(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, step, words = CASES[event]
    trees = [busy(), *[tree] * 12] if event == "gpu_errors" else [tree] * 12
    [found] = looked(*trees, monkeypatch=monkeypatch)
    assert (found.event, found.step, found.warns) == (event, step, True)
    assert found.figures["gpu_rank"] == 11
    assert f"GPU {ADDRESSES[3]} of rank 11 on " in found.message
    assert words in found.message


def test_a_gpu_that_idles_or_is_hot_for_a_moment_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = changed(hwmon__freq1_input="132000000", gpu__gpu_busy_percent="0")
    hot = changed(hwmon__temp2_input="101000")
    assert looked(*[idle] * 12, *[hot, busy()] * 6, monkeypatch=monkeypatch) == []


def test_errors_from_before_the_run_are_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    old = changed(ras__umc_err_count="ue: 3\nce: 70000")
    assert looked(*[old] * 3, monkeypatch=monkeypatch) == []


def test_gpus_are_looked_at_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    health = Health(nodes.held(busy()))
    times: list[int] = []

    def looked_at(step: int, ranks: range) -> list[Report]:
        times.append(step)
        return []

    monkeypatch.setattr(health._gpus, "reports", looked_at)
    for second in range(0, 31, 5):
        assert list(health.reports(second, RANKS, 1000.0 + second)) == []
    assert times == [0, 10, 20, 30]


def test_a_machine_without_gpus_and_adapters_has_nothing_to_report() -> None:
    health = Health(HostRoot("/nowhere", {}))
    assert list(health.reports(1, RANKS, 0.0)) == []
    assert health.wrong(RANKS) == []


def test_what_the_driver_does_not_say_is_not_known() -> None:
    found = state.read(nodes.held(nodes.healthy()), ADDRESSES[0])
    assert (found.mhz, found.watts, found.busy_percent) == (None, None, None)
    assert [(one.celsius, one.critical) for one in found.sensors] == [(41.0, None), (36.0, None)]


def test_ports_tell_what_became_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = nodes.healthy() | {"sys/class/net/eth0/device/uevent": "DRIVER=x\n"}
    ports = Ports(nodes.held(tree))
    assert ports.wrong() == []
    tree |= {
        f"{IB}/mlx5_2/ports/1/state": "1: DOWN\n",
        f"{IB}/mlx5_2/ports/1/counters/link_downed": "2\n",
        "sys/class/net/eth0/operstate": "down\n",
    }
    tree = {path: text for path, text in tree.items() if "mlx5_7" not in path}
    monkeypatch.setattr(ports, "_host", nodes.held(tree))
    assert ports.wrong() == [
        "port mlx5_2:1 has lost its link",
        "port mlx5_2:1 has counted since the run began: link_downed 2",
        "port mlx5_7:1 is gone",
        "interface eth0 is down",
    ]


def test_a_gpu_that_answers_no_more_is_told_of_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus(nodes.held(busy()))
    assert gpus.wrong(RANKS) == []
    silent = {path: text for path, text in busy().items() if f"{ADDRESSES[3]}/hwmon" not in path}
    monkeypatch.setattr(gpus, "_host", nodes.held(silent))
    assert gpus.wrong(RANKS) == [
        f"GPU {ADDRESSES[3]} of rank 11 does not answer: its driver says no temperature any more"
    ]
