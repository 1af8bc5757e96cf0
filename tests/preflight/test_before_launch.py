"""`--preflight` before a task: what must not start does not, on any node, and the run directory says why."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import rank_report
from tests.conftest import ROOT, Run, free_port

from primus_core.errors import MachineError
from primus_core.planning import planner
from primus_core.plugins.catalogue import Catalogue
from primus_core.request.request import parse
from primus_machine.host import HostRoot
from primus_preflight.checks.findings import Finding
from primus_preflight.verdict import gate, health, node_report
from primus_preflight.verdict.gate import Verdict
from primus_preflight.verdict.node_report import NodeReport

CHECKS = """
import os

from primus_preflight.checks.check import Check
from primus_preflight.checks.rule import Rule

def lamp(node, rule):
    if node.facts.environ["LAMP"] == "broken":
        os.kill(os.getpid(), 9)
    yield rule.word("", node.facts.environ["LAMP"] or node.host.text(node.facts.environ["LAMP_FILE"]), why="there is no lamp")

def checks():
    return (Check("rack.lamp", "the lamp is green", (), lamp, Rule("rack.lamp", allowed=("green",), fix="call us")),)
"""
"""A check of another team, so that what is found depends on no machine: the variable LAMP, or where it is empty a file."""
FAILING = '''
"""Breaks its own node, where it is told to."""
from primus_core import register_task

@register_task("break")
def broken(call):
    "break [COLOUR]: the lamp gets this colour, and the first start fails."
    from pathlib import Path
    if Path(call.run_dir, "started").exists():
        return 0
    Path(call.run_dir, "started").touch()
    Path("lamp").write_text(call.words[0])
    raise ValueError("the first start fails")
'''


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """A project that asks the lamp alone; the packages `rank_report` and `acme-rack`; the variables that these need."""
    packages = tmp_path / "packages"
    rank_report.write(packages)
    about = packages / "acme_rack-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: acme-rack\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[primus.checks]\nrack = acme_rack:checks\n")
    (packages / "acme_rack.py").write_text(CHECKS)
    (tmp_path / "break.py").write_text(FAILING)
    (tmp_path / "primus.yaml").write_text("plugins: [./break.py]\npreflight: {only: ['rack.*'], wait: 1}\n")
    return {"PYTHONPATH": str(packages), "LAMP": "green", "LAMP_FILE": str(tmp_path / "lamp")}


def metadata(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "metadata.json").read_text())
    return found


def started(run: Path) -> list[str]:
    """The steps of a run that were started, in their order."""
    events = [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines()]
    return [event["name"] for event in events if event["event"] == "step_started"]


def planned(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Of a dry run as JSON, the plan of the innermost layer."""
    assert done.returncode == 0, done.stderr
    plan: dict[str, Any] = json.loads(done.stdout)
    inner: list[dict[str, Any]] = plan.get("inner_plans", [plan])
    return inner[-1]


def kinds(plan: dict[str, Any]) -> list[str]:
    return [step["kind"] for step in plan["steps"]]


@pytest.mark.full
def test_a_machine_that_is_not_fit_starts_nothing_and_the_run_says_why(
    tmp_path: Path, site: dict[str, str], clean_environ: dict[str, str]
) -> None:
    """This machine, with fewer open files than a site wants."""
    (tmp_path / "site.toml").write_text('[host.nofile]\nfloor = 300\nseverity = "fail"\n')
    (tmp_path / "primus.yaml").write_text("preflight: {only: [host.nofile], thresholds: ./site.toml}\n")
    command = Path(sys.executable).with_name("primus")

    def run(*words: str, files: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command, *words], env={**clean_environ, **site}, cwd=tmp_path, text=True, capture_output=True, check=False,
            timeout=120, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
        )  # fmt: skip

    good = run("direct", "--preflight", "--", "rank_report", files=300)
    assert good.returncode == 0, good.stderr
    bad = run("direct", "--preflight", "--", "rank_report", files=299)
    assert bad.returncode == 1
    assert "FAIL    host.nofile\n        299 files; expected ≥ 300" in bad.stderr
    assert "fix: ulimit -n" in bad.stderr
    assert "primus: preflight failed" in bad.stderr
    assert '"RANK"' in good.stdout
    assert '"RANK"' not in bad.stdout
    directory = (tmp_path / "output/rank_report").resolve()
    assert started(directory) == ["preflight"]
    known, (host,) = metadata(directory), [path.stem for path in (directory / "preflight").glob("*.json")]
    assert (known["status"], known["exit_code"]) == ("failed", 1)
    assert known["first_failure"]["what"] == f"preflight: not fit to train: {host} (host.nofile)"
    assert known["first_failure"]["rank"] == -1, "no rank has started"
    assert "| fail | host.nofile |" in (directory / "preflight/report.md").read_text()
    assert "299 files" in (directory / "logs/launch.log").read_text()
    assert f"failure    {known['first_failure']['what']}\n" in run("runs", "show", "rank_report", files=300).stdout
    assert " failed " in run("runs", "list", "-n", "1", files=300).stdout


@pytest.mark.full
def test_a_training_that_must_not_start_does_not_even_prepare_its_data(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    pytest.importorskip("primus_torchtitan")
    environ = {**site, "LAMP": "red", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = ("--", "train", "pretrain", "--config", str(ROOT / "examples/quickstart.yaml"))
    plan = planned(primus("direct", "--dry-run", "--json", "--preflight", *words, env=environ))
    assert kinds(plan) == ["preflight", "prepare", "worker"]
    done = primus("direct", "--preflight", *words, env=environ)
    assert done.returncode == 1, done.stderr
    [run] = [path.parent for path in tmp_path.rglob("plan.json") if not path.parent.is_symlink()]
    assert started(run) == ["preflight"]


@pytest.mark.full
def test_a_dry_run_shows_the_step_and_the_plan_keeps_what_was_asked(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    done = primus("direct", "--dry-run", "--preflight", "--", "rank_report", env=site)
    steps = [line for line in done.stdout.splitlines() if line.startswith("# step: ")]
    assert steps == ["# step: preflight", "# step: worker, 1 rank"]
    words = "-m primus_core.programs.rank primus_preflight.worker '--only=rack.*' --wait=1 --level=quick --gate=stop"
    assert f"{words} --node-rank 0 --of-nodes 1\n" in done.stdout
    assert not (tmp_path / "output").exists()
    assert planned(primus("direct", "--dry-run", "--json", "--preflight", "--", "rank_report", env=site))[
        "preflight"
    ] == ("quick")
    assert "preflight" not in kinds(planned(primus("direct", "--dry-run", "--json", "--", "rank_report", env=site)))


@pytest.mark.parametrize(
    ("lamp", "option", "code", "said"),
    [
        ("green", "--preflight", 0, "nodes: 1 fit"),
        ("red", "--preflight", 1, "preflight: not fit to train: n0 (rack.lamp)"),
        ("", "--preflight", 3, "preflight: incomplete: nodes: 1 unknown: n0 (rack.lamp)"),
        ("broken", "--preflight=warn", 137, "preflight: ended with exit code 137"),
        ("red", "--preflight=warn", 0, "the launch continues (--preflight=warn) after preflight: not fit to train: n0"),
        ("", "--preflight=warn", 0, "the launch continues (--preflight=warn) after preflight: incomplete"),
    ],
)
@pytest.mark.full
def test_the_launch_ends_as_preflight_does_unless_it_shall_only_warn(
    primus: Run, tmp_path: Path, site: dict[str, str], lamp: str, option: str, code: int, said: str
) -> None:
    done = primus("direct", option, "--", "rank_report", env={**site, "LAMP": lamp, "SLURMD_NODENAME": "n0"})
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert ('"RANK"' in done.stdout) == (code == 0)
    assert (tmp_path / "output/rank_report/preflight/n0.json").exists() == (lamp != "broken")
    assert metadata(tmp_path / "output/rank_report")["exit_code"] == code


def by_hand(
    primus: Run,
    site: dict[str, str],
    *lamps: str,
    nodes: int = 2,
    words: Sequence[str] = ("--preflight", "--", "rank_report"),
) -> list[subprocess.CompletedProcess[str]]:
    """The first nodes of two, each started by hand with its lamp, in one run directory."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    whole = {**site, **where, "NNODES": str(nodes), "PRIMUS_RUN_DIR": "output/both"}

    def start(rank: int) -> subprocess.CompletedProcess[str]:
        of_node = {"NODE_RANK": str(rank), "SLURMD_NODENAME": f"n{rank}", "LAMP": lamps[rank]}
        return primus("direct", *words, env={**whole, **of_node})

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(start, range(len(lamps))))


@pytest.mark.full
@pytest.mark.parametrize("sick", [0, 1])
def test_no_node_starts_ranks_beside_one_that_is_not_fit(
    primus: Run, tmp_path: Path, site: dict[str, str], sick: int
) -> None:
    (tmp_path / "primus.yaml").write_text("preflight: {only: ['rack.*']}\n")
    done = by_hand(primus, site, *("red" if rank == sick else "green" for rank in range(2)))
    for rank, node in enumerate(done):
        run = tmp_path / "output/both" / ("", "nodes/1")[rank]
        assert node.returncode == 1, node.stderr
        assert f"preflight: not fit to train: n{sick} (rack.lamp)" in node.stderr
        assert '"RANK"' not in node.stdout
        assert metadata(run)["first_failure"]["what"] == f"preflight: not fit to train: n{sick} (rack.lamp)"
    assert started(tmp_path / "output/both") == ["preflight", "preflight"]
    assert (tmp_path / "output/both/preflight/failing_nodes.txt").read_text() == f"n{sick}\n"


@pytest.mark.full
def test_fit_nodes_start_and_what_they_said_then_counts_for_no_later_launch(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    (tmp_path / "primus.yaml").write_text("preflight: {only: ['rack.*']}\n")
    assert [node.returncode for node in by_hand(primus, site, "green", "green")] == [0, 0]
    (tmp_path / "primus.yaml").write_text("preflight: {only: ['rack.*'], wait: 1}\n")
    for _ in range(2):
        [alone] = by_hand(primus, site, "green")
        assert alone.returncode == 3
        assert "preflight: incomplete: nodes: 1 fit, 1 without a report" in alone.stderr
        assert (
            "fix: check the output of those nodes; with --expected-nodes and their names, the report lists the missing ones"
            in alone.stderr
        )
        assert '"RANK"' not in alone.stdout


@pytest.mark.full
def test_what_a_node_said_to_an_earlier_preflight_in_the_folder_counts_for_no_later_one(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    (tmp_path / "primus.yaml").write_text("preflight: {only: ['rack.*']}\n")
    assert [node.returncode for node in by_hand(primus, site, "green", "green", words=("--", "preflight"))] == [0, 0]
    (tmp_path / "primus.yaml").write_text("preflight: {only: ['rack.*'], wait: 1}\n")
    for words in (("--", "preflight"), ("--preflight", "--", "rank_report")):
        [alone] = by_hand(primus, site, "green", words=words)
        assert alone.returncode == 3
        assert "preflight: incomplete: nodes: 1 fit, 1 without a report" in alone.stderr


@pytest.mark.full
def test_what_nodes_said_to_a_launch_whose_node_0_was_killed_counts_for_no_later_one(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    folder = tmp_path / "output/both/preflight"
    node_report.write(
        str(folder), NodeReport("n1", (Finding("rack.lamp", "", "pass", "green"),), node_rank=1, time=1e9)
    )
    (folder / "n2.json").write_text("{")
    (folder / "judged/calls/0123456789abcdef").mkdir(parents=True)
    (folder / "judged/calls/0123456789abcdef/n1").touch()
    [alone] = by_hand(primus, site, "green")
    assert alone.returncode == 3, alone.stderr
    assert "preflight: incomplete: nodes: 1 fit, 1 without a report" in alone.stderr
    assert [path.name for path in (folder / "judged").iterdir()] == ["verdict.json"]
    (tmp_path / "primus.yaml").write_text("preflight: {only: ['rack.*']}\n")
    assert [node.returncode for node in by_hand(primus, site, "green", "green")] == [0, 0], "they live, and answer"


@pytest.mark.full
def test_a_run_directory_that_takes_no_report_makes_no_node_unfit(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/preflight").touch()
    done = primus("direct", "--preflight", "--", "rank_report", env={**site, "PRIMUS_RUN_DIR": "run"})
    assert done.returncode == 3
    assert f"cannot write to {tmp_path}/run/preflight" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "other").mkdir()
    (tmp_path / "other/preflight").touch()
    warned = primus("direct", "--preflight=warn", "--", "rank_report", env={**site, "PRIMUS_RUN_DIR": "other"})
    assert warned.returncode == 0, warned.stderr
    assert "the launch continues (--preflight=warn) after preflight: cannot write to" in warned.stderr


@pytest.mark.full
@pytest.mark.parametrize("lamp", ["green", "red"])
def test_a_report_that_cannot_be_written_stops_all_nodes_with_one_word_and_hides_no_verdict(
    primus: Run, tmp_path: Path, site: dict[str, str], lamp: str
) -> None:
    """The others would wait for node 0's verdict for two minutes, and then not know why there is none."""
    (tmp_path / "full").touch()
    (tmp_path / "primus.yaml").write_text("preflight: {only: ['rack.*'], output: [full/report.html]}\n")
    unwritten, unfit = f"cannot write {tmp_path}/full/report.html", "preflight: not fit to train: n1 (rack.lamp)"
    done = by_hand(primus, site, "green", lamp)
    for node in done:
        assert node.returncode == {"green": 3, "red": 1}[lamp], node.stderr
        assert {"green": unwritten, "red": unfit}[lamp] in node.stderr
        assert "node 0 did not say" not in node.stderr
    assert unwritten in done[0].stderr
    assert (tmp_path / "output/both/preflight/report.md").exists(), "what can be written is"


def test_a_verdict_counts_for_the_node_whose_report_it_judged(tmp_path: Path) -> None:
    own = NodeReport("n1", (), node_rank=1, time=2.0)
    gate.write(str(tmp_path), Verdict(0, "", {"n0": 1.0, "n1": 1.0}))
    with pytest.raises(MachineError, match="node 0 did not report a verdict"):
        gate.follow(str(tmp_path), own, -5.0)
    gate.write(str(tmp_path), Verdict(0, "", {"n0": 1.0, "n1": 2.0}))
    assert gate.follow(str(tmp_path), own, -5.0) == 0
    gate.write(str(tmp_path), Verdict(3, "nobody knows", {"n1": 2.0}))
    with pytest.raises(MachineError, match="nobody knows"):
        gate.follow(str(tmp_path), own, -5.0)


@pytest.mark.full
def test_each_attempt_looks_again_and_a_node_that_broke_is_not_started_again(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    environ = {**site, "LAMP": ""}
    for colour, code, steps in (("green", 0, ["worker"]), ("red", 1, [])):
        (tmp_path / "lamp").write_text("green")
        done = primus("direct", "--preflight", "--max-restarts", "3", "--", "break", colour, env=environ)
        assert done.returncode == code, done.stderr
        run = (tmp_path / "output/break").resolve()
        assert started(run) == ["preflight", "worker", "preflight", *steps]
        first, second = metadata(run)["attempts"]
        assert "the first start fails" in first["what"]
        assert ("not fit to train" in second["what"]) == (colour == "red")


@pytest.mark.parametrize(
    "outer",
    [
        ("slurm", "--preflight", "srun", "-N", "2", "--"),
        ("slurm", "srun", "-N", "2", "--preflight", "--"),
        ("slurm", "sbatch", "-N", "2", "--preflight=quick", "--"),
        ("container", "--preflight", "--image", "some/image", "--"),
        ("slurm", "--preflight", "srun", "-N", "2", "--", "container", "--image", "some/image", "--"),
        ("slurm", "--preflight=warn", "srun", "-N", "2", "--", "direct", "--preflight", "quick", "--"),
    ],
)
@pytest.mark.full
def test_an_outer_layer_hands_the_option_to_the_one_that_starts_the_ranks(
    primus: Run, site: dict[str, str], outer: tuple[str, ...]
) -> None:
    runtime, *words = outer
    plan = planned(primus(runtime, "--dry-run", "--json", *words, "rank_report", env=site))
    meeting = ["rendezvous"] if runtime == "slurm" else []  # of two nodes
    assert kinds(plan) == ["preflight", *meeting, "worker"]
    assert plan["preflight"] == "quick"


@pytest.mark.full
def test_the_command_line_wins_over_files_which_need_no_option_for_the_task_itself(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    with (tmp_path / "primus.yaml").open("a") as file:
        file.write("direct: {preflight: warn}\nslurm: {preflight: quick}\n")
    dry = ("direct", "--dry-run", "--json")
    assert planned(primus(*dry, "--", "rank_report", env=site))["preflight"] == "warn"
    assert planned(primus(*dry, "--preflight", "--", "rank_report", env=site))["preflight"] == "quick"
    assert not planned(primus(*dry, "--no-preflight", "--", "rank_report", env=site))["preflight"]
    outer = ("slurm", "--dry-run", "--json", "srun", "-N", "2")
    assert planned(primus(*outer, "--", "rank_report", env=site))["preflight"] == "quick"
    assert kinds(planned(primus(*outer, "--", "preflight", env=site))) == ["worker"]
    itself = planned(primus(*dry, "--", "preflight", env=site))
    assert kinds(itself) == ["worker"]
    assert itself["worker"]["args"][:2] == ["--only=rack.*", "--wait=1"], "the site's settings are one for both"


@pytest.mark.parametrize(
    ("words", "environ", "said"),
    [
        (("--preflight", "--", "preflight"), {}, "--preflight before preflight"),
        (("--preflight=slow", "--", "rank_report"), {}, "invalid choice: 'slow' (choose from 'quick', 'perf', 'warn')"),
        (
            ("--preflight", "--", "rank_report"),
            {"NNODES": "2", "MASTER_ADDR": "127.0.0.1"},
            "2 nodes that have no run directory in common",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    primus: Run, tmp_path: Path, site: dict[str, str], words: tuple[str, ...], environ: dict[str, str], said: str
) -> None:
    done = primus("direct", *words, env={**site, **environ})
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{onyl: [x]}", "primus.yaml:1: `primus ... -- preflight` has no option 'onyl'"),
        ("{gate: warn}", "primus.yaml:1: `primus ... -- preflight` has no option 'gate'"),
        ("{only: ['host.nofiles']}", "--only host.nofiles: no check has this name"),
        ("{thresholds: ./none.toml}", "none.toml"),
        ("{assume-host: ./there.tar.gz}", "preflight before a launch checks this machine"),
    ],
)
@pytest.mark.full
def test_wrong_settings_of_the_site_are_refused(
    primus: Run, tmp_path: Path, site: dict[str, str], section: str, said: str
) -> None:
    (tmp_path / "primus.yaml").write_text(f"preflight: {section}\n")
    done = primus("direct", "--preflight", "--", "rank_report", env=site)
    assert done.returncode == 2
    assert said in done.stderr


def test_without_the_package_the_error_says_what_to_install_where_the_ranks_start() -> None:
    pytest.importorskip("primus_torchtitan")
    host = HostRoot()
    catalogue = Catalogue.here(host)
    catalogue.plugins = [plugin for plugin in catalogue.plugins if plugin.name != "preflight"]
    words = ("direct", "--preflight", "--", "train", "pretrain", "--config", str(ROOT / "examples/quickstart.yaml"))
    request = parse(words, {"direct"}, {"train"})
    with pytest.raises(MachineError) as raised:
        planner.plan(request, host, catalogue, words)
    assert raised.value.fix.startswith("pip install /"), "it is installed from a checkout here"
    assert raised.value.fix.endswith("packages/primus-preflight")
    plan = planner.plan(request, host, catalogue, words, elsewhere=True).plan
    assert "the task 'preflight' is not installed here: it is planned where the ranks start, and must be there" in (
        plan.notes
    )
    assert all(step.kind != "preflight" for step in plan.steps)


@pytest.mark.full
def test_a_replay_looks_too_unless_it_is_told_not_to(primus: Run, tmp_path: Path, site: dict[str, str]) -> None:
    assert primus("direct", "--preflight", "--", "rank_report", env=site).returncode == 0
    again = planned(primus("replay", "rank_report", "--dry-run", "--json", env=site))
    assert (kinds(again), again["preflight"]) == (["preflight", "worker"], "quick")
    never = planned(primus("replay", "rank_report", "--dry-run", "--json", "direct", "--no-preflight", env=site))
    assert (kinds(never), never["preflight"]) == (["worker"], "")


@pytest.mark.full
def test_runs_diff_says_where_the_nodes_were_not_as_healthy(primus: Run, tmp_path: Path, site: dict[str, str]) -> None:
    for lamp in ("green", "red"):
        primus("direct", "--preflight=warn", "--", "rank_report", env={**site, "LAMP": lamp, "SLURMD_NODENAME": "n0"})
    first, second = sorted(path.name for path in (tmp_path / "output").glob("rank_report_*"))
    done = primus("runs", "diff", first, second, "--json", env=site)
    rows = [tuple(row.values()) for row in json.loads(done.stdout)["differences"] if row["category"] == "health"]
    assert rows == [("health", "rack.lamp, n0", "pass green", "fail red")]
    assert "config" not in {row["category"] for row in json.loads(done.stdout)["differences"]}


@pytest.mark.full
def test_a_package_that_cannot_compare_runs_spoils_no_comparison(
    primus: Run, tmp_path: Path, site: dict[str, str]
) -> None:
    for _ in range(2):
        primus("direct", "--", "rank_report", env=site)
    first, second = sorted(path.name for path in (tmp_path / "output").glob("rank_report_*"))
    listed = tmp_path / "packages/acme_rack-1.0.dist-info/entry_points.txt"
    listed.write_text("[primus.comparisons]\nrack = acme_rack:lamp\n")
    done = primus("runs", "diff", first, second, env=site)
    assert done.returncode == 0, done.stderr
    assert "primus: note: acme-rack 1.0 cannot compare these runs: " in done.stderr
    assert "the recorded inputs of the two runs are equal" in done.stdout


def of_run(folder: Path, *reports: NodeReport) -> str:
    for report in reports:
        node_report.write(str(folder / "preflight"), report)
    return str(folder)


FAST = Finding("gpu.gemm", "gpu 0", "pass", "600", unit="TFLOP/s", value=600.0, compare="higher")
DRIVER = Finding("gpu.driver", "", "pass", "6.12.12", compare="same")
WARM = Finding("gpu.temperature", "gpu 0", "pass", "40", unit="C", value=40.0)


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (lambda: (replace(FAST, value=575.0, measured="575"), DRIVER, WARM), None),
        (lambda: (FAST, DRIVER, replace(WARM, value=80.0, measured="80")), None),
        (
            lambda: (replace(FAST, value=540.0, measured="540"), DRIVER, WARM),
            ("gpu.gemm gpu 0, n0", "pass 600 TFLOP/s", "pass 540 TFLOP/s"),
        ),
        (lambda: (FAST, replace(DRIVER, measured="6.14"), WARM), ("gpu.driver, n0", "pass 6.12.12", "pass 6.14")),
        (
            lambda: (FAST, DRIVER, replace(WARM, status="warn", measured="95")),
            ("gpu.temperature gpu 0, n0", "pass 40 C", "warn 95 C"),
        ),
        (lambda: (FAST, DRIVER, WARM, replace(FAST, subject="gpu 1")), ("gpu.gemm gpu 1, n0", "", "pass 600 TFLOP/s")),
        (lambda: (DRIVER, WARM), None),
    ],
    ids=["noise", "not compared", "slower", "another word", "status", "one more GPU", "not asked"],
)
def test_health_differs_by_status_and_by_more_than_noise(
    tmp_path: Path, change: Callable[[], tuple[Finding, ...]], row: tuple[str, str, str] | None
) -> None:
    before = of_run(tmp_path / "a", NodeReport("n0", (FAST, DRIVER, WARM)))
    after = of_run(tmp_path / "b", NodeReport("n0", change()))
    assert [found[1:] for found in health.differences(before, after)] == ([row] if row else [])


def test_the_same_difference_on_many_nodes_is_one_row_and_other_nodes_are_paired_by_rank(tmp_path: Path) -> None:
    slow = replace(FAST, status="fail", value=300.0, measured="300")
    before = of_run(tmp_path / "a", *(NodeReport(f"n{rank}", (FAST,), node_rank=rank) for rank in range(4)))
    after = of_run(
        tmp_path / "b",
        *(NodeReport(f"n{rank}", (slow if rank else FAST,), node_rank=rank) for rank in range(3)),
        NodeReport("spare", (replace(DRIVER, check="gpu.gemm", subject="gpu 0"),), node_rank=3),
    )
    assert [row[1:] for row in health.differences(before, after)] == [
        ("gpu.gemm gpu 0, n1 and 1 more", "pass 600 TFLOP/s", "fail 300 TFLOP/s"),
        ("gpu.gemm gpu 0, n3 → spare", "pass 600 TFLOP/s", "pass 6.12.12"),
    ]
    assert health.differences(before, str(tmp_path / "nothing")) == []
