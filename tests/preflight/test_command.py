"""`primus direct -- preflight`: on this machine, on a captured one, with a site's thresholds, with checks of others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.machine.machines import PCI
from tests.preflight import nodes

from primus_machine import facts
from primus_preflight.checks import thresholds
from primus_preflight.checks.check import Node
from primus_preflight.network import collectives

CAPTURES = Path(__file__).parent.parent / "machine/captures"

ASSUMED = ("--skip", "host.disk")
"""Of a tree, the room for runs is not known."""


def machine(folder: Path, **changes: str) -> str:
    """A healthy node as a folder; changes by the last part of a path, of the fourth GPU."""
    tree = nodes.healthy()
    for name, content in changes.items():
        tree[f"{PCI}/{nodes.ADDRESSES[3]}/{name}"] = f"{content}\n"
    nodes.write(folder, tree)
    return str(folder)


@pytest.mark.full
def test_this_machine_is_looked_at_and_everything_is_said(primus: Run, tmp_path: Path) -> None:
    done = primus("direct", "--", "preflight", "--host", "--gpu", "--network", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == report["exit_code"], done.stderr
    (host,) = report["nodes"]
    found = report["nodes"][host]
    assert {one["check"].partition(".")[0] for one in found} == {"host", "gpu", "network"}
    assert all(one["why"] for one in found if one["status"] in ("skip", "unknown"))
    assert all(one["fix"] for one in found if one["status"] in ("fail", "warn", "unknown"))
    assert all(one["measured"] for one in found if one["status"] == "pass")
    run = next((tmp_path / "output").glob("preflight_*"))
    assert (run / "preflight" / f"{host}.json").exists()
    assert (run / "preflight" / "report.md").read_text().startswith("# Preflight")


@pytest.mark.full
def test_a_healthy_machine_passes_and_a_sick_one_is_named_with_what_to_do(primus: Run, tmp_path: Path) -> None:
    good = primus("direct", "--", "preflight", "--assume-host", machine(tmp_path / "good"), *ASSUMED)
    assert good.returncode == 0, good.stderr
    assert good.stdout.splitlines()[-1] == "nodes: 1 fit"
    sick = machine(tmp_path / "sick", current_link_width="8")
    bad = primus("direct", "--", "preflight", "--assume-host", sick, *ASSUMED)
    assert bad.returncode == 1
    assert bad.stdout.startswith(
        "FAIL    gpu.pcie-width  0000:65:00.0\n        8 lanes; expected ≥ 16 (data sheets: x16)\n"
    )
    assert "fix: reseat the GPU; lspci -vv -s 0000:65:00.0 | grep LnkSta" in bad.stdout, "it can be pasted"
    assert "preflight: not fit to train: gpu-node-17" in bad.stderr
    run = max((tmp_path / "output").glob("preflight_*"))
    assert (run / "preflight/failing_nodes.txt").read_text() == "gpu-node-17\n"
    recorded = json.loads((run / "metadata.json").read_text())
    assert (recorded["status"], recorded["exit_code"]) == ("failed", 1)
    assert "not fit to train" in recorded["first_failure"]["what"]


@pytest.mark.full
def test_nothing_known_of_the_gpus_is_exit_3(primus: Run, tmp_path: Path) -> None:
    done = primus(
        "direct", "--", "preflight", "--gpu", "--assume-host", str(Path(__file__).parent / "captures/mi210-8.tar.gz")
    )
    assert done.returncode == 3
    assert "preflight: incomplete: nodes: 1 unknown" in done.stderr


@pytest.mark.full
def test_the_list_says_what_each_check_reads(primus: Run) -> None:
    done = primus("direct", "--", "preflight", "list", "--gpu", "--only", "gpu.pcie-*")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "gpu.pcie-speed",
        "reads",
        "gpu.pcie-width",
        "reads",
        "gpu.pcie-replays",
        "reads",
    ]
    assert "/sys/bus/pci/devices/*/current_link_width" in done.stdout


@pytest.mark.full
def test_the_list_leaves_the_link_to_the_newest_checks_alone(primus: Run, tmp_path: Path) -> None:
    assert primus("direct", "--", "preflight", "list", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "output/preflight").is_symlink()


@pytest.mark.full
def test_the_list_has_the_checks_of_all_levels(primus: Run) -> None:
    done = primus("direct", "--", "preflight", "list", "--tests", "gpu.gemm*", "--tests", "gpu.count")
    rows = [line.split()[:2] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert rows == [["gpu.count", "quick"], ["gpu.gemm", "perf"], ["gpu.gemm-sustained", "full"]]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--only", "gpu.pcie-with"), "did you mean 'gpu.pcie-width'?"),
        (("--skip", "gpu.nothing-*"), "no check has this name"),
        (("--only", "host.dsk"), "       primus direct -- preflight --only host.disk\n"),
        (("--only", "host.disk,host.memry"), "--only host.memry: no check has this name"),
        (("--only", ","), "--only ,: no check has this name"),
        (("--gpu", "--only", "host.*"), "no check is left"),
        (("--expected-nodes", "./nothing"), "cannot be read"),
        (("report",), "only `report` takes a folder"),
        (("report", "nowhere"), "'nowhere' is not a folder"),
        (("--output", "report.pdf"), "ends in none of .html, .json, .md"),
        (("--thresholds", "nothing.toml"), "there is no file"),
        (("--output", "file/report.html"), "/file is not a folder"),
        (("--output", "folder.md"), "it is not a regular file"),
        (("--baseline", "folder.md"), "--baseline folder.md: no report of a node"),
        (("--assume-host", "nothing.tar.gz"), "'nothing.tar.gz' is not a capture of a machine"),
        (("--output", "fifo.md"), "it is not a regular file"),
        (("--baseline", "fifo.md"), "it is not a regular file"),
        (("--assume-host", "fifo.md"), "it is not a regular file"),
        (("--thresholds", "fifo.md"), "it is not a regular file"),
        (("--expected-nodes", "./fifo.md"), "it is not a regular file"),
    ],
)
@pytest.mark.full
def test_a_wrong_request_is_refused_before_anything_starts(
    primus: Run, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.md").mkdir()
    os.mkfifo(tmp_path / "fifo.md")
    done = primus("direct", "--", "preflight", *words)
    assert done.returncode == 2
    assert why in done.stderr
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize(
    ("lists", "what"),
    [
        (
            {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"},
            "ROCR_VISIBLE_DEVICES=1 and HIP_VISIBLE_DEVICES=1 leave no GPU",
        ),
        ({"ROCR_VISIBLE_DEVICES": "0,0"}, "ROCR_VISIBLE_DEVICES is '0,0', which names a GPU twice"),
    ],
)
def test_a_wrong_list_of_visible_gpus_of_a_captured_machine_is_a_wrong_request(
    primus: Run, tmp_path: Path, lists: dict[str, str], what: str
) -> None:
    done = primus("direct", "--", "preflight", "--assume-host", f"{CAPTURES}/mi210-8.tar.gz", env=lists)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {what}\n" in done.stderr
    assert not (tmp_path / "output").exists()


def test_all_that_a_capture_lacks_is_told_in_one_paragraph(primus: Run) -> None:
    done = primus("direct", "--", "preflight", "--assume-host", f"{CAPTURES}/mi300x-cpx-63-of-64.tar.gz")
    assert done.returncode == 1
    [paragraph] = [one for one in done.stdout.split("\n\n") if "capture" in one and not one.startswith("skipped")]
    assert paragraph.startswith("UNKNOWN the capture lacks it: host.iommu, ")
    assert {"host.governor", "host.memory-errors", "gpu.xgmi", "network.ports"} <= set(
        re.findall(r"[\w.-]+", paragraph)
    )


def test_checks_are_chosen_by_a_list(primus: Run) -> None:
    words = ("--only", "host.disk,host.memory", "--only", "host.shm", "--skip", "host.shm,gpu.*")
    done = primus("direct", "--", "preflight", "list", *words)
    rows = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert sorted(rows) == ["host.disk", "host.memory"]


@pytest.mark.parametrize(("name", "code"), [("host.dsk", 2), ("acme.only-in-the-image", 0), ("host.disk,gpu.*", 0)])
def test_a_misspelt_check_is_refused_before_a_job_is_submitted(primus: Run, name: str, code: int) -> None:
    done = primus("slurm", "--dry-run", "srun", "-N", "2", "--", "preflight", "--only", name)
    assert done.returncode == code
    assert ("primus slurm --dry-run srun -N 2 -- preflight --only host.disk\n" in done.stderr) == bool(code)


@pytest.mark.full
def test_a_site_lays_its_thresholds_over_ours(primus: Run, tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text(
        '[host.thp]\nallowed = ["always"]\nseverity = "fail"\n[host.nofile]\nfloor = 1e9\n[gpu.pcie-speed.models.MI300X]\nfloor = 64\nsource = "our contract"\n'
    )
    done = primus("direct", "--", "preflight", "--assume-host", machine(tmp_path / "node"), "--thresholds", "site.toml",
                  *ASSUMED, "--json")  # fmt: skip
    found = json.loads(done.stdout)["nodes"]["gpu-node-17"]
    failed = {
        one["check"]: (one["measured"], one["expected"], one["source"]) for one in found if one["status"] == "fail"
    }
    assert failed == {"host.thp": ("madvise", "always", "site.toml"), "gpu.pcie-speed": ("32", "≥ 64", "our contract")}
    fixes = {one["check"]: one["fix"] for one in found}
    assert fixes["host.thp"] == "echo always > /sys/kernel/mm/transparent_hugepage/enabled", (
        "it brings about what is expected"
    )
    assert fixes["host.nofile"].startswith("where the hard limit allows it: ulimit -n 1000000000, in a container")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[host.thq]\nfloor = 1\n", "site.toml:1: no check is called 'host.thq'"),
        ("[host.shm]\nfloor = nan\n", "site.toml:2: floor = nan"),
        ("[host.shm]\n\nflor = 1\n", "site.toml:3: unknown key 'flor' of a threshold of host.shm"),
        ("[host.shm]\nflor = 1\n", "did you mean 'floor'?"),
        ("[host.thp]\nfloor = 1\n", "site.toml:2: unknown key 'floor' of a threshold of host.thp"),
        ('[gpu.driver]\nallowed = ["6.12"]\n', "it takes severity, source, fix, models"),
        ("[host.shm]\nshare = 0.5\n", "site.toml:2: unknown key 'share'"),
        ('[host.shm]\nfloor = "16 GiB"\n', "fix: write a number, in GiB"),
        ("[host.numa-balancing]\nallowed = [0]\n", "fix: write a list of texts"),
        ("[host.thp]\nallowed = []\n", "site.toml:2: allowed = []"),
        ("[network.bandwidth]\nshare = 50\n", "fix: write a number from 0 to 1"),
        ("[gpu.count.models.MI300]\nfloor = 8\n", "site.toml:1: no GPU model is called 'MI300'"),
        ("[gpu.count.models]\nmi355x = {floor = 8}\n", "did you mean 'MI355X'?"),
        ('[host.shm]\nfloor = "much"\n', "site.toml:2: floor = 'much'"),
        ('[host.shm]\nseverity = "bad"\n', "site.toml:2: severity = 'bad'"),
        ("[gpu.count.models.MI300X]\nfloor = 8\nmost = 9\n", "site.toml:3: unknown key 'most'"),
        ("[gpu.count.models.MI300X.models.MI210]\nfloor = 8\n", "unknown key 'models'"),
        ("host = 7\n", "site.toml:1: 'host' is not a table of checks"),
    ],
)
@pytest.mark.full
def test_a_wrong_threshold_is_refused_with_its_line(primus: Run, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "site.toml").write_text(text)
    done = primus("direct", "--", "preflight", "--thresholds", "site.toml")
    assert done.returncode == 2
    assert said in done.stderr
    assert "fix:" in done.stderr


@pytest.mark.full
def test_all_wrong_thresholds_of_a_file_are_named_at_once(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(
        "[host.thp]\nfloor = 3\n[host.thq]\nfloor = 3\n[host.memory]\nflor = 2\nlimit = true\n[host.memory.models.MI999]\nfloor = 3\n"
    )
    said = primus("direct", "--", "preflight", "--thresholds", "site.toml").stderr
    assert [line for line in range(1, 10) if f"error: site.toml:{line}: " in said] == [2, 3, 6, 7, 8]
    assert "primus: 5 errors" in said


def test_each_check_that_takes_a_bound_of_a_site_looks_at_it(tmp_path: Path) -> None:
    """Of a healthy node: with a bound that nothing holds, what is found passes no more; for its model alone, too."""
    node = Node(facts.read(nodes.held(nodes.healthy())), "/runs")
    checks = [check for check in nodes.checks() if not (check.name in nodes.MEASURED or check.meets)]
    asked = 0
    for check in checks:
        bounds = {"floor": "1e30", "limit": "-1", "allowed": '["nothing"]'}
        for bound in bounds.keys() & set(check.rule.takes):
            for place in ("", ".models.MI300X"):
                (tmp_path / "site.toml").write_text(f"[{check.name}{place}]\n{bound} = {bounds[bound]}\n")
                [own] = thresholds.with_site([check], str(tmp_path / "site.toml"), {})
                bad = [one for one in own.findings(node) if one.status == check.rule.of("MI300X").severity]
                is_unlimited = check.name in ("host.memlock", "host.cgroup-memory", "host.cgroup-cpu")
                assert bool(bad) != is_unlimited, (check.name, bound, place)
                assert all(one.source == str(tmp_path / "site.toml") for one in bad)
                asked += 1
    assert asked > 60


def test_what_a_site_says_of_all_reduce_holds_for_nodes_of_any_size_and_our_figures_for_a_whole_node() -> None:
    rule = thresholds.packaged()["gpu.all-reduce"].of("MI300X")
    assert collectives.of_so_many(rule, 8, "MI300X").floor == 273
    assert collectives.of_so_many(rule, 4, "MI300X").expected == "the right sum"
    assert collectives.of_so_many(replace(rule, floor=100), 4, "MI300X").floor == 100


CHECKS = """
from primus_preflight.checks.check import Check
from primus_preflight.checks.rule import Rule

def lamp(node, rule):
    yield rule.word("", node.host.text("/etc/lamp"), why="/etc/lamp cannot be read")

def broken(node, rule):
    raise ZeroDivisionError("of another team")

def leaving(node, rule):
    raise SystemExit(0)

def raising():
    raise KeyError("of another team")

def strange():
    return ("rack.lamp",)

def checks():
    return (
        Check("rack.leaving", "ends the program", (), leaving, Rule("rack.leaving")),
        Check("rack.lamp", "the lamp is green", ("/etc/lamp",), lamp, Rule("rack.lamp", allowed=("green",), source="us", fix="call us")),
        Check("rack.broken", "breaks", (), broken, Rule("rack.broken")),
        Check("rack.odd", "says what is no finding", (), lambda node, rule: ["fine"], Rule("rack.odd")),
    )
"""


def package(folder: Path, target: str) -> dict[str, str]:
    """An installed package of another team with checks."""
    about = folder / "acme_rack-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rack\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[primus.checks]\nrack = {target}\n")
    (folder / "acme_rack.py").write_text(CHECKS)
    return {"PYTHONPATH": str(folder)}


@pytest.mark.full
def test_a_package_brings_checks_and_one_that_breaks_is_unknown(primus: Run, tmp_path: Path) -> None:
    environ = package(tmp_path / "site", "acme_rack:checks")
    (tmp_path / "node/etc").mkdir(parents=True)
    (tmp_path / "node/etc/lamp").write_text("red\n")
    done = primus(
        "direct", "--", "preflight", "--assume-host", machine(tmp_path / "node"), "--only", "rack.*", env=environ
    )
    assert done.returncode == 1
    assert "FAIL    rack.lamp\n        red; expected green (us)\n        fix: call us" in done.stdout
    assert "the check itself failed: ZeroDivisionError: of another team" in done.stdout
    assert "UNKNOWN rack.odd" in done.stdout
    assert "the check itself failed: SystemExit: 0" in done.stdout


def test_checks_that_cannot_be_loaded_are_no_silent_pass(primus: Run, tmp_path: Path) -> None:
    done = primus("direct", "--", "preflight", env=package(tmp_path / "site", "acme_rack:nothing"))
    assert done.returncode == 3
    assert "the check 'rack' of acme-rack 1.0 cannot be loaded" in done.stderr


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("raising", "KeyError: 'of another team'"),
        ("strange", "'rack.lamp' is not a Check"),
        ("__name__", "not callable"),
    ],
)
def test_what_is_called_for_checks_and_gives_none_is_named(primus: Run, tmp_path: Path, name: str, why: str) -> None:
    done = primus("direct", "--", "preflight", "list", env=package(tmp_path / "site", f"acme_rack:{name}"))
    assert done.returncode == 3
    assert "'rack' of acme-rack 1.0 does not return checks" in done.stderr
    assert why in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_a_capture_of_this_machine_takes_along_what_checks_read(primus: Run, tmp_path: Path) -> None:
    assert primus("env", "capture", "-o", "here.tar.gz").returncode == 0
    done = primus("direct", "--", "preflight", "--assume-host", "here.tar.gz", "--only", "host.[mnst]*", "--json")
    found = {one["check"]: one["status"] for one in json.loads(done.stdout)["nodes"]["captured-host"]}
    assert {found["host.memory"], found["host.shm"], found["host.nofile"]} <= {"pass", "warn", "fail"}


@pytest.mark.full
def test_node_0_waits_for_the_others_judges_all_and_names_who_did_not_come(
    clean_environ: dict[str, str], tmp_path: Path
) -> None:
    """Nodes that share a folder: three of four come, and each takes its name from the scheduler."""
    environ = {**clean_environ, "PRIMUS_RUN_DIR": str(tmp_path / "run"), "NNODES": "4", "MASTER_ADDR": "127.0.0.1"}
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--", "preflight", "--host", "--wait", "3",
               "--skip", "host.dmesg", "--expected-nodes", "n[1-4]"]  # fmt: skip
    running = [
        subprocess.Popen(
            command,
            env={**environ, "NODE_RANK": str(rank), "SLURMD_NODENAME": f"n{rank + 1}"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    outputs = [one.communicate(timeout=120)[0] for one in running]
    codes = [one.returncode for one in running]
    assert codes[1:] == [0, 0]
    assert codes[0] == 3, outputs[0]
    assert "nodes: 3 fit, 1 unknown" in outputs[0]
    assert "unknown: n4" in outputs[0]
    assert sorted(os.listdir(tmp_path / "run/preflight")) == [
        *("failing_nodes.txt", "judged", "n1.json", "n2.json", "n3.json", "passing_nodes.txt", "report.md"),
        "unknown_nodes.txt",
    ]
    assert (tmp_path / "run/preflight/unknown_nodes.txt").read_text() == "n4\n"


def test_a_shell_completes_the_options_that_help_shows_and_no_others(primus: Run) -> None:
    offered = primus("__complete", "4", "primus", "direct", "--", "preflight").stdout.split()
    assert {"--level", "--baseline", "report"} <= set(offered)
    assert not {"--gate", "--node-rank"} & set(offered)


@pytest.mark.full
def test_the_newest_run_is_judged_again_by_its_link_as_often_as_one_likes(primus: Run, tmp_path: Path) -> None:
    """Not the run of the report itself, to which a launch moves its link, nor other files of a run directory."""
    assert primus("direct", "--", "preflight", "--only", "host.kernel").returncode == 0
    first = (tmp_path / "output/preflight").resolve()
    (first / "preflight/all.json").write_text('{"schema": 1, "nodes": {}, "passing": []}')
    for _ in range(2):
        again = primus("direct", "--", "preflight", "report", "output/preflight", "--json")
        assert again.returncode == 0, again.stdout + again.stderr
        assert list(json.loads(again.stdout)["nodes"]) == [os.uname().nodename]
    compared = primus("direct", "--", "preflight", "--only", "host.kernel", "--baseline", "output/preflight")
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert "knows nothing" not in compared.stderr
    plan = json.loads(((tmp_path / "output/preflight").resolve() / "plan.json").read_text())
    assert str(first) in plan["steps"][-1]["argv"]
    moved = {"PRIMUS_RUN_DIR": str((tmp_path / "output/preflight").resolve())}
    own = primus("direct", "--dry-run", "--", "preflight", "--baseline", "output/preflight", env=moved)
    assert (own.returncode, own.stdout) == (2, "")
    assert "'output/preflight' leads into the directory of this run" in own.stderr


def test_a_run_directory_without_reports_of_nodes_is_refused(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metadata.json").write_text("{}")
    done = primus("direct", "--", "preflight", "report", "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'run' has no report of a node" in done.stderr
    assert not (tmp_path / "output").exists()


def test_help_says_what_an_exit_code_means(primus: Run) -> None:
    said = " ".join(primus("direct", "--", "preflight", "--help").stdout.split())
    assert "3 the state of at least one node could not be determined" in said
