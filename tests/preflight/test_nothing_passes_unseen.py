"""Fit means looked at: a node without GPUs, a threshold that cannot be checked, a verdict without a reason or an origin."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.machine.machines import IB, KFD, PCI
from tests.preflight import nodes
from tests.preflight.nodes import ADDRESSES, Tree

from primus_machine import facts, packages
from primus_preflight.checks import thresholds
from primus_preflight.checks.check import Check, Node
from primus_preflight.checks.findings import verdict
from primus_preflight.checks.rule import Rule
from primus_preflight.verdict.cluster import judge
from primus_preflight.verdict.node_report import NodeReport

BOUNDS = {"floor": "1", "limit": "5", "allowed": '["nothing"]', "share": "0.5", "of_speed": "0.5"}


def without(tree: Tree, *folders: str) -> Tree:
    """The machine without what is in these folders."""
    return {path: content for path, content in tree.items() if not path.startswith(folders)}


def no_gpus() -> Tree:
    """A node whose GPUs neither the driver nor the bus shows."""
    return without(nodes.healthy(), KFD, *(f"{PCI}/{address}/" for address in ADDRESSES))


def partitioned() -> Tree:
    """A node whose GPUs are all in another mode than usual."""
    changed = {path: "NPS4\n" for path in nodes.healthy() if path.endswith("/current_memory_partition")}
    assert changed
    return {**nodes.healthy(), **changed}


def report(host: str, tree: Tree) -> NodeReport:
    """What a node of this tree says."""
    found = facts.read(machine := nodes.held(tree))
    return NodeReport(host, tuple(nodes.found(machine)), found.gpu_model, len(found.gpus))


def test_of_eight_nodes_the_one_without_gpus_and_the_one_with_a_wrong_partition_are_named_with_the_reason() -> None:
    trees = {**{f"n{at}": nodes.healthy() for at in range(8)}, "n3": no_gpus(), "n6": partitioned()}
    found = judge([report(host, tree) for host, tree in trees.items()])
    assert (found.failing, found.unknown, found.exit_code) == (("n3", "n6"), (), 1)
    [absent], [mode] = ([one for one in found.nodes[host] if one.status == "fail"] for host in found.failing)
    assert (absent.check, absent.amount, absent.expected) == ("gpu.count", "0 GPUs", "8")
    assert absent.why == "no GPU here; 7 nodes of this run have 8 GPUs"
    assert (mode.check, mode.measured, mode.expected) == ("gpu.mode", "SPX/NPS4", "SPX/NPS1")
    assert "SPX/NPS1 on 6" in mode.why
    assert absent.fix
    assert mode.fix


def test_one_node_with_gpus_is_enough_to_make_those_without_unfit_and_alone_they_are_unknown() -> None:
    bare = [report(f"n{at}", no_gpus()) for at in range(3)]
    alone = judge(bare)
    assert (alone.unknown, alone.exit_code) == (("n0", "n1", "n2"), 3)
    [why] = [one for one in alone.nodes["n0"] if one.status == "unknown"]
    assert (why.check, why.expected) == ("gpu.count", "GPUs, or PRIMUS_GPU_MODEL=none")
    assert "PRIMUS_GPU_MODEL=none" in why.fix
    assert judge([*bare, report("n9", nodes.healthy())]).failing == ("n0", "n1", "n2")


@pytest.mark.parametrize("environ", [{"CUDA_VISIBLE_DEVICES": ""}, {"ROCR_VISIBLE_DEVICES": "-1"}, {}])
def test_who_asks_for_the_cpus_needs_no_gpu_and_the_report_says_who_asked(environ: dict[str, str]) -> None:
    for tree in (no_gpus(), nodes.healthy()):
        machine = nodes.held(tree).with_environ(environ)
        found = nodes.found(machine, cpu=not environ)
        [count] = [one for one in found if one.check == "gpu.count"]
        assert (count.status, verdict(found)) == ("skip", "pass")
        assert ("hides all GPUs" if environ else "--cpu") in count.why
        assert {one.status for one in found if one.check.startswith("gpu.")} == {"skip"}


def test_only_the_gpus_that_the_lists_leave_are_judged() -> None:
    tree = nodes.healthy()
    tree[f"{PCI}/{ADDRESSES[0]}/current_link_width"] = "4\n"
    tree[f"{PCI}/{ADDRESSES[1]}/hwmon/hwmon1/temp2_input"] = "120000\n"
    tree[f"{KFD}/4/io_links/1/properties"] = "type 2\nnode_to 2\n"
    tree["sys/class/kfd/kfd/proc/4711/vram_2001"] = "4096\n"
    for number in range(2, 10):
        tree[f"{KFD}/{number}/gpu_id"] = f"200{number - 1}\n"
    machine = nodes.held(tree).with_environ({"ROCR_VISIBLE_DEVICES": "4,5"})
    found = nodes.found(machine)
    assert [one for one in found if one.status == "fail"] == []
    [count] = [one for one in found if one.check == "gpu.count"]
    assert (count.measured, count.source) == ("2", "ROCR_VISIBLE_DEVICES=4,5")
    subjects = {one.subject for one in found if one.check in ("gpu.pcie-width", "gpu.temperature", "gpu.xgmi")}
    assert subjects == set(ADDRESSES[4:6])
    other = nodes.found(machine.with_environ({"ROCR_VISIBLE_DEVICES": "0,4"}))
    assert {one.check for one in other if one.status == "fail"} == {"gpu.pcie-width", "gpu.processes"}


def test_nodes_with_fewer_gpus_or_without_adapters_are_not_as_the_others() -> None:
    half = without(nodes.healthy("Ethernet", "MI308X"), *(f"{KFD}/{at}/" for at in range(6, 10)))
    half = without(half, *(f"{PCI}/{address}/" for address in ADDRESSES[4:]))
    unwired = without(nodes.healthy(), IB)
    whole = [report(f"n{at}", nodes.healthy()) for at in range(3)]
    assert "gpu.count" in {one.check for one in judge([report("n9", half)]).nodes["n9"] if one.status == "fail"}
    found = judge([*whole, report("n9", unwired)])
    assert [(one.check, one.why) for one in found.nodes["n9"] if one.status == "fail"] == [
        ("network.active-ports", "no InfiniBand or RoCE adapter here; 3 nodes of this run have 8 ports")
    ]


def site(tmp_path: Path, text: str) -> str:
    """A site's file."""
    (tmp_path / "site.toml").write_text(text)
    return str(tmp_path / "site.toml")


@pytest.mark.parametrize(
    ("text", "exit_code", "said"),
    [
        ("[gpu.count]\nfloor = 8\n", 1, "0 GPUs; expected ≥ 8"),
        ("[network.active-ports]\nfloor = 8\n", 0, ""),
        (
            "[gpu.temperature]\nlimit = 80\n",
            3,
            "--cpu: training on the CPUs, so the threshold that was set cannot be checked",
        ),
        ('[gpu.temperature]\nlimit = 80\nseverity = "warn"\n', 0, "--cpu: training on the CPUs, so the threshold"),
        ("[gpu.temperature.models.MI300X]\nlimit = 80\n", 0, "skipped, --cpu: training on the CPUs"),
        ("[gpu.temperature]\nsource = 'us'\n", 0, "skipped, --cpu: training on the CPUs"),
        ("[gpu.gemm]\nfloor = 80\n", 0, "not checked at level quick, though site.toml sets a threshold: gpu.gemm"),
    ],
)
@pytest.mark.full
def test_a_threshold_that_the_site_sets_is_never_skipped(
    primus: Run, tmp_path: Path, text: str, exit_code: int, said: str
) -> None:
    nodes.write(tmp_path / "node", no_gpus())
    site(tmp_path, text)
    done = primus("direct", "--", "preflight", "--assume-host", "node", "--skip", "host.disk", "--cpu",
                  "--thresholds", "site.toml")  # fmt: skip
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert said in " ".join((done.stdout + done.stderr).split())


def test_no_check_skips_a_bound_that_was_set_whatever_the_machine_lacks(tmp_path: Path) -> None:
    """Of an empty machine: unknown, or too few. Only where there is no other node, nothing between nodes is asked."""
    bare = Node(facts.read(nodes.held({"proc/": "", "sys/": ""})))
    asked = []
    for check in nodes.checks():
        for bound in BOUNDS.keys() & set(check.rule.takes):
            [own] = thresholds.with_site([check], site(tmp_path, f"[{check.name}]\n{bound} = {BOUNDS[bound]}\n"), {})
            found = own.findings(bare)
            assert all(one.why for one in found if one.status == "unknown"), check.name
            if not check.meets:
                assert {one.status for one in found} <= {"unknown", "fail", "warn", "pass"}, check.name
                asked.append(verdict(found) == "unknown")
    assert asked.count(True) > 30


def test_what_is_unknown_always_has_a_reason() -> None:
    rule = Rule("rack.lamp", floor=1)
    silent = Check("rack.lamp", "", ("/etc/lamp",), lambda _, rule: [rule.number("", None)], rule)
    [one] = silent.findings(Node(facts.read(nodes.held({}))))
    assert (one.status, one.why) == ("unknown", "cannot read /etc/lamp: the capture may lack it")
    skipped = judge([NodeReport("n1", (rule.skip("no lamp here"),)), NodeReport("n2", ())])
    assert skipped.unknown == ("n1", "n2")
    assert [skipped.nodes[host][-1].why for host in skipped.unknown] == [
        "all skipped: no lamp here",
        "all skipped: no check ran",
    ]


@pytest.mark.full
def test_a_launch_that_needs_gpus_does_not_start_where_there_are_too_few(primus: Run, tmp_path: Path) -> None:
    """This machine has fewer than 64, if any; who trains on its CPUs says so by hiding them, or says nothing."""
    words = ("direct", "--preflight", "--", "preflight-nothing")
    granted = {"SLURM_JOB_ID": "7", "SLURM_NODEID": "0", "SLURM_GPUS_ON_NODE": "64"}
    said = {"PRIMUS_GPU_MODEL": "MI300X", "GPUS_PER_NODE": "64"}
    (tmp_path / "nothing.py").write_text(
        "from primus_core import register_task\n@register_task('preflight-nothing')\ndef it(call):\n    'Nothing.'\n"
    )
    (tmp_path / "primus.yaml").write_text(
        "plugins: [./nothing.py]\npreflight: {only: [gpu.count, host.kernel], wait: 5}\n"
    )
    for environ in (granted, said):
        done = primus(*words, env=environ)
        assert done.returncode == 1, done.stderr
        assert "(gpu.count)" in done.stderr
        assert "expected ≥ 64" in done.stderr
        assert "each rank of this node needs a device" in done.stderr
    hidden = primus(*words, env={**said, "CUDA_VISIBLE_DEVICES": ""})
    assert hidden.returncode == 0, hidden.stderr


@pytest.mark.full
def test_every_report_says_when_by_which_command_at_which_level_and_by_which_version(
    primus: Run, tmp_path: Path
) -> None:
    nodes.write(tmp_path / "node", nodes.healthy())
    asked = ("direct", "--", "preflight", "--assume-host", "node", "--skip", "host.disk")
    outputs = ("report.json", "report.html", "mine.md")
    done = primus(*asked, *(word for name in outputs for word in ("--output", name)))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    version = packages.version_of("primus-preflight")
    assert (report["level"], report["version"]) == ("quick", version)
    assert report["command"].endswith(f"{' '.join(asked)} --output report.json --output report.html --output mine.md")
    written = dt.datetime.fromisoformat(report["date"])
    assert 0 <= time.time() - written.timestamp() < 3600
    for text in ((tmp_path / name).read_text() for name in (*outputs, "output/preflight/preflight/report.md")):
        assert all(report[name] in text for name in ("date", "command", "level", "version"))
    assert "level: quick" in done.stdout
    run = (tmp_path / "output/preflight").resolve()
    [node] = (run / "preflight").glob("*.json")
    said = json.loads(node.read_text())
    assert (said["level"], said["version"]) == ("quick", version)
    node.with_name("n2.json").write_text(json.dumps({**said, "host": "n2", "level": "perf", "version": "9"}))
    again = primus("direct", "--", "preflight", "report", str(run), "--json")
    mixed = json.loads(again.stdout)
    assert set(mixed["level"].split(", ")) == {f"quick on {node.stem}", "perf on n2"}
    assert "; on the nodes: " in mixed["version"]
